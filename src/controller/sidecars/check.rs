//! Lists the pods that ask, and judges them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use knack_hub_api::{RuntimeName, ServiceAccountName};
use knack_injection::names::VARIABLE_RUNTIME;
use knack_vocabulary::{CONFIG_MAP_CA, CONFIG_MAP_SIDECAR, ENABLED, LABEL_INJECT};
use kube::api::ListParams;
use kube::{Api, Resource as _, ResourceExt as _};

use super::callers::{CallerRefusal, Callers, Judge};
use super::count::{ALIVE, InjectionState, Tally, injection_state, is_reached, runtime_of};
use super::lists::{PAGE, namespaces_enabled, next_page};
use super::workloads::{PodInBrief, stale_image, workload_of};
use crate::controller::context::Context;
use crate::controller::error::ControllerError;

/// Most pods and workloads that are remembered as reported, the worst before the others; beyond it no Event is written.
const REPORTED_MAX: usize = 1_000;

/// The result of one check.
#[derive(Debug, Default)]
pub(super) struct SidecarFindings {
    /// The pods that ask, by the SkillRuntime of their sidecar; `None`: what names one cannot be read.
    pub(super) by_runtime: BTreeMap<Option<RuntimeName>, Tally>,
    /// Pods that get an Event, the worst first.
    pub(super) reported: BTreeMap<ReportKey, ReportedPod>,
}

/// How a pod fares, and what is remembered of it: its uid, or its workload where all pods of one fare alike.
pub(super) type ReportKey = (InjectionState, String);

/// A pod that gets an Event.
#[derive(Debug)]
pub(super) struct ReportedPod {
    pub(super) pod: ObjectReference,
    pub(super) why: String,
    /// What to do about it, for an Event.
    pub(super) remedy: &'static str,
}

/// How a pod fares, why, and what helps.
struct Judgement(InjectionState, String, &'static str);

/// For a pod that has no sidecar: the reason says what helps.
const NO_REMEDY: &str = "";
const ALLOW: &str = "an administrator can add the namespace's labels to its spec.allowedCallers, or grant the verb use";
const NAME_ANOTHER: &str = "create it, or name another one (knack.dev/runtime on the pod, KNACK_RUNTIME in the ConfigMap \
     knack-sidecar of the namespace)";
const NAME_ONE: &str = "correct it, and restart the pod";
const CORRECT: &str = "correct the pod template, and restart the workload";
const RESTART: &str = "a restart of the workload gives it that";

/// One check under way.
struct SidecarCheck<'a> {
    context: &'a Context,
    /// The SkillRuntime of pods that name none.
    default: &'a RuntimeName,
    judge: Judge<'a>,
    /// The image that the settings of a namespace's sidecars name.
    of_namespaces: BTreeMap<String, Option<String>>,
    /// The namespaces of sidecars that the hub accepts: they need its authorities.
    accepted: BTreeSet<String>,
    found: SidecarFindings,
}

/// Checks the pods of all namespaces.
///
/// Errors: the API server could not be asked for them.
pub(super) async fn observe(
    context: &Context,
    default: &RuntimeName,
    callers: &mut Callers,
) -> Result<SidecarFindings, ControllerError> {
    let own = context.settings.namespace.as_str();
    let asking = namespaces_enabled(context, LABEL_INJECT);
    let mut check = SidecarCheck {
        context,
        default,
        judge: Judge::new(context, callers),
        of_namespaces: BTreeMap::new(),
        accepted: BTreeSet::new(),
        found: SidecarFindings::default(),
    };
    for name in &asking {
        let api = Api::namespaced(context.client.clone(), name);
        check.pods(&api, ListParams::default(), |_| true).await?;
    }
    // Pods that ask by themselves, where the namespace does not.
    let labelled = ListParams::default().labels(&format!("{LABEL_INJECT}={ENABLED}"));
    let elsewhere = |namespace: &str| !asking.contains(namespace) && is_reached(namespace, own);
    let managed = context.settings.namespaces();
    if managed.is_empty() {
        let api = Api::all(context.client.clone());
        check.pods(&api, labelled, elsewhere).await?;
    } else {
        for name in managed {
            let api = Api::namespaced(context.client.clone(), name);
            check.pods(&api, labelled.clone(), elsewhere).await?;
        }
    }
    check.judge.end().await;
    context.trust.ask(check.accepted);
    Ok(check.found)
}

