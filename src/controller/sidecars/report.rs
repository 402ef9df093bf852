//! Lists the pods that ask, and tells what is wrong.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use knack_api::SkillRuntime;
use knack_hub_api::RuntimeName;
use knack_vocabulary::{CONDITION_PODS_INJECTED, CONFIG_MAP_SIDECAR, ENABLED, FIELD_MANAGER_SIDECARS, LABEL_INJECT};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::warn;

use super::super::context::Context;
use super::super::error::ControllerError;
use super::count::{ALIVE, InjectionState, Tally, injection_state, is_reached, runtime_of};
use super::restart::Restarts;
use crate::events::NOTE_MAX_CHARS;
use crate::status_write::{Target, Writer};

/// How often the pods that ask are listed. A watch would hold the metadata of all of them for a look in a minute.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Pods in one answer of the API server.
const PAGE: u32 = 500;
/// Events of one look: a delivery that is away concerns every new pod, and the condition says how many there are.
const EVENTS_AT_ONCE: usize = 20;
/// Pods that are remembered as told; beyond it no Event is written.
const TOLD_MAX: usize = 1_000;

/// What one look found.
#[derive(Debug, Default)]
struct Look {
    by_runtime: BTreeMap<RuntimeName, Tally>,
    without: Vec<(PartialObjectMeta<Pod>, String)>,
}

