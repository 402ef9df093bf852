//! An artifact to ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};

use super::super::conditions::{State, Verdict};
use super::super::context::Context;
use super::super::error::ControllerError;
use super::super::reason::Reason;
use super::super::refusal;
use super::super::world::{is_controlled_by, is_predecessor};
use crate::api::Skill;
use crate::api::skill_status::ConfigMapStatus;
use crate::api::vocabulary::{FIELD_MANAGER, KIND_SKILL};
use crate::artifact::{Artifact, shard_digest};

/// Why an artifact is not delivered.
pub(super) enum Undelivered {
    /// The object's conditions tell it.
    Verdict(Verdict),
    /// The API server's fault.
    Api(ControllerError),
}

impl From<ControllerError> for Undelivered {
    fn from(error: ControllerError) -> Self {
        refusal::verdict(&error).map_or(Self::Api(error), Self::Verdict)
    }
}

/// The ConfigMaps that hold an artifact.
pub(super) struct Delivered {
    pub(super) config_maps: Vec<ConfigMapStatus>,
    /// Names of those that were not as this controller makes them, and were made anew.
    pub(super) replaced: Vec<String>,
}

/// Creates the ConfigMaps that are not there yet. They are immutable, so one that this controller saw to be right is right
/// for as long as it lives; the status has its uid. Any other one of the name is compared byte by byte: whoever may delete
/// and create ConfigMaps could otherwise put a text of his own in the place of one that was reviewed.
///
/// Create instead of apply: of two writers one must lose, and an apply would adopt what another one just made.
pub(super) async fn deliver(context: &Context, skill: &Skill, artifact: Artifact) -> Result<Delivered, Undelivered> {
    let artifact = artifact.owned_by(&owner(skill));
    let namespace = skill.namespace().unwrap_or_default();
    let delivery = Delivery {
        context,
        skill,
        api: Api::namespaced(context.client.clone(), &namespace),
        namespace,
    };
    let mut delivered = Delivered {
        config_maps: Vec::new(),
        replaced: Vec::new(),
    };
    for shard in &artifact.shards {
        let (name, digest) = (shard.name_any(), shard_digest(shard));
        let known = skill.status.iter().flat_map(|status| &status.config_maps);
        let known = known
            .into_iter()
            .find(|known| known.name == name && known.digest == digest);
        if let Some(known) = known
            && is_standing(context, &delivery.namespace, known)
        {
            delivered.config_maps.push(known.clone());
            continue;
        }
        let (uid, is_replaced) = delivery.stand(shard).await?;
        if is_replaced {
            delivered.replaced.push(name.clone());
        }
        delivered.config_maps.push(ConfigMapStatus { name, digest, uid });
    }
    Ok(delivered)
}

/// Whether a ConfigMap of the status is still the one that this controller saw to be right.
pub(super) fn is_standing(context: &Context, namespace: &str, known: &ConfigMapStatus) -> bool {
    let found = context.world.config_map(namespace, &known.name);
    found.is_some_and(|found| !known.uid.is_empty() && found.metadata.uid.as_deref() == Some(known.uid.as_str()))
}

struct Delivery<'a> {
    context: &'a Context,
    skill: &'a Skill,
    api: Api<ConfigMap>,
    namespace: String,
}

