//! The catalog of a gateway in a cluster: follows a hub's stream and makes the snapshots that files would make.
//!
//! ```text
//! hub ──lines──▶ mirror (what is served, by resourceVersion) ──▶ content (by digest, only what is missing) ──▶ assemble
//!                                                                                                  LiveCatalog ◀─┘
//! ```
//!
//! While the hub is away the last snapshot is served, up to `maxSnapshotAgeSeconds`; after that there is none, and
//! nothing is injected. A gateway with a folder for it saves what the hub sent, and begins with it when it is started again.
//! [`mirror`] and [`settings`] are functions of values; [`follow`] and [`content`] call the hub, and [`saved`] the disk.

mod age;
mod blobs;
mod content;
mod follow;
mod known;
pub(crate) mod mirror;
mod names;
mod objects;
mod saved;
mod serving;
mod settings;
mod single_skill;

pub use age::CatalogAge;
pub use blobs::Blobs;
pub use follow::{CatalogTasks, follow};
pub use single_skill::{FetchError, fetch_skill};
