//! The body of an answer, up to a number of bytes.

use bytes::{Bytes, BytesMut};
use reqwest::Response;

/// Why the body of an answer was not read.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It has more bytes than the bound. The announced bytes need not have arrived.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// How many were taken at most.
        limit: usize,
    },
    /// The transfer ended before the body did. It names no address: that may hold a secret.
    #[error("the transfer was interrupted: {0}")]
    Broken(reqwest::Error),
}

/// The rest of an answer's body, if it has at most `limit` bytes. Their memory is taken at once where their number is announced.
pub async fn read_answer(response: &mut Response, limit: usize) -> Result<Bytes, AnswerError> {
    let announced = response.content_length().unwrap_or_default();
    if announced > limit as u64 {
        return Err(AnswerError::TooLarge { limit });
    }
    let mut body = BytesMut::with_capacity(usize::try_from(announced).unwrap_or_default());
    loop {
        let part = response.chunk().await;
        let Some(part) = part.map_err(|error| AnswerError::Broken(error.without_url()))? else {
            return Ok(body.freeze());
        };
        if part.len() > limit - body.len() {
            return Err(AnswerError::TooLarge { limit });
        }
        body.extend_from_slice(&part);
    }
}
