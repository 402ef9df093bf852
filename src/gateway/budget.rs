//! What a request may hold: its body while it arrives, the copies that rounds make of it, files, and runs in flight.
//!
//! All of it is taken from the process's [`MemoryBudget`], as bytes arrive and not as a client announces them, and given
//! back when the request ends. What is large takes from a part of the budget only, so that large bodies never leave
//! small requests without room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::HeaderMap;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::records::Key;
use crate::memory::{MemoryBudget, MemoryShare, OverBudget};

/// One request body, bytes. Above the 32 MB that the providers accept.
pub const BODY_MAX_BYTES: usize = 32 << 20;
/// What a request takes of the whole budget; anything above comes from the part for what is large. A long conversation
/// of text has about this size.
const SMALL_BYTES: usize = 256 << 10;
/// Share of the budget for everything but small requests, in quarters: the last quarter is always theirs.
const BULK_QUARTERS: usize = 3;
/// Share of the budget for large bodies and files, in quarters.
const LARGE_QUARTERS: usize = 2;
/// Share of the budget for skill content, in quarters: a gateway holds the skills of all its clients.
const CONTENT_QUARTERS: usize = 1;
/// Time for a body to arrive: 32 MiB at 2 Mbit/s.
pub const ARRIVE_TIMEOUT: Duration = Duration::from_secs(128);
/// Time between two pieces of a body. A client that is alive retransmits within a few seconds.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// First buffer of a body of unknown or large size, bytes; it doubles as bytes arrive.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// What is read and thrown away of a body that is not taken, so that its sender hears the answer instead of a reset.
const DISCARD_MAX_BYTES: usize = 64 << 20;
/// How long a run waits for room: as long as a call waits for a place in the usual queue.
const RUN_PATIENCE: Duration = Duration::from_secs(30);

/// The part of the process's memory budget that requests take.
#[derive(Debug, Clone)]
pub struct Requests {
    whole: MemoryBudget,
    /// Everything but small requests.
    bulk: MemoryBudget,
    large: MemoryBudget,
    /// The parts of `large` of callers that hold any of it.
    callers: Arc<Mutex<HashMap<Key, MemoryBudget>>>,
    times: BodyTimes,
}

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

/// What one request holds; given back when dropped.
#[derive(Debug)]
pub struct Holding {
    small: MemoryShare,
    rest: Option<MemoryShare>,
    large: MemoryBudget,
}

/// A body and what its request holds.
#[derive(Debug)]
pub struct HeldBody {
    /// The whole body.
    pub bytes: Bytes,
    /// Grows with the copies of rounds.
    pub holding: Holding,
}

/// Why a body was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Over [`BODY_MAX_BYTES`]: 413.
    TooLarge,
    /// The budget is used up: 503 with Retry-After.
    Busy,
    /// It did not arrive in time: 408.
    Late,
    /// The client broke off or sent an invalid body: nobody to answer.
    Broken,
}

impl From<OverBudget> for BodyError {
    fn from(_: OverBudget) -> Self {
        Self::Busy
    }
}

impl Requests {
    /// Takes from the process's budget.
    pub fn new(process: &MemoryBudget, times: BodyTimes) -> Self {
        let quarter = process.total_bytes() / 4;
        let bulk = process.part(BULK_QUARTERS * quarter);
        Self {
            whole: process.clone(),
            large: bulk.part(LARGE_QUARTERS * quarter),
            callers: Arc::default(),
            bulk,
            times,
        }
    }

    /// What skill content may take.
    pub fn content(&self) -> MemoryBudget {
        self.bulk.part(self.whole.total_bytes() / 4 * CONTENT_QUARTERS)
    }

    /// The process's budget.
    pub const fn process(&self) -> &MemoryBudget {
        &self.whole
    }

