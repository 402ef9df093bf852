//! The store as one caller may use it: each call asks RBAC first, for exactly what it does.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use knack_hub_api::{HubRefusal, RefusalCode};
use knack_memory::{MemoryBudget, MemoryShare};
use knack_registry::{Draft, Files, Mode, Owner, Page, Paged, SkillEntry, Store, StoreError, document};

use super::cluster::{Actor, Cluster};
use crate::access_review::AccessAction;
use crate::account_auth::{AccessReviewer, ServiceAccountCaller};

/// What every request shares.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    pub(super) rights: AccessReviewer,
    /// Where downloads take their memory.
    pub(super) downloads: MemoryBudget,
}

/// The store of one request.
#[derive(Debug)]
pub(super) struct CallerStore {
    shared: Arc<Shared>,
    caller: ServiceAccountCaller,
    /// Content that this request holds, until its end.
    held: Mutex<Vec<MemoryShare>>,
}

impl CallerStore {
    pub(super) fn new(shared: Arc<Shared>, caller: ServiceAccountCaller) -> Self {
        Self {
            shared,
            caller,
            held: Mutex::default(),
        }
    }

    async fn may(&self, verb: &'static str, owner: &Owner, name: Option<&str>) -> Result<bool, StoreError> {
        let answer = self.shared.rights.may(&self.caller, &action(verb, owner, name)).await;
        answer.map_err(|refusal| StoreError::Unavailable(refusal.message))
    }

    /// Refuses what the caller may not do.
    async fn demand(&self, verb: &'static str, owner: &Owner, name: Option<&str>) -> Result<(), StoreError> {
        if self.may(verb, owner, name).await? {
            return Ok(());
        }
        Err(StoreError::Forbidden(format!(
            "ServiceAccount {} may not {verb} skills.knack.dev in namespace {}; an administrator can grant it that verb",
            self.caller.name(),
            owner.group()
        )))
    }

    /// Refuses to fetch for a caller that could install nothing: neither a new skill nor a version of one.
    pub(super) async fn demand_install(&self, owner: &Owner) -> Result<(), HubRefusal> {
        for verb in ["create", "update"] {
            if self.shared.rights.may(&self.caller, &action(verb, owner, None)).await? {
                return Ok(());
            }
        }
        let text = format!(
            "ServiceAccount {} may neither create nor update skills.knack.dev in namespace {}, and therefore cannot install skills from a catalog; an administrator can grant it these verbs",
            self.caller.name(),
            owner.group()
        );
        Err(HubRefusal::new(RefusalCode::Forbidden, text))
    }

    /// An entry that the caller may read. What it may not is not there for it.
    async fn seen(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        let known = self.shared.cluster.get(owner.group(), id)?;
        let entry = known.entry().cloned().ok_or(StoreError::NotFound)?;
        if self.may("get", owner, Some(&entry.name)).await? {
            return Ok(entry);
        }
        Err(StoreError::NotFound)
    }

    /// An entry that the caller may change.
    async fn demand_change(&self, verb: &'static str, owner: &Owner, id: &str) -> Result<(), StoreError> {
        let entry = self.seen(owner, id).await?;
        self.demand(verb, owner, Some(&entry.name)).await
    }

    /// The files of a version that the caller may read, and the memory that they take.
    pub(super) async fn taken(&self, owner: &Owner, id: &str, number: u32) -> Result<(Files, MemoryShare), StoreError> {
        let entry = self.seen(owner, id).await?;
        self.taken_of_listed(owner, &entry, number).await
    }

    /// The files of a version of an entry that the caller was shown in a list, for what a list may show of them, and the memory that they take.
    pub(super) async fn taken_of_listed(
        &self,
        owner: &Owner,
        entry: &SkillEntry,
        number: u32,
    ) -> Result<(Files, MemoryShare), StoreError> {
        let (cluster, memory) = (&self.shared.cluster, &self.shared.downloads);
        cluster.content(owner.group(), &entry.id, number, memory).await
    }

    /// Where a change is made, and who makes it.
    fn actor<'a>(&'a self, owner: &'a Owner) -> Actor<'a> {
        Actor {
            namespace: owner.group(),
            username: &self.caller.username,
        }
    }
}

fn action(verb: &'static str, owner: &Owner, name: Option<&str>) -> AccessAction {
    AccessAction {
        verb,
        resource: "skills",
        namespace: owner.group().to_owned(),
        name: name.map(str::to_owned),
    }
}

#[async_trait]
impl Store for CallerStore {
    async fn create(&self, owner: &Owner, title: Option<String>, draft: Draft) -> Result<SkillEntry, StoreError> {
        self.demand("create", owner, None).await?;
        self.shared.cluster.create(self.actor(owner), title, draft).await
    }

    async fn would_keep(&self, owner: &Owner, id: Option<&str>, draft: &Draft) -> Result<(), StoreError> {
        match id {
            None => self.demand("create", owner, None).await?,
            Some(id) => self.demand_change("update", owner, id).await?,
        }
        self.shared.cluster.would_keep(owner.group(), id.is_none(), draft)
    }

    async fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: Draft,
        make_default: bool,
    ) -> Result<SkillEntry, StoreError> {
        self.demand_change("update", owner, id).await?;
        let cluster = &self.shared.cluster;
        cluster.add_version(self.actor(owner), id, draft, make_default).await
    }

    async fn add_in_turn(&self, owner: &Owner, id: &str, draft: Draft) -> Result<SkillEntry, StoreError> {
        self.demand_change("update", owner, id).await?;
        self.shared.cluster.add_in_turn(self.actor(owner), id, draft).await
    }

    async fn get(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.seen(owner, id).await
    }

    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<SkillEntry>, StoreError> {
        let found = self.shared.cluster.find(owner.group(), name);
        Ok(match found {
            Some(entry) if self.may("get", owner, Some(name)).await? => Some(entry),
            _ => None,
        })
    }

    async fn list(&self, owner: &Owner, page: &Page) -> Result<Paged<SkillEntry>, StoreError> {
        self.demand("list", owner, None).await?;
        self.shared.cluster.list(owner.group(), page)
    }

    async fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.demand_change("update", owner, id).await?;
        self.shared.cluster.set_default(self.actor(owner), id, number).await
    }

    async fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<SkillEntry, StoreError> {
        self.demand_change("update", owner, id).await?;
        self.shared.cluster.set_mode(self.actor(owner), id, mode).await
    }

    async fn delete(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError> {
        self.demand_change("delete", owner, id).await?;
        self.shared.cluster.delete(owner.group(), id).await
    }

    async fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError> {
        self.demand_change("update", owner, id).await?;
        self.shared.cluster.delete_version(self.actor(owner), id, number).await
    }

    async fn content(&self, owner: &Owner, id: &str, number: u32) -> Result<Files, StoreError> {
        let (files, share) = self.taken(owner, id, number).await?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(share);
        Ok(files)
    }

    async fn document(&self, owner: &Owner, id: &str, number: u32) -> Result<Option<String>, StoreError> {
        // The rest of the folder, and its share of the memory, go before the next one of a list comes.
        let (files, _share) = self.taken(owner, id, number).await?;
        Ok(document(&files))
    }
}
