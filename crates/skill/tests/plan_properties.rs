//! Properties that hold for any skills, requests and calls: no panic, legal and distinct names, bounded texts.

use std::collections::HashSet;
use std::sync::Arc;

use knack_skill::at_skill;
use knack_skill::autoscore::{AutoContext, AutoMessage, MAX_SELECTED, ScoreIndex, ScoredSkill};
use knack_skill::call::{CallContext, Decision, resolve};
use knack_skill::catalog::{Catalog, CatalogSettings, Node};
use knack_skill::fixture::{mk_empty_skill, mk_settings};
use knack_skill::model::{ActivationMode, CallForm, Skill, SkillFile, SkillRef, Tool};
use knack_skill::plan::{ContainerSkill, PlanError, PlanRequest, ToolChoice, plan};
use knack_skill::risk::Risk;
use knack_skill::{schema, texts};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mode() -> impl Strategy<Value = ActivationMode> {
    prop_oneof![
        Just(ActivationMode::Never),
        Just(ActivationMode::OnRequest),
        Just(ActivationMode::Listed),
        Just(ActivationMode::Auto),
        Just(ActivationMode::Always),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,3}(-[a-c]{1,3})?", "\\PC{0,80}", Just("load_skill".to_owned())]
}

prop_compose! {
    fn skill()(
        namespace in "[ab]", name in word(), description in "\\PC{0,300}", body in "\\PC{0,100}", activation in mode(),
        tags in prop::collection::vec(word(), 0..4), tools in prop::collection::vec((word(), any::<bool>()), 0..4),
        files in prop::collection::vec("[a-c/.]{1,6}", 0..3),
    ) -> Skill {
        let tool = |(name, hidden): (String, bool)| Tool {
            name, description: String::new(), command: vec!["python3".to_owned()], parameters: Vec::new(),
            input_schema: json!({"type": "object", "properties": {"x": {"type": "string"}}}), env: Vec::new(), hidden, call: CallForm::Words,
        risk: Risk::Safe,
        config: Vec::new(),
        };
        let file = SkillFile { bytes: Arc::from(&b"x"[..]), executable: false };
        Skill {
            id: SkillRef { namespace, name: name.clone() }, description, document: body.clone(), body, tags,
            tools: tools.into_iter().map(tool).collect(),
            files: files.into_iter().map(|path| (path, file.clone())).collect(),
            ..mk_empty_skill(&name, activation)
        }
    }
}

fn settings(max_listing_tokens: usize) -> CatalogSettings {
    CatalogSettings {
        node: Node::Present,
        max_listing_tokens,
        min_max_tokens: 0,
        ..mk_settings()
    }
}

