//! What a client reads of an answer of its own whose loop still runs: nothing of Knack, and nothing that is not there yet.

use serde_json::{Value, json};

use super::support::{Running, client, with_script};
use super::talk::{Format, HIDDEN, Talk, events};

/// More than comes before the first text of an answer: events repeat what was asked with.
const STOPS_AT: usize = 40_000;

/// The second round never begins to answer, or stops in the middle of its answer. An answer may also stop in its first round.
fn script() -> String {
    let long = " xyz".repeat(1000);
    SCRIPT.replace("LONG", &long).replace("STOPS_AT", &STOPS_AT.to_string())
}

const SCRIPT: &str = r#"
turns:
  - user: never begins
    rounds:
      - reply: {text: One moment., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: "Never said."}
        stream: {head_ms: 600000}
  - user: stops
    rounds:
      - reply: {text: One moment., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: "HalfLONG"}
        stream: {silence_after_bytes: STOPS_AT, piece_chars: 4}
  - user: cut at once
    rounds:
      - reply: {text: "HalfLONG", calls: [{tool: load_skill, arguments: {skill: listed}}]}
        stream: {silence_after_bytes: STOPS_AT, piece_chars: 4}
  - rounds:
      - reply: {text: "You said: {{user}}"}
"#;

/// An answer that is being streamed.
struct Stream {
    answer: reqwest::Response,
    id: String,
}

/// Asks and reads the stream until it has this text.
async fn begin(knack: &Running, format: Format, (asked, until): (&str, &str)) -> Stream {
    let talk = Talk::new((format, true));
    let mut answer = talk
        .request(&knack.url, &body(format, true, asked))
        .send()
        .await
        .unwrap();
    let mut text = String::new();
    while !text.contains(until) {
        let piece = answer.chunk().await.unwrap().expect("the stream goes on");
        text += std::str::from_utf8(&piece).unwrap();
    }
    let first = events(&format!("{}\n\n", text.split("\n\n").next().unwrap())).remove(0);
    let id = first["id"].as_str().or_else(|| first["response"]["id"].as_str());
    Stream {
        id: id.unwrap().to_owned(),
        answer,
    }
}

fn body(format: Format, stream: bool, asked: &str) -> Value {
    match format {
        Format::Chat => json!({
            "model": "gpt-x", "stream": stream, "store": true, "messages": [{"role": "user", "content": asked}],
        }),
        _ => json!({"model": "gpt-x", "stream": stream, "input": asked}),
    }
}

async fn get(knack: &Running, path: &str) -> Value {
    let answer = knack
        .send(client().get(format!("{}{path}", knack.url)).bearer_auth("key-a"))
        .await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    for ours in HIDDEN {
        assert!(!answer.text.contains(ours), "{ours} in {}", answer.text);
    }
    answer.json()
}

/// Waits until the provider was asked so often.
async fn asked(knack: &Running, times: usize) {
    while knack.mock.handle.requests().len() < times {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// What the provider lists itself.
async fn of_provider(knack: &Running) -> usize {
    let url = format!("{}/v1/chat/completions", knack.mock.url);
    let listed = knack.send(client().get(url).bearer_auth("key-a")).await.json();
    listed["data"].as_array().unwrap().len()
}

/// A client without skills finds a completion in its list once it is there.
#[tokio::test]
async fn an_answer_that_is_being_streamed_is_in_no_list_and_is_read_as_begun() {
    for (text, until, rounds) in [
        ("never begins", "One moment.", 1),
        ("stops", "Half", 2),
        ("cut at once", "Half", 1),
    ] {
        let knack = with_script(&script()).await;
        let said = Talk::new((Format::Chat, false));
        let plain = said.request(&knack.url, &body(Format::Chat, false, "hello"));
        let plain = knack.send(plain).await.json()["id"].clone();
        let stream = begin(&knack, Format::Chat, (text, until)).await;
        if text == "never begins" {
            asked(&knack, 3).await;
        }
        assert_eq!(
            of_provider(&knack).await,
            1 + rounds,
            "{text}: the provider has all of it"
        );
        let listed = get(&knack, "/v1/chat/completions").await;
        assert_eq!(
            (listed["data"].as_array().unwrap().len(), &listed["data"][0]["id"]),
            (1, &plain)
        );
        let read = get(&knack, &format!("/v1/chat/completions/{}", stream.id)).await;
        let (id, choice) = (&read["id"], &read["choices"][0]);
        assert_eq!((id, &choice["message"]["content"]), (&json!(stream.id), &Value::Null));
        assert_eq!(
            (&choice["finish_reason"], &read["tools"]),
            (&Value::Null, &Value::Null),
            "{read}"
        );
        let sent = get(&knack, &format!("/v1/chat/completions/{}/messages", stream.id)).await;
        let sent = sent["data"].as_array().unwrap();
        assert_eq!((sent.len(), &sent[0]["content"]), (1, &json!(text)));

        // Its client leaves: what it was shown is the first round's.
        drop(stream.answer);
        knack.told("client left").await;
        let listed = get(&knack, "/v1/chat/completions").await;
        assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{text}");
        assert_eq!(listed["data"][1]["id"], stream.id.as_str(), "{text}");
    }
}

#[tokio::test]
async fn rounds_of_an_answer_that_its_client_waits_for_are_in_no_list() {
    let knack = with_script(&script()).await;
    let talk = Talk::new((Format::Chat, false));
    let request = talk.request(&knack.url, &body(Format::Chat, false, "never begins"));
    let waiting = tokio::spawn(request.send());
    asked(&knack, 2).await;
    assert_eq!(of_provider(&knack).await, 1);
    let listed = get(&knack, "/v1/chat/completions").await;
    assert_eq!((&listed["data"], &listed["last_id"]), (&json!([]), &Value::Null));
    waiting.abort();
    knack.told("client left").await;
    let listed = get(&knack, "/v1/chat/completions").await;
    assert_eq!(listed["data"], json!([]), "nothing was shown");
}

/// As the provider shows a response that it has not finished.
#[tokio::test]
async fn a_response_that_is_being_streamed_is_read_as_in_progress() {
    for (text, until, of_first) in [
        ("never begins", "One moment.", "One moment."),
        ("stops", "Half", "One moment."),
        ("cut at once", "Half", "Half"),
    ] {
        let knack = with_script(&script()).await;
        let stream = begin(&knack, Format::Responses, (text, until)).await;
        let read = get(&knack, &format!("/v1/responses/{}", stream.id)).await;
        assert_eq!(
            (&read["id"], &read["status"], &read["output"], &read["usage"]),
            (&json!(stream.id), &json!("in_progress"), &json!([]), &Value::Null)
        );
        assert_eq!((&read["instructions"], &read["tools"]), (&Value::Null, &json!([])));
        let items = get(&knack, &format!("/v1/responses/{}/input_items", stream.id)).await;
        assert_eq!(items["data"].as_array().unwrap().len(), 1, "{items}");
        drop(stream.answer);
        knack.told("client left").await;
        let read = get(&knack, &format!("/v1/responses/{}", stream.id)).await;
        assert!(
            read["output"].to_string().contains(of_first),
            "as far as it was shown: {read}"
        );
    }
}
