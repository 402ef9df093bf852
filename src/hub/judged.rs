//! Whether the controller has judged a runtime, and so whether code may run there. Pure.
//!
//! The controller applies the fence and the admission register and reports them by the condition `Ready`. The hub runs
//! nothing before that. A generation that was seen Ready stays in use while an edit waits for the controller, also
//! while the controller is away, unless the edit removes a permission: then nothing that uses it may run from that
//! moment.

use knack_api::runtime_sandbox::{
    Enforcement, EnvGrant, EnvSource, LandlockDemand, LocalObjectRef, LogsMode, RuntimeSandbox, Toleration,
};
use knack_api::{Labels, SkillRuntime, SkillRuntimeSpec};
use knack_hub_api::RuntimeName;
use knack_vocabulary::CONDITION_READY;
use kube::ResourceExt as _;

use crate::cluster_reader::fences::Fences;
use crate::condition_value::is_true;
use crate::fence::policy_name;
use crate::jobs::PodResources;

/// The state of a runtime at the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RuntimeState {
    /// Judged as it is written: code runs by it.
    Serves,
    /// An edit waits; code runs by the spec that was judged last.
    GoesOn,
    /// No code runs.
    Stops(StoppedReason),
}

/// Why no code runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoppedReason {
    /// A clause for the caller.
    pub(super) why: String,
    /// What to do about it, one clause.
    pub(super) remedy: &'static str,
    /// Whether the runtime is switched off, so that only a person changes it. Otherwise the controller does, soon.
    pub(super) is_suspended: bool,
}

impl StoppedReason {
    /// Until the controller has judged the runtime.
    pub(super) fn for_now(why: String) -> Self {
        Self {
            why,
            remedy: "try again once it is Ready",
            is_suspended: false,
        }
    }
}

/// Decides. `served` is the spec of the last generation that this replica has seen Ready.
pub(super) fn runtime_state(
    runtime: &SkillRuntime,
    served: Option<&SkillRuntimeSpec>,
    fences: &Fences,
) -> RuntimeState {
    let name = format!(
        "SkillRuntime {}/{}",
        runtime.namespace().unwrap_or_default(),
        runtime.name_any()
    );
    if runtime.spec.is_suspended() {
        return RuntimeState::Stops(StoppedReason {
            why: format!("{name} is suspended (spec.suspend); no code runs"),
            remedy: "set spec.suspend to false",
            is_suspended: true,
        });
    }
    let stops = |why| RuntimeState::Stops(StoppedReason::for_now(why));
    let status = runtime.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|found| found.type_ == CONDITION_READY));
    // -1 is what the definition writes before the first reconcile.
    let observed = status.and_then(|status| status.observed_generation).unwrap_or(-1);
    let Some(ready) = ready.filter(|_| observed >= 0) else {
        return stops(format!("{name} was not processed by the controller yet"));
    };
    if !is_true(ready) {
        return stops(format!("{name} is not ready: {}: {}", ready.reason, ready.message));
    }
    // The controller checks once a minute, and not at all while it is away.
    if fences.is_missing(&RuntimeName::new(
        runtime.namespace().unwrap_or_default(),
        runtime.name_any(),
    )) {
        let policy = policy_name(&runtime.name_any());
        return RuntimeState::Stops(StoppedReason {
            why: format!("{name} has no fence: its NetworkPolicy {policy} is missing or open; no code runs"),
            remedy: "try again once the controller has restored the NetworkPolicy",
            is_suspended: false,
        });
    }
    if runtime.metadata.generation == Some(observed) {
        return RuntimeState::Serves;
    }
    match served.map(|served| narrows(served, &runtime.spec)) {
        Some(None) => RuntimeState::GoesOn,
        Some(Some(field)) => stops(format!(
            "{name} was edited and allows less than before ({field}); no code runs until the controller has judged it"
        )),
        None => stops(format!(
            "{name} was edited; this replica has just started and waits until the controller has judged it"
        )),
    }
}

