//! Probe results of every node: a network plugin can enforce policies on one and not on another. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use knack_runner::protocol::{DialOutcome, Probe};

/// A node is probed again after this long: a network plugin that is replaced is noticed within the hour.
pub(in crate::jobs) const EVERY: Duration = Duration::from_hours(1);
/// A result older than this counts no more: half an hour of failed probes beyond the one that was due.
const STALE: Duration = Duration::from_mins(90);
/// Where every probed node is open, another one is tried this often.
pub(super) const EXPLORE: Duration = Duration::from_mins(5);
/// A probe without a result is repeated after this long.
pub(in crate::jobs) const AGAIN: Duration = Duration::from_mins(1);
/// Nodes probed in one check: each costs a pod, and a runtime that grows by a hundred nodes must not pay at once.
const NODES_PER_CHECK: usize = 8;
/// Nodes that sandboxes are kept from by name, at most: a scheduler compares each of them with each node, and a network
/// that is open on more nodes counts as open on all.
const MAX_AVOIDED: usize = 32;
/// Beyond the moment at which a late policy was seen to hold: another pod's may come that much later.
const LATE_MARGIN: Duration = Duration::from_secs(5);

/// The result of the probe of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jobs) enum ProbeResult {
    /// No answer came through.
    Isolated,
    /// No answer came through any more, this long after the pod's start.
    Late(Duration),
    /// The pod got out to the end.
    Open,
}

/// The state of a node.
#[derive(Debug, Clone, Copy, Default)]
struct KnownNode {
    result: Option<(ProbeResult, Instant)>,
    /// When it was probed last, with or without a result.
    asked: Option<Instant>,
}

impl KnownNode {
    fn valid(&self, now: Instant) -> Option<ProbeResult> {
        let (result, at) = self.result?;
        (now.duration_since(at) < STALE).then_some(result)
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_older = |at: Option<Instant>, than| at.is_none_or(|at| now.duration_since(at) >= than);
        is_older(self.result.map(|(_, at)| at), EVERY) && is_older(self.asked, AGAIN)
    }
}

/// Whether a sandbox may run something on its node, if its runtime demands isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::jobs) enum Clearance {
    /// It may.
    Go,
    /// It may after this long.
    Wait(Duration),
    /// Its node has to be probed first.
    Ask,
    /// Its node was probed a moment ago without a result.
    Unknown,
    /// Its node lets it out.
    Open,
}

/// Nodes by what is known of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::jobs) struct Counts {
    pub(in crate::jobs) isolated: usize,
    pub(in crate::jobs) late: Vec<String>,
    pub(in crate::jobs) open: Vec<String>,
    /// Probed, without a result.
    pub(in crate::jobs) unknown: Vec<String>,
}

impl Counts {
    pub(in crate::jobs) fn nodes(&self) -> usize {
        self.isolated + self.late.len() + self.open.len() + self.unknown.len()
    }

    /// Whether policies hold from the first moment on every node with a result; `None`: there is no result.
    pub(in crate::jobs) fn enforces(&self) -> Option<bool> {
        match (self.isolated, self.late.len() + self.open.len()) {
            (0, 0) => None,
            (_, bad) => Some(bad == 0),
        }
    }

    /// Whether every node with a result lets sandboxes out, so that no other is worth a try.
    pub(super) fn is_open_everywhere(&self) -> bool {
        !self.open.is_empty() && self.isolated == 0 && self.late.is_empty()
    }
}

/// The state of all nodes.
#[derive(Debug, Default)]
pub(in crate::jobs) struct Nodes {
    seen: BTreeMap<String, KnownNode>,
}

