//! Pieces of an answer at places where no reader expects them, and what only some answers have: nothing of Knack reaches the
//! client, and nothing of the provider's is lost. Between gateway and scripted provider stands one that edits its answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start, with_script};
use super::talk::{Format, ROWS, Talk, events};

/// Arguments come in one piece, so that a leak is found by its words.
const SCRIPT: &str = r#"
turns:
  - user: alone
    rounds:
      - reply: {text: "I look.", calls: [{tool: load_skill, arguments: {skill: listed}}]}
        stream: {piece_chars: 1000}
      - reply: {text: "I know."}
        stream: {piece_chars: 1000}
  - user: twice
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}, {tool: load_skill, arguments: {skill: always}}]}
        stream: {piece_chars: 1000}
      - reply: {text: "I know."}
  - user: beside
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}, {tool: get_weather, arguments: {city: Oslo}}]}
        stream: {piece_chars: 1000}
      - reply: {text: "I know."}
"#;

/// How an answer is edited: its events, or its one body.
type Edit = Arc<dyn Fn(Vec<Value>) -> Vec<Value> + Send + Sync>;

/// A gateway before a provider whose answers are edited on their way. The provider that is asked is the other's mock.
async fn edited(edit: Edit) -> (Running, Running) {
    let asked = with_script(SCRIPT).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let provider = asked.mock.url.clone();
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let (provider, edit) = (provider.clone(), Arc::clone(&edit));
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let mut headers = parts.headers;
            headers.remove("host");
            let ask = client()
                .post(format!("{provider}{}", parts.uri))
                .headers(headers)
                .body(body);
            let answer = ask.send().await.unwrap();
            let (status, headers) = (answer.status(), answer.headers().clone());
            let text = answer.text().await.unwrap();
            let text = if status.is_success() {
                rewritten(&text, &edit)
            } else {
                text
            };
            let mut response = http::Response::new(axum::body::Body::from(text));
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert("content-type", headers["content-type"].clone());
            response
        }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    let knack = start(Start {
        upstream: Some(url),
        ..Start::default()
    })
    .await;
    (knack, asked)
}

fn rewritten(text: &str, edit: &Edit) -> String {
    if text.starts_with('{') {
        return edit(vec![serde_json::from_str(text).unwrap()])[0].to_string();
    }
    let mut out = String::new();
    for event in edit(events(text)) {
        if let Some(kind) = event["type"].as_str() {
            out.push_str(&format!("event: {kind}\n"));
        }
        out.push_str(&format!("data: {event}\n\n"));
    }
    if text.contains("[DONE]") {
        out.push_str("data: [DONE]\n\n");
    }
    out
}

/// Asserts that an answer is one of its format, or an error of it, without anything that Knack adds. True for an answer.
fn is_legal(talk: &mut Talk, what: &str, answer: &Answer) -> bool {
    for ours in ["load_skill", "listed", "\\\"skill\\\"", "plover", "127.0.0.1"] {
        assert!(
            !answer.text.contains(ours),
            "{} {what}: {ours}: {}",
            talk.row(),
            answer.text
        );
    }
    let last = if answer.status == 200 {
        talk.values(answer).pop().unwrap()
    } else {
        answer.json()
    };
    let error = &last["error"];
    if error.is_object() {
        assert!(
            !error["message"].as_str().unwrap().is_empty(),
            "{} {what}: {last}",
            talk.row()
        );
        return false;
    }
    talk.take(answer);
    true
}

