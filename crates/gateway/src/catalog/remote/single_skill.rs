//! One skill of a hub's catalog, for the command line.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::convert::overrides_from_line;
use knack_hub_api::{CatalogLine, RuntimeName};
use knack_memory::MemoryBudget;
use knack_skill::LoadInput;
use knack_skill::model::{Skill, SkillRef};
use knack_skill::problem::Profile;

use super::blobs::Blobs;
use super::content::{self, Content, Missing};
use super::mirror::{LineEffect, Mirror};

/// Why a skill was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub gave no answer, or refused.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The hub did not give the files that its catalog names.
    #[error(transparent)]
    Files(HubError),
    /// It does not exist, or cannot be used; the text lists what exists instead.
    #[error("{0}")]
    Skill(String),
}

impl FetchError {
    /// Whether asking again soon may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_transient(),
            Self::Files(error) => content::is_transient(error),
            Self::Skill(_) => false,
        }
    }
}

impl From<Missing> for FetchError {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Hub(error) => Self::Files(error),
            other @ Missing::Memory(_) => Self::Skill(other.to_string()),
        }
    }
}

impl From<String> for FetchError {
    fn from(text: String) -> Self {
        Self::Skill(text)
    }
}

/// Fetches a skill as it is served at a runtime, and the time limit of the runtime's runs. The error lists what exists
/// instead.
pub async fn fetch_skill(
    client: &HubClient,
    runtime: &RuntimeName,
    id: &SkillRef,
) -> Result<(Arc<Skill>, Duration), FetchError> {
    let mut lines = client.hub().watch(&format!("/v1/catalog?runtime={runtime}")).await?;
    let mut mirror = Mirror::default();
    while let Some(line) = lines.next_value::<CatalogLine>().await? {
        if let LineEffect::Refused(why) = mirror.take(line) {
            return Err(why.into());
        }
    }
    let Some(settings) = mirror.settings() else {
        return Err(format!("the hub sent no data about SkillRuntime {runtime}").into());
    };
    if mirror.is_suspended() {
        return Err(format!("SkillRuntime {runtime} is suspended (spec.suspend)").into());
    }
    let Some((_, line)) = mirror.served().find(|(served, _)| *served == id) else {
        let mut names: Vec<String> = mirror.served().map(|(served, _)| served.to_string()).collect();
        names.truncate(SHOWN);
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        return Err(format!("skill {id} is not served to this ServiceAccount at {runtime}; served: {names}").into());
    };
    let mut content = Content::new(Blobs::new(MemoryBudget::of_process()));
    let digest = line.digest.clone();
    let mut failed = content.fetch(client, runtime, vec![digest.clone()]).await;
    let Some(tree) = content.get(&digest) else {
        return Err(failed
            .remove(&digest)
            .map_or_else(|| FetchError::Skill(String::new()), FetchError::from));
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
        .ok_or_else(|| format!("skill {id} has errors").into())
}

/// Names shown in an error: a screen of them.
const SHOWN: usize = 20;
