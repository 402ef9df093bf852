//! The uploaded skills of a namespace for installers ([`crate::discovery_index`]): what the caller may list, in their default versions.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use knack_hub_api::Problem;
use knack_registry::index::ENTRIES_MAX;
use knack_registry::{Mode, Owner, Page, Record, Store as _, StoreError, Version};
use knack_skill::names;

use super::caller_store::CallerStore;
use super::refusal::status_of;
use crate::discovery_index::{HeldFiles, Refusal, Shelf, SiteSkill};

/// Seconds after which to ask again for what the store cannot read at this moment.
const RETRY_AFTER_SECONDS: u64 = 2;

/// The skills that a caller is offered.
pub(super) struct NamespaceShelf<'s> {
    store: &'s CallerStore,
    owner: &'s Owner,
    served: Vec<(Record, Version)>,
    shown: Vec<SiteSkill>,
}

impl<'s> NamespaceShelf<'s> {
    /// Lists them; errors: the caller may not list Skills there.
    pub(super) async fn of(store: &'s CallerStore, owner: &'s Owner) -> Result<Self, Refusal> {
        let page = Page {
            after: None,
            limit: ENTRIES_MAX,
            newest_first: false,
        };
        let listed = store.list(owner, &page).await.map_err(refused)?;
        let offered = listed.items.into_iter().filter_map(|record| {
            let version = record.served()?.clone();
            let is_offered = record.mode_of(&version) != Some(Mode::Off) && names::check(&record.name).is_ok();
            is_offered.then_some((record, version))
        });
        let mut served: Vec<(Record, Version)> = offered.collect();
        served.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let shown = served.iter().map(|(record, version)| SiteSkill {
            name: record.name.clone(),
            description: version.description.clone(),
            digest: version.digest.clone(),
        });
        Ok(Self {
            shown: shown.collect(),
            store,
            owner,
            served,
        })
    }
}

impl Shelf for NamespaceShelf<'_> {
    fn skills(&self) -> &[SiteSkill] {
        &self.shown
    }

    fn files(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, Refusal>> {
        async move {
            let (record, version) = self.served.get(at).ok_or(Refusal::NotFound)?;
            let taken = self.store.taken(self.owner, &record.id, version.number).await;
            held(taken)
        }
        .boxed()
    }

    // A list shows of a skill what no right to read it is needed for: so does the index, which has a digest beside it.
    fn files_to_measure(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, Refusal>> {
        async move {
            let (record, version) = self.served.get(at).ok_or(Refusal::NotFound)?;
            held(self.store.taken_of_listed(self.owner, record, version.number).await)
        }
        .boxed()
    }
}

fn held(taken: Result<(knack_registry::Files, knack_memory::MemoryShare), StoreError>) -> Result<HeldFiles, Refusal> {
    let (files, share) = taken.map_err(refused)?;
    Ok(HeldFiles {
        files,
        share: Some(share),
    })
}

/// A refusal of the registry's own.
pub(super) fn of_problem(problem: &Problem) -> Refusal {
    Refusal::Denied(status_of(problem), problem.message.clone(), problem.retry_after_seconds)
}

fn refused(error: StoreError) -> Refusal {
    match error {
        StoreError::NotFound => Refusal::NotFound,
        StoreError::Forbidden(why) => Refusal::Denied(StatusCode::FORBIDDEN, why, None),
        StoreError::Unavailable(why) => {
            Refusal::Denied(StatusCode::SERVICE_UNAVAILABLE, why, Some(RETRY_AFTER_SECONDS))
        }
        other => Refusal::Failed(other.to_string()),
    }
}
