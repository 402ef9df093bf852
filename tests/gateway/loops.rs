//! The tool loop with real runs: answers, files, mixed turns, follow-ups, limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use knack::execution::Executor;
use serde_json::{Value, json};

use super::observed::Observed;
use super::support::{Start, client, start, with_sandbox, with_script};

const ADD: &str = r#"
turns:
  - user: add
    rounds:
      - expect: {tool: load_skill}
        reply: {text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - expect: {result: {contains: "Run python3 skills/listed/add.py"}}
        reply: {calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {contains: "exit 0"}}
        reply: {text: "The sum: {{results}}"}
  - user: file
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "open('out.txt', 'w').write('made here')"}}]}
      - expect: {result: {contains: "Files for the user: out.txt (text/plain"}}
        reply: {text: Written.}
  - user: again
    rounds:
      - expect: {history: {contains: make a file}, body: {contains: "Files for the user: out.txt"}}
        reply: {calls: [{tool: run_code, arguments: {code: "print(open('out.txt').read().upper())"}}]}
      - expect: {result: {contains: MADE HERE}}
        reply: {text: Still there.}
  - user: mixed
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - expect: {results: 2, result: "42"}
        reply: {text: "All: {{results}}"}
  - user: thoughts
    rounds:
      - when: {result: -3 C}
        reply: {text: Cold.}
      - reply: {thinking: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {thinking: Now the weather., calls: [{tool: get_weather, arguments: {city: Oslo}}]}
  - user: unknown tool
    rounds:
      - reply: {calls: [{unlisted: make_coffee, arguments: {}}]}
  - user: bad arguments
    rounds:
      - reply: {calls: [{tool: run_code, raw_arguments: "{\"code\": "}]}
      - expect: {no_result: "exit 0"}
        reply: {text: "Told: {{results}}"}
  - user: forever
    repeat_last: true
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
"#;

fn chat(text: &str) -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn load_and_run_in_both_formats_and_both_ways() {
    let knack = with_sandbox(ADD).await;
    for stream in [false, true] {
        let mut body = chat("please add");
        body["stream"] = json!(stream);
        let answer = knack.send(knack.chat(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(
            answer.text.contains("The sum:") && answer.text.contains('5'),
            "{}",
            answer.text
        );
        assert!(
            !answer.text.contains("load_skill") && !answer.text.contains("tool_calls\":["),
            "{}",
            answer.text
        );
        let body = json!({"model": "claude-x", "max_tokens": 1000, "stream": stream, "messages": [{"role": "user", "content": "please add"}]});
        let answer = knack.send(knack.messages(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(
            answer.text.contains("The sum:") && !answer.text.contains("tool_use"),
            "{}",
            answer.text
        );
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    knack.told("3 rounds").await;
}

#[tokio::test]
async fn files_are_delivered_listed_read_and_staged_into_the_next_turn() {
    let knack = with_sandbox(ADD).await;
    let mut body = chat("make a file to add");
    body["messages"][0]["content"] = json!("make a file");
    let answer = knack.send(knack.chat(&body)).await;
    assert_eq!(answer.said(), "Written.");
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let url = format!("{}/knack/v1/responses/{id}/files", knack.url);
    let get = |url: String, key: &'static str| async move {
        super::support::read(super::support::client().get(url).bearer_auth(key).send().await.unwrap()).await
    };
    let list = get(url.clone(), "key-a").await;
    assert_eq!(list.json()["files"][0]["name"], "out.txt");
    assert_eq!(get(format!("{url}/out.txt"), "key-a").await.text, "made here");
    assert_eq!(get(format!("{url}/out.txt"), "key-b").await.status, 404);
    assert_eq!(get(url, "key-b").await.status, 404);
    assert!(
        knack
            .folder
            .path()
            .join("knack-files")
            .join(&id)
            .join("out.txt")
            .exists()
    );
    // The next request of the same conversation: the hidden turn comes back, and with it the file.
    let follow = json!({"model": "gpt-x", "messages": [
        {"role": "user", "content": "make a file"}, {"role": "assistant", "content": "Written."}, {"role": "user", "content": "again please"}]});
    let answer = knack.send(knack.chat(&follow)).await;
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    assert_eq!(answer.said(), "Still there.");
}

#[tokio::test]
async fn a_mixed_turn_runs_ours_returns_theirs_and_resumes_without_a_second_run() {
    let knack = with_sandbox(ADD).await;
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]);
    let mut body = chat("mixed");
    body["tools"] = tools;
    let first = knack.send(knack.chat(&body)).await;
    let message = first.json()["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(
        (calls.len(), calls[0]["function"]["name"].clone()),
        (1, json!("get_weather"))
    );
    assert_eq!(first.json()["choices"][0]["finish_reason"], "tool_calls");
    let call = calls[0]["id"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message);
    messages.push(json!({"role": "tool", "tool_call_id": call, "content": "-3 C"}));
    let second = knack.send(knack.chat(&body)).await;
    assert!(
        second.said().contains("42") && second.said().contains("-3 C"),
        "{}",
        second.text
    );
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    let lines = knack.told("run_code: success").await;
    assert_eq!(lines.matches("run_code: ").count(), 1, "{lines}");
}

/// The client saw the thinking of a hidden round directly before that of the round that called its tool. Another gateway without the record
/// takes the former out, else the provider refuses the message.
#[tokio::test]
async fn thinking_of_two_rounds_in_a_row_stays_legal_without_a_record() {
    let knack = with_script(ADD).await;
    let mut body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "thoughts"}],
        "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]});
    let first = knack.send(knack.messages(&body)).await;
    let content = first.json()["content"].clone();
    let kinds: Vec<&str> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "thinking", "tool_use"], "{}", first.text);
    let call = content[2]["id"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages
        .push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "-3 C"}]}));
    let direct = client()
        .post(format!("{}/v1/messages", knack.mock.url))
        .header("anthropic-version", "2023-06-01");
    let direct = knack.send(direct.body(body.to_string())).await;
    assert_eq!(
        direct.status, 400,
        "the provider refuses it as it stands: {}",
        direct.text
    );
    assert!(direct.text.contains("cannot be modified"), "{}", direct.text);
    for key in ["key-a", "another-key"] {
        let request = client().post(format!("{}/v1/messages", knack.url));
        let request = request
            .header("x-api-key", key)
            .header("anthropic-version", "2023-06-01");
        let second = knack.send(request.body(body.to_string())).await;
        assert_eq!(
            (second.status, second.said().as_str()),
            (200, "Cold."),
            "{key}: {}",
            second.text
        );
    }
}

