//! Skills as rows of OmniRoute's registry: whose they are, who sees them, which one an identifier names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use knack_skill::functions::LOCK_FILE;
use knack_skill::model::{Skill, SkillRef};
use knack_skill::{ids, semver};
use serde_json::{Value, json};

use super::install::{HANDLER, SCHEMA};
use crate::answer::{Refusal, RefusalKind, rfc3339};
use crate::catalogs::Catalog;
use crate::check::load_stored;
use crate::error::StoreError;
use crate::history::ExecutedSkill;
use crate::mode::Mode;
use crate::model::{SkillEntry, Version};
use crate::owner::Owner;
use crate::store::Store;

/// The owner of skills from files.
pub(super) const SYSTEM: &str = "system";

/// The source of a skill that is from no catalog.
pub(super) const LOCAL: &str = "local";

/// The skills from files.
pub(crate) type FileSkills = [Arc<Skill>];

/// One version of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<T> {
    /// The name under which requests know it.
    pub name: String,
    /// The version that it says of itself.
    pub version: Option<String>,
    /// The rest of it.
    pub item: T,
}

/// The rows that a caller sees, of its own and the operator's in this order: the first of one name and version hides the others.
pub fn visible<T>(rows: impl Iterator<Item = Row<T>>) -> Vec<Row<T>> {
    let mut known = HashSet::new();
    rows.filter(|row| known.insert((row.name.clone(), row.version.clone())))
        .collect()
}

/// The row that `name`, `name@version` or `name@constraint` names. A name alone is its highest version.
pub fn resolve<'a, T>(visible: &'a [Row<T>], identifier: &str) -> Option<&'a Row<T>> {
    let (name, wanted) = ids::with_version(identifier).unwrap_or((identifier, "latest"));
    let named: Vec<&Row<T>> = visible.iter().filter(|row| row.name == name).collect();
    let versions: Vec<&str> = named
        .iter()
        .map(|row| row.version.as_deref().unwrap_or_default())
        .collect();
    named.get(semver::choose(&versions, wanted)?).copied()
}

/// Where a row comes from.
#[derive(Debug)]
pub(super) enum Item {
    /// An uploaded skill in one of its versions.
    Own(Arc<SkillEntry>, Box<Version>),
    /// A skill from files, with the id that it has here.
    Shared(Arc<Skill>, String),
}

impl Item {
    /// The owner, as answers name it.
    pub(super) fn owner(&self) -> Cow<'_, str> {
        match self {
            Self::Own(entry, _) => entry.owner.text(),
            Self::Shared(..) => SYSTEM.into(),
        }
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Self::Own(entry, _) => &entry.id,
            Self::Shared(_, id) => id,
        }
    }

    /// The name that an install was written with, where it is no legal one.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Own(entry, _) => entry.written(),
            Self::Shared(..) => None,
        }
    }

    pub(super) fn description(&self) -> &String {
        match self {
            Self::Own(_, version) => &version.description,
            Self::Shared(skill, _) => &skill.description,
        }
    }

    /// The catalog that it was installed from, or [`LOCAL`].
    pub(super) fn source(&self) -> &'static str {
        let catalog = match self {
            Self::Own(_, version) => version.catalog,
            Self::Shared(..) => None,
        };
        catalog.map_or(LOCAL, Catalog::word)
    }

    /// A mode that the model decides is `auto`, too.
    pub(super) fn mode(&self) -> Mode {
        let mode = match self {
            Self::Own(entry, version) => entry.mode_of(version),
            Self::Shared(skill, _) => Mode::of_activation(skill.activation),
        };
        mode.unwrap_or(Mode::Auto)
    }
}

/// The row of a version.
pub(super) fn of_entry(entry: Arc<SkillEntry>, number: u32) -> Option<Row<Item>> {
    let version = Box::new(entry.version(number)?.clone());
    Some(Row {
        name: entry.name.clone(),
        version: version.version.clone(),
        item: Item::Own(entry, version),
    })
}

/// The rows of the skills from files.
pub(super) fn of_shared(shared: &FileSkills) -> impl Iterator<Item = Row<Item>> {
    shared.iter().map(of_skill)
}

/// The row of one of them.
pub(super) fn of_skill(skill: &Arc<Skill>) -> Row<Item> {
    Row {
        name: skill.id.name.clone(),
        version: skill.version.clone(),
        item: Item::Shared(Arc::clone(skill), shared_id(&skill.id)),
    }
}

/// The id of the row of a skill from files.
fn shared_id(skill: &SkillRef) -> String {
    format!("{SYSTEM}.{}.{}", skill.namespace, skill.name)
}

