//! Decides the next builds, from the wanted environments, their statuses and the running Jobs. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use knack_packages::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses, State};

use super::outcome::Outcome;
use super::unread::Unread;
use super::wanted::{NeededEnvironment, NeededEnvironments};

/// Builds at once: each takes a CPU for seconds, up to 2 GiB of a node's disk and memory, and the index's patience.
pub(super) const BUILDS_AT_ONCE: usize = 4;
/// Most statuses at once. Their ConfigMap holds 1 MiB, and a status takes at most 700 bytes with its line for the
/// admission policy.
pub(super) const MAX_STATUSES: usize = 1000;
/// Most bytes of a status's message.
pub(super) const MESSAGE_MAX_BYTES: usize = 300;
/// A transient failure is retried after this long, seconds: an index or a registry that was unavailable for a while.
const RETRY_SECONDS: i64 = 5 * 60;
/// Any other failure is retried after this long, seconds: the index may have a missing package by then.
const RETRY_LASTING_SECONDS: i64 = 6 * 60 * 60;
/// An environment whose image could not be pulled is built again at most this often, seconds: the pull may have failed because a
/// credential is missing, and then another build does not help.
const REMAKE_SECONDS: i64 = 60 * 60;
/// Most namespaces whose last builds are known: as many as can have statuses.
const MAX_NAMESPACES: usize = MAX_STATUSES;
/// An environment without a request for this long is forgotten, seconds. A skill that comes back is built again.
pub(super) const UNUSED_SECONDS: i64 = 30 * 24 * 60 * 60;
/// The time of the last request for an environment is written this often, seconds.
const USED_STEP_SECONDS: i64 = 24 * 60 * 60;

/// The state of a builder Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Build {
    /// It runs, or waits for a node.
    Running,
    /// It has ended.
    Ended(Outcome),
}

/// The plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BuildPlan {
    /// Keys to build now.
    pub(super) start: Vec<EnvironmentKey>,
    /// The namespaces whose turns these builds are, by key.
    pub(super) turns: BTreeMap<EnvironmentKey, String>,
    /// Keys whose Jobs are no longer needed.
    pub(super) remove: Vec<EnvironmentKey>,
    /// The statuses from now on.
    pub(super) statuses: EnvironmentStatuses,
}

impl BuildPlan {
    /// The statuses before anything is started: those of the builds to start are as they were in `known`.
    pub(super) fn before_starts(&self, known: &EnvironmentStatuses) -> EnvironmentStatuses {
        let mut statuses = self.statuses.clone();
        for key in &self.start {
            match known.get(key) {
                Some(status) => statuses.0.insert(key.clone(), status.clone()),
                None => statuses.0.remove(key),
            };
        }
        statuses
    }
}

/// Namespaces in the order of their last starts, the latest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StartOrder(VecDeque<String>);

impl StartOrder {
    /// The position of a namespace in the order: the lowest starts first, and `None` (no build was started yet) before all.
    fn place(&self, namespace: &str) -> Option<usize> {
        self.0.iter().position(|known| known == namespace)
    }

    /// A namespace gets a build now.
    pub(super) fn take(&mut self, namespace: &str) {
        self.0.retain(|known| known != namespace);
        self.0.push_back(namespace.to_owned());
        if self.0.len() > MAX_NAMESPACES {
            self.0.pop_front();
        }
    }
}

/// What the next builds are decided from. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuildFacts<'a> {
    /// The environments that skills need.
    pub(super) wanted: &'a NeededEnvironments,
    /// The statuses until now.
    pub(super) known: &'a EnvironmentStatuses,
    /// The builds for which there are Jobs.
    pub(super) builds: &'a BTreeMap<EnvironmentKey, Build>,
    /// When a pull of an image failed last, by image.
    pub(super) unpulled: &'a BTreeMap<String, i64>,
    /// The time.
    pub(super) now: i64,
}

