//! No text makes a reader of the crate panic, and what they give keeps their promises.

use std::collections::BTreeSet;

use knack_skill::model::{Input, InputKind, Tool};
use knack_skill::{
    agent_flow, agentskills, argv, frontmatter, husk, inputs, names, registration, semver, template, tools, yaml,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn input(name: &str, default: Option<String>) -> Input {
    Input {
        name: name.to_owned(),
        label: String::new(),
        kind: InputKind::Text,
        required: false,
        default,
        description: None,
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        let key = prop_oneof![
            Just("name".to_owned()),
            Just("command".to_owned()),
            Just("parameters".to_owned()),
            Just("required".to_owned()),
            Just("default".to_owned()),
            Just("version".to_owned()),
            "\\PC{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Texts that look like SKILL.md, broken in many ways.
fn document() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("---\n".to_owned()),
        Just("--- \r\n".to_owned()),
        Just("\u{feff}".to_owned()),
        Just("name: x\n".to_owned()),
        Just("inputs:\n  - name: a\n".to_owned()),
        Just("tools:\n  - {name: t, command: x}\n".to_owned()),
        Just("model: {temperature: 3, max_tokens: -1}\n".to_owned()),
        Just("{{a}}{{b-c}}{{{\n".to_owned()),
        "\\PC{0,20}\n?",
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn readers_of_documents(text in document()) {
        if let frontmatter::Split::Found { yaml, .. } = frontmatter::split(&text, frontmatter::Delimiters::Lenient)
            && let Ok(node) = yaml::parse(yaml)
        {
            let _ = agentskills::strict_form(&node, yaml);
            let members = node.to_json().as_object().cloned().unwrap_or_default();
            let _ = agentskills::validate(&members, "x");
            let _ = husk::problems(&members);
        }
        let _ = agent_flow::create("x", &text, Some("1"), None);
        let _ = agent_flow::get("x", Some(&text));
        let _ = yaml::parse(&text);
    }

    #[test]
    fn readers_of_values(value in any_json()) {
        let _ = inputs::read(&value);
        let _ = registration::check(&value);
        let _ = husk::problems(value.as_object().unwrap_or(&Map::new()));
        let _ = agent_flow::parse_create_body(&value);
        let (declared, _) = tools::read(&value);
        let _ = tools::check(&declared);
    }

    #[test]
    fn an_argv_never_holds_a_flag_of_the_model(value in any_json(), arguments in any_json()) {
        let declared = json!([{"name": "t", "description": "d", "command": ["x"], "parameters": value}]);
        for declaration in tools::read(&declared).0 {
            let tool = Tool::from(declaration);
            let names: BTreeSet<String> = argv::parameters(&tool).iter().map(|parameter| format!("--{}", parameter.name)).collect();
            if let Ok(argv) = argv::build(&tool, &arguments) {
                for word in &argv[1..] {
                    prop_assert!(!word.starts_with('-') || names.contains(word), "{argv:?}");
                }
            }
        }
    }

    #[test]
    fn names_become_legal(text in "\\PC{0,90}") {
        prop_assert_eq!(names::check(&names::normalize(&text)), Ok(()));
        prop_assert_eq!(names::normalize(&names::normalize(&text)), names::normalize(&text));
    }

    #[test]
    fn a_text_without_placeholders_is_not_changed(text in "[^{]{0,60}") {
        prop_assert_eq!(template::substitute(&text, &[], |_| None), Ok(text.clone()));
    }

    #[test]
    fn no_placeholder_is_left(text in "[a{}\\- ]{0,40}") {
        let done = template::substitute(&text, &[], |_| None).unwrap();
        // One pass: what is left can only have come together by the removal.
        prop_assert!(done.len() <= text.len());
        prop_assert_eq!(template::undeclared(&text, &BTreeSet::new()).is_empty(), done == text);
    }

    #[test]
    fn the_length_of_a_filled_text_is_known_before_it_is_made(
        text in "([ab{}é]|\\{\\{[abc]\\}\\}){0,30}",
        values in prop::collection::btree_map("[a-d]", "[a{}é]{0,9}", 0..4),
        default in prop::option::of("[x{}]{0,5}"),
    ) {
        let inputs: Vec<Input> = ["a", "b"].map(|name| input(name, default.clone())).into();
        let given = |name: &str| values.get(name).map(String::as_str);
        let filled = template::substitute(&text, &inputs, given).unwrap();
        prop_assert_eq!(template::filled_bytes(&text, &inputs, given), filled.len());
    }

    #[test]
    fn a_resolved_version_meets_its_constraint(
        versions in prop::collection::vec("[0-3]\\.[0-3]\\.[0-3]", 0..8),
        constraint in "(\\^|~|>|>=|<|<=|==|)[0-3]\\.[0-3]\\.[0-3]|\\PC{0,8}",
    ) {
        let found = semver::resolve(versions.iter().map(String::as_str), &constraint);
        if let Some(found) = found {
            let constraint: semver::Constraint = constraint.parse().expect("only a constraint resolves");
            prop_assert!(constraint.holds(found.parse().expect("only versions are found")));
        }
    }
}
