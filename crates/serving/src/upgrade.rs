//! A connection that a request takes over, as a websocket does. It counts among the connections of its peer until it ends.

use std::future::Future;

use axum::extract::Request;
use hyper_util::rt::TokioIo;

/// The connection behind an answer with the status 101.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// The connection of this request, as soon as its answer with the status 101 is sent. Errors: the answer had another status, the
/// client left, or the request did not come over HTTP/1.1 with `Connection: upgrade`.
pub fn of(request: &mut Request) -> impl Future<Output = hyper::Result<Upgraded>> + Send + use<> {
    let upgrade = hyper::upgrade::on(request);
    async move { upgrade.await.map(TokioIo::new) }
}
