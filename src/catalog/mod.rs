//! What a gateway serves: skills and settings, read from files, compiled into one immutable snapshot.
//!
//! ```text
//! paths ──discover──▶ sources ──assemble (with the last good ones)──▶ Snapshot ──ArcSwap──▶ requests
//!    ▲                                                                   │
//!    └────────────── watch: any change under the paths ◀─────────────────┘
//! ```
//!
//! In a cluster the sources come from a hub instead: [`remote`] follows its stream and makes the same snapshots.
//!
//! `assemble` is a function of values; only `discover` and `watch` touch the disk. A request takes one snapshot and
//! keeps it to its end.

mod assemble;
mod discover;
mod folder;
mod live;
pub mod remote;
mod runtime;
mod source;

pub use assemble::{LastGood, Snapshot, assemble, assemble_selected};
pub use discover::{Discovered, Search, discover};
pub use live::{LiveCatalog, Watching};
pub use runtime::RuntimeSettings;
pub use source::{Report, ReportLevel, SkillSource};
