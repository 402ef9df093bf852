//! What is admitted, as what.

use std::collections::BTreeMap;

use knack_hub_api::{PROTOCOL, PROTOCOL_MIN};
use knack_skill::LoadInput;
use knack_skill::model::SkillFile;
use knack_skill::problem::Profile;
use serde_json::{Value, json};

use super::*;
use crate::jobs::Defaults;

const SKILL_MD: &str = "---\nname: weather\ndescription: Tells the weather.\n---\nText.\n";

/// What runs of a skill get that asks for an image: the image, if it is not the runtime's own, and that of its packages.
fn images_of(
    sandbox: &Value,
    packages: Option<&str>,
    spec: &Value,
) -> Result<(Option<String>, Option<String>), HubRefusal> {
    let mut asking = (*skill()).clone();
    asking.sandbox.image = sandbox["image"].as_str().map(str::to_owned);
    asking.sandbox.image_name = sandbox["imageName"].as_str().map(str::to_owned);
    let mounted = MountedSkill {
        skill: Arc::new(asking),
        memory: None,
        revision: "abc".to_owned(),
        resources: None,
        packages: packages.map(|image| EnvironmentImage {
            image: image.to_owned(),
            home: "/opt/knack/packages/env-1".to_owned(),
        }),
    };
    let request = admitted_with(&mounted, &json!({}), spec)?;
    Ok((request.image, request.packages.map(|packages| packages.image)))
}

#[test]
fn a_name_gets_the_runtimes_image_of_that_name_and_nothing_else() {
    let spec = json!({"sandbox": {"images": [
        {"name": "office", "image": "r.io/office@sha256:1"}, {"name": "tagged", "image": "r.io/office:1"},
        {"name": "own", "image": "img"},
    ]}});
    for (sandbox, packages, expected) in [
        (json!({}), None, Ok((None, None))),
        (
            json!({"imageName": "office"}),
            None,
            Ok((Some("r.io/office@sha256:1"), None)),
        ),
        // Packages are in an image of their own, on top of the named one.
        (
            json!({"imageName": "office"}),
            Some("r.io/e@sha256:1"),
            Ok((None, Some("r.io/e@sha256:1"))),
        ),
        (json!({"imageName": "offic"}), None, Err("no image of that name")),
        (
            json!({"imageName": "r.io/office@sha256:1"}),
            None,
            Err("no image of that name"),
        ),
        (json!({"imageName": "tagged"}), None, Err("has no digest")),
        (json!({"image": "r.io/office@sha256:1"}), None, Err("allowedImages")),
    ] {
        let got = images_of(&sandbox, packages, &spec);
        match (got, expected) {
            (Ok((image, packages)), Ok(expected)) => {
                assert_eq!((image.as_deref(), packages.as_deref()), expected, "{sandbox}");
            }
            (Err(refusal), Err(said)) => {
                assert_eq!(refusal.code, RefusalCode::Forbidden, "{sandbox}");
                assert!(refusal.message.contains(said), "{sandbox}: {refusal}");
            }
            (got, _) => panic!("{sandbox}: {got:?}"),
        }
    }
}

fn skill() -> Arc<Skill> {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    let overrides = knack_api::SkillOverrides {
        tools: serde_json::from_value(json!([
            {"name": "now", "command": ["python3", "scripts/now.py"], "env": ["TOKEN"], "parameters": [
                {"name": "place"}, {"name": "unit", "required": false},
            ]},
            {"name": "any", "command": ["python3"], "env": ["TOKEN"], "parameters": [{"name": "script"}]},
            {"name": "open", "command": ["python3"], "parameters": [{"name": "script"}]},
            {"name": "wipe", "command": ["python3", "scripts/table.py", "wipe"], "risk": "Dangerous"},
            {"name": "table", "command": ["python3", "scripts/table.py"], "parameters": [{"name": "name"}]},
        ]))
        .unwrap(),
        ..knack_api::SkillOverrides::default()
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
        "program": {"kind": "tool", "name": "now", "arguments": {"place": "Oslo"}},
        "mounts": [{"mount": "weather", "namespace": "team", "name": "weather", "digest": "d"}],
    });
    for (key, value) in change.as_object().cloned().unwrap_or_default() {
        post[key] = value;
    }
    serde_json::from_value(post).unwrap()
}

fn admitted(change: &Value, spec: &Value) -> Result<JobRequest, HubRefusal> {
    admitted_asking(&json!(null), change, spec)
}

