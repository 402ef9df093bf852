//! A runtime's limit of risk: what is offered, what runs, what a model reads.

use std::sync::Arc;

use serde_json::json;

use super::tests::{argv, call, csv_chart, planned, ran, refusal, said};
use crate::catalog::{Catalog, CatalogSettings};
use crate::fixture::{mk_settings, mk_skill, mk_tool};
use crate::model::{ActivationMode, Skill, Tool};
use crate::risk::Risk;

/// By no name: not under its own, which is not offered but may be of a plan of a moment before, nor through
/// `run_skill_tool`, whose list of tools lacks it.
#[test]
fn a_tool_above_the_limit_of_risk_is_not_offered_and_runs_by_no_name() {
    let mut skill = csv_chart();
    skill.tools = [
        ("look", Risk::Safe),
        ("wipe", Risk::Dangerous),
        ("melt", Risk::Critical),
    ]
    .map(|(name, risk)| Tool { risk, ..mk_tool(name) })
    .to_vec();
    let limited = |mode, max_risk| limited(&skill, mode, max_risk);
    for (max_risk, runs) in [
        (Risk::Safe, &["look"][..]),
        (Risk::Moderate, &["look"]),
        (Risk::Dangerous, &["look", "wipe"]),
        (Risk::Critical, &["look", "wipe", "melt"]),
    ] {
        let (always, listed) = (
            limited(ActivationMode::Always, max_risk),
            limited(ActivationMode::Listed, max_risk),
        );
        let before = planned(&limited(ActivationMode::Always, Risk::Critical), &[], &[], &[]);
        let (now, through) = (planned(&always, &[], &[], &[]), planned(&listed, &[], &[], &[]));
        let (loaded, _) = said(call(&listed, &through, &[], "load_skill", r#"{"skill":"csv-chart"}"#));
        for tool in ["look", "wipe", "melt"] {
            let name = format!("csv-chart__{tool}");
            let is_run = runs.contains(&tool);
            assert_eq!(now.tool(&name).is_some(), is_run, "{max_risk:?}: {tool}");
            assert_eq!(loaded.contains(&format!("- {tool}:")), is_run, "{loaded}");
            let inner = json!({"skill": "csv-chart", "tool": tool, "arguments": {"path": "p"}}).to_string();
            for decision in [
                call(&always, &before, &[], &name, r#"{"path":"p"}"#),
                call(&listed, &through, &[], "run_skill_tool", &inner),
            ] {
                if is_run {
                    assert_eq!(argv(&ran(decision))[1], format!("{tool}.py"));
                    continue;
                }
                let text = refusal(decision);
                let limit = format!("tools up to {}", max_risk.as_str());
                for part in [tool, "csv-chart", limit.as_str(), "spec.maxRisk", "nothing ran"] {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
        let clashes: Vec<String> = always.clashes().iter().map(ToString::to_string).collect();
        assert_eq!(clashes.len(), 3 - runs.len(), "{clashes:?}");
        assert!(
            clashes.iter().all(|clash| clash.contains("raise spec.maxRisk")),
            "{clashes:?}"
        );
    }
}

fn limited(skill: &Skill, activation: ActivationMode, max_risk: Risk) -> Catalog {
    let skill = Skill {
        activation,
        ..skill.clone()
    };
    let settings = CatalogSettings {
        max_risk,
        ..mk_settings()
    };
    Catalog::compile(vec![Arc::new(skill)], settings)
}

#[test]
fn a_listed_skill_whose_tools_are_all_above_the_limit_has_instructions_only() {
    let mut skill = mk_skill("disk", ActivationMode::Listed);
    skill.tools = vec![Tool {
        risk: Risk::Moderate,
        hidden: true,
        ..mk_tool("wipe")
    }];
    for (max_risk, offered) in [(Risk::Safe, false), (Risk::Moderate, true)] {
        let plan = planned(&limited(&skill, ActivationMode::Listed, max_risk), &[], &[], &[]);
        assert_eq!(plan.tool("run_skill_tool").is_some(), offered, "{max_risk:?}");
        assert!(plan.tool("load_skill").is_some(), "{max_risk:?}");
    }
}
