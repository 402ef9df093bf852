//! An entry as Skill objects, and back. Pure.
//!
//! ```text
//! Skill <name>        annotation knack.dev/upload: the entry; spec: the version that is served where none is named
//! Skill <name>-v<n>   owned by that one; spec: another version, by request only
//! ```
//! The first is the commit: what the entry does not name does not exist, whatever other objects there are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knack_api::skill::{Activation, InlineSource, Source, UPLOAD_CONFIG_MAPS_MAX, UploadSource};
use knack_api::{Skill, SkillSpec};
use knack_registry::{Owner, SkillEntry, StoreError, VERSIONS_MAX, Version};
use knack_skill::digest::sha256;
use knack_skill::tree::MAX_FOLDER_BYTES;
use knack_vocabulary::{
    ANNOTATION_UPLOAD, API_VERSION, KIND_SKILL, LABEL_UPLOAD_OF, LABEL_UPLOAD_VERSION, NAME_MAX_BYTES,
};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

/// Longest entry as JSON, bytes: the annotations of an object have 256 KiB together, and kubectl may add the object itself.
const ENTRY_MAX_BYTES: usize = 192 << 10;
/// Hex digits of the id of a version in the names of its ConfigMaps.
const HASH_DIGITS: usize = 10;
/// Names that are tried for the object of a version.
pub(super) const NAMES_TRIED: usize = 5;

/// An uploaded skill as its object keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UploadedSkill {
    /// The skill and its versions.
    #[serde(rename = "record")]
    pub(super) entry: SkillEntry,
    /// How many ConfigMaps hold a version, by its number.
    pub(super) shards: BTreeMap<u32, usize>,
}

/// The objects that an entry should have.
#[derive(Debug)]
pub(super) struct Objects {
    /// The annotation with the entry.
    pub(super) annotation: String,
    /// The spec of the object that has the skill's name.
    pub(super) main: SkillSpec,
    /// The version that it is.
    pub(super) number: Option<u32>,
    /// The specs of the objects of the other versions, by number.
    pub(super) versions: BTreeMap<u32, SkillSpec>,
}

impl UploadedSkill {
    /// The entry of an object; `None`: it was not uploaded, or its annotation was not written for this object. Whoever may edit a
    /// Skill writes its annotations, so what no upload has is refused here: each number is memory wherever it is used.
    pub(super) fn of(skill: &Skill) -> Option<Self> {
        let text = skill.annotations().get(ANNOTATION_UPLOAD)?;
        let mut uploaded: Self = serde_json::from_str(text).ok()?;
        let entry = &mut uploaded.entry;
        entry.owner = Owner::namespace(&skill.namespace()?);
        let named: Vec<u32> = entry.versions.iter().map(|version| version.number).collect();
        let has_shards = |number: &u32| {
            let count = uploaded.shards.get(number);
            count.is_some_and(|count| (1..=UPLOAD_CONFIG_MAPS_MAX).contains(count))
        };
        let has_bytes = |version: &Version| version.bytes <= MAX_FOLDER_BYTES as u64;
        let is_whole = named.len() <= VERSIONS_MAX
            && entry.versions.iter().all(has_bytes)
            && entry.default.is_none_or(|number| named.contains(&number))
            && named.iter().all(has_shards);
        (entry.name == skill.name_any() && is_whole).then_some(uploaded)
    }

    /// The ConfigMaps of a version, in order.
    pub(super) fn config_maps(&self, version: &Version) -> Vec<String> {
        let base = config_map_name(&self.entry.name, version);
        let count = self.shards.get(&version.number).copied().unwrap_or_default();
        (0..count).map(|shard| shard_name(&base, shard)).collect()
    }

    /// The ConfigMaps of all versions.
    pub(super) fn all_config_maps(&self) -> impl Iterator<Item = String> {
        let versions = self.entry.versions.iter();
        versions.flat_map(|version| self.config_maps(version))
    }

    /// Whether it has the version of an id.
    pub(super) fn names(&self, id: &str) -> bool {
        self.entry.versions.iter().any(|version| version.id == id)
    }

    /// Whether a change to `after` was written: it has the version that was uploaded, whatever was changed since, or it is in that
    /// state. The time of a change is to the microsecond.
    pub(super) fn has(&self, after: &Self, is_upload: bool) -> bool {
        match after.entry.latest() {
            Some(made) if is_upload => self.names(&made.id),
            _ => self.entry == after.entry,
        }
    }

