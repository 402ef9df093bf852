//! Request bodies within bounds, of one request and of all together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::hub_api::{Problem, ProblemCode};

/// Largest body: as the gateway's own limit, so that what a gateway takes it can hand on.
pub(super) const BODY_MAX_BYTES: usize = 32 << 20;
/// Bytes of all bodies together: eight of the largest, or thousands of usual ones.
const BODIES_MAX_BYTES: usize = 256 << 20;
/// Unit of the budget.
const UNIT: usize = 1 << 10;
/// Time for a body to arrive: 32 MiB at 1 MiB/s.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(32);
/// What is read and thrown away of a body that is too large, so that its sender hears the answer instead of a reset.
const DISCARD_MAX_BYTES: u64 = 128 << 20;

/// The budget of all bodies.
#[derive(Debug, Clone)]
pub struct Bodies {
    units: Arc<Semaphore>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            units: Arc::new(Semaphore::new(BODIES_MAX_BYTES / UNIT)),
        }
    }
}

/// A body and its share of the budget.
#[derive(Debug)]
pub struct Held {
    /// The bytes.
    pub bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl Bodies {
    /// Reads a body.
    ///
    /// Errors: [`ProblemCode::TooLarge`], [`ProblemCode::TooSlow`], [`ProblemCode::Unavailable`] if too many bytes are held,
    /// [`ProblemCode::Invalid`] for a body that breaks off.
    pub async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Held, Problem> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse::<u64>().ok());
        if announced.is_some_and(|length| length > BODY_MAX_BYTES as u64) {
            discard(body).await;
            return Err(too_large());
        }
        let share = announced.map_or(BODY_MAX_BYTES, |length| {
            usize::try_from(length).unwrap_or(BODY_MAX_BYTES)
        });
        let units = u32::try_from(share.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.units).try_acquire_many_owned(units).map_err(|_| {
            Problem::new(
                ProblemCode::Unavailable,
                "the hub holds too many request bodies at this moment; try again",
            )
            .retry_after(1)
        })?;
        match tokio::time::timeout(ARRIVE_TIMEOUT, collect(body)).await {
            Ok(Ok(bytes)) => Ok(Held { bytes, _share: share }),
            Ok(Err(problem)) => Err(problem),
            Err(_) => Err(Problem::new(ProblemCode::TooSlow, "the body did not arrive in time")),
        }
    }
}

async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(ProblemCode::Invalid, "the body broke off before its end"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > BODY_MAX_BYTES {
            drop(bytes);
            discard(body).await;
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

async fn discard(mut body: Body) {
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, |data| data.len() as u64);
            if seen > DISCARD_MAX_BYTES {
                break;
            }
        }
    };
    // Whoever takes longer hears a reset.
    let _ = tokio::time::timeout(ARRIVE_TIMEOUT, reading).await;
}

fn too_large() -> Problem {
    Problem::new(
        ProblemCode::TooLarge,
        format!(
            "the request is larger than {} MiB, which is the most that the hub takes; input files count with a third on top",
            BODY_MAX_BYTES >> 20
        ),
    )
}
