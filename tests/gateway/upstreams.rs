//! Providers that fail, in every way a provider can.

use knack_mock_provider::{Script, spawn};
use knack_trust::Roots;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::port::free_port;
use super::support::{Start, start, with_script};
use super::talk::{Format, ROWS, Talk};
use super::tls::{self, Flaw};

const FAILING: &str = r#"
turns:
  - user: busy
    rounds:
      - fail: {status: 429, retry_after: 7}
        reply: {text: x}
  - user: dies
    rounds:
      - reply: {text: "You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it. You will not read this to its end, since the connection breaks before it."}
        stream: {die_after_bytes: 4000}
  - user: garbage
    rounds:
      - reply: {text: Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first. Something good comes here first.}
        stream: {garbage_after_bytes: 4000, garbage: "data: {not json\n\n"}
  - user: later
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 400}
        reply: {text: x}
  - user: limited
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 429, retry_after: 3600, headers: {x-limit: second, content-type: application/problem+json}}
        reply: {text: x}
  - user: include
    rounds:
      - when: {body: {contains: reasoning.encrypted_content}}
        fail: {status: 400, body: {error: {message: Encrypted content is not supported with this model., type: invalid_request_error, param: include, code: null}}}
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: Without it.}
  - user: options
    rounds:
      - when: {body: {contains: stream_options}}
        fail: {status: 422, body: {detail: [{type: extra_forbidden, loc: [body, stream_options], msg: Extra inputs are not permitted}]}}
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: Without it.}
  - user: formed
    rounds:
      - when: {body: {contains: '"tools"'}}
        fail: {status: 400, body: {error: {message: "json mode cannot be combined with tool/function calling", type: invalid_request_error, param: null, code: null}}}
      - reply: {text: '{"a":1}'}
  - user: look up
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: It adds.}
  - user: refused
    rounds:
      - fail: {status: 400, body: {error: {message: "Unsupported value, see include.", type: invalid_request_error, param: temperature, code: null}}}
        reply: {text: x}
  - user: recovers
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 503, retry_after: 0, times: 1, headers: {x-limit: passing}}
        reply: {text: Recovered.}
"#;

#[tokio::test]
async fn an_error_of_round_one_passes_with_status_body_and_retry_after_and_is_not_retried() {
    let knack = with_script(FAILING).await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let answer = Talk::plain(row, "busy").send(&knack).await;
        let after = answer.headers["retry-after"].to_str().unwrap();
        assert_eq!((answer.status, after), (429, "7"), "{row:?}: {}", answer.text);
        assert!(
            answer.json()["error"]["message"].is_string(),
            "{row:?}: {}",
            answer.text
        );
        assert_eq!(knack.mock.handle.requests_with("busy").len(), count + 1, "{row:?}");
    }
}

/// 529 is no status of HTTP, so that the words are the provider's or there are none.
#[tokio::test]
async fn an_error_has_the_reason_that_the_provider_gave() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 64 << 10];
            let read = stream.read(&mut head).await.unwrap();
            let is_bare = String::from_utf8_lossy(&head[..read]).contains("/bare/");
            let reason = if is_bare { "" } else { "Overloaded" };
            let answer = format!("HTTP/1.1 529 {reason}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    for (path, line) in [
        ("/v1/messages", "HTTP/1.1 529 Overloaded\r\n"),
        ("/v1/models/x", "HTTP/1.1 529 Overloaded\r\n"),
        ("/bare/v1/messages", "HTTP/1.1 529 \r\n"),
        ("/bare/v1/models/x", "HTTP/1.1 529 \r\n"),
    ] {
        let body = json!({"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let mut stream = tokio::net::TcpStream::connect(knack.url.trim_start_matches("http://"))
            .await
            .unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(line), "{path}: {answer}");
    }
}

#[tokio::test]
async fn an_error_of_a_later_round_is_the_clients_error_and_a_passing_one_is_retried() {
    let knack = with_script(FAILING).await;
    for row in ROWS {
        let talk = Talk::plain(row, "later");
        let answer = talk.send(&knack).await;
        assert_eq!(answer.status, if row.1 { 200 } else { 400 }, "{row:?}: {}", answer.text);
        let last = talk.values(&answer).pop().unwrap();
        assert!(last["error"]["message"].is_string(), "{row:?}: {}", answer.text);
        assert_eq!(
            Talk::plain(row, "recovers").ask(&knack).await.text,
            "Recovered.",
            "{row:?}"
        );
    }
}

