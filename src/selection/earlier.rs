//! Earlier revisions: while the packages of the newest one are not there, or its version is not what the pin requires, a runtime
//! serves the last one that has both.

use knack_api::skill_runtime::SkillPin;
use knack_api::skill_status::{EarlierRevision, STATUS_EARLIER_MAX};
use knack_api::{Skill, SkillRuntime, SkillStatus};

use super::packages::{Revision, refusal};
use super::types::{Reason, Rejection, Scope, Selected};
use super::version::version_matches;

/// What a revision that is not the newest one is to a runtime. The greatest over all runtimes counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EarlierState {
    /// Not served, and it will not be: it is forgotten.
    Useless,
    /// Not served now; its environment may come, or nothing is known of it yet.
    Possible,
    /// In service.
    Serves,
}

/// The revision that a runtime serves while it refuses the newest one: the newest that it can.
pub(super) fn serving<'a>(
    runtime: &SkillRuntime,
    skill: &'a Skill,
    pin: Option<&SkillPin>,
    scope: &Scope<'_>,
) -> Option<&'a EarlierRevision> {
    let earlier = &skill.status.as_ref()?.earlier;
    earlier.iter().find(|earlier| {
        version_matches(pin, earlier.version.as_deref())
            && refusal(runtime, Revision::earlier(skill, earlier), scope).is_none()
    })
}

/// What status says where an earlier revision is served.
pub(super) fn reservation(earlier: &EarlierRevision, refused: &Rejection) -> Rejection {
    Rejection {
        reason: Reason::EarlierRevision,
        message: format!(
            "revision {} stays in service here; the newest revision is not served: {}",
            earlier.revision, refused.message
        ),
    }
}

/// The state of an earlier revision at a runtime that selects the skill.
pub fn earlier_state(
    runtime: &SkillRuntime,
    item: &Selected<'_>,
    earlier: &EarlierRevision,
    scope: &Scope<'_>,
) -> EarlierState {
    if item.earlier.is_some_and(|served| served.revision == earlier.revision) {
        return EarlierState::Serves;
    }
    // Where the newest one is served, or a newer one of the earlier revisions, this one is not needed. Where none is for another
    // reason, or the pin does not take it, it has nothing to wait for.
    let refused = item.accepted.as_ref().err();
    if !refused.is_some_and(|refused| refused.reason.is_of_revision())
        || !version_matches(item.pin, earlier.version.as_deref())
    {
        return EarlierState::Useless;
    }
    match refusal(runtime, Revision::earlier(item.skill, earlier), scope) {
        Some(rejection) if rejection.reason != Reason::PackagesBuilding => EarlierState::Useless,
        _ => EarlierState::Possible,
    }
}

/// The revisions that may serve instead of that of a status, newest first: the one that it replaces, and those before it.
pub fn candidates(before: &SkillStatus, now: &SkillStatus) -> Vec<EarlierRevision> {
    let newest = now.artifact.as_ref().map(|artifact| artifact.revision.as_str());
    let replaced = before.artifact.as_ref().map(|artifact| EarlierRevision {
        revision: artifact.revision.clone(),
        digest: artifact.digest.clone(),
        config_maps: before.config_maps.clone(),
        version: before.version.clone(),
        activation: before.activation,
        packages: before.packages.clone(),
    });
    let mut all: Vec<EarlierRevision> = Vec::new();
    for earlier in replaced.into_iter().chain(before.earlier.iter().cloned()) {
        let is_known = all.iter().any(|known| known.revision == earlier.revision);
        if Some(earlier.revision.as_str()) != newest && !is_known {
            all.push(earlier);
        }
    }
    all
}

/// Those that stay, in their order: what is in service, and within [`STATUS_EARLIER_MAX`] what may be.
pub fn retained(candidates: Vec<(EarlierRevision, EarlierState)>) -> Vec<EarlierRevision> {
    let mut kept: Vec<(EarlierRevision, EarlierState)> = candidates
        .into_iter()
        .filter(|(_, earlier_state)| *earlier_state != EarlierState::Useless)
        .collect();
    while kept.len() > STATUS_EARLIER_MAX {
        let spare = kept
            .iter()
            .rposition(|(_, earlier_state)| *earlier_state != EarlierState::Serves);
        kept.remove(spare.unwrap_or(kept.len() - 1));
    }
    kept.into_iter().map(|(earlier, _)| earlier).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(revision: &str) -> EarlierRevision {
        EarlierRevision {
            revision: revision.to_owned(),
            ..EarlierRevision::default()
        }
    }

    fn status(newest: &str, earlier: &[&str]) -> SkillStatus {
        SkillStatus {
            earlier: earlier.iter().map(|revision| named(revision)).collect(),
            ..serde_json::from_value(
                json!({"artifact": {"revision": newest, "digest": "d", "size": 1, "fileCount": 1}}),
            )
            .unwrap()
        }
    }

    #[test]
    fn what_an_edit_replaces_may_serve_on_and_a_rollback_is_no_earlier_revision() {
        for (what, before, now, expected) in [
            ("the first content", SkillStatus::default(), "a", vec![]),
            ("nothing changes", status("a", &["z"]), "a", vec!["z"]),
            ("an edit", status("a", &["z"]), "b", vec!["a", "z"]),
            ("back to the one that serves", status("b", &["a"]), "a", vec!["b"]),
        ] {
            let all = candidates(&before, &status(now, &[]));
            let names: Vec<&str> = all.iter().map(|earlier| earlier.revision.as_str()).collect();
            assert_eq!(names, expected, "{what}");
        }
    }

    #[test]
    fn what_serves_stays_however_often_a_skill_is_edited() {
        use EarlierState::{Possible, Serves, Useless};
        for (given, expected) in [
            (&[("a", Useless), ("b", Serves)][..], "b"),
            (&[("a", Possible), ("b", Useless), ("c", Serves)], "a c"),
            (
                &[
                    ("a", Possible),
                    ("b", Possible),
                    ("c", Possible),
                    ("d", Possible),
                    ("e", Serves),
                ],
                "a b c e",
            ),
            (
                &[
                    ("a", Serves),
                    ("b", Serves),
                    ("c", Serves),
                    ("d", Serves),
                    ("e", Serves),
                ],
                "a b c d",
            ),
        ] {
            let all = given
                .iter()
                .map(|(name, earlier_state)| (named(name), *earlier_state))
                .collect();
            let kept: Vec<String> = retained(all).into_iter().map(|earlier| earlier.revision).collect();
            assert_eq!(kept.join(" "), expected);
        }
    }
}
