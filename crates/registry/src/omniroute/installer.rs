//! Installs: a new skill, or one more version of the one of that name.

use serde_json::{Value, json};

use super::caller_skills::CallerSkills;
use super::dry_run::preview;
use super::install::Installation;
use super::rows::refused;
use crate::answer::{Refusal, RefusalKind};
use crate::catalogs::{Catalog, Catalogs};
use crate::model::SkillEntry;
use crate::reader::Reader;

/// Where installs come from, and what reads them.
#[derive(Clone, Copy)]
pub(crate) struct Installer<'a> {
    /// Reads and checks files.
    pub(crate) reader: &'a Reader,
    /// The catalogs to install from, if there are any.
    pub(crate) catalogs: Option<&'a Catalogs>,
}

impl Installer<'_> {
    /// Keeps a new skill, or a new version of the one of that name, which is served from now on; or says what that would change. The
    /// answer is that of the API.
    pub(super) async fn install(
        self,
        skills: CallerSkills<'_>,
        new: Installation,
        is_dry_run: bool,
    ) -> Result<Value, Refusal> {
        let CallerSkills { store, owner, .. } = skills;
        let name = new.draft.name.clone();
        let found = store.find(owner, &name).await.map_err(|error| refused(error, &name))?;
        if let Some(entry) = &found {
            demand_same_name(entry, &new)?;
            let is_new = entry.demand_new(&new.draft);
            is_new.map_err(|error| refused(error, &entry.id))?;
        }
        if is_dry_run {
            return preview(skills, self.reader, found, new).await;
        }
        let kept = match found {
            None => store.create(owner, new.title, new.draft).await,
            Some(entry) => store.add_version(owner, &entry.id, new.draft, true).await,
        };
        let entry = kept.map_err(|error| refused(error, &name))?;
        Ok(json!({"success": true, "id": entry.id}))
    }
}

/// Refuses another name with the same slug: it means another skill. An index has names of requests only.
fn demand_same_name(entry: &SkillEntry, new: &Installation) -> Result<(), Refusal> {
    let (name, id) = (&entry.name, &entry.id);
    let old = entry.written().unwrap_or(name);
    if new.draft.catalog == Some(Catalog::Index) || old == new.title.as_deref().unwrap_or(name) {
        return Ok(());
    }
    let text = format!(
        "its name in requests is {name}, which the skill {old:?} ({id}) already has; install it as {old:?} to add a version to that \
         skill, choose another name, or delete that skill first"
    );
    Err(Refusal::new(RefusalKind::Conflict, "name", text))
}