impl ExecutedSkill {
    /// The part of an execution's skill that is stored.
    #[must_use]
    pub fn of(skill: &Skill) -> Self {
        let uploaded = skill.upload.as_ref().map(|upload| upload.id.clone());
        Self {
            id: uploaded.unwrap_or_else(|| shared_id(&skill.id)),
            name: skill.id.name.clone(),
            version: skill.version.clone(),
            digest: skill.digest.clone(),
            asks_for_values: !skill.env.is_empty() || skill.tools.iter().any(|tool| !tool.config.is_empty()),
        }
    }
}

/// The refusal of a skill that is missing, and of one that is another's, so that neither shows that it is there.
pub(super) fn missing(id: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "id", format!("Skill not found: {id}"))
}

pub(super) fn refused(error: StoreError, id: &str) -> Refusal {
    match error {
        StoreError::NotFound => missing(id),
        other => Refusal::of(other, id),
    }
}

/// A row of a list.
pub(super) fn shown(row: &Row<Item>) -> Value {
    let mode = row.item.mode();
    let (created, updated) = match &row.item {
        Item::Own(entry, version) => (Some(rfc3339(version.created)), Some(rfc3339(entry.updated))),
        Item::Shared(..) => (None, None),
    };
    json!({
        "id": row.item.id(), "apiKeyId": row.item.owner(), "name": row.name, "version": row.version,
        "description": row.item.description(), "enabled": mode != Mode::Off, "mode": mode,
        "sourceProvider": row.item.source(), "createdAt": created, "updatedAt": updated,
    })
}

/// The skill of a row, read from its files.
pub(super) async fn skill_of(store: &dyn Store, owner: &Owner, item: &Item) -> Result<Arc<Skill>, Refusal> {
    match item {
        Item::Shared(skill, _) => Ok(Arc::clone(skill)),
        Item::Own(entry, version) => {
            let files = store.content(owner, &entry.id, version.number).await;
            let files = files.map_err(|error| refused(error, &entry.id))?;
            let loaded = load_stored(entry, version, files);
            Ok(Arc::new(
                loaded.map_err(|why| Refusal::new(RefusalKind::Failed, "", why))?,
            ))
        }
    }
}

/// A row with what only its files say.
pub(super) async fn detail(store: &dyn Store, owner: &Owner, row: &Row<Item>) -> Result<Value, Refusal> {
    let skill = skill_of(store, owner, &row.item).await?;
    let mut shown = shown(row);
    shown["schema"] = schema(&skill);
    shown["handler"] = handler(&skill).into();
    shown["tags"] = json!(skill.tags);
    shown["installCount"] = skill.install_count.into();
    Ok(shown)
}

/// The schema that was installed, else that of the first declared tool.
fn schema(skill: &Skill) -> Value {
    let metadata = skill.extra.get("metadata").and_then(|metadata| metadata.get(SCHEMA));
    // Installs of earlier builds have it at the root.
    let installed = [metadata, skill.extra.get(SCHEMA)].into_iter().flatten();
    if let Some(installed) = installed.into_iter().find(|schema| schema.is_object()) {
        return installed.clone();
    }
    let input = skill.tools.first().map(|tool| tool.input_schema.clone());
    json!({"input": input.unwrap_or_else(|| json!({})), "output": {}})
}

/// The code that was installed, else SKILL.md.
fn handler(skill: &Skill) -> String {
    let installed = skill.files.get(HANDLER).filter(|_| skill.files.contains_key(LOCK_FILE));
    installed.map_or_else(
        || skill.document.clone(),
        |file| String::from_utf8_lossy(&file.bytes).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row((item, name, version): (&'static str, &str, &str)) -> Row<&'static str> {
        Row {
            name: name.to_owned(),
            version: Some(version.to_owned()),
            item,
        }
    }

    #[test]
    fn a_caller_sees_its_own_then_the_operators_and_names_each_of_them() {
        let rows = [
            ("own", "echo", "1.0.0"),
            ("system", "echo", "2.0.0"),
            ("system", "echo", "1.0.0"),
            ("system", "other", "1.0.0"),
        ];
        let seen = visible(rows.into_iter().map(row));
        assert_eq!(seen, [rows[0], rows[1], rows[3]].map(row));
        for (identifier, owner) in [
            ("echo", Some("system")),
            ("echo@1.0.0", Some("own")),
            ("other@^1", Some("system")),
            ("other@2.0.0", None),
            ("private", None),
        ] {
            assert_eq!(resolve(&seen, identifier).map(|row| row.item), owner, "{identifier}");
        }
    }
}