/// Looks until the task is ended; only the leader does. `default` is the SkillRuntime of pods that name none.
pub(in crate::controller) async fn run(context: Arc<Context>, default: RuntimeName) {
    context.world.ready().await;
    let mut told = HashSet::new();
    let restarts = context.settings.roll_stale_sidecars.clone().map(Restarts::new);
    loop {
        match look(&context, &default).await {
            Ok(found) => tell(&context, found, &mut told).await,
            Err(error) => warn!(%error, "pods without a sidecar cannot be counted; retrying"),
        }
        if let Some(restarts) = &restarts {
            restarts.look(&context).await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look(context: &Context, default: &RuntimeName) -> Result<Look, ControllerError> {
    let own = context.settings.namespace.as_str();
    let asking: BTreeSet<String> = context
        .world
        .namespaces
        .state()
        .iter()
        .filter(|one| one.labels().get(LABEL_INJECT).map(String::as_str) == Some(ENABLED))
        .map(|one| one.name_any())
        .filter(|name| context.settings.looks_after(name) && is_reached(name, own))
        .collect();
    let by_label = format!("{LABEL_INJECT}={ENABLED}");
    let managed = context.settings.namespaces();
    let mut found = Look::default();
    let mut of_namespaces = BTreeMap::new();
    for name in &asking {
        let api = Api::namespaced(context.client.clone(), name);
        pods(
            context,
            &api,
            ListParams::default(),
            default,
            &mut of_namespaces,
            &mut found,
            |_| true,
        )
        .await?;
    }
    // Pods that ask by themselves, where the namespace does not.
    let labelled = ListParams::default().labels(&by_label);
    let elsewhere = |namespace: &str| !asking.contains(namespace) && is_reached(namespace, own);
    if managed.is_empty() {
        let api = Api::all(context.client.clone());
        pods(
            context,
            &api,
            labelled,
            default,
            &mut of_namespaces,
            &mut found,
            elsewhere,
        )
        .await?;
    } else {
        for name in managed {
            let api = Api::namespaced(context.client.clone(), name);
            pods(
                context,
                &api,
                labelled.clone(),
                default,
                &mut of_namespaces,
                &mut found,
                elsewhere,
            )
            .await?;
        }
    }
    Ok(found)
}

/// Counts the pods of a list, page by page.
async fn pods(
    context: &Context,
    api: &Api<Pod>,
    params: ListParams,
    default: &RuntimeName,
    of_namespaces: &mut BTreeMap<String, Option<String>>,
    found: &mut Look,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), ControllerError> {
    let namespace_asks = params.label_selector.is_none();
    let mut params = params.fields(ALIVE).limit(PAGE);
    loop {
        let page = context
            .call(|| "list pods".to_owned(), api.list_metadata(&params))
            .await?;
        params.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        for pod in page.items {
            let namespace = pod.namespace().unwrap_or_default();
            let injection_state = if wanted(&namespace) {
                injection_state(&pod.metadata, namespace_asks)
            } else {
                None
            };
            let Some(injection_state) = injection_state else {
                continue;
            };
            if !of_namespaces.contains_key(&namespace) {
                let runtime = runtime_of_namespace(context, &namespace).await?;
                of_namespaces.insert(namespace.clone(), runtime);
            }
            let of_namespace = of_namespaces.get(&namespace).and_then(Option::as_deref);
            let runtime = runtime_of(&pod.metadata, of_namespace, default);
            let tally = found.by_runtime.entry(runtime).or_default();
            tally.add(&format!("{namespace}/{}", pod.name_any()), &injection_state);
            if let InjectionState::Without(why) = injection_state
                && found.without.len() < TOLD_MAX
            {
                found.without.push((pod, why));
            }
        }
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}

/// The SkillRuntime that the settings of a namespace's sidecars name.
async fn runtime_of_namespace(context: &Context, namespace: &str) -> Result<Option<String>, ControllerError> {
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let what = || format!("get ConfigMap {namespace}/{CONFIG_MAP_SIDECAR}");
    let settings = context.call(what, api.get_opt(CONFIG_MAP_SIDECAR)).await?;
    Ok(settings.and_then(|map| map.data?.remove(knack_injection::names::VARIABLE_RUNTIME)))
}

async fn tell(context: &Context, found: Look, told: &mut HashSet<String>) {
    let tallies = found.by_runtime.values();
    let sum = |count: fn(&Tally) -> usize| tallies.clone().map(count).sum();
    context.metrics.sidecars(
        sum(|tally| tally.injected),
        sum(|tally| tally.partly),
        sum(|tally| tally.without),
    );
    for runtime in context.world.runtimes().iter() {
        let Ok(runtime) = &runtime.0 else { continue };
        let name = RuntimeName::new(runtime.namespace().unwrap_or_default(), runtime.name_any());
        if let Err(error) = condition(context, runtime, found.by_runtime.get(&name)).await {
            warn!(%error, runtime = %name, "condition {CONDITION_PODS_INJECTED} could not be written; retrying");
        }
    }
    let present: HashSet<String> = found.without.iter().filter_map(|(pod, _)| pod.uid()).collect();
    told.retain(|uid| present.contains(uid));
    let fresh = found
        .without
        .iter()
        .filter(|(pod, _)| !told.contains(&pod.uid().unwrap_or_default()));
    let fresh: Vec<_> = fresh.take(EVENTS_AT_ONCE).collect();
    for (pod, why) in fresh {
        let event = Event {
            type_: EventType::Warning,
            reason: "NoSidecar".to_owned(),
            note: Some(
                format!("asks for the sidecar of Knack and has none: {why}")
                    .chars()
                    .take(NOTE_MAX_CHARS)
                    .collect(),
            ),
            action: "Inject".to_owned(),
            secondary: None,
        };
        let mut object = pod.object_ref(&());
        (object.api_version, object.kind) = (Some("v1".to_owned()), Some("Pod".to_owned()));
        let what = || "write an Event about a pod".to_owned();
        let written = context.call(what, context.recorder.publish(&event, &object)).await;
        match written {
            Ok(()) => drop(told.insert(pod.uid().unwrap_or_default())),
            Err(error) => warn!(%error, "an Event about a pod could not be written"),
        }
    }
}

/// Writes the condition if it differs; removes it where no pod asks any more.
async fn condition(context: &Context, runtime: &SkillRuntime, tally: Option<&Tally>) -> Result<(), ControllerError> {
    let conditions = runtime
        .status
        .as_ref()
        .map_or(&[][..], |status| status.conditions.as_slice());
    let before = conditions
        .iter()
        .find(|condition| condition.type_ == CONDITION_PODS_INJECTED);
    let after = tally.map(Tally::condition);
    let said = before.map(|before| (before.status.as_str(), before.reason.as_str(), before.message.as_str()));
    if said
        == after
            .as_ref()
            .map(|(status, reason, message)| (*status, *reason, message.as_str()))
    {
        return Ok(());
    }
    let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
    let made = after.map(|(status, reason, message)| Condition {
        type_: CONDITION_PODS_INJECTED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: runtime.metadata.generation,
        // It moves only when the status flips.
        last_transition_time: before
            .filter(|before| before.status == status)
            .map_or_else(|| Time(Timestamp::now()), |before| before.last_transition_time.clone()),
    });
    let writer = Writer {
        client: &context.client,
        manager: FIELD_MANAGER_SIDECARS,
        conditions: &[CONDITION_PODS_INJECTED],
    };
    let target = Target {
        namespace: &namespace,
        name: &name,
        uid: runtime.metadata.uid.as_deref(),
    };
    let status = json!({"conditions": made.into_iter().collect::<Vec<_>>()});
    // One that is gone has no condition.
    writer.write::<SkillRuntime>(&target, &status).await?;
    context.metrics.wrote("SkillRuntimeStatus");
    Ok(())
}