/// An edit of each event.
fn each(edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Edit {
    Arc::new(move |mut events| {
        events.iter_mut().for_each(&edit);
        events
    })
}

/// Sets a member, or removes it for null.
fn put(object: &mut Value, key: &str, value: &Value) {
    let object = object.as_object_mut().unwrap();
    if value.is_null() {
        object.shift_remove(key);
    } else {
        object.insert(key.to_owned(), value.clone());
    }
}

/// Places that no call has: beyond the end, that of a text, none at all.
fn places() -> [Value; 3] {
    [json!(7), json!(0), Value::Null]
}

#[tokio::test]
async fn arguments_of_a_hidden_call_at_a_wrong_place_do_not_reach_the_client() {
    let kinds = [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    ];
    let mut edits: Vec<(Format, String, bool, Edit)> = Vec::new();
    for place in places() {
        for id in [None, Some("fc_other")] {
            let at = place.clone();
            let edit = each(move |event| {
                if kinds.contains(&event["type"].as_str().unwrap()) {
                    put(event, "output_index", &at);
                    if let Some(id) = id {
                        event["item_id"] = json!(id);
                    }
                }
            });
            // The finished item has them whole.
            edits.push((Format::Responses, format!("delta at {place}, {id:?}"), true, edit));
        }
        for kind in ["response.output_item.added", "response.output_item.done"] {
            let at = place.clone();
            let edit = each(move |event| {
                if event["type"] == kind && event["item"]["type"] == "function_call" {
                    put(event, "output_index", &at);
                }
            });
            edits.push((Format::Responses, format!("{kind} at {place}"), false, edit));
        }
        let at = place.clone();
        let edit = each(move |event| {
            if event["delta"]["type"] == "input_json_delta" {
                put(event, "index", &at);
            }
        });
        edits.push((Format::Messages, format!("delta at {place}"), false, edit));
    }
    for (place, id) in [
        (json!(7), false),
        (json!(7), true),
        (json!(0), true),
        (Value::Null, false),
    ] {
        let at = place.clone();
        let edit: Edit = Arc::new(move |mut events| {
            let mut own = Value::Null;
            for event in &mut events {
                let Some(call) = event.pointer_mut("/choices/0/delta/tool_calls/0") else {
                    continue;
                };
                if call["function"]["name"].is_string() {
                    own = call["id"].clone();
                    continue;
                }
                put(call, "index", &at);
                if id {
                    call["id"] = own.clone();
                }
            }
            events
        });
        // One id, or no index at all, leads to the call.
        let is_read = id || place.is_null();
        edits.push((Format::Chat, format!("piece at {place}, id {id}"), is_read, edit));
    }
    for (format, what, is_read, edit) in edits {
        let (knack, _asked) = edited(edit).await;
        let mut talk = Talk::saying((format, true), "alone");
        let answer = talk.send(&knack).await;
        let legal = is_legal(&mut talk, &what, &answer);
        assert!(legal || !is_read, "{format:?} {what}: {}", answer.text);
        if is_read {
            assert!(answer.text.contains("I know."), "{format:?} {what}: {}", answer.text);
        }
    }
}

/// Servers that count calls from 0 in every answer are read; one that gives two calls of one turn the same id is not.
#[tokio::test]
async fn two_calls_of_one_id_in_a_turn_are_an_error_or_an_answer() {
    let same = |format: Format| -> Edit {
        Arc::new(move |events| {
            let mut text = Value::from(events).to_string();
            let mark = match format {
                Format::Chat => "call_mock",
                Format::Messages => "toolu_mock",
                Format::Responses => "\"call_id\":\"",
                Format::Gemini => "fc_mock",
            };
            let begin = if format == Format::Responses { mark.len() } else { 0 };
            let ids: Vec<String> = text
                .match_indices(mark)
                .map(|(at, _)| text[at + begin..].split('"').next().unwrap().to_owned())
                .collect();
            if let Some(first) = ids.first() {
                for id in &ids {
                    text = text.replace(&format!("\"{id}\""), &format!("\"{first}\""));
                }
            }
            serde_json::from_str::<Vec<Value>>(&text).unwrap()
        })
    };
    for row in ROWS {
        let (knack, asked) = edited(same(row.0)).await;
        for text in ["twice", "beside"] {
            let mut talk = Talk::saying(row, text);
            let before = asked.mock.handle.requests().len();
            let answer = talk.send(&knack).await;
            let legal = is_legal(&mut talk, text, &answer);
            assert!(asked.mock.handle.requests().len() > before, "{row:?}");
            if legal && text == "beside" {
                talk.answer_weather();
                let answer = talk.send(&knack).await;
                is_legal(&mut talk, "answered", &answer);
            }
        }
    }
}

/// Some servers give the calls of a turn no ids, or one id to all of them: each call is a run of its own all the same.
#[tokio::test]
async fn calls_of_a_turn_without_ids_of_their_own_run_each() {
    let code = |program: &str| json!({"code": program});
    let gemini = |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]});
    let chat = |message: Value, reason: &str| json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]});
    let gemini_call = |program: &str| json!({"functionCall": {"name": "run_code", "args": code(program)}});
    let chat_call = |program: &str| {
        let function = json!({"name": "run_code", "arguments": code(program).to_string()});
        json!({"id": "call_0", "type": "function", "function": function})
    };
    let programs = ["print('one')", "print('two')"];
    let rows = [
        (
            "/v1beta/models/gemini-x:generateContent",
            json!({"contents": [{"role": "user", "parts": [{"text": "compute"}]}]}),
            gemini(json!(programs.map(gemini_call))),
            gemini(json!([{"text": "Done."}])),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [{"role": "user", "content": "compute"}]}),
            chat(
                json!({"role": "assistant", "content": null, "tool_calls": programs.map(chat_call)}),
                "tool_calls",
            ),
            chat(json!({"role": "assistant", "content": "Done."}), "stop"),
        ),
    ];
    for (path, body, calls, end) in rows {
        let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel::<String>();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", listener.local_addr().unwrap());
        let first = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let router = axum::Router::new().fallback(move |body: String| {
            let is_first = first.swap(false, std::sync::atomic::Ordering::SeqCst);
            let answer = if is_first { &calls } else { &end }.to_string();
            asked.send(body).unwrap();
            async move { ([("content-type", "application/json")], answer) }
        });
        let provider = tokio::spawn(async move { axum::serve(listener, router).await });
        let knack = start(Start {
            upstream: Some(upstream),
            executor: Arc::new(super::runner::executor(0).await),
            ..Start::default()
        })
        .await;
        let answer = client()
            .post(format!("{}{path}", knack.url))
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.text().await.unwrap().contains("Done."), "{path}");
        requests.recv().await.unwrap();
        let results = requests.recv().await.unwrap();
        let at = |word: &str| {
            results
                .find(word)
                .unwrap_or_else(|| panic!("{path}: no {word} in {results}"))
        };
        assert!(at("s\\none") < at("s\\ntwo"), "{path}: {results}");
        provider.abort();
    }
}

