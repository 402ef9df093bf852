//! The identity of a Skill object.

use knack_api::Skill;
use knack_skill::model::SkillRef;
use kube::ResourceExt as _;

/// The identity of a Skill object.
pub(super) fn reference(skill: &Skill) -> SkillRef {
    SkillRef {
        namespace: skill
            .namespace()
            .unwrap_or_else(|| knack_vocabulary::DEFAULT_NAMESPACE.to_owned()),
        name: skill.name_any(),
    }
}