#[tokio::test]
async fn a_tool_that_nobody_injected_is_the_clients() {
    let knack = with_sandbox(ADD).await;
    let answer = knack.send(knack.chat(&chat("unknown tool"))).await;
    assert_eq!(
        answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "make_coffee"
    );
}

#[tokio::test]
async fn unparsable_arguments_run_nothing_and_are_told_to_the_model() {
    let knack = with_sandbox(ADD).await;
    let answer = knack.send(knack.chat(&chat("bad arguments"))).await;
    assert!(answer.said().starts_with("Told:"), "{}", answer.text);
    assert!(!knack.told("200 chat").await.contains("run_code: "), "nothing ran");
}

#[tokio::test]
async fn a_model_that_never_stops_calling_is_ended_by_the_limit_in_the_formats_words() {
    let knack = with_script(ADD).await;
    let answer = knack.send(knack.chat(&chat("forever"))).await;
    assert_eq!(
        (answer.status, answer.json()["choices"][0]["finish_reason"].clone()),
        (200, json!("length"))
    );
    assert!(
        answer.json()["choices"][0]["message"]
            .get("tool_calls")
            .is_none_or(Value::is_null)
    );
    let body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "forever"}]});
    let answer = knack.send(knack.messages(&body)).await;
    assert_eq!(answer.json()["stop_reason"], "pause_turn");
    let requests = knack.mock.handle.requests_with("forever");
    assert_eq!(requests.len(), 22, "11 rounds each: the eleventh call is not run");
    assert!(String::from_utf8_lossy(&requests[10].body).contains("Last skill call available"));
}

