//! The next about a Lease, as a function of its observations and their times.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use knack_vocabulary::ANNOTATION_ADDRESS;
use tokio::time::Instant;

use super::holder::LeaseHolder;
use super::spread::Precedence;

/// The observations of a foreign holder, and the time since which it has not changed.
#[derive(Debug, Clone, Default)]
pub struct ForeignLease {
    seen: Option<(Option<String>, Option<String>, Instant)>,
    /// How long the foreign Lease holds without a change.
    lasts: Duration,
    /// Since when it may be taken.
    free_since: Option<Instant>,
}

impl ForeignLease {
    /// When the foreign Lease that was seen last may be taken, if it does not change until then.
    pub fn expires(&self) -> Option<Instant> {
        let (_, _, since) = self.seen.as_ref()?;
        Some(*since + self.lasts + Duration::from_millis(1))
    }

    /// This process holds the Lease: what was seen before counts no more.
    pub(super) fn forget(&mut self) {
        (self.seen, self.free_since) = (None, None);
    }

    /// Since when the Lease may be taken, as far as this process has observed it.
    pub fn free_since(&self) -> Option<Instant> {
        self.free_since
    }
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStep {
    /// There is no Lease: create it.
    Create,
    /// It is free or its holder is gone: take it.
    Take,
    /// This process holds it: renew it.
    Renew,
    /// Another process holds it.
    Wait,
}

/// Decides, and remembers what was seen.
pub fn decide(observed: &mut ForeignLease, lease: Option<&LeaseObject>, me: &str, now: Instant) -> LeaseStep {
    if lease.is_none() {
        observed.seen = None;
    }
    let Some(spec) = lease.map(|lease| lease.spec.clone().unwrap_or_default()) else {
        return LeaseStep::Create;
    };
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    if holder.is_none() {
        observed.seen = None;
        return LeaseStep::Take;
    }
    if holder.as_deref() == Some(me) {
        observed.seen = None;
        return LeaseStep::Renew;
    }
    // The version changes with every renewal, independently of the holder's clock.
    let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
    let since = match &observed.seen {
        Some((seen_holder, seen_version, since)) if *seen_holder == holder && *seen_version == version => *since,
        _ => {
            observed.seen = Some((holder, version, now));
            now
        }
    };
    let duration = Duration::from_secs(
        spec.lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .unwrap_or(0),
    );
    observed.lasts = duration;
    if now.duration_since(since) > duration {
        LeaseStep::Take
    } else {
        LeaseStep::Wait
    }
}

/// Holds a taking back that is another replica's for `patience`.
pub(super) fn defer(
    observed: &mut ForeignLease,
    next: LeaseStep,
    precedence: Precedence,
    now: Instant,
    patience: Duration,
) -> LeaseStep {
    if !matches!(next, LeaseStep::Create | LeaseStep::Take) {
        observed.free_since = None;
        return next;
    }
    let since = *observed.free_since.get_or_insert(now);
    match precedence {
        Precedence::First => next,
        Precedence::Later if now.duration_since(since) >= patience => next,
        Precedence::Later | Precedence::Never => LeaseStep::Wait,
    }
}

/// The holder that a Lease object names.
pub(super) fn foreign_holder(lease: &LeaseObject) -> LeaseHolder {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseHolder {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        address: lease
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(ANNOTATION_ADDRESS).cloned()),
        mine_until: None,
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> LeaseObject {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "x", "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10},
        }))
        .unwrap()
    }

    #[test]
    fn absent_free_and_own_leases_are_taken_at_once() {
        let now = Instant::now();
        for (lease, expected) in [
            (None, LeaseStep::Create),
            (Some(lease("", "1")), LeaseStep::Take),
            (Some(lease("me", "1")), LeaseStep::Renew),
            (Some(lease("other", "1")), LeaseStep::Wait),
        ] {
            assert_eq!(
                decide(&mut ForeignLease::default(), lease.as_ref(), "me", now),
                expected
            );
        }
    }

    #[test]
    fn a_foreign_lease_is_taken_when_it_was_not_renewed_for_its_duration() {
        let (start, mut observed) = (Instant::now(), ForeignLease::default());
        for (seconds, version, expected) in [
            (0, "1", LeaseStep::Wait),
            (9, "1", LeaseStep::Wait),
            (10, "2", LeaseStep::Wait),
            (19, "2", LeaseStep::Wait),
            (20, "2", LeaseStep::Wait),
            (21, "2", LeaseStep::Take),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(
                decide(&mut observed, Some(&lease("other", version)), "me", now),
                expected,
                "{seconds} {version}"
            );
        }
    }

    #[test]
    fn a_standby_has_a_time_for_its_next_read() {
        let (start, mut observed) = (Instant::now(), ForeignLease::default());
        assert_eq!(observed.expires(), None);
        decide(&mut observed, Some(&lease("other", "1")), "me", start);
        let end = observed.expires().unwrap();
        assert_eq!(
            decide(&mut observed, Some(&lease("other", "1")), "me", end),
            LeaseStep::Take
        );
        decide(&mut observed, Some(&lease("me", "2")), "me", end);
        assert_eq!(observed.expires(), None);
    }

    #[test]
    fn later_candidates_wait_for_earlier_ones() {
        let (start, patience) = (Instant::now(), Duration::from_secs(3));
        for (precedence, seconds, expected) in [
            (Precedence::First, &[0][..], &[LeaseStep::Take][..]),
            (
                Precedence::Later,
                &[0, 2, 3],
                &[LeaseStep::Wait, LeaseStep::Wait, LeaseStep::Take],
            ),
            (Precedence::Never, &[0, 60], &[LeaseStep::Wait, LeaseStep::Wait]),
        ] {
            let mut observed = ForeignLease::default();
            let decided: Vec<LeaseStep> = seconds
                .iter()
                .map(|seconds| start + Duration::from_secs(*seconds))
                .map(|now| defer(&mut observed, LeaseStep::Take, precedence, now, patience))
                .collect();
            assert_eq!(decided, expected, "{precedence:?}");
        }
        // Counting restarts when the Lease was held in between.
        let mut observed = ForeignLease::default();
        for (seconds, next, expected) in [
            (0, LeaseStep::Create, LeaseStep::Wait),
            (2, LeaseStep::Wait, LeaseStep::Wait),
            (4, LeaseStep::Take, LeaseStep::Wait),
            (7, LeaseStep::Take, LeaseStep::Take),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(
                defer(&mut observed, next, Precedence::Later, now, patience),
                expected,
                "{seconds}"
            );
        }
        assert_eq!(
            defer(&mut observed, LeaseStep::Renew, Precedence::Never, start, patience),
            LeaseStep::Renew,
            "what is held is held"
        );
    }
}
