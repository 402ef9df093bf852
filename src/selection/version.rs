//! Versions that pins require: a condition on the version of one revision, and, of an uploaded skill, a choice among the versions
//! that its own object names. So a verdict depends on no other skill.

use knack_api::Skill;
use knack_api::skill_runtime::SkillPin;
use knack_api::skill_status::STATUS_CHOSEN_MAX;
use knack_skill::semver::{choose, satisfies};
use knack_vocabulary::LABEL_UPLOAD_OF;

use super::types::{Rejection, RejectionReason};

/// Whether a revision of this version is one that a pin takes; without a requirement each is.
pub fn version_matches(pin: Option<&SkillPin>, version: Option<&str>) -> bool {
    let wanted = pin.and_then(|pin| pin.version.as_deref());
    wanted.is_none_or(|wanted| version.is_some_and(|version| satisfies(version, wanted)))
}

/// The version of the revision in `status.artifact`.
pub fn newest_version(skill: &Skill) -> Option<&str> {
    skill.status.as_ref()?.version.as_deref()
}

/// Why a pin does not take a revision of this version.
pub fn version_refusal(pin: Option<&SkillPin>, version: Option<&str>) -> Option<Rejection> {
    let wanted = pin?.version.as_deref().filter(|_| !version_matches(pin, version))?;
    let found = match version {
        Some(version) => format!("its version is {version}"),
        None => "it has no version (spec.version, or metadata.version of its SKILL.md)".to_owned(),
    };
    Some(Rejection {
        reason: RejectionReason::VersionNotMatched,
        message: format!(
            "{found}, and the pin requires {wanted}; change spec.skillSelector.skills[].version of the runtime to serve it"
        ),
    })
}

/// Whether a skill was uploaded, and has the versions that the registry keeps of it. The object of one such version has none.
pub(super) fn is_uploaded(skill: &Skill) -> bool {
    let labels = skill.metadata.labels.as_ref();
    let of = labels.and_then(|labels| labels.get(LABEL_UPLOAD_OF));
    of.is_some() && of == skill.metadata.name.as_ref()
}

/// The versions that requirements choose, as indices into `versions`, which are in the order of their creation and empty where
/// there is no version: for each requirement the highest that meets it, of equal ones the one made last; of the same version
/// that at `default`, which is not among the result. At most [`STATUS_CHOSEN_MAX`], those of the first requirements.
pub fn chosen_versions<'w>(
    versions: &[&str],
    default: Option<usize>,
    wanted: impl IntoIterator<Item = &'w str>,
) -> Vec<usize> {
    let at = |index: usize| versions.get(index).copied().unwrap_or_default();
    let mut chosen: Vec<usize> = Vec::new();
    for wanted in wanted {
        let Some(index) = choose(versions, wanted).filter(|index| satisfies(at(*index), wanted)) else {
            continue;
        };
        let is_default = default.is_some_and(|default| at(default) == at(index));
        if !is_default && !chosen.contains(&index) && chosen.len() < STATUS_CHOSEN_MAX {
            chosen.push(index);
        }
    }
    chosen
}
