//! Applies the objects that guard a runtime's sandboxes, and restores them when they change.

use k8s_openapi::api::core::v1::ResourceQuota;
use knack_api::SkillRuntime;
use knack_vocabulary::{KIND_SKILL_RUNTIME, QUOTA_NAME};
use kube::{Api, ResourceExt as _};
use tracing::warn;

use super::{quota, register, status};
use crate::controller::cluster_state::{is_controlled_by, is_predecessor};
use crate::controller::conditions::{Verdict, VerdictState};
use crate::controller::context::Context;
use crate::controller::desired::{Desired, owner};
use crate::controller::error::ControllerError;
use crate::controller::reason::ConditionReason;
use crate::controller::refusal;
use crate::fence;
use crate::jobs::Defaults;
use crate::selection::Scope;

/// Attempts at the quota of a namespace in one reconcile. The quota controller of Kubernetes writes its status between the read
/// and the write here, about once for each write.
const QUOTA_ATTEMPTS: usize = 5;

/// Applies fence and quota where they are missing or differ. A verdict is returned if one cannot be applied, so that
/// the runtime cannot serve.
pub(super) async fn apply(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
) -> Result<Option<Verdict>, ControllerError> {
    let namespace = runtime.namespace().unwrap_or_default();
    // The hub runs code in these namespaces alone. Rights elsewhere, which somebody may have bound by hand, change nothing.
    if !context.settings.runtime_namespaces.contains(&namespace) {
        return Ok(Some(not_authorized(&namespace)));
    }
    let result = match ensure_network_policy(context, runtime, &namespace).await {
        Ok(None) => match ensure_quota(context, runtime, scope, &namespace).await {
            // The fence stands, so that a webhook that is away ends no code that runs behind it.
            Err(error) if refusal::is_of_unreachable_webhook(&error) => return Err(error),
            other => other,
        },
        other => other,
    };
    match result {
        Err(error) if refusal::is_for_want_of_rights(&error) => Ok(Some(not_authorized(&namespace))),
        Err(error) => refusal::verdict(&error).map(Some).ok_or(error),
        other => other,
    }
}

async fn ensure_network_policy(
    context: &Context,
    runtime: &SkillRuntime,
    namespace: &str,
) -> Result<Option<Verdict>, ControllerError> {
    let uid = runtime.uid().unwrap_or_default();
    let wanted = Desired::owned_by(context, fence::deny_all(runtime), vec![owner(runtime)]);
    let name = wanted.object().name_any();
    match wanted.found().await? {
        Some(found) if is_controlled_by(&found.metadata, &uid) && fence::is_intact(&found, wanted.object()) => {}
        Some(found)
            if !is_controlled_by(&found.metadata, &uid)
                && !is_predecessor(&found.metadata, KIND_SKILL_RUNTIME, &runtime.name_any(), &uid) =>
        {
            return Ok(Some(foreign("NetworkPolicy", &name, "this runtime")));
        }
        Some(found) => {
            // Changed from outside, or left by an earlier runtime of this name: overwritten in place, so that the
            // namespace is never without it.
            warn!(policy = %name, namespace, "the NetworkPolicy was changed; it is restored");
            wanted.replace(&found).await?;
        }
        None => {
            wanted
                .create()
                .await?
                .ok_or_else(|| came_between("NetworkPolicy", &name))?;
        }
    }
    Ok(None)
}

/// One quota for all runtimes of a namespace: it counts by PriorityClass, which they share. It carries the register.
///
/// Runtimes that are reconciled at once do this one after another, and what another client wrote meanwhile is read
/// again: a failed reconcile would be repeated only after a pause that doubles.
async fn ensure_quota(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    namespace: &str,
) -> Result<Option<Verdict>, ControllerError> {
    let lock = context.memory.quota_locks.of(namespace);
    let _locked = lock.lock().await;
    for _ in 1..QUOTA_ATTEMPTS {
        match write_quota(context, runtime, scope, namespace).await {
            Err(error) if error.status() == Some(409) => {}
            other => return other,
        }
    }
    write_quota(context, runtime, scope, namespace).await
}

