//! Skills that callers upload: the APIs for them, and what each caller is served of them.

use std::fmt::Debug;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method, Uri};

use crate::catalog::Snapshot;

/// Skills that callers upload.
pub trait Uploads: Debug + Send + Sync {
    /// Whether a request is for these APIs. All others go to a provider.
    fn takes(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool;

    /// Whether the credential of a request says whose skills it is about.
    fn is_by_credential(&self) -> bool;

    /// Answers a request that [`Uploads::takes`] took. Without a credential that is needed its body is empty. `base` is what
    /// everybody is served.
    fn answer<'a>(&'a self, parts: &'a Parts, body: Bytes, base: Arc<Snapshot>) -> BoxFuture<'a, http::Response<Body>>;

    /// The catalog for the sender of a request: `base`, and its own skills where they are not part of it.
    fn snapshot<'a>(&'a self, parts: &'a Parts, base: Arc<Snapshot>) -> BoxFuture<'a, Arc<Snapshot>>;
}
