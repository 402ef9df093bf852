//! Agent Flow's runs: the events of a run, what its model is sent, and each refusal.

use std::time::Instant;

use serde_json::{Value, json};

use super::Served;

/// The skill of Agent Flow's documentation, shortened.
const SUMMARY: &str = "---
name: article-summary
description: Compress long articles into key points.
inputs:
  - {name: article, type: textarea, required: true}
  - {name: style, default: concise and professional}
model: {temperature: 0.3, max_tokens: 1000}
---
Summarize in a {{style}} tone:

{{article}}
";
/// A listed skill, which no run of another skill is told of, with a tool.
const ADDER: &str = "---
name: adder
description: Adds numbers. Use when somebody adds.
model: gpt-adder
inputs: [{name: first, required: true}]
tools:
  - {name: add, description: Adds one., command: [python3, add.py], parameters: [{name: number, description: A number.}]}
---
Add one to {{first}}.
";
const FILES: &[(&str, &str)] = &[
    ("skills/adder/SKILL.md", ADDER),
    ("skills/adder/add.py", "import sys\nprint(int(sys.argv[1]) + 1)\n"),
];
const SCRIPT: &str = r#"
turns:
  - user: {equals: "Summarize in a dry tone:\n\nLong."}
    rounds:
      - expect:
          system: {equals: You are a helpful AI assistant.}
          no_tool: {regex: .}
          body: ['"model":"gpt-run"', '"temperature":0.3', '"max_tokens":1000', '"stream":true']
        reply: {text: One point. Another.}
        stream: {piece_chars: 11}
  - user: {equals: "Add one to 41."}
    rounds:
      - expect: {tool: {suffix: add}, body: '"model":"gpt-adder"', no_body: [load_skill, temperature], system: add.py}
        reply: {calls: [{tool: {suffix: add}, arguments: {number: "41"}}]}
      - expect: {result: '42'}
        reply: {text: It is 42.}
  - user: Breaks.
    rounds:
      - reply: {text: "A text that is long enough to break in the middle of it, after some pieces."}
        stream: {die_after_bytes: 700}
  - user: Ends.
    rounds:
      - reply: {text: "A text that is long enough to end in the middle of it, after some pieces."}
        stream: {end_after_bytes: 700}
  - user: Errs.
    rounds:
      - reply: {text: Behind an error.}
        stream: {garbage_after_bytes: 0, garbage: "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"}
  - user: Babbles.
    rounds:
      - reply: {text: Behind something else.}
        stream: {garbage_after_bytes: 0, garbage: "data: {not json\n\n"}
  - user: Refused.
    rounds:
      - fail: {status: 401, message: "the key sk-secret is wrong"}
        reply: {text: no}
"#;

impl Served {
    /// A run: status, media type, and the events, or the one body.
    async fn run(&self, name: &str, inputs: &Value, key: &str) -> (u16, String, Vec<(String, Value)>) {
        let request = self
            .client
            .post(format!("{}/api/v1/skills/{name}/run", self.program.url));
        let response = request
            .bearer_auth(key)
            .header("content-type", "application/json")
            .body(json!({"inputs": inputs}).to_string())
            .send()
            .await
            .unwrap();
        assert!(
            response.headers().contains_key("x-knack-request-id"),
            "{:?}",
            response.headers()
        );
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let (status, kind) = (response.status().as_u16(), header("content-type").unwrap_or_default());
        if status == 200 {
            assert_eq!(header("cache-control").as_deref(), Some("no-cache"));
            assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
        }
        let text = response.text().await.unwrap();
        if status != 200 {
            return (
                status,
                kind,
                vec![(String::new(), serde_json::from_str(&text).unwrap())],
            );
        }
        let events = text
            .split_terminator("\n\n")
            .filter(|frame| !frame.starts_with(':'))
            .map(|frame| {
                let (name, data) = frame.split_once("\ndata: ").unwrap_or_else(|| panic!("{frame:?}"));
                let name = name.strip_prefix("event: ").unwrap_or_else(|| panic!("{frame:?}"));
                (name.to_owned(), serde_json::from_str(data).unwrap())
            });
        (status, kind, events.collect())
    }

    /// The text of the tokens, and the last two events.
    async fn told(&self, name: &str, inputs: &Value) -> (String, Vec<(String, Value)>) {
        let (status, _, events) = self.run(name, inputs, "one").await;
        assert_eq!(status, 200, "{events:?}");
        let tokens = events.iter().filter(|(name, _)| name == "token");
        let text = tokens.map(|(_, data)| data["content"].as_str().unwrap()).collect();
        let from = events.len().saturating_sub(2);
        (text, events[from..].to_vec())
    }
}

