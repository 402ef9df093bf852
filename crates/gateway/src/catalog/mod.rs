//! The catalog of a gateway: skills and settings, compiled into one immutable snapshot.
//!
//! ```text
//! sources ──assemble (with the last good ones)──▶ Snapshot ──ArcSwap──▶ requests
//! ```
//!
//! In a cluster the sources come from a hub: [`remote`] follows its stream. `knack dev` reads them from files. Both call
//! [`assemble`], a function of values. A request takes one snapshot and keeps it to its end.

mod assemble;
mod live;
pub mod remote;
mod runtime;
mod source;

pub use assemble::{LastGood, Selected, Snapshot, UnreadSources, assemble, has_failed, last_good_report};
pub use live::{Files, LiveCatalog};
pub use runtime::RuntimeSettings;
pub use source::{Fingerprint, ObjectIds, PackageNames, ReportLevel, SkillSource, SourceReport, no_packages};
