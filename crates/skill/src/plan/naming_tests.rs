//! Contracts of naming a skill: by ids of other systems, and with the inputs that it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tests::{Asked, active, ask, asked, names, says};
use super::*;
use crate::call::{CallContext, Decision, resolve};
use crate::catalog::{Catalog, Clash, Pin, Unserved};
use crate::fixture::{mk_catalog, mk_input, mk_ref, mk_settings, mk_skill};
use crate::model::{ActivationMode, Skill, Upload};

const REAL: &str = "litellm_skill_6e0b9a52-6a3e-4d83-b0a5-8b8c6b1f1c77";

fn carrying(name: &str, ids: &[&str]) -> Skill {
    Skill {
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..mk_skill(name, ActivationMode::OnRequest)
    }
}

fn by_id(id: &str) -> Asked<'_> {
    Asked {
        container: vec![ContainerSkill {
            kind: Some("custom"),
            id,
        }],
        ..Asked::default()
    }
}

#[test]
fn an_id_of_another_system_names_the_skill_that_carries_it() {
    let catalog = mk_catalog([carrying("pdf", &[REAL, "skill_abc"]), carrying("other", &[])]);
    let prefixed = format!("litellm:{REAL}");
    for (id, tool) in [
        (prefixed.as_str(), "litellm_skill_6e0b9a52_6a3e_4d83_b0a5_8b8c6b1f1c77"),
        (REAL, "litellm_skill_6e0b9a52_6a3e_4d83_b0a5_8b8c6b1f1c77"),
        ("litellm:skill_abc", "skill_abc"),
        ("skill_abc", "skill_abc"),
        ("litellm:pdf", "pdf"),
    ] {
        let plan = asked(&catalog, &by_id(id));
        assert_eq!(
            (active(&plan), names(&plan), plan.litellm),
            (vec!["pdf"], vec![tool], true),
            "{id}"
        );
        assert_eq!(plan.container.ours, [0], "{id}");
    }
    let header = Asked {
        header: Some("skill_abc"),
        ..Asked::default()
    };
    assert_eq!(active(&asked(&catalog, &header)), ["pdf"]);
    for id in ["litellm:skill_abd", "litellm_skill_7", "litellm_7", "litellm:a/b"] {
        let error = ask(&catalog, &by_id(id)).unwrap_err();
        assert_eq!(error, PlanError::UnknownSkill { id: id.to_owned() });
        assert!(error.to_string().contains(id), "{error}");
    }
    assert_eq!(asked(&catalog, &by_id("skill_native")).container.native, [0]);
}

#[test]
fn a_version_behind_an_id_of_litellm_is_served_or_refused_by_name_and_the_tool_keeps_its_name() {
    let catalog = mk_catalog([Skill {
        version: Some("1.2.0".to_owned()),
        ..carrying("pdf", &[REAL])
    }]);
    for version in ["latest", "1.2.0", "^1"] {
        for id in [format!("{REAL}@{version}"), format!("litellm:{REAL}@{version}")] {
            let plan = asked(&catalog, &by_id(&id));
            let expected = (
                vec!["pdf"],
                vec!["litellm_skill_6e0b9a52_6a3e_4d83_b0a5_8b8c6b1f1c77"],
                true,
            );
            assert_eq!((active(&plan), names(&plan), plan.litellm), expected, "{id}");
        }
    }
    assert_eq!(active(&asked(&catalog, &by_id("litellm:pdf@^1"))), ["pdf"]);
    let missing = ask(&catalog, &by_id(&format!("litellm:{REAL}@2.0.0"))).unwrap_err();
    let PlanError::NoVersion(missing) = missing else {
        panic!("{missing:?}")
    };
    assert_eq!((&*missing.skill, &missing.there), (REAL, &vec!["1.2.0".to_owned()]));
    let unknown = ask(&catalog, &by_id("litellm_skill_7@latest")).unwrap_err();
    let id = "litellm_skill_7".to_owned();
    assert_eq!(unknown, PlanError::UnknownSkill { id });
}

