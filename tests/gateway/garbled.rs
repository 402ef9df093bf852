//! Bad input from both sides, in every format, whole and streaming: the other side gets an error in the format's own shape.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::support::{Answer, Running, Start, start, with_script};
use super::talk::{Format, ROWS, Talk};

const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";

/// Asserts the format's own shape of an error, and returns its text.
fn told(format: Format, value: &Value) -> String {
    let error = &value["error"];
    let own = match format {
        Format::Chat | Format::Responses => error["type"].is_string() && error.get("code").is_some(),
        Format::Messages => value["type"] == "error" && error["type"].is_string(),
        Format::Gemini => error["status"].is_string() && error["code"].is_u64(),
    };
    assert!(own, "{format:?}: {value}");
    error["message"].as_str().unwrap().to_owned()
}

/// The member that holds the conversation.
fn conversation(format: Format) -> &'static str {
    match format {
        Format::Chat | Format::Messages => "messages",
        Format::Responses => "input",
        Format::Gemini => "contents",
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_400_in_the_formats_shape_and_go_nowhere() {
    let knack = with_script(ECHO).await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let name = conversation(row.0);
        let bodies = [
            Vec::new(),
            b"{".to_vec(),
            b"[]".to_vec(),
            b"\0".to_vec(),
            b"{\"model\": \"\xff\xfe\"}".to_vec(),
            format!("{{\"model\":\"m\",\"{name}\":[],\"{name}\":[]}}").into_bytes(),
            format!("{{\"{name}\":{}{}}}", "[".repeat(500), "]".repeat(500)).into_bytes(),
            format!("{{\"odd\":{}{}}}", "[".repeat(200), "]".repeat(200)).into_bytes(),
            talk.body().to_string().into_bytes()[..20].to_vec(),
        ];
        for body in bodies {
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            let answer = knack.send(talk.request(&knack.url, &Value::Null).body(body)).await;
            assert_eq!(answer.status, 400, "{row:?} {shown:?}: {}", answer.text);
            assert!(!told(row.0, &answer.json()).is_empty());
            assert!(answer.headers.contains_key("x-knack-request-id"), "{row:?} {shown:?}");
        }
    }
    assert!(knack.mock.handle.requests().is_empty(), "nothing of it went upstream");
}

/// What a provider answers everything with, and the last body that it was sent.
#[derive(Debug, Default)]
struct Fixed {
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    received: Vec<u8>,
    /// The content coding of what was received.
    coding: Option<String>,
}

