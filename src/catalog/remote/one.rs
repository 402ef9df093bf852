//! One skill of a hub's catalog, for the command line.

use std::sync::Arc;
use std::time::Duration;

use knack_skill::LoadInput;
use knack_skill::model::{Skill, SkillRef};
use knack_skill::problem::Profile;

use super::content::Content;
use super::convert::overrides_from_line;
use super::mirror::{Mirror, Taken};
use crate::hub_api::{CatalogLine, RuntimeName};
use crate::hub_client::HubClient;

/// Fetches a skill as it is served at a runtime, and the time limit of the runtime's runs. The error says what is there
/// instead.
pub async fn fetch_skill(
    client: &HubClient,
    runtime: &RuntimeName,
    id: &SkillRef,
) -> Result<(Arc<Skill>, Duration), String> {
    let mut lines = client
        .watch(&format!("/v1/catalog?runtime={runtime}"))
        .await
        .map_err(|error| error.to_string())?;
    let mut mirror = Mirror::default();
    while let Some(line) = lines
        .next_value::<CatalogLine>()
        .await
        .map_err(|error| error.to_string())?
    {
        if let Taken::Refused(why) = mirror.take(line) {
            return Err(why);
        }
    }
    let Some(settings) = mirror.settings() else {
        return Err(format!("the hub told nothing of SkillRuntime {runtime}"));
    };
    if settings.suspend {
        return Err(format!("SkillRuntime {runtime} is suspended (spec.suspend)"));
    }
    let Some((_, line)) = mirror.served().find(|(served, _)| *served == id) else {
        let mut names: Vec<String> = mirror
            .served()
            .map(|(served, _)| format!("{}/{}", served.namespace, served.name))
            .collect();
        names.truncate(SHOWN);
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(format!(
            "skill {}/{} is not served to this ServiceAccount at {runtime}; served: {names}",
            id.namespace, id.name
        ));
    };
    let mut content = Content::default();
    let digest = line.digest.clone();
    let mut failed = content.fetch(client, runtime, vec![digest.clone()]).await;
    let Some(tree) = content.get(&digest) else {
        return Err(failed
            .remove(&digest)
            .map_or_else(String::new, |error| error.to_string()));
    };
    let loaded = knack_skill::load(LoadInput {
        id: id.clone(),
        files: tree.files.clone(),
        overrides: overrides_from_line(&line.overrides),
        profile: Profile::Load,
    });
    let timeout = Duration::from_secs(settings.timeout_seconds);
    loaded
        .skill
        .map(|skill| (Arc::new(skill), timeout))
        .ok_or_else(|| format!("skill {}/{} has errors", id.namespace, id.name))
}

/// Names shown in an error: a screen of them.
const SHOWN: usize = 20;
