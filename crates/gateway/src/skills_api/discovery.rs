//! Skills for installers: the index of a site, and the files that it names.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Uri;
use http::request::Parts;

use crate::catalog::Snapshot;

/// Offers skills to installers.
pub trait Discovery: Debug + Send + Sync {
    /// Whether an address is one of those that are offered. All others go to a provider.
    fn takes(&self, uri: &Uri) -> bool;

    /// Answers a request to an address that [`Discovery::takes`] took. `snapshot` is what a model request of its sender would
    /// be served.
    fn answer<'a>(&'a self, parts: &'a Parts, snapshot: Arc<Snapshot>) -> BoxFuture<'a, http::Response<Bytes>>;
}
