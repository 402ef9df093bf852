//! How long a start may be failing before it has failed.

use std::time::Duration;

use knack_execution::{ClusterFailureKind, ExecutionError};
use tokio::time::Instant;

use super::pod_requirements::Requester;
use crate::jobs::cluster::failure::{PodFailure, failure};

/// Tracks the current failure of a start and when it was first observed.
#[derive(Debug)]
pub(super) struct StartFailures {
    requester: Requester,
    seen: Option<(ClusterFailureKind, Instant)>,
    /// The last one, for a start that takes too long.
    last: Option<PodFailure>,
}

impl StartFailures {
    pub(super) const fn of(requester: Requester) -> Self {
        Self {
            requester,
            seen: None,
            last: None,
        }
    }

    /// Whether a lasting failure is waited out nevertheless.
    pub(super) fn waits_for(&self, found: &PodFailure) -> bool {
        self.requester == Requester::Pool && found.kind == ClusterFailureKind::Unschedulable
    }

    /// The failure of a start that took too long.
    pub(super) fn timeout(self, bound: Duration) -> ExecutionError {
        match self.last {
            Some(found) => found.error(false),
            None => failure(
                ClusterFailureKind::StartTimeout,
                "StartTimeout",
                &format!("the pod was not ready within {} s", bound.as_secs()),
                false,
            ),
        }
    }

    /// The failure, if it has lasted too long.
    pub(super) fn lasting(&mut self, found: Option<PodFailure>) -> Option<PodFailure> {
        self.last.clone_from(&found);
        let found = found?;
        let since = match self.seen {
            Some((kind, since)) if kind == found.kind => since,
            _ => {
                let now = Instant::now();
                self.seen = Some((found.kind, now));
                now
            }
        };
        (since.elapsed() >= found.grace).then_some(found)
    }
}
