//! A stream of newline-delimited JSON, with a bound on its lines and on its silence.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::error::HubError;

/// Longest line. The longest there are: a `result` frame with two full streams of 4 MiB each in base64.
const LINE_MAX_BYTES: usize = 16 << 20;
/// A hub sends something at least every 10 s; three times that without a byte is a dead connection.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long the rest of an answer that was understood may take to come: its end is on its way.
const REST_WITHIN: Duration = Duration::from_secs(1);

/// Lines of an answer.
#[derive(Debug)]
pub struct LineReader {
    response: reqwest::Response,
    buffer: BytesMut,
    searched: usize,
}

impl LineReader {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self {
            response,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// The next line without its end; `None` when the answer has ended.
    ///
    /// Errors: [`HubError::Broken`] for a cut or silent connection, [`HubError::Protocol`] for a line without end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HubError> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                if line.is_empty() {
                    continue;
                }
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_MAX_BYTES {
                return Err(HubError::Protocol("a line of more than 16 MiB".to_owned()));
            }
            match tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Ok(None)) if self.buffer.is_empty() => return Ok(None),
                Ok(Ok(None)) => return Err(HubError::Broken("the answer ended inside a line".to_owned())),
                Ok(Err(error)) => return Err(HubError::broken(error)),
                Err(_) => {
                    return Err(HubError::Broken(format!(
                        "no data was received for {} s",
                        SILENCE_MAX.as_secs()
                    )));
                }
            }
        }
    }

    /// Reads what is left in the background: a connection whose answer was not read to its end serves no other request,
    /// and the next one would begin with a TLS handshake.
    pub fn finish(mut self) {
        tokio::spawn(async move {
            let rest = async { while let Ok(Some(_)) = self.next().await {} };
            // A hub that holds the end back costs a handshake, no more.
            let _ = tokio::time::timeout(REST_WITHIN, rest).await;
        });
    }

    /// The next line as a value.
    pub async fn next_value<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, HubError> {
        let Some(line) = self.next().await? else {
            return Ok(None);
        };
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| HubError::Protocol(format!("a line that cannot be read: {error}")))
    }
}
