//! Contracts of the plan of a run: the tools of its skill, and nothing of any other one.

use super::tests::{active, names, with_files, with_tools};
use super::*;
use crate::autoscore::AutoContext;
use crate::catalog::CatalogSettings;
use crate::fixture::{mk_catalog, mk_ref, mk_settings, mk_skill};

/// A request that names a skill in every way there is, and has a tool of its own.
fn run_of(name: &str, catalog: &Catalog) -> Result<Plan, PlanError> {
    let request = PlanRequest {
        provider: "openai",
        model: "m",
        user_texts: &["@other text"],
        auto: &AutoContext::default,
        client_tools: &["ran__own"],
        tool_choice: ToolChoice::Free,
        container: &[],
        run_code: RunCode::Always,
        header: Some("other"),
        max_tokens: None,
        run_of: Some(&mk_ref("default", name)),
    };
    plan(&request, catalog)
}

fn skills() -> [crate::model::Skill; 5] {
    [
        with_files(
            with_tools(mk_skill("ran", ActivationMode::OnRequest), &["add", "own"]),
            &["add.py"],
        ),
        mk_skill("text", ActivationMode::Listed),
        with_tools(mk_skill("always", ActivationMode::Always), &["a"]),
        with_tools(mk_skill("other", ActivationMode::Listed), &["b"]),
        mk_skill("never", ActivationMode::Never),
    ]
}

#[test]
fn a_run_gets_the_tools_and_files_of_its_skill_and_of_no_other() {
    let plan = run_of("ran", &mk_catalog(skills())).unwrap();
    assert_eq!(active(&plan), ["ran"]);
    assert_eq!(plan.active[0].why, ActivationCause::Run);
    assert_eq!(
        names(&plan),
        ["run_code", "ran__add"],
        "the client's own tool stays its own"
    );
    assert_eq!(plan.notes[0].skill, Some(mk_ref("default", "ran")), "{:?}", plan.notes);
    assert_eq!(&*plan.system, "Files (read-only, skills/ran/): add.py");
    assert!(!plan.shared && !plan.off && !plan.litellm);
}

#[test]
fn a_run_of_a_skill_without_files_adds_no_text_and_no_code() {
    let plan = run_of("text", &mk_catalog(skills())).unwrap();
    assert!(plan.system.is_empty() && plan.tools.is_empty(), "{plan:?}");
    assert_eq!(active(&plan), ["text"]);
}

#[test]
fn a_run_has_no_code_of_a_model_where_the_runtime_denies_it() {
    let settings = CatalogSettings {
        model_code: ModelCode::Deny,
        ..mk_settings()
    };
    let catalog = Catalog::compile(skills().map(Arc::new).into(), settings);
    let plan = run_of("ran", &catalog).unwrap();
    assert_eq!((names(&plan), &*plan.system), (vec!["ran__add"], ""));
}

#[test]
fn a_run_of_a_skill_that_is_not_served_is_refused() {
    for name in ["never", "nobody"] {
        let refused = run_of(name, &mk_catalog(skills())).unwrap_err();
        let expected = PlanError::UnknownSkill {
            id: format!("default/{name}"),
        };
        assert_eq!(refused, expected);
    }
}
