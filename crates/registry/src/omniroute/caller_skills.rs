//! The skills that a caller sees, as rows: its own, and those from files.

use std::sync::Arc;

use knack_skill::catalog::Catalog as SkillCatalog;
use knack_skill::ids;
use knack_skill::model::Skill;
use serde_json::Value;

use super::rows::{
    FileSkills, Item, LOCAL, Row, SYSTEM, detail, missing, of_entry, of_shared, of_skill, refused, resolve, shown,
    visible,
};
use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::Catalog;
use crate::mode::Mode;
use crate::model::{ID_PREFIX, SkillEntry, Version};
use crate::numbered_page::NumberedPage;
use crate::owner::Owner;
use crate::query::parameters;
use crate::store::{Store, all};

/// Rows of a page that does not say.
const LIMIT_DEFAULT: usize = 20;
/// Where OmniRoute's skills come from.
const SOURCES: [&str; 4] = [
    Catalog::SkillsMp.word(),
    Catalog::SkillsSh.word(),
    Catalog::Index.word(),
    LOCAL,
];

/// The skills that a caller sees.
#[derive(Clone, Copy)]
pub(crate) struct CallerSkills<'a> {
    /// Where uploaded skills are.
    pub(crate) store: &'a dyn Store,
    /// The caller, whose own are looked up there.
    pub(crate) owner: &'a Owner,
    /// The skills from files, which everybody sees.
    pub(crate) shared: &'a FileSkills,
    /// What model requests name skills by, where each version of an upload is one of `shared`: on a cluster.
    pub(crate) versions: Option<&'a SkillCatalog>,
}

impl CallerSkills<'_> {
    /// A page of the rows that a query asks for.
    pub(super) async fn list(self, query: Option<&str>) -> Result<Value, Refusal> {
        let Self {
            store, owner, shared, ..
        } = self;
        let wanted = ListQuery::read(query, owner)?;
        let entries = all(store, owner).await.map_err(|error| refused(error, ""))?;
        let own = entries.into_iter().filter_map(|entry| {
            let number = entry.default?;
            of_entry(entry.into(), number)
        });
        let rows = visible(own.chain(of_shared(shared)));
        let taken: Vec<&Row<Item>> = rows.iter().filter(|row| wanted.takes(row)).collect();
        let on_page = taken.iter().skip(wanted.page.skip()).take(wanted.page.limit);
        let data: Vec<Value> = on_page.map(|row| shown(row)).collect();
        Ok(wanted.page.answer(&data, taken.len()))
    }

    /// The row that an identifier names, with what only its files say.
    pub(super) async fn get(self, identifier: &str) -> Result<Value, Refusal> {
        let row = self.find(identifier).await?;
        detail(self.store, self.owner, &row).await
    }

    /// The row that an id, a name, `name@version` or `name@constraint` names.
    pub(super) async fn find(self, identifier: &str) -> Result<Row<Item>, Refusal> {
        let Self {
            store,
            owner,
            shared,
            versions,
        } = self;
        if let Some(found) = versions.and_then(|catalog| as_models_name_it(catalog, identifier)) {
            return Ok(found);
        }
        if identifier.starts_with(ID_PREFIX) {
            // Of a cluster: the object of an upload carries its id, and there may be no entry beside it.
            let carries = |skill: &Skill| {
                [&skill.ids, &skill.object_ids]
                    .iter()
                    .any(|ids| ids.iter().any(|id| id == identifier))
            };
            let row = shared.iter().position(|skill| carries(skill));
            if let Some(row) = row.and_then(|at| of_shared(shared).nth(at)) {
                return Ok(row);
            }
            let entry = store.get(owner, identifier).await;
            let entry = entry.map_err(|error| refused(error, identifier))?;
            let number = entry.default.ok_or_else(|| missing(identifier))?;
            return of_entry(entry.into(), number).ok_or_else(|| missing(identifier));
        }
        let entries = all(store, owner).await.map_err(|error| refused(error, identifier))?;
        let versions = entries.into_iter().flat_map(|entry| {
            let entry = Arc::new(entry);
            // Of two versions with one text, the one that was made last is meant.
            let is_last = |version: &&Version| {
                let last = entry.versions.iter().rfind(|other| other.version == version.version);
                last.is_some_and(|last| last.number == version.number)
            };
            let numbers: Vec<u32> = entry
                .versions
                .iter()
                .filter(is_last)
                .map(|version| version.number)
                .collect();
            numbers
                .into_iter()
                .filter_map(move |number| of_entry(entry.clone(), number))
        });
        let mut rows = visible(versions.chain(of_shared(shared)));
        let by_id = rows.iter().position(|row| row.item.id() == identifier);
        let at = by_id.or_else(|| {
            let named = resolve(&rows, identifier).or_else(|| resolve(&rows, &of_written(&rows, identifier)?))?;
            rows.iter().position(|row| std::ptr::eq(row, named))
        });
        at.map(|at| rows.swap_remove(at)).ok_or_else(|| missing(identifier))
    }

    /// The caller's skill of an id or a name, which has a row. A change is of the skill with all its versions, so none is named.
    pub(super) async fn own(self, id: &str) -> Result<SkillEntry, Refusal> {
        let entry = self.entry(id).await?;
        if entry.default.is_none() {
            return Err(missing(id));
        }
        Ok(entry)
    }

    async fn entry(self, id: &str) -> Result<SkillEntry, Refusal> {
        let Self {
            store, owner, shared, ..
        } = self;
        let of_files = || {
            let text = format!("{id} is served from files; change activation in its SKILL.md, or remove its folder");
            Refusal::new(RefusalKind::Forbidden, "id", text)
        };
        if of_shared(shared).any(|row| row.item.id() == id) {
            return Err(of_files());
        }
        if id.starts_with(ID_PREFIX) {
            return store.get(owner, id).await.map_err(|error| refused(error, id));
        }
        // The caller's own, also where one from files has the name in a higher version.
        let named = store.find(owner, id).await.map_err(|error| refused(error, id))?;
        if let Some(entry) = named {
            return Ok(entry);
        }
        if ids::with_version(id).is_some() {
            return Err(missing(id));
        }
        match self.find(id).await?.item {
            Item::Own(entry, _) => Ok(Arc::unwrap_or_clone(entry)),
            Item::Shared(..) => Err(of_files()),
        }
    }
}

