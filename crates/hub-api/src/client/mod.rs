//! How a gateway or the command line reaches a hub: one HTTP client that follows rotated authorities and tokens.
//!
//! ```text
//! HubClient ── at/hub: post/get/delete ──▶ hub (TLS, bearer token)        answers: a value, a stream of lines, or a Problem
//!    ├── authorities: read again when the file changes
//!    ├── token: read again every few seconds
//!    └── resolver: `10-0-0-7.knack-hub.ns.svc` is 10.0.0.7, so one replica can be addressed by a name of the certificate
//! ```
//!
//! It does not retry: the caller knows which requests may be repeated.

mod clock;
mod error;
mod hub_client;
mod lines;
mod resolver;
mod route;
mod sources;

pub use error::HubError;
pub use hub_client::{HubClient, HubClientSettings, Target};
pub use lines::LineReader;
pub use resolver::replica_host;
pub use route::Route;
pub use sources::{Authorities, Token};
