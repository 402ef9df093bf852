//! Request bodies within bounds: of one request, of one caller, and of all together.
//!
//! A body takes its share of the process's memory before its bytes come, and what it asks for keeps a share until it has
//! ended: a queued run holds its input files as surely as a body that is being read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;

use crate::hub_api::{Problem, ProblemCode};
use crate::memory::{MemoryBudget, MemoryShare, OverBudget};

/// Largest body: as the gateway's own limit, so that what a gateway takes it can hand on.
pub(super) const BODY_MAX_BYTES: usize = 32 << 20;
/// Of the process's budget, how many eighths bodies and the inputs of waiting runs may take.
const EIGHTHS: usize = 3;
/// What one caller may hold of it: half, so that another one's call finds room whatever he does.
const CALLER_DIVISOR: usize = 2;
/// Callers whose holdings are known; above it those who hold nothing are forgotten.
const CALLERS: usize = 1024;
/// A share grows in steps of this many bytes when a body does not announce its length.
const STEP_BYTES: usize = 256 << 10;
/// Time for a body to arrive: 32 MiB at 1 MiB/s.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(32);
/// What is read and thrown away of a body that is too large, so that its sender hears the answer instead of a reset.
const DISCARD_MAX_BYTES: u64 = 128 << 20;

/// The budget of all bodies.
#[derive(Debug)]
pub struct Bodies {
    all: MemoryBudget,
    callers: Mutex<HashMap<String, MemoryBudget>>,
}

/// A body and its share of the budget.
#[derive(Debug)]
pub struct Held {
    /// The bytes.
    pub bytes: Bytes,
    share: MemoryShare,
}

impl Held {
    /// The share without the bytes, for `left` bytes that were made of them.
    pub fn keep(mut self, left: usize) -> Arc<MemoryShare> {
        self.share.shrink_to(left);
        Arc::new(self.share)
    }
}

impl Bodies {
    /// The bodies' part of a process's memory.
    pub fn of(whole: &MemoryBudget) -> Self {
        Self {
            all: whole.part(whole.total_bytes() / 8 * EIGHTHS),
            callers: Mutex::default(),
        }
    }

    /// Reads a body of a caller.
    ///
    /// Errors: [`ProblemCode::TooLarge`], [`ProblemCode::TooSlow`], [`ProblemCode::Unavailable`] if too many bytes are held,
    /// [`ProblemCode::Invalid`] for a body that breaks off.
    pub async fn read(&self, caller: &str, headers: &HeaderMap, body: Body) -> Result<Held, Problem> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse::<u64>().ok())
            .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > BODY_MAX_BYTES) {
            discard(body).await;
            return Err(too_large());
        }
        let share = self.of_caller(caller).try_take(announced.unwrap_or(STEP_BYTES));
        let share = share.map_err(no_room)?;
        tokio::time::timeout(ARRIVE_TIMEOUT, collect(body, share, announced))
            .await
            .unwrap_or_else(|_| Err(Problem::new(ProblemCode::TooSlow, "the body did not arrive in time")))
    }

    fn of_caller(&self, caller: &str) -> MemoryBudget {
        // The map is valid between any two statements.
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS && !callers.contains_key(caller) {
            callers.retain(|_, budget| budget.held_bytes() > 0);
        }
        let part = || self.all.part(self.all.total_bytes() / CALLER_DIVISOR);
        callers.entry(caller.to_owned()).or_insert_with(part).clone()
    }
}

fn no_room(over: OverBudget) -> Problem {
    if over.is_final() {
        let text = format!(
            "the request takes {} MiB, more than this hub's memory limit leaves for one caller ({} MiB); raise the limit",
            over.asked_bytes >> 20,
            over.total_bytes >> 20
        );
        return Problem::new(ProblemCode::TooLarge, text);
    }
    let text = "the hub holds too many bytes of requests and waiting runs at this moment; try again";
    Problem::new(ProblemCode::Unavailable, text).retry_after(1)
}

async fn collect(mut body: Body, mut share: MemoryShare, announced: Option<usize>) -> Result<Held, Problem> {
    let mut bytes = BytesMut::with_capacity(announced.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(ProblemCode::Invalid, "the body broke off before its end"))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > BODY_MAX_BYTES {
            drop(bytes);
            discard(body).await;
            return Err(too_large());
        }
        if length > share.bytes() {
            // A buffer that grows is twice as large for a moment.
            share.grow_to(2 * length.max(STEP_BYTES)).map_err(no_room)?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Held {
        bytes: bytes.freeze(),
        share,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// The budget under the chart's limit of 512 MiB.
    fn bodies() -> (MemoryBudget, Bodies) {
        let whole = MemoryBudget::of_limit(Some(512 << 20));
        let bodies = Bodies::of(&whole);
        (whole, bodies)
    }

    fn announcing(bytes: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, bytes.into())])
    }

    #[tokio::test]
    async fn three_hundred_waiting_runs_of_24_mib_take_what_their_caller_may_and_others_still_come_in() {
        let (whole, bodies) = bodies();
        let (mut waiting, mut refused) = (Vec::new(), 0);
        for _ in 0..300 {
            match bodies
                .read("loud", &announcing(24 * MIB), Body::from(vec![0; 24 * MIB]))
                .await
            {
                // The body is gone, what was made of it waits.
                Ok(held) => waiting.push(held.keep(18 * MIB)),
                Err(problem) => {
                    assert_eq!(problem.code, ProblemCode::Unavailable);
                    refused += 1;
                }
            }
        }
        assert!(!waiting.is_empty() && refused > 290, "{} {refused}", waiting.len());
        assert!(whole.held_bytes() <= 48 * MIB, "{}", whole.held_bytes());
        let other = bodies
            .read("quiet", &announcing(MIB), Body::from(vec![0; MIB]))
            .await
            .unwrap();
        assert_eq!(other.bytes.len(), MIB);
        drop((waiting, other));
        assert_eq!(whole.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_counted_as_it_comes() {
        let (whole, bodies) = bodies();
        let pieces = (0..8).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; MIB])));
        let body = Body::from_stream(futures::stream::iter(pieces));
        let held = bodies.read("a", &HeaderMap::new(), body).await.unwrap();
        assert_eq!(held.bytes.len(), 8 * MIB);
        assert!(whole.held_bytes() >= 8 * MIB);
        let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![0; MIB])));
        let problem = bodies
            .read("a", &HeaderMap::new(), Body::from_stream(endless))
            .await
            .unwrap_err();
        assert!(
            matches!(problem.code, ProblemCode::TooLarge | ProblemCode::Unavailable),
            "{problem}"
        );
        assert_eq!(held.keep(MIB).bytes(), MIB);
        assert_eq!(whole.held_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_gives_its_share_back() {
        let (whole, bodies) = bodies();
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = bodies.read("a", &announcing(32 * MIB), silent).await.unwrap_err();
        assert_eq!((problem.code, whole.held_bytes()), (ProblemCode::TooSlow, 0));
    }
}