    /// Reads a body to its end within the bounds.
    pub async fn read(&self, caller: &Key, headers: &HeaderMap, mut body: Body) -> Result<HeldBody, BodyError> {
        let announced = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse::<usize>().ok())
            .unwrap_or(0);
        let read = if announced > BODY_MAX_BYTES {
            Err(BodyError::TooLarge)
        } else {
            self.collect(caller, announced, &mut body).await
        };
        if matches!(read, Err(BodyError::TooLarge | BodyError::Busy)) {
            self.discard(body).await;
        }
        read
    }

    async fn collect(&self, caller: &Key, announced: usize, body: &mut Body) -> Result<HeldBody, BodyError> {
        let mut holding = self.hold(caller, 0)?;
        let mut first: Option<Bytes> = None;
        let mut buffer = BytesMut::new();
        let late = Instant::now() + self.times.arrive;
        while let Some(frame) = self.frame(body, late).await? {
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
                continue;
            };
            let length = first.as_ref().map_or(buffer.len(), Bytes::len) + data.len();
            if length > BODY_MAX_BYTES {
                return Err(BodyError::TooLarge);
            }
            holding.grow_to(length)?;
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
        let silent = Instant::now() + self.times.silence;
        timeout_at(late.min(silent), body.frame())
            .await
            .map_err(|_| BodyError::Late)
    }

    /// Reads and forgets the rest of a body.
    async fn discard(&self, mut body: Body) {
        let late = Instant::now() + self.times.arrive;
        let mut seen = 0;
        while let Ok(Some(Ok(frame))) = self.frame(&mut body, late).await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DISCARD_MAX_BYTES {
                return;
            }
        }
    }

    /// A body that is passed on as it comes: an error ends it when its sender is silent for too long.
    pub fn passing(&self, body: Body) -> impl futures::Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
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

    /// What a caller may take of what is large: half of it, and at least one body of the largest size with its copy.
    fn large_of(&self, caller: &Key) -> MemoryBudget {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = callers.get(caller) {
            return part.clone();
        }
        // As many callers hold something as there are requests at most.
        callers.retain(|_, part| part.is_shared() || part.held_bytes() > 0);
        let part = self.large.part((self.large.total_bytes() / 2).max(2 * BODY_MAX_BYTES));
        callers.insert(*caller, part.clone());
        part
    }

    /// Takes `bytes` for a caller now.
    pub fn hold(&self, caller: &Key, bytes: usize) -> Result<Holding, OverBudget> {
        let mut holding = Holding {
            small: self.whole.try_take(bytes.min(SMALL_BYTES))?,
            rest: None,
            large: self.large_of(caller),
        };
        holding.grow_to(bytes)?;
        Ok(holding)
    }

    /// Takes what a run in flight may need, waiting for others to end.
    pub async fn hold_run(&self, bytes: usize) -> Result<MemoryShare, OverBudget> {
        let bytes = bytes.min(self.bulk.total_bytes());
        self.bulk.take(bytes, RUN_PATIENCE).await
    }
}

type Frame = Result<hyper::body::Frame<Bytes>, axum::Error>;