impl<'a> BuildFacts<'a> {
    /// Decides. Environments of which all content is `unread` are not started.
    pub(super) fn decide(&self, start_order: &StartOrder, unread: &Unread) -> BuildPlan {
        let Self {
            wanted, builds, now, ..
        } = *self;
        let mut plan = BuildPlan {
            statuses: self.unused(),
            ..BuildPlan::default()
        };
        let chosen = self.chosen(start_order, unread);
        for (key, build) in builds {
            if matches!(build, Build::Ended(_)) {
                plan.remove.push(key.clone());
            }
        }
        for (key, asked) in wanted {
            let before = self.before(key, asked);
            if !asked.is_listed {
                plan.statuses
                    .0
                    .insert(key.clone(), used(unlisted(before, &asked.asked.base, now), now));
                continue;
            }
            // Nothing is built for replaced revisions; their existing environments stay.
            if asked.is_earlier && !builds.contains_key(key) {
                if let Some(status) = before.filter(|status| !status.state.is_pending()) {
                    plan.statuses.0.insert(key.clone(), used(status.clone(), now));
                }
                continue;
            }
            // Only what is due and has no Job is chosen.
            let turn = chosen.get(key);
            if let Some(namespace) = turn {
                plan.start.push(key.clone());
                plan.turns.insert(key.clone(), (*namespace).to_owned());
            }
            let status = match (before, builds.get(key)) {
                (before, Some(build)) => of_build(before, build, now),
                (Some(status), None) if !self.is_due(status) || unread.holds(asked, now) => status.clone(),
                (before, None) => of_due(before, turn.is_some(), now),
            };
            plan.statuses.0.insert(key.clone(), used(status, now));
        }
        bound(&mut plan.statuses, wanted);
        let kept = &plan.statuses;
        plan.start.retain(|key| kept.get(key).is_some());
        plan.turns.retain(|key, _| kept.get(key).is_some());
        plan
    }

    /// The status of an environment until now. That its image was not listed says nothing once it is.
    fn before(&self, key: &EnvironmentKey, asked: &NeededEnvironment) -> Option<&'a EnvironmentStatus> {
        let status = self.known.get(key)?;
        let is_over = asked.is_listed && status.message == shown(&why_unlisted(&asked.asked.base));
        (!is_over).then_some(status)
    }

    /// The builds to start now, each with the namespace whose turn it is. The namespace with the fewest builds comes first, so that one that
    /// needs hundreds delays the others by one build at most; among equals the one whose last start is longest ago; among those without a start
    /// the one that asked first. What several namespaces need is built at the first turn of any of them.
    fn chosen(&self, start_order: &StartOrder, unread: &Unread) -> BTreeMap<&'a EnvironmentKey, &'a str> {
        let Self {
            wanted, builds, now, ..
        } = *self;
        let running = || {
            let running = builds.iter().filter(|(_, build)| **build == Build::Running);
            running.map(|(key, _)| wanted.get(key))
        };
        let of_namespaces = shares(running().flatten().map(|asked| (asked, ())));
        let building = of_namespaces
            .into_iter()
            .map(|(namespace, builds)| (namespace, builds.len()));
        let mut building: BTreeMap<&str, usize> = building.collect();
        let mut due: BTreeMap<&str, VecDeque<&EnvironmentKey>> = BTreeMap::new();
        // An environment without a status was requested just now.
        let mut asked_at: BTreeMap<&str, i64> = BTreeMap::new();
        for (key, asked) in wanted {
            let status = self.before(key, asked);
            let is_known = status.is_some_and(|status| !self.is_due(status));
            let is_awaited = builds.contains_key(key) || is_known || unread.holds(asked, now);
            if asked.is_listed && !asked.is_earlier && !is_awaited {
                let since = status.map_or(i64::MAX, |status| status.since);
                for namespace in asked.namespaces() {
                    due.entry(namespace).or_default().push_back(key);
                    let oldest = asked_at.entry(namespace).or_insert(since);
                    *oldest = since.min(*oldest);
                }
            }
        }
        let mut chosen: BTreeMap<&EnvironmentKey, &str> = BTreeMap::new();
        for _ in running().count()..BUILDS_AT_ONCE {
            // Another namespace that needs it may have had its turn.
            for keys in due.values_mut() {
                while keys.front().is_some_and(|key| chosen.contains_key(*key)) {
                    keys.pop_front();
                }
            }
            let next = due.iter_mut().filter(|(_, keys)| !keys.is_empty());
            let order = |namespace: &str| {
                let asked_at = asked_at.get(namespace).copied();
                (building.get(namespace).copied(), start_order.place(namespace), asked_at)
            };
            let Some((namespace, keys)) = next.min_by_key(|(namespace, _)| order(namespace)) else {
                break;
            };
            let Some(key) = keys.pop_front() else { break };
            chosen.insert(key, *namespace);
            *building.entry(*namespace).or_default() += 1;
        }
        chosen
    }

    /// Statuses of environments that nothing asks for, but that are kept for a while.
    fn unused(&self) -> EnvironmentStatuses {
        let kept = self.known.0.iter().filter(|(key, status)| {
            !self.wanted.contains_key(*key) && self.now - status.used < UNUSED_SECONDS && status.state == State::Ready
        });
        EnvironmentStatuses(kept.map(|(key, status)| (key.clone(), status.clone())).collect())
    }

    /// Whether a build is to be started for a status without one.
    fn is_due(&self, status: &EnvironmentStatus) -> bool {
        let age = self.now - status.since;
        match status.state {
            // The retention of a registry deletes images that are not pulled for long, even if they are still needed.
            State::Ready => {
                let image = status.environment.as_ref().map(|environment| &environment.image);
                let failed = image.and_then(|image| self.unpulled.get(image));
                failed.is_some_and(|failed| *failed > status.since) && age >= REMAKE_SECONDS
            }
            // Its Job is gone without a result.
            State::Resolving | State::Building => true,
            state if state.may_pass() => age >= RETRY_SECONDS,
            _ => age >= RETRY_LASTING_SECONDS,
        }
    }
}

