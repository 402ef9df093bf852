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

#[cfg(all(target_os = "linux", feature = "runner"))]
mod caps;
pub mod check;
mod clock;
#[cfg(all(target_os = "linux", feature = "runner"))]
pub mod conversation;
mod disabled;
#[cfg(feature = "local")]
pub mod environments;
mod error;
mod executor;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod id;
#[cfg(all(target_os = "linux", feature = "runner"))]
mod incoming_files;
#[cfg(feature = "runner")]
pub mod interpreter;
pub mod lines;
#[cfg(all(target_os = "linux", feature = "local"))]
pub mod local;
mod mime;
pub mod queue;
pub mod records;
pub mod remote;
mod request;
mod result;
#[cfg(all(target_os = "linux", feature = "runner"))]
pub mod run_environment;
#[cfg(all(target_os = "linux", feature = "runner"))]
pub mod run_limits;

pub use clock::now;
pub use disabled::DisabledExecutor;
pub use error::{ClusterFailure, ClusterFailureKind, ExecutionError, Missing};
pub use executor::{Capabilities, Executor};
pub use id::{ExecutionId, ParseExecutionIdError};
pub use knack_skill::call::Language;
pub use mime::mime_type;
pub use request::{ExecutionRequest, InputFile, Limits, Program, SkillMount, WorkingDirectory};
pub use result::{
    ExecutionRecord, ExecutionResult, ExecutionStatus, Exit, FileError, LockReport, OutputFile, StartKind, Stream,
    Timings,
};
