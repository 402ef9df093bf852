//! Which skills a request names, and which ones AUTO gives it.

use std::collections::BTreeMap;

use super::types::{ActivationCause, ContainerPlan, ContainerSkill, Note, PlanError, PlanRequest};
use crate::at_skill;
use crate::catalog::{Catalog, CatalogEntry};
use crate::ids::{PREFIX, UPLOADED, is_litellm, with_version};
use crate::model::ActivationMode;

/// The type of a skill that is attached to OpenAI's shell.
const SHELL_SKILL_TYPE: &str = "skill_reference";

/// A skill that the request names.
#[derive(Debug, Clone)]
pub(crate) struct NamedSkill<'a> {
    pub(crate) entry: &'a CatalogEntry,
    pub(crate) why: ActivationCause,
    /// For a `litellm:` skill: the stored id as referenced, without the prefix.
    pub(crate) id: Option<&'a str>,
    /// Values for its template inputs.
    pub(crate) inputs: BTreeMap<String, String>,
}

impl<'a> NamedSkill<'a> {
    pub(crate) fn new(entry: &'a CatalogEntry, why: ActivationCause) -> Self {
        Self {
            entry,
            why,
            id: None,
            inputs: BTreeMap::new(),
        }
    }
}

/// What `container.skills` came to.
pub(super) struct Container<'a> {
    pub(super) skills: Vec<NamedSkill<'a>>,
    pub(super) plan: ContainerPlan,
}

/// Sorts `container.skills` into Knack's and native ones.
pub(super) fn container<'a>(
    skills: &'a [ContainerSkill<'a>],
    catalog: &'a Catalog,
) -> Result<Container<'a>, PlanError> {
    let mut container = Container {
        skills: Vec::new(),
        plan: ContainerPlan::default(),
    };
    for (index, skill) in skills.iter().enumerate() {
        match ours(skill, catalog)? {
            Some(mut named) => {
                let served = named.entry.version_served(skill.id);
                if skill.kind == Some(SHELL_SKILL_TYPE) {
                    named.why = ActivationCause::Container;
                }
                extend(&mut container.skills, vec![named]);
                container.plan.ours.push(index);
                container.plan.versions.push(served);
            }
            None => container.plan.native.push(index),
        }
    }
    Ok(container)
}

fn ours<'a>(skill: &ContainerSkill<'a>, catalog: &'a Catalog) -> Result<Option<NamedSkill<'a>>, PlanError> {
    if skill.kind == Some("anthropic") {
        return Ok(None);
    }
    // Knack's by its form, so an unknown one is an error and not a native skill (docs/design/dialects.md#litellm).
    if is_litellm(skill.id) {
        let written = with_version(skill.id).map_or(skill.id, |(id, _)| id);
        let id = written.strip_prefix(PREFIX).unwrap_or(written);
        let reference = skill.id.strip_prefix(PREFIX).unwrap_or(skill.id);
        let entry = match catalog.find(reference) {
            Some(entry) => entry,
            None => version(reference, catalog)?.ok_or_else(|| unknown(written, id, catalog))?,
        };
        return Ok(Some(NamedSkill {
            // Its tool is named by the id alone.
            id: Some(id),
            ..NamedSkill::new(entry, ActivationCause::Litellm)
        }));
    }
    if skill.id.starts_with(UPLOADED) {
        let entry = match catalog.find_id(skill.id) {
            Some(entry) => entry,
            None => version(skill.id, catalog)?.ok_or_else(|| unknown(skill.id, skill.id, catalog))?,
        };
        return Ok(Some(NamedSkill::new(entry, ActivationCause::Container)));
    }
    if catalog.is_ambiguous(skill.id) {
        return Err(unknown(skill.id, skill.id, catalog));
    }
    if let Some(entry) = catalog.find_id(skill.id) {
        return Ok(Some(NamedSkill {
            id: Some(skill.id),
            ..NamedSkill::new(entry, ActivationCause::Litellm)
        }));
    }
    let entry = match catalog.find(skill.id) {
        Some(entry) => Some(entry),
        None => version(skill.id, catalog)?,
    };
    // While it is not served it is Knack's, too: the vendor does not know it, or knows another skill of this name.
    if entry.is_none() && catalog.unserved(skill.id).is_some() {
        return Err(unknown(skill.id, skill.id, catalog));
    }
    Ok(entry.map(|entry| NamedSkill::new(entry, ActivationCause::Container)))
}

/// The skill that a reference with a version names.
fn version<'a>(reference: &str, catalog: &'a Catalog) -> Result<Option<&'a CatalogEntry>, PlanError> {
    Ok(catalog.find_version(reference)?)
}