#[expect(clippy::unwrap_in_result, reason = "resources that cannot be read end the test")]
fn admitted_asking(resources: &Value, change: &Value, spec: &Value) -> Result<JobRequest, HubRefusal> {
    let mounted = MountedSkill {
        skill: skill(),
        memory: None,
        revision: "abc".to_owned(),
        resources: serde_json::from_value(resources.clone()).unwrap(),
        packages: None,
    };
    admitted_with(&mounted, change, spec)
}

#[expect(clippy::unwrap_in_result, reason = "a runtime that cannot be read ends the test")]
fn admitted_with(mounted: &MountedSkill, change: &Value, spec: &Value) -> Result<JobRequest, HubRefusal> {
    let object = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"namespace": "run", "name": "default"}, "spec": spec,
    });
    let runtime: SkillRuntime = serde_json::from_value(object).expect("a SkillRuntime");
    let post = post(change);
    let (id, skills) = read(&post)?;
    let mounted = vec![mounted.clone(); skills.len()];
    let (resolved, namespaces) = (ResolvedRuntime::of(&runtime, &Defaults::new("img")), BTreeMap::new());
    let scope = Scope {
        cluster_default: false,
        namespaces: &namespaces,
        default_image: None,
        allow_image_tags: false,
        environments: None,
    };
    let admission = Admission {
        mounted: &mounted,
        runtime: &runtime,
        resolved: &resolved,
        scope: &scope,
        caller: "team/app/u".to_owned(),
    };
    admit(post, id, &admission)
}

/// A runtime that grants a value to the skill.
fn granting() -> Value {
    json!({"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}, "skills": ["team/weather"]}]})
}

/// The names of the values that the pod of a request gets.
fn values(request: &JobRequest) -> Vec<String> {
    let runtime: SkillRuntime = serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"namespace": "run", "name": "default"}, "spec": granting(),
    }))
    .unwrap();
    let resolved = ResolvedRuntime::of(&runtime, &Defaults::new("img"));
    let granted = resolved.grants_of(request.execution.tool.as_deref());
    granted.into_iter().map(|grant| grant.name).collect()
}

/// Programs of the sender, which are never taken for declared tools.
fn own_programs() -> [Value; 6] {
    [
        json!({"program": {"kind": "code", "language": "python", "source": "steal()"}}),
        json!({"program": {"kind": "code", "language": "python", "source": "steal()"}, "working_directory": {"skill": "weather"}}),
        json!({"program": {"kind": "command", "argv": ["python3", "-c", "steal()"]}}),
        // The command of the tool, word for word, and with more words.
        json!({"program": {"kind": "command", "argv": ["python3", "scripts/now.py"]}, "working_directory": {"skill": "weather"}}),
        json!({"program": {"kind": "command", "argv": ["python3", "scripts/now.py", "-rf", "x"]}, "working_directory": {"skill": "weather"}}),
        // As a gateway of the protocol before posted a declared tool.
        json!({"protocol": 1, "program": {"kind": "command", "argv": ["python3", "scripts/now.py", "Oslo"]}, "working_directory": {"skill": "weather"}}),
    ]
}

#[test]
fn grants_are_for_declared_tools_only() {
    let request = admitted(&json!({}), &granting()).unwrap();
    assert_eq!(values(&request), ["TOKEN"]);
    for change in own_programs() {
        let request = admitted(&change, &granting()).unwrap();
        assert_eq!(values(&request), [""; 0], "{change}");
        // The label is kept, so that the runs of a skill can be found by it.
        assert_eq!(
            request.skill.as_ref().map(|skill| &*skill.id.name),
            Some("weather"),
            "{change}"
        );
        assert_eq!(request.execution.caller, "team/app/u");
        assert!(request.execution.env.is_empty());
    }
}

#[test]
fn the_hub_makes_the_command_line_from_the_declaration() {
    let argv = |change: &Value| match admitted(change, &granting()).unwrap().execution.program {
        Program::Command { argv } => argv,
        Program::Code { .. } => panic!("a command"),
    };
    assert_eq!(argv(&json!({})), ["python3", "scripts/now.py", "Oslo"]);
    let change =
        json!({"program": {"kind": "tool", "name": "now", "arguments": {"unit": 1.5, "place": "Oslo", "more": "-c"}}});
    assert_eq!(argv(&change), ["python3", "scripts/now.py", "Oslo", "--unit", "1.5"]);
    let request = admitted(&json!({}), &granting()).unwrap();
    assert_eq!(
        request.execution.working_directory,
        WorkingDirectory::Skill("weather".to_owned())
    );
}

