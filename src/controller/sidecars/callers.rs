//! Whether the hub takes the calls of a sidecar. It decides as the hub does: by `allowedCallers` of the SkillRuntime, then by RBAC.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use knack_hub_api::{RuntimeName, ServiceAccountName};
use knack_vocabulary::VERB_USE;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;
use tracing::warn;

use crate::access_review::{AccessAction, review, service_account};
use crate::controller::cluster_state::WatchedRuntime;
use crate::controller::context::Context;
use crate::selection::NamespaceLabels;

/// Questions to the API server in one check: one for each ServiceAccount that no SkillRuntime names. The next check, in
/// a minute, asks for more.
const ASKED_PER_CHECK: usize = 50;
/// Age at which an answer is asked for again, at the end of a check: what is granted by RBAC is seen at the check after
/// it, within 5 minutes. With more ServiceAccounts than are asked about in that time each answer is kept until it is
/// asked for again.
const ANSWER_FOR: Duration = Duration::from_mins(4);

/// A ServiceAccount at a SkillRuntime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Caller {
    account: ServiceAccountName,
    runtime: RuntimeName,
}

/// The API server's answers about ServiceAccounts that a SkillRuntime does not name: of those of the last check, so
/// there are as many as its pods have at most.
#[derive(Debug, Default)]
pub(super) struct Callers {
    answers: HashMap<Caller, (Instant, bool)>,
    /// The callers that the current check has found so far.
    seen: HashSet<Caller>,
}

impl Callers {
    /// The last answer, however old it is. A check asks for all that it sees.
    fn known(&mut self, caller: &Caller) -> Option<bool> {
        self.seen.insert(caller.clone());
        self.answers.get(caller).map(|(_, may)| *may)
    }

    fn note(&mut self, caller: Caller, may: bool) {
        self.answers.insert(caller, (Instant::now(), may));
    }

    /// Forgets those that the check has not seen, and says whose answers are due, the oldest first.
    fn due(&mut self, most: usize) -> Vec<Caller> {
        let seen = std::mem::take(&mut self.seen);
        self.answers.retain(|caller, _| seen.contains(caller));
        let old = self.answers.iter().filter(|(_, (at, _))| at.elapsed() >= ANSWER_FOR);
        let mut due: Vec<_> = old.map(|(caller, (at, _))| (*at, caller.clone())).collect();
        due.sort_unstable();
        due.into_iter().take(most).map(|(_, caller)| caller).collect()
    }
}

/// Why the hub takes no calls of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallerRefusal {
    /// The SkillRuntime does not name it, and RBAC does not let it use it.
    NotAllowed,
    /// There is no such SkillRuntime.
    NoRuntime,
}

/// Judges the sidecars of one check.
pub(super) struct Judge<'a> {
    context: &'a Context,
    callers: &'a mut Callers,
    runtimes: BTreeMap<RuntimeName, Arc<WatchedRuntime>>,
    labels: Arc<NamespaceLabels>,
    left: usize,
}

impl<'a> Judge<'a> {
    /// For one check, with what is known by now.
    pub(super) fn new(context: &'a Context, callers: &'a mut Callers) -> Self {
        callers.seen.clear();
        let named = |one: &Arc<WatchedRuntime>| {
            let name = RuntimeName::new(one.namespace().unwrap_or_default(), one.name_any());
            (name, Arc::clone(one))
        };
        Self {
            context,
            callers,
            runtimes: context.cluster_state.runtimes().iter().map(named).collect(),
            labels: context.cluster_state.namespace_labels(),
            left: ASKED_PER_CHECK,
        }
    }

    /// Why the hub refuses a ServiceAccount at a SkillRuntime. Only what is certain is a refusal: not one at a SkillRuntime of
    /// a namespace that this controller does not manage, and none that the API server was not asked about yet.
    pub(super) async fn refuses(&mut self, account: &ServiceAccountName, name: &RuntimeName) -> Option<CallerRefusal> {
        let Some(Ok(runtime)) = self.runtimes.get(name).map(|one| &one.0) else {
            let is_seen = self.context.settings.manages(&name.namespace);
            let is_there = self.context.cluster_state.has_runtime(&name.namespace, &name.name);
            return (is_seen && !is_there).then_some(CallerRefusal::NoRuntime);
        };
        let namespace = &account.namespace;
        if runtime.names_callers_of(namespace, self.labels.get(namespace)) {
            return None;
        }
        let may = self.may(account, name).await;
        (!may).then_some(CallerRefusal::NotAllowed)
    }

