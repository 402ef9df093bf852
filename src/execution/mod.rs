//! Running code: one trait, one file per executor, and what every executor shares (ids, queue, records).
//!
//! ```text
//! gateway ──ExecutionRequest──▶ Executor ──▶ records (once per id) ──▶ queue (bounded) ──▶ sandbox
//!         ◀──ExecutionResult───            ◀──────────────── kept for asking again ◀─────────────
//! ```
//!
//! A request is a value that names everything the code gets: program, files, environment, limits. Nothing of the
//! process that asks reaches the code. Cold and warm starts differ in nothing but time.
//!
//! This module does not decide what to run or how a result is worded for a model, and exports no metrics: the result
//! carries the figures.

#[cfg(target_os = "linux")]
mod caps;
mod check;
mod clock;
#[cfg(target_os = "linux")]
mod conversation;
mod disabled;
mod error;
mod executor;
#[cfg(test)]
pub(crate) mod fixture;
mod id;
pub mod interpreter;
#[cfg(target_os = "linux")]
pub mod job;
#[cfg(target_os = "linux")]
pub mod local;
mod mime;
pub mod queue;
pub mod records;
pub mod remote;
mod request;
mod result;

pub(crate) use clock::now;
pub use disabled::Disabled;
pub use error::{ClusterFailure, ClusterFailureKind, ExecutionError, Missing};
pub use executor::{Capabilities, Executor};
pub use id::{ExecutionId, ParseExecutionIdError};
pub use mime::mime_type;
pub use request::{ExecutionRequest, InputFile, Language, Limits, Program, SkillMount, WorkingDirectory};
pub use result::{
    ExecutionRecord, ExecutionResult, ExecutionStatus, Exit, FileError, LockReport, OutputFile, StartKind, Stream,
    Timings,
};
