//! The catalog of a gateway: skills and settings, compiled into one immutable snapshot.
//!
//! ```text
//! sources ──assemble (with the last good ones)──▶ Snapshot ──ArcSwap──▶ requests
//! ```
//!
//! In a cluster the sources come from a hub: [`remote`] follows its stream. `knack dev` reads them from files. Both call
//! [`assemble`], a function of values. A request takes one snapshot and keeps it to its end.

mod assemble;
mod last_good;
mod live;
pub mod remote;
mod runtime;
mod snapshot;
mod source;

pub use assemble::{Selected, UnreadSources, assemble, has_failed};
pub use last_good::{LastGood, last_good_report};
pub use live::{Files, LiveCatalog};
pub use runtime::RuntimeSettings;
pub use snapshot::Snapshot;
pub use source::{Fingerprint, ObjectIds, PackageNames, ReportLevel, SkillSource, SourceReport, no_packages};
