//! Contracts of plans: texts whole, order, names, limits.

use std::sync::Arc;

use super::*;
use crate::autoscore::{AutoContext, AutoMessage};
use crate::catalog::{Catalog, CatalogSettings, ModelCode, Node, Pin};
use crate::fixture::{mk_catalog, mk_file, mk_input, mk_ref, mk_settings, mk_skill, mk_tool};
use crate::model::{ActivationMode, Skill};

/// A request with members to set; everything else says nothing.
#[derive(Default)]
pub(super) struct Asked<'a> {
    pub(super) texts: Vec<&'a str>,
    pub(super) tools: Vec<&'a str>,
    pub(super) container: Vec<ContainerSkill<'a>>,
    pub(super) run_code: RunCode,
    pub(super) header: Option<&'a str>,
    pub(super) model: &'a str,
    pub(super) max_tokens: Option<u64>,
    pub(super) choice: Option<ToolChoice>,
}

pub(super) fn ask(catalog: &Catalog, asked: &Asked<'_>) -> Result<Plan, PlanError> {
    let auto = || AutoContext {
        messages: asked
            .texts
            .iter()
            .map(|text| AutoMessage {
                user: true,
                text: Some((*text).to_owned()),
            })
            .collect(),
        ..AutoContext::default()
    };
    plan(
        &PlanRequest {
            provider: "openai",
            model: asked.model,
            user_texts: &asked.texts,
            auto: &auto,
            client_tools: &asked.tools,
            tool_choice: asked.choice.unwrap_or(ToolChoice::Free),
            container: &asked.container,
            run_code: asked.run_code,
            header: asked.header,
            max_tokens: asked.max_tokens,
            run_of: None,
        },
        catalog,
    )
}

pub(super) fn asked(catalog: &Catalog, asked: &Asked<'_>) -> Plan {
    ask(catalog, asked).unwrap()
}

pub(super) fn says<'a>(texts: &[&'a str]) -> Asked<'a> {
    Asked {
        texts: texts.to_vec(),
        ..Asked::default()
    }
}

pub(super) fn names(plan: &Plan) -> Vec<&str> {
    plan.tools.iter().map(|tool| tool.name.as_str()).collect()
}

pub(super) fn active(plan: &Plan) -> Vec<&str> {
    plan.active.iter().map(|active| &*active.handle).collect()
}

pub(super) fn with_files(mut skill: Skill, paths: &[&str]) -> Skill {
    for path in paths {
        skill.files.insert((*path).to_owned(), mk_file(b"x"));
    }
    skill
}

pub(super) fn with_tools(mut skill: Skill, names: &[&str]) -> Skill {
    skill.tools = names.iter().map(|name| mk_tool(name)).collect();
    skill
}

fn tagged(name: &str, tags: &[&str]) -> Skill {
    Skill {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..mk_skill(name, ActivationMode::Auto)
    }
}

/// Whether a plan adds neither text nor tools to the request.
fn adds_nothing(plan: &Plan) -> bool {
    plan.system.is_empty() && plan.tools.is_empty()
}

#[test]
fn nothing_active_adds_nothing() {
    let catalog = mk_catalog([
        with_files(with_tools(mk_skill("a", ActivationMode::OnRequest), &["t"]), &["a.py"]),
        tagged("b", &["zebra"]),
        mk_skill("c", ActivationMode::Never),
    ]);
    let plan = asked(&catalog, &says(&["hello"]));
    assert!(adds_nothing(&plan) && plan.active.is_empty());
    assert_eq!(plan.added_tokens, 0);
}

#[test]
fn a_last_message_with_an_unknown_name_is_noted_without_the_name() {
    let catalog = mk_catalog([
        mk_skill("summary", ActivationMode::Listed),
        mk_skill("hidden-summary", ActivationMode::OnRequest),
    ]);
    let note = "the last message begins with @ and a name that no skill here has, so it is sent as text";
    for (texts, closest) in [
        (&["@article-summary text"][..], Some("; closest: summary")),
        (&["@somebody hello"], Some("")),
        (&["@summary text"], None),
        (&["@somebody hello", "hello"], None),
        (&["@somebody"], None),
    ] {
        let notes = asked(&catalog, &says(texts)).notes;
        let notes: Vec<&str> = notes.iter().map(|note| note.text.as_str()).collect();
        let expected = closest.map(|closest| format!("{note}{closest}"));
        assert_eq!(notes, expected.as_deref().into_iter().collect::<Vec<_>>(), "{texts:?}");
    }
    assert_eq!(asked(&mk_catalog([]), &says(&["@somebody hello"])).notes, []);
}

