//! LLM wire formats without I/O: spans over JSON, frames, formats, and the tool loop as a state machine.
//!
//! The path of a request: [`route()`], [`Request::parse`], [`Request::fields`], then the caller's additions
//! ([`Injection`]), then [`Drive`] until [`drive::DriveAction::Finish`]. Nothing here uses clocks, sockets or skills.

mod any_base64;
pub mod drive;
pub mod fault;
mod format;
pub mod frame;
pub mod glance;
pub mod history;
pub mod json;
pub mod own_files;
pub mod request;
pub mod route;
mod shown_run;
pub mod stored;
mod turn;
mod usage;

pub use drive::{CallOutcome, Drive, DriveAction, DriveInput, DriveSettings, DriveSummary, HiddenTurns, ToolCall};
pub use fault::Fault;
pub use request::{Injection, Request, RequestFields, Tool};
pub use route::{CallKind, Format, ModelRoute, Route, route};
pub use stored::{ItemPage, ItemsAsked, SentRun, StoredEvents, StoredForm};