#[tokio::test]
async fn without_an_executor_the_model_is_told_what_to_do_in_one_line() {
    let knack = with_script("turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'print(1)'}}]}\n      - reply: {text: \"{{results}}\"}\n").await;
    let answer = knack.send(knack.chat(&chat("run"))).await;
    assert!(answer.said().contains("--no-local-executor"), "{}", answer.text);
}

#[tokio::test]
async fn two_skills_with_the_same_file_path_keep_their_own_files() {
    let skills = vec![
        (
            "one/SKILL.md",
            "---\nname: one\ndescription: d\nactivation: Always\n---\nx\n",
        ),
        ("one/data.txt", "first"),
        (
            "two/SKILL.md",
            "---\nname: two\ndescription: d\nactivation: Always\n---\nx\n",
        ),
        ("two/data.txt", "second"),
    ];
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: \"print(open('skills/one/data.txt').read(), open('skills/two/data.txt').read())\"}}]}\n      - reply: {text: \"{{results}}\"}\n";
    let knack = start(Start {
        skills,
        script: script.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    let answer = knack.send(knack.chat(&chat("read"))).await;
    assert!(answer.said().contains("first second"), "{}", answer.text);
}

#[tokio::test]
async fn a_secret_that_nobody_granted_is_not_there_and_a_granted_one_is() {
    let skill = "---\nname: Weather\ndescription: d\nmode: llm\nactivation: Always\ntool_env: [TOKEN, OTHER]\ntools:\n  - name: show\n    description: d\n    command: [python3, show.py]\n---\nx\n";
    let skills = || {
        vec![
            ("weather/SKILL.md", skill),
            (
                "weather/show.py",
                "import os\nprint(os.environ.get('TOKEN'), os.environ.get('OTHER'))\n",
            ),
        ]
    };
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: {suffix: show}, arguments: {}}]}\n      - reply: {text: \"{{results}}\"}\n";
    let grants =
        knack::gateway::grants::Grants::parse(&["weather:TOKEN".to_owned()], |_| Some("granted".to_owned())).unwrap();
    let executor = std::sync::Arc::new(super::runner::executor(1).await);
    let knack = start(Start {
        skills: skills(),
        script: script.to_owned(),
        executor,
        grants,
        ..Start::default()
    })
    .await;
    let answer = knack.send(knack.chat(&chat("show"))).await;
    assert!(answer.said().contains("granted None"), "{}", answer.text);
}

#[tokio::test]
async fn a_hanging_sandbox_delays_nobody_else() {
    let script = "turns:\n  - user: hang\n    rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'while True: pass'}}]}\n      - reply: {text: \"{{results}}\"}\n  - rounds:\n      - reply: {text: hi}\n";
    let observed = Observed::new().await;
    let knack = start(Start {
        script: script.to_owned(),
        executor: Arc::clone(&observed) as Arc<dyn Executor>,
        ..Start::default()
    })
    .await;
    let hanging = tokio::spawn(knack.chat(&chat("hang")).send());
    observed.running().await;
    for _ in 0..20 {
        let begun = Instant::now();
        let health = super::support::read(
            super::support::client()
                .get(format!("{}/healthz", knack.url))
                .send()
                .await
                .unwrap(),
        )
        .await;
        assert_eq!(health.status, 200);
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "health took {:?}",
            begun.elapsed()
        );
        assert_eq!(knack.send(knack.chat(&chat("quick"))).await.said(), "hi");
    }
    hanging.abort();
    knack.told("client left").await;
}