/// A gateway before a provider that answers with fixed bytes, which can be changed.
async fn provider() -> (Running, Arc<Mutex<Fixed>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let fixed = Arc::new(Mutex::new(Fixed::default()));
    let shared = Arc::clone(&fixed);
    let router = axum::Router::new().fallback(move |headers: http::HeaderMap, received: bytes::Bytes| {
        let mut fixed = shared.lock().unwrap();
        fixed.received = received.to_vec();
        fixed.coding = headers
            .get("content-encoding")
            .map(|coding| coding.to_str().unwrap().to_owned());
        let mut answer = http::Response::new(axum::body::Body::from(fixed.body.clone()));
        for (name, value) in &fixed.headers {
            answer.headers_mut().insert(*name, value.parse().unwrap());
        }
        std::future::ready(answer)
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    let knack = start(Start {
        script: ECHO.to_owned(),
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    (knack, fixed)
}

/// Sends a conversation to a provider that answers with these bytes.
async fn answered(
    (knack, fixed): &(Running, Arc<Mutex<Fixed>>),
    talk: &Talk,
    headers: &[(&'static str, &'static str)],
    body: &[u8],
) -> Answer {
    {
        let mut fixed = fixed.lock().unwrap();
        fixed.headers = headers.to_vec();
        fixed.body = body.to_vec();
    }
    talk.send(knack).await
}

/// What the scripted provider answers, as bytes.
async fn good(knack: &Running, talk: &Talk) -> Vec<u8> {
    let answer = talk.request(&knack.mock.url, &talk.body()).send().await.unwrap();
    answer.bytes().await.unwrap().to_vec()
}

const JSON: (&str, &str) = ("content-type", "application/json");
const EVENTS: (&str, &str) = ("content-type", "text/event-stream");

/// The content type of a row's good answer.
const fn own(stream: bool) -> (&'static str, &'static str) {
    if stream { EVENTS } else { JSON }
}

fn replaced(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains(from), "{from}: {text}");
    text.replace(from, to).into_bytes()
}

/// Asserts that an answer is an error of the format, as status or as the last event, and that nothing of Knack is in it.
fn is_error(talk: &Talk, what: &str, answer: &Answer) {
    let value = if answer.status == 200 {
        assert!(talk.stream, "{} {what}: {}", talk.row(), answer.text);
        talk.values(answer).pop().unwrap_or_default()
    } else {
        assert_eq!(answer.status, 502, "{} {what}: {}", talk.row(), answer.text);
        answer.json()
    };
    let message = told(talk.format, &value);
    for ours in ["load_skill", "plover", "127.0.0.1"] {
        assert!(!answer.text.contains(ours), "{} {what}: {message}", talk.row());
    }
    is_named(talk, what, answer, &value);
}

/// Asserts that an error of Knack has the name of its request, also inside where the format has a place for it.
fn is_named(talk: &Talk, what: &str, answer: &Answer, error: &Value) {
    let id = answer.headers["x-knack-request-id"].to_str().unwrap();
    assert!(!id.is_empty(), "{} {what}", talk.row());
    if talk.format == Format::Messages {
        assert_eq!(error["request_id"], id, "{} {what}: {error}", talk.row());
    }
}

#[tokio::test]
async fn answers_that_cannot_be_read_are_errors_in_the_formats_shape() {
    let event = b"data: {\"a\": \n\ndata: [1\n\n".to_vec();
    let upstream = provider().await;
    for (what, head, body) in [
        ("nothing", JSON, Vec::new()),
        ("nothing as events", EVENTS, Vec::new()),
        ("a page", ("content-type", "text/html"), b"<html>busy</html>".to_vec()),
        ("half an object", JSON, b"{\"id\": \"x\", ".to_vec()),
        ("events that are no JSON", EVENTS, event),
        ("no UTF-8", JSON, b"{\"id\": \"\xff\xfe\"}".to_vec()),
    ] {
        for row in ROWS {
            let talk = Talk::plain(row, "hi");
            is_error(&talk, what, &answered(&upstream, &talk, &[head], &body).await);
        }
    }
    // A good answer that is nested too deep to be read, in a member that nobody asked for.
    let deep = format!("{{\"odd\":{}{},\"", "[".repeat(200), "]".repeat(200));
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let body = replaced(&good(&upstream.0, &talk).await, "{\"", &deep);
        is_error(
            &talk,
            "200 levels",
            &answered(&upstream, &talk, &[own(row.1)], &body).await,
        );
    }
}

#[tokio::test]
async fn a_compressed_answer_is_an_error_that_names_the_coding() {
    let upstream = provider().await;
    for coding in ["gzip", "br", "zstd"] {
        for row in ROWS {
            let talk = Talk::plain(row, "hi");
            let answer = answered(
                &upstream,
                &talk,
                &[own(row.1), ("content-encoding", coding)],
                b"\x1f\x8b\x08",
            )
            .await;
            is_error(&talk, coding, &answer);
            assert_eq!(answer.status, 502, "{}", answer.text);
            assert!(told(row.0, &answer.json()).contains(coding), "{}", answer.text);
        }
    }
    // The report of each says which round it was.
    upstream.0.told("content-encoding: zstd").await;
    for report in upstream.0.gateway.recent.last() {
        let told = serde_json::to_value(&report.steps).unwrap();
        let round = &told[0];
        assert_eq!(
            (
                told.as_array().unwrap().len(),
                &round["status"],
                &round["failure"],
                &round["ended"]
            ),
            (1, &json!(200), &json!("broken"), &json!(true)),
            "{told}"
        );
    }
    // Without skills the gateway reads nothing: the client, which may have asked for it, gets what came.
    let talk = Talk::plain(ROWS[0], "hi");
    let plain = talk
        .request(&upstream.0.url, &talk.body())
        .header("x-knack-skills", "none");
    let passed = plain.send().await.unwrap();
    assert_eq!(
        (passed.status().as_u16(), &passed.headers()["content-encoding"]),
        (200, &"zstd".parse().unwrap())
    );
    assert_eq!(&passed.bytes().await.unwrap()[..], b"\x1f\x8b\x08");
}

/// Line ends, a byte order mark, comments and fields that nobody needs make no difference.
#[tokio::test]
async fn streams_of_any_spelling_are_read() {
    let upstream = provider().await;
    for row in ROWS.into_iter().filter(|(_, stream)| *stream) {
        let body = good(&upstream.0, &Talk::plain(row, "hi")).await;
        let body = String::from_utf8(body).unwrap().replace("\r\n", "\n");
        let expected = Talk::plain(row, "hi")
            .take(&answered(&upstream, &Talk::plain(row, "hi"), &[EVENTS], body.as_bytes()).await);
        assert_eq!(expected.text, "hi", "{row:?}");
        for (what, spelled) in [
            ("CRLF", body.replace('\n', "\r\n")),
            ("CR", body.replace('\n', "\r")),
            ("byte order mark", format!("\u{feff}{body}")),
            ("comments", body.replace("data: ", ": still here\n\n:\ndata: ")),
            ("other fields", body.replace("data: ", "id: 7\nretry: 10\nodd\ndata: ")),
            ("no space", body.replace("data: ", "data:")),
            ("no end", body.trim_end().to_owned()),
        ] {
            let mut talk = Talk::plain(row, "hi");
            let answer = answered(&upstream, &talk, &[EVENTS], spelled.as_bytes()).await;
            let said = talk.take(&answer);
            assert_eq!(
                (said.text, said.stop),
                (expected.text.clone(), expected.stop.clone()),
                "{row:?} {what}"
            );
        }
    }
}

/// The words of a content type have any case, and a body without one is what it begins as.
#[tokio::test]
async fn content_types_of_any_case_and_none_are_read() {
    let upstream = provider().await;
    for row in ROWS {
        let body = good(&upstream.0, &Talk::plain(row, "hi")).await;
        let spelled = if row.1 {
            "Text/Event-Stream; Charset=UTF-8"
        } else {
            "Application/JSON"
        };
        for headers in [&[("content-type", spelled)][..], &[]] {
            let mut talk = Talk::plain(row, "hi");
            let answer = answered(&upstream, &talk, headers, &body).await;
            assert_eq!(talk.take(&answer).text, "hi", "{row:?} {headers:?}: {}", answer.text);
        }
    }
    // Nothing at all is no answer, as before.
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        is_error(&talk, "nothing", &answered(&upstream, &talk, &[], b"").await);
    }
}

/// A brotli stream that stores its bytes: window of 16 bits, one block as it is, an empty last one.
fn brotli(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() - 1).unwrap();
    assert!(length < 1 << 16);
    let head = (length << 4 | 1 << 20).to_le_bytes();
    [&head[..3], body, &[3]].concat()
}

