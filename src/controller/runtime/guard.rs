//! Puts up what stands around a runtime's sandboxes, and keeps it standing.

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use tracing::warn;

use super::super::conditions::{State, Verdict};
use super::super::context::Context;
use super::super::error::ControllerError;
use super::super::reason::Reason;
use super::super::refusal;
use super::super::world::{is_controlled_by, is_predecessor};
use super::{fence, quota, register, status};
use crate::api::SkillRuntime;
use crate::api::vocabulary::{FIELD_MANAGER, KIND_SKILL_RUNTIME, QUOTA_NAME};
use crate::execution::job::Defaults;
use crate::selection::Scope;

/// Puts fence and quota up, or finds them up. A verdict: one cannot stand, and so the runtime cannot serve.
pub(super) async fn stand(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
) -> Result<Option<Verdict>, ControllerError> {
    let namespace = runtime.namespace().unwrap_or_default();
    let result = match stand_fence(context, runtime, &namespace).await {
        Ok(None) => stand_quota(context, runtime, scope, &namespace).await,
        other => other,
    };
    match result {
        Err(error) if refusal::is_for_want_of_rights(&error) => Ok(Some(not_authorized(&namespace))),
        Err(error) => refusal::verdict(&error).map(Some).ok_or(error),
        other => other,
    }
}

async fn stand_fence(
    context: &Context,
    runtime: &SkillRuntime,
    namespace: &str,
) -> Result<Option<Verdict>, ControllerError> {
    let uid = runtime.uid().unwrap_or_default();
    let wanted = fence::deny_all(runtime);
    let name = wanted.name_any();
    let api: Api<NetworkPolicy> = Api::namespaced(context.client.clone(), namespace);
    let what = |verb: &str| format!("{verb} NetworkPolicy {namespace}/{name}");
    match context.call(|| what("get"), api.get_opt(&name)).await? {
        Some(found) if is_controlled_by(&found.metadata, &uid) && fence::is_intact(&found, &wanted) => return Ok(None),
        Some(found)
            if !is_controlled_by(&found.metadata, &uid)
                && !is_predecessor(&found.metadata, KIND_SKILL_RUNTIME, &runtime.name_any(), &uid) =>
        {
            return Ok(Some(foreign("NetworkPolicy", &name, "this runtime")));
        }
        Some(found) => {
            // Changed by somebody, or left by an earlier runtime of this name: taken over, so that there is no moment without.
            warn!(policy = %name, namespace, "the fence was another one; it is put back");
            // A replace, since an apply would leave standing what others added.
            let mut wanted = wanted;
            wanted.metadata.resource_version = found.metadata.resource_version;
            context
                .call(|| what("replace"), api.replace(&name, &post(), &wanted))
                .await?;
        }
        None => {
            let params = PatchParams::apply(FIELD_MANAGER).force();
            context
                .call(|| what("apply"), api.patch(&name, &params, &Patch::Apply(&wanted)))
                .await?;
        }
    }
    context.metrics.wrote("NetworkPolicy");
    Ok(None)
}

/// One quota for all runtimes of a namespace: it counts by PriorityClass, which they share. It carries the register.
async fn stand_quota(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    namespace: &str,
) -> Result<Option<Verdict>, ControllerError> {
    let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), namespace);
    let what = |verb: &str| format!("{verb} ResourceQuota {namespace}/{QUOTA_NAME}");
    let found = context.call(|| what("get"), api.get_opt(QUOTA_NAME)).await?;
    let watched = context.world.runtimes();
    let runtimes: Vec<&SkillRuntime> = watched
        .iter()
        .filter_map(|watched| watched.0.as_ref().ok())
        .filter(|other| other.namespace().as_deref() == Some(namespace))
        .collect();
    if !runtimes.iter().any(|other| other.uid() == runtime.uid()) {
        // On its way out; the others look after the quota.
        return Ok(None);
    }
    if found.as_ref().is_some_and(|found| !quota::is_ours(found)) {
        return Ok(Some(foreign("ResourceQuota", QUOTA_NAME, "Knack")));
    }
    let defaults = Defaults::new(scope.default_image.unwrap_or_default());
    let entry = status::objection(runtime, scope)
        .is_none()
        .then(|| register::entry(runtime, &defaults));
    let known = found.as_ref().map(register::of).unwrap_or_default();
    let register = register::register(&known, &runtimes, runtime, entry);
    if register::bytes(&register) > register::REGISTER_MAX_BYTES {
        return Ok(Some(too_large(namespace, register::bytes(&register))));
    }
    let class = context.settings.priority_class.as_deref();
    let wanted = quota::quota(namespace, class, &runtimes, &defaults, register);
    match found {
        Some(found) if quota::is_intact(&found, &wanted) => return Ok(None),
        // The scope cannot be changed in place: another class means another quota.
        Some(found) if scope_selector(&found) != scope_selector(&wanted) => {
            context
                .call(|| what("delete"), api.delete(QUOTA_NAME, &DeleteParams::default()))
                .await?;
            context.call(|| what("create"), api.create(&post(), &wanted)).await?;
        }
        Some(found) => {
            let mut wanted = wanted;
            wanted.metadata.resource_version = found.metadata.resource_version;
            context
                .call(|| what("replace"), api.replace(QUOTA_NAME, &post(), &wanted))
                .await?;
        }
        None => {
            context.call(|| what("create"), api.create(&post(), &wanted)).await?;
        }
    }
    context.metrics.wrote("ResourceQuota");
    Ok(None)
}

fn scope_selector(quota: &ResourceQuota) -> Option<&k8s_openapi::api::core::v1::ScopeSelector> {
    quota.spec.as_ref()?.scope_selector.as_ref()
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn foreign(kind: &str, name: &str, owner: &str) -> Verdict {
    Verdict::new(
        State::Stalled,
        Reason::NameConflict,
        format!("{kind} {name} exists and does not belong to {owner}; it is left alone. Delete or rename it"),
    )
}

fn too_large(namespace: &str, bytes: usize) -> Verdict {
    Verdict::new(
        State::Stalled,
        Reason::TooLarge,
        format!(
            "what the SkillRuntimes of namespace {namespace} allow (images, env, nodes, tolerations) takes {bytes} bytes of the admission register, more than {}: shorten spec.sandbox.allowedImages or spec.env, or use another namespace",
            register::REGISTER_MAX_BYTES
        ),
    )
}

fn not_authorized(namespace: &str) -> Verdict {
    Verdict::new(
        State::Stalled,
        Reason::HubNotAuthorized,
        format!(
            "code may not run in namespace {namespace}: it is not one of the installation's runtimeNamespaces. Run: helm upgrade knack knack/knack --namespace knack-system --reuse-values --set 'runtimeNamespaces={{{namespace}}}' (with the others, if there are any)"
        ),
    )
}
