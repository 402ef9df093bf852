//! What is admitted, as what.

use std::collections::BTreeMap;

use knack_skill::LoadInput;
use knack_skill::model::SkillFile;
use knack_skill::problem::Profile;
use serde_json::{Value, json};

use super::*;
use crate::execution::job::Defaults;

const SKILL_MD: &str = "---\nname: weather\ndescription: Tells the weather.\n---\nText.\n";

fn skill() -> Arc<Skill> {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    let overrides = crate::api::SkillOverrides {
        tools: serde_json::from_value(json!([{"name": "now", "command": ["python3", "scripts/now.py"]}])).unwrap(),
        ..crate::api::SkillOverrides::default()
    };
    let loaded = knack_skill::load(LoadInput {
        id: SkillRef {
            namespace: "team".to_owned(),
            name: "weather".to_owned(),
        },
        files: BTreeMap::from([
            ("SKILL.md".to_owned(), file(SKILL_MD)),
            ("scripts/now.py".to_owned(), file("print(1)")),
        ]),
        overrides: overrides.to_load(),
        profile: Profile::Load,
    });
    Arc::new(loaded.skill.unwrap())
}

fn post(change: &Value) -> ExecutionPost {
    let mut post = json!({
        "protocol": PROTOCOL, "runtime": "run/default", "id": "01a2019a-15f4-7976-bee9-0a26ae79afeb", "skill": 0,
        "program": {"kind": "command", "argv": ["python3", "scripts/now.py", "Oslo"]},
        "mounts": [{"mount": "weather", "namespace": "team", "name": "weather", "digest": "d"}],
        "working_directory": {"skill": "weather"},
    });
    for (key, value) in change.as_object().cloned().unwrap_or_default() {
        post[key] = value;
    }
    serde_json::from_value(post).unwrap()
}

fn admitted(change: &Value, spec: &Value) -> Result<JobRequest, Problem> {
    admitted_asking(&json!(null), change, spec)
}

#[expect(clippy::unwrap_in_result, reason = "a runtime that cannot be read ends the test")]
fn admitted_asking(resources: &Value, change: &Value, spec: &Value) -> Result<JobRequest, Problem> {
    let object = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"namespace": "run", "name": "default"}, "spec": spec,
    });
    let runtime: SkillRuntime = serde_json::from_value(object).expect("a SkillRuntime");
    let post = post(change);
    let (id, skills) = read(&post)?;
    let mounted: Vec<Mounted> = skills
        .iter()
        .map(|_| Mounted {
            skill: skill(),
            revision: "abc".to_owned(),
            resources: serde_json::from_value(resources.clone()).unwrap(),
        })
        .collect();
    let (view, namespaces) = (RuntimeView::of(&runtime, &Defaults::new("img")), BTreeMap::new());
    let scope = Scope {
        cluster_default: false,
        namespaces: &namespaces,
        default_image: None,
        allow_image_tags: false,
    };
    let admission = Admission {
        mounted: &mounted,
        runtime: &runtime,
        view: &view,
        scope: &scope,
        caller: "team/app/u".to_owned(),
    };
    admit(post, id, admission)
}

/// Model-written code that names a skill is labelled with it and gets none of its secrets.
#[test]
fn grants_are_for_declared_tools_only() {
    for (change, granted) in [
        (json!({}), true),
        (
            json!({"program": {"kind": "command", "argv": ["python3", "scripts/now.py"]}}),
            true,
        ),
        (
            json!({"program": {"kind": "command", "argv": ["python3", "-c", "steal()"]}}),
            false,
        ),
        (
            json!({"program": {"kind": "code", "language": "python", "source": "steal()"}}),
            false,
        ),
        // The same words elsewhere than in the skill's folder name another file.
        (json!({"working_directory": "work"}), false),
        (json!({"skill": null}), false),
    ] {
        let request = admitted(&change, &json!({})).unwrap();
        assert_eq!(
            request.execution.skill.as_deref(),
            granted.then_some("team/weather"),
            "{change}"
        );
        assert_eq!(request.execution.caller, "team/app/u");
        assert!(request.execution.env.is_empty());
    }
}

#[test]
fn without_model_code_only_declared_tools_run() {
    let deny = json!({"sandbox": {"modelCode": "Deny"}});
    assert!(admitted(&json!({}), &deny).is_ok());
    let code = json!({"program": {"kind": "code", "language": "python", "source": "x"}});
    assert_eq!(admitted(&code, &deny).unwrap_err().code, ProblemCode::Forbidden);
}

#[test]
fn what_makes_no_sense_is_refused_by_the_name_of_its_field() {
    let mount = |name: &str| json!({"mount": name, "namespace": "team", "name": "weather", "digest": "d"});
    for (change, field) in [
        (json!({"protocol": PROTOCOL + 1}), "protocol"),
        (json!({"id": "x"}), "id"),
        (json!({"mounts": [mount("a/b")]}), "mounts"),
        (json!({"mounts": [mount("..")]}), "mounts"),
        (json!({"mounts": [mount("")]}), "mounts"),
        (
            json!({"mounts": [mount("w"), mount("w")], "working_directory": "work"}),
            "mounts",
        ),
        (json!({"skill": 1}), "skill"),
        (json!({"working_directory": {"skill": "other"}}), "working_directory"),
        (json!({"program": {"kind": "command", "argv": []}}), "argv"),
        (
            json!({"program": {"kind": "code", "language": "perl", "source": ""}}),
            "language",
        ),
    ] {
        let problem = admitted(&change, &json!({})).unwrap_err();
        assert_eq!(problem.code, ProblemCode::Invalid, "{change}");
        assert!(problem.message.contains(field), "{change}: {problem}");
    }
}

#[test]
fn the_runtimes_ceiling_binds() {
    let request = admitted(
        &json!({"limits": {"timeout_ms": 600_000}}),
        &json!({"sandbox": {"maxTimeoutSeconds": 20}}),
    );
    assert_eq!(request.unwrap().execution.limits.timeout.as_secs(), 20);
}

/// A pod of the pool serves whoever asks for no more than it has; the ceiling binds an older revision too.
#[test]
fn a_skill_gets_more_than_the_pool_has_up_to_the_ceiling() {
    let spec = json!({"sandbox": {
        "resources": {"limits": {"memory": "256Mi", "cpu": "500m"}},
        "maxResources": {"memory": "1Gi", "example.org/gpu": "1"},
    }});
    for (asked, memory) in [
        (json!(null), Ok(None)),
        (json!({"limits": {"memory": "128Mi"}}), Ok(None)),
        (json!({"limits": {"memory": "256Mi", "cpu": "100m"}}), Ok(None)),
        (json!({"limits": {"memory": "1Gi"}}), Ok(Some("1Gi"))),
        (json!({"limits": {"example.org/gpu": "1"}}), Ok(Some("256Mi"))),
        (json!({"limits": {"memory": "2Gi"}}), Err(())),
        (json!({"limits": {"example.org/gpu": "2"}}), Err(())),
        (json!({"limits": {"example.org/tpu": "1"}}), Err(())),
    ] {
        let got = admitted_asking(&asked, &json!({}), &spec);
        let got = got
            .map(|request| request.resources.map(|resources| resources.memory.limit))
            .map_err(|problem| assert_eq!(problem.code, ProblemCode::Forbidden));
        assert_eq!(got, memory.map(|memory| memory.map(str::to_owned)), "{asked}");
    }
}
