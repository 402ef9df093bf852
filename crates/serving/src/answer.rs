//! The body of an answer: counts as an open request until its last byte is on its way, and can be dropped while it is not
//! being read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::activity::{Activity, Open};

/// Most bytes of a piece of one of several answers. A reader that stops leaves its last pieces in HTTP/2's buffers until the
/// connection ends: they are small, and copies, so that none of them keeps a large body. It is what one frame takes.
const PIECE_MAX_BYTES: usize = 16 << 10;

/// A body on its way to a client.
#[derive(Debug)]
pub(super) enum Answer {
    /// The only answer of its connection at this moment: it ends with the connection.
    One(Body, Arc<Open>),
    /// One of several.
    Several(Arc<DroppableBody>),
}

/// A body that can be dropped when its reader has stopped.
///
/// HTTP/2 polls a body again only when its reader has made room. Until then nothing in the body can act, so what it holds
/// (an upstream request, memory, a run) has to be dropped from outside.
#[derive(Debug)]
pub(super) struct DroppableBody(Mutex<Reading>);

#[derive(Debug)]
struct Reading {
    body: Option<Body>,
    /// What is left of the body's last piece.
    rest: Bytes,
    /// Pieces that were handed out and have not been sent to their end.
    pieces: usize,
    /// When bytes of them were sent last, or the first of them was handed out.
    moved_at: Instant,
    open: Open,
}

/// Bytes of an answer. The answer counts as open as long as one of its pieces is there.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    of: PieceOf,
}

#[derive(Debug)]
enum PieceOf {
    One { _open: Arc<Open> },
    Several(Arc<DroppableBody>),
}

type Polled<D> = Poll<Option<Result<Frame<D>, axum::Error>>>;

impl Answer {
    pub(super) fn new(body: Body, open: Open, activity: &Activity, multiplexed: bool) -> Self {
        if !multiplexed {
            return Self::One(body, Arc::new(open));
        }
        let held = Arc::new(DroppableBody(Mutex::new(Reading {
            body: Some(body),
            rest: Bytes::new(),
            pieces: 0,
            moved_at: Instant::now(),
            open,
        })));
        activity.watch(&held);
        Self::Several(held)
    }
}

impl Drop for Answer {
    /// Its pieces may be there for longer; what the body holds is not.
    fn drop(&mut self) {
        if let Self::Several(held) = self {
            held.drop_body();
        }
    }
}

impl DroppableBody {
    /// Drops the body if pieces of it wait and none of their bytes was sent for that long.
    pub(super) fn drop_if_stalled(&self, now: Instant, bound: Duration) {
        let mut reading = self.lock();
        if reading.pieces > 0 && now.saturating_duration_since(reading.moved_at) >= bound {
            reading.open.stalled();
            drop(reading);
            self.drop_body();
        }
    }

    fn drop_body(&self) {
        let mut reading = self.lock();
        reading.rest = Bytes::new();
        let body = reading.body.take();
        // A body may do much when it ends: not under the lock.
        drop(reading);
        drop(body);
    }

    /// The next bytes or trailers.
    fn poll(&self, context: &mut Context<'_>) -> Polled<Bytes> {
        let mut reading = self.lock();
        if reading.rest.is_empty() {
            let Some(body) = &mut reading.body else {
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "the client did not read the answer");
                return Poll::Ready(Some(Err(axum::Error::new(error))));
            };
            let frame = std::task::ready!(hyper::body::Body::poll_frame(Pin::new(body), context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => reading.rest = bytes,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = reading.rest.len().min(PIECE_MAX_BYTES);
        let piece = Bytes::copy_from_slice(&reading.rest.split_to(length));
        if reading.rest.is_empty() {
            // A slice without bytes can hold the whole of which it was one.
            reading.rest = Bytes::new();
        }
        if reading.pieces == 0 {
            reading.moved_at = Instant::now();
        }
        reading.pieces += 1;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let reading = self.lock();
        reading.rest.is_empty() && reading.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let reading = self.lock();
        let rest = reading.rest.len() as u64;
        let inner = reading.body.as_ref().map(Body::size_hint).unwrap_or_default();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl hyper::body::Body for Answer {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled<Piece> {
        let frame = match &mut *self {
            Self::One(body, _) => std::task::ready!(Pin::new(body).poll_frame(context)),
            Self::Several(held) => std::task::ready!(held.poll(context)),
        };
        let of = match &*self {
            Self::One(_, open) => PieceOf::One {
                _open: Arc::clone(open),
            },
            Self::Several(held) => PieceOf::Several(Arc::clone(held)),
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| Piece { bytes, of }))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::One(body, _) => body.is_end_stream(),
            Self::Several(held) => held.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(body, _) => body.size_hint(),
            Self::Several(held) => held.size_hint(),
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let PieceOf::Several(held) = &self.of {
            held.lock().moved_at = Instant::now();
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let PieceOf::Several(held) = &self.of {
            let mut reading = held.lock();
            reading.pieces -= 1;
            reading.moved_at = Instant::now();
        }
    }
}
