//! How long a start may be in trouble before it has failed.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::{Trouble, failure};
use super::launch::Patience;
use crate::execution::{ClusterFailureKind, ExecutionError};

/// Tracks the current failure of a start and when it was first observed.
#[derive(Debug)]
pub(super) struct Troubles {
    patience: Patience,
    seen: Option<(ClusterFailureKind, Instant)>,
    /// The last one, for a start that takes too long.
    last: Option<Trouble>,
}

impl Troubles {
    pub(super) const fn of(patience: Patience) -> Self {
        Self {
            patience,
            seen: None,
            last: None,
        }
    }

    /// Whether a trouble that lasts is waited out all the same.
    pub(super) fn waits_for(&self, found: &Trouble) -> bool {
        self.patience == Patience::Pool && found.kind == ClusterFailureKind::Unschedulable
    }

    /// What a start has failed with that took too long.
    pub(super) fn timeout(self, bound: Duration) -> ExecutionError {
        match self.last {
            Some(found) => found.error(false),
            None => failure(
                ClusterFailureKind::StartTimeout,
                "StartTimeout",
                &format!("the pod did not stand within {} s", bound.as_secs()),
                false,
            ),
        }
    }

    /// The trouble, if its patience is used up.
    pub(super) fn lasting(&mut self, found: Option<Trouble>) -> Option<Trouble> {
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
        (since.elapsed() >= found.patience).then_some(found)
    }
}
