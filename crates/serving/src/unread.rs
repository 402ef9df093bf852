//! The rest of a body that a refused request has not read: read and thrown away before the refusal is sent. A connection that
//! ends while its client is still sending breaks for that client, who would never read the answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::bodies::BodyTimes;

/// Most bytes of one body that are read and thrown away: two of the largest bodies. A longer one is cut off.
const DISCARD_MAX_BYTES: usize = 64 << 20;

/// A body that comes back when it is dropped before its end.
#[derive(Debug)]
pub(super) struct LentBody<B> {
    body: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

/// Where a body comes back to.
#[derive(Debug)]
pub(super) struct Unread<B> {
    back: oneshot::Receiver<B>,
    /// The client sends its body only after `100 Continue`.
    waits: bool,
}

/// Lends the body of a request with these headers.
pub(super) fn lend<B>(headers: &HeaderMap, body: B) -> (LentBody<B>, Unread<B>) {
    let (sender, back) = oneshot::channel();
    let lent = LentBody {
        body: Some(body),
        back: Some(sender),
    };
    let waits = headers.contains_key(header::EXPECT);
    (lent, Unread { back, waits })
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    /// Reads what is left of the body of a request that was answered with this status, if it was refused, within the bounds of
    /// bodies.
    pub(super) async fn discard(mut self, status: StatusCode, times: BodyTimes) {
        // A client that was too slow has been waited for.
        let is_late = status == StatusCode::REQUEST_TIMEOUT;
        let is_refusal = (status.is_client_error() || status.is_server_error()) && !is_late;
        if !is_refusal || self.waits {
            return;
        }
        // Nothing: it was read to its end, or is still being read, as by a request that is passed on.
        let Ok(mut body) = self.back.try_recv() else { return };
        let late = Instant::now() + times.arrive;
        let mut seen = 0;
        while seen <= DISCARD_MAX_BYTES {
            let silent = Instant::now() + times.silence;
            match timeout_at(late.min(silent), body.frame()).await {
                Ok(Some(Ok(frame))) => seen += frame.data_ref().map_or(0, Bytes::len),
                _ => return,
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            // Ended or broken: nothing is left to come back.
            self.back = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl<B> Drop for LentBody<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // The receiver is gone unless the answer is a refusal.
            let _ = back.send(body);
        }
    }
}