#[tokio::test]
async fn an_error_of_a_later_round_has_its_own_headers_and_an_answer_has_none_of_an_error() {
    let knack = with_script(FAILING).await;
    for row in ROWS.into_iter().filter(|(_, stream)| !stream) {
        let answer = Talk::plain(row, "limited").send(&knack).await;
        assert_eq!(answer.status, 429, "{row:?}: {}", answer.text);
        let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(
            (header("retry-after"), header("x-limit")),
            (Some("3600"), Some("second")),
            "{row:?}"
        );
        assert_eq!(header("content-type"), Some("application/problem+json"), "{row:?}");
        let answer = Talk::plain(row, "recovers").send(&knack).await;
        assert_eq!(answer.status, 200, "{row:?}: {}", answer.text);
        for name in ["retry-after", "x-limit"] {
            assert!(!answer.headers.contains_key(name), "{row:?}: {name}");
        }
    }
}

/// What the gateway adds for its loop alone is left out where a provider refuses it by name, once; its client cannot leave
/// out what it did not send.
#[tokio::test]
async fn a_member_that_only_the_gateway_added_is_left_out_where_the_provider_refuses_it() {
    let knack = with_script(FAILING).await;
    let asked = |text: &str, include: Option<Value>| {
        let mut body = json!({"model": "gpt-x", "store": false, "input": [{"role": "user", "content": text}]});
        if let Some(include) = include {
            body["include"] = include;
        }
        body
    };
    let encrypted = "reasoning.encrypted_content";
    let own = json!(["message.output_text.logprobs"]);
    for (include, left) in [(None, Value::Null), (Some(own.clone()), own.clone())] {
        for stream in [false, true] {
            let before = knack.mock.handle.requests().len();
            let mut body = asked("include", include.clone());
            body["stream"] = json!(stream);
            let talk = Talk::plain((Format::Responses, stream), "include");
            let request = talk
                .request(&knack.url, &body)
                .header("idempotency-key", format!("{before}"));
            let answer = knack.send(request).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(answer.text.contains("Without it."), "{}", answer.text);
            let requests = knack.mock.handle.requests().split_off(before);
            assert_eq!(requests.len(), 3, "refused, sent again, and the round after the call");
            assert!(String::from_utf8_lossy(&requests[0].body).contains(encrypted));
            for request in &requests[1..] {
                assert_eq!(request.json()["include"], left);
                assert_eq!(request.header("idempotency-key"), None, "another body");
            }
        }
    }
    let mut talk = Talk::plain((Format::Chat, true), "options");
    assert_eq!(talk.ask(&knack).await.text, "Without it.");
    let sent = knack.mock.handle.requests_with("options");
    let has_options: Vec<bool> = sent
        .iter()
        .map(|request| request.json().get("stream_options").is_some())
        .collect();
    assert_eq!(has_options, [true, false, false]);
    knack.told_times("| 2 rounds |", 5).await;
    let metrics = knack.gateway.metrics.text();
    for line in ["{format=\"responses\"} 4", "{format=\"chat\"} 1"] {
        let line = format!("knack_gateway_first_rounds_again_total{line}");
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
    // What the client sent itself, and any other refusal, is the client's.
    for (body, text) in [
        (asked("include", Some(json!([encrypted]))), "Encrypted content"),
        (asked("refused", None), "see include"),
    ] {
        let before = knack.mock.handle.requests().len();
        let talk = Talk::plain((Format::Responses, false), "x");
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(text), "{}", answer.text);
        assert_eq!(knack.mock.handle.requests().len(), before + 1);
    }
}

