//! The catalog of a gateway in a cluster: follows a hub's stream and makes the snapshots that files would make.
//!
//! ```text
//! hub ──lines──▶ mirror (what is served, by resourceVersion) ──▶ content (by digest, only what is missing) ──▶ assemble
//!                                                                                                  LiveCatalog ◀─┘
//! ```
//!
//! While the hub is away the last snapshot is served, up to `maxSnapshotAgeSeconds`; after that there is none, and
//! nothing is injected. [`mirror`] and [`convert`] are functions of values; [`follow`] and [`content`] call the hub.

mod blobs;
mod content;
mod follow;
pub mod mirror;
mod names;
mod one;
mod settings;

pub use blobs::Blobs;
pub use follow::{CatalogAge, Following, follow};
pub use one::{FetchError, fetch_skill};