    /// With another state of the entry; what it does not name any more has no ConfigMaps.
    pub(super) fn with(&self, entry: SkillEntry) -> Self {
        let shards = self.shards.iter().map(|(number, count)| (*number, *count));
        let shards = shards.filter(|(number, _)| entry.version(*number).is_some()).collect();
        Self { entry, shards }
    }

    /// What should be there. Errors: the entry is too large for an annotation.
    pub(super) fn objects(&self) -> Result<Objects, StoreError> {
        let annotation = serde_json::to_string(self).map_err(|error| StoreError::Failed(error.to_string()))?;
        if annotation.len() > ENTRY_MAX_BYTES {
            return Err(StoreError::Full(format!(
                "the entry of skill \"{}\" would have {} bytes, the maximum is {ENTRY_MAX_BYTES}; delete unused versions",
                self.entry.name,
                annotation.len()
            )));
        }
        let others = self
            .entry
            .versions
            .iter()
            .filter(|version| self.entry.default != Some(version.number));
        Ok(Objects {
            annotation,
            number: self.entry.default,
            main: self
                .entry
                .served()
                .map_or_else(|| empty(&self.entry.name), |served| self.spec(served, true)),
            versions: others
                .map(|version| (version.number, self.spec(version, false)))
                .collect(),
        })
    }

    fn spec(&self, version: &Version, is_default: bool) -> SkillSpec {
        let mut mode = self.entry.mode_of(version).map(knack_registry::Mode::activation);
        if !is_default {
            mode = Some(mode.map_or(knack_skill::model::ActivationMode::OnRequest, |mode| {
                mode.min(knack_skill::model::ActivationMode::OnRequest)
            }));
        }
        SkillSpec {
            version: version.version.clone(),
            activation: mode.map(|mode| Activation {
                mode: Some(mode.into()),
                tags: None,
            }),
            ids: Some(self.entry.references(version)),
            ..spec_of(Source {
                upload: Some(UploadSource {
                    digest: version.digest.clone(),
                    config_maps: self.config_maps(version),
                }),
                ..Source::default()
            })
        }
    }
}

/// A skill without a version is an object that is not served: a source is required of it.
fn empty(name: &str) -> SkillSpec {
    let document = format!("---\nname: {name}\ndescription: This skill has no version.\n---\n");
    let inline = InlineSource {
        files: BTreeMap::from([("SKILL.md".to_owned(), document)]),
        ..InlineSource::default()
    };
    SkillSpec {
        suspend: true,
        ..spec_of(Source {
            inline: Some(inline),
            ..Source::default()
        })
    }
}

fn spec_of(source: Source) -> SkillSpec {
    SkillSpec {
        source,
        version: None,
        activation: None,
        suspend: false,
        tools: None,
        inputs: None,
        ids: None,
        sandbox: None,
        packages: None,
        allowed_runtimes: None,
    }
}

/// The name of the first ConfigMap of a version. The id of the version is part of it: no two uploads share a ConfigMap, so
/// that the sweep removes nothing that another change is about to refer to.
pub(super) fn config_map_name(skill: &str, version: &Version) -> String {
    let hash: String = sha256(version.id.as_bytes()).chars().take(HASH_DIGITS).collect();
    format!("{skill}-upload-{}-{hash}", version.number)
}

/// The name of a ConfigMap of a set.
pub(super) fn shard_name(base: &str, shard: usize) -> String {
    if shard == 0 {
        base.to_owned()
    } else {
        format!("{base}-{shard}")
    }
}

/// The name of the object of a version: the `attempt`-th that is tried.
pub(super) fn version_name(skill: &str, number: u32, attempt: usize) -> String {
    let end = if attempt == 0 {
        format!("-v{number}")
    } else {
        format!("-v{number}-{}", attempt + 1)
    };
    let most = NAME_MAX_BYTES.saturating_sub(end.len());
    let begin: String = skill.chars().take(most).collect();
    format!("{}{end}", begin.trim_end_matches('-'))
}

/// The skill and version number that the object holds; `None`: it is a skill itself.
pub(super) fn version_of(meta: &ObjectMeta) -> Option<(String, u32)> {
    let labels = meta.labels.as_ref()?;
    let (main, number) = (
        labels.get(LABEL_UPLOAD_OF)?,
        labels.get(LABEL_UPLOAD_VERSION)?.parse().ok()?,
    );
    let mut owners = meta.owner_references.iter().flatten();
    let is_owned = owners.any(|owner| owner.kind == KIND_SKILL && owner.name == *main);
    is_owned.then(|| (main.clone(), number))
}

