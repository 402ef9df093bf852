//! What operators see: the log, metrics, traces, and the last requests.

pub mod log;
pub mod metrics;
pub mod note;
pub mod observe;
pub mod recent;
pub mod recorder;
pub mod report;
pub mod skill_metrics;
pub mod timeline;
pub mod trace;
pub(crate) mod use_reports;
