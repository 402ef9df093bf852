//! Revisions other than the newest one. While its packages are not there, or its version is not what the pin requires, a runtime
//! serves the last one before it that has both. Of an uploaded skill it serves the highest version that its pin takes.

use knack_api::skill_runtime::SkillPin;
use knack_api::skill_status::{EarlierRevision, STATUS_EARLIER_MAX};
use knack_api::{Skill, SkillRuntime, SkillStatus};
use knack_skill::semver::Version;

use super::packages::{Revision, refusal};
use super::types::{Rejection, RejectionReason, Scope, Selected};
use super::version::{newest_version, version_matches};

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

/// The revision that a runtime serves in place of the newest one: if that is refused the last one before it, and in any case a
/// version of an uploaded skill that the pin's constraint chooses, if it is higher.
pub(super) fn serving<'a>(
    runtime: &SkillRuntime,
    skill: &'a Skill,
    pin: Option<&SkillPin>,
    scope: &Scope<'_>,
    is_refused: bool,
) -> Option<&'a EarlierRevision> {
    let earlier = &skill.status.as_ref()?.earlier;
    let may_serve = |earlier: &&EarlierRevision| {
        version_matches(pin, earlier.version.as_deref())
            && refusal(runtime, Revision::earlier(skill, earlier), scope).is_none()
    };
    let held = || earlier.iter().filter(|earlier| earlier.upload_version.is_none());
    let before = if is_refused { held().find(may_serve) } else { None };
    let chosen = earlier.iter().filter(|earlier| is_chosen(pin, earlier));
    let chosen = chosen
        .filter(may_serve)
        .max_by_key(|earlier| (number(earlier.version.as_deref()), earlier.upload_version));
    match (before, chosen) {
        // While the newest one is waited for, nothing lower than what it replaced. Else what the registry keeps: the other one may have
        // been deleted there because it is wrong.
        (Some(before), Some(chosen)) => {
            let is_waited_for = version_matches(pin, newest_version(skill));
            let is_higher = number(before.version.as_deref()) > number(chosen.version.as_deref());
            Some(if is_waited_for && is_higher { before } else { chosen })
        }
        (None, Some(chosen)) if !is_refused => {
            Some(chosen).filter(|chosen| number(chosen.version.as_deref()) > number(newest_version(skill)))
        }
        (before, chosen) => before.or(chosen),
    }
}

/// Whether a revision is a version of an uploaded skill among those that a pin chooses from.
pub fn is_chosen(pin: Option<&SkillPin>, earlier: &EarlierRevision) -> bool {
    earlier.upload_version.is_some()
        && pin.is_some_and(|pin| pin.version.is_some())
        && version_matches(pin, earlier.version.as_deref())
}

/// A version by its numbers; a text without them is below all others.
fn number(version: Option<&str>) -> Option<Version> {
    version?.parse().ok()
}

/// What status says where a revision other than the newest one is served.
pub(super) fn reservation(
    skill: &Skill,
    pin: Option<&SkillPin>,
    earlier: &EarlierRevision,
    refused: Option<&Rejection>,
) -> Rejection {
    let revision = &earlier.revision;
    if let (Some(version), Some(wanted)) = (&earlier.version, pin.and_then(|pin| pin.version.as_ref()))
        && earlier.upload_version.is_some()
    {
        let default = match (refused, newest_version(skill)) {
            (Some(refused), _) if refused.reason != RejectionReason::VersionNotMatched => {
                format!("the default version is not served: {}", refused.message)
            }
            (_, Some(default)) => format!("the default version is {default}"),
            (_, None) => "the default version has no number".to_owned(),
        };
        return Rejection {
            reason: RejectionReason::KeptVersion,
            message: format!(
                "version {version} (revision {revision}) is served here: the registry keeps it, and it is the highest one in service \
                 that the pin takes ({wanted}); {default}"
            ),
        };
    }
    let why = refused.map(|refused| refused.message.as_str()).unwrap_or_default();
    Rejection {
        reason: RejectionReason::EarlierRevision,
        message: format!("revision {revision} stays in service here; the newest revision is not served: {why}"),
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
    // It was copied because a pin chooses it, and would be copied again.
    if is_chosen(item.pin, earlier) {
        return EarlierState::Possible;
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
        Some(rejection) if rejection.reason != RejectionReason::PackagesBuilding => EarlierState::Useless,
        _ => EarlierState::Possible,
    }
}

/// The revision that a status has in `artifact`, as one of `earlier`.
pub fn in_artifact(status: &SkillStatus) -> Option<EarlierRevision> {
    let artifact = status.artifact.as_ref()?;
    Some(EarlierRevision {
        revision: artifact.revision.clone(),
        digest: artifact.digest.clone(),
        config_maps: status.config_maps.clone(),
        version: status.version.clone(),
        activation: status.activation,
        packages: status.packages.clone(),
        upload_version: None,
    })
}

/// The revisions that may serve instead of that of a status, newest first: the one that it replaces, and those before it.
pub fn candidates(before: &SkillStatus, now: &SkillStatus) -> Vec<EarlierRevision> {
    let newest = now.artifact.as_ref().map(|artifact| artifact.revision.as_str());
    let mut all: Vec<EarlierRevision> = Vec::new();
    for earlier in in_artifact(before).into_iter().chain(before.earlier.iter().cloned()) {
        let is_known = all.iter().any(|known| known.revision == earlier.revision);
        if Some(earlier.revision.as_str()) != newest && !is_known {
            all.push(earlier);
        }
    }
    all
}

/// The revisions to keep, in their order: what is in service, and within [`STATUS_EARLIER_MAX`] what may be. Versions
/// that pins choose are bounded where they are chosen.
pub fn retained(candidates: Vec<(EarlierRevision, EarlierState)>) -> Vec<EarlierRevision> {
    let mut kept: Vec<(EarlierRevision, EarlierState)> = candidates
        .into_iter()
        .filter(|(_, earlier_state)| *earlier_state != EarlierState::Useless)
        .collect();
    let is_held = |(earlier, _): &(EarlierRevision, EarlierState)| earlier.upload_version.is_none();
    while kept.iter().filter(|item| is_held(item)).count() > STATUS_EARLIER_MAX {
        let spare = kept
            .iter()
            .rposition(|item| is_held(item) && item.1 != EarlierState::Serves);
        let Some(spare) = spare.or_else(|| kept.iter().rposition(is_held)) else {
            break;
        };
        kept.remove(spare);
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
    fn versions_that_pins_choose_take_no_place_of_what_an_edit_replaced() {
        let chosen = |name: &str, number| EarlierRevision {
            upload_version: Some(number),
            ..named(name)
        };
        let held = ["a", "b", "c", "d", "e"].map(named);
        let versions = [chosen("v1", 1), chosen("v2", 2)];
        let given = held.into_iter().chain(versions);
        let given = given.map(|earlier| (earlier, EarlierState::Possible)).collect();
        let kept: Vec<String> = retained(given).into_iter().map(|earlier| earlier.revision).collect();
        assert_eq!(kept.join(" "), "a b c d v1 v2");
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
