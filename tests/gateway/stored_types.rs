//! Stored answers that a provider gives in another form than their type says, and under other spellings of their path.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::stored::{Keeping, SCRIPT, no_internals};
use super::support::{Running, Start, client, start, with_script};
use super::talk::{Format, Talk};

/// What the provider makes of its answers to everything but model calls.
#[derive(Debug, Clone, Default)]
struct Change {
    /// The content type; an empty word for a header without one, `None` for no header.
    kind: Option<&'static str>,
    /// Another body.
    body: Option<&'static str>,
}

const JSON: Option<&str> = Some("application/json");
const EVENTS: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"instructions\":\"plover\"}}\n\n";

/// A gateway before a provider whose stored answers are changed on their way. The provider that is asked is the other's mock.
async fn changing() -> (Running, Running, Arc<Mutex<Change>>) {
    let asked = with_script(SCRIPT).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let change = Arc::new(Mutex::new(Change::default()));
    let (provider, shared) = (asked.mock.url.clone(), Arc::clone(&change));
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let (provider, change) = (provider.clone(), shared.lock().unwrap().clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let is_call = parts.method == http::Method::POST;
            let mut headers = parts.headers;
            headers.remove("host");
            let url = format!("{provider}{}", parts.uri);
            let answer = client().request(parts.method, url).headers(headers).body(body);
            let answer = answer.send().await.unwrap();
            let kind = answer.headers()["content-type"].clone();
            let status = answer.status();
            let text = answer.text().await.unwrap();
            let text = change.body.filter(|_| !is_call).map_or(text, str::to_owned);
            let mut response = http::Response::new(axum::body::Body::from(text));
            *response.status_mut() = status;
            let kind = if is_call {
                Some(kind)
            } else {
                change.kind.map(http::HeaderValue::from_static)
            };
            if let Some(kind) = kind {
                response.headers_mut().insert("content-type", kind);
            }
            response
        }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    (knack, asked, change)
}

#[tokio::test]
async fn an_answer_is_as_shown_whatever_its_type_says() {
    let (knack, asked, change) = changing().await;
    let kept = Keeping {
        knack: &knack,
        stream: false,
    };
    change.lock().unwrap().kind = JSON;
    let shown = kept.ask(json!({"input": "please look up"})).await;
    let chat = json!({"model": "gpt-x", "store": true, "messages": [{"role": "user", "content": "please look up"}]});
    let talk = Talk::new((Format::Chat, false));
    let completion = knack.send(talk.request(&knack.url, &chat)).await.json();
    let listed = async |path: &str| {
        let url = format!("{}/v1/chat/completions{path}", knack.url);
        let answer = knack.send(client().get(url).bearer_auth("key-a")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        no_internals(&answer.text);
        answer.json()
    };
    let of_completion = format!("/{}", completion["id"].as_str().unwrap());
    let messages = format!("{of_completion}/messages");
    let expected = [listed("").await, listed(&of_completion).await, listed(&messages).await];
    for kind in [
        JSON,
        None,
        Some(""),
        Some("text/plain"),
        Some("application/vnd.api+json"),
        Some("Application/JSON; charset=utf-8"),
    ] {
        change.lock().unwrap().kind = kind;
        kept.is_as_shown(&shown, &["please look up"]).await;
        let read = [listed("").await, listed(&of_completion).await, listed(&messages).await];
        assert_eq!(read, expected, "{kind:?}");
    }
    assert_eq!(asked.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn events_of_a_loop_and_what_cannot_be_read_are_not_shown() {
    let (knack, _asked, change) = changing().await;
    let kept = Keeping {
        knack: &knack,
        stream: false,
    };
    let shown = kept.ask(json!({"input": "please look up"})).await;
    for (kind, body, status, told) in [
        (Some("text/event-stream"), EVENTS, 400, "\"stream\""),
        (Some("Text/Event-Stream; charset=utf-8"), EVENTS, 400, "\"stream\""),
        (None, EVENTS, 400, "\"stream\""),
        (JSON, EVENTS, 400, "\"stream\""),
        (JSON, "plover {", 502, "not a JSON object"),
        (Some("text/html"), "<p>plover", 502, "not a JSON object"),
    ] {
        *change.lock().unwrap() = Change { kind, body: Some(body) };
        for query in ["", "?stream", "?starting_after=3"] {
            let (got, text) = kept.get(&shown["id"], query).await;
            assert_eq!(got, status, "{kind:?} {query}: {text}");
            assert!(text.contains(told), "{text}");
            no_internals(&text);
        }
    }
    let page = "{\"object\": \"page\", \"data\": [\"plover\"]}";
    *change.lock().unwrap() = Change {
        kind: JSON,
        body: Some(page),
    };
    let (got, text) = kept.get(&shown["id"], "/input_items").await;
    assert_eq!(got, 502, "{text}");
    no_internals(&text);
    *change.lock().unwrap() = Change { kind: JSON, body: None };
    let (got, text) = kept.get(&shown["id"], "?str%65am=%74rue").await;
    assert_eq!(got, 400, "{text}");
    // Encoded letters are letters.
    let id = shown["id"].as_str().unwrap().replace('_', "%5F");
    let (got, text) = kept.get(&json!(id), "").await;
    assert_eq!(got, 200, "{text}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), shown);
}
