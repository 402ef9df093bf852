//! The catalog that skills of a cluster are installed from: who may cause a fetch, and how often.
//!
//! What is fetched is checked and kept like an upload: by the rights of the caller, in the same bounds.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::{HubRefusal, RefusalCode};
use knack_memory::{MemoryBudget, MemoryShare};
use knack_registry::{ApiCall, Catalogs, OmniRoute, Owner};
use knack_serving::sources::{Pace, SourcePermit, Sources};

use super::caller_store::CallerStore;
use super::refusal::too_many;
use crate::account_auth::ServiceAccountCaller;

/// Searches and installs of the ServiceAccounts of one namespace: 60 a minute, 30 of them in a row, 4 at once. The catalog counts
/// them as those of this registry.
const FETCHES: Pace = Pace {
    at_once: 4,
    burst: 30,
    refill: Duration::from_secs(1),
};
/// What a fetched text costs: the bytes, the text, and what is made of it.
const COPIES: usize = 4;
/// How long a fetch waits for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// The catalogs of this registry.
#[derive(Debug)]
pub(super) struct ClusterCatalogs {
    pub(super) catalogs: Catalogs,
    fetches: Arc<Sources>,
    /// Where what is fetched takes its memory.
    reading: MemoryBudget,
}

/// The right to one fetch, given back when dropped.
#[derive(Debug)]
pub(super) struct Fetch {
    _permit: SourcePermit,
    _memory: MemoryShare,
}

impl ClusterCatalogs {
    pub(super) fn new(catalogs: Catalogs, reading: MemoryBudget) -> Self {
        let fetches = Arc::new(Sources::new(FETCHES));
        Self {
            catalogs,
            fetches,
            reading,
        }
    }

    /// The right to what a call fetches; `None`: it is none of a catalog's. Errors: the caller could install nothing, or too
    /// much is fetched at this time.
    pub(super) async fn admit(
        &self,
        call: &ApiCall,
        store: &CallerStore,
        owner: &Owner,
        caller: &ServiceAccountCaller,
    ) -> Result<Option<Fetch>, HubRefusal> {
        let active = self.catalogs.active;
        let bytes = match call {
            ApiCall::OmniRoute(OmniRoute::Search(_)) => active.list_max_bytes(),
            ApiCall::OmniRoute(OmniRoute::InstallFrom(_)) => active.fetch_max_bytes(),
            _ => return Ok(None),
        };
        store.demand_install(owner).await?;
        let permit = self.fetches.take(&caller.namespace, tokio::time::Instant::now());
        let permit = permit.ok_or_else(|| {
            too_many(format!(
                "ServiceAccounts of namespace {} send too many requests to the catalog: the limit is {} at once and {} per second",
                caller.namespace,
                FETCHES.at_once,
                FETCHES.per_second()
            ))
        })?;
        let memory = self.reading.take(COPIES * bytes, PATIENCE).await;
        let memory = memory.map_err(|_| {
            let text = "too much skill content is being read at this moment; try again";
            HubRefusal::new(RefusalCode::Unavailable, text).retry_after(1)
        })?;
        Ok(Some(Fetch {
            _permit: permit,
            _memory: memory,
        }))
    }
}
