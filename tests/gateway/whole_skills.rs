//! Skills that a request attaches whole to its shell.

use base64::Engine as _;
use knack_gateway::runs::code_tools::CodeTools;
use knack_skill::model::SkillFile;
use serde_json::{Value, json};

use super::code_tools::{of_type, shell};
use super::support::{Start, start};
use super::talk::{Format, Talk, events};

/// The provider has no tool that runs programs.
const LACKING: &str = "provider: {code_tools: false}\n";
const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: add by a whole skill
    rounds:
      - expect: {tool: run_code, system: "Files (attached/adder/): scripts/add.py"}
        reply: {calls: [{tool: run_code, arguments: {skill: adder, command: "python3 attached/adder/scripts/add.py 2 3"}}]}
      - expect: {result: {line: "5"}}
        reply: {text: "The sum is 5."}
  - repeat_last: true
    rounds:
      - reply: {text: "You said: {{user}}"}
"#;

/// A skill as a request attaches it whole.
fn inline(name: &str, zip: impl AsRef<[u8]>) -> Value {
    let data = base64::engine::general_purpose::STANDARD.encode(zip);
    json!({"type": "inline", "name": name, "description": "d",
        "source": {"type": "base64", "media_type": "application/zip", "data": data}})
}

/// The zip of a skill's folder.
fn zip(name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let file = |(path, text): &(&str, &str)| {
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        ((*path).to_owned(), file)
    };
    knack_registry::zipped(name, &files.iter().map(file).collect()).unwrap()
}

pub(crate) fn adder() -> Value {
    let document = "---\nname: adder\ndescription: Adds numbers.\n---\nRun python3 scripts/add.py A B.\n";
    let script = "import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n";
    inline(
        "adder",
        zip("adder", &[("SKILL.md", document), ("scripts/add.py", script)]),
    )
}

/// Where the provider has a shell, and where it has none.
#[tokio::test]
async fn a_skill_that_a_request_attaches_whole_runs_here() {
    for (setting, script) in [
        (vec![CodeTools::OpenAi], SCRIPT.to_owned()),
        (Vec::new(), SCRIPT.replace(LACKING, "")),
    ] {
        let lacks = !setting.is_empty();
        let knack = start(Start {
            script,
            executor: std::sync::Arc::new(super::runner::executor(1).await),
            sandbox_code_tools: setting,
            ..Start::default()
        })
        .await;
        let foreign = json!({"type": "skill_reference", "skill_id": "skill_of_openai"});
        for stream in [false, true] {
            for (skills, left) in [
                (json!([adder()]), Value::Null),
                (json!([adder(), foreign]), json!([foreign])),
            ] {
                if lacks && left != Value::Null {
                    continue;
                }
                let mut talk = Talk::plain((Format::Responses, stream), "add by a whole skill");
                let mut body = talk.body();
                body["tools"] = json!([shell(&json!({"type": "container_auto", "skills": skills}))]);
                let answer = knack.send(talk.request(&knack.url, &body)).await;
                assert_eq!(talk.take(&answer).text, "The sum is 5.", "{lacks}: {}", answer.text);
                let output = of_type(&talk.history, "shell_call_output");
                assert_eq!(output[0]["output"][0]["stdout"], "5\n", "{lacks}");
                let upstream = knack.upstream();
                assert!(!upstream.to_string().contains("inline"), "{lacks}: {upstream}");
                let tools = upstream["tools"].as_array().unwrap().clone();
                let shells = of_type(&tools, "shell");
                let kept = shells
                    .first()
                    .map_or(&Value::Null, |tool| &tool["environment"]["skills"]);
                assert_eq!(*kept, left, "{lacks}");
                let told = if stream {
                    events(&answer.text).last().unwrap()["response"].clone()
                } else {
                    answer.json()
                };
                assert_eq!(told["tools"], body["tools"], "{lacks}");
            }
        }
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new(), "{lacks}");
    }
}

#[tokio::test]
async fn a_whole_skill_that_cannot_be_used_is_refused_with_its_name() {
    let of_source = |member: &str, value: &str| {
        let mut skill = adder();
        skill["source"][member] = value.into();
        json!([skill])
    };
    let listed = "---\nname: listed\ndescription: Adds numbers.\n---\nBody.\n";
    let many: Vec<(String, &str)> = (0..200).map(|n| (format!("f{n}"), "")).collect();
    let mut many: Vec<(&str, &str)> = many.iter().map(|(path, text)| (&**path, *text)).collect();
    many.push(("SKILL.md", "---\nname: many\ndescription: d\n---\nBody.\n"));
    let zeros = "\0".repeat(9 << 20);
    let large = [
        ("SKILL.md", "---\nname: large\ndescription: d\n---\nBody.\n"),
        ("zeros", &*zeros),
    ];
    let rows = [
        (of_source("type", "url"), "source.type"),
        (of_source("media_type", "text/plain"), "source.media_type"),
        (of_source("data", "%%%"), "not base64"),
        (json!([inline("a", b"no zip")]), "not a zip"),
        (json!([inline("a", zip("a", &[("x.py", "")]))]), "SKILL.md"),
        (
            json!([inline("a", zip("a", &[("SKILL.md", "---\nname: b\n---\nBody.\n")]))]),
            "name",
        ),
        (json!([adder(), adder()]), "another skill of this request"),
        (
            json!([inline("listed", zip("listed", &[("SKILL.md", listed)]))]),
            "a skill of this gateway",
        ),
        (json!([inline("many", zip("many", &many))]), "at most 200 files"),
        (
            json!([inline("large", zip("large", &large))]),
            "more than 8 MiB unpacked",
        ),
        (
            json!([inline("a", b"PK\x01\x02".repeat(20_001))]),
            "more than 10000 entries",
        ),
    ];
    for setting in [vec![CodeTools::OpenAi], Vec::new()] {
        let knack = start(Start {
            script: SCRIPT.to_owned(),
            sandbox_code_tools: setting,
            ..Start::default()
        })
        .await;
        for (skills, said) in &rows {
            let talk = Talk::plain((Format::Responses, false), "hi");
            let mut body = talk.body();
            body["tools"] = json!([shell(&json!({"type": "container_auto", "skills": skills}))]);
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            let error = &answer.json()["error"];
            assert_eq!(
                (answer.status, &error["param"]),
                (400, &json!("tools")),
                "{}",
                answer.text
            );
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(said) && message.contains("\"shell\""), "{message}");
        }
        assert_eq!(knack.mock.handle.requests().len(), 0);
    }
}
