//! The skills of `knack dev` for installers ([`crate::installer_index`]).
//!
//! Who asks is offered what a model request of his may name: the skills from files, and those that his credential
//! uploaded. The gateway has refused foreign hosts and web pages by then.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Response, StatusCode, Uri};
use knack_gateway::callers::caller;
use knack_gateway::catalog::Snapshot;
use knack_gateway::skills_api::discovery::Discovery;
use knack_gateway::skills_api::skill_calls::SkillPaces;
use knack_registry::index::ENTRIES_MAX;
use knack_serving::sources::{Pace, SourcePermit, Sources};
use knack_skill::catalog::CatalogEntry;
use knack_skill::digest::hex;
use knack_skill::model::Skill;
use knack_skill::names;
use knack_wire::history::HistorySecret;
use tokio::time::Instant;

use crate::cli::terminal;
use crate::installer_index::{FOLDER, HeldFiles, NotOffered, OfferedSkills, Site, SiteSkill};

/// Requests of one caller: as many as reads of the Skills APIs.
const CALLS: Pace = SkillPaces::FOLDER.reads;

/// Offers the skills of a snapshot to installers.
#[derive(Debug)]
pub(super) struct ServedSkills {
    site: Site,
    calls: Arc<Sources>,
    /// For hashes of callers.
    secret: HistorySecret,
}

impl ServedSkills {
    /// `secret`: of callers' identities.
    pub(super) fn new(secret: HistorySecret) -> Self {
        Self {
            site: Site::default(),
            calls: Arc::new(Sources::new(CALLS)),
            secret,
        }
    }

    /// The right of the sender of a request to an answer.
    fn turn(&self, parts: &Parts) -> Result<SourcePermit, NotOffered> {
        let caller = hex(&caller::identify(&self.secret, &parts.headers, &parts.uri).bucket());
        // A key costs its sender nothing, an address does.
        let group = caller::unchecked_address(parts).map_or_else(|| caller.clone(), |address| address.to_string());
        let turn = self.calls.take_of_group(&group, &caller, Instant::now());
        turn.ok_or_else(|| {
            let Pace { at_once, burst, .. } = CALLS;
            let text = format!(
                "Too many requests by this caller: the limit is {at_once} at once, {burst} in a row, then {} a second.",
                CALLS.per_second()
            );
            NotOffered::Denied(StatusCode::TOO_MANY_REQUESTS, text, Some(1))
        })
    }
}

impl Discovery for ServedSkills {
    fn takes(&self, uri: &Uri) -> bool {
        uri.path().starts_with(FOLDER)
    }

    fn answer<'a>(&'a self, parts: &'a Parts, snapshot: Arc<Snapshot>) -> BoxFuture<'a, Response<Bytes>> {
        async move {
            let path = parts.uri.path();
            let response = match self.turn(parts) {
                Ok(_turn) => {
                    let offered = SnapshotSkills::of(&snapshot);
                    self.site.answer(parts, "", path, &offered).await
                }
                Err(refused) => refused.response(path),
            };
            terminal::line(&format!(
                "{} skills index | {} {}",
                response.status().as_u16(),
                parts.method,
                path
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

#[cfg(test)]
mod tests {
    use http::{Request, header};
    use knack_gateway::catalog::RuntimeSettings;

    use super::*;

    #[tokio::test]
    async fn a_caller_with_all_its_requests_under_way_is_refused_and_another_key_is_served() {
        let site = ServedSkills::new(HistorySecret::new([1; 32]));
        let snapshot = Arc::new(Snapshot::without_catalog(RuntimeSettings::default(), ""));
        let parts = |key: &str| {
            let asked = Request::get("/.well-known/agent-skills/index.json").header("authorization", key);
            asked.body(()).unwrap().into_parts().0
        };
        let ask = async |key: &str| site.answer(&parts(key), Arc::clone(&snapshot)).await;
        let under_way: Vec<SourcePermit> = (0..CALLS.at_once)
            .map(|_| site.turn(&parts("Bearer flood")).unwrap())
            .collect();
        let refused = ask("Bearer flood").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        assert_eq!(ask("Bearer other").await.status(), StatusCode::OK);
        drop(under_way);
        assert_eq!(ask("Bearer flood").await.status(), StatusCode::OK);
    }
}