/// Why `id` names no skill; `written` is how the request wrote it.
fn unknown(written: &str, id: &str, catalog: &Catalog) -> PlanError {
    let written = written.to_owned();
    if catalog.is_ambiguous(id) {
        PlanError::AmbiguousSkill { id: written }
    } else if let Some((_, why)) = catalog.unserved(id) {
        PlanError::NotServed {
            id: written,
            why: why.to_owned(),
        }
    } else {
        PlanError::UnknownSkill { id: written }
    }
}

/// Reads the header. `Ok(None)`: it says `none`.
pub(super) fn header<'a>(header: Option<&str>, catalog: &'a Catalog) -> Result<Option<Vec<NamedSkill<'a>>>, PlanError> {
    let mut named = Vec::new();
    let words = header
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    for name in words {
        if name.eq_ignore_ascii_case("none") {
            return Ok(None);
        }
        let entry = match catalog.find(name) {
            Some(entry) => entry,
            None => version(name, catalog)?.ok_or_else(|| unknown(name, name, catalog))?,
        };
        named.push(NamedSkill::new(entry, ActivationCause::Header));
    }
    Ok(Some(named))
}

/// Reads `@name text` at the start of each user text. Unknown names are plain text. The last mention's text fills the inputs.
pub(super) fn mentions<'a>(texts: &[&str], catalog: &'a Catalog) -> Vec<NamedSkill<'a>> {
    let mut named: Vec<NamedSkill<'a>> = Vec::new();
    for mention in texts.iter().filter_map(|text| at_skill::parse(text)) {
        let Some(entry) = catalog.find(mention.skill) else {
            continue;
        };
        let inputs = at_skill::map_text(&entry.skill.inputs, mention.text);
        match named.iter_mut().find(|named| named.entry.skill.id == entry.skill.id) {
            Some(known) => known.inputs = inputs,
            None => named.push(NamedSkill {
                inputs,
                ..NamedSkill::new(entry, ActivationCause::Mention)
            }),
        }
    }
    named
}

/// Skills that are not served and that the texts name: their names stay plain text, since a message stays in its conversation.
pub(super) fn unserved_mentions(texts: &[&str], catalog: &Catalog) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for mention in texts.iter().filter_map(|text| at_skill::parse(text)) {
        if catalog.find(mention.skill).is_none()
            && let Some((skill, why)) = catalog.unserved(mention.skill)
            && !notes.iter().any(|note| note.skill.as_ref() == Some(skill))
        {
            notes.push(Note {
                skill: Some(skill.clone()),
                text: format!("@{} is here but not served: {why}", mention.skill),
                header: None,
            });
        }
    }
    notes
}

/// Says that the last text begins with `@` and a name that no skill has: what may be a typing mistake is sent as text. The name
/// is the user's own text, which no log holds.
pub(super) fn unknown_mention(texts: &[&str], catalog: &Catalog) -> Option<Note> {
    let mention = texts.last().and_then(|text| at_skill::parse(text))?;
    if catalog.is_empty() || catalog.find(mention.skill).is_some() || catalog.unserved(mention.skill).is_some() {
        return None;
    }
    let closest = catalog.closest(mention.skill);
    let closest = if closest.is_empty() {
        String::new()
    } else {
        format!("; closest: {}", closest.join(", "))
    };
    Some(Note {
        skill: None,
        text: format!(
            "the last message begins with @ and a name that no skill here has, so it is sent as text{closest}"
        ),
        header: None,
    })
}

/// Adds skills that are not there yet; a later naming only gives inputs.
pub(super) fn extend<'a>(named: &mut Vec<NamedSkill<'a>>, more: Vec<NamedSkill<'a>>) {
    for other in more {
        match named
            .iter_mut()
            .find(|known| known.entry.skill.id == other.entry.skill.id)
        {
            Some(known) if known.inputs.is_empty() => known.inputs = other.inputs,
            Some(_) => {}
            None => named.push(other),
        }
    }
}

/// Leaves out what is active anyway: naming an Always skill changes nothing, unless it came by `litellm:` or brings inputs.
pub(super) fn without_always(mut named: Vec<NamedSkill<'_>>) -> Vec<NamedSkill<'_>> {
    named.retain(|named| {
        named.entry.mode != ActivationMode::Always || named.why == ActivationCause::Litellm || !named.inputs.is_empty()
    });
    named
}

/// Lets AUTO select among the skills that are not named already.
pub(super) fn scored<'a>(
    request: &PlanRequest<'_>,
    catalog: &'a Catalog,
    named: &[NamedSkill<'a>],
) -> Vec<&'a CatalogEntry> {
    if catalog.scores().is_empty() {
        return Vec::new();
    }
    let winners = catalog.scores().replay(request.provider, &(request.auto)());
    let entries = winners.into_iter().filter_map(|index| catalog.scored(index));
    entries
        .filter(|entry| !named.iter().any(|named| named.entry.skill.id == entry.skill.id))
        .collect()
}
