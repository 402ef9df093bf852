//! The mock provider over loopback, with raw HTTP: the example of its reference, accidents, parallel conversations.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use knack_mock_provider::{Mock, MockServer, Script, spawn};
use reqwest::{Client, Response};
use serde_json::{Value, json};

/// The first YAML fence of the reference.
fn documented_script() -> Script {
    let page = include_str!("../docs/mock-provider.md");
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    Script::parse(yaml).unwrap()
}

fn client() -> Client {
    // Plain HTTP only, but the client wants a provider of cryptography to exist.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

async fn post(mock: &MockServer, path: &str, body: &Value) -> Response {
    client()
        .post(format!("{}{path}", mock.url))
        .header("content-type", "application/json")
        .header("anthropic-version", "2023-06-01")
        .body(body.to_string())
        .send()
        .await
        .unwrap()
}

async fn json_of(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

fn chat_tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    json!([tool("load_skill"), tool("run_code"), tool("get_weather")])
}

fn messages_tools() -> Value {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    json!([tool("load_skill"), tool("run_code"), tool("get_weather")])
}

const SYSTEM: &str = "# Skills\n<skill name=\"ball\">Draws.</skill>";

#[tokio::test]
async fn the_documented_script_runs_in_chat() {
    let mock = spawn(documented_script()).await.unwrap();
    let mut body = json!({"model": "gpt-x", "tools": chat_tools(), "messages": [
        {"role": "system", "content": SYSTEM}, {"role": "user", "content": "a bouncing ball please"}]});
    let results = [vec!["<skill>\n</skill>"], vec!["42", "-3 C"]];
    for round in &results {
        let answer = json_of(post(&mock, "/v1/chat/completions", &body).await).await;
        let message = &answer["choices"][0]["message"];
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
        let calls = message["tool_calls"].as_array().unwrap().clone();
        assert_eq!(calls.len(), round.len());
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(message.clone());
        for (call, result) in calls.iter().zip(round) {
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
    }
    assert_eq!(
        body["messages"][2]["tool_calls"][0]["function"]["arguments"],
        "{\"skill\":\"ball\"}"
    );
    let answer = json_of(post(&mock, "/v1/chat/completions", &body).await).await;
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "Done: <skill>\n</skill>\n42\n-3 C"
    );
    assert_eq!(answer["usage"]["total_tokens"], 120);
    assert_eq!(mock.handle.failures(), Vec::<String>::new());
    assert_eq!(mock.handle.refusals(), []);
    assert_eq!(mock.handle.requests().len(), 3);
}

/// Reads a stream as events; asserts the framing of Messages on the way.
fn messages_events(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split_terminator("\n\n")
        .map(|event| {
            let (kind, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(kind.strip_prefix("event: "), data["type"].as_str());
            data
        })
        .collect()
}

/// Puts the streamed blocks together, as a client does.
fn blocks_of(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut partial = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
                partial.clear();
            }
            "content_block_delta" => {
                let block = blocks.last_mut().unwrap();
                for key in ["text", "thinking"] {
                    if let Some(piece) = event["delta"][key].as_str() {
                        block[key] = json!(format!("{}{piece}", block[key].as_str().unwrap()));
                    }
                }
                if let Some(signature) = event["delta"]["signature"].as_str() {
                    block["signature"] = json!(signature);
                }
                partial.push_str(event["delta"]["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if blocks.last().unwrap()["type"] == "tool_use" => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&partial).unwrap();
            }
            _ => {}
        }
    }
    blocks
}

#[tokio::test]
async fn the_documented_script_runs_in_streamed_messages_and_guards_its_thinking() {
    let mock = spawn(documented_script()).await.unwrap();
    let mut body = json!({"model": "claude-x", "max_tokens": 100, "stream": true, "tools": messages_tools(),
        "system": SYSTEM, "messages": [{"role": "user", "content": "a bouncing ball please"}]});
    for round in [vec!["<skill>\n</skill>"], vec!["42", "-3 C"]] {
        let response = post(&mock, "/v1/messages", &body).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let events = messages_events(&response.bytes().await.unwrap());
        assert_eq!(events.first().unwrap()["type"], "message_start");
        assert_eq!(events.last().unwrap()["type"], "message_stop");
        let blocks = blocks_of(&events);
        let results: Vec<Value> = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .zip(round)
            .map(|(call, result)| json!({"type": "tool_result", "tool_use_id": call["id"], "content": result}))
            .collect();
        assert!(!results.is_empty());
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": blocks}));
        messages.push(json!({"role": "user", "content": results}));
    }
    // The first answer thought; without that block, or with it changed, the open turn is refused.
    let mut dropped = body.clone();
    dropped["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    let refusal = post(&mock, "/v1/messages", &dropped).await;
    assert_eq!(
        (
            refusal.status().as_u16(),
            refusal.headers()["x-mock-rule"].to_str().unwrap()
        ),
        (400, "thinking_kept")
    );
    let mut changed = body.clone();
    changed["messages"][1]["content"][0]["thinking"] = json!("Something else.");
    let refusal = json_of(post(&mock, "/v1/messages", &changed).await).await;
    assert!(
        refusal["error"]["message"]
            .as_str()
            .unwrap()
            .contains("Invalid `signature`"),
        "{refusal}"
    );

    body["stream"] = json!(false);
    let answer = json_of(post(&mock, "/v1/messages", &body).await).await;
    assert_eq!(answer["content"][0]["text"], "Done: <skill>\n</skill>\n42\n-3 C");
    assert_eq!(
        (answer["stop_reason"].as_str(), answer["usage"]["input_tokens"].as_u64()),
        (Some("end_turn"), Some(100))
    );
    assert_eq!(mock.handle.failures(), Vec::<String>::new());
    let counted = json_of(post(&mock, "/v1/messages/count_tokens", &body).await).await;
    assert!(counted["input_tokens"].as_u64().unwrap() > 100);
}

#[tokio::test]
async fn a_failed_expectation_is_answered_and_kept() {
    let mock = spawn(documented_script()).await.unwrap();
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "bouncing ball"}]});
    let response = post(&mock, "/v1/chat/completions", &body).await;
    assert_eq!(response.status(), 400);
    let message = json_of(response).await["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("script: turns[0].rounds[0]: expected"), "{message}");
    assert_eq!(mock.handle.failures(), [message]);
}

