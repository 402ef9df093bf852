//! Providers that fail, in every way a provider can.

use serde_json::{Value, json};

use super::support::{Start, start, with_script};

const FAILING: &str = r#"
turns:
  - user: busy
    rounds:
      - fail: {status: 429, retry_after: 7}
        reply: {text: x}
  - user: dies
    rounds:
      - reply: {text: "You will not read this to its end, since the connection breaks before it."}
        stream: {die_after_bytes: 700}
  - user: garbage
    rounds:
      - reply: {text: Something good.}
        stream: {garbage_after_bytes: 500, garbage: "data: {not json\n\n"}
  - user: later
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 400}
        reply: {text: x}
  - user: recovers
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 503, retry_after: 0, times: 1}
        reply: {text: Recovered.}
"#;

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-x", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

fn messages(text: &str, stream: bool) -> Value {
    json!({"model": "claude-x", "max_tokens": 1000, "stream": stream, "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn an_error_of_round_one_passes_with_status_body_and_retry_after_and_is_not_retried() {
    let knack = with_script(FAILING).await;
    let answer = knack.send(knack.chat(&chat("busy", false))).await;
    assert_eq!(
        (answer.status, answer.headers["retry-after"].to_str().unwrap()),
        (429, "7")
    );
    assert!(answer.json()["error"]["message"].is_string());
    assert_eq!(knack.mock.handle.requests_with("busy").len(), 1);
    let answer = knack.send(knack.messages(&messages("busy", true))).await;
    assert_eq!((answer.status, answer.json()["type"].clone()), (429, json!("error")));
}

#[tokio::test]
async fn an_error_of_a_later_round_is_the_clients_error_and_a_passing_one_is_retried() {
    let knack = with_script(FAILING).await;
    let answer = knack.send(knack.chat(&chat("later", false))).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let answer = knack.send(knack.chat(&chat("recovers", false))).await;
    assert_eq!((answer.status, answer.said().as_str()), (200, "Recovered."));
}

#[tokio::test]
async fn a_stream_that_dies_or_turns_to_garbage_ends_as_an_error_never_as_a_normal_end() {
    let knack = with_script(FAILING).await;
    for text in ["dies", "garbage"] {
        let answer = knack.send(knack.chat(&chat(text, true))).await;
        assert!(
            answer.text.contains("\"error\"") && !answer.text.contains("[DONE]"),
            "{text}: {}",
            answer.text
        );
        let answer = knack.send(knack.messages(&messages(text, true))).await;
        assert!(
            answer.text.contains("event: error") && !answer.text.contains("message_stop"),
            "{text}: {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_an_error_without_its_address() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let knack = start(Start {
        upstream: Some(format!("http://{nobody}")),
        ..Start::default()
    })
    .await;
    for answer in [
        knack.send(knack.chat(&chat("hi", false))).await,
        knack.send(knack.messages(&messages("hi", true))).await,
        knack
            .send(super::support::client().get(format!("{}/v1/models", knack.url)))
            .await,
    ] {
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(!answer.text.contains(&nobody.port().to_string()), "{}", answer.text);
        assert!(answer.json()["error"]["message"].is_string());
    }
}