impl Holding {
    /// Makes it at least `bytes`, if there is room. What is larger stays as it is.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.small.grow_to(bytes.min(SMALL_BYTES))?;
        let Some(above) = bytes.checked_sub(SMALL_BYTES).filter(|above| *above > 0) else {
            return Ok(());
        };
        if let Some(rest) = &mut self.rest {
            rest.grow_to(above)
        } else {
            self.rest = Some(self.large.try_take(above)?);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const A: Key = [1; 32];
    const B: Key = [2; 32];

    fn requests(bytes: usize) -> Requests {
        Requests::new(&MemoryBudget::new(bytes), BodyTimes::default())
    }

    fn announcing(bytes: usize) -> HeaderMap {
        [(http::header::CONTENT_LENGTH, bytes.into())].into_iter().collect()
    }

    #[tokio::test]
    async fn bodies_within_the_bounds_come_whole_in_one_or_many_frames() {
        let requests = requests(64 * MIB);
        let held = requests.read(&A, &HeaderMap::new(), Body::from("abc")).await.unwrap();
        assert_eq!(held.bytes, "abc");
        for headers in [HeaderMap::new(), announcing(3)] {
            let frames = futures::stream::iter(["a", "b", "c"].map(Ok::<_, std::io::Error>));
            let held = requests.read(&A, &headers, Body::from_stream(frames)).await.unwrap();
            assert_eq!(held.bytes, "abc");
        }
    }

    #[tokio::test]
    async fn a_body_over_the_bound_is_refused_by_its_length_or_where_it_crosses_it() {
        for (announced, pieces) in [(BODY_MAX_BYTES + 1, 1), (0, 40), (5, 40)] {
            let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; MIB]));
            let frames = futures::stream::repeat_with(piece).take(pieces);
            let requests = requests(64 * MIB);
            let read = requests
                .read(&A, &announcing(announced), Body::from_stream(frames))
                .await;
            assert_eq!(read.unwrap_err(), BodyError::TooLarge, "{announced}");
            assert_eq!(requests.process().held_bytes(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_announced_and_never_comes_holds_nothing_and_ends() {
        let requests = requests(64 * MIB);
        let silent = futures::stream::once(async { Ok::<_, std::io::Error>("x") }).chain(futures::stream::pending());
        let reading = tokio::spawn({
            let requests = requests.clone();
            async move {
                requests
                    .read(&A, &announcing(BODY_MAX_BYTES), Body::from_stream(silent))
                    .await
            }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            requests.process().held_bytes() < 100 << 10,
            "what has come counts, not what is announced"
        );
        let begun = Instant::now();
        assert_eq!(reading.await.unwrap().unwrap_err(), BodyError::Late);
        assert!(begun.elapsed() < SILENCE_TIMEOUT);
        let trickle = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let begun = Instant::now();
        let read = requests.read(&A, &HeaderMap::new(), Body::from_stream(trickle)).await;
        assert_eq!(read.unwrap_err(), BodyError::Late);
        assert_eq!(begun.elapsed().as_secs(), ARRIVE_TIMEOUT.as_secs());
        assert_eq!(requests.process().held_bytes(), 0);
    }

    #[tokio::test]
    async fn large_bodies_leave_room_for_small_ones_and_give_theirs_back() {
        let requests = requests(64 * MIB);
        let body = || Body::from(vec![b'x'; 20 * MIB]);
        let mut large = requests.read(&A, &HeaderMap::new(), body()).await.unwrap();
        let refused = requests.read(&A, &HeaderMap::new(), body()).await.unwrap_err();
        assert_eq!(refused, BodyError::Busy);
        assert!(large.holding.grow_to(50 * MIB).is_err(), "copies count too");
        large.holding.grow_to(30 * MIB).unwrap();
        let small: Vec<_> = (0..100).map(|_| requests.hold(&A, SMALL_BYTES).unwrap()).collect();
        drop((large, small));
        assert_eq!(requests.process().held_bytes(), 0);
        assert!(requests.read(&A, &HeaderMap::new(), body()).await.is_ok());
    }

    #[tokio::test]
    async fn one_callers_large_bodies_leave_room_for_anothers() {
        let requests = requests(512 * MIB);
        let body = || Body::from(vec![b'x'; 30 * MIB]);
        let mut held = Vec::new();
        while let Ok(body) = requests.read(&A, &HeaderMap::new(), body()).await {
            held.push(body);
        }
        assert_eq!(held.len(), 4, "half of 256 MiB");
        let other = requests.read(&B, &HeaderMap::new(), body()).await.unwrap();
        drop((held, other));
        assert_eq!(requests.process().held_bytes(), 0);
        drop(requests.hold(&[3; 32], 0).unwrap());
        assert_eq!(
            requests.callers.lock().unwrap().len(),
            1,
            "callers that hold nothing are forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_passed_on_ends_with_an_error_when_its_sender_is_silent() {
        let silent = futures::stream::once(async { Ok::<_, std::io::Error>("x") }).chain(futures::stream::pending());
        let pieces: Vec<_> = requests(MIB).passing(Body::from_stream(silent)).collect().await;
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].is_ok() && pieces[1].is_err());
    }
}
