//! The Skills APIs: skills that callers upload, here or at the registry of a cluster, and what installers are offered.

pub mod discovery;
pub mod registry_relay;
pub mod skill_calls;
pub(crate) mod upload_routes;
pub mod uploads;
