//! An artifact to ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::skill_status::ConfigMapStatus;
use knack_vocabulary::KIND_SKILL;
use kube::ResourceExt as _;

use super::judge::ValidatedSkill;
use super::outline::Outline;
use crate::artifact::shard_digest;
use crate::controller::cluster_state::{is_controlled_by, is_predecessor};
use crate::controller::conditions::{Verdict, VerdictState};
use crate::controller::context::Context;
use crate::controller::desired::Desired;
use crate::controller::error::ControllerError;
use crate::controller::reason::ConditionReason;
use crate::controller::refusal;

/// Why an artifact is not delivered.
pub(super) enum Undelivered {
    /// The object's conditions contain the reason.
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
pub(super) struct Delivery {
    pub(super) config_maps: Vec<ConfigMapStatus>,
    /// Names of those that differed from what this controller creates, and were created again.
    pub(super) replaced: Vec<String>,
}

/// Creates the ConfigMaps that do not exist yet. They are immutable, so one that this controller found correct stays
/// correct for as long as it lives; the status has its uid. Any other one of the name is compared byte by byte: a user
/// who may delete and create ConfigMaps could otherwise replace reviewed text by their own.
pub(super) async fn deliver(context: &Context, validated: &ValidatedSkill) -> Result<Delivery, Undelivered> {
    let outline = validated.outline();
    let mut delivered = Delivery {
        config_maps: Vec::new(),
        replaced: Vec::new(),
    };
    for shard in &validated.artifact().shards {
        let (name, digest) = (shard.name_any(), shard_digest(shard));
        let mut known = outline.before().config_maps.iter();
        if let Some(known) = known.find(|known| known.name == name && known.digest == digest)
            && is_delivered(context, outline.namespace(), known)
        {
            delivered.config_maps.push(known.clone());
            continue;
        }
        let desired = Desired::owned_by(context, shard.clone(), vec![outline.owner()]);
        let (uid, is_replaced) = apply(outline, &desired).await?;
        if is_replaced {
            delivered.replaced.push(name.clone());
        }
        delivered.config_maps.push(ConfigMapStatus { name, digest, uid });
    }
    Ok(delivered)
}

/// Whether a ConfigMap of the status is still the one that this controller saw to be right.
pub(super) fn is_delivered(context: &Context, namespace: &str, known: &ConfigMapStatus) -> bool {
    let found = context.cluster_state.config_map(namespace, &known.name);
    found.is_some_and(|found| !known.uid.is_empty() && found.metadata.uid.as_deref() == Some(known.uid.as_str()))
}

/// Creates one ConfigMap, or finds it created. Its uid, and whether another one had to go for it.
async fn apply(outline: &Outline, desired: &Desired<'_, ConfigMap>) -> Result<(String, bool), Undelivered> {
    if let Some(applied) = desired.create().await? {
        return Ok((applied.uid, false));
    }
    let name = desired.object().name_any();
    let found = desired.found().await?.ok_or_else(|| came_and_went(&name))?;
    let uid = outline.uid();
    if is_predecessor(&found.metadata, KIND_SKILL, outline.name(), uid) || found.metadata.deletion_timestamp.is_some() {
        return Err(Undelivered::Verdict(Verdict::new(
            VerdictState::Retrying,
            ConditionReason::NameConflict,
            format!("ConfigMap {name} was left by an earlier skill of this name; waiting for garbage collection"),
        )));
    }
    if !is_controlled_by(&found.metadata, uid) {
        return Err(Undelivered::Verdict(Verdict::new(
            VerdictState::Stalled,
            ConditionReason::NameConflict,
            format!(
                "ConfigMap {name} exists and does not belong to this skill; Knack does not change it. Delete or rename it"
            ),
        )));
    }
    if is_as_made(&found, desired.object()) {
        return Ok((found.uid().unwrap_or_default(), false));
    }
    let applied = desired.create_instead_of(&found).await?;
    Ok((applied.ok_or_else(|| came_and_went(&name))?.uid, true))
}

fn came_and_went(name: &str) -> Undelivered {
    Undelivered::Api(ControllerError::Stopped(format!(
        "ConfigMap {name} was deleted while it was read; retrying"
    )))
}

/// Whether a ConfigMap holds what it should, with Knack's labels and annotations among others, and cannot be changed.
fn is_as_made(found: &ConfigMap, wanted: &ConfigMap) -> bool {
    // Without a rest: a member that Kubernetes adds is a question here, not an oversight. The digest is over both kinds of data.
    let ConfigMap {
        metadata: _,
        immutable,
        data: _,
        binary_data: _,
    } = found;
    let labels = wanted
        .labels()
        .iter()
        .all(|(key, value)| found.labels().get(key) == Some(value));
    let annotations = wanted.annotations().iter();
    let annotations = { annotations }.all(|(key, value)| found.annotations().get(key) == Some(value));
    *immutable == Some(true) && labels && annotations && shard_digest(found) == shard_digest(wanted)
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
