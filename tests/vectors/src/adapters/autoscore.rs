//! Adapters of `autoscore.json`: AUTO scoring and selection.

use knack_skill::autoscore::{self, ScoreIndex, ScoredSkill, Scorer};
use knack_skill::model::{ActivationMode, Skill};
use serde_json::{Value, json};

use super::omniroute::{self, items, text};
use crate::facts;
use crate::registry::{Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("autoscore", "tokens", tokens),
    Op::new("autoscore", "name_tokens", name_tokens),
    Op::new("autoscore", "context", context),
    Op::new("autoscore", "score", score),
    Op::new("autoscore", "select", select),
];

fn tokens(input: &Value) -> Outcome {
    Ok(json!(autoscore::tokens(text(input, "text"))))
}

fn name_tokens(input: &Value) -> Outcome {
    Ok(json!(autoscore::name_tokens(text(input, "name"))))
}

fn context(input: &Value) -> Outcome {
    Ok(json!(facts::autoscore::context(&omniroute::context(&input["request"]))))
}

fn index(skills: &[Skill]) -> ScoreIndex {
    let scored: Vec<ScoredSkill<'_>> = skills
        .iter()
        .map(|skill| ScoredSkill {
            name: &skill.id.name,
            description: &skill.description,
            tags: &skill.tags,
            install_count: skill.install_count,
        })
        .collect();
    ScoreIndex::build(&scored)
}

fn score(input: &Value) -> Outcome {
    let index = index(&[omniroute::skill(&input["skill"])]);
    let request = omniroute::context(&input["request"]);
    let mut scorer = Scorer::new(&index, text(&input["request"], "provider"), &request);
    for text in request.messages.iter().filter_map(|message| message.text.as_deref()) {
        scorer.read(text);
    }
    Ok(json!(scorer.score(0)))
}

fn select(input: &Value) -> Outcome {
    let key = text(&input["request"], "apiKeyId");
    let visible = items(input, "skills")
        .iter()
        .filter(|skill| skill["apiKeyId"].as_str().is_none_or(|owner| owner == key));
    let (mut always, mut auto) = (Vec::new(), Vec::new());
    for skill in visible.map(omniroute::skill) {
        match skill.activation {
            ActivationMode::Always => always.push(skill),
            ActivationMode::Auto => auto.push(skill),
            _ => {}
        }
    }
    let selected = index(&auto).select(
        text(&input["request"], "provider"),
        &omniroute::context(&input["request"]),
    );
    let winners = selected.into_iter().filter_map(|place| auto.get(place));
    let names = always
        .iter()
        .chain(winners)
        .map(|skill| format!("{}@{}", skill.id.name, skill.version.as_deref().unwrap_or_default()));
    Ok(names.collect())
}
