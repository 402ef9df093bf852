//! Adapters of `autoscore.json`: AUTO scoring and selection.

use knack_skill::autoscore::{self, ScoreIndex, ScoredSkill, Scorer};
use knack_skill::model::Skill;
use serde_json::{Value, json};

use super::injection::tools::{identity, planned};
use super::omniroute::{self, text};
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
    let plan = planned(&omniroute::catalog(input), &input["request"], &[])?;
    Ok(plan.tools.iter().filter_map(|tool| identity(tool)).collect())
}