/// What an answer says of its sources comes through as it came, behind a hidden call too.
#[tokio::test]
async fn citations_behind_a_hidden_call_come_through_as_they_came() {
    let source = json!({"type": "url_citation", "url": "https://example.com/é", "title": "A \"title\"",
        "start_index": 0, "end_index": 6, "unknown": [1e3, null]});
    let cited = json!({"type": "char_location", "cited_text": "I know.", "document_index": 0, "document_title": null,
        "start_char_index": 0, "end_char_index": 7});
    for (format, added) in [
        (
            Format::Chat,
            json!({"index": 0, "delta": {"annotations": [source]}, "finish_reason": null}),
        ),
        (
            Format::Messages,
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": cited}}),
        ),
        (
            Format::Responses,
            json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0,
            "annotation_index": 0, "annotation": source, "sequence_number": 0}),
        ),
    ] {
        let put = added.clone();
        let (knack, _asked) = edited(Arc::new(move |mut events| {
            let is_text = |event: &Value| match format {
                Format::Chat => event["choices"][0]["delta"]["content"] == "I know.",
                Format::Messages => event["delta"]["text"] == "I know.",
                _ => event["type"] == "response.output_text.delta" && event["delta"] == "I know.",
            };
            if let Some(at) = events.iter().position(is_text) {
                let mut more = put.clone();
                if format == Format::Chat {
                    let mut chunk = events[at].clone();
                    chunk["choices"] = json!([more]);
                    more = chunk;
                } else {
                    let place = if format == Format::Messages {
                        "index"
                    } else {
                        "output_index"
                    };
                    more[place] = events[at][place].clone();
                    if format == Format::Responses {
                        more["item_id"] = events[at]["item_id"].clone();
                    }
                }
                events.insert(at + 1, more);
            }
            events
        }))
        .await;
        let mut talk = Talk::saying((format, true), "alone");
        let answer = talk.send(&knack).await;
        assert!(is_legal(&mut talk, "citations", &answer), "{}", answer.text);
        let got = events(&answer.text).into_iter().find_map(|event| match format {
            Format::Chat => event["choices"][0]["delta"]
                .get("annotations")
                .map(|list| (list[0].clone(), json!(0))),
            Format::Messages => event["delta"]
                .get("citation")
                .map(|cited| (cited.clone(), event["index"].clone())),
            _ => event
                .get("annotation")
                .map(|source| (source.clone(), event["output_index"].clone())),
        });
        let (got, place) = got.unwrap_or_else(|| panic!("{format:?}: {}", answer.text));
        let mut expected = if format == Format::Messages {
            cited.clone()
        } else {
            source.clone()
        };
        if format == Format::Chat {
            // One text of all rounds, in which the second one begins later.
            let text: String = events(&answer.text)
                .iter()
                .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
                .collect();
            let (before, _) = text.split_once("I know.").unwrap();
            let shift = before.chars().count();
            assert!(shift > 0, "{text}");
            for key in ["start_index", "end_index"] {
                expected[key] = json!(expected[key].as_u64().unwrap() + shift as u64);
            }
        }
        assert_eq!(got, expected, "{format:?}");
        // The place in the client's view: behind the text of the first round.
        assert_eq!(
            place,
            json!(u8::from(format != Format::Chat)),
            "{format:?}: {}",
            answer.text
        );
    }
}

