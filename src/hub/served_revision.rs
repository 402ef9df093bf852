//! Which content is in service according to a Skill's status, and whether ConfigMaps have it. Pure.
//!
//! Names, labels and annotations prove nothing: a user who may write ConfigMaps can give them all, and an index that
//! matches the files. Only the controller writes the status, which holds the digest of everything that it judged.

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_api::skill_status::{ConfigMapStatus, EarlierRevision};
use knack_skill::model::SkillRef;
use knack_vocabulary::KIND_SKILL;
use kube::ResourceExt as _;

use super::identity::reference;
use crate::artifact::{self, Content, shard_digest};

/// A revision of a skill, from its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedRevision {
    /// The skill.
    pub skill: SkillRef,
    /// The uid of its object: one that is deleted and created again has another one.
    pub uid: String,
    /// Short name of content and settings.
    pub revision: String,
    /// Hex SHA-256 of the tree.
    pub digest: String,
    /// The ConfigMaps with the digest of each.
    pub config_maps: Vec<ConfigMapStatus>,
}

/// Why ConfigMaps are not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitRevision {
    /// They differ from the status, or are not the controller's.
    #[error("{0}")]
    Swapped(String),
    /// This version cannot read them.
    #[error("{0}")]
    Unreadable(String),
}

impl ServedRevision {
    /// The content in service according to a Skill's status; `None` before the controller has judged any content.
    pub fn of(skill: &Skill) -> Option<Self> {
        let status = skill.status.as_ref()?;
        let artifact = status.artifact.as_ref()?;
        Some(Self {
            skill: reference(skill),
            uid: skill.uid()?,
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            config_maps: status.config_maps.clone(),
        })
    }

    /// The content of an earlier revision of a Skill's status.
    pub fn of_earlier(skill: &Skill, earlier: &EarlierRevision) -> Option<Self> {
        Some(Self {
            skill: reference(skill),
            uid: skill.uid()?,
            revision: earlier.revision.clone(),
            digest: earlier.digest.clone(),
            config_maps: earlier.config_maps.clone(),
        })
    }

    /// Everything that a Skill's status names: the newest content first, then what runtimes still serve instead.
    pub fn all(skill: &Skill) -> Vec<Self> {
        let earlier = skill.status.iter().flat_map(|status| &status.earlier);
        let earlier = earlier.filter_map(|earlier| Self::of_earlier(skill, earlier));
        Self::of(skill).into_iter().chain(earlier).collect()
    }

    /// The content of its ConfigMaps, given in the order of the status, if they match the status.
    pub fn read(&self, shards: &[ConfigMap]) -> Result<Content, UnfitRevision> {
        for (shard, expected) in shards.iter().zip(&self.config_maps) {
            self.check(shard, expected).map_err(UnfitRevision::Swapped)?;
        }
        let content = artifact::read(shards).map_err(|error| UnfitRevision::Unreadable(error.to_string()))?;
        if content.digest != self.digest {
            return Err(UnfitRevision::Swapped(format!(
                "the ConfigMaps of revision {} hold other files than status.artifact.digest says",
                self.revision
            )));
        }
        Ok(content)
    }

    fn check(&self, shard: &ConfigMap, expected: &ConfigMapStatus) -> Result<(), String> {
        let name = &expected.name;
        let owners = shard.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        if !controllers
            .next()
            .is_some_and(|owner| owner.kind == KIND_SKILL && owner.uid == self.uid)
        {
            return Err(format!("ConfigMap {name} does not belong to this Skill"));
        }
        if shard.immutable != Some(true) {
            return Err(format!("ConfigMap {name} is not immutable"));
        }
        if shard_digest(shard) != expected.digest {
            return Err(format!(
                "ConfigMap {name} holds something else than status.configMaps says"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use knack_skill::model::SkillFile;

    use super::*;
    use crate::artifact::{Artifact, build};
    use knack_api::SkillOverrides;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "knack.dev/v1alpha1".to_owned(),
            kind: KIND_SKILL.to_owned(),
            name: "pdf".to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    fn artifact(text: &str, overrides: &SkillOverrides) -> Artifact {
        let skill = SkillRef {
            namespace: "team".to_owned(),
            name: "pdf".to_owned(),
        };
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let files = BTreeMap::from([("SKILL.md".to_owned(), file)]);
        build(&skill, &files, overrides).owned_by(&owner("u"))
    }

    fn status(artifact: &Artifact) -> ServedRevision {
        ServedRevision {
            skill: SkillRef {
                namespace: "team".to_owned(),
                name: "pdf".to_owned(),
            },
            uid: "u".to_owned(),
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            config_maps: artifact
                .shards
                .iter()
                .map(|shard| ConfigMapStatus {
                    name: shard.name_any(),
                    digest: shard_digest(shard),
                    uid: String::new(),
                })
                .collect(),
        }
    }

    #[test]
    fn only_what_the_status_says_is_read() {
        let honest = artifact("good", &SkillOverrides::default());
        let expected = status(&honest);
        assert_eq!(expected.read(&honest.shards).unwrap().digest, honest.digest);
        let overrides = SkillOverrides {
            version: Some("9".to_owned()),
            ..SkillOverrides::default()
        };
        let owned = |shard: &ConfigMap, owners: Vec<OwnerReference>| {
            let mut shard = shard.clone();
            shard.metadata.owner_references = Some(owners);
            vec![shard]
        };
        let mutable = {
            let mut shard = honest.shards[0].clone();
            shard.immutable = None;
            vec![shard]
        };
        let not_controlling = OwnerReference {
            controller: None,
            ..owner("u")
        };
        for (shards, word) in [
            // Another content under the same name, consistent in itself.
            (artifact("evil", &SkillOverrides::default()).shards, "something else"),
            // The same files with other settings: the digest of the tree is the same.
            (artifact("good", &overrides).shards, "something else"),
            (mutable, "immutable"),
            (owned(&honest.shards[0], vec![owner("other")]), "does not belong"),
            (owned(&honest.shards[0], vec![not_controlling]), "does not belong"),
            (owned(&honest.shards[0], Vec::new()), "does not belong"),
        ] {
            match expected.read(&shards) {
                Err(UnfitRevision::Swapped(text)) => assert!(text.contains(word), "{text}"),
                other => panic!("{word}: {other:?}"),
            }
        }
        // A status whose digests contradict each other is not used either.
        let other_tree = ServedRevision {
            digest: "0".repeat(64),
            ..status(&honest)
        };
        assert!(matches!(
            other_tree.read(&honest.shards),
            Err(UnfitRevision::Swapped(_))
        ));
    }
}