async fn write_quota(
    context: &Context,
    runtime: &SkillRuntime,
    scope: &Scope<'_>,
    namespace: &str,
) -> Result<Option<Verdict>, ControllerError> {
    let watched = context.cluster_state.runtimes();
    let runtimes: Vec<&SkillRuntime> = watched
        .iter()
        .filter_map(|watched| watched.0.as_ref().ok())
        .filter(|other| other.namespace().as_deref() == Some(namespace))
        .collect();
    if !runtimes.iter().any(|other| other.uid() == runtime.uid()) {
        // This runtime is being deleted; the others apply the quota.
        return Ok(None);
    }
    let api: Api<ResourceQuota> = Api::namespaced(context.client.clone(), namespace);
    let what = || format!("get ResourceQuota {namespace}/{QUOTA_NAME}");
    let found = context.call(what, api.get_opt(QUOTA_NAME)).await?;
    if found.as_ref().is_some_and(|found| !quota::is_ours(found)) {
        return Ok(Some(foreign("ResourceQuota", QUOTA_NAME, "Knack")));
    }
    let mut defaults = Defaults::new(scope.default_image.unwrap_or_default());
    defaults.environments = scope.environments.is_some();
    let entry = status::spec_problem(runtime, scope)
        .is_none()
        .then(|| register::entry(runtime, &defaults));
    let known = found.as_ref().map(register::of).unwrap_or_default();
    let undecoded = context.cluster_state.undecoded_runtimes(namespace);
    let alive = runtimes.iter().map(|other| &other.metadata).chain(&undecoded);
    let register = register::register(&known, alive, runtime, entry);
    if register::bytes(&register) > register::REGISTER_MAX_BYTES {
        return Ok(Some(too_large(namespace, register::bytes(&register))));
    }
    let class = context.settings.priority_class.as_deref();
    let mut wanted = quota::quota(namespace, class, &runtimes, &defaults, register);
    if let Some(found) = found.as_ref().filter(|_| !undecoded.is_empty()) {
        // The total that those runtimes may use is unknown.
        quota::keep_bounds(&mut wanted, found);
    }
    let wanted = Desired::owned_by(context, wanted, quota::owners(&runtimes, &undecoded));
    let applied = match found {
        Some(found) if quota::is_intact(&found, wanted.object()) => return Ok(None),
        // The scope cannot be changed in place: another class means another quota.
        Some(found) if scope_selector(&found) != scope_selector(wanted.object()) => {
            wanted.create_instead_of(&found).await?
        }
        Some(found) => Some(wanted.replace(&found).await?),
        None => wanted.create().await?,
    };
    applied.ok_or_else(|| came_between("ResourceQuota", QUOTA_NAME))?;
    Ok(None)
}

fn scope_selector(quota: &ResourceQuota) -> Option<&k8s_openapi::api::core::v1::ScopeSelector> {
    quota.spec.as_ref()?.scope_selector.as_ref()
}

fn came_between(kind: &str, name: &str) -> ControllerError {
    ControllerError::Stopped(format!(
        "{kind} {name} was created by another client meanwhile; retrying"
    ))
}

fn foreign(kind: &str, name: &str, owner: &str) -> Verdict {
    Verdict::new(
        VerdictState::Stalled,
        ConditionReason::NameConflict,
        format!("{kind} {name} exists and does not belong to {owner}; Knack does not change it. Delete or rename it"),
    )
}

fn too_large(namespace: &str, bytes: usize) -> Verdict {
    Verdict::new(
        VerdictState::Stalled,
        ConditionReason::TooLarge,
        format!(
            "what the SkillRuntimes of namespace {namespace} allow (images, env, nodes, tolerations) takes {bytes} bytes in the annotations of ResourceQuota {QUOTA_NAME}, more than {}: shorten spec.sandbox.allowedImages, spec.sandbox.images or spec.env, or use another namespace",
            register::REGISTER_MAX_BYTES
        ),
    )
}

