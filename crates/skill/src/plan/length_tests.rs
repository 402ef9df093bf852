//! Contracts of long texts: an input that a template repeats is refused before its text is made.

use super::tests::{Asked, ask, says};
use super::*;
use crate::autoscore::AutoContext;
use crate::fixture::{mk_catalog, mk_input, mk_settings, mk_skill};
use crate::model::Skill;
use crate::template::MAX_FILLED_BYTES;

/// A skill that repeats its input a thousand times.
fn echo(name: &str, mode: ActivationMode) -> Skill {
    Skill {
        inputs: vec![mk_input("text", false)],
        body: "{{text}}".repeat(1_000),
        ..mk_skill(name, mode)
    }
}

#[test]
fn a_mention_that_fills_a_template_beyond_the_bound_is_refused() {
    let catalog = mk_catalog([
        echo("a", ActivationMode::OnRequest),
        echo("b", ActivationMode::Always),
        mk_skill("c", ActivationMode::OnRequest),
    ]);
    let text = |name: &str, bytes: usize| format!("@{name} {}", "x".repeat(bytes));
    let bytes = MAX_FILLED_BYTES / 1_000;
    let half = bytes / 2 + 1;
    for (texts, refused) in [
        (vec![text("a", bytes)], None),
        (vec![text("a", bytes + 1)], Some("a")),
        (vec![text("b", bytes + 1)], Some("b")),
        (vec![text("a", half), text("b", half)], Some("b")),
        (vec![text("c", MAX_FILLED_BYTES + 1)], None),
    ] {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let skill = match ask(&catalog, &says(&texts)) {
            Ok(_) => None,
            Err(PlanError::InputsTooLong { skill, .. }) => Some(skill.to_string()),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(skill.as_deref(), refused);
    }
}

#[test]
fn a_pin_that_makes_a_template_too_long_leaves_its_text_out_and_says_so() {
    let skill = echo("a", ActivationMode::Always);
    let mut settings = mk_settings();
    settings.pins = vec![crate::catalog::Pin {
        skill: skill.id.clone(),
        mode: None,
        inputs: [("text".to_owned(), "x".repeat(MAX_FILLED_BYTES / 1_000 + 1))].into(),
        version: None,
    }];
    let catalog = Catalog::compile(vec![Arc::new(skill)], settings);
    let plan = ask(&catalog, &says(&["@a"])).unwrap();
    assert!(
        plan.system.contains("Its instructions are not shown: "),
        "{}",
        plan.system
    );
    let request = Asked {
        run_code: RunCode::Always,
        ..Asked::default()
    };
    let notes = ask(&catalog, &request).unwrap().notes;
    assert!(notes.iter().any(|note| note.text.contains("left out")), "{notes:?}");
}

/// Room is asked for what is of this request alone, before it is made.
#[test]
fn texts_of_named_skills_are_made_only_if_there_is_room_for_them() {
    let catalog = mk_catalog([
        echo("a", ActivationMode::OnRequest),
        mk_skill("b", ActivationMode::OnRequest),
        mk_skill("c", ActivationMode::Always),
    ]);
    let within = |header: &str, text: &str, room: &mut dyn FnMut(usize) -> bool| {
        let request = PlanRequest {
            provider: "openai",
            model: "m",
            user_texts: &[text],
            auto: &AutoContext::default,
            client_tools: &[],
            tool_choice: ToolChoice::Free,
            container: &[],
            run_code: RunCode::WithFiles,
            header: Some(header),
            max_tokens: None,
            run_of: None,
        };
        plan_within(&request, &catalog, room)
    };
    let mut asked = Vec::new();
    let planned = within("b", "@a xyz", &mut |bytes| {
        asked.push(bytes);
        true
    });
    assert_eq!(asked, [3_000 + "Instructions of b.".len()]);
    assert!(planned.unwrap().system.contains("xyz"));
    let refused = within("b", "hi", &mut |_| false).unwrap_err();
    assert_eq!(refused, PlanError::NoRoom { bytes: 18 });
    let planned = within("", "hi", &mut |_| panic!("the catalog's own text is there already"));
    assert!(planned.unwrap().shared);
}
