//! An artifact to ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Resource as _, ResourceExt as _};

use super::super::conditions::{State, Verdict};
use super::super::context::Context;
use super::super::error::ControllerError;
use super::super::reason::Reason;
use super::super::world::is_controlled_by;
use crate::api::Skill;
use crate::api::vocabulary::FIELD_MANAGER;
use crate::artifact::Artifact;

/// Why an artifact is not delivered.
pub(super) enum Undelivered {
    /// The object's conditions tell it.
    Verdict(Verdict),
    /// The API server's fault.
    Api(ControllerError),
}

/// Creates the ConfigMaps that are not there yet. They are immutable and named by their content, so one that is there and
/// ours is right; one that is there and not ours is left alone.
///
/// Create instead of apply: of two writers one must lose, and an apply would adopt what another one just made.
pub(super) async fn deliver(context: &Context, skill: &Skill, artifact: Artifact) -> Result<Artifact, Undelivered> {
    let namespace = skill.namespace().unwrap_or_default();
    let uid = skill.uid().unwrap_or_default();
    let artifact = artifact.owned_by(&owner(skill));
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for shard in &artifact.shards {
        let name = shard.name_any();
        let known = context.world.config_map(&namespace, &name);
        if known.is_some_and(|known| is_controlled_by(&known.metadata, &uid)) {
            continue;
        }
        let what = || format!("create ConfigMap {namespace}/{name}");
        match context.call(what, api.create(&params, shard)).await {
            Ok(_) => context.metrics.wrote("ConfigMap"),
            Err(error) if error.status() == Some(409) => ours_after_all(context, &api, &name, &uid).await?,
            Err(error) => return Err(Undelivered::Api(error)),
        }
    }
    Ok(artifact)
}

/// Somebody was faster: another run of ours, whose ConfigMap is the same, or somebody else.
async fn ours_after_all(context: &Context, api: &Api<ConfigMap>, name: &str, uid: &str) -> Result<(), Undelivered> {
    let what = || format!("get ConfigMap {name}");
    let found = context
        .call(what, api.get_metadata_opt(name))
        .await
        .map_err(Undelivered::Api)?;
    match found {
        Some(found) if is_controlled_by(&found.metadata, uid) => Ok(()),
        Some(_) => Err(Undelivered::Verdict(Verdict::new(
            State::Stalled,
            Reason::NameConflict,
            format!(
                "ConfigMap {name} exists and does not belong to this skill; it is left alone. Delete or rename it, then annotate the skill with knack.dev/requestedAt"
            ),
        ))),
        None => Err(Undelivered::Api(ControllerError::Stopped(format!(
            "ConfigMap {name} came and went; trying again"
        )))),
    }
}

/// Shown below the skill by GitOps tools, and collected with it. No `blockOwnerDeletion`: it asks for a right on finalizers.
fn owner(skill: &Skill) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: None,
        ..skill.controller_owner_ref(&()).unwrap_or_default()
    }
}
