//! The skills of `knack dev` for installers ([`crate::installer_index`]).
//!
//! Who asks is offered what a model request of his may name: the skills from files, and those that his credential
//! uploaded. The gateway has refused foreign hosts and web pages by then.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Response, Uri};
use knack_gateway::catalog::Snapshot;
use knack_gateway::skills_api::discovery::Discovery;
use knack_registry::index::ENTRIES_MAX;
use knack_skill::catalog::CatalogEntry;
use knack_skill::model::Skill;
use knack_skill::names;

use crate::cli::terminal;
use crate::installer_index::{FOLDER, HeldFiles, NotOffered, OfferedSkills, Site, SiteSkill};

/// Offers the skills of a snapshot to installers.
#[derive(Debug, Default)]
pub(super) struct ServedSkills(Site);

impl Discovery for ServedSkills {
    fn takes(&self, uri: &Uri) -> bool {
        uri.path().starts_with(FOLDER)
    }

    fn answer<'a>(&'a self, parts: &'a Parts, snapshot: Arc<Snapshot>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            let offered = SnapshotSkills::of(&snapshot);
            let response = self.0.answer(parts, "", parts.uri.path(), &offered).await;
            terminal::line(&format!(
                "{} skills index | {} {}",
                response.status().as_u16(),
                parts.method,
                parts.uri.path()
            ));
            response
        }
        .boxed()
    }
}

/// The skills of a snapshot that are offered.
struct SnapshotSkills {
    skills: Vec<Arc<Skill>>,
    shown: Vec<SiteSkill>,
}

impl SnapshotSkills {
    /// What requests may name by a name alone, if installers take the name, and no more than readers take.
    fn of(snapshot: &Snapshot) -> Self {
        let is_offered = |entry: &&CatalogEntry| {
            let name = &entry.skill.id.name;
            *entry.handle == **name && names::check(name).is_ok()
        };
        let offered = snapshot.served().filter(is_offered);
        let skills: Vec<Arc<Skill>> = offered
            .map(|entry| Arc::clone(&entry.skill))
            .take(ENTRIES_MAX)
            .collect();
        let shown = skills.iter().map(|skill| SiteSkill {
            name: skill.id.name.clone(),
            description: skill.description.clone(),
            digest: skill.digest.clone(),
        });
        Self {
            shown: shown.collect(),
            skills,
        }
    }
}

impl OfferedSkills for SnapshotSkills {
    fn skills(&self) -> &[SiteSkill] {
        &self.shown
    }

    fn files(&self, at: usize) -> BoxFuture<'_, Result<HeldFiles, NotOffered>> {
        let skill = self.skills.get(at).ok_or(NotOffered::NotFound);
        let held = skill.map(|skill| HeldFiles {
            files: skill.files.clone(),
            share: None,
        });
        futures::future::ready(held).boxed()
    }
}