#[tokio::test]
async fn failures_end_after_their_number_and_carry_retry_after() {
    let mock = spawn(documented_script()).await.unwrap();
    let body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "busy?"}]});
    let first = post(&mock, "/v1/messages", &body).await;
    assert_eq!(
        (
            first.status().as_u16(),
            first.headers()["retry-after"].to_str().unwrap()
        ),
        (429, "1")
    );
    let request_id = first.headers()["request-id"].to_str().unwrap().to_owned();
    let error = json_of(first).await;
    assert_eq!(
        (error["error"]["type"].as_str(), error["request_id"].as_str()),
        (Some("rate_limit_error"), Some(request_id.as_str()))
    );
    let second = json_of(post(&mock, "/v1/messages", &body).await).await;
    assert_eq!(second["content"][0]["text"], "Now I have time.");
}

#[tokio::test]
async fn a_dying_stream_breaks_after_its_bytes() {
    let mock = spawn(documented_script()).await.unwrap();
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "die"}]});
    let mut stream = post(&mock, "/v1/chat/completions", &body).await.bytes_stream();
    let (mut received, mut broke) = (0, false);
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(bytes) => received += bytes.len(),
            Err(_) => broke = true,
        }
    }
    assert_eq!((received, broke), (300, true));
}

#[tokio::test]
async fn chunks_cut_inside_characters_and_still_add_up() {
    let script = Script::parse(
        "turns:\n- rounds:\n  - reply: {text: 'Grüße 🎈 aus Zürich'}\n    stream: {chunk_bytes: 3, line_end: crlf, ping_every: 1}\n",
    )
    .unwrap();
    let mock = spawn(script).await.unwrap();
    let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [{"role": "user", "content": "hi"}]});
    let response = post(&mock, "/prefix/chat/completions", &body).await;
    let text = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
    assert!(text.ends_with("data: [DONE]\r\n\r\n") && text.contains(": ping"));
    let said: String = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"))
        .filter_map(|rest| serde_json::from_str::<Value>(&format!("{{{rest}")).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(said, "Grüße 🎈 aus Zürich");
}