/// A frame of zstd that stores its bytes: its size, and one last block as it is.
fn zstd(body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap();
    let head = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &size.to_le_bytes()].concat();
    [&head[..], &(size << 3 | 1).to_le_bytes()[..3], body].concat()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Codex compresses its requests. They are read, and go on as they came where nothing is added to them.
#[tokio::test]
async fn compressed_requests_are_read() {
    // Each costs a decoder, and none has a byte.
    const EMPTY_FRAME: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
    let upstream = provider().await;
    let (knack, fixed) = &upstream;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let answer = good(knack, &talk).await;
        {
            let mut fixed = fixed.lock().unwrap();
            (fixed.headers, fixed.body) = (vec![own(row.1)], answer);
        }
        let body = talk.body().to_string().into_bytes();
        for (coding, sent) in [
            ("gzip", gzip(&body)),
            ("GZip", gzip(&body)),
            ("gzip", [gzip(&body[..20]), gzip(&body[20..])].concat()),
            ("zstd", zstd(&body)),
            ("zstd", [zstd(&body[..20]), zstd(&body[20..])].concat()),
            ("br", brotli(&body)),
            ("identity", body.clone()),
        ] {
            let request = || {
                let request = talk
                    .request(&knack.url, &Value::Null)
                    .header("content-encoding", coding);
                request.body(sent.clone())
            };
            let answer = knack.send(request()).await;
            assert_eq!(answer.status, 200, "{row:?} {coding}: {}", answer.text);
            {
                let fixed = fixed.lock().unwrap();
                let received = String::from_utf8_lossy(&fixed.received);
                assert!(received.contains("plover"), "{row:?} {coding}: {received}");
                assert_eq!(fixed.coding, None, "{row:?} {coding}");
            }
            let answer = knack.send(request().header("x-knack-skills", "none")).await;
            assert_eq!(answer.status, 200, "{row:?} {coding}: {}", answer.text);
            let fixed = fixed.lock().unwrap();
            let received = (fixed.received == sent, fixed.coding.as_deref().unwrap_or("identity"));
            assert_eq!(received, (true, coding), "{row:?}: as it came");
        }
    }
    let large = gzip(&vec![b' '; 40 << 20]);
    let before = fixed.lock().unwrap().received.clone();
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let body = talk.body().to_string().into_bytes();
        for (coding, sent, status, why) in [
            ("deflate", body.clone(), 415, "deflate"),
            ("gzip, br", body.clone(), 415, "gzip, br"),
            ("gzip", body.clone(), 400, "content coding (gzip)"),
            ("gzip", gzip(&body)[..20].to_vec(), 400, "content coding (gzip)"),
            ("zstd", body.clone(), 400, "content coding (zstd)"),
            ("zstd", zstd(&body)[..20].to_vec(), 400, "content coding (zstd)"),
            ("gzip", gzip(&[]).repeat(1_025), 400, "content coding (gzip)"),
            ("zstd", EMPTY_FRAME.repeat(1_025), 400, "content coding (zstd)"),
            ("br", brotli(&body)[..20].to_vec(), 400, "content coding (br)"),
            ("gzip", large.clone(), 413, "32 MiB"),
        ] {
            let request = talk
                .request(&knack.url, &Value::Null)
                .header("content-encoding", coding);
            let answer = knack.send(request.body(sent)).await;
            assert_eq!(answer.status, status, "{row:?} {coding}: {}", answer.text);
            assert!(
                told(row.0, &answer.json()).contains(why),
                "{row:?} {coding}: {}",
                answer.text
            );
        }
    }
    assert_eq!(fixed.lock().unwrap().received, before, "nothing of it went upstream");
}