/// Says on an object of which skill it is which version; without a number it is none.
pub(super) fn label(meta: &mut ObjectMeta, main: &str, number: Option<u32>) {
    let labels = meta.labels.get_or_insert_default();
    let Some(number) = number else {
        labels.remove(LABEL_UPLOAD_OF);
        labels.remove(LABEL_UPLOAD_VERSION);
        return;
    };
    labels.insert(LABEL_UPLOAD_OF.to_owned(), main.to_owned());
    labels.insert(LABEL_UPLOAD_VERSION.to_owned(), number.to_string());
}

/// The object of a version.
pub(super) fn version_object(main: &Skill, number: u32, name: &str, spec: SkillSpec) -> Skill {
    let mut object = Skill::new(name, spec);
    object.metadata.namespace = main.namespace();
    object.metadata.owner_references = Some(vec![owner(main)]);
    label(&mut object.metadata, &main.name_any(), Some(number));
    object
}

/// The owner of a skill's objects: they are deleted with it.
pub(super) fn owner(main: &Skill) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: KIND_SKILL.to_owned(),
        name: main.name_any(),
        uid: main.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use knack_registry::{Mode, Stamp};

    use super::*;

    fn version(number: u32) -> Version {
        Version {
            number,
            id: format!("skver_knack_{number}"),
            created: i64::from(number),
            description: "d".to_owned(),
            version: None,
            mode: None,
            catalog: None,
            litellm: None,
            digest: format!("digest{number}"),
            bytes: 3,
        }
    }

    /// An entry with these versions, of which one is the default.
    pub(in crate::registry) fn uploaded(name: &str, numbers: &[u32], default: Option<u32>) -> UploadedSkill {
        let stamp = Stamp::of_now();
        UploadedSkill {
            entry: SkillEntry {
                id: format!("skill_knack_{}", stamp.skill),
                owner: Owner::namespace("team"),
                name: name.to_owned(),
                title: None,
                mode: None,
                created: stamp.now,
                updated: stamp.now,
                default,
                next: numbers.iter().max().map_or(1, |last| last + 1),
                versions: numbers.iter().copied().map(version).collect(),
            },
            shards: numbers.iter().map(|number| (*number, 2)).collect(),
        }
    }

    /// The object of an entry.
    pub(in crate::registry) fn object(uploaded: &UploadedSkill) -> Skill {
        let objects = uploaded.objects().unwrap();
        let mut skill = Skill::new(&uploaded.entry.name, objects.main);
        skill.metadata.namespace = Some("team".to_owned());
        label(&mut skill.metadata, &uploaded.entry.name, objects.number);
        skill.metadata.uid = Some(format!("uid-{}", uploaded.entry.name));
        skill.metadata.resource_version = Some("1".to_owned());
        skill.metadata.annotations = Some(BTreeMap::from([(ANNOTATION_UPLOAD.to_owned(), objects.annotation)]));
        skill
    }

    #[test]
    fn the_default_version_has_the_name_and_the_others_objects_of_their_own() {
        let uploaded = uploaded("draw", &[1, 2, 3], Some(2));
        let objects = uploaded.objects().unwrap();
        let source = objects.main.source.upload.clone().unwrap();
        assert_eq!(source.digest, "digest2");
        assert_eq!(
            source.config_maps,
            uploaded.config_maps(uploaded.entry.version(2).unwrap())
        );
        assert!(objects.main.ids.clone().unwrap().contains(&uploaded.entry.id));
        assert_eq!(objects.main.activation, None, "as its SKILL.md says");
        assert_eq!(objects.versions.keys().copied().collect::<Vec<_>>(), [1, 3]);
        let last = &objects.versions[&3];
        let latest = format!("{}:latest", uploaded.entry.id);
        assert!(last.ids.clone().unwrap().contains(&latest) && !last.ids.clone().unwrap().contains(&uploaded.entry.id));
        assert_eq!(
            serde_json::to_value(&last.activation).unwrap(),
            serde_json::json!({"mode": "OnRequest"})
        );
        for spec in objects.versions.values().chain([&objects.main]) {
            assert!(spec.ids.as_ref().unwrap().len() <= 8, "as many as a Skill may have");
        }
    }

    #[test]
    fn an_entry_is_read_from_its_own_object_alone() {
        let uploaded = uploaded("draw", &[1, 2], Some(2));
        let skill = object(&uploaded);
        assert_eq!(UploadedSkill::of(&skill), Some(uploaded));
        let mut copied = skill.clone();
        copied.metadata.name = Some("other".to_owned());
        assert_eq!(UploadedSkill::of(&copied), None);
        let mut broken = skill.clone();
        broken
            .annotations_mut()
            .insert(ANNOTATION_UPLOAD.to_owned(), "{}".to_owned());
        assert_eq!(UploadedSkill::of(&broken), None);
        let mut bare = skill;
        bare.metadata.annotations = None;
        assert_eq!(UploadedSkill::of(&bare), None);
    }

    /// The sweep makes the names of all ConfigMaps of every entry of the cluster.
    #[test]
    fn what_no_upload_has_is_no_entry_however_well_it_is_formed() {
        let of = |changed: UploadedSkill| {
            let mut skill = object(&uploaded("draw", &[1], Some(1)));
            let text = serde_json::to_string(&changed).unwrap();
            skill.annotations_mut().insert(ANNOTATION_UPLOAD.to_owned(), text);
            UploadedSkill::of(&skill)
        };
        for (count, is_read) in [
            (0, false),
            (1, true),
            (UPLOAD_CONFIG_MAPS_MAX, true),
            (UPLOAD_CONFIG_MAPS_MAX + 1, false),
            (usize::MAX, false),
        ] {
            let mut changed = uploaded("draw", &[1], Some(1));
            changed.shards.insert(1, count);
            assert_eq!(of(changed).is_some(), is_read, "{count} ConfigMaps");
        }
        for (bytes, is_read) in [
            (MAX_FOLDER_BYTES as u64, true),
            (MAX_FOLDER_BYTES as u64 + 1, false),
            (u64::MAX, false),
        ] {
            let mut changed = uploaded("draw", &[1], Some(1));
            changed.entry.versions[0].bytes = bytes;
            assert_eq!(of(changed).is_some(), is_read, "{bytes} bytes");
        }
        let most = u32::try_from(VERSIONS_MAX).unwrap();
        for (versions, is_read) in [(most, true), (most + 1, false)] {
            let numbers: Vec<u32> = (1..=versions).collect();
            let changed = uploaded("draw", &numbers, Some(1));
            assert_eq!(of(changed).is_some(), is_read, "{versions} versions");
        }
    }

    #[test]
    fn a_mode_that_was_set_is_that_of_every_object_and_a_skill_without_versions_is_suspended() {
        let mut off = uploaded("draw", &[1, 2], Some(2));
        off.entry.mode = Some(Mode::Off);
        let objects = off.objects().unwrap();
        let never = serde_json::json!({"mode": "Never"});
        assert_eq!(serde_json::to_value(&objects.main.activation).unwrap(), never);
        assert_eq!(serde_json::to_value(&objects.versions[&1].activation).unwrap(), never);
        let none = uploaded("draw", &[], None).objects().unwrap();
        assert!(none.main.suspend && none.main.source.inline.is_some() && none.versions.is_empty());
    }

    #[test]
    fn names_are_legal_and_of_one_upload() {
        let long = "a".repeat(NAME_MAX_BYTES);
        for (name, number, attempt, expected) in [
            ("draw", 2, 0, "draw-v2".to_owned()),
            ("draw", 2, 1, "draw-v2-2".to_owned()),
            (long.as_str(), 100, 0, format!("{}-v100", "a".repeat(58))),
        ] {
            assert_eq!(version_name(name, number, attempt), expected);
        }
        let (mut one, mut other) = (version(1), version(1));
        one.id = "skver_knack_a".to_owned();
        other.id = "skver_knack_b".to_owned();
        assert_ne!(config_map_name("draw", &one), config_map_name("draw", &other));
    }

    #[test]
    fn an_entry_that_no_annotation_holds_is_refused_by_name() {
        let mut large = uploaded("draw", &(1..=100).collect::<Vec<_>>(), Some(1));
        for version in &mut large.entry.versions {
            version.description = "d".repeat(4096);
        }
        let refused = large.objects().unwrap_err().to_string();
        assert!(refused.contains("delete unused versions"), "{refused}");
    }
}