/// Why nothing is built on an image of no repository that the installation lists.
pub(super) fn why_unlisted(image: &str) -> String {
    format!(
        "the sandbox image {image} is from no repository in the chart value admissionPolicy.imageAllowList, so no packages are added to it"
    )
}

/// The status of an environment on such an image. One that was built before the list was as short is run no more.
fn unlisted(before: Option<&EnvironmentStatus>, image: &str, now: i64) -> EnvironmentStatus {
    let status = of(&Outcome::failed(State::PackagesOff, why_unlisted(image)), now);
    let is_same = |before: &&EnvironmentStatus| before.state == status.state && before.message == status.message;
    before.filter(is_same).cloned().unwrap_or(status)
}

/// The status of an environment whose Job is there.
fn of_build(before: Option<&EnvironmentStatus>, build: &Build, now: i64) -> EnvironmentStatus {
    match (before, build) {
        // It was made again and that failed: nodes that have the image run it, and the next try is after a while.
        (Some(status), Build::Ended(outcome)) if status.state == State::Ready && outcome.state != State::Ready => {
            EnvironmentStatus {
                since: now,
                ..status.clone()
            }
        }
        (_, Build::Ended(outcome)) => of(outcome, now),
        // An earlier failure stays in the status until there is a new result.
        (Some(status), Build::Running) if !status.state.is_pending() => status.clone(),
        (before, Build::Running) => pending(before, State::Building, INSTALLING, now),
    }
}

/// The status of an environment that is due: its build `starts` now, or waits for others.
fn of_due(before: Option<&EnvironmentStatus>, starts: bool, now: i64) -> EnvironmentStatus {
    match before {
        Some(status) if !status.state.is_pending() => status.clone(),
        _ if starts => pending(before, State::Building, INSTALLING, now),
        _ => pending(before, State::Resolving, OTHERS_FIRST, now),
    }
}

/// The message of a status while its Job runs.
const INSTALLING: &str = "the packages are being installed";

/// The message of a status that waits for other builds.
pub(super) const OTHERS_FIRST: &str = "other environments are being built first";

/// What counts for which namespace. An environment that several need counts for the one of them for which the fewest count: where one
/// needs hundreds, what others need too is not counted among those. One has to count, since namespaces of one owner could need all together.
fn shares<'a, T>(environments: impl IntoIterator<Item = (&'a NeededEnvironment, T)>) -> BTreeMap<&'a str, Vec<T>> {
    let mut shares: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    let (own, shared): (Vec<_>, Vec<_>) = environments
        .into_iter()
        .partition(|(needed, _)| needed.askers.len() < 2);
    for (needed, counted) in own.into_iter().chain(shared) {
        let so_far = |namespace: &str| shares.get(namespace).map_or(0, Vec::len);
        let fewest = needed.namespaces().min_by_key(|namespace| so_far(namespace));
        if let Some(namespace) = fewest {
            shares.entry(namespace).or_default().push(counted);
        }
    }
    shares
}

