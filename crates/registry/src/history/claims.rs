//! Runs that gateways of a cluster claim before they begin: of all replicas that get the same request, one runs it.
//!
//! ```text
//! claim ─▶ pending, on the disk ─▶ claimed again and again while it runs ─▶ its end is reported, or the claim is withdrawn
//!                                     └▶ silent for too long: lost, and never run again
//! ```

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::History as _;
use super::execution::{Execution, Status};
use super::folder::{FolderHistory, line};
use super::holders::Holders;
use super::index::Location;
use super::writer::WriterMessage;
use crate::error::StoreError;
use crate::model::now;
use crate::owner::Owner;

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimOutcome {
    /// The caller runs it: with this id, this request and this time, of which the id of its run is made.
    Run(Box<Execution>),
    /// Another replica has claimed it: this is its state.
    Known(Box<Execution>),
}

/// Why the outcome of a claim is unknown. Nothing may be run.
#[derive(Debug, thiserror::Error)]
pub enum ClaimFailure {
    /// Not an execution that a gateway may claim.
    #[error(
        "the claim was refused: id, request or time of the execution do not fit this account; upgrade gateway and registry to the same release"
    )]
    Invalid,
    /// Too many runs are claimed and have not ended, all together or beside what is left for other namespaces.
    #[error("too many runs are claimed and have not ended; try again")]
    TooMany,
    /// It is not on the disk.
    #[error("the claim could not be written to disk")]
    NotKept,
    /// It was claimed before, and its state cannot be read.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
}

/// The decision about a claim.
enum ClaimDecision {
    /// New, or claimed again by its holder.
    Own,
    /// Ended, or running elsewhere.
    Known(Location),
    /// Its holder is silent for too long.
    Lost(Location),
}

impl FolderHistory {
    /// Claims a run for an account, `(namespace, account)`, that a gateway has authenticated as. The claim is on the disk when this returns.
    pub async fn claim(&self, of: (&str, &str), asked: Execution) -> Result<ClaimOutcome, ClaimFailure> {
        let asked = asked.claimed_by(of.0, of.1, now()).ok_or(ClaimFailure::Invalid)?;
        match self.decide(&asked, Instant::now())? {
            ClaimDecision::Own => {
                self.flush().await;
                let location = self.inner.index().state(&asked.id).map(|(_, location)| location);
                if let Some(location @ Location::Disk(_)) = location {
                    return Ok(ClaimOutcome::Run(Box::new(self.one(&asked.id, location).await?)));
                }
                self.forget(&mut self.inner.holders(), &asked.id);
                Err(ClaimFailure::NotKept)
            }
            ClaimDecision::Known(location) => Ok(ClaimOutcome::Known(Box::new(self.one(&asked.id, location).await?))),
            ClaimDecision::Lost(location) => {
                let lost = self.one(&asked.id, location).await?.lost();
                self.note(lost.clone());
                Ok(ClaimOutcome::Known(Box::new(lost)))
            }
        }
    }

    /// Records a gateway's report for the account that it has authenticated as. `false`, it is refused: it is not of the form of a note,
    /// it has the id of another account's execution, or it withdraws a claim of another holder.
    pub fn take(&self, (namespace, account): (&str, &str), reported: Execution) -> bool {
        let Some(execution) = reported.of_account(namespace, account, now()) else {
            return false;
        };
        let mut holders = self.inner.holders();
        let known = self.inner.index().owner(&execution.id).cloned();
        if known.is_some_and(|known| !Owner::account(namespace, account, None).covers(&known)) {
            return false;
        }
        if execution.withdrawn {
            return self.withdraw_claim(&mut holders, &execution);
        }
        if execution.status.has_ended() {
            holders.release(&execution.id);
        }
        self.note(execution);
        true
    }

