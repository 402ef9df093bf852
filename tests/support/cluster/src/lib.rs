//! The real cluster of the tests (`tests/cluster/bed`), seen from Rust.
//!
//! ```text
//! #[test]
//! fn finished_jobs_are_removed() {
//!     cluster_support::run("finished_jobs_are_removed", async |cluster| {
//!         let namespace = cluster.namespace("jobs").await;      // deleted when dropped
//!         let client = cluster.client().await;
//!         …
//!     });
//! }
//! ```
//!
//! [`run`] brings the bed up, or attaches to the one that runs, moves to a thread inside its network namespace (programs
//! that the test starts are inside too) and gives the test a runtime. The test may take its time while it moves ([`progress`]); where
//! nothing moves for [`STILL`] it fails. With `KNACK_NO_CLUSTER=1` it prints
//! `SKIPPED test` with its name; without a cluster and without that word it fails.
//!
//! It does not know Knack's own types.
#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "support of tests: a failure here is a failed test, and the reader is at a terminal"
)]

mod bed;
mod component;
mod logs;
mod namespace;
mod policy;
mod progress;
mod run;
mod token;

pub use bed::{Cluster, Switches};
pub use component::Component;
pub use logs::PodLogs;
pub use namespace::Namespace;
pub use policy::PolicyStandIn;
pub use progress::{STILL, progress};
pub use run::{own, run, run_within, skip};
pub use token::token;
