//! How an exchange ended, for log, metrics and trace.

use knack_wire::DriveAction;
use knack_wire::drive::{DriveSummary, EndKind};

use super::Exchange;
use crate::runs::skill_runs::{RunAnswer, RunReading};

/// In the log, of a run whose model did not say why it ended.
const CUT_SHORT: &str = "The upstream's stream ended before its answer was complete.";

impl Exchange {
    /// Reports it.
    pub(super) fn ended(&mut self, end: EndKind) {
        self.call.trace.end(&end, self.round.late);
        let failure =
            matches!(end, EndKind::Fault(_)).then_some(if self.round.late { "timeout" } else { "unreadable" });
        self.call.log.timeline.over(failure, self.call.begun.elapsed());
        let is_good = (200..300).contains(&self.call.log.status);
        self.call.log.broken = is_good && matches!(end, EndKind::Fault(_) | EndKind::Upstream(_));
        self.call.log.end = match end {
            EndKind::Answer | EndKind::Passed => None,
            EndKind::Upstream(status @ 200..300) => Some(format!("provider answered {status} with an error")),
            EndKind::Upstream(status) => Some(format!("provider answered {status}")),
            EndKind::Fault(message) => Some(message),
            EndKind::Limit => Some("limit of skill rounds reached".to_owned()),
        };
    }

    /// The end of an answer that passed: that of a run of a skill is read by the run.
    pub(super) fn as_read(&self, end: EndKind) -> EndKind {
        let read = self.parts.read_by_run.as_ref().filter(|_| end == EndKind::Passed);
        match read.map(RunReading::get) {
            Some(RunAnswer::Open) => EndKind::Fault(CUT_SHORT.to_owned()),
            Some(RunAnswer::Failed(end)) => end,
            Some(RunAnswer::Whole) | None => end,
        }
    }

    /// The failure of an answer that is dropped before its end: its reader leaves it at an error. `None`: its client left.
    pub(super) fn failure(&self) -> Option<EndKind> {
        if self.call.log.status == 0 {
            return None;
        }
        let of_loop = self.actions.iter().find_map(|action| match action {
            DriveAction::Finish(DriveSummary {
                end: end @ (EndKind::Fault(_) | EndKind::Upstream(_)),
                ..
            }) => Some(end.clone()),
            _ => None,
        });
        of_loop.or_else(|| match self.parts.read_by_run.as_ref()?.get() {
            RunAnswer::Failed(end) => Some(end),
            RunAnswer::Open | RunAnswer::Whole => None,
        })
    }
}