impl Delivery<'_> {
    /// Makes one ConfigMap, or finds it made. Its uid, and whether another one had to go for it.
    async fn stand(&self, shard: &ConfigMap) -> Result<(String, bool), Undelivered> {
        if let Some(made) = self.create(shard).await? {
            return Ok((made, false));
        }
        let name = shard.name_any();
        let what = || format!("get ConfigMap {}/{name}", self.namespace);
        let found = self.context.call(what, self.api.get_opt(&name)).await?;
        let found = found.ok_or_else(|| came_and_went(&name))?;
        let uid = self.skill.uid().unwrap_or_default();
        if is_predecessor(&found.metadata, KIND_SKILL, &self.skill.name_any(), &uid)
            || found.metadata.deletion_timestamp.is_some()
        {
            return Err(Undelivered::Verdict(Verdict::new(
                State::Retrying,
                Reason::NameConflict,
                format!("ConfigMap {name} was left by an earlier skill of this name; waits for garbage collection"),
            )));
        }
        if !is_controlled_by(&found.metadata, &uid) {
            return Err(Undelivered::Verdict(Verdict::new(
                State::Stalled,
                Reason::NameConflict,
                format!(
                    "ConfigMap {name} exists and does not belong to this skill; it is left alone. Delete or rename it"
                ),
            )));
        }
        if is_as_made(&found, shard) {
            return Ok((found.uid().unwrap_or_default(), false));
        }
        let replaced = DeleteParams::background().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        let what = || format!("delete ConfigMap {}/{name}", self.namespace);
        match self.context.call(what, self.api.delete(&name, &replaced)).await {
            Err(error) if error.status() != Some(404) => return Err(error.into()),
            _ => self.context.metrics.wrote("ConfigMap"),
        }
        let made = self.create(shard).await?;
        Ok((made.ok_or_else(|| came_and_went(&name))?, true))
    }

    /// The uid of the new ConfigMap; `None` if there is one of its name.
    async fn create(&self, shard: &ConfigMap) -> Result<Option<String>, Undelivered> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let what = || format!("create ConfigMap {}/{}", self.namespace, shard.name_any());
        match self.context.call(what, self.api.create(&params, shard)).await {
            Ok(made) => {
                self.context.metrics.wrote("ConfigMap");
                Ok(made.uid())
            }
            Err(error) if error.status() == Some(409) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn came_and_went(name: &str) -> Undelivered {
    Undelivered::Api(ControllerError::Stopped(format!(
        "ConfigMap {name} came and went; trying again"
    )))
}

/// Whether a ConfigMap holds what ours would, with our labels and annotations among its own, and cannot be changed.
fn is_as_made(found: &ConfigMap, wanted: &ConfigMap) -> bool {
    let labels = wanted
        .labels()
        .iter()
        .all(|(key, value)| found.labels().get(key) == Some(value));
    let annotations = wanted.annotations().iter();
    let annotations = { annotations }.all(|(key, value)| found.annotations().get(key) == Some(value));
    found.immutable == Some(true) && labels && annotations && shard_digest(found) == shard_digest(wanted)
}

/// Shown below the skill by GitOps tools, and collected with it. No `blockOwnerDeletion`: it asks for a right on finalizers.
fn owner(skill: &Skill) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: None,
        ..skill.controller_owner_ref(&()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_as_made_is_taken_for_ours() {
        let map = |change: fn(&mut serde_json::Value)| -> ConfigMap {
            let mut value = json!({
                "metadata": {"name": "a-1", "labels": {"knack.dev/skill": "a"}, "annotations": {"knack.dev/shard": "0/1"}},
                "immutable": true, "data": {"f0": "text"}, "binaryData": {"f1": "AAE="},
            });
            change(&mut value);
            serde_json::from_value(value).unwrap()
        };
        let wanted = map(|_| {});
        for (name, change, expected) in [
            ("the same", (|_| {}) as fn(&mut serde_json::Value), true),
            (
                "a label more",
                |map| map["metadata"]["labels"]["other"] = json!("x"),
                true,
            ),
            ("another text", |map| map["data"]["f0"] = json!("Text"), false),
            ("a key more", |map| map["data"]["f2"] = json!(""), false),
            ("other bytes", |map| map["binaryData"]["f1"] = json!("AAI="), false),
            ("one that can be changed", |map| map["immutable"] = json!(false), false),
            ("without its label", |map| map["metadata"]["labels"] = json!({}), false),
            (
                "another shard",
                |map| map["metadata"]["annotations"]["knack.dev/shard"] = json!("1/2"),
                false,
            ),
        ] {
            assert_eq!(is_as_made(&map(change), &wanted), expected, "{name}");
        }
    }
}
