//! Why a skill of the catalog was not active in a request, for logs and `x-knack`.

use std::collections::HashSet;

use super::types::{Note, Plan};
use crate::catalog::Catalog;
use crate::model::{ActivationMode, SkillRef};

/// One note for each skill whose body is not in the plan, in catalog order. Made on demand: a request does not pay for it.
pub fn unused(plan: &Plan, catalog: &Catalog) -> Vec<Note> {
    let active: HashSet<&SkillRef> = plan.active.iter().map(|active| &active.skill.id).collect();
    let idle = catalog
        .entries()
        .iter()
        .filter(|entry| !active.contains(&entry.skill.id));
    idle.map(|entry| {
        let text = if plan.off {
            "nothing is injected into this request"
        } else {
            match entry.mode {
                ActivationMode::Never => "mode Never",
                ActivationMode::OnRequest => "mode OnRequest, and the request does not name it",
                ActivationMode::Listed => "listed; its instructions come when the model loads it",
                ActivationMode::Auto => "mode Auto, and its score is below 3 or five others score higher",
                ActivationMode::Always => "mode Always, but not in the plan of this request",
            }
        };
        Note {
            skill: Some(entry.skill.id.clone()),
            text: text.to_owned(),
        }
    })
    .collect()
}
