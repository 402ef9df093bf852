//! Request bodies within bounds: of one request, of one caller, and of all together.
//!
//! A body takes its share of a [`MemoryBudget`] as its bytes arrive, and for all that is announced once enough of it has come
//! ([`TRUSTED_FROM_BYTES`]): large bodies that arrive together would each take a part, and then refuse each other. What is made of it
//! keeps a share until it has ended: a queued run holds its input files as surely as a body that is being read. What is
//! small takes from the whole budget. What is above that takes from a part for large bodies, and of that part one caller
//! gets half, so that neither large bodies nor one caller leave others without room.

use std::hash::Hash;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, StreamExt as _};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use knack_memory::{MemoryBudget, MemoryParts, MemoryShare, OverBudget};
use tokio::time::{Instant, timeout_at};

/// One request body, bytes. Above the 32 MB that the providers accept, and the same for gateway and hub: what a gateway
/// takes it can hand on.
pub const BODY_MAX_BYTES: usize = 32 << 20;
/// Time for a body to arrive: 32 MiB at 2 Mbit/s.
pub const ARRIVE_TIMEOUT: Duration = Duration::from_secs(128);
/// Time between two pieces of a body. A client that is alive retransmits within a few seconds.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// First buffer of a body of unknown or large size, bytes; it doubles as bytes arrive.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// From this many bytes on the announced length of a body is believed, and room is taken for all of it. Less is nothing that it
/// would take a sender anything to announce.
const TRUSTED_FROM_BYTES: usize = 256 << 10;
/// The large part divided by this is the most that one caller may hold.
const CALLER_DIVISOR: usize = 2;

/// How long a body may take.
#[derive(Debug, Clone, Copy)]
pub struct BodyTimes {
    /// From its first byte to its last.
    pub arrive: Duration,
    /// Between two pieces.
    pub silence: Duration,
}

impl Default for BodyTimes {
    fn default() -> Self {
        Self {
            arrive: ARRIVE_TIMEOUT,
            silence: SILENCE_TIMEOUT,
        }
    }
}

/// Where requests take their memory.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    /// The process's budget: what is small takes from here.
    pub whole: MemoryBudget,
    /// The part of it for what is large.
    pub large: MemoryBudget,
    /// Up to this many bytes a request is small.
    pub small_bytes: usize,
    /// Least bytes of `large` that one caller may hold, even if that is more than half of it.
    pub caller_least_bytes: usize,
}

/// Bodies of callers with names of type `K`.
#[derive(Debug, Clone)]
pub struct Bodies<K> {
    budget: BodyBudget,
    /// The parts of the large budget of callers.
    callers: MemoryParts<K>,
    times: BodyTimes,
}

/// The memory that one request holds; given back when dropped.
#[derive(Debug)]
pub struct Holding {
    small: MemoryShare,
    rest: Option<MemoryShare>,
    large: MemoryBudget,
    small_bytes: usize,
}

/// A body and what its request holds.
#[derive(Debug)]
pub struct HeldBody {
    /// The whole body.
    pub bytes: Bytes,
    /// Grows with copies of the body, shrinks to what was made of it.
    pub holding: Holding,
}

/// Why a body was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// It has more bytes than it may have.
    TooLarge,
    /// The budget is used up.
    Busy(OverBudget),
    /// It did not arrive in time.
    Late,
    /// The client disconnected or sent an invalid body: there is no one to answer.
    Broken,
}

impl From<OverBudget> for BodyError {
    fn from(over: OverBudget) -> Self {
        Self::Busy(over)
    }
}

impl<K: Eq + Hash + Clone> Bodies<K> {
    /// Bodies that take from a budget.
    pub fn new(budget: BodyBudget, times: BodyTimes) -> Self {
        let large = &budget.large;
        let each_bytes = (large.total_bytes() / CALLER_DIVISOR).max(budget.caller_least_bytes);
        Self {
            callers: MemoryParts::new(large.clone(), each_bytes),
            budget,
            times,
        }
    }

    /// Reads a body to its end within the bounds.
    pub async fn read(&self, caller: &K, headers: &HeaderMap, body: Body) -> Result<HeldBody, BodyError> {
        self.read_up_to(BODY_MAX_BYTES, caller, headers, body).await
    }

