//! `knack skill validate`, `run` and `schema`.

use serde_json::{Value, json};

use super::program::{folder, knack};
use super::{err, out};

const GOOD: &str = "---\nname: good\ndescription: Adds.\ntools:\n  - name: add\n    description: Adds two numbers.\n    \
                    command: [python3, add.py]\n    parameters:\n      - {name: a, description: one}\n      - {name: b, description: two}\n---\nAdd.\n";
const ADD: &str = "import sys\nprint(sys.argv[1:])\n";
const FILES: &[(&str, &str)] = &[
    ("skills/good/SKILL.md", GOOD),
    ("skills/good/add.py", ADD),
    ("skills/odd/SKILL.md", "---\nname: odd\n---\nNo description.\n"),
    ("skills/bad/SKILL.md", "---\nname: [bad\n---\n"),
];

fn json_of(output: &std::process::Output) -> Value {
    serde_json::from_str(&out(output)).unwrap()
}

#[tokio::test]
async fn validate_lists_every_skill_and_fails_for_errors_only() {
    let folder = folder(FILES);
    for (arguments, code, parts) in [
        (
            &["skills/good"][..],
            0,
            &["ok   default/good", "1 skills, 0 with errors"][..],
        ),
        (&["skills/odd"], 0, &["ok   default/odd", "description"]),
        (&["--strict", "skills/odd"], 1, &["FAIL default/odd", "description"]),
        (
            &["skills"],
            1,
            &["FAIL default/bad", "ok   default/good", "3 skills, 1 with errors"],
        ),
    ] {
        let output = knack(folder.path(), &[&["skill", "validate"], arguments].concat(), &[]).await;
        let said = out(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    let output = knack(folder.path(), &["skill", "validate", "skills", "--output", "json"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let document = json_of(&output);
    assert_eq!(document["failed"], 1);
    let skills = document["skills"].as_array().unwrap();
    let by = |name: &str| skills.iter().find(|skill| skill["skill"] == name).unwrap();
    assert_eq!(by("default/good")["valid"], true);
    assert_eq!(by("default/good")["summary"]["tools"], json!(["add"]));
    let problem = &by("default/bad")["problems"][0];
    assert_eq!(
        (&problem["severity"], &problem["kind"]),
        (&json!("error"), &json!("yaml-invalid"))
    );
    assert!(problem["line"].is_u64() && problem["help"].is_string(), "{problem}");
}

#[tokio::test]
async fn validate_of_nothing_says_what_to_name() {
    let folder = folder(&[("empty/README.txt", "x")]);
    let output = knack(folder.path(), &["skill", "validate", "empty"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("no skill found in empty"), "{}", err(&output));
}

#[tokio::test]
async fn run_calls_a_tool_gives_its_exit_code_and_saves_its_files() {
    let folder = folder(FILES);
    let tool = [
        "skill",
        "run",
        "skills/good",
        "--tool",
        "add",
        "--arguments",
        r#"{"a": "2", "b": "3"}"#,
    ];
    let output = knack(folder.path(), &[&tool[..], &["--output", "json"]].concat(), &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let document = json_of(&output);
    assert_eq!(
        (&document["status"], &document["exit_code"]),
        (&json!("success"), &json!(0))
    );
    assert!(document["stdout"].as_str().unwrap().contains("'2'"), "{document}");
    let command = [
        "skill",
        "run",
        "skills/good",
        "--files-dir",
        "made",
        "--",
        "python3",
        "-c",
    ];
    let code = "import sys; open('x.txt', 'w').write('here'); print('hi'); sys.exit(7)";
    let output = knack(folder.path(), &[&command[..], &[code]].concat(), &[]).await;
    assert_eq!(
        (output.status.code(), out(&output).as_str()),
        (Some(7), "hi\n"),
        "{}",
        err(&output)
    );
    assert_eq!(
        std::fs::read_to_string(folder.path().join("made/x.txt")).unwrap(),
        "here"
    );
}

#[tokio::test]
async fn run_refuses_what_it_cannot_run_and_names_what_there_is() {
    let folder = folder(FILES);
    for (arguments, said) in [
        (&["skills/good"][..], "tools of this skill: add"),
        (&["skills/good", "--tool", "multiply"], "this skill declares add"),
        (
            &["skills/good", "--tool", "add", "--arguments", "{"],
            "must be a JSON object",
        ),
        (&["skills", "--", "true"], "choose one with --skill"),
        (&["skills/bad", "--", "true"], "the skill has errors"),
        (&["skills/none", "--", "true"], "skills/none"),
    ] {
        let output = knack(folder.path(), &[&["skill", "run"], arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
}

#[tokio::test]
async fn schema_prints_declarations_and_reports_what_it_could_not_read() {
    let source = "@skill\ndef add(a: int, b: int = 2) -> int:\n    \"\"\"Adds.\"\"\"\n    return a + b\n";
    let folder = folder(&[("tools.py", source), ("broken.py", "@skill\ndef (:\n")]);
    let output = knack(
        folder.path(),
        &["skill", "schema", "tools.py", "--format", "openai"],
        &[],
    )
    .await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let document = json_of(&output);
    assert_eq!(document[0]["function"]["name"], "add");
    assert_eq!(document[0]["function"]["parameters"]["required"], json!(["a"]));
    let output = knack(folder.path(), &["skill", "schema", "broken.py"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("broken.py"), "{}", err(&output));
}
