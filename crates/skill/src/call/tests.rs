//! Contracts of calls: what runs, what is refused, what a model reads.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::autoscore::AutoContext;
use crate::catalog::{Catalog, CatalogSettings, ModelCode};
use crate::fixture::{mk_catalog, mk_file, mk_input, mk_settings, mk_skill, mk_tool};
use crate::model::{ActivationMode, Parameter, Skill};
use crate::plan::{ContainerSkill, Plan, PlanRequest, ToolChoice, plan};
use crate::risk::Risk;

pub(super) fn planned(catalog: &Catalog, texts: &[&str], tools: &[&str], container: &[ContainerSkill<'_>]) -> Plan {
    let auto = AutoContext::default;
    let request = PlanRequest {
        provider: "openai",
        model: "m",
        user_texts: texts,
        auto: &auto,
        client_tools: tools,
        tool_choice: ToolChoice::Free,
        container,
        run_code: crate::plan::RunCode::WithFiles,
        header: None,
        max_tokens: None,
        run_of: None,
    };
    plan(&request, catalog).unwrap()
}

/// Calls with a validator that accepts everything: what must be refused then is refused without it.
pub(super) fn call(catalog: &Catalog, plan: &Plan, loaded: &[LoadReference], name: &str, arguments: &str) -> Decision {
    let accept = |_: &Value, _: &Value| Ok(());
    resolve(
        &CallContext {
            plan,
            catalog,
            loaded,
            validate: &accept,
        },
        name,
        arguments,
    )
    .unwrap()
}

pub(super) fn said(decision: Decision) -> (String, bool) {
    match decision {
        Decision::Text { text, is_error, .. } => (text, is_error),
        Decision::Run(spec) => panic!("runs {:?}", spec.program),
    }
}

pub(super) fn ran(decision: Decision) -> RunSpec {
    match decision {
        Decision::Run(spec) => *spec,
        Decision::Text { text, .. } => panic!("says {text}"),
    }
}

/// The command line of a declared tool's run.
pub(super) fn argv(spec: &RunSpec) -> &[String] {
    match &spec.program {
        Program::Tool(tool) => &tool.argv,
        other => panic!("no declared tool: {other:?}"),
    }
}

/// The environment names that a run may get values of.
fn env(spec: &RunSpec) -> Vec<String> {
    match &spec.program {
        Program::Tool(tool) => tool.env.clone(),
        Program::Code { .. } | Program::Argv(_) => Vec::new(),
    }
}

pub(super) fn refusal(decision: Decision) -> String {
    let (text, is_error) = said(decision);
    assert!(is_error, "{text}");
    text
}

/// A listed skill with a tool, a text file, a binary file and a large file.
pub(super) fn csv_chart() -> Skill {
    let mut skill = mk_skill("csv-chart", ActivationMode::Listed);
    skill.version = Some("1.4.0".to_owned());
    skill.tools = vec![mk_tool("extract")];
    skill.env = vec!["TOKEN".to_owned()];
    for (path, bytes) in [
        ("notes.md", b"Notes.".to_vec()),
        ("logo.png", vec![0x89, 0xff, 0]),
        ("big.txt", vec![b'x'; 40_000]),
    ] {
        skill.files.insert(path.to_owned(), mk_file(&bytes));
    }
    skill
}

fn catalog() -> Catalog {
    mk_catalog([
        csv_chart(),
        mk_skill("secret", ActivationMode::OnRequest),
        mk_skill("style", ActivationMode::Always),
    ])
}

/// One call in a plain request on [`catalog`].
fn plain(name: &str, arguments: &Value) -> Decision {
    let catalog = catalog();
    let plan = planned(&catalog, &[], &[], &[]);
    call(&catalog, &plan, &[], name, &arguments.to_string())
}

#[test]
fn load_skill_gives_body_files_and_tools() {
    let (text, is_error) = said(plain("load_skill", &json!({"skill": "csv-chart"})));
    assert!(!is_error);
    insta::assert_snapshot!(text, @r#"
    <skill name="csv-chart" version="1.4.0">
    Instructions of csv-chart.
    </skill>
    Files: big.txt, logo.png, notes.md (read-only, in skills/csv-chart/)
    Tools (run_skill_tool):
    - extract: Runs extract. arguments: {"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}
    Tools find the files of this conversation below inputs/.
    "#);
}

#[test]
fn load_skill_reads_one_file() {
    let read = |path: &str| plain("load_skill", &json!({"skill": "csv-chart", "path": path}));
    for path in ["notes.md", "./notes.md", "skills/csv-chart/notes.md"] {
        assert_eq!(said(read(path)).0, "Notes.", "{path}");
    }
    assert!(said(read("logo.png")).0.contains("binary file (3 B)"));
    let (big, _) = said(read("big.txt"));
    assert!(big.len() < 33 * 1024 && big.contains("cut: big.txt has 40 kB"));
    assert!(refusal(read("../other/x")).contains("Files: big.txt, logo.png, notes.md"));
}

#[test]
fn unknown_skills_are_answered_with_the_closest_public_names() {
    let load = |name: &str| refusal(plain("load_skill", &json!({"skill": name})));
    assert_eq!(load("chart"), "No skill \"chart\". Closest: csv-chart.");
    // A skill that only a request may name stays unknown to the model.
    assert_eq!(load("secret"), "No skill \"secret\".");
    assert!(load(&"x".repeat(10_000)).len() < 200);
}

#[test]
fn template_inputs_are_filled_or_asked_for() {
    let template = Skill {
        body: "Summarise {{article}} in {{style}}.".to_owned(),
        inputs: vec![
            mk_input("article", true),
            crate::model::Input {
                default: Some("short".into()),
                ..mk_input("style", false)
            },
        ],
        ..mk_skill("sum", ActivationMode::Listed)
    };
    let catalog = mk_catalog([template]);
    let plan = planned(&catalog, &[], &[], &[]);
    let load = |arguments: Value| call(&catalog, &plan, &[], "load_skill", &arguments.to_string());
    let (text, _) = said(load(json!({"skill": "sum", "inputs": {"article": 7}})));
    assert_eq!(text, "<skill name=\"sum\">\nSummarise 7 in short.\n</skill>");
    let asked = refusal(load(json!({"skill": "sum"})));
    assert!(
        asked.ends_with("- article (required)\n- style (default: short)"),
        "{asked}"
    );
}

#[test]
fn a_record_makes_the_same_text_again_until_the_skill_changes() {
    let catalog = catalog();
    let plan = planned(&catalog, &[], &[], &[]);
    for arguments in [r#"{"skill":"csv-chart"}"#, r#"{"skill":"csv-chart","path":"notes.md"}"#] {
        let Decision::Text {
            text,
            loaded: Some(record),
            ..
        } = call(&catalog, &plan, &[], "load_skill", arguments)
        else {
            panic!("{arguments}")
        };
        assert_eq!(reload(&record, &plan, &catalog), text);
        let changed = mk_catalog([Skill {
            digest: "other".to_owned(),
            ..csv_chart()
        }]);
        assert_eq!(reload(&record, &plan, &changed), "This skill changed; load it again.");
        assert_eq!(
            reload(&record, &plan, &mk_catalog([])),
            "This skill changed; load it again."
        );
    }
}

#[test]
fn run_skill_tool_runs_in_the_skills_folder() {
    let spec = ran(plain(
        "run_skill_tool",
        &json!({"skill": "csv-chart", "tool": "extract", "arguments": {"path": "in.csv"}}),
    ));
    assert_eq!(argv(&spec), ["python3", "extract.py", "in.csv"]);
    assert_eq!(
        (&spec.cwd, spec.render),
        (&Cwd::Mount("skills/csv-chart".to_owned()), Render::Declared)
    );
    assert_eq!((spec.mounts.len(), env(&spec)), (1, vec!["TOKEN".to_owned()]));
    // Some models write the inner arguments as text.
    let inner = json!({"skill": "csv-chart", "tool": "extract", "arguments": "{\"path\": \"a\"}"});
    assert_eq!(argv(&ran(plain("run_skill_tool", &inner))).last().unwrap(), "a");
}

/// Environment grants are a member of declared tools, so model-written code cannot have them, even if it names such a
/// skill.
#[test]
fn only_a_declared_tool_asks_for_environment_values() {
    let mut skill = csv_chart();
    skill.files.insert("x.py".to_owned(), mk_file(b"x"));
    skill.tools[0].env = [
        "OTHER",
        "TOKEN",
        "OPENAI_API_KEY",
        "LD_PRELOAD",
        "KNACK_UPSTREAM_OPENAI_KEY",
    ]
    .map(str::to_owned)
    .to_vec();
    let catalog = mk_catalog([skill]);
    let id = ContainerSkill {
        kind: None,
        id: "litellm:csv-chart",
    };
    for (tool, arguments, container, expected) in [
        ("run_code", json!({"skill": "csv-chart", "code": "1"}), None, &[][..]),
        (
            "run_code",
            json!({"skill": "csv-chart", "command": "python3 skills/csv-chart/extract.py"}),
            None,
            &[],
        ),
        ("litellm_code_execution", json!({"code": "1"}), Some(id), &[]),
        (
            "run_skill_tool",
            json!({"skill": "csv-chart", "tool": "extract", "arguments": {"path": "a"}}),
            None,
            &["OTHER", "TOKEN"],
        ),
    ] {
        let plan = planned(&catalog, &[], &[], container.as_slice());
        let spec = ran(call(&catalog, &plan, &[], tool, &arguments.to_string()));
        assert_eq!(
            spec.skill.as_ref().unwrap().name,
            "csv-chart",
            "{tool}: the record names the skill"
        );
        assert_eq!(env(&spec), expected, "{tool}");
    }
}

/// A tool that executes what its arguments say is model-written code.
#[test]
fn a_tool_whose_arguments_name_the_program_gets_nothing_and_runs_only_where_model_code_does() {
    let mut skill = csv_chart();
    skill.tools[0].command = vec!["python3".to_owned(), "-u".to_owned()];
    skill.activation = ActivationMode::Always;
    let arguments = r#"{"path":"inputs/model.py"}"#;
    let resolved = |model_code| {
        let settings = CatalogSettings {
            model_code,
            ..mk_settings()
        };
        let catalog = Catalog::compile(vec![Arc::new(skill.clone())], settings);
        let plan = planned(&catalog, &[], &[], &[]);
        call(&catalog, &plan, &[], "csv-chart__extract", arguments)
    };
    let Program::Tool(tool) = ran(resolved(ModelCode::Allow)).program else {
        panic!("a declared tool")
    };
    assert!(tool.is_open);
    assert!(tool.admit(false, ModelCode::Allow, Risk::Critical).is_ok());
    assert!(
        tool.admit(true, ModelCode::Allow, Risk::Critical)
            .unwrap_err()
            .contains("environment values")
    );
    let denied = refusal(resolved(ModelCode::Deny));
    assert!(denied.contains("declared programs only"), "{denied}");
}

#[test]
fn model_code_that_is_denied_does_not_run_by_any_name() {
    let mut skill = mk_skill("gif", ActivationMode::OnRequest);
    skill.files.insert("core/gif.py".to_owned(), mk_file(b"x = 1"));
    let settings = CatalogSettings {
        model_code: ModelCode::Deny,
        ..mk_settings()
    };
    let denied = Catalog::compile(vec![Arc::new(skill.clone())], settings);
    let id = ContainerSkill {
        kind: None,
        id: "litellm:gif",
    };
    let plan = planned(&denied, &[], &[], &[id]);
    assert!(plan.tool("litellm_code_execution").is_none() && plan.tool("run_code").is_none());
    // A plan of a moment before the runtime was changed.
    let allowed = mk_catalog([skill]);
    for container in [&[id][..], &[]] {
        let plan = planned(&allowed, &[], &[], container);
        for name in ["litellm_code_execution", "run_code"] {
            if plan.tool(name).is_some() {
                let text = refusal(call(&denied, &plan, &[], name, r#"{"code":"1"}"#));
                assert_eq!(
                    text, "Error: this runtime runs declared tools only; nothing ran.",
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_tool_is_resolved_by_its_declared_name_as_the_gateway_does() {
    let skill = csv_chart();
    let resolve = |tool: &str, arguments: Value, allowed: Result<(), String>| {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        ToolRun::resolve(&skill, tool, arguments, &|_, _| allowed.clone())
    };
    let run = resolve("extract", json!({"path": "in.csv"}), Ok(())).unwrap();
    assert_eq!(
        (run.argv.as_slice(), run.skill),
        (
            &["python3", "extract.py", "in.csv"].map(str::to_owned)[..],
            skill.id.clone()
        )
    );
    for (tool, arguments, allowed, said) in [
        ("nope", json!({}), Ok(()), "has no tool \"nope\""),
        ("extract", json!({}), Ok(()), "\"path\" is required"),
        ("extract", json!({"path": "-rf"}), Ok(()), "must not begin with \"-\""),
        (
            "extract",
            json!({"path": 1}),
            Err("/path: 1 is not a string".to_owned()),
            "/path: 1 is not a string",
        ),
    ] {
        let refused = resolve(tool, arguments, allowed).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn nothing_runs_on_arguments_that_do_not_fit() {
    let call = |arguments: Value| refusal(plain("run_skill_tool", &arguments));
    let schema = r#"Schema: {"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
    let missing = call(json!({"skill": "csv-chart", "tool": "extract"}));
    assert!(
        missing.contains("\"path\" is required") && missing.ends_with(schema),
        "{missing}"
    );
    let not_json = call(json!({"skill": "csv-chart", "tool": "extract", "arguments": "{path"}));
    assert!(
        not_json.contains("not a JSON object") && not_json.ends_with(schema),
        "{not_json}"
    );
    assert!(call(json!({"skill": "csv-chart", "tool": "extract", "arguments": {"path": "-rf"}})).contains("\"-\""));
    assert!(call(json!({"skill": "csv-chart", "tool": "nope"})).contains("Its tools: extract."));
    assert!(call(json!({"skill": "zzz", "tool": "extract"})).starts_with("No skill \"zzz\""));
}

#[test]
fn the_validators_refusal_repeats_the_schema() {
    let catalog = catalog();
    let plan = planned(&catalog, &[], &[], &[]);
    let refuse = |_: &Value, _: &Value| Err("language: not one of [\"python\"]".to_owned());
    let context = CallContext {
        plan: &plan,
        catalog: &catalog,
        loaded: &[],
        validate: &refuse,
    };
    let text = refusal(resolve(&context, "run_code", r#"{"code":"1","language":"ruby"}"#).unwrap());
    assert!(text.contains("language: not one of") && text.ends_with(&plan.tool("run_code").unwrap().schema_json));
}

#[test]
fn run_code_takes_code_or_a_command() {
    let spec = ran(plain("run_code", &json!({"code": "print(1)"})));
    assert_eq!(
        spec.program,
        Program::Code {
            language: Language::Python,
            source: "print(1)".to_owned()
        }
    );
    assert_eq!((spec.cwd, spec.render, spec.skill), (Cwd::Work, Render::Code, None));
    let spec = ran(plain(
        "run_code",
        &json!({"command": "python3 skills/csv-chart/a.py 'x y'"}),
    ));
    assert_eq!(
        spec.program,
        Program::Argv(vec!["python3".into(), "skills/csv-chart/a.py".into(), "x y".into()])
    );
    for arguments in [json!({}), json!({"code": "1", "command": "ls"}), json!({"code": " "})] {
        assert!(
            refusal(plain("run_code", &arguments)).contains("either code or command"),
            "{arguments}"
        );
    }
    // What is not JSON is named as such: a model may write half of a surrogate pair.
    let catalog = catalog();
    let plan = planned(&catalog, &[], &[], &[]);
    let why = refusal(call(&catalog, &plan, &[], "run_code", r#"{"code": "print('\ud83d')"}"#));
    assert!(why.contains("not a JSON object") && why.contains("hex escape"), "{why}");
    let nothing = refusal(call(&catalog, &plan, &[], "run_code", ""));
    assert!(nothing.contains("either code or command"), "{nothing}");
    assert!(refusal(plain("run_code", &json!({"command": "a | b"}))).contains("no shell"));
    assert!(refusal(plain("run_code", &json!({"code": "1", "language": "node"}))).contains("no node"));
}

#[test]
fn run_code_sees_active_loaded_named_and_mentioned_skills_in_folders_of_their_own() {
    let skill = |name: &str, mode| {
        let mut skill = mk_skill(name, mode);
        skill.files.insert("same.py".to_owned(), mk_file(name.as_bytes()));
        skill
    };
    let catalog = mk_catalog([
        skill("active", ActivationMode::Always),
        skill("loaded", ActivationMode::Listed),
        skill("named", ActivationMode::Listed),
        skill("mentioned", ActivationMode::Listed),
        skill("idle", ActivationMode::Listed),
        skill("hidden", ActivationMode::OnRequest),
    ]);
    let plan = planned(&catalog, &[], &[], &[]);
    let Decision::Text {
        loaded: Some(record), ..
    } = call(&catalog, &plan, &[], "load_skill", r#"{"skill":"loaded"}"#)
    else {
        panic!()
    };
    let arguments =
        json!({"skill": "named", "code": "open('skills/mentioned/same.py'); open('skills/hidden/same.py')"});
    let spec = ran(call(&catalog, &plan, &[record], "run_code", &arguments.to_string()));
    let paths: Vec<&str> = spec.mounts.iter().map(|mount| mount.path.as_str()).collect();
    assert_eq!(
        paths,
        ["skills/active", "skills/loaded", "skills/mentioned", "skills/named"]
    );
    let own = |mount: &Mount| String::from_utf8(mount.skill.files["same.py"].bytes.to_vec()).unwrap();
    assert!(
        spec.mounts
            .iter()
            .all(|mount| mount.path == format!("skills/{}", own(mount)))
    );
}

#[test]
fn declared_tools_are_called_by_their_wire_name_or_by_name_at_version() {
    let mut skill = Skill {
        version: Some("2.0.0".into()),
        ..mk_skill("forms", ActivationMode::Always)
    };
    skill.tools = vec![mk_tool("fill")];
    skill.tools[0].parameters = vec![
        Parameter {
            name: "path".into(),
            description: String::new(),
            required: true,
        },
        Parameter {
            name: "page".into(),
            description: String::new(),
            required: false,
        },
    ];
    let catalog = mk_catalog([skill]);
    let plan = planned(&catalog, &[], &[], &[]);
    for name in ["forms__fill", "forms@2.0.0", "forms@latest"] {
        let spec = ran(call(&catalog, &plan, &[], name, r#"{"page":"3","path":"a.pdf"}"#));
        assert_eq!(argv(&spec), ["python3", "fill.py", "a.pdf", "--page", "3"]);
    }
    let accept = |_: &Value, _: &Value| Ok(());
    let context = CallContext {
        plan: &plan,
        catalog: &catalog,
        loaded: &[],
        validate: &accept,
    };
    for name in ["Bash", "load_skill", "forms@1.0.0", "forms", ""] {
        assert!(resolve(&context, name, "{}").is_none(), "{name}");
    }
}

#[test]
fn arguments_that_are_not_json_count_as_none_where_nothing_is_required() {
    let mut skill = mk_skill("now", ActivationMode::Always);
    skill.tools = vec![crate::model::Tool {
        input_schema: json!({"type": "object", "properties": {}}),
        ..mk_tool("now")
    }];
    let catalog = mk_catalog([skill]);
    let plan = planned(&catalog, &[], &[], &[]);
    for arguments in ["", "{", "null", "[1]", "\"x\""] {
        let spec = ran(call(&catalog, &plan, &[], "now", arguments));
        assert_eq!(argv(&spec), ["python3", "now.py"], "{arguments}");
    }
}

#[test]
fn litellm_code_runs_with_the_skills_files_in_the_work_directory() {
    let mut skill = mk_skill("gif", ActivationMode::OnRequest);
    skill.files.insert("core/gif.py".to_owned(), mk_file(b"x = 1"));
    let catalog = mk_catalog([skill]);
    let plan = planned(
        &catalog,
        &[],
        &[],
        &[ContainerSkill {
            kind: None,
            id: "litellm:gif",
        }],
    );
    let spec = ran(call(
        &catalog,
        &plan,
        &[],
        "litellm_code_execution",
        r#"{"code":"import core.gif"}"#,
    ));
    let staged: Vec<&str> = spec.staged.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        (staged, spec.sandbox.timeout_seconds, spec.render),
        (vec!["SKILL.md", "core/gif.py"], Some(120), Render::Litellm)
    );
    let (text, _) = said(call(&catalog, &plan, &[], "gif", "{}"));
    assert!(text.starts_with("<skill name=\"gif\">"), "{text}");
}

/// The runner makes `skills` itself; and of a file and a folder with one name there can be one.
#[test]
fn litellm_code_is_not_given_what_has_no_place_in_the_work_directory() {
    let mut first = mk_skill("gif", ActivationMode::OnRequest);
    for path in ["skills/helper.py", "data", ".env", "skillset/a.py"] {
        first.files.insert(path.to_owned(), mk_file(b""));
    }
    let mut second = mk_skill("png", ActivationMode::OnRequest);
    for path in ["skills", "data/x.csv", "data-2"] {
        second.files.insert(path.to_owned(), mk_file(b""));
    }
    let catalog = mk_catalog([first, second]);
    let plan = planned(
        &catalog,
        &[],
        &[],
        &["litellm:gif", "litellm:png"].map(|id| ContainerSkill { kind: None, id }),
    );
    let code = r#"{"code":"import data"}"#;
    let spec = ran(call(&catalog, &plan, &[], "litellm_code_execution", code));
    let staged: Vec<&str> = spec.staged.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(staged, ["SKILL.md", "data", "skillset/a.py", "data-2"]);
}

#[test]
fn generic_tools_follow_their_names_in_this_request() {
    let catalog = catalog();
    let plan = planned(&catalog, &[], &["load_skill", "run_skill_tool"], &[]);
    let (text, _) = said(call(
        &catalog,
        &plan,
        &[],
        "knack_load_skill",
        r#"{"skill":"csv-chart"}"#,
    ));
    assert!(text.contains("Tools (knack_run_skill_tool):"), "{text}");
    assert!(owner(&plan, "load_skill").is_none());
}

#[test]
fn catalogs_and_plans_cross_threads() {
    fn assert_shared<T: Send + Sync + 'static>() {}
    assert_shared::<Arc<Catalog>>();
    assert_shared::<Plan>();
    assert_shared::<RunSpec>();
}
