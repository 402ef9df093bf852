//! Versions of uploaded skills that requests name by a constraint.

use std::path::Path;

use serde_json::{Value, json};

use super::program::{Program, folder, knack};
use super::{err, out};

/// Answers with the word that the instructions have.
const SCRIPT: &str = r#"
turns:
  - user: one zero
    rounds: [{expect: {system: plover-100}, reply: {text: "has 1.0.0"}}]
  - user: one two
    rounds: [{expect: {system: plover-120}, reply: {text: "has 1.2.0"}}]
  - user: two zero
    rounds: [{expect: {system: plover-200}, reply: {text: "has 2.0.0"}}]
  - user: one three
    rounds: [{expect: {system: plover-130}, reply: {text: "has 1.3.0"}}]
"#;
const KEY: (&str, &str) = ("authorization", "Bearer one");

async fn push(path: &Path, program: &Program, version: &str, more: &[&str]) -> String {
    let word = version.replace('.', "");
    let document = format!(
        "---\nname: word\ndescription: Says the word.\nmetadata:\n  version: \"{version}\"\n---\nThe word is plover-{word}.\n"
    );
    std::fs::create_dir_all(path.join("word")).unwrap();
    std::fs::write(path.join("word/SKILL.md"), document).unwrap();
    let arguments = [&["skill", "push", "word", "--to", &program.url], more].concat();
    let output = knack(path, &arguments, &[("OPENAI_API_KEY", "one")]).await;
    assert!(output.status.success(), "{}", err(&output));
    out(&output).split(' ').nth(1).unwrap().to_owned()
}

/// Asks in both places of every format that has them.
async fn answers(program: &Program, text: &str, reference: &str, version: Option<&str>) -> Vec<String> {
    let header = match version {
        Some(version) => format!("{reference}:{version}"),
        None => reference.to_owned(),
    };
    let mut skill = json!({"type": "custom", "skill_id": reference});
    if let Some(version) = version {
        skill["version"] = version.into();
    }
    let messages = json!([{"role": "user", "content": text}]);
    let chat = json!({"model": "gpt-x", "messages": messages});
    let claude = json!({"model": "claude-x", "max_tokens": 100, "messages": messages});
    let with = |body: &Value| {
        let mut body = body.clone();
        body["container"] = json!({"skills": [skill]});
        body
    };
    let by_header = [KEY, ("x-knack-skills", header.as_str())];
    let response = json!({"model": "gpt-x", "input": text});
    let version = [KEY, ("anthropic-version", "2023-06-01")];
    vec![
        program.post("/v1/chat/completions", &chat, &by_header).await,
        program.post("/v1/responses", &response, &by_header).await,
        program.post("/v1/chat/completions", &with(&chat), &[KEY]).await,
        program.post("/v1/messages", &with(&claude), &version).await,
    ]
}

#[tokio::test]
async fn a_constraint_names_the_newest_version_that_meets_it() {
    let registry = tempfile::tempdir().unwrap();
    let files = folder(&[
        ("script.yaml", SCRIPT),
        (
            "skills/file/SKILL.md",
            "---\nname: file\ndescription: d\nversion: 1.3.0\n---\nplover-130\n",
        ),
    ]);
    let arguments = ["--upstream", "mock=script.yaml", "--no-local-executor", "--registry"];
    let program = Program::start(
        files,
        &[&arguments[..], &[registry.path().to_str().unwrap()]].concat(),
        &[],
    )
    .await;
    let local = folder(&[]);
    let path = local.path();
    let id = push(path, &program, "1.0.0", &[]).await;
    push(path, &program, "2.0.0", &["--keep-default"]).await;
    // A repair of the old line, made after the new one.
    push(path, &program, "1.2.0", &["--keep-default"]).await;

    for (text, has, reference, version) in [
        ("one two", "1.2.0", "word@^1", None),
        ("one zero", "1.0.0", "word@~1.0", None),
        ("one zero", "1.0.0", "word@1.0.0", None),
        ("two zero", "2.0.0", "word@>=1.2", None),
        ("two zero", "2.0.0", "word@latest", None),
        ("one two", "1.2.0", id.as_str(), Some("^1")),
        ("two zero", "2.0.0", &id, Some("2.0.0")),
        ("one three", "1.3.0", "file@^1.3", None),
        // As before: a number, `latest` as the last one made, the default.
        ("two zero", "2.0.0", &id, Some("2")),
        ("one two", "1.2.0", &id, Some("latest")),
        ("one zero", "1.0.0", &id, None),
        ("one zero", "1.0.0", "word", None),
    ] {
        for answer in answers(&program, text, reference, version).await {
            assert!(
                answer.contains(&format!("has {has}")),
                "{reference} {version:?}: {answer}"
            );
        }
    }

    // The answer names the version that was served, and a request can name it so.
    for (text, has, asked) in [("one two", "1.2.0", Some("latest")), ("one zero", "1.0.0", None)] {
        let served = |answer: &str| {
            let answer: Value = serde_json::from_str(answer).unwrap();
            let version = answer["container"]["skills"][0]["version"].as_str().unwrap();
            version.to_owned()
        };
        let answer = answers(&program, text, &id, asked).await.pop().unwrap();
        let version = served(&answer);
        assert!(version.starts_with("skver_"), "{answer}");
        let again = answers(&program, text, &id, Some(&version)).await.pop().unwrap();
        assert!(again.contains(&format!("has {has}")), "{again}");
        assert_eq!(served(&again), version);
    }

    // Not there: in the shape of each API, with what is.
    for (reference, version) in [("word@^3", None), (id.as_str(), Some("^3")), ("word@2", None)] {
        let answers = answers(&program, "one two", reference, version).await;
        for answer in &answers {
            assert!(answer.contains("there is 2.0.0, 1.2.0, 1.0.0"), "{reference}: {answer}");
        }
        let openai: Value = serde_json::from_str(&answers[0]).unwrap();
        assert_eq!(openai["error"]["code"], "skill_not_found", "{openai}");
        let anthropic: Value = serde_json::from_str(&answers[3]).unwrap();
        assert_eq!(
            (&anthropic["type"], &anthropic["error"]["type"]),
            (&json!("error"), &json!("not_found_error"))
        );
    }
    // To another credential there is no such skill, and so no version of it.
    let stranger = [("authorization", "Bearer two"), ("x-knack-skills", "word@^1")];
    let messages = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "one two"}]});
    let answer = program.post("/v1/chat/completions", &messages, &stranger).await;
    assert!(
        answer.contains("no skill \\\"word@^1\\\"") && !answer.contains("1.2.0"),
        "{answer}"
    );
    // A mention names no version: the text is the user's.
    let mention = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "@word@^1 one two"}]});
    let answer = program.post("/v1/chat/completions", &mention, &[KEY]).await;
    assert!(!answer.contains("has 1.2.0"), "{answer}");
}