/// Events in another order, or twice: an error in the format's shape, or an answer that its reader can read.
#[tokio::test]
async fn events_in_another_order_end_as_an_error_or_as_an_answer() {
    let upstream = provider().await;
    for row in ROWS.into_iter().filter(|(_, stream)| *stream) {
        let talk = Talk::plain(row, "hi");
        let body = String::from_utf8(good(&upstream.0, &talk).await)
            .unwrap()
            .replace("\r\n", "\n");
        let events: Vec<&str> = body.split_inclusive("\n\n").collect();
        let mut orders: Vec<Vec<&str>> = vec![
            events.iter().rev().copied().collect(),
            events.iter().flat_map(|event| [*event, *event]).collect(),
            events.iter().skip(1).copied().collect(),
        ];
        orders.extend((0..events.len()).map(|first| [&events[first..], &events[..first]].concat()));
        for order in orders {
            let answer = answered(&upstream, &talk, &[EVENTS], order.concat().as_bytes()).await;
            let values = if answer.status == 200 {
                talk.values(&answer)
            } else {
                vec![answer.json()]
            };
            let last = values
                .last()
                .unwrap_or_else(|| panic!("{row:?}: an empty answer to {order:?}"));
            let is_fault = last["error"].is_object();
            assert!(is_fault || answer.status == 200, "{row:?}: {}", answer.text);
            if is_fault {
                assert!(!told(row.0, last).is_empty(), "{row:?}: {}", answer.text);
            }
            for ours in ["load_skill", "plover", "127.0.0.1"] {
                assert!(!answer.text.contains(ours), "{row:?}: {}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_in_the_other_form_reaches_the_client_as_what_it_is() {
    let upstream = provider().await;
    for row in ROWS {
        let other = Talk::plain((row.0, !row.1), "hi");
        let body = good(&upstream.0, &other).await;
        let mut answer = answered(&upstream, &Talk::plain(row, "hi"), &[own(!row.1)], &body).await;
        let kind = answer.headers["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with(own(!row.1).1), "{row:?}: {kind}");
        // A client of the other form reads it.
        answer.text = answer.text.replace("\r\n", "\n");
        let mut reader = other;
        assert_eq!(reader.take(&answer).text, "hi", "{row:?}: {}", answer.text);
    }
}

/// What JSON allows and few programs expect goes through as it came, both ways.
#[tokio::test]
async fn odd_json_goes_through_as_it_came() {
    let upstream = provider().await;
    let huge = "\"odd\":[123456789012345678901234567890,1e999,-0.0]";
    let twice = "\"odd\":1,\"odd\":2";
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let body = good(&upstream.0, &talk).await;
        let lone = replaced(&body, "\"hi\"", "\"\\ud800hi\"");
        for (what, body) in [
            ("\\ud800hi", lone),
            (huge, replaced(&body, "\"hi\"", &format!("\"hi\",{huge}"))),
            (twice, replaced(&body, "\"hi\"", &format!("\"hi\",{twice}"))),
        ] {
            let answer = answered(&upstream, &talk, &[own(row.1)], &body).await;
            assert_eq!(answer.status, 200, "{row:?} {what}: {}", answer.text);
            assert!(answer.text.contains(what), "{row:?} {what}: {}", answer.text);
        }
        let ask = talk.body().to_string();
        for (what, ask) in [
            ("\\ud800hi", replaced(ask.as_bytes(), "\"hi\"", "\"\\ud800hi\"")),
            (huge, replaced(ask.as_bytes(), "\"hi\"", &format!("\"hi\",{huge}"))),
            (twice, replaced(ask.as_bytes(), "\"hi\"", &format!("\"hi\",{twice}"))),
        ] {
            let (knack, fixed) = &upstream;
            {
                let mut fixed = fixed.lock().unwrap();
                (fixed.headers, fixed.body) = (vec![own(row.1)], body.clone());
            }
            let answer = knack.send(talk.request(&knack.url, &Value::Null).body(ask)).await;
            assert_eq!(answer.status, 200, "{row:?} {what}: {}", answer.text);
            let received = String::from_utf8(fixed.lock().unwrap().received.clone()).unwrap();
            assert!(
                received.contains(what) && received.contains("plover"),
                "{row:?}: {received}"
            );
        }
    }
}

/// Numbers over 64 bits of a double, deep nesting and line separators are the client's to judge.
#[tokio::test]
async fn a_tool_that_the_model_invents_with_odd_arguments_reaches_the_client_as_it_came() {
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{unlisted: brew, arguments: {n: 18446744073709551615, deep: [[[[[[[[{}]]]]]]]], text: \"\\u2028 \\\" \\\\\"}}]}\n";
    let knack = with_script(script).await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "hi");
        assert_eq!(talk.ask(&knack).await.calls, ["brew"], "{row:?}");
        let kept = Value::from(talk.history.clone()).to_string();
        assert!(kept.contains("18446744073709551615"), "{row:?}: {kept}");
    }
    assert_eq!(json!(knack.mock.handle.failures()), json!([]));
}