fn not_authorized(namespace: &str) -> Verdict {
    Verdict::new(
        VerdictState::Stalled,
        ConditionReason::HubNotAuthorized,
        format!(
            "code may not run in namespace {namespace}: it is not one of the installation's runtimeNamespaces. Append it to that list in the values of the chart's release and run helm upgrade; `--set` would replace the list and end the runs in the other namespaces"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use http::Method;
    use serde_json::{Value, json};

    use crate::controller::ControllerSettings;
    use crate::controller::fixture::{lead, settings, start};

    /// Longest wait for the first status.
    const PATIENCE: Duration = Duration::from_mins(1);
    const PAUSE: Duration = Duration::from_millis(20);

    /// What the controller wrote: the reason of the condition Ready, and the objects that guard sandboxes.
    #[derive(Debug, Default)]
    struct WrittenObjects {
        reason: Option<String>,
        guards: Vec<String>,
    }

    /// One runtime in the namespace `team`, by an API server that lets the controller write everything there.
    fn answer(written: &Mutex<WrittenObjects>, method: &Method, path: &str, body: &[u8]) -> Option<Value> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut written = written.lock().unwrap();
        let runtime = |version: &str| {
            json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "spec": {},
                "metadata": {"namespace": "team", "name": "main", "uid": "r", "resourceVersion": version, "generation": 1}})
        };
        let is_guard = path.contains("/namespaces/team/networkpolicies") || path.contains("/resourcequotas");
        match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skillruntimes") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [runtime("1")]}))
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skillruntimes/main/status") => {
                let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let ready = conditions.iter().find(|one| one["type"] == "Ready");
                written.reason = ready.and_then(|ready| Some(ready["reason"].as_str()?.to_owned()));
                Some(runtime("2"))
            }
            (&Method::GET, _) if is_guard => {
                Some(json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m"}))
            }
            (_, path) if is_guard => {
                written.guards.push(path.to_owned());
                Some(body)
            }
            (&Method::POST, path) if path.starts_with("/apis/events.k8s.io/v1/namespaces/") => Some(body),
            _ => None,
        }
    }

    /// The hub asks its list: a status that went by rights alone would say Ready while every run is refused.
    #[tokio::test]
    async fn a_runtime_outside_of_the_namespaces_where_code_runs_is_not_authorized_whatever_rights_are_there() {
        for (namespaces, expected, guards) in [
            (vec!["elsewhere".to_owned()], "HubNotAuthorized", 0),
            (vec!["elsewhere".to_owned(), "team".to_owned()], "NoSandboxImage", 2),
        ] {
            let written = Arc::new(Mutex::new(WrittenObjects::default()));
            let seen = Arc::clone(&written);
            let (address, _lease) = start(move |method, path, body| answer(&seen, method, path, body));
            let settings = ControllerSettings {
                runtime_namespaces: namespaces,
                ..settings()
            };
            let (leading, shutdown) = lead(address, settings).await;
            let begun = Instant::now();
            while written.lock().unwrap().reason.is_none() {
                assert!(begun.elapsed() < PATIENCE && !leading.is_finished(), "{written:?}");
                tokio::time::sleep(PAUSE).await;
            }
            shutdown.cancel();
            leading.await.unwrap().unwrap();
            let written = written.lock().unwrap();
            assert_eq!(written.reason.as_deref(), Some(expected), "{written:?}");
            assert_eq!(written.guards.len(), guards, "{written:?}");
        }
    }

    /// How many runtimes share the quota of one namespace: more than are reconciled at once.
    const SHARING: usize = 12;

    /// The quota as an API server has it: of two writers that read one state, one is refused.
    #[derive(Debug, Default)]
    struct StoredQuota {
        quota: Option<Value>,
        version: u64,
        conflicts: usize,
        /// Writes of the quota controller that come between a read and a write of Knack.
        by_kubernetes: usize,
        ready: BTreeSet<String>,
    }

    impl StoredQuota {
        fn answer(&mut self, method: &Method, body: Value) -> Value {
            let conflict = |text: &str| json!({"kind": "Status", "status": "Failure", "code": 409, "reason": text, "message": "m"});
            match (method, self.quota.clone()) {
                (&Method::GET, None) => {
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m"})
                }
                (&Method::GET, Some(quota)) => {
                    if self.by_kubernetes > 0 {
                        self.by_kubernetes -= 1;
                        self.store(quota.clone());
                    }
                    quota
                }
                (&Method::POST, Some(_)) => {
                    self.conflicts += 1;
                    conflict("AlreadyExists")
                }
                (&Method::POST, None) => self.store(body),
                (_, Some(quota)) if quota["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"] => {
                    self.store(body)
                }
                _ => {
                    self.conflicts += 1;
                    conflict("Conflict")
                }
            }
        }

        fn store(&mut self, mut quota: Value) -> Value {
            self.version += 1;
            quota["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.quota = Some(quota.clone());
            quota
        }
    }

    fn of_sharing(stored: &Mutex<StoredQuota>, method: &Method, path: &str, body: &[u8]) -> Option<Value> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut stored = stored.lock().unwrap();
        let runtime = |name: &str, version: &str| {
            json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
                "spec": {"sandbox": {"image": format!("r.io/a@sha256:{}", "0".repeat(64))}},
                "metadata": {"namespace": "team", "name": name, "uid": name, "resourceVersion": version, "generation": 1}})
        };
        if path.contains("/resourcequotas") {
            return Some(stored.answer(method, body));
        }
        if path.contains("/namespaces/team/networkpolicies") {
            let missing =
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "m"});
            return Some(if *method == Method::GET { missing } else { body });
        }
        if path == "/apis/knack.dev/v1alpha1/skillruntimes" && *method == Method::GET {
            let items: Vec<Value> = (0..SHARING).map(|number| runtime(&format!("r{number}"), "1")).collect();
            return Some(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
        }
        if let Some(name) = path
            .strip_prefix("/apis/knack.dev/v1alpha1/namespaces/team/skillruntimes/")
            .and_then(|rest| rest.strip_suffix("/status"))
        {
            stored.ready.insert(name.to_owned());
            return Some(runtime(name, "2"));
        }
        (*method == Method::POST && path.starts_with("/apis/events.k8s.io/v1/namespaces/")).then_some(body)
    }

    /// A conflict would end the reconcile, which is repeated after a pause that doubles: many runtimes would be without a status for
    /// minutes.
    #[tokio::test]
    async fn runtimes_of_one_namespace_take_turns_at_its_quota_and_read_again_what_kubernetes_wrote() {
        const BY_KUBERNETES: usize = 2;
        let stored = Arc::new(Mutex::new(StoredQuota {
            by_kubernetes: BY_KUBERNETES,
            ..StoredQuota::default()
        }));
        let seen = Arc::clone(&stored);
        let (address, _lease) = start(move |method, path, body| of_sharing(&seen, method, path, body));
        let settings = ControllerSettings {
            runtime_namespaces: vec!["team".to_owned()],
            ..settings()
        };
        let (leading, shutdown) = lead(address, settings).await;
        let begun = Instant::now();
        while stored.lock().unwrap().ready.len() < SHARING {
            assert!(begun.elapsed() < PATIENCE && !leading.is_finished(), "{stored:?}");
            tokio::time::sleep(PAUSE).await;
        }
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        let stored = stored.lock().unwrap();
        assert_eq!(stored.conflicts, BY_KUBERNETES, "{stored:?}");
        let annotations = stored.quota.as_ref().unwrap()["metadata"]["annotations"].as_object();
        assert_eq!(
            annotations.map(serde_json::Map::len),
            Some(SHARING),
            "the register has them all"
        );
    }
}
