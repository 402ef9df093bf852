//! Whether the hub takes the calls of a sidecar. It decides as the hub does: by `allowedCallers` of the SkillRuntime, then by RBAC.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use knack_hub_api::RuntimeName;
use knack_vocabulary::VERB_USE;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;
use tracing::warn;

use super::super::context::Context;
use super::super::world::WatchedRuntime;
use crate::access_review::{Deed, review};
use crate::selection::NamespaceLabels;

/// Questions to the API server in one look: one for each ServiceAccount that no SkillRuntime names. The next look, in a minute,
/// asks for more.
const ASKED_PER_LOOK: usize = 50;
/// How long an answer is used: what is granted by RBAC is seen within it. So at most 50 answers of each of five looks are kept.
const ANSWER_FOR: Duration = Duration::from_mins(5);

/// The API server's answers about ServiceAccounts, as `(namespace, name)`, that a SkillRuntime does not name.
#[derive(Debug, Default)]
pub(super) struct Callers {
    answers: HashMap<(String, String, RuntimeName), (Instant, bool)>,
}

/// Why the hub takes no calls of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The SkillRuntime does not name it, and RBAC does not let it use it.
    NotAllowed,
    /// There is no such SkillRuntime.
    NoRuntime,
}

/// Judges the sidecars of one look.
pub(super) struct Judge<'a> {
    context: &'a Context,
    callers: &'a mut Callers,
    runtimes: BTreeMap<RuntimeName, Arc<WatchedRuntime>>,
    labels: Arc<NamespaceLabels>,
    left: usize,
}

impl<'a> Judge<'a> {
    /// For one look, with what is known by now.
    pub(super) fn new(context: &'a Context, callers: &'a mut Callers) -> Self {
        callers.answers.retain(|_, (at, _)| at.elapsed() < ANSWER_FOR);
        let named = |one: &Arc<WatchedRuntime>| {
            let name = RuntimeName::new(one.namespace().unwrap_or_default(), one.name_any());
            (name, Arc::clone(one))
        };
        Self {
            context,
            callers,
            runtimes: context.world.runtimes().iter().map(named).collect(),
            labels: context.world.namespace_labels(),
            left: ASKED_PER_LOOK,
        }
    }

    /// Why the hub refuses a ServiceAccount at a SkillRuntime. Only what is certain is a refusal: not one at a SkillRuntime of
    /// a namespace that this controller does not look after, and none that the API server was not asked about yet.
    pub(super) async fn refuses(&mut self, namespace: &str, account: &str, name: &RuntimeName) -> Option<Refusal> {
        let Some(Ok(runtime)) = self.runtimes.get(name).map(|one| &one.0) else {
            let is_seen = self.context.settings.looks_after(&name.namespace);
            let is_there = self.context.world.has_runtime(&name.namespace, &name.name);
            return (is_seen && !is_there).then_some(Refusal::NoRuntime);
        };
        if runtime.names_callers_of(namespace, self.labels.get(namespace)) {
            return None;
        }
        let may = self.may(namespace, account, name).await;
        (!may).then_some(Refusal::NotAllowed)
    }

    /// Whether RBAC lets a ServiceAccount use a SkillRuntime, or is not known not to.
    async fn may(&mut self, namespace: &str, account: &str, name: &RuntimeName) -> bool {
        let key = (namespace.to_owned(), account.to_owned(), name.clone());
        if let Some((_, may)) = self.callers.answers.get(&key) {
            return *may;
        }
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        let asked = review(service_account(namespace, account), &Deed::at_runtime(VERB_USE, name));
        let api: Api<SubjectAccessReview> = Api::all(self.context.client.clone());
        let what = || format!("ask whether ServiceAccount {namespace}/{account} may use SkillRuntime {name}");
        match self
            .context
            .call(what, api.create(&PostParams::default(), &asked))
            .await
        {
            Ok(answer) => {
                let may = answer.status.is_some_and(|status| status.allowed);
                self.callers.answers.insert(key, (Instant::now(), may));
                may
            }
            Err(error) => {
                warn!(%error, "sidecars that the hub refuses cannot be determined in this look; retrying");
                self.left = 0;
                true
            }
        }
    }
}

/// A ServiceAccount as the API server knows it when it calls.
fn service_account(namespace: &str, account: &str) -> SubjectAccessReviewSpec {
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{account}")),
        groups: Some(groups.into()),
        ..SubjectAccessReviewSpec::default()
    }
}