#[tokio::test]
async fn the_built_in_model_names_tools_and_loads_a_listed_skill() {
    let mock = spawn(Script::built_in()).await.unwrap();
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let answer = json_of(post(&mock, "/v1/chat/completions", &plain).await).await;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.contains("You said: hi") && text.contains("none"), "{text}");
    let mut with_skill = json!({"model": "m", "max_tokens": 9, "system": SYSTEM, "tools": messages_tools(),
        "messages": [{"role": "user", "content": "hi"}]});
    let answer = json_of(post(&mock, "/v1/messages", &with_skill).await).await;
    assert_eq!(answer["content"][1]["input"], json!({"skill": "ball"}));
    let messages = with_skill["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": answer["content"]}));
    messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": answer["content"][1]["id"], "content": "body"}]}));
    let answer = json_of(post(&mock, "/v1/messages", &with_skill).await).await;
    assert_eq!(answer["content"][0]["text"], "The tools answered:\nbody");
}

#[tokio::test]
async fn bodies_paths_keys_and_headers_are_judged_in_the_shape_of_the_format() {
    let mock = spawn(Script::parse("provider: {api_key: k}\nturns:\n- rounds:\n  - reply: {text: a}\n").unwrap())
        .await
        .unwrap();
    let send = async |path: &str, key: &str, extra: (&str, &str), body: &str| {
        let request = client()
            .post(format!("{}{path}", mock.url))
            .header(extra.0, extra.1)
            .body(body.to_owned());
        let request = if key.is_empty() {
            request
        } else {
            request.bearer_auth(key)
        };
        let response = request.send().await.unwrap();
        (response.status().as_u16(), json_of(response).await)
    };
    let good = r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#;
    let none = ("x-other", "1");
    let (status, error) = send("/v1/chat/completions", "", none, good).await;
    assert_eq!(
        (status, error["error"]["code"].as_str()),
        (401, Some("invalid_api_key"))
    );
    assert_eq!(send("/v1/chat/completions", "k", none, good).await.0, 200);
    let (status, error) = send("/v1/chat/completions", "k", none, "{\"model\":").await;
    assert!(status == 400 && error["error"]["message"].as_str().unwrap().contains("could not parse"));
    let double = r#"{"model":"m","messages":[],"messages":[{"role":"user","content":"a"}]}"#;
    assert!(
        send("/v1/chat/completions", "k", none, double).await.1["error"]["message"]
            .as_str()
            .unwrap()
            .contains("twice")
    );
    let (status, error) = send("/v1/chat/completions", "k", ("x-knack-skills", "a"), good).await;
    assert!(status == 400 && error["error"]["message"].as_str().unwrap().starts_with("script: "));
    assert_eq!(send("/v1/embeddings", "k", none, good).await.0, 404);
    let (status, error) = send("/v1/responses", "k", none, good).await;
    assert_eq!(
        (status, error["error"]["type"].as_str()),
        (400, Some("invalid_request_error"))
    );
    let (status, error) = send("/v1beta/models/m:generateContent", "k", none, good).await;
    assert_eq!(
        (status, error["error"]["status"].as_str()),
        (400, Some("INVALID_ARGUMENT"))
    );
    let (status, error) = send("/v1/messages", "k", none, good).await;
    assert_eq!((status, error["type"].as_str()), (400, Some("error")));
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("anthropic-version")
    );
    let listed = client().get(format!("{}/v1/models", mock.url)).send().await.unwrap();
    assert_eq!(json_of(listed).await["object"], "list");
}

#[tokio::test]
async fn parallel_conversations_do_not_mix_and_ids_are_unique() {
    let mock = spawn(documented_script()).await.unwrap();
    let answers = futures::future::join_all((0..40).map(|number| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("conversation {number}")}]});
        let mock = &mock;
        async move { (number, json_of(post(mock, "/v1/chat/completions", &body).await).await) }
    }))
    .await;
    let mut ids = std::collections::BTreeSet::new();
    for (number, answer) in answers {
        assert_eq!(
            answer["choices"][0]["message"]["content"],
            format!("You said: conversation {number}")
        );
        assert!(ids.insert(answer["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(mock.handle.requests_with("conversation 17").len(), 1);
}

#[tokio::test]
async fn created_comes_from_the_clock_that_was_passed_in() {
    let now = Arc::new(AtomicU64::new(1_763_760_000));
    let clock = Arc::clone(&now);
    let mock = Mock::with_clock(
        Arc::new(documented_script()),
        Arc::new(move || clock.load(Ordering::Relaxed)),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    let server = tokio::spawn(mock.serve(listener));
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let created = async || {
        let response = client().post(&url).body(body.to_string()).send().await.unwrap();
        json_of(response).await["created"].as_u64()
    };
    assert_eq!(created().await, Some(1_763_760_000));
    now.store(5, Ordering::Relaxed);
    assert_eq!(created().await, Some(5));
    server.abort();
}
