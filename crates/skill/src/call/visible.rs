//! The skills that a call may use.

use super::types::{CallContext, LoadReference};
use crate::catalog::{Catalog, CatalogEntry};
use crate::model::{ActivationMode, SkillRef};

/// The catalog's entry for a reference, whatever its digest.
pub(super) fn entry_of<'a>(reference: &LoadReference, catalog: &'a Catalog) -> Option<&'a CatalogEntry> {
    let (namespace, name) = reference.skill.split_once('/')?;
    let entry = catalog.get(&SkillRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })?;
    (entry.mode != ActivationMode::Never).then_some(entry)
}

/// The skill that a model means: listed or always active, active in this request, or loaded before.
pub(super) fn visible<'a>(context: &CallContext<'a>, name: &str) -> Option<&'a CatalogEntry> {
    let entry = context.catalog.find(name.trim())?;
    let id = &entry.skill.id;
    let active = || context.plan.active.iter().any(|active| active.skill.id == *id);
    let loaded = || {
        let mut entries = context
            .loaded
            .iter()
            .filter_map(|reference| entry_of(reference, context.catalog));
        entries.any(|entry| entry.skill.id == *id)
    };
    (entry.is_public() || active() || loaded()).then_some(entry)
}