    /// Decides a claim; a first one is queued for the disk then.
    fn decide(&self, asked: &Execution, at: Instant) -> Result<ClaimDecision, ClaimFailure> {
        let mut holders = self.inner.holders();
        let (known, owner) = {
            let index = self.inner.index();
            (index.state(&asked.id), index.owner(&asked.id).cloned())
        };
        // Gateways derive ids from a secret of their account.
        if owner.is_some_and(|owner| owner != asked.caller) {
            return Err(ClaimFailure::Invalid);
        }
        match known {
            None => {
                self.put(&mut holders, asked, at)?;
                Ok(ClaimDecision::Own)
            }
            Some((status, location)) if status.has_ended() => Ok(ClaimDecision::Known(location)),
            Some((_, location)) => match holders.of(&asked.id, at) {
                Some(holder) if holder == asked.request => {
                    holders.renew(&asked.id, at);
                    Ok(ClaimDecision::Own)
                }
                Some(_) => Ok(ClaimDecision::Known(location)),
                None => Ok(ClaimDecision::Lost(location)),
            },
        }
    }

    fn put(&self, holders: &mut Holders, asked: &Execution, at: Instant) -> Result<(), ClaimFailure> {
        let line = line(asked).map_err(|_| ClaimFailure::Invalid)?;
        let bytes = line.len() as u64;
        if !holders.admit(asked, bytes, self.inner.settings, at) {
            return Err(ClaimFailure::TooMany);
        }
        let note = self.inner.index().set(&Arc::new(asked.clone()));
        let message = WriterMessage::Line {
            id: asked.id.clone(),
            note: Some(note),
            line,
        };
        if !self.queue(message) {
            self.inner.index().remove(&asked.id);
            return Err(ClaimFailure::NotKept);
        }
        holders.hold(asked, bytes, at);
        Ok(())
    }

    /// Withdraws a claim: its holder did not start the run.
    fn withdraw_claim(&self, holders: &mut Holders, execution: &Execution) -> bool {
        let is_own = holders.last(&execution.id) == Some(execution.request.as_str());
        let is_pending = self.inner.index().state(&execution.id).map(|(status, _)| status) == Some(Status::Pending);
        if !is_own || !is_pending {
            return false;
        }
        self.forget(holders, &execution.id);
        self.queue_withdrawal(execution);
        true
    }

    pub(super) fn forget(&self, holders: &mut Holders, id: &str) {
        holders.release(id);
        self.inner.index().remove(id);
    }

    async fn one(&self, id: &str, location: Location) -> Result<Execution, StoreError> {
        let found = self.read(vec![(id.to_owned(), location)]).await?.into_iter().next();
        // It was removed as too old meanwhile.
        found.ok_or_else(|| StoreError::Unavailable("it is gone".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::HistorySettings;

    fn asked(request: &str) -> Execution {
        let execution = serde_json::json!({
            "id": "a", "caller": "team/app#11", "skill": null, "tool": "t", "request": request, "input": null, "output": null,
            "status": "pending", "error": null, "durationMs": null, "created": now(),
        });
        serde_json::from_value(execution).unwrap()
    }

    /// A gateway that was killed between its claim and the end of its run.
    #[test]
    fn who_is_silent_for_too_long_has_lost_it_and_it_is_not_run_again() {
        let work = tempfile::tempdir().unwrap();
        let opened = FolderHistory::open(work.path(), HistorySettings::of_days(1), |_| ()).unwrap();
        let (history, begun) = (opened.history, Instant::now());
        for (after, request, expected) in [
            (0, "one", "own"),
            (89, "two", "known"),
            (89, "one", "own"),
            (170, "two", "known"),
            (180, "two", "lost"),
            (180, "one", "lost"),
        ] {
            let decide = history.decide(&asked(request), begun + Duration::from_secs(after));
            let word = match decide.unwrap() {
                ClaimDecision::Own => "own",
                ClaimDecision::Known(_) => "known",
                ClaimDecision::Lost(_) => "lost",
            };
            assert_eq!(word, expected, "{request} after {after} s");
        }
    }
}