    /// Reads a body to its end that may have at most so many bytes, within the other bounds.
    pub async fn read_up_to(
        &self,
        most: usize,
        caller: &K,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<HeldBody, BodyError> {
        let announced = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<u64>().ok())
            .map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced > most {
            return Err(BodyError::TooLarge);
        }
        self.collect(caller, (announced, most), body).await
    }

    async fn collect(
        &self,
        caller: &K,
        (announced, most): (usize, usize),
        mut body: Body,
    ) -> Result<HeldBody, BodyError> {
        let mut holding = self.hold(caller, 0)?;
        let mut first: Option<Bytes> = None;
        let mut buffer = BytesMut::new();
        let late = Instant::now() + self.times.arrive;
        while let Some(frame) = self.frame(&mut body, late).await? {
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
                continue;
            };
            let length = first.as_ref().map_or(buffer.len(), Bytes::len) + data.len();
            if length > most {
                return Err(BodyError::TooLarge);
            }
            holding.grow_to(needed(announced, length))?;
            // Most bodies come in one frame: keep it without a copy.
            if first.is_none() && buffer.is_empty() && data.len() >= announced {
                first = Some(data);
                continue;
            }
            if let Some(first) = first.take() {
                buffer.extend_from_slice(&first);
            }
            if buffer.capacity() == 0 {
                buffer.reserve(announced.min(FIRST_BUFFER_BYTES));
            }
            buffer.extend_from_slice(&data);
        }
        Ok(HeldBody {
            bytes: first.unwrap_or_else(|| buffer.freeze()),
            holding,
        })
    }

    /// The next frame, in time.
    async fn frame(&self, body: &mut Body, late: Instant) -> Result<Option<Frame>, BodyError> {
        // Most bodies come with their head: what is there needs no timer.
        if let Some(frame) = body.frame().now_or_never() {
            return Ok(frame);
        }
        let silent = Instant::now() + self.times.silence;
        timeout_at(late.min(silent), body.frame())
            .await
            .map_err(|_| BodyError::Late)
    }

    /// A body that is passed on as it comes: an error ends it when its sender is silent for too long.
    pub fn passing(
        &self,
        body: Body,
    ) -> impl futures::Stream<Item = Result<Bytes, axum::Error>> + Send + 'static + use<K> {
        let silence = self.times.silence;
        futures::stream::unfold(Some(body.into_data_stream()), move |stream| async move {
            let mut stream = stream?;
            if let Ok(piece) = tokio::time::timeout(silence, stream.next()).await {
                Some((piece?, Some(stream)))
            } else {
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "the body did not arrive in time");
                Some((Err(axum::Error::new(error)), None))
            }
        })
    }

    /// Takes `bytes` for a caller now.
    pub fn hold(&self, caller: &K, bytes: usize) -> Result<Holding, OverBudget> {
        let mut holding = Holding {
            small: self.budget.whole.try_take(bytes.min(self.budget.small_bytes))?,
            rest: None,
            large: self.callers.of(caller),
            small_bytes: self.budget.small_bytes,
        };
        holding.grow_to(bytes)?;
        Ok(holding)
    }
}

/// The bytes held for a body of an announced length when `arrived` bytes of it are there.
fn needed(announced: usize, arrived: usize) -> usize {
    if arrived < TRUSTED_FROM_BYTES {
        arrived
    } else {
        arrived.max(announced)
    }
}

type Frame = Result<hyper::body::Frame<Bytes>, axum::Error>;

impl Holding {
    /// Grows it to at least `bytes`, if there is room. A larger one stays as it is.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.small.grow_to(bytes.min(self.small_bytes))?;
        let Some(above) = bytes.checked_sub(self.small_bytes).filter(|above| *above > 0) else {
            return Ok(());
        };
        if let Some(rest) = &mut self.rest {
            rest.grow_to(above)
        } else {
            self.rest = Some(self.large.try_take(above)?);
            Ok(())
        }
    }

    /// Gives back what is above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.small.shrink_to(bytes.min(self.small_bytes));
        match (&mut self.rest, bytes.checked_sub(self.small_bytes)) {
            (Some(rest), Some(above)) if above > 0 => rest.shrink_to(above),
            (rest, _) => *rest = None,
        }
    }
}

#[cfg(test)]
#[path = "bodies_tests.rs"]
mod tests;
