//! The files of a version in immutable ConfigMaps: made, read, and given to the Skill that they are of.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::{Skill, SkillOverrides};
use knack_memory::{MemoryBudget, MemoryShare, OverBudget};
use knack_registry::{Files, StoreError, Version};
use knack_skill::model::SkillRef;
use knack_skill::tree::MAX_FOLDER_BYTES;
use knack_vocabulary::{FIELD_MANAGER_REGISTRY, LABEL_UPLOAD};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::failure::{FirstFailure, is_conflict, is_missing, store_error};
use super::objects::{config_map_name, owner, shard_name};
use crate::api_call::{CallError, call};
use crate::artifact;
use crate::sources::{CONFIG_MAP_MAX_BYTES, bytes_of, most_bytes_of};

/// What a file set costs: while it is read the ConfigMaps and the files, later the files and a zip of about their size.
const COPIES: usize = 2;
/// How long a read waits for memory that others hold.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);

/// The ConfigMaps of a version, without an owner.
pub(super) fn config_maps(namespace: &str, skill: &str, version: &Version, files: &Files) -> Vec<ConfigMap> {
    let reference = SkillRef {
        namespace: namespace.to_owned(),
        name: skill.to_owned(),
    };
    let base = config_map_name(skill, version);
    let mut made = artifact::build(&reference, files, &SkillOverrides::default()).shards;
    for (shard, config_map) in made.iter_mut().enumerate() {
        config_map.metadata.name = Some(shard_name(&base, shard));
        // Labels of the controller would make them revisions of the skill, which it prunes.
        config_map.metadata.labels = Some(BTreeMap::from([(LABEL_UPLOAD.to_owned(), skill.to_owned())]));
    }
    made
}

/// How the registry writes.
pub(super) fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER_REGISTRY.to_owned()),
        ..PostParams::default()
    }
}

/// ConfigMaps of uploads in one namespace.
#[derive(Clone)]
pub(super) struct Contents {
    api: Api<ConfigMap>,
    namespace: String,
}

impl Contents {
    pub(super) fn of(client: &Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    fn what(&self, verb: &str, name: &str) -> String {
        format!("{verb} ConfigMap {}/{name}", self.namespace)
    }

    /// Makes them; with an owner if the skill is there already.
    pub(super) async fn create(&self, made: &[ConfigMap], main: Option<&Skill>) -> Result<(), CallError> {
        for config_map in made {
            let mut config_map = config_map.clone();
            config_map.metadata.owner_references = main.map(|main| vec![owner(main)]);
            let what = || self.what("create", &config_map.name_any());
            match call(what, self.api.create(&post(), &config_map)).await {
                // No other upload has its name: it is there by a call whose answer was lost, and which was repeated.
                Err(error) if !is_conflict(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the skill their owner, so that they go with it.
    pub(super) async fn give_to(&self, names: impl Iterator<Item = String>, main: &Skill) -> Result<(), CallError> {
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner(main)]}}));
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER_REGISTRY.to_owned()),
            ..PatchParams::default()
        };
        let mut failed = FirstFailure::default();
        for name in names {
            let given = self.api.patch_metadata(&name, &params, &patch);
            failed.note(call(|| self.what("patch", &name), given).await);
        }
        failed.done()
    }

    /// Deletes them. One that is gone is as good.
    pub(super) async fn delete(&self, names: impl Iterator<Item = String>) -> Result<(), CallError> {
        let mut failed = FirstFailure::default();
        for name in names {
            let params = DeleteParams::background();
            let deleted = self.api.delete(&name, &params);
            match call(|| self.what("delete", &name), deleted).await {
                Err(error) if is_missing(&error) => {}
                done => _ = failed.note(done),
            }
        }
        failed.done()
    }

    /// Reads the files of a version, and compares them with its digest; with them comes the memory that they take. Whoever may edit the
    /// Skill says how many bytes they have, so what is read counts: what is more than was said is refused as it comes, and nothing is
    /// asked for without memory for the largest answer.
    pub(super) async fn read(
        &self,
        names: Vec<String>,
        version: &Version,
        memory: &MemoryBudget,
    ) -> Result<(Files, MemoryShare), StoreError> {
        let said = usize::try_from(version.bytes)
            .unwrap_or(usize::MAX)
            .min(MAX_FOLDER_BYTES);
        // The first part waits for others that end, so that a slow API server refuses no reads of small skills at once.
        let first = (COPIES * said).max(CONFIG_MAP_MAX_BYTES);
        let mut share = memory.take(first, MEMORY_PATIENCE).await.map_err(no_memory)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for name in &names {
            share
                .grow_to(COPIES * bytes + CONFIG_MAP_MAX_BYTES)
                .map_err(no_memory)?;
            match call(|| self.what("get", name), self.api.get(name)).await {
                Ok(config_map) => {
                    bytes += bytes_of(&config_map);
                    if bytes > most_bytes_of(said) {
                        return Err(StoreError::Failed(format!(
                            "ConfigMaps {} hold more than the {} bytes that were uploaded, and their index; upload the skill again",
                            names.join(", "),
                            version.bytes
                        )));
                    }
                    found.push(config_map);
                }
                // Deleted since the entry was read.
                Err(error) if is_missing(&error) => return Err(StoreError::NotFound),
                Err(error) => return Err(store_error(&error)),
            }
        }
        share.grow_to(COPIES * bytes).map_err(no_memory)?;
        // The share goes with the work, which nobody can cancel.
        let read = tokio::task::spawn_blocking(move || (artifact::read(&found), share)).await;
        let (content, mut share) = read.map_err(|error| StoreError::Failed(error.to_string()))?;
        let content = content.map_err(|error| StoreError::Failed(error.to_string()))?;
        if content.digest != version.digest {
            return Err(StoreError::Failed(format!(
                "ConfigMaps {} hold the digest {}, and {} was uploaded",
                names.join(", "),
                content.digest,
                version.digest
            )));
        }
        let files: usize = content.files.values().map(|file| file.bytes.len()).sum();
        share.shrink_to(COPIES * files);
        Ok((content.files, share))
    }
}

fn no_memory(_: OverBudget) -> StoreError {
    StoreError::Unavailable("too much content of skills is being read at this moment; try again".to_owned())
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillFile;

    use super::*;
    use crate::registry::objects::tests::uploaded;

    #[test]
    fn the_config_maps_of_a_version_have_the_names_of_its_entry_and_no_label_of_the_controller() {
        let mut uploaded = uploaded("draw", &[1], Some(1));
        let file = |text: String| SkillFile {
            bytes: text.into_bytes().into(),
            executable: false,
        };
        let files = Files::from([
            (
                "SKILL.md".to_owned(),
                file("---\nname: draw\ndescription: d\n---\n".to_owned()),
            ),
            ("data.txt".to_owned(), file("x".repeat(2 * artifact::SHARD_MAX_BYTES))),
        ]);
        let version = uploaded.entry.versions[0].clone();
        let made = config_maps("team", "draw", &version, &files);
        assert!(made.len() > 1);
        uploaded.shards.insert(1, made.len());
        let names: Vec<String> = made.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(names, uploaded.config_maps(&version));
        for config_map in &made {
            assert_eq!(config_map.immutable, Some(true));
            let labels = config_map.labels();
            assert_eq!((labels.len(), labels[LABEL_UPLOAD].as_str()), (1, "draw"));
        }
        assert_eq!(artifact::read(&made).unwrap().files, files);
    }
}
