//! Where a hub is now, for clients that do not reach its Service.

use async_trait::async_trait;

use super::HubError;

/// Leads each request to a replica that is there.
#[async_trait]
pub trait Route: std::fmt::Debug + Send + Sync {
    /// The base URL of the replica `at` (its own `https://host:port`), or of any.
    ///
    /// Errors: [`HubError::Unreachable`] if there is none now.
    async fn base(&self, at: Option<&str>) -> Result<String, HubError>;
}