#[test]
fn an_id_of_two_skills_names_neither_and_never_takes_a_name() {
    let catalog = mk_catalog([
        carrying("a", &["skill_x", "b", "a"]),
        carrying("b", &["skill_x"]),
        Skill {
            activation: ActivationMode::Never,
            ..carrying("c", &["skill_c"])
        },
    ]);
    for id in ["skill_x", "litellm:skill_x", "litellm:skill_x@latest"] {
        let written = id.split_once('@').map_or(id, |(id, _)| id);
        assert_eq!(
            ask(&catalog, &by_id(id)).unwrap_err(),
            PlanError::AmbiguousSkill { id: written.to_owned() }
        );
    }
    assert_eq!(active(&asked(&catalog, &by_id("litellm:b"))), ["b"]);
    assert_eq!(active(&asked(&catalog, &by_id("litellm:a"))), ["a"]);
    assert!(ask(&catalog, &by_id("litellm:skill_c")).is_err());
    let ids: Vec<&str> = catalog
        .clashes()
        .iter()
        .filter_map(|clash| match clash {
            Clash::Id { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["b", "skill_x"]);
}

fn template(name: &str, mode: ActivationMode) -> Skill {
    let mut style = mk_input("style", true);
    style.description = Some("How it should sound".to_owned());
    let mut length = mk_input("length", false);
    length.default = Some("short".to_owned());
    Skill {
        inputs: vec![mk_input("article", true), style, length],
        body: "Sum up {{article}} in a {{style}}, {{length}} way.".to_owned(),
        ..mk_skill(name, mode)
    }
}

fn pinned(skill: Skill, inputs: &[(&str, &str)]) -> Catalog {
    let pin = Pin {
        skill: mk_ref("default", &skill.id.name),
        mode: None,
        inputs: inputs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        version: None,
    };
    let settings = crate::catalog::CatalogSettings {
        pins: vec![pin],
        ..mk_settings()
    };
    Catalog::compile(vec![Arc::new(skill)], settings)
}

/// Independent of how a template becomes active: with all values its body is in the text, else the text asks for them,
/// and no placeholder is left empty.
#[test]
fn required_inputs_are_asked_for_whatever_names_the_skill() {
    use ActivationMode::{Always, OnRequest};
    let both = [("article", "A"), ("style", "dry")];
    let header = || Asked {
        header: Some("sum"),
        ..Asked::default()
    };
    let full = "Sum up A in a dry, short way.";
    let mentioned = "Sum up the text in a dry, short way.";
    for (what, catalog, request, filled) in [
        (
            "@name alone gives one of two",
            pinned(template("sum", OnRequest), &[]),
            says(&["@sum the text"]),
            None,
        ),
        (
            "@name and a pin",
            pinned(template("sum", OnRequest), &both[1..]),
            says(&["@sum the text"]),
            Some(mentioned),
        ),
        ("header", pinned(template("sum", OnRequest), &[]), header(), None),
        (
            "header and pin",
            pinned(template("sum", OnRequest), &both),
            header(),
            Some(full),
        ),
        ("container", pinned(template("sum", OnRequest), &[]), by_id("sum"), None),
        (
            "container and pin",
            pinned(template("sum", OnRequest), &both),
            by_id("sum"),
            Some(full),
        ),
        (
            "litellm",
            pinned(template("sum", OnRequest), &[]),
            by_id("litellm:sum"),
            None,
        ),
        (
            "litellm and pin",
            pinned(template("sum", OnRequest), &both),
            by_id("litellm:sum"),
            Some(full),
        ),
        (
            "Always",
            pinned(template("sum", Always), &both[..1]),
            says(&["x"]),
            None,
        ),
        (
            "Always and pin",
            pinned(template("sum", Always), &both),
            says(&["x"]),
            Some(full),
        ),
    ] {
        let plan = asked(&catalog, &request);
        assert_eq!(active(&plan), ["sum"], "{what}");
        if let Some(body) = filled {
            assert!(plan.system.contains(body), "{what}: {}", plan.system);
            assert!(!plan.system.contains("need inputs"), "{what}: {}", plan.system);
        } else {
            assert!(!plan.system.contains("Sum up"), "{what}: {}", plan.system);
            assert!(
                plan.system.contains("\n- style (required): How it should sound"),
                "{what}: {}",
                plan.system
            );
            let caller = if plan.litellm {
                "call sum with"
            } else {
                "call load_skill with skill \"sum\""
            };
            assert!(plan.system.contains(caller), "{what}: {}", plan.system);
            assert!(
                plan.tool(if plan.litellm { "sum" } else { "load_skill" }).is_some(),
                "{what}"
            );
        }
    }
}

#[test]
fn the_text_that_asks_for_inputs_reads_like_this() {
    let catalog = pinned(template("sum", ActivationMode::OnRequest), &[]);
    let plan = asked(&catalog, &says(&["@sum the text"]));
    insta::assert_snapshot!(plan.system, @r#"
    ---

    # Available Skills

    ## Skill: sum

    Does sum things.

    Its instructions need inputs. Take the values from the conversation, ask the user for those that it does not give, then call load_skill with skill "sum" and these inputs:
    - article (required) (given: the text after the skill's name)
    - style (required): How it should sound
    - length (default: short)
    "#);
    assert_eq!(plan.notes[0].text, "asks the model for its required inputs: style");
}

#[test]
fn the_call_that_gives_the_inputs_gets_the_instructions() {
    let catalog = pinned(template("sum", ActivationMode::OnRequest), &[("length", "long")]);
    let never = |_: &serde_json::Value, _: &serde_json::Value| Ok(());
    for (request, tool, arguments) in [
        (
            says(&["@sum the text"]),
            "load_skill",
            r#"{"skill":"sum","inputs":{"article":"A","style":"dry"}}"#,
        ),
        (
            by_id("litellm:sum"),
            "sum",
            r#"{"article":"A","style":"dry","other":1}"#,
        ),
    ] {
        let plan = asked(&catalog, &request);
        let context = CallContext {
            catalog: &catalog,
            plan: &plan,
            loaded: &[],
            validate: &never,
        };
        let decision = resolve(&context, tool, arguments).unwrap();
        let Decision::Text {
            text, is_error, loaded, ..
        } = decision
        else {
            panic!("{tool}")
        };
        assert!(!is_error && text.contains("Sum up A in a dry, long way."), "{text}");
        let inputs: BTreeMap<String, String> = loaded.unwrap().inputs;
        assert_eq!(inputs.keys().collect::<Vec<_>>(), ["article", "style"]);
        let Some(Decision::Text { text, is_error, .. }) = resolve(&context, tool, r#"{"skill":"sum"}"#) else {
            panic!("{tool}")
        };
        assert!(is_error && text.contains("style"), "{text}");
    }
}

/// `run_code` stands for a tool of the client's: with skills without files, with none at all, never where the runtime
/// denies it.
#[test]
fn run_code_is_there_for_a_tool_of_the_clients() {
    let settings = |model_code| crate::catalog::CatalogSettings {
        model_code,
        ..mk_settings()
    };
    let always = || vec![mk_skill("plain", ActivationMode::Always)];
    let named = |plan: &Plan| plan.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    let attached = || {
        vec![ContainerSkill {
            kind: Some("skill_reference"),
            id: "litellm:plain",
        }]
    };
    for (skills, model_code, run_code, container, tools) in [
        (vec![], ModelCode::Allow, RunCode::WithFiles, vec![], &[][..]),
        (vec![], ModelCode::Allow, RunCode::WithAttached, vec![], &[]),
        (vec![], ModelCode::Allow, RunCode::Always, vec![], &["run_code"]),
        (vec![], ModelCode::Deny, RunCode::Always, vec![], &[]),
        (always(), ModelCode::Allow, RunCode::Always, vec![], &["run_code"]),
        (always(), ModelCode::Allow, RunCode::WithAttached, vec![], &[]),
        (
            always(),
            ModelCode::Allow,
            RunCode::WithAttached,
            attached(),
            &["run_code"],
        ),
        (always(), ModelCode::Deny, RunCode::WithAttached, attached(), &[]),
    ] {
        let catalog = Catalog::compile(skills.into_iter().map(Arc::new).collect(), settings(model_code));
        let plan = asked(
            &catalog,
            &Asked {
                container,
                run_code,
                ..Asked::default()
            },
        );
        assert_eq!(named(&plan), tools, "{run_code:?}, {model_code:?}");
    }
    // A name that the client has already is not taken.
    let asked_with = Asked {
        run_code: RunCode::Always,
        tools: vec!["run_code"],
        ..Asked::default()
    };
    assert_eq!(named(&asked(&mk_catalog(vec![]), &asked_with)), ["knack_run_code"]);
}

#[test]
fn header_and_container_name_versions_and_a_mention_does_not() {
    let version = |number: u32, version: &str, ids: &[&str]| Skill {
        id: mk_ref(&format!("uploads-{number}"), "word"),
        version: Some(version.to_owned()),
        upload: Some(Upload {
            id: "skill_knack_w".to_owned(),
            number,
        }),
        ..carrying("word", ids)
    };
    let catalog = mk_catalog([
        version(1, "1.2.0", &["skill_knack_w:1"]),
        version(
            2,
            "2.0.0",
            &[
                "skill_knack_w:2",
                "skill_knack_w:skver_knack_b",
                "skill_knack_w:latest",
                "skill_knack_w",
            ],
        ),
        version(3, "1.3.0", &["skill_knack_w:3", "skill_knack_w:1790000000000003"]),
    ]);
    for (reference, handle, served) in [
        ("word@^1", "uploads-3/word", Some("1790000000000003")),
        ("word@1.2.0", "uploads-1/word", Some("1")),
        ("skill_knack_w:~1.2", "uploads-1/word", Some("1")),
        ("skill_knack_w:2", "uploads-2/word", None),
        ("skill_knack_w:latest", "uploads-2/word", Some("2")),
        ("skill_knack_w", "uploads-2/word", Some("2")),
    ] {
        let plan = asked(&catalog, &by_id(reference));
        let word = plan.container.versions[0].as_ref().map(|version| version.word.as_str());
        assert_eq!(word, served, "{reference}");
        let id = plan.container.versions[0]
            .as_ref()
            .and_then(|version| version.id.as_deref());
        let is_second = handle == "uploads-2/word" && served.is_some();
        assert_eq!(id, is_second.then_some("skver_knack_b"), "{reference}");
        assert_eq!(
            (active(&plan), &plan.container.ours[..]),
            (vec![handle], &[0][..]),
            "{reference}"
        );
        let header = Asked {
            header: Some(reference),
            ..Asked::default()
        };
        assert_eq!(active(&asked(&catalog, &header)), [handle], "{reference}");
    }
    for reference in ["word@^3", "skill_knack_w:^3"] {
        let error = ask(&catalog, &by_id(reference)).unwrap_err().to_string();
        assert!(
            error.contains("\"^3\"") && error.contains("2.0.0, 1.3.0, 1.2.0"),
            "{error}"
        );
        let header = Asked {
            header: Some(reference),
            ..Asked::default()
        };
        assert_eq!(ask(&catalog, &header).unwrap_err().to_string(), error);
    }
    assert_eq!(asked(&catalog, &by_id("skill_native@^1")).container.native, [0]);
    assert!(active(&asked(&catalog, &says(&["@word@^1 hello"]))).is_empty());
}

/// It is Knack's, whatever the vendor may have under its name; nothing of it is served.
#[test]
fn a_skill_of_mode_never_is_answered_with_why() {
    let upload = Skill {
        upload: Some(Upload {
            id: "skill_knack_up".to_owned(),
            number: 1,
        }),
        ids: vec![
            "skill_knack_up".to_owned(),
            "skill_knack_up:1".to_owned(),
            "litellm_skill_up".to_owned(),
        ],
        activation: ActivationMode::Never,
        ..mk_skill("up", ActivationMode::Never)
    };
    let carries = Skill {
        activation: ActivationMode::Never,
        ..carrying("file", &["vendor_id"])
    };
    let catalog = mk_catalog([upload, carries]);
    for (reference, why) in [
        ("up", "its mode is off"),
        ("up@^1", "its mode is off"),
        ("skill_knack_up", "its mode is off"),
        ("skill_knack_up:1", "its mode is off"),
        ("skill_knack_up:latest", "its mode is off"),
        ("litellm_skill_up", "its mode is off"),
        ("file", "its activation is Never"),
        ("default/file", "its activation is Never"),
        ("vendor_id", "its activation is Never"),
    ] {
        let header = Asked {
            header: Some(reference),
            ..Asked::default()
        };
        for request in [by_id(reference), header] {
            let error = ask(&catalog, &request).unwrap_err().to_string();
            let expected = format!("skill \"{reference}\" is here but not served: {why}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
    assert_eq!(asked(&catalog, &by_id("other")).container.native, [0]);
}

#[test]
fn a_skill_that_is_here_but_not_served_is_answered_with_why() {
    let unserved = |namespace: &str, name: &str, why: &str| Unserved {
        skill: mk_ref(namespace, name),
        why: why.to_owned(),
    };
    let settings = crate::catalog::CatalogSettings {
        unserved: vec![
            unserved("default", "broken", "InvalidSkill: SKILL.md:3: no YAML"),
            unserved("team", "served", "Suspended: spec.suspend is true"),
        ],
        ..mk_settings()
    };
    let catalog = Catalog::compile(vec![Arc::new(mk_skill("served", ActivationMode::OnRequest))], settings);
    let header = |name| Asked {
        header: Some(name),
        ..Asked::default()
    };
    for named in ["broken", "default/broken", "broken@^1", "litellm:broken"] {
        for request in [Some(header(named)).filter(|_| !named.contains(':')), Some(by_id(named))] {
            let Some(request) = request else { continue };
            let error = ask(&catalog, &request).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("skill \"{named}\" is here but not served: InvalidSkill: SKILL.md:3: no YAML")
            );
        }
    }
    // A skill of the name that is served, one that nobody has, a vendor's own.
    assert_eq!(active(&asked(&catalog, &header("served"))), ["served"]);
    assert!(matches!(
        ask(&catalog, &header("team/other")),
        Err(PlanError::UnknownSkill { .. })
    ));
    let vendors = Asked {
        container: vec![ContainerSkill {
            kind: Some("anthropic"),
            id: "broken",
        }],
        ..Asked::default()
    };
    assert_eq!(asked(&catalog, &vendors).container.native, [0]);
    // A message stays in its conversation, so its text stays text; the log says what it named.
    let plan = asked(&catalog, &says(&["@broken do it", "@broken again"]));
    assert!(plan.system.is_empty() && plan.tools.is_empty());
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        notes,
        ["@broken is here but not served: InvalidSkill: SKILL.md:3: no YAML"]
    );
}
