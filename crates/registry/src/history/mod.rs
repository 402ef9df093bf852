//! A history of executions that outlives the process.

mod claims;
mod compaction;
mod execution;
mod folder;
mod holders;
mod index;
mod inner;
mod lines;
mod segments;
mod settings;
mod writer;

use std::fmt::Debug;

use async_trait::async_trait;

pub use claims::{ClaimFailure, ClaimOutcome};
pub(crate) use execution::id_of;
pub use execution::{ExecutedSkill, Execution, Status};
pub use folder::{FolderHistory, OpenedHistory};
pub use lines::{StoredHistory, read_folder};
pub use settings::HistorySettings;

use crate::error::StoreError;
use crate::owner::Owner;

/// Selects executions of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionQuery {
    /// Only those of the skill with this id, name, or name as its install wrote it.
    pub skill: Option<String>,
    /// Only those in this status.
    pub status: Option<Status>,
    /// How many of the newest are skipped.
    pub skip: usize,
    /// Most executions in the answer.
    pub limit: usize,
}

/// A page of executions.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionPage {
    /// The newest first.
    pub items: Vec<Execution>,
    /// The number of all matches.
    pub total: usize,
}

/// A history of executions. Executions of other callers count as absent.
#[async_trait]
pub trait History: Debug + Send + Sync {
    /// Notes the current state of an execution. Never waits: a note without room is dropped and counted.
    fn note(&self, execution: Execution);
    /// Notes an execution, and waits until it is on the disk. `false`: it is not, and [withdrawn](Self::withdraw) it never was. A
    /// history that others keep promises nothing.
    async fn keep(&self, _: Execution) -> bool {
        false
    }
    /// Withdraws an execution that was to be kept, and of which nothing was run.
    fn withdraw(&self, _: Execution) {}
    /// Notes that were dropped since the start.
    fn dropped(&self) -> u64;
    /// An execution of a caller by id.
    async fn get(&self, caller: &Owner, id: &str) -> Result<Option<Execution>, StoreError>;
    /// Executions of a caller, the newest first.
    async fn find(&self, caller: &Owner, sought: &ExecutionQuery) -> Result<ExecutionPage, StoreError>;
}
