//! Versions that pins require: a condition on the version of one revision, so that a verdict depends on no other skill.

use knack_api::Skill;
use knack_api::skill_runtime::SkillPin;
use knack_skill::semver::satisfies;

use super::types::{Reason, Rejection};

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
        reason: Reason::VersionNotMatched,
        message: format!(
            "{found}, and the pin requires {wanted}; change spec.skillSelector.skills[].version of the runtime to serve it"
        ),
    })
}
