//! The compiled form of all skills of a runtime, made once per change so that a request only looks up.
//!
//! In go the skills and the runtime's settings; out come the Skills block, the tools with their wire names, the scoring index,
//! and the whole injection of a request that names nothing and collides with nothing ([`Catalog::base`]).

mod clash;
mod compile;
mod entry;
mod listing;
mod settings;
mod versions;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

pub use clash::Clash;
pub(crate) use entry::Generic;
pub use entry::{CatalogEntry, SKILL_MD};
pub use listing::{ListingCounts, listing_counts};
pub use settings::{CatalogSettings, ConfigValues, ModelCode, Node, Pin, Unserved};

use crate::autoscore::ScoreIndex;
use crate::ids::with_version;
use crate::model::{ActivationMode, Skill, SkillRef};
use crate::plan::{Active, PlannedTool};
use crate::search::SearchIndex;

/// The reason that a skill of mode Never is not served.
pub const NEVER: &str = "its activation is Never";
/// The reason that an upload is not served whose mode of OmniRoute's API is off.
pub const MODE_OFF: &str = "its mode is off";
/// The reason that a skill is not served for which the SkillRuntime sets the mode Never.
pub const NEVER_HERE: &str = "the SkillRuntime sets its activation to Never";

/// How many names a search answers with.
const CLOSEST: usize = 3;

/// Skills and settings, with every text and index that a request needs made ahead.
#[derive(Debug)]
pub struct Catalog {
    settings: CatalogSettings,
    /// Sorted by name, then namespace.
    entries: Vec<CatalogEntry>,
    by_skill: HashMap<SkillRef, usize>,
    by_handle: HashMap<Arc<str>, usize>,
    by_name: HashMap<String, usize>,
    /// Ids of other systems; `None`: several skills carry it.
    by_id: HashMap<String, Option<usize>>,
    listing: listing::Listing,
    generic: Vec<Generic>,
    base: BaseInjection,
    scores: ScoreIndex,
    /// Position in `scores` to position in `entries`.
    scored: Vec<usize>,
    clashes: Vec<Clash>,
    /// Made at the first unknown name: most catalogs are never searched.
    search: OnceLock<(SearchIndex, Vec<usize>)>,
}

/// The injection of a request that names no skill, scores none, and whose tools collide with none.
#[derive(Debug)]
pub(crate) struct BaseInjection {
    pub(crate) system: Arc<str>,
    pub(crate) tools: Arc<[Arc<PlannedTool>]>,
    pub(crate) names: HashSet<String>,
    pub(crate) active: Arc<[Active]>,
    pub(crate) added_tokens: usize,
}

impl Catalog {
    /// The settings it was compiled with.
    pub fn settings(&self) -> &CatalogSettings {
        &self.settings
    }

    /// Every skill, sorted by name, then namespace; those that are never served included.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Skills that conflict with each other, for the console and status.
    pub fn clashes(&self) -> &[Clash] {
        &self.clashes
    }

    /// Whether no request of any kind can be given anything.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.mode == ActivationMode::Never)
    }

    /// Finds a served skill by handle, `namespace/name`, metadata name or an id that it carries. A name wins over an id. Of several skills with
    /// one name the first by namespace is taken, of several with one id none; [`Catalog::clashes`] lists them. Skills of mode Never are not found.
    pub fn find(&self, reference: &str) -> Option<&CatalogEntry> {
        let position = self
            .position_of_name(reference)
            .or_else(|| self.position_of_id(reference))?;
        self.entries
            .get(position)
            .filter(|entry| entry.mode != ActivationMode::Never)
    }

    /// Finds a served skill by an id that it carries.
    pub fn find_id(&self, id: &str) -> Option<&CatalogEntry> {
        let position = self.position_of_id(id)?;
        self.entries
            .get(position)
            .filter(|entry| entry.mode != ActivationMode::Never)
    }

    /// Whether several skills carry an id, so that it names none of them.
    pub fn is_ambiguous(&self, id: &str) -> bool {
        matches!(self.by_id.get(id), Some(None)) && self.position_of_name(id).is_none()
    }

    /// Finds a skill that is not served by name or `namespace/name`, with or without a version, and one of mode Never by an id, too;
    /// with the reason, for who names it.
    pub fn unserved(&self, reference: &str) -> Option<(&SkillRef, &str)> {
        let bare = with_version(reference).map_or(reference, |(skill, _)| skill);
        let (namespace, name) = bare
            .split_once('/')
            .map_or((None, bare), |(namespace, name)| (Some(namespace), name));
        let is_meant =
            |skill: &SkillRef| skill.name == name && namespace.is_none_or(|namespace| skill.namespace == namespace);
        if let Some(unserved) = self.settings.unserved.iter().find(|unserved| is_meant(&unserved.skill)) {
            return Some((&unserved.skill, &unserved.why));
        }
        let has_id = |skill: &Skill| {
            let mut ids = skill.ids.iter().chain(&skill.object_ids);
            ids.any(|id| id == reference || id == bare)
        };
        let off = self
            .entries
            .iter()
            .find(|entry| entry.mode == ActivationMode::Never && (is_meant(&entry.skill.id) || has_id(&entry.skill)))?;
        let why = match &off.skill {
            skill if skill.activation != ActivationMode::Never => NEVER_HERE,
            skill if skill.upload.is_some() => MODE_OFF,
            _ => NEVER,
        };
        Some((&off.skill.id, why))
    }

    /// Finds a skill by its identity, whatever its mode.
    pub fn get(&self, skill: &SkillRef) -> Option<&CatalogEntry> {
        self.entries.get(*self.by_skill.get(skill)?)
    }

    fn position_of_id(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied().flatten()
    }

    fn position_of_name(&self, reference: &str) -> Option<usize> {
        if let Some(position) = self.by_handle.get(reference) {
            return Some(*position);
        }
        if let Some((namespace, name)) = reference.split_once('/') {
            let skill = SkillRef {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            return self.by_skill.get(&skill).copied();
        }
        self.by_name.get(reference).copied()
    }

    /// The handles of the listed and always active skills that are closest to some words, best first, at most three.
    pub fn closest(&self, words: &str) -> Vec<&str> {
        let (index, positions) = self.search.get_or_init(|| {
            let positions: Vec<usize> = self
                .entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.is_public())
                .map(|(at, _)| at)
                .collect();
            let documents = positions.iter().filter_map(|at| self.entries.get(*at));
            (
                SearchIndex::build(documents.map(|entry| (&*entry.handle, entry.skill.description.as_str()))),
                positions,
            )
        });
        let found = index.closest(words, CLOSEST).into_iter();
        found
            .filter_map(|at| self.entries.get(*positions.get(at)?))
            .map(|entry| &*entry.handle)
            .collect()
    }

    pub(crate) fn base(&self) -> &BaseInjection {
        &self.base
    }

    pub(crate) fn generic(&self) -> &[Generic] {
        &self.generic
    }

    pub(crate) fn listing_block(&self, load_skill: &str) -> Option<String> {
        self.listing.block(load_skill)
    }

    /// How the lines of the Listed block came out.
    pub fn listing_counts(&self) -> ListingCounts {
        self.listing.counts
    }

    pub(crate) fn scores(&self) -> &ScoreIndex {
        &self.scores
    }

    pub(crate) fn scored(&self, position: usize) -> Option<&CatalogEntry> {
        self.entries.get(*self.scored.get(position)?)
    }
}
