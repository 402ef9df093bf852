//! The access of a caller at a runtime.

use std::sync::Arc;

use knack_api::SkillRuntime;
use knack_hub_api::{HubRefusal, RefusalCode, RuntimeName};
use knack_vocabulary::{VERB_USE, VERB_USE_ALL, VERB_USE_FOR};
use kube::Client;

use crate::access_review::AccessAction;
use crate::account_auth::{AccessReviewer, ServiceAccountCaller};
use crate::cluster_reader::watch::Shared;
use crate::hub::start::starting;

/// A caller who may use a runtime.
#[derive(Debug, Clone)]
pub struct GrantedCaller {
    /// The runtime as it is now.
    pub runtime: Arc<SkillRuntime>,
    /// The runtime's name.
    pub name: RuntimeName,
    /// The namespace whose skills the caller sees; `None`: all of them.
    pub sees: Option<String>,
}

/// Decides.
pub struct Access {
    rights: AccessReviewer,
    shared: Arc<Shared>,
    default_runtime: Option<RuntimeName>,
    /// Watches per kind, whose first lists must be complete before anything is decided.
    lists: usize,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Rights from the cluster state and from the API server; `lists` = watches per kind.
    pub fn new(client: Client, shared: Arc<Shared>, default_runtime: Option<RuntimeName>, lists: usize) -> Self {
        Self {
            rights: AccessReviewer::new(client),
            shared,
            default_runtime,
            lists,
        }
    }

    /// Whether `caller` may use `name`.
    ///
    /// Errors: [`RefusalCode::Forbidden`], with the same text for a runtime that does not exist, so that answers do not
    /// reveal names; [`RefusalCode::Unavailable`] if the API server does not answer, or this replica has not read its
    /// first lists.
    pub async fn check(&self, caller: &ServiceAccountCaller, name: &RuntimeName) -> Result<GrantedCaller, HubRefusal> {
        let (runtime, listed, is_complete) = self.shared.read(|cluster_state| {
            let runtime = cluster_state.runtime(name).cloned();
            let labels = cluster_state.namespaces.get(&caller.namespace);
            let listed = runtime
                .as_deref()
                .is_some_and(|runtime| runtime.names_callers_of(&caller.namespace, labels));
            (runtime, listed, cluster_state.waiting_for(self.lists).is_none())
        });
        // A replica that has just started has no data yet, which is no reason to refuse.
        if !is_complete {
            return Err(starting());
        }
        let Some(runtime) = runtime else {
            return Err(forbidden(caller, name));
        };
        if !listed && !self.may(caller, name, VERB_USE).await? {
            return Err(forbidden(caller, name));
        }
        let granted = |sees| GrantedCaller {
            runtime,
            name: name.clone(),
            sees,
        };
        // At other runtimes than the cluster default, an allowed caller sees all of it.
        if self.default_runtime.as_ref() != Some(name) {
            return Ok(granted(None));
        }
        let sees_all = self.may(caller, name, VERB_USE_ALL).await?;
        let acting_for = caller.acting_for.as_ref().filter(|client| **client != caller.namespace);
        match acting_for {
            // A caller that sees everything sees the skills of each namespace.
            Some(client) if sees_all || self.may(caller, name, VERB_USE_FOR).await? => {
                Ok(granted(Some(client.clone())))
            }
            Some(client) => Err(not_for_others(caller, name, client)),
            // It asks for its own namespace by name: it gets no more than that, even if it may see more.
            None => Ok(granted(
                (!sees_all || caller.acting_for.is_some()).then(|| caller.namespace.clone()),
            )),
        }
    }

    /// Whether the caller is a gateway that serves clients, and so may name the client's namespace.
    pub async fn asks_for_others(&self, caller: &ServiceAccountCaller, name: &RuntimeName) -> Result<bool, HubRefusal> {
        Ok(self.may(caller, name, VERB_USE_ALL).await? || self.may(caller, name, VERB_USE_FOR).await?)
    }

    async fn may(
        &self,
        caller: &ServiceAccountCaller,
        name: &RuntimeName,
        verb: &'static str,
    ) -> Result<bool, HubRefusal> {
        self.rights.may(caller, &AccessAction::at_runtime(verb, name)).await
    }
}

fn forbidden(caller: &ServiceAccountCaller, name: &RuntimeName) -> HubRefusal {
    HubRefusal::new(
        RefusalCode::Forbidden,
        format!(
            "ServiceAccount {} may not use SkillRuntime {name}, or it does not exist; an administrator can allow its namespace \
             (spec.allowedCallers) or grant the verb use on skillruntimes/{}",
            caller.name(),
            name.name
        ),
    )
}

fn not_for_others(caller: &ServiceAccountCaller, name: &RuntimeName, client: &str) -> HubRefusal {
    HubRefusal::new(
        RefusalCode::Forbidden,
        format!(
            "ServiceAccount {} may not ask for callers of namespace {client} at SkillRuntime {name}; an administrator can \
             grant it the verb use-for on skillruntimes/{}",
            caller.name(),
            name.name
        ),
    )
}
