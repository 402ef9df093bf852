//! The body of an answer: counts as an open request until it is dropped, and can be dropped while it is not being read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::activity::{Activity, Open};

/// A body on its way to a client.
#[derive(Debug)]
pub(super) struct Answer {
    body: AnswerBody,
    _open: Open,
}

#[derive(Debug)]
enum AnswerBody {
    /// The only answer of its connection at this moment: it ends with the connection.
    One(Body),
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
    /// When the last piece was handed out; `None` while the reader waits for one.
    handed_out: Option<Instant>,
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

impl Answer {
    pub(super) fn new(body: Body, open: Open, activity: &Activity, multiplexed: bool) -> Self {
        let body = if multiplexed {
            let held = Arc::new(DroppableBody(Mutex::new(Reading {
                body: Some(body),
                handed_out: None,
            })));
            activity.watch(&held);
            AnswerBody::Several(held)
        } else {
            AnswerBody::One(body)
        };
        Self { body, _open: open }
    }
}

impl DroppableBody {
    /// Drops the body if its last piece was handed out that long ago and no other was asked for since.
    pub(super) fn drop_if_stalled(&self, now: Instant, bound: Duration) {
        let mut reading = self.lock();
        if reading.handed_out.is_some_and(|at| now - at >= bound) {
            let body = reading.body.take();
            // A body may do much when it ends: not under the lock.
            drop(reading);
            drop(body);
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Polled {
        let mut reading = self.lock();
        let Some(body) = &mut reading.body else {
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "the client did not read the answer");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        };
        let polled = hyper::body::Body::poll_frame(Pin::new(body), context);
        reading.handed_out = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        polled
    }

    fn ask<T>(&self, ask: impl FnOnce(&Body) -> T) -> Option<T> {
        self.lock().body.as_ref().map(ask)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        match &mut self.body {
            AnswerBody::One(body) => Pin::new(body).poll_frame(context),
            AnswerBody::Several(held) => held.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            AnswerBody::One(body) => body.is_end_stream(),
            AnswerBody::Several(held) => held.ask(Body::is_end_stream).unwrap_or(false),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            AnswerBody::One(body) => body.size_hint(),
            AnswerBody::Several(held) => held.ask(Body::size_hint).unwrap_or_default(),
        }
    }
}
