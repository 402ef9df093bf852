//! What operators see: the log, metrics, traces, and the last requests.

pub mod log;
pub mod metrics;
pub(crate) mod note;
pub mod observe;
pub(crate) mod recent;
pub mod recorder;
pub mod report;
pub(crate) mod skill_metrics;
pub mod timeline;
pub(crate) mod trace;
pub(crate) mod use_reports;