impl Nodes {
    /// Nodes to probe, of those that have sandboxes; those without are forgotten after the hour.
    pub(in crate::jobs) fn due(&mut self, now: Instant, live: &BTreeSet<String>) -> Vec<String> {
        self.seen.retain(|name, node| {
            let is_recent = |at: Option<Instant>| at.is_some_and(|at| now.duration_since(at) < EVERY);
            live.contains(name) || is_recent(node.asked) || is_recent(node.result.map(|(_, at)| at))
        });
        let is_due = |name: &&String| self.seen.get(*name).is_none_or(|node| node.is_due(now));
        live.iter().filter(is_due).take(NODES_PER_CHECK).cloned().collect()
    }

    /// Whether there was no probe yet.
    pub(in crate::jobs) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Records the result of a probe. A probe without a result leaves the last one, until that is too old.
    pub(in crate::jobs) fn record_probe(&mut self, name: String, at: Instant, result: Option<ProbeResult>) {
        let node = self.seen.entry(name).or_default();
        node.asked = Some(at);
        if let Some(result) = result {
            node.result = Some((result, at));
        }
    }

    /// Whether a sandbox that has been on a node since `since` may run code.
    pub(in crate::jobs) fn clearance(&self, name: &str, now: Instant, since: Instant) -> Clearance {
        let Some(node) = self.seen.get(name) else {
            return Clearance::Ask;
        };
        match node.valid(now) {
            Some(ProbeResult::Isolated) => Clearance::Go,
            Some(ProbeResult::Late(after)) => match (after + LATE_MARGIN).saturating_sub(now.duration_since(since)) {
                Duration::ZERO => Clearance::Go,
                left => Clearance::Wait(left),
            },
            Some(ProbeResult::Open) => Clearance::Open,
            None if node.is_due(now) => Clearance::Ask,
            None => Clearance::Unknown,
        }
    }

    /// Nodes by what is known of them.
    pub(in crate::jobs) fn counts(&self, now: Instant) -> Counts {
        let mut counts = Counts::default();
        for (name, node) in &self.seen {
            match node.valid(now) {
                Some(ProbeResult::Isolated) => counts.isolated += 1,
                Some(ProbeResult::Late(_)) => counts.late.push(name.clone()),
                Some(ProbeResult::Open) => counts.open.push(name.clone()),
                None => counts.unknown.push(name.clone()),
            }
        }
        counts
    }

    /// Nodes that the scheduler must not use, in order.
    pub(in crate::jobs) fn avoided(&self, now: Instant) -> Vec<String> {
        let mut open = self.counts(now).open;
        open.truncate(MAX_AVOIDED);
        open
    }
}

/// The result of a probe. `None`: it proves nothing.
///
/// `control`: the owner's own dials were answered, before and after. `is_asked`: the listener received the question. A blocked
/// probe proves something only beside a working control; one that got out needs none.
pub(in crate::jobs) fn probe_result(control: bool, is_asked: bool, probe: &Probe, answer: &str) -> Option<ProbeResult> {
    let is_out = |outcome: &DialOutcome| matches!(outcome, DialOutcome::Answered(text) if text == answer);
    let last_out = probe.dials.iter().rposition(|dial| is_out(&dial.outcome));
    let after = last_out.map_or(0, |position| position + 1);
    let shut = probe.dials.get(after..).unwrap_or_default();
    // An answer that is not the hub's came from a program between pod and listener.
    let is_shut = |outcome: &DialOutcome| outcome.is_blocked() || matches!(outcome, DialOutcome::Answered(_));
    if shut.is_empty() && last_out.is_some() {
        return Some(ProbeResult::Open);
    }
    let is_proven = control && shut.len() >= 2 && shut.iter().all(|dial| is_shut(&dial.outcome));
    match (last_out, is_proven) {
        (None, _) if is_asked => Some(ProbeResult::Open),
        (None, true) => Some(ProbeResult::Isolated),
        (None, false) => None,
        (Some(_), true) => shut
            .first()
            .map(|dial| ProbeResult::Late(Duration::from_millis(dial.at_ms))),
        (Some(_), false) => Some(ProbeResult::Open),
    }
}

#[cfg(test)]
#[path = "probe_results_tests.rs"]
mod tests;
