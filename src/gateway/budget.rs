//! Request bodies: one bound per body, one for all bodies that are held at the same time.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One request body, bytes. Above the 32 MB that the providers accept.
pub const BODY_MAX_BYTES: usize = 32 << 20;
/// All request bodies held at once, bytes: eight of the largest. Over it a request is refused at once, not queued.
pub const BODIES_TOTAL_BYTES: usize = 256 << 20;
/// The budget is counted in pages, so that a chatty connection does not hammer the semaphore.
const PAGE: usize = 64 << 10;

/// The budget that all request bodies share.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    pages: Arc<Semaphore>,
}

/// A body and its share of the budget, given back when this is dropped.
#[derive(Debug)]
pub struct HeldBody {
    /// The whole body.
    pub bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

/// Why a body was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Over [`BODY_MAX_BYTES`]: 413.
    TooLarge,
    /// The shared budget is used up: 503 with Retry-After.
    Busy,
    /// The client broke off or sent an invalid body: nobody to answer.
    Broken,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self {
            pages: Arc::new(Semaphore::new(BODIES_TOTAL_BYTES / PAGE)),
        }
    }
}

impl BodyBudget {
    /// Reads a body to its end within both bounds.
    pub async fn read(&self, headers: &HeaderMap, mut body: Body) -> Result<HeldBody, BodyError> {
        let announced = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<usize>().ok())
            .unwrap_or(0);
        if announced > BODY_MAX_BYTES {
            return Err(BodyError::TooLarge);
        }
        let mut share = self.reserve(announced)?;
        let mut pages = announced / PAGE + 1;
        let mut first: Option<Bytes> = None;
        let mut buffer = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
                continue;
            };
            // Most bodies come in one frame: keep it without a copy.
            if first.is_none() && buffer.is_empty() && data.len() >= announced {
                first = Some(data);
                continue;
            }
            if buffer.is_empty() {
                buffer.reserve(announced);
                if let Some(first) = first.take() {
                    buffer.extend_from_slice(&first);
                }
            }
            buffer.extend_from_slice(&data);
            if buffer.len() > BODY_MAX_BYTES {
                return Err(BodyError::TooLarge);
            }
            if buffer.len() / PAGE + 1 > pages {
                share.merge(self.reserve_pages(buffer.len() / PAGE + 1 - pages)?);
                pages = buffer.len() / PAGE + 1;
            }
        }
        let bytes = first.unwrap_or_else(|| buffer.freeze());
        if bytes.len() > BODY_MAX_BYTES {
            return Err(BodyError::TooLarge);
        }
        Ok(HeldBody { bytes, _share: share })
    }

    fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, BodyError> {
        self.reserve_pages(bytes / PAGE + 1)
    }

    fn reserve_pages(&self, pages: usize) -> Result<OwnedSemaphorePermit, BodyError> {
        let pages = u32::try_from(pages).map_err(|_| BodyError::TooLarge)?;
        Arc::clone(&self.pages)
            .try_acquire_many_owned(pages)
            .map_err(|_| BodyError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_within_the_bounds_come_whole_in_one_or_many_frames() {
        let budget = BodyBudget::default();
        let held = budget.read(&HeaderMap::new(), Body::from("abc")).await.unwrap();
        assert_eq!(held.bytes, "abc");
        let frames = futures::stream::iter(["a", "b", "c"].map(Ok::<_, std::io::Error>));
        let held = budget.read(&HeaderMap::new(), Body::from_stream(frames)).await.unwrap();
        assert_eq!(held.bytes, "abc");
    }

    #[tokio::test]
    async fn a_body_over_the_bound_is_refused_by_its_length_before_a_byte_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_LENGTH, (BODY_MAX_BYTES + 1).into());
        let endless = futures::stream::repeat_with(|| -> Result<&str, std::io::Error> { panic!("read") });
        assert_eq!(
            BodyBudget::default()
                .read(&headers, Body::from_stream(endless))
                .await
                .unwrap_err(),
            BodyError::TooLarge
        );
    }

    #[tokio::test]
    async fn a_body_that_lies_about_its_length_is_cut_at_the_bound() {
        let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1 << 20])));
        assert_eq!(
            BodyBudget::default()
                .read(&HeaderMap::new(), Body::from_stream(endless))
                .await
                .unwrap_err(),
            BodyError::TooLarge
        );
    }

    #[tokio::test]
    async fn the_shared_budget_is_given_back() {
        let budget = BodyBudget::default();
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_LENGTH, BODY_MAX_BYTES.into());
        let mut held = Vec::new();
        let refused = loop {
            match budget.read(&headers, Body::from("x")).await {
                Ok(body) => held.push(body),
                Err(error) => break error,
            }
        };
        assert_eq!((refused, held.len()), (BodyError::Busy, 7));
        held.clear();
        assert!(budget.read(&headers, Body::from("x")).await.is_ok());
    }
}
