//! What is kept of a Skill object: an entry with the names of its ConfigMaps. Pure.

use std::sync::Arc;

use knack_api::{ActivationWord, Skill, SkillSpec};
use knack_registry::{ID_PREFIX, Mode, Owner, SkillEntry, VERSION_PREFIX, Version};
use kube::ResourceExt as _;
use uuid::Uuid;

use super::managed::manager;
use super::objects::{UploadedSkill, version_of};

/// A Skill object as the registry knows it.
#[derive(Debug, Clone)]
pub(super) struct RegistryObject {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Grows with every write of the object.
    pub(super) resource_version: u64,
    /// When it was made, Unix time in microseconds.
    pub(super) created: i64,
    pub(super) kind: ObjectKind,
}

/// How the registry treats an object.
#[derive(Debug, Clone)]
pub(super) enum ObjectKind {
    /// A skill that was uploaded.
    Uploaded(Arc<UploadedSkill>),
    /// A skill that others apply.
    Applied(Arc<AppliedSkill>),
    /// A version of an uploaded one.
    Version(Arc<SkillVersion>),
}

/// An object that is a version of a skill.
#[derive(Debug)]
pub(super) struct SkillVersion {
    /// The name of the skill.
    pub(super) main: String,
    /// The uid of the object that it goes with.
    pub(super) owner: Option<String>,
    pub(super) number: u32,
    pub(super) spec: SkillSpec,
}

/// A skill that others apply.
#[derive(Debug, Clone)]
pub(super) struct AppliedSkill {
    /// It as an entry of one version, or of none while it is not ready.
    pub(super) entry: SkillEntry,
    /// The ConfigMaps that the controller made of its content, in order.
    pub(super) config_maps: Vec<String>,
    /// Who manages it, in words.
    pub(super) by: String,
}

impl RegistryObject {
    /// What is kept of an object. One without uid or version of its own never came from an API server.
    pub(super) fn of(skill: &Skill) -> Option<Self> {
        let kind = match (UploadedSkill::of(skill), version_of(&skill.metadata)) {
            (Some(uploaded), _) => ObjectKind::Uploaded(Arc::new(uploaded)),
            (None, Some((main, number))) => ObjectKind::Version(Arc::new(SkillVersion {
                main,
                owner: skill.owner_references().first().map(|owner| owner.uid.clone()),
                number,
                spec: skill.spec.clone(),
            })),
            (None, None) => ObjectKind::Applied(Arc::new(AppliedSkill::of(skill)?)),
        };
        Some(Self {
            namespace: skill.namespace()?,
            name: skill.name_any(),
            uid: skill.uid()?,
            resource_version: skill.resource_version()?.parse().ok()?,
            created: created(skill),
            kind,
        })
    }

    /// The skill that callers see; `None` for a version of another.
    pub(super) fn entry(&self) -> Option<&SkillEntry> {
        match &self.kind {
            ObjectKind::Uploaded(uploaded) => Some(&uploaded.entry),
            ObjectKind::Applied(applied) => Some(&applied.entry),
            ObjectKind::Version(..) => None,
        }
    }

    /// The ConfigMaps with the content of a version, in order.
    pub(super) fn config_maps(&self, number: u32) -> Vec<String> {
        match &self.kind {
            ObjectKind::Uploaded(uploaded) => {
                let version = uploaded.entry.version(number);
                version.map(|version| uploaded.config_maps(version)).unwrap_or_default()
            }
            ObjectKind::Applied(applied) => applied.config_maps.clone(),
            ObjectKind::Version(..) => Vec::new(),
        }
    }
}

fn created(skill: &Skill) -> i64 {
    let created = skill.metadata.creation_timestamp.as_ref();
    created.map_or(0, |time| time.0.as_microsecond())
}

impl AppliedSkill {
    fn of(skill: &Skill) -> Option<Self> {
        let uid = skill.uid()?;
        let bare = Uuid::try_parse(&uid).map_or(uid, |uuid| uuid.simple().to_string());
        let status = skill.status.clone().unwrap_or_default();
        let created = created(skill);
        let writes = skill.metadata.managed_fields.iter().flatten();
        let updated = writes.filter(|entry| entry.subresource.is_none());
        let updated = updated
            .filter_map(|entry| entry.time.as_ref())
            .map(|time| time.0.as_microsecond())
            .max();
        let version = status.artifact.map(|artifact| Version {
            number: 1,
            id: format!("{VERSION_PREFIX}{bare}"),
            created,
            description: status.description.unwrap_or_default(),
            version: status.version,
            mode: status.activation.and_then(mode_of),
            catalog: None,
            litellm: None,
            digest: artifact.digest,
            bytes: u64::try_from(artifact.size).unwrap_or(0),
        });
        Some(Self {
            entry: SkillEntry {
                id: format!("{ID_PREFIX}{bare}"),
                owner: Owner::namespace(&skill.namespace()?),
                name: skill.name_any(),
                title: status.name.filter(|name| *name != skill.name_any()),
                mode: None,
                created,
                updated: updated.unwrap_or(created),
                default: version.as_ref().map(|version| version.number),
                next: 2,
                versions: version.into_iter().collect(),
            },
            config_maps: status.config_maps.into_iter().map(|map| map.name).collect(),
            by: manager(&skill.metadata).unwrap_or_else(|| "the client that applied it".to_owned()),
        })
    }
}

fn mode_of(word: ActivationWord) -> Option<Mode> {
    match word {
        ActivationWord::Always => Some(Mode::On),
        ActivationWord::Auto => Some(Mode::Auto),
        ActivationWord::Never => Some(Mode::Off),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_skill_that_others_apply_is_an_entry_of_one_version() {
        let applied = |status: serde_json::Value| -> Skill {
            serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
                "metadata": {"name": "draw", "namespace": "team", "uid": "0199a7c4-a3cd-4d53-a0f6-f0c1f9a2b3c4",
                    "resourceVersion": "7", "creationTimestamp": "2026-11-01T00:00:00Z",
                    "managedFields": [{"manager": "kubectl-create", "operation": "Update", "time": "2026-11-01T00:00:05Z",
                        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]},
                "spec": {"source": {"configMap": {"name": "m"}}}, "status": status,
            }))
            .unwrap()
        };
        let ready = RegistryObject::of(&applied(json!({
            "description": "Draws.", "version": "1.0.0", "activation": "Auto",
            "artifact": {"revision": "r", "digest": "d", "size": 12, "fileCount": 1},
            "configMaps": [{"name": "draw-r", "digest": "x"}],
        })));
        let ready = ready.unwrap();
        let entry = ready.entry().unwrap();
        assert_eq!(entry.id, "skill_knack_0199a7c4a3cd4d53a0f6f0c1f9a2b3c4");
        assert_eq!(
            (&*entry.owner.text(), entry.default, entry.versions.len()),
            ("team", Some(1), 1)
        );
        assert_eq!(entry.updated - entry.created, 5_000_000);
        let version = &entry.versions[0];
        assert_eq!(
            (version.description.as_str(), version.mode, version.bytes),
            ("Draws.", Some(Mode::Auto), 12)
        );
        assert_eq!(ready.config_maps(1), ["draw-r"]);
        let ObjectKind::Applied(applied_by) = &ready.kind else {
            panic!("{ready:?}")
        };
        assert_eq!(applied_by.by, "field manager \"kubectl-create\"");
        let waiting = RegistryObject::of(&applied(json!({}))).unwrap();
        assert!(
            waiting.entry().unwrap().versions.is_empty(),
            "until the controller has read it"
        );
    }
}