#[test]
fn a_tool_that_does_not_fit_its_declaration_is_refused() {
    let tool =
        |name: &str, arguments: Value| json!({"program": {"kind": "tool", "name": name, "arguments": arguments}});
    let mount = |name: &str| json!({"mount": name, "namespace": "team", "name": "weather", "digest": "d"});
    for (change, code, said) in [
        (tool("never", json!({})), RefusalCode::Invalid, "has no tool \"never\""),
        (tool("now", json!({})), RefusalCode::Invalid, "\"place\" is required"),
        (
            tool("now", json!({"place": null})),
            RefusalCode::Invalid,
            "/place: null is not of type",
        ),
        (
            tool("now", json!({"place": "-c"})),
            RefusalCode::Invalid,
            "must not begin with \"-\"",
        ),
        (
            tool("any", json!({"script": "inputs/x.py"})),
            RefusalCode::Forbidden,
            "gets no environment values",
        ),
        (json!({"skill": null}), RefusalCode::Invalid, "skill must be 0"),
        (
            json!({"mounts": [mount("weather"), mount("node_modules")]}),
            RefusalCode::Invalid,
            "exactly the skill",
        ),
        (
            json!({"working_directory": {"skill": "other"}}),
            RefusalCode::Invalid,
            "working_directory",
        ),
        (
            json!({"inputs": [{"path": ".npmrc", "data": {"text": ""}}]}),
            RefusalCode::Invalid,
            ".npmrc",
        ),
        (
            json!({"inputs": [{"path": "inputs/.local/lib/x.pth", "data": {"text": ""}}]}),
            RefusalCode::Invalid,
            ".local",
        ),
    ] {
        let refusal = admitted(&change, &granting()).unwrap_err();
        assert_eq!(refusal.code, code, "{change}: {refusal}");
        assert!(
            refusal.message.contains(said) && !refusal.message.starts_with("Error"),
            "{change}: {refusal}"
        );
    }
    // Without a value to get, it is as free as model-written code.
    assert!(admitted(&tool("open", json!({"script": "x.py"})), &granting()).is_ok());
}

#[test]
fn without_model_code_only_declared_tools_run() {
    let deny = json!({"sandbox": {"modelCode": "Deny"}});
    assert!(admitted(&json!({}), &deny).is_ok());
    for change in own_programs() {
        let refusal = admitted(&change, &deny).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Forbidden, "{change}");
        assert!(refusal.message.contains("modelCode"), "{refusal}");
    }
    let open = json!({"program": {"kind": "tool", "name": "open", "arguments": {"script": "inputs/x.py"}}});
    let refusal = admitted(&open, &deny).unwrap_err();
    assert!(
        refusal.code == RefusalCode::Forbidden && refusal.message.contains("declared programs only"),
        "{refusal}"
    );
}

