//! The uploaded skills of a namespace for installers ([`crate::installer_index`]): what the caller may list, in their default versions.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use knack_hub_api::HubRefusal;
use knack_registry::index::ENTRIES_MAX;
use knack_registry::{Mode, Owner, Page, SkillEntry, Store as _, StoreError, Version};
use knack_skill::names;

use super::caller_store::CallerStore;
use super::refusal::status_of;
use crate::installer_index::{HeldFiles, NotOffered, OfferedSkills, SiteSkill};

/// Seconds after which to ask again for what the store cannot read at this moment.
const RETRY_AFTER_SECONDS: u64 = 2;

/// The skills that a caller is offered.
pub(super) struct OfferedInNamespace<'s> {
    store: &'s CallerStore,
    owner: &'s Owner,
    served: Vec<(SkillEntry, Version)>,
    shown: Vec<SiteSkill>,
}

impl<'s> OfferedInNamespace<'s> {
    /// Lists them; errors: the caller may not list Skills there.
    pub(super) async fn of(store: &'s CallerStore, owner: &'s Owner) -> Result<Self, NotOffered> {
        let page = Page {
            after: None,
            limit: ENTRIES_MAX,
            newest_first: false,
        };
        let listed = store.list(owner, &page).await.map_err(refused)?;
        let offered = listed.items.into_iter().filter_map(|entry| {
            let version = entry.served()?.clone();
            let is_offered = entry.mode_of(&version) != Some(Mode::Off) && names::check(&entry.name).is_ok();
            is_offered.then_some((entry, version))
        });
        let mut served: Vec<(SkillEntry, Version)> = offered.collect();
        served.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let shown = served.iter().map(|(entry, version)| SiteSkill {
            name: entry.name.clone(),
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

impl OfferedSkills for OfferedInNamespace<'_> {
    fn skills(&self) -> &[SiteSkill] {
        &self.shown
    }

    fn files(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, NotOffered>> {
        async move {
            let (entry, version) = self.served.get(at).ok_or(NotOffered::NotFound)?;
            let taken = self.store.taken(self.owner, &entry.id, version.number).await;
            held(taken)
        }
        .boxed()
    }

    // A list shows of a skill what no right to read it is needed for: so does the index, which has a digest beside it.
    fn files_to_measure(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, NotOffered>> {
        async move {
            let (entry, version) = self.served.get(at).ok_or(NotOffered::NotFound)?;
            held(self.store.taken_of_listed(self.owner, entry, version.number).await)
        }
        .boxed()
    }
}

fn held(
    taken: Result<(knack_registry::Files, knack_memory::MemoryShare), StoreError>,
) -> Result<HeldFiles, NotOffered> {
    let (files, share) = taken.map_err(refused)?;
    Ok(HeldFiles {
        files,
        share: Some(share),
    })
}

/// A refusal of the registry's own.
pub(super) fn of_problem(refusal: &HubRefusal) -> NotOffered {
    NotOffered::Denied(status_of(refusal), refusal.message.clone(), refusal.retry_after_seconds)
}

fn refused(error: StoreError) -> NotOffered {
    match error {
        StoreError::NotFound => NotOffered::NotFound,
        StoreError::Forbidden(why) => NotOffered::Denied(StatusCode::FORBIDDEN, why, None),
        StoreError::Unavailable(why) => {
            NotOffered::Denied(StatusCode::SERVICE_UNAVAILABLE, why, Some(RETRY_AFTER_SECONDS))
        }
        other => NotOffered::Failed(other.to_string()),
    }
}
