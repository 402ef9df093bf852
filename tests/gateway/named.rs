//! The name of a request: in every answer, and in Knack's errors also where the SDK of the format looks for it.

use serde_json::{Value, json};

use super::port::free_port;
use super::support::{Answer, Start, client, read, start, with_script};
use super::talk::{Format, ROWS, Talk};

const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";

/// The header in which the SDK of a format looks for the name of a request.
const fn sdk_header(format: Format) -> Option<&'static str> {
    match format {
        Format::Chat | Format::Responses => Some("x-request-id"),
        Format::Messages => Some("request-id"),
        Format::Gemini => None,
    }
}

/// Asserts that an error of Knack has its name in all places of its format.
fn is_named(format: Format, what: &str, answer: &Answer) {
    let id = answer
        .headers
        .get("x-knack-request-id")
        .unwrap_or_else(|| panic!("{format:?} {what}: {answer:?}"));
    for header in ["x-request-id", "request-id"] {
        let expected = (sdk_header(format) == Some(header)).then_some(id);
        assert_eq!(answer.headers.get(header), expected, "{format:?} {what} {header}");
    }
    if format == Format::Messages {
        assert_eq!(
            answer.json()["request_id"],
            id.to_str().unwrap(),
            "{what}: {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn every_error_of_ours_has_the_name_of_its_request() {
    let knack = with_script(ECHO).await;
    let away = start(Start {
        upstream: Some(format!("http://127.0.0.1:{}", free_port())),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let ask = |url: &str| talk.request(url, &talk.body());
        for (what, status, request) in [
            ("foreign host", 403, ask(&knack.url).header("host", "example.com")),
            (
                "unknown skill",
                404,
                ask(&knack.url).header("x-knack-skills", "nowhere"),
            ),
            ("no JSON", 400, ask(&knack.url).body("{")),
            ("upstream away", 502, ask(&away.url)),
            (
                "upstream away, no skills",
                502,
                ask(&away.url).header("x-knack-skills", "none"),
            ),
        ] {
            let answer = knack.send(request).await;
            assert_eq!(answer.status, status, "{row:?} {what}: {}", answer.text);
            is_named(row.0, what, &answer);
        }
    }
    // What is not a model call is an error of the API that it looks like.
    for (what, status, format, request) in [
        (
            "no endpoint",
            404,
            Format::Chat,
            client().get(format!("{}/knack/nowhere", knack.url)),
        ),
        (
            "a websocket",
            426,
            Format::Chat,
            client()
                .get(format!("{}/v1/responses", knack.url))
                .header("upgrade", "websocket"),
        ),
        (
            "a websocket",
            426,
            Format::Messages,
            client()
                .get(format!("{}/v1/responses/", knack.url))
                .header("upgrade", "websocket")
                .header("anthropic-version", "2023-06-01"),
        ),
        (
            "passed, upstream away",
            502,
            Format::Chat,
            client().get(format!("{}/v1/models", away.url)),
        ),
        (
            "passed, upstream away",
            502,
            Format::Gemini,
            client().get(format!("{}/v1beta/models", away.url)),
        ),
    ] {
        let answer = knack.send(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        is_named(format, what, &answer);
    }
}

/// A provider that names its requests in every header that an SDK reads.
#[tokio::test]
async fn a_providers_own_name_is_never_replaced() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(|| async {
        let headers = [
            ("x-request-id", "req_theirs"),
            ("request-id", "req_theirs"),
            ("content-type", "application/json"),
        ];
        (
            http::StatusCode::PAYMENT_REQUIRED,
            headers,
            r#"{"error":{"message":"no money"}}"#,
        )
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    let theirs = |what: &str, answer: &Answer| {
        assert_eq!(answer.status, 402, "{what}: {}", answer.text);
        for header in ["x-request-id", "request-id"] {
            assert_eq!(answer.headers[header], "req_theirs", "{what}");
        }
        let own = answer.headers["x-knack-request-id"].to_str().unwrap();
        assert!(!own.is_empty() && own != "req_theirs", "{what}: {own}");
        own.to_owned()
    };
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        for skills in [None, Some("none")] {
            let ask = talk.request(&knack.url, &talk.body());
            let ask = match skills {
                Some(skills) => ask.header("x-knack-skills", skills),
                None => ask,
            };
            theirs(&talk.row(), &knack.send(ask).await);
        }
    }
    let passed = client().get(format!("{}/v1/models", knack.url)).send().await.unwrap();
    let id = theirs("passed", &read(passed).await);
    // It is the name by which the request is traced.
    knack.told("/v1/models").await;
    let traced: Vec<Value> = knack
        .gateway
        .recent
        .last()
        .into_iter()
        .map(|report| json!(report))
        .collect();
    assert!(json!(traced).to_string().contains(&id), "{traced:?}");
}