/// Whatever its gateway knows of the limit, also as gateways of protocol 1 post a tool: by its command line.
#[test]
fn a_tool_above_the_runtimes_limit_of_risk_is_refused_here() {
    let tool = |protocol: u32| json!({"protocol": protocol, "program": {"kind": "tool", "name": "wipe"}});
    let command = |argv: &[&str]| json!({"protocol": 1, "program": {"kind": "command", "argv": argv}, "working_directory": {"skill": "weather"}});
    let wipes = [
        tool(1),
        tool(PROTOCOL),
        command(&["python3", "scripts/table.py", "wipe", "all"]),
    ];
    for (limit, is_run) in [
        (json!({}), true),
        (json!({"maxRisk": "Critical"}), true),
        (json!({"maxRisk": "Dangerous"}), true),
        (json!({"maxRisk": "Moderate"}), false),
        (json!({"maxRisk": "Safe"}), false),
    ] {
        for safe in [
            json!({}),
            command(&["python3", "scripts/table.py", "list"]),
            command(&["python3", "scripts/now.py", "wipe"]),
        ] {
            assert!(admitted(&safe, &limit).is_ok(), "{safe}, {limit}");
        }
        for wipe in &wipes {
            let answer = admitted(wipe, &limit);
            assert_eq!(answer.is_ok(), is_run, "{wipe}, {limit}");
            let Err(refusal) = answer else { continue };
            assert_eq!(refusal.code, RefusalCode::Forbidden);
            let limit = format!("up to {}", limit["maxRisk"].as_str().unwrap());
            for part in ["\"wipe\"", "\"weather\"", "Dangerous", limit.as_str(), "spec.maxRisk"] {
                assert!(refusal.message.contains(part), "{part}: {refusal}");
            }
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_the_name_of_its_field() {
    let mount = |name: &str| json!({"mount": name, "namespace": "team", "name": "weather", "digest": "d"});
    for (change, field) in [
        (json!({"protocol": PROTOCOL + 1}), "protocol"),
        (json!({"protocol": PROTOCOL_MIN - 1}), "protocol"),
        (json!({"id": "x"}), "id"),
        (json!({"mounts": [mount("a/b")]}), "mounts"),
        (json!({"mounts": [mount("..")]}), "mounts"),
        (json!({"mounts": [mount("")]}), "mounts"),
        (json!({"mounts": [mount("w"), mount("w")]}), "mounts"),
        (json!({"mounts": [mount("team/weather/x")]}), "mounts"),
        (json!({"mounts": [mount("team/weather"), mount("team")]}), "mounts"),
        (json!({"skill": 1}), "skill"),
        (json!({"working_directory": {"skill": "other"}}), "working_directory"),
        (json!({"program": {"kind": "command", "argv": []}}), "argv"),
        (
            json!({"program": {"kind": "code", "language": "perl", "source": ""}}),
            "language",
        ),
    ] {
        let refusal = admitted(&change, &json!({})).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Invalid, "{change}");
        assert!(refusal.message.contains(field), "{change}: {refusal}");
    }
}

/// A skill whose name another one has, too, is in a folder of its namespace.
#[test]
fn a_skill_that_shares_its_name_is_mounted_as_its_namespace_and_name() {
    let mount = json!({"mount": "team/weather", "namespace": "team", "name": "weather", "digest": "d"});
    let request = admitted(&json!({"mounts": [mount]}), &json!({})).unwrap();
    let folder = WorkingDirectory::Skill("team/weather".to_owned());
    assert_eq!(request.execution.working_directory, folder);
}

#[test]
fn the_runtimes_ceiling_binds() {
    let request = admitted(
        &json!({"limits": {"timeout_ms": 600_000}}),
        &json!({"sandbox": {"maxTimeoutSeconds": 20}}),
    );
    assert_eq!(request.unwrap().execution.limits.timeout.as_secs(), 20);
}

/// A pod of the pool serves a request that asks for no more than the pod has; the ceiling also holds for an older
/// revision.
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
            .map_err(|refusal| assert_eq!(refusal.code, RefusalCode::Forbidden));
        assert_eq!(got, memory.map(|memory| memory.map(str::to_owned)), "{asked}");
    }
}

/// Else a program could not have the address space for it.
#[test]
fn a_run_in_a_pod_with_much_memory_may_use_it() {
    for (memory, expected) in [("512Mi", None), ("8Gi", Some(8 << 30))] {
        let spec = json!({"sandbox": {"resources": {"limits": {"memory": memory}}}});
        let request = admitted_asking(&json!(null), &json!({}), &spec).unwrap();
        assert_eq!(request.execution.limits.memory_bytes, expected, "{memory}");
    }
}

/// Each mount is sent to the pod, whichever skill it is of.
#[test]
fn the_files_of_all_mounts_together_have_a_bound() {
    let mut large = (*skill()).clone();
    let file = SkillFile {
        bytes: vec![0; 8 << 20].into(),
        executable: false,
    };
    large.files = BTreeMap::from([("data".to_owned(), file)]);
    let mut mounted_bytes = 0;
    for _ in 0..8 {
        mounted_bytes = with_mount(mounted_bytes, &large).unwrap();
    }
    assert_eq!(mounted_bytes, 64 << 20);
    let refused = with_mount(mounted_bytes, &large).unwrap_err();
    assert_eq!(refused.code, RefusalCode::TooLarge);
    assert!(refused.message.contains("64 MiB"), "{refused}");
}

#[test]
fn a_run_holds_the_memory_of_what_it_mounts() {
    let memory = knack_memory::MemoryBudget::new(1 << 20);
    let mounted = MountedSkill {
        skill: skill(),
        memory: Some(Arc::new(memory.try_take(64 << 10).unwrap())),
        revision: "abc".to_owned(),
        resources: None,
        packages: None,
    };
    let request = admitted_with(&mounted, &json!({}), &json!({})).unwrap();
    drop(mounted);
    assert_eq!(memory.held_bytes(), 64 << 10);
    drop(request);
    assert_eq!(memory.held_bytes(), 0);
}