fn thought(kind: &str, status: &str, message: Option<&str>) -> (String, Value) {
    let mut data = json!({"type": kind, "status": status});
    if let Some(message) = message {
        data["message"] = message.into();
    }
    ("thought".to_owned(), data)
}

fn event(name: &str, data: Value) -> (String, Value) {
    (name.to_owned(), data)
}

#[tokio::test]
async fn a_run_sends_the_filled_template_alone_and_tells_its_events_in_order() {
    let served = Served::with(SCRIPT, FILES, &["--run-model", "gpt-run"], &[]).await;
    let body = json!({"name": "article-summary", "content": SUMMARY});
    let (status, created) = served.call("POST", "/api/v1/skills", &body, "one").await;
    assert_eq!(status, 201, "{created}");
    let (status, kind, events) = served
        .run("article-summary", &json!({"article": "Long.", "style": "dry"}), "one")
        .await;
    assert_eq!(
        (status, kind.as_str()),
        (200, "text/event-stream; charset=utf-8"),
        "{events:?}"
    );
    let expected = [
        thought("validation", "start", None),
        thought("validation", "complete", Some("All required inputs provided")),
        thought("substitution", "start", None),
        thought("substitution", "complete", Some("Variables substituted")),
        thought("generation", "start", None),
        event("token", json!({"content": "One point. "})),
        event("token", json!({"content": "Another."})),
        event(
            "done",
            json!({"status": "success", "message": "Skill execution completed successfully"}),
        ),
    ];
    assert_eq!(events, expected);

    let missing = "Missing required input: 'article'";
    let (_, _, events) = served.run("article-summary", &json!({"article": ""}), "one").await;
    let expected = [
        thought("validation", "start", None),
        event(
            "thought",
            json!({"type": "validation", "status": "error", "error": missing}),
        ),
        event("done", json!({"status": "error", "message": missing})),
    ];
    assert_eq!(events, expected, "the model is not asked");
    let (status, _, answer) = served.run("article-summary", &json!({"article": "Long."}), "two").await;
    assert_eq!(status, 404, "another caller's skill is not there: {answer:?}");
}

/// The skill's own tools are those of the request, and no other skill is in it.
#[tokio::test]
async fn a_run_has_the_tools_of_its_skill() {
    let served = Served::start(SCRIPT, FILES).await;
    let (text, end) = served.told("adder", &json!({"first": "41"})).await;
    assert_eq!(text, "It is 42.", "{end:?}");
    assert_eq!(end[1].1["status"], "success");
}

#[tokio::test]
async fn model_that_does_not_answer_is_reported_without_its_words() {
    let skills: Vec<(String, String)> = ["breaks", "ends", "refused"]
        .iter()
        .map(|name| {
            let word = format!("{}{}.", name[..1].to_uppercase(), &name[1..]);
            let text = format!("---\nname: {name}\ndescription: d\nmodel: m\n---\n{word}\n");
            (format!("skills/{name}/SKILL.md"), text)
        })
        .collect();
    let skills: Vec<(&str, &str)> = skills
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let served = Served::start(SCRIPT, &skills).await;
    for (name, has_text) in [("breaks", true), ("ends", true), ("refused", false)] {
        let (text, end) = served.told(name, &json!({})).await;
        assert_eq!(!text.is_empty(), has_text, "{name}: {text}");
        let failed = [
            event("error", json!({"message": "Generation failed"})),
            event("done", json!({"status": "error", "message": "Generation failed"})),
        ];
        assert_eq!(end, failed, "{name}");
    }
}

