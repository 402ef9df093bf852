//! A Skill without its content.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use knack_api::skill::{SkillSpec, Source};
use knack_api::{Skill, SkillOverrides, SkillStatus};
use kube::Resource as _;
use kube::core::ObjectMeta;

use crate::controller::desired::owner;
use crate::status_write::Target;

/// A Skill without its source: whose it is, what its author wants besides the content, and what its status said before this
/// reconcile. Whoever has an outline and no Skill cannot read content that was not judged.
#[derive(Debug, Clone)]
pub(super) struct Outline {
    /// With an empty source and without a status.
    skill: Skill,
    before: SkillStatus,
}

impl Outline {
    /// The outline of an object, whose file contents are not copied.
    pub(super) fn of(skill: &Skill) -> Self {
        // Without a rest: whether a new member is content, which only judge may read, is decided here.
        let Skill { metadata, spec, status } = skill;
        let SkillSpec {
            source: _,
            version,
            activation,
            suspend,
            tools,
            inputs,
            ids,
            sandbox,
            packages,
            allowed_runtimes,
        } = spec;
        let spec = SkillSpec {
            source: Source::default(),
            version: version.clone(),
            activation: activation.clone(),
            suspend: *suspend,
            tools: tools.clone(),
            inputs: inputs.clone(),
            ids: ids.clone(),
            sandbox: sandbox.clone(),
            packages: packages.clone(),
            allowed_runtimes: allowed_runtimes.clone(),
        };
        Self {
            skill: Skill {
                metadata: metadata.clone(),
                spec,
                status: None,
            },
            // Uses are no result of a reconcile: what is compared and written is without them.
            before: SkillStatus {
                last_used_time: None,
                ..status.clone().unwrap_or_default()
            },
        }
    }

    /// The Skill's metadata.
    pub(super) fn meta(&self) -> &ObjectMeta {
        &self.skill.metadata
    }

    /// The Skill's namespace.
    pub(super) fn namespace(&self) -> &str {
        self.skill.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The Skill's name.
    pub(super) fn name(&self) -> &str {
        self.skill.metadata.name.as_deref().unwrap_or_default()
    }

    /// The Skill's uid.
    pub(super) fn uid(&self) -> &str {
        self.skill.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The status that it had before this reconcile, but for `lastUsedTime`.
    pub(super) fn before(&self) -> &SkillStatus {
        &self.before
    }

    /// Whether it is out of service.
    pub(super) fn is_suspended(&self) -> bool {
        self.skill.spec.is_suspended()
    }

    /// What the object says in place of the frontmatter.
    pub(super) fn overrides(&self) -> SkillOverrides {
        self.skill.spec.overrides()
    }

    /// The object as selection would see it with a status: no runtime asks for its source.
    pub(super) fn with_status(&self, status: SkillStatus) -> Skill {
        Skill {
            status: Some(status),
            ..self.skill.clone()
        }
    }

    /// Where its status is written.
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            namespace: self.namespace(),
            name: self.name(),
            uid: self.meta().uid.as_deref(),
        }
    }

    /// The owner of what is made for it.
    pub(super) fn owner(&self) -> OwnerReference {
        owner(&self.skill)
    }

    /// The object that Events are about.
    pub(super) fn reference(&self) -> ObjectReference {
        self.skill.object_ref(&())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_outline_has_everything_but_the_source() {
        let object = |source: serde_json::Value| -> Skill {
            serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
                "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "resourceVersion": "7",
                    "labels": {"team": "x"}, "annotations": {"knack.dev/requestedAt": "now"}},
                "spec": {"source": source, "version": "1.2.3", "activation": {"mode": "Auto"}, "suspend": true,
                    "tools": [{"name": "t", "command": ["t.sh"]}], "inputs": [{"name": "i"}], "ids": ["litellm_skill_1"],
                    "sandbox": {"image": "office"}, "packages": {"python": ["polars"]},
                    "allowedRuntimes": {"namespaces": {"from": "All"}}},
                "status": {"name": "A", "artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
            }))
            .unwrap()
        };
        let whole = object(json!({"inline": {"files": {"SKILL.md": "text"}}}));
        let outline = Outline::of(&whole);
        assert_eq!(outline.with_status(outline.before().clone()), object(json!({})));
        assert_eq!(outline.overrides(), whole.spec.overrides());
        assert_eq!(outline.before(), whole.status.as_ref().unwrap());
    }
}
