//! Environment values: tools that ask for one that the runtime does not grant, and grants that no tool asks for.

use std::collections::BTreeSet;

use knack_api::skill_status::{STATUS_TOOL_ENV_MAX, STATUS_TOOLS_MAX};
use knack_api::{Skill, SkillRuntime};
use knack_skill::tool_env::is_operational;
use kube::ResourceExt as _;

use super::JUDGE;
use super::types::{Rejection, RejectionReason};

/// What status says about a skill of whose tools some run without a value that they ask for, or which is granted a value for nothing.
pub(super) fn reservation(runtime: &SkillRuntime, skill: &Skill) -> Option<Rejection> {
    let status = skill.status.as_ref()?;
    let own = runtime.own_namespace();
    let (namespace, name) = (skill.namespace().unwrap_or_default(), skill.name_any());
    let grants = runtime
        .spec
        .env
        .iter()
        .filter(|grant| grant.names(own, &namespace, &name));
    let granted: BTreeSet<&str> = grants.map(|grant| grant.name.as_str()).collect();
    let missing: Vec<String> = status
        .tools
        .iter()
        .filter_map(|tool| {
            let names: Vec<&str> = tool
                .env
                .iter()
                .map(String::as_str)
                .filter(|name| !granted.contains(name))
                .collect();
            (!names.is_empty()).then(|| format!("{}: {}", tool.name, names.join(", ")))
        })
        .collect();
    let asked: BTreeSet<&str> = status
        .tools
        .iter()
        .flat_map(|tool| &tool.env)
        .map(String::as_str)
        .collect();
    // What a status has no room for, or what an earlier version did not write, may be asked for all the same.
    let is_whole = status.judged_by.as_deref() == Some(JUDGE)
        && status.tools.len() < STATUS_TOOLS_MAX
        && status.tools.iter().all(|tool| tool.env.len() < STATUS_TOOL_ENV_MAX);
    // A status leaves out the usual names, which a tool may ask for.
    let is_known = |name: &&str| is_whole && !is_operational(name);
    let unused: Vec<&str> = granted.difference(&asked).copied().filter(is_known).collect();
    let notes = [
        (!missing.is_empty()).then(|| {
            let text = format!(
                "tools run without environment values that they ask for: {}; grant them in spec.env of the runtime, or remove them from \
                 tool_env or env of the skill",
                missing.join("; ")
            );
            (RejectionReason::EnvNotGranted, text)
        }),
        (!unused.is_empty()).then(|| {
            let text = format!(
                "no declared tool that may get values asks for {}, so the grant has no effect; correct spec.env of the runtime, or tool_env or env of the skill",
                unused.join(", ")
            );
            (RejectionReason::EnvNotAsked, text)
        }),
    ];
    Rejection::of_notes(notes)
}

#[cfg(test)]
mod tests {
    use knack_api::Skill;
    use serde_json::{Value, json};

    use crate::selection::tests::{runtime, scope, skill};
    use crate::selection::{Audience, JUDGE, NamespaceLabels, RejectionReason, select};

    /// A skill with a status as a version wrote it.
    fn judged(version: &str, tools: Value) -> Skill {
        let mut skill = skill("blue", "weather", json!({}), json!({}));
        let status = skill.status.as_mut().unwrap();
        status.judged_by = Some(version.to_owned());
        status.tools = serde_json::from_value(tools).unwrap();
        skill
    }

    #[test]
    fn a_status_of_an_earlier_version_does_not_say_who_asks_for_nothing() {
        let grant =
            json!({"name": "A", "skills": ["weather"], "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        let runtime = runtime("blue", json!({"env": [grant]}));
        for (version, expected) in [("0.0.1", None), (JUDGE, Some(RejectionReason::EnvNotAsked))] {
            let (skill, none) = (judged(version, json!([{"name": "t"}])), NamespaceLabels::new());
            let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
            let note = selected[0].accepted.as_ref().unwrap();
            assert_eq!(note.as_ref().map(|note| note.reason), expected, "{version}");
        }
    }

    #[test]
    fn values_that_a_tool_asks_for_in_vain_and_grants_that_no_tool_asks_for_are_reported_by_name() {
        let tools =
            json!([{"name": "look"}, {"name": "rain", "env": ["REGION", "TOKEN"]}, {"name": "sun", "env": ["TOKEN"]}]);
        let grant = |name: &str, skills: &[&str]| json!({"name": name, "skills": skills, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        let all = || [grant("TOKEN", &["weather"]), grant("REGION", &["blue/weather"])];
        for (env, expected) in [
            (json!(all()), None),
            (
                json!([]),
                Some((
                    RejectionReason::EnvNotGranted,
                    "ask for: rain: REGION, TOKEN; sun: TOKEN; grant",
                )),
            ),
            (
                json!([grant("TOKEN", &["red/weather", "other"]), grant("REGION", &["weather"])]),
                Some((
                    RejectionReason::EnvNotGranted,
                    "ask for: rain: TOKEN; sun: TOKEN; grant",
                )),
            ),
            (
                json!([all()[0], all()[1], grant("TOKN", &["weather"])]),
                Some((
                    RejectionReason::EnvNotAsked,
                    "no declared tool that may get values asks for TOKN, so",
                )),
            ),
            // A status does not say who asks for it.
            (json!([all()[0], all()[1], grant("TZ", &["weather"])]), None),
            (
                json!([all()[1], grant("TOKN", &["weather"])]),
                Some((
                    RejectionReason::EnvNotGranted,
                    "no declared tool that may get values asks for TOKN, so",
                )),
            ),
        ] {
            let skill = judged(JUDGE, tools.clone());
            let none = NamespaceLabels::new();
            let runtime = runtime("blue", json!({"env": env}));
            let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
            let note = selected[0].accepted.as_ref().unwrap();
            assert_eq!(
                note.as_ref().map(|note| note.reason),
                expected.map(|(reason, _)| reason),
                "{env}"
            );
            if let Some((note, (_, text))) = note.as_ref().zip(expected) {
                assert!(
                    note.reason.is_reservation() && note.message.contains(text),
                    "{}",
                    note.message
                );
            }
        }
    }

    #[test]
    fn a_grant_is_not_called_unused_where_the_status_lists_only_a_part_of_what_is_asked_for() {
        let names: Vec<String> = (0..16).map(|number| format!("A{number:02}")).collect();
        let many: Vec<_> = (0..64).map(|number| json!({"name": format!("t{number}")})).collect();
        let grants = |names: &[String]| -> Vec<_> {
            let grant = |name: &String| json!({"name": name, "skills": ["weather"], "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
            names.iter().map(grant).collect()
        };
        for (tools, granted) in [
            (
                json!([{"name": "t", "env": names}]),
                [names.as_slice(), &["B".to_owned()]].concat(),
            ),
            (json!(many), vec!["B".to_owned()]),
        ] {
            let skill = judged(JUDGE, tools);
            let none = NamespaceLabels::new();
            let runtime = runtime("blue", json!({"env": grants(&granted)}));
            let selected = select(&runtime, &scope(&none), Audience::All, std::slice::from_ref(&skill));
            assert!(matches!(selected[0].accepted, Ok(None)), "{:?}", selected[0].accepted);
        }
    }
}
