//! What was run: a history of executions that outlives the process.

mod claims;
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

pub use claims::{Claimed, NotClaimed};
pub(crate) use execution::id_of;
pub use execution::{Execution, RanSkill, Status};
pub use folder::{FolderHistory, OpenedHistory};
pub use lines::{Kept, read_folder};
pub use settings::HistorySettings;

use crate::error::StoreError;
use crate::model::Owner;

/// Which executions of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// Those of the skill with this id or name.
    pub skill: Option<String>,
    /// Those of this status.
    pub status: Option<Status>,
    /// So many of the newest are left out.
    pub skip: usize,
    /// Executions at most.
    pub limit: usize,
}

/// A part of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The newest first.
    pub items: Vec<Execution>,
    /// How many there are of all that were sought.
    pub total: usize,
}

/// A history of executions. One of another caller is not there.
#[async_trait]
pub trait History: Debug + Send + Sync {
    /// Notes an execution as it is now. Never waits: what there is no room for is dropped and counted.
    fn note(&self, execution: Execution);
    /// Notes that were dropped since the start.
    fn dropped(&self) -> u64;
    /// An execution of a caller by id.
    async fn get(&self, caller: &Owner, id: &str) -> Result<Option<Execution>, StoreError>;
    /// Executions of a caller, the newest first.
    async fn find(&self, caller: &Owner, sought: &Sought) -> Result<Found, StoreError>;
}
