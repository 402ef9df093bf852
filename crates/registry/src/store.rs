//! Where uploaded skills are kept.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::Files;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::mode::Mode;
use crate::model::{Owner, Record};
use crate::page::{Page, Paged};

/// Where uploaded skills are kept. Every call is whole or not at all, whatever ends the process meanwhile; a skill of
/// another owner is `NotFound`.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// Keeps a new skill. Errors: the owner has one of that name, no room.
    async fn create(&self, owner: &Owner, title: Option<String>, draft: Draft) -> Result<Record, StoreError>;
    /// Keeps one more version.
    async fn add_version(
        &self,
        owner: &Owner,
        id: &str,
        draft: Draft,
        make_default: bool,
    ) -> Result<Record, StoreError>;
    /// A skill by id.
    async fn get(&self, owner: &Owner, id: &str) -> Result<Record, StoreError>;
    /// The owner's skill of a name.
    async fn find(&self, owner: &Owner, name: &str) -> Result<Option<Record>, StoreError>;
    /// A page of the owner's skills in the order of their making.
    async fn list(&self, owner: &Owner, page: &Page) -> Result<Paged<Record>, StoreError>;
    /// Serves another version where none is named.
    async fn set_default(&self, owner: &Owner, id: &str, number: u32) -> Result<Record, StoreError>;
    /// Sets when it reaches models, whatever its versions ask for.
    async fn set_mode(&self, owner: &Owner, id: &str, mode: Mode) -> Result<Record, StoreError>;
    /// Removes a skill with all versions; the answer is what it was.
    async fn delete(&self, owner: &Owner, id: &str) -> Result<Record, StoreError>;
    /// Removes a version; the answer is the skill without it.
    async fn delete_version(&self, owner: &Owner, id: &str, number: u32) -> Result<Record, StoreError>;
    /// The files of a version.
    async fn content(&self, owner: &Owner, id: &str, number: u32) -> Result<Files, StoreError>;
}

/// Records that are read at once.
const PAGE: usize = 1_000;

/// All skills of an owner in the order of their making.
pub(crate) async fn all(store: &dyn Store, owner: &Owner) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = Page {
            after: records.last().map(|record| record.id.clone()),
            limit: PAGE,
            newest_first: false,
        };
        let paged = store.list(owner, &page).await?;
        records.extend(paged.items);
        if !paged.more {
            return Ok(records);
        }
    }
}
