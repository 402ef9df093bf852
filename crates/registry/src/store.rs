//! Where uploaded skills are kept.

use std::fmt::Debug;

use async_trait::async_trait;
use knack_skill::tree::DOCUMENT_NAMES;

use crate::Files;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::mode::Mode;
use crate::model::SkillEntry;
use crate::owner::Owner;
use crate::page::{Page, Paged};

/// Where uploaded skills are kept. Every call is whole or not at all, whatever ends the process meanwhile; a skill of
/// another owner is `NotFound`.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// Keeps a new skill. Errors: the owner has one of that name, no room.
    async fn create(&self, owner: &Owner, title: Option<String>, draft: Draft) -> Result<SkillEntry, StoreError>;
    /// Whether [`create`](Self::create) would keep a skill at this moment, or [`add_version`](Self::add_version) one more version of
    /// the skill of an id. Nothing is kept. Errors: those of that call that are known before it.
    async fn would_keep(&self, owner: &Owner, id: Option<&str>, draft: &Draft) -> Result<(), StoreError>;
    /// Keeps one more version.
    async fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: Draft,
        make_default: bool,
    ) -> Result<SkillEntry, StoreError>;
    /// Keeps one more version and serves it by default; of a skill that has as many as it may, the oldest other one goes with the
    /// same change.
    async fn add_in_turn(&self, owner: &Owner, id: &str, draft: Draft) -> Result<SkillEntry, StoreError>;
    /// A skill by id.
    async fn get(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError>;
    /// The owner's skill of a name.
    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<SkillEntry>, StoreError>;
    /// A page of the owner's skills in the order of their making. `NotFound`: nothing is known of the place where it begins.
    async fn list(&self, owner: &Owner, page: &Page) -> Result<Paged<SkillEntry>, StoreError>;
    /// Serves another version where none is named.
    async fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError>;
    /// Sets when it reaches models, whatever its versions ask for.
    async fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<SkillEntry, StoreError>;
    /// Removes a skill with all versions; the answer is what it was.
    async fn delete(&self, owner: &Owner, id: &str) -> Result<SkillEntry, StoreError>;
    /// Removes a version; the answer is the skill without it.
    async fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<SkillEntry, StoreError>;
    /// The files of a version.
    async fn content(&self, owner: &Owner, id: &str, number: u32) -> Result<Files, StoreError>;
    /// Its SKILL.md alone: a list asks for those of many. `None`: it has none.
    async fn document(&self, owner: &Owner, id: &str, number: u32) -> Result<Option<String>, StoreError> {
        Ok(document(&self.content(owner, id, number).await?))
    }
}

/// The text of the SKILL.md of a folder.
#[must_use]
pub fn document(files: &Files) -> Option<String> {
    let file = DOCUMENT_NAMES.iter().find_map(|name| files.get(*name))?;
    Some(String::from_utf8_lossy(&file.bytes).into_owned())
}

/// Entries that are read at once.
const PAGE: usize = 1_000;

/// All skills of an owner in the order of their making.
pub(crate) async fn all(store: &dyn Store, owner: &Owner) -> Result<Vec<SkillEntry>, StoreError> {
    let mut entries: Vec<SkillEntry> = Vec::new();
    loop {
        let page = Page {
            after: entries.last().map(|entry| entry.id.clone()),
            limit: PAGE,
            newest_first: false,
        };
        let paged = store.list(owner, &page).await.map_err(|error| match error {
            StoreError::NotFound => {
                StoreError::Unavailable("skills were deleted while they were listed; try again".to_owned())
            }
            other => other,
        })?;
        entries.extend(paged.items);
        if !paged.more {
            return Ok(entries);
        }
    }
}
