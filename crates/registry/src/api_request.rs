//! What a request to an API sends beside its path.

use bytes::Bytes;
use http::HeaderMap;

/// A request to an API, without what its method and path say, which is its [call](crate::ApiCall).
#[derive(Debug)]
pub struct ApiRequest {
    /// The query of its address.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// Its id, which its answer and its execution have.
    pub request_id: String,
}