#[test]
fn listed_and_always_make_the_whole_text() {
    let catalog = mk_catalog([
        mk_skill("zeta", ActivationMode::Listed),
        with_files(mk_skill("pdf", ActivationMode::Always), &["b.md", "a.py"]),
        mk_skill("alpha", ActivationMode::Listed),
        mk_skill("house-style", ActivationMode::Always),
    ]);
    let plan = asked(&catalog, &says(&["hello"]));
    insta::assert_snapshot!(plan.system, @r#"
    # Skills
    Skills are prepared instructions and scripts. When a task matches one below, call load_skill with its name before acting, and follow what it returns. If its instructions are not visible in this conversation, load it again. Never claim a skill ran unless a tool result shows it.
    <available_skills>
    <skill name="alpha">Does alpha things.</skill>
    <skill name="zeta">Does zeta things.</skill>
    </available_skills>

    ---

    # Available Skills

    ## Skill: house-style

    Instructions of house-style.

    ---

    ## Skill: pdf

    Instructions of pdf.

    Files (read-only, skills/pdf/): a.py, b.md
    "#);
    assert_eq!(names(&plan), ["load_skill", "run_code"]);
    let bytes: usize = plan.system.len() + plan.tools.iter().map(|tool| tool.bytes()).sum::<usize>();
    assert_eq!(plan.added_tokens, bytes.div_ceil(4));
}

#[test]
fn plain_requests_share_the_catalogs_allocations() {
    let catalog = mk_catalog([
        mk_skill("a", ActivationMode::Always),
        mk_skill("b", ActivationMode::Listed),
    ]);
    let (one, two) = (asked(&catalog, &says(&["x"])), asked(&catalog, &says(&["y"])));
    assert!(one.shared && Arc::ptr_eq(&one.tools, &two.tools) && Arc::ptr_eq(&one.system, &two.system));
}

#[test]
fn skills_are_in_the_order_always_named_auto() {
    let skills = || {
        [
            mk_skill("always", ActivationMode::Always),
            tagged("auto-one", &["zebra"]),
            mk_skill("by-container", ActivationMode::OnRequest),
            mk_skill("by-header", ActivationMode::OnRequest),
            mk_skill("by-mention", ActivationMode::OnRequest),
        ]
        .map(|skill| with_tools(skill, &["t"]))
    };
    let catalog = mk_catalog(skills());
    let request = Asked {
        container: vec![ContainerSkill {
            kind: Some("custom"),
            id: "by-container",
        }],
        header: Some("default/by-header"),
        ..says(&["@by-mention draw a zebra", "@unknown name"])
    };
    let plan = asked(&catalog, &request);
    let order = ["always", "by-container", "by-header", "by-mention", "auto-one"];
    assert_eq!(active(&plan), order);
    assert_eq!(names(&plan), order.map(|name| format!("{name}__t")));
    assert_eq!(
        plan.container,
        ContainerPlan {
            ours: vec![0],
            versions: vec![None],
            native: vec![]
        }
    );
    for pair in order.windows(2) {
        assert!(
            plan.system.find(pair[0]).unwrap() < plan.system.find(pair[1]).unwrap(),
            "{pair:?}"
        );
    }
}

/// What a client of MCP is offered: its tools do not depend on modes, and their order and texts are those of requests.
#[test]
fn the_plan_of_all_has_the_tools_of_every_served_skill() {
    let skills = || {
        [
            with_tools(mk_skill("always", ActivationMode::Always), &["t"]),
            with_tools(tagged("auto", &["zebra"]), &["t"]),
            with_files(
                with_tools(mk_skill("listed", ActivationMode::Listed), &["t"]),
                &["a.py"],
            ),
            with_tools(mk_skill("never", ActivationMode::Never), &["t"]),
            with_tools(mk_skill("on-request", ActivationMode::OnRequest), &["t"]),
        ]
    };
    let declared = ["always__t", "auto__t", "listed__t", "on-request__t"];
    let catalog = mk_catalog(skills());
    let plan = plan_of_all(&catalog, |_| true);
    let generic = ["load_skill", "run_skill_tool", "run_code"];
    let mut found = names(&plan);
    assert_eq!(found[..3], generic);
    found[3..].sort_unstable();
    assert_eq!(found[3..], declared);
    let without = plan_of_all(&catalog, |entry| entry.skill.id.name != "on-request");
    assert!(!names(&without).contains(&"on-request__t"), "{:?}", names(&without));
    let plain = asked(&catalog, &says(&["hello"]));
    assert_eq!(plan.system, plain.system);
    for tool in plain.tools.iter() {
        let same = plan.tool(&tool.name).unwrap();
        assert_eq!(
            (&same.description, &same.schema_json),
            (&tool.description, &tool.schema_json)
        );
    }
    // One text and no file: the loader is there all the same, and so is code, where models may write any.
    let lone = || [mk_skill("lone", ActivationMode::Always)];
    assert_eq!(
        names(&plan_of_all(&mk_catalog(lone()), |_| true)),
        ["load_skill", "run_code"]
    );
    let denied = CatalogSettings {
        model_code: ModelCode::Deny,
        ..mk_settings()
    };
    assert_eq!(
        names(&plan_of_all(
            &Catalog::compile(lone().map(Arc::new).to_vec(), denied),
            |_| true
        )),
        ["load_skill"]
    );
    assert!(adds_nothing(&plan_of_all(
        &mk_catalog([mk_skill("never", ActivationMode::Never)]),
        |_| true
    )));
}

#[test]
fn a_mention_stays_active_while_it_is_in_the_history() {
    let catalog = mk_catalog([mk_skill("a", ActivationMode::OnRequest)]);
    let first = asked(&catalog, &says(&["@a do it"]));
    let later = asked(&catalog, &says(&["@a do it", "and now slower", "thanks"]));
    assert_eq!(first.system, later.system);
    assert!(adds_nothing(&asked(&catalog, &says(&["please @a do it"]))));
}

#[test]
fn the_last_mention_fills_the_inputs() {
    let template = Skill {
        body: "Summarise: {{article}}".to_owned(),
        inputs: vec![mk_input("article", true)],
        ..mk_skill("sum", ActivationMode::OnRequest)
    };
    let plan = asked(&mk_catalog([template]), &says(&["@sum one", "@sum two"]));
    assert!(
        plan.system.ends_with("## Skill: sum\n\nSummarise: two"),
        "{}",
        plan.system
    );
}

#[test]
fn auto_winners_stay_and_later_ones_are_appended() {
    let catalog = mk_catalog([tagged("cats", &["cat"]), tagged("ants", &["ant"])]);
    assert_eq!(active(&asked(&catalog, &says(&["a cat"]))), ["cats"]);
    assert_eq!(
        active(&asked(&catalog, &says(&["a cat", "an ant, an ant"]))),
        ["cats", "ants"]
    );
}

#[test]
fn auto_takes_at_most_five() {
    let catalog = mk_catalog((0..9).map(|i| tagged(&format!("skill{i}"), &["zebra"])));
    assert_eq!(asked(&catalog, &says(&["zebra", "zebra zebra"])).active.len(), 5);
}

#[test]
fn generic_tools_depend_on_the_catalog_only() {
    let listed = with_tools(mk_skill("l", ActivationMode::Listed), &["t"]);
    let on_request = with_files(mk_skill("o", ActivationMode::OnRequest), &["a.py"]);
    let catalog = mk_catalog([listed, on_request]);
    let all = ["load_skill", "run_skill_tool", "run_code"];
    assert_eq!(names(&asked(&catalog, &says(&["hi"]))), all);
    assert_eq!(names(&asked(&catalog, &says(&["@o hi"]))), all);
    assert!(names(&asked(&mk_catalog([mk_skill("a", ActivationMode::Always)]), &says(&[]))).is_empty());
}

#[test]
fn model_code_denied_leaves_run_code_out_and_node_is_in_the_enum() {
    let skills = || vec![Arc::new(with_files(mk_skill("a", ActivationMode::Always), &["a.py"]))];
    let denied = Catalog::compile(
        skills(),
        crate::catalog::CatalogSettings {
            model_code: ModelCode::Deny,
            ..mk_settings()
        },
    );
    assert_eq!(names(&asked(&denied, &says(&[]))), ["load_skill"]);
    let node = Catalog::compile(
        skills(),
        crate::catalog::CatalogSettings {
            node: Node::Present,
            ..mk_settings()
        },
    );
    let plan = asked(&node, &says(&[]));
    assert!(
        plan.tool("run_code")
            .unwrap()
            .schema_json
            .contains(r#""enum":["python","node"]"#)
    );
}

#[test]
fn without_a_tool_that_loads_skills_none_are_listed() {
    let catalog = mk_catalog([
        mk_skill("l", ActivationMode::Listed),
        mk_skill("pdf", ActivationMode::Always),
    ]);
    let plan = asked(
        &catalog,
        &Asked {
            tools: vec!["load_skill", "knack_load_skill"],
            ..says(&["x"])
        },
    );
    assert_eq!((names(&plan), active(&plan)), (vec![], vec!["pdf"]));
    assert!(!plan.system.contains("load_skill"), "{}", plan.system);
    assert!(
        plan.notes[0].text.contains("knack_load_skill is left out"),
        "{:?}",
        plan.notes
    );
}

#[test]
fn a_clients_tool_named_like_ours_wins() {
    let catalog = mk_catalog([
        mk_skill("l", ActivationMode::Listed),
        with_tools(mk_skill("pdf", ActivationMode::Always), &["extract", "fill"]),
    ]);
    let plan = asked(
        &catalog,
        &Asked {
            tools: vec!["load_skill", "pdf__extract"],
            ..says(&["x"])
        },
    );
    assert_eq!(names(&plan), ["knack_load_skill", "pdf__fill"]);
    assert!(plan.system.contains("call knack_load_skill with its name"));
    assert_eq!(plan.notes.len(), 1);
    assert!(plan.notes[0].text.contains("pdf__extract"), "{:?}", plan.notes);
    assert!(!plan.shared);
}

#[test]
fn requests_that_rule_tools_out_get_nothing_but_keep_their_container_clean() {
    let catalog = mk_catalog([mk_skill("a", ActivationMode::Always)]);
    let container = vec![ContainerSkill {
        kind: None,
        id: "litellm:a",
    }];
    for request in [
        Asked {
            choice: Some(ToolChoice::None),
            ..Asked::default()
        },
        Asked {
            choice: Some(ToolChoice::AllowedTools),
            ..Asked::default()
        },
        Asked {
            choice: Some(ToolChoice::Closed("legacy functions")),
            ..Asked::default()
        },
        Asked {
            header: Some("none"),
            ..Asked::default()
        },
        Asked {
            max_tokens: Some(63),
            ..Asked::default()
        },
    ] {
        let plan = asked(
            &catalog,
            &Asked {
                container: container.clone(),
                ..request
            },
        );
        assert!(plan.off && adds_nothing(&plan) && plan.active.is_empty());
        assert_eq!((plan.container.ours.as_slice(), plan.notes.len()), ([0].as_slice(), 1));
    }
    assert!(
        !asked(
            &catalog,
            &Asked {
                max_tokens: Some(64),
                ..Asked::default()
            }
        )
        .off
    );
}

#[test]
fn a_runtime_may_name_its_models() {
    let settings = crate::catalog::CatalogSettings {
        models: vec!["gpt-*".to_owned()],
        ..mk_settings()
    };
    let catalog = Catalog::compile(vec![Arc::new(mk_skill("a", ActivationMode::Always))], settings);
    assert!(
        !asked(
            &catalog,
            &Asked {
                model: "gpt-4o",
                ..Asked::default()
            }
        )
        .off
    );
    assert!(
        asked(
            &catalog,
            &Asked {
                model: "claude-x",
                ..Asked::default()
            }
        )
        .off
    );
}

#[test]
fn the_cap_lowers_modes_and_a_pin_may_go_higher() {
    let settings = crate::catalog::CatalogSettings {
        max_activation: ActivationMode::Listed,
        pins: vec![Pin {
            skill: mk_ref("default", "pinned"),
            mode: Some(ActivationMode::Always),
            inputs: [].into(),
            version: None,
        }],
        ..mk_settings()
    };
    let skills = ["capped", "pinned"].map(|name| Arc::new(mk_skill(name, ActivationMode::Always)));
    let plan = asked(&Catalog::compile(skills.to_vec(), settings), &says(&["x"]));
    assert_eq!(active(&plan), ["pinned"]);
    assert!(plan.system.contains("<skill name=\"capped\">"));
}

#[test]
fn unknown_ids_that_are_ours_by_form_are_errors() {
    let catalog = mk_catalog([mk_skill("a", ActivationMode::Never)]);
    for id in ["litellm:nope", "litellm_skill_x"] {
        let request = Asked {
            container: vec![ContainerSkill {
                kind: Some("custom"),
                id,
            }],
            ..Asked::default()
        };
        assert_eq!(
            ask(&catalog, &request).unwrap_err(),
            PlanError::UnknownSkill { id: id.to_owned() }
        );
    }
    let header = Asked {
        header: Some("nope"),
        ..Asked::default()
    };
    assert!(ask(&catalog, &header).unwrap_err().to_string().contains("\"nope\""));
}

#[test]
fn native_ids_pass_beside_ours() {
    let catalog = mk_catalog([mk_skill("a", ActivationMode::OnRequest)]);
    let request = Asked {
        container: vec![
            ContainerSkill {
                kind: Some("anthropic"),
                id: "a",
            },
            ContainerSkill {
                kind: Some("custom"),
                id: "skill_01abc",
            },
            ContainerSkill {
                kind: Some("custom"),
                id: "litellm:a",
            },
        ],
        ..Asked::default()
    };
    let plan = asked(&catalog, &request);
    assert_eq!(
        plan.container,
        ContainerPlan {
            ours: vec![2],
            versions: vec![None],
            native: vec![0, 1]
        }
    );
}

#[test]
fn litellm_skills_are_disclosed_exactly_as_their_document_says() {
    let mut skill = with_files(mk_skill("data-analysis", ActivationMode::OnRequest), &["core/main.py"]);
    skill.title = "Data Analysis Skill".to_owned();
    let plan = asked(
        &mk_catalog([skill]),
        &Asked {
            container: vec![ContainerSkill {
                kind: None,
                id: "litellm:data-analysis",
            }],
            ..Asked::default()
        },
    );
    assert!(plan.litellm);
    assert_eq!(
        &*plan.system,
        "---\n\n# Available Skills\n\n## Skill: Data Analysis Skill\n\nInstructions of data-analysis."
    );
    assert_eq!(names(&plan), ["data_analysis", "litellm_code_execution"]);
    assert_eq!(
        plan.tools[0].schema_json,
        r#"{"type":"object","properties":{},"required":[]}"#
    );
}

#[test]
fn two_namespaces_with_one_name_are_distinguished() {
    let other = Skill {
        id: mk_ref("team", "pdf"),
        ..mk_skill("pdf", ActivationMode::Always)
    };
    let catalog = mk_catalog([
        with_tools(mk_skill("pdf", ActivationMode::Always), &["t"]),
        with_tools(with_files(other, &["a.py"]), &["t"]),
    ]);
    let plan = asked(&catalog, &says(&["x"]));
    assert_eq!(active(&plan), ["default/pdf", "team/pdf"]);
    assert!(plan.system.contains("skills/team/pdf/"));
    let names = names(&plan);
    assert_eq!(names[2], "pdf__t");
    assert!(
        names[3].starts_with("pdf__t_") && names[3].len() == "pdf__t_".len() + 8,
        "{names:?}"
    );
    assert_eq!(catalog.clashes().len(), 2);
}
