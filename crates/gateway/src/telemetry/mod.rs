//! What operators see: the log, metrics, traces, and the last requests.

pub mod body_files;
pub(crate) mod execution_note;
pub mod log;
pub mod metrics;
pub mod observe;
pub mod own_request;
pub(crate) mod recent_requests;
pub mod request_report;
pub(crate) mod skill_metrics;
pub(crate) mod skill_use_reporter;
pub mod timeline;
pub(crate) mod trace;