    /// Ends a check that has seen all pods: asks again for the oldest answers, if it has not asked too much already.
    pub(super) async fn end(mut self) {
        for caller in self.callers.due(self.left) {
            if self.left == 0 {
                return;
            }
            self.ask(caller).await;
        }
    }

    /// Whether RBAC lets a ServiceAccount use a SkillRuntime, or is not known not to.
    async fn may(&mut self, account: &ServiceAccountName, name: &RuntimeName) -> bool {
        let caller = Caller {
            account: account.clone(),
            runtime: name.clone(),
        };
        if let Some(may) = self.callers.known(&caller) {
            return may;
        }
        self.left == 0 || self.ask(caller).await
    }

    /// Asks the API server. Without an answer it is not asked any more in this check.
    async fn ask(&mut self, caller: Caller) -> bool {
        self.left -= 1;
        let Caller { account, runtime } = &caller;
        let asked = review(service_account(account), &AccessAction::at_runtime(VERB_USE, runtime));
        let api: Api<SubjectAccessReview> = Api::all(self.context.client.clone());
        let what = || format!("ask whether ServiceAccount {account} may use SkillRuntime {runtime}");
        match self
            .context
            .call(what, api.create(&PostParams::default(), &asked))
            .await
        {
            Ok(answer) => {
                let may = answer.status.is_some_and(|status| status.allowed);
                self.callers.note(caller, may);
                may
            }
            Err(error) => {
                warn!(%error, "could not determine which sidecars the hub refuses; retrying");
                self.left = 0;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One check of `all`, as [`Judge`] does it; those that were asked about.
    fn check(callers: &mut Callers, all: &[Caller]) -> Vec<Caller> {
        let mut asked = Vec::new();
        for caller in all {
            if callers.known(caller).is_none() && asked.len() < ASKED_PER_CHECK {
                callers.note(caller.clone(), false);
                asked.push(caller.clone());
            }
        }
        for caller in callers.due(ASKED_PER_CHECK - asked.len()) {
            callers.note(caller.clone(), false);
            asked.push(caller);
        }
        asked
    }

    fn caller(number: usize) -> Caller {
        Caller {
            account: ServiceAccountName::new("team", format!("account-{number:03}")),
            runtime: RuntimeName::new("home", "default"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_more_callers_than_are_asked_about_in_five_checks_is_asked_about_again_and_again() {
        let all: Vec<Caller> = (0..300).map(caller).collect();
        let (mut callers, mut times) = (Callers::default(), HashMap::<Caller, usize>::new());
        for number in 0..12 {
            let asked = check(&mut callers, &all);
            assert_eq!(asked.len(), ASKED_PER_CHECK, "check {number}");
            for caller in asked {
                *times.entry(caller).or_default() += 1;
            }
            let refused = all.iter().filter(|one| callers.answers.contains_key(*one)).count();
            assert_eq!(
                refused,
                all.len().min((number + 1) * ASKED_PER_CHECK),
                "an answer stands until the next one"
            );
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        assert!(
            all.iter().all(|one| times.get(one) == Some(&2)),
            "each once in six checks"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_asked_for_again_when_it_is_old_and_forgotten_with_its_pods() {
        let all: Vec<Caller> = (0..3).map(caller).collect();
        let mut callers = Callers::default();
        assert_eq!(check(&mut callers, &all), all);
        for _ in 0..3 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(check(&mut callers, &all).is_empty());
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        let mut again = check(&mut callers, &all[..2]);
        again.sort();
        assert_eq!(again, all[..2]);
        assert!(!callers.answers.contains_key(&all[2]));
    }
}
