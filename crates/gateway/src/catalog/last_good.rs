//! What was served last, for the case that a source breaks.

use std::collections::HashMap;
use std::sync::Arc;

use knack_skill::model::{Skill, SkillRef};

use super::runtime::RuntimeSettings;
use super::source::SourceReport;

/// The sources that were served last, by origin and identity, for the case that a source breaks.
#[derive(Debug, Default, Clone)]
pub struct LastGood {
    pub(super) skills: HashMap<SkillRef, JudgedSource>,
    pub(super) runtime: Option<RuntimeSettings>,
    runtime_origin: Option<String>,
}

impl LastGood {
    /// The settings that were served last.
    pub fn runtime(&self) -> Option<&RuntimeSettings> {
        self.runtime.as_ref()
    }

    /// The file that they are from, if they are from one.
    pub fn runtime_origin(&self) -> Option<&str> {
        self.runtime_origin.as_deref()
    }

    /// Notes the file that the settings which are served now are from.
    pub fn set_runtime_origin(&mut self, origin: Option<String>) {
        self.runtime_origin = origin;
    }

    /// The skills that were served last from a file or folder.
    pub fn of_origin<'a>(&'a self, origin: &'a str) -> impl Iterator<Item = &'a SkillRef> {
        let of_it = self.skills.iter().filter(move |(_, kept)| kept.origin == origin);
        of_it.map(|(id, _)| id)
    }

    /// Whether something that was served last is from this file or folder.
    pub fn is_served_from(&self, origin: &str) -> bool {
        self.runtime_origin() == Some(origin) || self.of_origin(origin).next().is_some()
    }

    /// A skill as it was served last.
    pub fn skill(&self, id: &SkillRef) -> Option<&Arc<Skill>> {
        self.skills.get(id).map(|kept| &kept.skill)
    }
}

/// A source that was judged, and what it was judged to be.
#[derive(Debug, Clone)]
pub(super) struct JudgedSource {
    pub origin: String,
    /// Files and overrides it was made from: unchanged sources are not judged again.
    pub fingerprint: [u8; 32],
    pub skill: Arc<Skill>,
    /// Its part of the catalog's revision.
    pub digest: [u8; 32],
    pub warnings: Vec<SourceReport>,
}

/// A warning that the last good revision of a skill goes on.
pub fn last_good_report(origin: &str, id: &SkillRef) -> SourceReport {
    SourceReport::warning(
        origin,
        format!(
            "skill {}: the last good revision stays in service until this is fixed",
            id.name
        ),
    )
}
