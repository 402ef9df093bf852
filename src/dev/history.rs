//! The history of runs in the folder of a registry.

use std::sync::Arc;

use knack_gateway::runs::run_history::{RunHistory, RunNote};
use knack_gateway::runs::run_lines::execution;
use knack_registry::{FolderHistory, History};

/// A history that runs are noted in.
#[derive(Debug)]
pub(super) struct NotedRuns(pub(super) Arc<FolderHistory>);

impl RunHistory for NotedRuns {
    fn note(&self, run: &RunNote) {
        self.0.note(execution(run));
    }

    fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