/// Any JSON value of a few levels.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop_oneof![Just("string".to_owned()), Just("object".to_owned()), "[a-z]{0,3}"].prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type".to_owned()),
        Just("properties".to_owned()),
        Just("required".to_owned()),
        Just("items".to_owned()),
        "[a-c]"
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn plans_have_legal_distinct_names_and_calls_never_panic(
        skills in prop::collection::vec(skill(), 0..8),
        texts_said in prop::collection::vec(prop_oneof!["@[a-c-]{1,5} \\PC{0,20}", "\\PC{0,80}"], 0..4),
        client in prop::collection::vec(prop_oneof![Just("load_skill".to_owned()), "[a-c]{1,3}__[a-c]"], 0..3),
        container in prop::collection::vec(word(), 0..2),
        arguments in json_value(),
        raw in "\\PC{0,40}",
    ) {
        let catalog = Catalog::compile(skills.into_iter().map(Arc::new).collect(), settings(4_000));
        let said: Vec<&str> = texts_said.iter().map(String::as_str).collect();
        let client: Vec<&str> = client.iter().map(String::as_str).collect();
        let container: Vec<ContainerSkill<'_>> = container.iter().map(|id| ContainerSkill { kind: None, id }).collect();
        let auto = || AutoContext {
            messages: said.iter().map(|text| AutoMessage { user: true, text: Some((*text).to_owned()) }).collect(),
            ..AutoContext::default()
        };
        let request = PlanRequest {
            provider: "openai", model: "m", user_texts: &said, auto: &auto, client_tools: &client,
            tool_choice: ToolChoice::Free, container: &container, run_code: knack_skill::plan::RunCode::WithFiles, header: None, max_tokens: None, run_of: None,
        };
        let planned = match plan(&request, &catalog) {
            // It names a skill of mode Never.
            Err(PlanError::NotServed { .. }) => return Ok(()),
            planned => planned.unwrap(),
        };
        prop_assert_eq!(planned.container.ours.len() + planned.container.native.len(), container.len());
        let mut names: HashSet<&str> = client.iter().copied().collect();
        let distinct = names.len();
        for tool in planned.tools.iter() {
            prop_assert!(names.insert(&tool.name), "{} twice", tool.name);
            prop_assert!((1..=64).contains(&tool.name.len()));
            prop_assert!(tool.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
            prop_assert!(tool.name.as_bytes()[0].is_ascii_alphabetic());
        }
        prop_assert_eq!(names.len(), distinct + planned.tools.len());
        let validate = |_: &Value, _: &Value| Ok(());
        let context = CallContext { plan: &planned, catalog: &catalog, loaded: &[], validate: &validate };
        for tool in planned.tools.iter() {
            for arguments in [arguments.to_string(), raw.clone(), json!({"skill": raw, "path": raw, "command": raw}).to_string()] {
                if let Some(Decision::Text { text, .. }) = resolve(&context, &tool.name, &arguments) {
                    prop_assert!(text.len() <= 2 * texts::MAX_RESULT_BYTES);
                }
            }
        }
    }

    #[test]
    fn listings_keep_their_budget(skills in prop::collection::vec(skill(), 0..30), budget in 120_usize..400) {
        let catalog = Catalog::compile(skills.into_iter().map(|skill| {
            // Names as a catalog admits them: at most 63 bytes.
            let name = skill.id.name.chars().filter(char::is_ascii_alphanumeric).take(63).collect();
            Arc::new(Skill { activation: ActivationMode::Listed, id: SkillRef { name, ..skill.id.clone() }, ..skill })
        }).collect(), settings(budget));
        let auto = AutoContext::default;
        let request = PlanRequest {
            provider: "", model: "", user_texts: &[], auto: &auto, client_tools: &[],
            tool_choice: ToolChoice::Free, container: &[], run_code: knack_skill::plan::RunCode::WithFiles, header: None, max_tokens: None, run_of: None,
        };
        let system = plan(&request, &catalog).unwrap().system;
        prop_assert!(texts::tokens(system.len()) <= budget, "{} > {budget}", texts::tokens(system.len()));
    }

    #[test]
    fn scoring_by_replay_agrees_with_itself_and_keeps_winners(
        skills in prop::collection::vec((word(), "\\PC{0,60}", prop::collection::vec(word(), 0..3)), 0..12),
        messages in prop::collection::vec("([a-c]{1,3}[ -]){0,8}", 0..5),
    ) {
        let scored: Vec<ScoredSkill<'_>> = skills.iter()
            .map(|(name, description, tags)| ScoredSkill { name, description, tags, install_count: 0 }).collect();
        let index = ScoreIndex::build(&scored);
        let mut context = AutoContext::default();
        let mut before: Vec<usize> = Vec::new();
        for text in messages {
            context.messages.push(AutoMessage { user: true, text: Some(text) });
            let winners = index.replay("openai", &context);
            prop_assert!(winners.starts_with(&before) && winners.len() <= MAX_SELECTED);
            let now = index.select("openai", &context);
            prop_assert!(now.len() <= winners.len() || winners.len() == MAX_SELECTED);
            before = winners;
        }
    }

    #[test]
    fn schemas_of_any_shape_become_objects_and_stay_as_they_are_afterwards(value in json_value()) {
        let once = schema::normalize(&value);
        prop_assert!(once.is_object());
        prop_assert_eq!(schema::with_properties(&once)["type"].is_null(), false);
    }

    #[test]
    fn mentions_are_a_prefix_of_the_message(message in "@?[a-z0-9-]{0,5}\\PC{0,20}") {
        if let Some(mention) = at_skill::parse(&message) {
            prop_assert!(!mention.skill.is_empty() && !mention.text.is_empty());
            prop_assert!(message.strip_prefix('@').is_some_and(|rest| rest.starts_with(mention.skill)));
            prop_assert!(message.ends_with(mention.text));
        }
    }
}
