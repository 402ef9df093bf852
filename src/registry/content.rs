//! The files of a version in immutable ConfigMaps: made, read, and given to the Skill that they are of.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::{Skill, SkillOverrides};
use knack_registry::{Files, StoreError, Version};
use knack_skill::model::SkillRef;
use knack_vocabulary::{FIELD_MANAGER_REGISTRY, LABEL_UPLOAD};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::failure::{FirstFailure, is_conflict, is_missing, store_error};
use super::objects::{config_map_name, owner, shard_name};
use crate::api_call::{CallError, call};
use crate::artifact;

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

    /// Reads the files of a version, and compares them with its digest.
    pub(super) async fn read(&self, names: Vec<String>, digest: Arc<str>) -> Result<Files, StoreError> {
        let mut found = Vec::new();
        for name in &names {
            match call(|| self.what("get", name), self.api.get(name)).await {
                Ok(config_map) => found.push(config_map),
                // Deleted since the entry was read.
                Err(error) if is_missing(&error) => return Err(StoreError::NotFound),
                Err(error) => return Err(store_error(&error)),
            }
        }
        let read = tokio::task::spawn_blocking(move || artifact::read(&found)).await;
        let content = read
            .map_err(|error| StoreError::Failed(error.to_string()))?
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        if content.digest != *digest {
            return Err(StoreError::Failed(format!(
                "ConfigMaps {} hold the digest {}, and {digest} was uploaded",
                names.join(", "),
                content.digest
            )));
        }
        Ok(content.files)
    }
}

#[cfg(test)]
mod tests {
    use knack_skill::model::SkillFile;

    use super::super::objects::tests::uploaded;
    use super::*;

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