/// Azure begins a stream with a frame about the prompt, whose id and model are empty and whose time is 0.
#[tokio::test]
async fn a_frame_about_the_prompt_does_not_name_the_answer() {
    let prompt = json!({"choices": [], "created": 0, "id": "", "model": "", "object": "",
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]});
    let put = prompt.clone();
    let (knack, _asked) = edited(Arc::new(move |events| [vec![put.clone()], events].concat())).await;
    let answer = Talk::saying((Format::Chat, true), "alone").send(&knack).await;
    assert!(answer.text.contains("I know."), "{}", answer.text);
    let chunks = events(&answer.text);
    assert_eq!(chunks[0], prompt);
    for chunk in &chunks[1..] {
        assert_eq!(
            (&chunk["id"], &chunk["model"]),
            (&chunks[1]["id"], &json!("gpt-x")),
            "{chunk}"
        );
        assert!(chunk["created"].as_u64() > Some(0) && chunk["id"] != "", "{chunk}");
    }
}

/// Some servers end no item by an event of its own, or announce none: the finished response has them.
#[tokio::test]
async fn items_that_only_the_end_of_a_response_has_are_shown_and_run() {
    let kept = |event: &Value, gone: &[&str]| {
        !gone
            .iter()
            .any(|kind| event["type"].as_str().unwrap().starts_with(kind))
    };
    for gone in [
        &["response.output_item.done"][..],
        &[
            "response.output_item",
            "response.content_part",
            "response.output_text",
            "response.function_call",
        ],
    ] {
        let edit: Edit = Arc::new(move |events| events.into_iter().filter(|event| kept(event, gone)).collect());
        let (knack, _asked) = edited(edit).await;
        let mut talk = Talk::saying((Format::Responses, true), "alone");
        let answer = talk.send(&knack).await;
        assert!(
            is_legal(&mut talk, &format!("without {gone:?}"), &answer),
            "{}",
            answer.text
        );
        let events = events(&answer.text);
        let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
        let texts: Vec<&Value> = output.iter().map(|item| &item["content"][0]["text"]).collect();
        assert_eq!(texts, ["I look.", "I know."], "{gone:?}");
        for kind in ["response.output_item.added", "response.output_item.done"] {
            let places: Vec<u64> = events
                .iter()
                .filter(|event| event["type"] == kind)
                .map(|event| event["output_index"].as_u64().unwrap())
                .collect();
            assert_eq!(places, [0, 1], "{gone:?} {kind}: {}", answer.text);
        }
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], number, "{event}");
        }
    }
    // A call of Knack that is whole nowhere is no answer.
    let edit: Edit = Arc::new(move |mut events| {
        events.retain(|event| kept(event, &["response.output_item.done"]));
        if let Some(response) = events.last_mut().and_then(|event| event.get_mut("response")) {
            response["output"] = json!([]);
        }
        events
    });
    let (knack, _asked) = edited(edit).await;
    let mut talk = Talk::saying((Format::Responses, true), "alone");
    let answer = talk.send(&knack).await;
    assert!(
        !is_legal(&mut talk, "a call without an end", &answer),
        "{}",
        answer.text
    );
    assert!(answer.text.contains("a call is not complete"), "{}", answer.text);
}