/// A provider that takes no tools beside a schema gets the request without Knack's, since its client sent none. The history of
/// the conversation stays as the provider knows it.
#[tokio::test]
async fn a_schema_that_excludes_tools_is_answered_without_skills() {
    let knack = with_script(FAILING).await;
    let schema = json!({"type": "json_schema", "name": "a", "schema": {"type": "object"}});
    for (format, key, demand) in [
        (Format::Chat, "response_format", json!({"type": "json_object"})),
        (Format::Responses, "text", json!({"format": schema})),
        (
            Format::Messages,
            "output_config",
            json!({"format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}}}),
        ),
    ] {
        for stream in [false, true] {
            let before = knack.mock.handle.requests().len();
            let talk = Talk::plain((format, stream), "formed");
            let mut body = talk.body();
            body[key] = demand.clone();
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            assert_eq!(answer.status, 200, "{format:?}: {}", answer.text);
            assert!(answer.text.contains(r#"{\"a\":1}"#), "{}", answer.text);
            let said = answer.headers["x-knack"].to_str().unwrap();
            assert!(
                said.ends_with("; skills=; added-tokens=0; off=refused-by-provider"),
                "{said}"
            );
            let requests = knack.mock.handle.requests().split_off(before);
            assert_eq!((requests.len(), &requests[1].json()), (2, &body), "{format:?}");
        }
    }
    knack.told_times("| skills: none | +0 tokens | 1 round |", 6).await;
    assert!(
        knack.lines.text().contains("refused their tools or text"),
        "{}",
        knack.lines.text()
    );
    let mut talk = Talk::plain((Format::Chat, false), "look up");
    talk.hear(&knack).await;
    talk.say("formed");
    let mut body = talk.body();
    body["response_format"] = json!({"type": "json_object"});
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    assert_eq!(answer.said(), r#"{"a":1}"#);
    let sent = knack.upstream();
    assert!(sent["messages"].to_string().contains("load_skill"), "{sent}");
    assert_eq!(sent.get("tools"), None, "{sent}");
    // A skill that the request names is never left out.
    let talk = Talk::plain((Format::Chat, false), "formed");
    let mut body = talk.body();
    body["response_format"] = json!({"type": "json_object"});
    for skill in ["listed", "always"] {
        let before = knack.mock.handle.requests().len();
        let named = talk.request(&knack.url, &body).header("x-knack-skills", skill);
        assert_eq!(knack.send(named).await.status, 400, "{skill}");
        assert_eq!(knack.mock.handle.requests().len(), before + 1, "{skill}");
    }
    // With tools of its own, the client knows what the provider says of them.
    let talk = Talk::saying((Format::Chat, false), "formed");
    let mut body = talk.body();
    body["response_format"] = json!({"type": "json_object"});
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
}

/// What ends a stream well, in each format.
fn good_end(format: Format) -> &'static str {
    match format {
        Format::Chat => "[DONE]",
        Format::Messages => "message_stop",
        Format::Responses => "response.completed",
        Format::Gemini => "\"finishReason\":\"STOP\"",
    }
}

#[tokio::test]
async fn a_stream_that_dies_or_turns_to_garbage_ends_as_an_error_never_as_a_normal_end() {
    let knack = with_script(FAILING).await;
    for row in ROWS.into_iter().filter(|(_, stream)| *stream) {
        for text in ["dies", "garbage"] {
            let talk = Talk::plain(row, text);
            let answer = talk.send(&knack).await;
            assert!(
                !answer.text.contains(good_end(row.0)),
                "{row:?} {text}: {}",
                answer.text
            );
            let last = talk
                .values(&answer)
                .pop()
                .unwrap_or_else(|| panic!("{row:?} {text}: {answer:?}"));
            assert!(last["error"]["message"].is_string(), "{row:?} {text}: {}", answer.text);
            if row.0 == Format::Messages {
                let id = answer.headers["x-knack-request-id"].to_str().unwrap();
                assert_eq!(last["request_id"], id, "{text}: {}", answer.text);
            }
        }
    }
    // Their status was sent before: they are told apart from answers that are whole.
    knack.told_times(" stream | ", 8).await;
    let metrics = knack.gateway.metrics_text();
    for format in ["chat", "messages", "responses", "gemini"] {
        for name in ["broken_answers_total", "requests_total"] {
            let status = if name == "requests_total" {
                ",status=\"200\""
            } else {
                ""
            };
            let line = format!("knack_gateway_{name}{{format=\"{format}\"{status}}} 2");
            assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_an_error_without_its_address() {
    let nobody = free_port();
    let knack = start(Start {
        upstream: Some(format!("http://127.0.0.1:{nobody}")),
        ..Start::default()
    })
    .await;
    let models = super::support::client().get(format!("{}/v1/models", knack.url));
    let mut answers = vec![knack.send(models).await];
    for row in ROWS {
        answers.push(Talk::plain(row, "hi").send(&knack).await);
    }
    for answer in answers {
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(!answer.text.contains(&nobody.to_string()), "{}", answer.text);
        assert!(answer.json()["error"]["message"].is_string());
    }
}

/// A provider behind the certificate of a private authority: its clients are told what is wrong, and not where it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_a_private_authority_is_reached_when_the_authority_is_named() {
    let script = "turns:\n  - rounds:\n      - reply: {text: Served.}\n";
    let mock = spawn(Script::parse(script).unwrap()).await.unwrap();
    let provider = tls::serve(Flaw::None, tls::forward(mock.url.replace("http://", "")));
    let port = provider.url.rsplit(':').next().unwrap();
    let named = Roots::default().with_pem(&provider.authority).unwrap();
    for (roots, is_trusted) in [(Roots::default(), false), (named, true)] {
        let knack = start(Start {
            upstream: Some(provider.url.clone()),
            roots,
            ..Start::default()
        })
        .await;
        for row in ROWS {
            let answer = Talk::plain(row, "hello").send(&knack).await;
            assert_eq!(
                answer.status,
                if is_trusted { 200 } else { 502 },
                "{row:?}: {}",
                answer.text
            );
            if is_trusted {
                continue;
            }
            let told = &answer.text;
            assert!(
                told.contains("provider's certificate") && told.contains("--ca-file"),
                "{row:?}: {told}"
            );
            assert!(!told.contains(port) && !told.contains("127.0.0.1"), "{row:?}: {told}");
            assert_eq!(answer.headers["x-should-retry"], "false", "{row:?}: it cannot help");
        }
        // What is passed on as it is.
        let request = reqwest::Client::new()
            .get(format!("{}/v1/files", knack.url))
            .bearer_auth("k");
        let answer = knack.send(request).await;
        assert_eq!(
            answer.text.contains("provider's certificate"),
            !is_trusted,
            "{}",
            answer.text
        );
    }
}

/// A proxy on this machine that takes the gateway for its provider, as one in a pod with the sidecar, or another gateway that does:
/// each call comes back once.
#[tokio::test]
async fn an_upstream_that_sends_requests_back_is_a_circle_that_ends_at_once() {
    for through_another in [false, true] {
        Box::pin(ends_at_once(through_another)).await;
    }
}

async fn ends_at_once(through_another: bool) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Start {
        upstream: Some(format!("http://{}/v1", listener.local_addr().unwrap())),
        ..Start::default()
    };
    let knack = start(options).await;
    let another = Start {
        upstream: Some(format!("{}/v1", knack.url)),
        ..Start::default()
    };
    let another = if through_another {
        Some(start(another).await)
    } else {
        None
    };
    let next = another.as_ref().unwrap_or(&knack);
    let gateway = next.url.strip_prefix("http://").unwrap().to_owned();
    let passed = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&passed);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut back = tokio::net::TcpStream::connect(&gateway).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut back).await });
        }
    });
    for row in ROWS {
        let answer = Talk::plain(row, "round and round").send(&knack).await;
        assert_eq!(answer.status, 508, "{row:?} {through_another}: {}", answer.text);
        assert!(
            answer.text.contains("has sent this request itself"),
            "{row:?} {through_another}: {}",
            answer.text
        );
    }
    let models = super::support::client().get(format!("{}/v1/models", knack.url));
    assert_eq!(models.send().await.unwrap().status(), 508);
    // A connection serves one call after the other; in a circle without end each call would hold another one.
    assert!(passed.load(std::sync::atomic::Ordering::Relaxed) <= ROWS.len() + 1);
}