/// The first field by which `after` allows less than `before`, among those that an executor uses for longer than one
/// request.
///
/// Callers, skills, images of skills, model-written code and the risk of tools are checked against the newest spec at every request, so
/// narrowing those needs no stop. Another image, fewer runs at once and a shorter time to live are no permission: the old ones hold
/// until the controller has judged the edit, or each update of an image would stop code for a moment.
fn narrows(before: &SkillRuntimeSpec, after: &SkillRuntimeSpec) -> Option<&'static str> {
    let (old, new) = (&before.sandbox, &after.sandbox);
    let checks = grants(before, after).into_iter().chain(isolation(old, new));
    let mut checks = checks.chain(pods(old, new));
    let narrower = checks.find(|(_, is_narrower)| *is_narrower);
    narrower.map(|(field, _)| field)
}

/// A field, and whether it allows less than before.
type Check = (&'static str, bool);

/// The values that runs are given.
fn grants(before: &SkillRuntimeSpec, after: &SkillRuntimeSpec) -> [Check; 2] {
    let keeps_grant = |grant: &EnvGrant| {
        let same = |other: &&EnvGrant| other.name == grant.name && other.value_from == grant.value_from;
        let found = after.env.iter().find(same);
        found.is_some_and(|found| grant.skills.iter().all(|skill| found.skills.contains(skill)))
    };
    [
        ("spec.env", !before.env.iter().all(keeps_grant)),
        (
            "spec.skillSelector.skills[].config",
            !config_secrets(before).all(|held| config_secrets(after).any(|kept| kept == held)),
        ),
    ]
}

/// The settings that isolate a run, and who may read its output.
fn isolation(old: &RuntimeSandbox, new: &RuntimeSandbox) -> [Check; 6] {
    [
        (
            "spec.sandbox.runtimeClassName",
            new.runtime_class_name.is_some() && new.runtime_class_name != old.runtime_class_name,
        ),
        (
            "spec.sandbox.enforcement",
            new.enforcement == Some(Enforcement::Required) && old.enforcement != Some(Enforcement::Required),
        ),
        (
            "spec.sandbox.landlock",
            new.landlock == Some(LandlockDemand::Required) && old.landlock != Some(LandlockDemand::Required),
        ),
        (
            "spec.sandbox.sharedMemory",
            old.shared_memory == Some(true) && new.shared_memory != Some(true),
        ),
        (
            "spec.sandbox.hostUsers",
            new.host_users == Some(false) && old.host_users != Some(false),
        ),
        (
            "spec.sandbox.logs",
            old.logs == Some(LogsMode::Plain) && new.logs != Some(LogsMode::Plain),
        ),
    ]
}

/// Where pods run, for how long, with what, and as whom.
fn pods(old: &RuntimeSandbox, new: &RuntimeSandbox) -> [Check; 7] {
    let keeps_toleration = |toleration: &Toleration| new.tolerations.contains(toleration);
    let longest = |sandbox: &RuntimeSandbox| {
        sandbox
            .max_timeout_seconds
            .unwrap_or(knack_vocabulary::defaults::MAX_TIMEOUT_SECONDS)
    };
    let keeps_secret = |secret: &LocalObjectRef| new.image_pull_secrets.contains(secret);
    let keeps = |old: &Labels, new: &Labels| old.iter().all(|(key, value)| new.get(key) == Some(value));
    let (old_metadata, new_metadata) = (&old.pod_metadata, &new.pod_metadata);
    [
        (
            "spec.sandbox.nodeSelector",
            !keeps(&new.node_selector, &old.node_selector),
        ),
        (
            "spec.sandbox.tolerations",
            !old.tolerations.iter().all(keeps_toleration),
        ),
        ("spec.sandbox.maxTimeoutSeconds", longest(new) < longest(old)),
        (
            "spec.sandbox.resources",
            PodResources::of(new.resources.as_ref()).offers_less_than(&PodResources::of(old.resources.as_ref())),
        ),
        (
            "spec.sandbox.imagePullSecrets",
            !old.image_pull_secrets.iter().all(keeps_secret),
        ),
        (
            "spec.sandbox.podMetadata",
            !keeps(&old_metadata.labels, &new_metadata.labels)
                || !keeps(&old_metadata.annotations, &new_metadata.annotations),
        ),
        (
            "spec.sandbox.runAsUserRange",
            new.run_as_user_range.is_some() && new.run_as_user_range != old.run_as_user_range,
        ),
    ]
}

/// The Secrets of the configuration of functions: of which skill, for which value.
fn config_secrets(spec: &SkillRuntimeSpec) -> impl Iterator<Item = (Option<&str>, &str, &str, &EnvSource)> {
    let pins = spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    pins.flat_map(|pin| {
        pin.config.iter().filter_map(|given| {
            let source = given.value_from.as_ref()?;
            Some((pin.namespace.as_deref(), pin.name.as_str(), given.name.as_str(), source))
        })
    })
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::fence::deny_all;

    /// A runtime of generation 2, with what its status says of readiness, of which generation.
    fn runtime(spec: &Value, observed: i64, ready: &str) -> SkillRuntime {
        let conditions = json!([{
            "type": "Ready", "status": ready, "reason": "NameConflict", "message": "NetworkPolicy x is not ours",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "r", "generation": 2}, "spec": spec,
            "status": {"observedGeneration": observed, "conditions": if ready.is_empty() { json!([]) } else { conditions }},
        }))
        .unwrap()
    }

    fn spec(value: &Value) -> SkillRuntimeSpec {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn code_runs_only_where_the_controller_says_so() {
        let (plain, suspended) = (json!({}), json!({"suspend": true}));
        let grant =
            json!({"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}, "skills": ["a"]}]});
        let required = json!({"sandbox": {"enforcement": "Required"}});
        let class = json!({"sandbox": {"runtimeClassName": "gvisor"}});
        let node = json!({"sandbox": {"nodeSelector": {"pool": "sandboxes"}}});
        let tolerant = json!({"sandbox": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}});
        let logs = json!({"sandbox": {"logs": "Plain"}});
        let short = json!({"sandbox": {"maxTimeoutSeconds": 5}});
        let image = json!({"sandbox": {"image": "a@sha256:1"}});
        let landlock = json!({"sandbox": {"landlock": "Required"}});
        let shared = json!({"sandbox": {"sharedMemory": true}});
        let small = json!({"sandbox": {"resources": {"limits": {"memory": "100Mi"}}}});
        let large = json!({"sandbox": {"resources": {"limits": {"memory": "1Gi"}}}});
        let device = json!({"sandbox": {"resources": {"limits": {"example.org/gpu": "1"}}}});
        let pulls = json!({"sandbox": {"imagePullSecrets": [{"name": "s"}]}});
        let labelled = json!({"sandbox": {"podMetadata": {"labels": {"team": "a"}}}});
        let users = json!({"sandbox": {"runAsUserRange": {"min": 300_000, "max": 300_100}}});
        let fewer = json!({"concurrency": {"maxRuns": 1}});
        let own_users = json!({"sandbox": {"hostUsers": false}});
        let configured = json!({"skillSelector": {"skills": [{
            "name": "a", "config": [{"name": "token", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        }]}});
        for (now, observed, ready, served, expected) in [
            (&plain, 2, "True", None, "serves"),
            (&plain, 2, "True", Some(&grant), "serves"),
            (&plain, -1, "", None, "was not processed by the controller yet"),
            (&plain, -1, "Unknown", None, "was not processed by the controller yet"),
            // The fence is missing, even if the runtime was served before.
            (&plain, 2, "False", Some(&plain), "NetworkPolicy x is not ours"),
            (&plain, 1, "False", Some(&plain), "NetworkPolicy x is not ours"),
            (&plain, 2, "Unknown", Some(&plain), "not ready"),
            (&suspended, 1, "True", Some(&plain), "suspended"),
            (&suspended, 2, "True", None, "suspended"),
            // An edit waits, or the controller is away.
            (&image, 1, "True", Some(&plain), "goes on"),
            (&grant, 1, "True", Some(&plain), "goes on"),
            (&plain, 1, "True", Some(&required), "goes on"),
            (&plain, 1, "True", None, "just started"),
            (&plain, 1, "True", Some(&grant), "spec.env"),
            (&required, 1, "True", Some(&plain), "enforcement"),
            (&landlock, 1, "True", Some(&plain), "spec.sandbox.landlock"),
            (&landlock, 1, "True", Some(&landlock), "goes on"),
            (&plain, 1, "True", Some(&landlock), "goes on"),
            (&plain, 1, "True", Some(&shared), "spec.sandbox.sharedMemory"),
            (&shared, 1, "True", Some(&plain), "goes on"),
            (&own_users, 1, "True", Some(&plain), "spec.sandbox.hostUsers"),
            (&plain, 1, "True", Some(&own_users), "goes on"),
            (&plain, 1, "True", Some(&configured), "skills[].config"),
            (&configured, 1, "True", Some(&plain), "goes on"),
            (&class, 1, "True", Some(&plain), "runtimeClassName"),
            (&node, 1, "True", Some(&plain), "nodeSelector"),
            (&plain, 1, "True", Some(&tolerant), "tolerations"),
            (&plain, 1, "True", Some(&logs), "logs"),
            (&short, 1, "True", Some(&plain), "maxTimeoutSeconds"),
            (&small, 1, "True", Some(&plain), "spec.sandbox.resources"),
            (&small, 1, "True", Some(&small), "goes on"),
            (&large, 1, "True", Some(&plain), "goes on"),
            (&plain, 1, "True", Some(&large), "spec.sandbox.resources"),
            (&plain, 1, "True", Some(&device), "spec.sandbox.resources"),
            (&device, 1, "True", Some(&plain), "goes on"),
            (&plain, 1, "True", Some(&pulls), "imagePullSecrets"),
            (&pulls, 1, "True", Some(&plain), "goes on"),
            (&plain, 1, "True", Some(&labelled), "podMetadata"),
            (&users, 1, "True", Some(&plain), "runAsUserRange"),
            (&plain, 1, "True", Some(&users), "goes on"),
            (&fewer, 1, "True", Some(&plain), "goes on"),
        ] {
            let served = served.map(spec);
            let state = match runtime_state(&runtime(now, observed, ready), served.as_ref(), &Fences::default()) {
                RuntimeState::Serves => "serves".to_owned(),
                RuntimeState::GoesOn => "goes on".to_owned(),
                RuntimeState::Stops(reason) => reason.why,
            };
            assert!(state.contains(expected), "{now} {observed} {ready} {served:?}: {state}");
        }
    }

    /// Whatever the controller said: it may be away.
    #[test]
    fn no_code_runs_behind_a_fence_that_is_gone() {
        let ready = runtime(&json!({}), 2, "True");
        let mut fences = Fences::default();
        let state = |fences: &Fences| match runtime_state(&ready, Some(&ready.spec), fences) {
            RuntimeState::Stops(reason) => format!("{}; {}", reason.why, reason.remedy),
            state => format!("{state:?}"),
        };
        assert_eq!(state(&fences), "Serves", "nothing is known of fences");
        for event in [Event::Init, Event::InitDone] {
            fences.apply("n", event);
        }
        assert_eq!(
            state(&fences),
            "SkillRuntime n/r has no fence: its NetworkPolicy knack-sandbox-r is missing or open; no code runs; try again once the controller has restored the NetworkPolicy"
        );
        fences.apply("n", Event::Apply(deny_all(&ready)));
        assert_eq!(state(&fences), "Serves");
    }
}