/// A run leaves the answer of its model at an error. What the operator reads is that error, and not that a client left.
#[tokio::test]
async fn a_run_whose_model_fails_is_reported_with_the_failure() {
    const TOOLS: &str = "tools:\n  - {name: add, description: Adds one., command: [python3, add.py]}\n";
    let failures = [
        ("errs", "", "provider answered 200 with an error"),
        ("errs", TOOLS, "provider answered 200 with an error"),
        (
            "babbles",
            "",
            "The upstream sent something that is not an event of its format.",
        ),
        (
            "breaks",
            "",
            "The connection to the upstream was lost in the middle of its answer.",
        ),
        (
            "breaks",
            TOOLS,
            "The connection to the upstream was lost in the middle of its answer.",
        ),
        (
            "ends",
            "",
            "The upstream's stream ended before its answer was complete.",
        ),
        (
            "ends",
            TOOLS,
            "The upstream sent something that is not an event of its format: the JSON text ends too early.",
        ),
        ("refused", "", "provider answered 401"),
    ];
    let mut files = Vec::new();
    for (at, (word, tools, _)) in failures.iter().enumerate() {
        let prompt = format!("{}{}.", word[..1].to_uppercase(), &word[1..]);
        let text = format!("---\nname: {word}-{at}\ndescription: d\nmodel: m\n{tools}---\n{prompt}\n");
        files.push((format!("skills/{word}-{at}/SKILL.md"), text));
        // A skill with a tool has an answer that is read for it; one without files has one that passes.
        if !tools.is_empty() {
            files.push((format!("skills/{word}-{at}/add.py"), String::new()));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    let mut served = Served::start(SCRIPT, &files).await;
    for (at, (word, _, end)) in failures.iter().enumerate() {
        let name = format!("{word}-{at}");
        let (_, events) = served.told(&name, &json!({})).await;
        assert_eq!(events[1].1["status"], "error", "{name}: {events:?}");
        let line = loop {
            let line = served.program.line().await;
            if line.contains("run by POST") {
                break line;
            }
        };
        let told = format!(" | {end} | run by POST /api/v1/skills/{name}/run | ");
        let status = if *word == "refused" { "401 chat" } else { "200 chat" };
        assert!(line.starts_with(status) && line.contains(&told), "{told}: {line}");
    }
    let metrics = served.program.get("/metrics", &[]).await.text().await.unwrap();
    let broken = r#"knack_gateway_broken_answers_total{format="chat"} 7"#;
    assert!(metrics.contains(broken), "{metrics}");
}

#[tokio::test]
async fn a_run_that_cannot_begin_is_refused_in_the_shape_of_the_api() {
    let served = Served::start(SCRIPT, FILES).await;
    let body = json!({"name": "article-summary", "content": SUMMARY});
    assert_eq!(served.call("POST", "/api/v1/skills", &body, "one").await.0, 201);
    let inputs = json!({"inputs": {"article": "a"}});
    for (name, body, key, status, field) in [
        ("nobody", &inputs, "one", 404, "name"),
        ("Nobody", &inputs, "one", 400, "name"),
        ("article-summary", &inputs, "one", 400, "model"),
        ("article-summary", &inputs, "", 401, "authorization"),
        ("adder", &json!({"inputs": {"first": 5}}), "one", 400, "inputs.first"),
        ("adder", &json!({"inputs": "x"}), "one", 400, "inputs"),
        ("adder", &json!([]), "one", 400, "body"),
    ] {
        let path = format!("/api/v1/skills/{name}/run");
        let (got, answer) = served.call("POST", &path, body, key).await;
        assert_eq!(
            (got, answer["detail"]["field"].as_str()),
            (status, Some(field)),
            "{name}: {answer}"
        );
    }
}

/// A few kilobytes would be gigabytes of text: nothing is made, and no model is asked.
#[tokio::test]
async fn inputs_that_the_template_repeats_too_often_are_refused() {
    let echo = format!(
        "---\nname: echo\ndescription: Repeats.\nmodel: m\ninputs: [{{name: text}}]\n---\n{}",
        "{{text}}".repeat(5_000)
    );
    let served = Served::start(SCRIPT, &[("skills/echo/SKILL.md", &echo)]).await;
    let inputs = json!({"text": "x".repeat(300_000)});
    let (status, _, refused) = served.run("echo", &inputs, "one").await;
    let detail = &refused[0].1["detail"];
    assert_eq!((status, &detail["field"]), (400, &json!("inputs")), "{detail}");
    let message = detail["message"].as_str().unwrap();
    assert!(message.contains("1500000000 bytes"), "{message}");
}

/// A list of small values takes many times the memory of its text.
#[tokio::test]
async fn a_body_of_very_many_values_is_refused() {
    let served = Served::start(SCRIPT, FILES).await;
    for path in [
        "/api/v1/skills/adder/run",
        "/api/v1/skills",
        "/api/skills/install",
        "/api/skills/executions",
    ] {
        let (status, answer) = served
            .call("POST", path, &json!({"x": vec![0; 1_000_000]}), "one")
            .await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer.to_string().contains("100000 JSON values"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_caller_has_ten_runs_in_a_row_and_others_have_theirs() {
    let served = Served::start(SCRIPT, FILES).await;
    let begun = Instant::now();
    let mut taken = 0;
    let (status, answer) = loop {
        let (status, _, answer) = served.run("adder", &json!({}), "one").await;
        if status != 200 {
            break (status, answer);
        }
        taken += 1;
        // One more for each six seconds, which a busy machine may take.
        assert!(taken <= 11 + begun.elapsed().as_secs() / 6, "{taken} runs");
        assert!(taken < 100, "each run takes as long as the next allowance");
    };
    assert_eq!(status, 429, "{answer:?}");
    assert!(taken >= 10, "refused after {taken}");
    assert_eq!(served.run("adder", &json!({}), "two").await.0, 200);
}