/// A status with the time of its last request, in steps of [`USED_STEP_SECONDS`].
fn used(mut status: EnvironmentStatus, now: i64) -> EnvironmentStatus {
    if now - status.used >= USED_STEP_SECONDS {
        status.used = now;
    }
    status
}

/// A status that waits, as `message` says: since when it did, if it did.
pub(super) fn pending(before: Option<&EnvironmentStatus>, state: State, message: &str, now: i64) -> EnvironmentStatus {
    let new = of(&Outcome::failed(state, message), now);
    match before.filter(|status| status.state == state) {
        // A waiting environment keeps its position, whatever it waits for.
        Some(status) => EnvironmentStatus {
            since: status.since,
            used: status.used,
            ..new
        },
        None => new,
    }
}

/// The status of an environment whose builder Job could not be created, as `before` says: it waits, or it has failed.
pub(super) fn not_started(before: Option<&EnvironmentStatus>, refusal: &Refusal, now: i64) -> EnvironmentStatus {
    match (before, refusal) {
        // Nodes that have the image run it; the next try is after a while.
        (Some(status), Refusal::Lasting(_)) if status.state == State::Ready => EnvironmentStatus {
            since: now,
            ..status.clone()
        },
        (_, Refusal::Lasting(outcome)) => of(outcome, now),
        // It is still due at the next reconcile.
        (Some(status), Refusal::Passing(_) | Refusal::Unread(_)) if !status.state.is_pending() => status.clone(),
        (before, Refusal::Passing(why) | Refusal::Unread(why)) => pending(before, State::Resolving, shown(why), now),
    }
}

/// Why a build was not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It would be refused again: it is tried again as a failed build is.
    Lasting(Outcome),
    /// It, and any other one, may be taken a moment later: why it waits.
    Passing(String),
    /// No content that could be tried for it can be read yet, which says nothing of others: why it waits.
    Unread(String),
}

/// The part of a message that a status has room for.
fn shown(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_MAX_BYTES)]
}

fn of(outcome: &Outcome, now: i64) -> EnvironmentStatus {
    EnvironmentStatus {
        state: outcome.state,
        message: shown(&outcome.message).to_owned(),
        environment: outcome.environment.clone(),
        is_partial: outcome.is_partial,
        since: now,
        used: now,
    }
}

/// What a status is worth: the least is dropped first. What waits goes before what serves, and of those that wait the last that came:
/// dropped statuses are asked for again at the next reconcile, and must not take the place of one that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DropOrder {
    Waiting(Reverse<i64>),
    Failed(Reverse<i64>),
    Building(Reverse<i64>),
    /// By the time of the last request.
    Ready(i64),
}

impl DropOrder {
    const fn of(status: &EnvironmentStatus) -> Self {
        let since = Reverse(status.since);
        match status.state {
            State::Resolving => Self::Waiting(since),
            State::Building => Self::Building(since),
            State::Ready => Self::Ready(status.used),
            _ => Self::Failed(since),
        }
    }
}

/// Drops statuses beyond the bound: those that nothing asks for, the longest unused first, and then those of the namespace that has the
/// most ([`shares`]), in the order of [`DropOrder`].
fn bound(statuses: &mut EnvironmentStatuses, wanted: &NeededEnvironments) {
    let excess = statuses.0.len().saturating_sub(MAX_STATUSES);
    if excess == 0 {
        return;
    }
    let (mut unasked, mut asked) = (Vec::new(), Vec::new());
    for (key, status) in &statuses.0 {
        let dropped = (DropOrder::of(status), key.clone());
        match wanted.get(key) {
            None => unasked.push(dropped),
            Some(one) => asked.push((one, dropped)),
        }
    }
    unasked.sort();
    let of_namespaces = shares(asked).into_values();
    let mut of_namespaces: Vec<BTreeSet<(DropOrder, EnvironmentKey)>> =
        of_namespaces.map(|keys| keys.into_iter().collect()).collect();
    let of_the_largest = std::iter::from_fn(|| {
        let largest = of_namespaces.iter_mut().max_by_key(|keys| keys.len())?;
        largest.pop_first()
    });
    for (_, key) in unasked.into_iter().chain(of_the_largest).take(excess) {
        statuses.0.remove(&key);
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
