//! Runs that gateways of a cluster claim before they begin them: of all replicas that are asked the same, one runs it.
//!
//! ```text
//! claim ─▶ pending, on the disk ─▶ claimed again and again while it runs ─▶ its end is reported, or the claim is withdrawn
//!                                     └▶ silent for too long: lost, and never run again
//! ```

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::History as _;
use super::execution::{Execution, Status};
use super::folder::{FolderHistory, line};
use super::holders::Holders;
use super::index::Place;
use super::inner::now;
use super::writer::Told;
use crate::error::StoreError;
use crate::model::Owner;

/// What a claim comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// Whoever claims it runs it: with this id, this request and this time, of which the id of its run is made.
    Run(Box<Execution>),
    /// Another one has claimed it: so far has it come.
    Known(Box<Execution>),
}

/// Why nobody knows who runs it. Nothing may be run.
#[derive(Debug, thiserror::Error)]
pub enum NotClaimed {
    /// It is no execution that a gateway claims.
    #[error("it is no execution that can be claimed")]
    Invalid,
    /// It is not on the disk.
    #[error("the disk does not take it")]
    NotKept,
    /// It was claimed before, and how far it has come cannot be read.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
}

/// What is known of an execution when it is claimed.
enum Turn {
    /// It is claimed now, or again by who has it.
    Own,
    /// It has ended, or runs elsewhere.
    Known(Place),
    /// Who had it is silent.
    Lost(Place),
}

impl FolderHistory {
    /// Claims a run for the account that a gateway proved to be, before it begins. The claim is on the disk when this returns.
    pub async fn claim(&self, of: (&str, &str), asked: Execution) -> Result<Claimed, NotClaimed> {
        let asked = asked.claimed_by(of.0, of.1, now()).ok_or(NotClaimed::Invalid)?;
        match self.turn(&asked, Instant::now())? {
            Turn::Own => {
                self.flush().await;
                let place = self.inner.index().state(&asked.id).map(|(_, place)| place);
                if let Some(place @ Place::Disk { .. }) = place {
                    return Ok(Claimed::Run(Box::new(self.one(place).await?)));
                }
                self.forget(&mut self.holders(), &asked.id);
                Err(NotClaimed::NotKept)
            }
            Turn::Known(place) => Ok(Claimed::Known(Box::new(self.one(place).await?))),
            Turn::Lost(place) => {
                let lost = self.one(place).await?.lost();
                self.note(lost.clone());
                Ok(Claimed::Known(Box::new(lost)))
            }
        }
    }

    /// Notes what a gateway reports, for the account that it proved to be. Refused is what is not of the form of a note
    /// or would take the place of another account's, and a claim that is withdrawn by another one than has it.
    pub fn take(&self, (namespace, account): (&str, &str), reported: Execution) -> bool {
        let Some(execution) = reported.of_account(namespace, account, now()) else {
            return false;
        };
        let mut holders = self.holders();
        let known = self.inner.index().owner(&execution.id).cloned();
        if known.is_some_and(|known| !Owner::account(namespace, account, None).covers(&known)) {
            return false;
        }
        if execution.withdrawn {
            return self.withdraw(&mut holders, &execution);
        }
        if execution.status.has_ended() {
            holders.release(&execution.id);
        }
        self.note(execution);
        true
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whose turn it is; a first claim is on its way to the disk then.
    fn turn(&self, asked: &Execution, at: Instant) -> Result<Turn, NotClaimed> {
        let mut holders = self.holders();
        let (known, owner) = {
            let index = self.inner.index();
            (index.state(&asked.id), index.owner(&asked.id).cloned())
        };
        // Gateways make ids from a secret that each account has for itself.
        if owner.is_some_and(|owner| owner != asked.caller) {
            return Err(NotClaimed::Invalid);
        }
        match known {
            None => {
                self.put(asked)?;
                holders.hold(asked, at);
                Ok(Turn::Own)
            }
            Some((status, place)) if status.has_ended() => Ok(Turn::Known(place)),
            Some((_, place)) => match holders.of(&asked.id, at) {
                Some(holder) if holder == asked.request => {
                    holders.hold(asked, at);
                    Ok(Turn::Own)
                }
                Some(_) => Ok(Turn::Known(place)),
                None => Ok(Turn::Lost(place)),
            },
        }
    }

    fn put(&self, asked: &Execution) -> Result<(), NotClaimed> {
        let line = line(asked).map_err(|_| NotClaimed::Invalid)?;
        let place = Place::Memory(Arc::new(asked.clone()));
        let note = self.inner.index().set(asked, place);
        let id = asked.id.clone();
        if self.queue(Told::Line { id, note, line }) {
            return Ok(());
        }
        self.inner.index().remove(&asked.id);
        Err(NotClaimed::NotKept)
    }

    /// Whoever has claimed a run says that it was not begun. Should this not come to the disk, the run is lost, and not run again.
    fn withdraw(&self, holders: &mut Holders, execution: &Execution) -> bool {
        let is_own = holders.last(&execution.id) == Some(&execution.request);
        let is_pending = self.inner.index().state(&execution.id).map(|(status, _)| status) == Some(Status::Pending);
        if !is_own || !is_pending {
            return false;
        }
        self.forget(holders, &execution.id);
        if let Ok(line) = line(execution) {
            let id = execution.id.clone();
            self.queue(Told::Line { id, note: 0, line });
        }
        true
    }

    fn forget(&self, holders: &mut Holders, id: &str) {
        holders.release(id);
        self.inner.index().remove(id);
    }

    async fn one(&self, place: Place) -> Result<Execution, StoreError> {
        let found = self.read(vec![place]).await?.into_iter().next();
        // It became too old at this moment.
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
            let turn = history.turn(&asked(request), begun + Duration::from_secs(after));
            let word = match turn.unwrap() {
                Turn::Own => "own",
                Turn::Known(_) => "known",
                Turn::Lost(_) => "lost",
            };
            assert_eq!(word, expected, "{request} after {after} s");
        }
    }
}
