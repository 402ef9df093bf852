//! The part of a status that is about all selected skills together. Pure.

use std::fmt;
use std::fmt::Write as _;
use std::iter::Sum;

use knack_api::SkillRuntime;
use knack_api::runtime_status::{ListingStatus, RejectedSkill, STATUS_REJECTED_MAX, SkillCounts};
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use crate::selection::Selected;
use crate::shortened::cut;

/// The selected skills, summed up.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    pub(super) counts: SkillCounts,
    /// The first of those that are not served, or not as they ask.
    pub(super) rejected: Vec<RejectedSkill>,
    pub(super) listing: Option<ListingStatus>,
    pub(super) revision: Revision,
}

impl Summary {
    /// Sums up what a runtime selected.
    pub(super) fn of(runtime: &SkillRuntime, selected: &[Selected<'_>]) -> Self {
        let parts = selected.iter().map(Revision::of);
        Self::with_revision(runtime, selected, parts.sum())
    }

    /// The summary, where the sum of the parts of the revision is known.
    pub(super) fn with_revision(runtime: &SkillRuntime, selected: &[Selected<'_>], revision: Revision) -> Self {
        Self {
            counts: counts(selected),
            rejected: rejected(selected),
            listing: super::listing::listing(runtime, selected),
            revision,
        }
    }
}

fn counts(selected: &[Selected<'_>]) -> SkillCounts {
    let accepted = selected.iter().filter(|item| item.accepted.is_ok()).count();
    SkillCounts {
        accepted: i64::try_from(accepted).unwrap_or(i64::MAX),
        rejected: i64::try_from(selected.len() - accepted).unwrap_or(i64::MAX),
    }
}

fn rejected(selected: &[Selected<'_>]) -> Vec<RejectedSkill> {
    let listed = selected.iter().filter_map(|item| {
        let (Err(rejection) | Ok(Some(rejection))) = &item.accepted else {
            return None;
        };
        let skill = RejectedSkill {
            namespace: item.skill.namespace().unwrap_or_default(),
            name: item.skill.name_any(),
            reason: rejection.reason.as_str().to_owned(),
            message: cut(&rejection.message, 1024),
        };
        Some((rejection.reason.is_reservation(), skill))
    });
    // Refusals before reservations, so that 20 reservations hide no refusal.
    let mut listed: Vec<_> = listed.collect();
    listed.sort_by_key(|(is_reservation, _)| *is_reservation);
    listed.truncate(STATUS_REJECTED_MAX);
    listed.into_iter().map(|(_, skill)| skill).collect()
}

/// Changes with what is served: the sum of the digests of skill, revision, mode and pin of everything accepted. A sum, so
/// that one skill's change costs one digest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revision(u128);

impl Revision {
    /// The part of one skill: nothing where it is not served.
    pub(super) fn of(item: &Selected<'_>) -> Self {
        if item.accepted.is_err() {
            return Self::default();
        }
        let newest = item.skill.status.as_ref().and_then(|status| status.artifact.as_ref());
        let newest = newest.map(|artifact| artifact.revision.as_str());
        let revision = item.earlier.map(|earlier| earlier.revision.as_str()).or(newest);
        let metadata = &item.skill.metadata;
        let mut line = String::with_capacity(128);
        // For ten thousand lines the format machinery would be half of the work.
        for part in [
            metadata.namespace.as_deref().unwrap_or_default(),
            "/",
            metadata.name.as_deref().unwrap_or_default(),
            " ",
            revision.unwrap_or_default(),
            " ",
            item.mode.as_str(),
        ] {
            line.push_str(part);
        }
        if let Some(pin) = item.pin {
            // Text is always taken.
            let _ = write!(line, " {:?} {:?}", pin.inputs, pin.config);
        }
        let digest = Sha256::digest(&line);
        Self(digest.iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte)))
    }

    /// Takes a part out and another one in.
    pub(super) fn replace(&mut self, old: Self, new: Self) {
        self.0 = self.0.wrapping_sub(old.0).wrapping_add(new.0);
    }
}

impl Sum for Revision {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        Self(parts.fold(0, |sum, part| sum.wrapping_add(part.0)))
    }
}

/// 12 hex digits.
impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:012x}", self.0 >> 80)
    }
}
