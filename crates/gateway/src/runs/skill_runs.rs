//! Runs of skills for users: what a gateway allows, and what marks a request to a model as one.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knack_serving::sources::{Pace, SourcePermit, Sources};
use knack_skill::model::SkillRef;
use knack_wire::drive::EndKind;
use tokio::time::Instant;

/// Runs of one caller: those of Agent Flow, 10 a minute.
const PACE: Pace = Pace {
    at_once: 10,
    burst: 10,
    refill: Duration::from_secs(6),
};
/// Error text for a caller that exceeds this pace.
pub(crate) const TOO_MANY_RUNS: &str = "Too many runs by this caller: the limit is 10 at once and 10 a minute";

/// Runs of skills: their model where a skill names none, and their pace.
#[derive(Debug)]
pub struct SkillRuns {
    model: Option<String>,
    limit: Arc<Sources>,
}

impl SkillRuns {
    /// Runs by this model, unless a skill names another; `None`: a skill without one is refused.
    pub fn new(model: Option<String>) -> Self {
        Self {
            model,
            limit: Arc::new(Sources::new(PACE)),
        }
    }

    /// The model of skills that name none.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The right of a caller to one more run. `address`: where it comes from, if nobody checked who it is. Error: the seconds until
    /// there is one.
    pub(crate) fn admit(&self, caller: &str, address: Option<IpAddr>) -> Result<SourcePermit, u64> {
        // A key costs its sender nothing, an address does.
        let group = address.map_or_else(|| caller.to_owned(), |address| address.to_string());
        let turn = self.limit.take_of_group(&group, caller, Instant::now());
        turn.ok_or(PACE.refill.as_secs())
    }
}

/// In the extensions of a request to a model: the run that it is.
#[derive(Debug, Clone)]
pub(crate) struct RunOrigin {
    /// The skill.
    pub skill: SkillRef,
    /// The path that the client called.
    pub path: String,
    /// What the run has read of the model's answer.
    pub reading: RunReading,
}

/// What a run has read of the answer of its model. The run reads it, and leaves it where it fails; the report on the request is made
/// where an answer may pass without being read.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunReading(Arc<Mutex<RunAnswer>>);

/// See [`RunReading`].
#[derive(Debug, Clone, Default)]
pub(crate) enum RunAnswer {
    /// The model has not said why it ended.
    #[default]
    Open,
    /// It has.
    Whole,
    /// The answer has an error, or cannot be read.
    Failed(EndKind),
}

impl RunReading {
    /// Notes what was read last.
    pub(crate) fn set(&self, answer: RunAnswer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// What was read last.
    pub(crate) fn get(&self) -> RunAnswer {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the model has said why it ended.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.get(), RunAnswer::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_made_up_give_no_more_runs_and_take_none_from_another_address() {
        let runs = SkillRuns::new(None);
        let admit = |key: &str, last: u8| runs.admit(key, Some(IpAddr::from([10, 0, 0, last])));
        let held: Vec<_> = (0..100_000).filter_map(|key| admit(&key.to_string(), 1).ok()).collect();
        assert!(held.len() < 1_000, "{}", held.len());
        let own: Vec<_> = (0..PACE.at_once).map(|_| admit("own", 2)).collect();
        assert!(own.iter().all(Result::is_ok));
        assert_eq!(admit("own", 2).unwrap_err(), 6, "as many as ever");
    }
}