/// With `$alt=json;enum-encoding=int`, as Google's REST clients ask, enums are numbers.
#[tokio::test]
async fn a_call_runs_where_the_reason_of_its_end_is_a_number() {
    let edit = || {
        each(|frame| {
            if let Some(reason) = frame.pointer_mut("/candidates/0/finishReason") {
                *reason = json!(1);
            }
        })
    };
    for stream in [false, true] {
        let (knack, _asked) = edited(edit()).await;
        let mut talk = Talk::saying((Format::Gemini, stream), "alone");
        assert_eq!(talk.ask(&knack).await.text, "I look.\n\nI know.");
    }
}

/// Gemini names places by part and bytes, or by bytes of the whole text; sources of a round with a hidden call are kept.
#[tokio::test]
async fn sources_of_all_rounds_of_gemini_name_their_places_in_the_answer() {
    let edit = || {
        each(|frame| {
            let Some(candidate) = frame.pointer_mut("/candidates/0") else {
                return;
            };
            let parts = candidate["content"]["parts"].to_string();
            for (text, uri) in [
                ("I look.", "https://example.com/a"),
                ("I know.", "https://example.com/b"),
            ] {
                if parts.contains(text) {
                    candidate["groundingMetadata"] = json!({"webSearchQueries": [uri], "groundingChunks": [{"web": {"uri": uri}}],
                        "groundingSupports": [{"segment": {"endIndex": 7, "text": text}, "groundingChunkIndices": [0]}]});
                    candidate["citationMetadata"] = json!({"citationSources": [{"endIndex": 7, "uri": uri}]});
                }
            }
        })
    };
    for stream in [false, true] {
        let (knack, _asked) = edited(edit()).await;
        let mut talk = Talk::saying((Format::Gemini, stream), "alone");
        let answer = talk.send(&knack).await;
        assert!(is_legal(&mut talk, "sources", &answer), "{}", answer.text);
        let values = talk.values(&answer);
        let of = |name: &str, list: &str| -> Vec<Value> {
            let lists = values.iter().map(|value| value["candidates"][0][name][list].clone());
            lists
                .flat_map(|list| list.as_array().cloned().unwrap_or_default())
                .collect()
        };
        let queries = of("groundingMetadata", "webSearchQueries");
        assert_eq!(
            queries,
            ["https://example.com/a", "https://example.com/b"],
            "{}",
            answer.text
        );
        let supports = of("groundingMetadata", "groundingSupports");
        let places: Vec<Value> = supports.iter().map(|support| support["segment"].clone()).collect();
        assert_eq!(places[0], json!({"endIndex": 7, "text": "I look."}));
        // In a body the text of the second round is a part of its own, behind an empty line.
        let expected = if stream {
            json!({"startIndex": 9, "endIndex": 16, "text": "I know."})
        } else {
            json!({"partIndex": 1, "startIndex": 2, "endIndex": 9, "text": "I know."})
        };
        assert_eq!(places[1], expected, "{}", answer.text);
        let chunk = json!([u8::from(!stream)]);
        assert_eq!((places.len(), &supports[1]["groundingChunkIndices"]), (2, &chunk));
        assert_eq!(
            of("citationMetadata", "citationSources"),
            [
                json!({"endIndex": 7, "uri": "https://example.com/a"}),
                json!({"startIndex": 9, "endIndex": 16, "uri": "https://example.com/b"}),
            ]
        );
    }
}