/// The row that a reference comes to in a model request, by which the versions of an upload are one skill. `None`: no such skill
/// is served, or no such version of it.
fn as_models_name_it(catalog: &SkillCatalog, reference: &str) -> Option<Row<Item>> {
    let by_name_or_id = catalog.find(reference);
    let found = by_name_or_id.or_else(|| catalog.find_version(reference).ok().flatten())?;
    Some(of_skill(&found.skill))
}

/// The mode of a word of the API.
pub(super) fn mode_of(word: &str) -> Result<Mode, Refusal> {
    Mode::of_word(word).ok_or_else(|| Refusal::invalid("mode", "must be on, off or auto"))
}

/// The identifier by which rows are known, of one with the name that an install was written with.
fn of_written(rows: &[Row<Item>], identifier: &str) -> Option<String> {
    let named = |written: &str| {
        let row = rows.iter().find(|row| row.item.written() == Some(written))?;
        Some(row.name.clone())
    };
    named(identifier).or_else(|| {
        let (written, version) = identifier.rsplit_once('@')?;
        Some(format!("{}@{version}", named(written)?))
    })
}

/// The parameters of a list.
struct ListQuery {
    text: String,
    mode: Option<Mode>,
    enabled: Option<bool>,
    source: Option<String>,
    /// Whether the skills are the caller's own; `None`: these and those from files.
    is_own: Option<bool>,
    page: NumberedPage,
}

impl ListQuery {
    fn read(query: Option<&str>, owner: &Owner) -> Result<Self, Refusal> {
        let mut wanted = Self {
            text: String::new(),
            mode: None,
            enabled: None,
            source: None,
            is_own: None,
            page: NumberedPage::first(LIMIT_DEFAULT),
        };
        for (key, value) in parameters(query).filter(|(_, value)| !value.is_empty()) {
            match key.as_str() {
                "q" => wanted.text = value.to_lowercase(),
                "mode" => wanted.mode = Some(mode_of(&value)?),
                "enabled" => {
                    let enabled = value
                        .parse()
                        .map_err(|_| Refusal::invalid("enabled", "must be true or false"));
                    wanted.enabled = Some(enabled?);
                }
                "source" if SOURCES.contains(&value.as_str()) => wanted.source = Some(value),
                "source" => {
                    let text = format!("must be one of {}", SOURCES.join(", "));
                    return Err(Refusal::invalid("source", text));
                }
                "apiKeyId" if value == owner.shown() => wanted.is_own = Some(true),
                "apiKeyId" if value == SYSTEM => wanted.is_own = Some(false),
                "apiKeyId" => {
                    let text = format!("must be the id of the request's credential, or {SYSTEM}");
                    return Err(Refusal::invalid("apiKeyId", text));
                }
                _ => wanted.page.read(&key, &value)?,
            }
        }
        Ok(wanted)
    }

    fn takes(&self, row: &Row<Item>) -> bool {
        self.source.as_deref().is_none_or(|source| source == row.item.source())
            && self
                .is_own
                .is_none_or(|is_own| is_own == matches!(row.item, Item::Own(..)))
            && self.mode.is_none_or(|mode| mode == row.item.mode())
            && self
                .enabled
                .is_none_or(|enabled| enabled == (row.item.mode() != Mode::Off))
            && [
                Some(row.name.as_str()),
                row.item.written(),
                Some(row.item.description()),
            ]
            .into_iter()
            .flatten()
            .any(|text| text.to_lowercase().contains(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_is_asked_for_is_bounded() {
        let owner = Owner::from([1; 32]);
        for query in [
            "limit=0",
            "limit=101",
            "page=0",
            "page=x",
            "mode=manual",
            "source=elsewhere",
            "apiKeyId=another",
        ] {
            assert!(ListQuery::read(Some(query), &owner).is_err(), "{query}");
        }
        let query = "q=Two+w%C3%B6rds&mode=off&source=skillsmp&page=3&limit=5&other=x&apiKeyId=system";
        let wanted = ListQuery::read(Some(query), &owner).unwrap();
        assert_eq!(wanted.is_own, Some(false));
        let own = format!("apiKeyId={}", owner.shown());
        assert_eq!(ListQuery::read(Some(&own), &owner).unwrap().is_own, Some(true));
        assert_eq!((wanted.text.as_str(), wanted.mode), ("two wörds", Some(Mode::Off)));
        assert_eq!(
            (wanted.source.as_deref(), wanted.page.number, wanted.page.limit),
            (Some("skillsmp"), 3, 5)
        );
    }
}