impl SidecarCheck<'_> {
    /// Counts the pods of a list, page by page. They come whole: no metadata says which image their sidecar has.
    async fn pods(
        &mut self,
        api: &Api<PodInBrief>,
        params: ListParams,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), ControllerError> {
        let namespace_asks = params.label_selector.is_none();
        let mut params = params.fields(ALIVE).limit(PAGE);
        loop {
            for pod in next_page(self.context, || "list pods".to_owned(), api, &mut params).await? {
                if wanted(&pod.namespace().unwrap_or_default())
                    && let Some((state, why)) = injection_state(&pod.metadata, pod.has_sidecar(), namespace_asks)
                {
                    self.count(&pod, state, why).await?;
                }
            }
            if params.continue_token.is_none() {
                return Ok(());
            }
        }
    }

    /// Counts a pod that asks, of which its metadata says this.
    async fn count(&mut self, pod: &PodInBrief, state: InjectionState, why: String) -> Result<(), ControllerError> {
        let namespace = pod.namespace().unwrap_or_default();
        let runtime = self.runtime(&namespace, pod).await?;
        let Judgement(state, why, remedy) = self.judged(&namespace, pod, runtime.as_ref(), (state, why)).await;
        let tally = self.found.by_runtime.entry(runtime).or_default();
        tally.add(&format!("{namespace}/{}", pod.name_any()), state, &why);
        if let Some(key) = report_key(pod, state) {
            let reported = || ReportedPod {
                pod: pod.object_ref(&()),
                why,
                remedy,
            };
            self.found.reported.entry(key).or_insert_with(reported);
            if self.found.reported.len() > REPORTED_MAX {
                self.found.reported.pop_last();
            }
        }
        Ok(())
    }

    /// How a pod fares, with what its metadata does not say.
    async fn judged(
        &mut self,
        namespace: &str,
        pod: &PodInBrief,
        runtime: Option<&RuntimeName>,
        (state, why): (InjectionState, String),
    ) -> Judgement {
        if state == InjectionState::Without {
            return Judgement(state, why, NO_REMEDY);
        }
        let Some(runtime) = runtime else {
            let why = format!("{VARIABLE_RUNTIME} of ConfigMap {CONFIG_MAP_SIDECAR} is not namespace/name");
            return Judgement(InjectionState::Refused, why, NAME_ONE);
        };
        let account = ServiceAccountName::new(namespace, pod.service_account());
        match self.judge.refuses(&account, runtime).await {
            Some(CallerRefusal::NotAllowed) => {
                let why = format!("ServiceAccount {} may not use SkillRuntime {runtime}", account.name);
                return Judgement(InjectionState::Refused, why, ALLOW);
            }
            Some(CallerRefusal::NoRuntime) => {
                let why = format!("SkillRuntime {runtime} does not exist");
                return Judgement(InjectionState::Refused, why, NAME_ANOTHER);
            }
            None => {}
        }
        self.accepted.insert(namespace.to_owned());
        let missing = self.context.trust.missing(namespace);
        if let Some(why) = missing.filter(|_| self.context.settings.trust_bundle.is_none()) {
            let why = format!("ConfigMap {CONFIG_MAP_CA} does not have its authorities: {why}");
            return Judgement(InjectionState::Untrusting, why, NO_REMEDY);
        }
        let wanted = self.context.settings.sidecar_image.as_deref();
        match wanted.and_then(|wanted| stale_image(pod, wanted)) {
            Some(image) if state == InjectionState::Injected => {
                Judgement(InjectionState::Stale, image.to_owned(), RESTART)
            }
            _ => Judgement(state, why, CORRECT),
        }
    }

    /// The SkillRuntime of a pod's sidecar; `None`: what names it cannot be read.
    async fn runtime(&mut self, namespace: &str, pod: &PodInBrief) -> Result<Option<RuntimeName>, ControllerError> {
        if !self.of_namespaces.contains_key(namespace) {
            let api: Api<ConfigMap> = Api::namespaced(self.context.client.clone(), namespace);
            let what = || format!("get ConfigMap {namespace}/{CONFIG_MAP_SIDECAR}");
            let settings = self.context.call(what, api.get_opt(CONFIG_MAP_SIDECAR)).await?;
            let named = settings.and_then(|map| map.data?.remove(VARIABLE_RUNTIME));
            self.of_namespaces.insert(namespace.to_owned(), named);
        }
        let of_namespace = self.of_namespaces.get(namespace).and_then(Option::as_deref);
        Ok(runtime_of(&pod.metadata, of_namespace, self.default))
    }
}

/// What is remembered of a pod that gets an Event; `None`: it gets none. Who makes a pod of which an API is not redirected may mean
/// it so. Pods of one workload that have the same template, or the same sidecar, are reported once, however often they
/// are replaced.
fn report_key(pod: &PodInBrief, state: InjectionState) -> Option<ReportKey> {
    let uid = || pod.uid().unwrap_or_default();
    let key = match state {
        InjectionState::Without | InjectionState::Refused | InjectionState::Untrusting => uid(),
        InjectionState::Ignored | InjectionState::Stale => workload_of(pod).map_or_else(uid, |(kind, name)| {
            format!("{}/{kind}/{name}", pod.namespace().unwrap_or_default())
        }),
        InjectionState::Partly | InjectionState::Injected => return None,
    };
    Some((state, key))
}
