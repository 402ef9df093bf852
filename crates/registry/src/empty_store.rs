//! A store without skills: beside it only what everybody is served.

use async_trait::async_trait;

use crate::Files;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::mode::Mode;
use crate::model::SkillEntry;
use crate::owner::Owner;
use crate::page::{Page, Paged};
use crate::store::Store;

/// A store without skills, for a process that runs tools of skills that are stored elsewhere.
#[derive(Debug)]
pub(crate) struct EmptyStore;

/// The message to requests that would change it.
const KEPT_ELSEWHERE: StoreError = StoreError::NotFound;

#[async_trait]
impl Store for EmptyStore {
    async fn create(&self, _: &Owner, _: Option<String>, _: Draft) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn would_keep(&self, _: &Owner, _: Option<&str>, _: &Draft) -> Result<(), StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn add_version(&self, _: &Owner, _: &str, _: Draft, _: bool) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn add_in_turn(&self, _: &Owner, _: &str, _: Draft) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn get(&self, _: &Owner, _: &str) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn find(&self, _: &Owner, _: &str) -> Result<Option<SkillEntry>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: &Owner, _: &Page) -> Result<Paged<SkillEntry>, StoreError> {
        Ok(Paged {
            items: Vec::new(),
            more: false,
        })
    }

    async fn set_default(&self, _: &Owner, _: &str, _: u32) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn set_mode(&self, _: &Owner, _: &str, _: Mode) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn delete(&self, _: &Owner, _: &str) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn delete_version(&self, _: &Owner, _: &str, _: u32) -> Result<SkillEntry, StoreError> {
        Err(KEPT_ELSEWHERE)
    }

    async fn content(&self, _: &Owner, _: &str, _: u32) -> Result<Files, StoreError> {
        Err(KEPT_ELSEWHERE)
    }
}
