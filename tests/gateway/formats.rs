//! What only one of the formats has: counts, stored responses, arrays instead of events, paths.

use serde_json::{Value, json};

use super::support::{Answer, Start, client, start, with_sandbox, with_script};
use super::talk::{Format, ROWS, Talk, events};

const SCRIPT: &str = r#"
turns:
  - user: add
    rounds:
      - expect: {tool: load_skill, system: plover}
        reply: {thinking: I look it up., text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - expect: {result: {contains: "Run python3 skills/listed/add.py"}}
        reply: {thinking: Now I run it., calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {contains: "exit 0"}}
        reply: {text: "The sum: {{results}}"}
  - user: mixed
    rounds:
      - reply: {thinking: Both., calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {results: 1}
        reply: {text: "Without the run: {{results}}"}
      - expect: {results: 2, result: "42"}
        reply: {text: "All: {{results}}"}
  - user: and then
    rounds:
      - expect: {history: {contains: "exit 0"}}
        reply: {text: "I remember."}
  - user: carry on
    rounds:
      - reply: {text: "I read it all."}
  - user: split
    rounds:
      - reply: {thinking: "é1", text: "Straße ", calls: [{tool: load_skill, arguments: {skill: listed}}]}
        stream: {chunk_bytes: 1, piece_chars: 2}
      - reply: {text: "größer"}
        stream: {chunk_bytes: 3, piece_chars: 1}
  - rounds:
      - reply: {text: "You said: {{user}}"}
"#;

#[tokio::test]
async fn counts_have_the_injection_in_the_shape_that_the_provider_takes() {
    let knack = with_script(SCRIPT).await;
    let post = |path: &str, body: Value| {
        let post = client().post(format!("{}{path}", knack.url)).bearer_auth("key-a");
        post.header("content-type", "application/json").body(body.to_string())
    };
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    for (path, body) in [
        ("/v1beta/models/gemini-x:countTokens", json!({ "contents": contents })),
        (
            "/v1/models/gemini-x:countTokens",
            json!({"generateContentRequest": {"model": "models/gemini-x", "contents": contents}}),
        ),
        (
            "/v1/projects/p/locations/l/publishers/google/models/gemini-x:countTokens",
            json!({ "contents": contents }),
        ),
        ("/v1/responses/input_tokens", json!({"model": "gpt-x", "input": "hi"})),
    ] {
        let answer = knack.send(post(path, body.clone())).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(knack.upstream().to_string().contains("plover"), "{path}");
        let counted = answer.json()["totalTokens"]
            .as_u64()
            .or(answer.json()["input_tokens"].as_u64());
        assert!(counted.unwrap() > 100, "{}", answer.text);
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_closed_goes_untouched() {
    let knack = with_script(SCRIPT).await;
    let contents = r#""contents": [{"role":"user", "parts":[{"text":"hi"}]}]"#;
    for (format, body) in [
        (Format::Gemini, format!("{{\"cachedContent\":\"c\", {contents}}}")),
        (
            Format::Gemini,
            format!("{{\"tools\":[{{\"googleSearch\":{{}}}}], {contents}}}"),
        ),
        (
            Format::Gemini,
            format!("{{\"toolConfig\":{{\"functionCallingConfig\":{{\"mode\":\"NONE\"}}}}, {contents}}}"),
        ),
        (
            Format::Gemini,
            format!("{{\"generationConfig\":{{\"responseMimeType\":\"application/json\"}}, {contents}}}"),
        ),
        (
            Format::Gemini,
            format!("{{\"generation_config\":{{\"response_mime_type\":\"text/x.enum\"}}, {contents}}}"),
        ),
        (Format::Gemini, gemini_allowed("ANY")),
        (Format::Gemini, gemini_allowed("VALIDATED")),
        (
            Format::Responses,
            r#"{"model":"m", "background": true, "input":"hi"}"#.to_owned(),
        ),
        (
            Format::Responses,
            r#"{"model":"m", "tools":[{"type":"function","name":"f","parameters":{"type":"object"}}], "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}, "input":"hi"}"#.to_owned(),
        ),
        (
            Format::Chat,
            r#"{"model":"m", "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}], "tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}, "messages":[{"role":"user","content":"hi"}]}"#.to_owned(),
        ),
        (
            Format::Chat,
            r#"{"model":"google/gemini-2.5-flash", "response_format":{"type":"json_object"}, "messages":[{"role":"user","content":"hi"}]}"#.to_owned(),
        ),
        (
            Format::Responses,
            r#"{"model":"m", "tool_choice":"none", "input":"hi"}"#.to_owned(),
        ),
        (
            Format::Chat,
            r#"{"model":"m", "functions": [{"name":"f","parameters":{"type":"object","properties":{}}}], "function_call":"auto", "messages":[{"role":"user","content":"hi"}]}"#.to_owned(),
        ),
    ] {
        let one = Talk::new((format, false));
        let answer = knack
            .send(one.request(&knack.url, &Value::Null).body(body.clone()))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(knack.mock.handle.requests().last().unwrap().body, body.as_bytes());
    }
}

/// A request that has no place for a system text is the provider's to refuse: it gets no tools either, and no skill is claimed.
#[tokio::test]
async fn a_system_text_of_an_unknown_type_goes_untouched() {
    let knack = with_script(SCRIPT).await;
    for (format, body) in [
        (
            Format::Messages,
            r#"{"model":"m", "max_tokens":900, "system":{"type":"text","text":"a"}, "messages":[{"role":"user","content":"hi"}]}"#,
        ),
        (Format::Responses, r#"{"model":"m", "instructions":7, "input":"hi"}"#),
        (
            Format::Gemini,
            r#"{"systemInstruction":{"parts":"a"}, "contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#,
        ),
        (Format::Chat, r#"{"model":"m", "messages":[]}"#),
    ] {
        let one = Talk::new((format, false));
        let request = one.request(&knack.url, &Value::Null).body(body);
        let answer = knack.send(request).await;
        let sent = knack.mock.handle.requests();
        assert_eq!(
            sent.last().map(|sent| sent.body.to_vec()),
            Some(body.as_bytes().to_vec()),
            "{body}"
        );
        let claimed = answer.headers.get("x-knack").map(|value| value.to_str().unwrap());
        assert!(
            claimed.is_none_or(|claimed| claimed.contains("; skills=; added-tokens=0; off=")),
            "{body}: {claimed:?}"
        );
    }
}

/// A Gemini request that allows one function of its own.
fn gemini_allowed(mode: &str) -> String {
    json!({"tools": [{"functionDeclarations": [{"name": "f"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["f"]}},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
    .to_string()
}

/// Gemini's JSON mode by model, and the mode `VALIDATED` without a list of names: what is not closed gets its skills.
#[tokio::test]
async fn what_a_model_takes_beside_functions_is_not_closed() {
    let knack = with_script(SCRIPT).await;
    let functions = json!([{"functionDeclarations": [{"name": "f"}]}]);
    let json_mode = json!({"responseMimeType": "application/json"});
    for (model, members, injects) in [
        ("gemini-3-flash-preview", json!({"generationConfig": json_mode}), true),
        ("gemini-3.8-flash", json!({"generationConfig": json_mode}), true),
        ("gemini-10-pro", json!({"generationConfig": json_mode}), true),
        ("gemini-2.5-pro", json!({"generationConfig": json_mode}), false),
        ("gemini-1.5-flash-latest", json!({"generationConfig": json_mode}), false),
        ("gemini-flash-latest", json!({"generationConfig": json_mode}), false),
        (
            "gemini-2.5-pro",
            json!({"generationConfig": {"responseMimeType": "text/plain"}}),
            true,
        ),
        (
            "gemini-2.5-pro",
            json!({"tools": functions, "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}}}),
            true,
        ),
    ] {
        for verb in ["generateContent", "streamGenerateContent?alt=sse"] {
            let mut body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
            body.as_object_mut()
                .unwrap()
                .extend(members.as_object().unwrap().clone());
            let post = client().post(format!("{}/v1beta/models/{model}:{verb}", knack.url));
            let post = post.header("content-type", "application/json").body(body.to_string());
            let answer = knack.send(post).await;
            assert_eq!(answer.status, 200, "{model}: {}", answer.text);
            let sent = knack.upstream();
            assert_eq!(sent.to_string().contains("plover"), injects, "{model}: {sent}");
            assert_eq!(sent == body, !injects, "{model}: {sent}");
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// A template of the provider's, or a stored response, in place of input: what is run goes up all the same.
#[tokio::test]
async fn a_response_without_input_continues_behind_a_skill() {
    let script = r#"
turns:
  - rounds:
      - when: {results: 1}
        expect: {result: {contains: "Run python3"}}
        reply: {text: "I know how."}
      - reply: {text: "Let me see.", calls: [{tool: load_skill, arguments: {skill: listed}}]}
"#;
    for stream in [false, true] {
        let knack = with_script(script).await;
        let mut talk = Talk::new((Format::Responses, stream));
        let prompt = json!({"id": "pmpt_1", "version": "2"});
        for more in [
            json!({}),
            json!({"input": null}),
            json!({"store": false}),
            json!({"conversation": "conv_1"}),
        ] {
            let mut body = json!({"model": "gpt-x", "stream": stream, "prompt": prompt});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let before = knack.mock.handle.requests().len();
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            let said = talk.take(&answer);
            assert!(said.text.ends_with("I know how."), "{more}: {}", answer.text);
            let rounds = knack.mock.handle.requests().split_off(before);
            assert_eq!(rounds.len(), 2, "{more}");
            // Round 1 says no more of the conversation than the client did.
            assert_eq!(rounds[0].json().get("input"), body.get("input"), "{more}");
        }
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn gemini_without_events_is_one_array_and_vertex_paths_work() {
    let knack = with_script(SCRIPT).await;
    for path in [
        "/v1beta/models/gemini-x:streamGenerateContent?$alt=json&key=key-a",
        "/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent",
    ] {
        for skills in ["", "none"] {
            let body = json!({"contents": [{"role": "user", "parts": [{"text": "split"}]}]});
            let post = client().post(format!("{}{path}", knack.url)).body(body.to_string());
            let post = if skills.is_empty() {
                post
            } else {
                post.header("x-knack-skills", skills)
            };
            let answer = knack.send(post.header("content-type", "application/json")).await;
            if skills.is_empty() {
                assert_eq!(answer.headers["content-type"], "application/json");
                let frames = answer.json();
                let parts = frames
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|frame| frame["candidates"][0]["content"]["parts"].as_array().unwrap());
                let said: String = parts
                    .filter(|part| part["thought"] != true)
                    .map(|part| part["text"].as_str().unwrap())
                    .collect();
                assert_eq!(said, "Straße \n\ngrößer");
            } else {
                // The step of the script calls a tool that is not offered: the provider's own answer comes through.
                assert_eq!(answer.status, 400, "{}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn tuned_models_get_skills() {
    let knack = with_script(SCRIPT).await;
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    for (path, counted) in [
        ("/v1beta/tunedModels/abc", json!("tunedModels/abc")),
        ("/v1/projects/p/locations/l/endpoints/123", Value::Null),
    ] {
        for verb in ["generateContent", "countTokens"] {
            let post = client()
                .post(format!("{}{path}:{verb}", knack.url))
                .bearer_auth("key-a");
            let answer = knack
                .send(post.header("content-type", "application/json").body(body.to_string()))
                .await;
            assert_eq!(answer.status, 200, "{path}:{verb}: {}", answer.text);
            let sent = knack.upstream();
            assert!(sent.to_string().contains("plover"), "{path}:{verb}: {sent}");
            if verb == "countTokens" {
                assert_eq!(sent["generateContentRequest"]["model"], counted, "{path}");
            }
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// As LangChain sends it: what the client keeps of a call has no id.
#[tokio::test]
async fn a_gemini_client_that_leaves_ids_out_finds_its_hidden_turn() {
    let knack = with_sandbox(SCRIPT).await;
    for stream in [false, true] {
        let mut talk = Talk::saying((Format::Gemini, stream), "mixed");
        talk.ask(&knack).await;
        let contents = talk.history.iter_mut();
        for part in contents.flat_map(|content| content["parts"].as_array_mut().unwrap()) {
            if let Some(call) = part.get_mut("functionCall") {
                assert!(call.as_object_mut().unwrap().remove("id").is_some());
            }
        }
        talk.answer_weather();
        let said = talk.hear(&knack).await.text;
        assert!(
            said.starts_with("All: ") && said.contains("42") && said.contains("-3 C"),
            "{said}"
        );
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    assert_eq!(knack.told("run_code").await.matches("run_code: ").count(), 2);
}

#[tokio::test]
async fn a_stored_response_is_continued_by_the_id_that_was_shown() {
    let knack = with_sandbox(SCRIPT).await;
    let tools = json!([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]);
    for stream in [false, true] {
        let one = Talk::new((Format::Responses, stream));
        let ask = |body: Value| knack.send(one.request(&knack.url, &body));
        let response = |answer: &Answer| {
            assert_eq!(answer.status, 200, "{}", answer.text);
            if stream {
                events(&answer.text).pop().unwrap()["response"].clone()
            } else {
                answer.json()
            }
        };
        // A loop of three rounds: the provider's state is the third's.
        let added = response(&ask(json!({"model": "gpt-x", "stream": stream, "input": "please add"})).await);
        let next =
            json!({"model": "gpt-x", "stream": stream, "previous_response_id": added["id"], "input": "and then?"});
        let then = response(&ask(next).await);
        assert_eq!(then["previous_response_id"], added["id"]);
        assert!(then["output"].to_string().contains("I remember."), "{then}");
        // It is read, and deleted, by the id that was shown; what comes back is what was shown.
        let url = format!("{}/v1/responses/{}", knack.url, added["id"].as_str().unwrap());
        let get = |url: String| client().get(url).bearer_auth("key-a");
        let read = knack.send(get(url.clone())).await.json();
        assert_eq!(read, added);
        let items = knack.send(get(format!("{url}/input_items"))).await.json();
        assert_eq!(items["data"].as_array().unwrap().len(), 1, "{items}");
        assert_eq!(items["data"][0]["content"][0]["text"], "please add");
        let cancel = client().post(format!("{url}/cancel")).bearer_auth("key-a");
        let refused = knack.send(cancel).await;
        assert!(refused.text.contains("Cannot cancel"), "{}", refused.text);
        let asked = knack.mock.handle.requests().pop().unwrap().path;
        let last = asked
            .strip_prefix("/v1/responses/")
            .unwrap()
            .strip_suffix("/cancel")
            .unwrap();
        assert_ne!(
            last, added["id"],
            "the provider keeps the loop under the last round's id"
        );
        let another = knack.send(client().get(&url).bearer_auth("key-b")).await;
        assert!(!another.text.contains("The sum:"), "{}", another.text);
        let gone = knack.send(client().delete(&url).bearer_auth("key-a")).await.json();
        assert_eq!((&gone["id"], &gone["deleted"]), (&added["id"], &json!(true)));
        assert_eq!(knack.send(get(url)).await.status, 404);
        // A mixed turn: our result goes before the client's.
        let mixed = response(&ask(json!({"model": "gpt-x", "stream": stream, "input": "mixed", "tools": tools})).await);
        let call = mixed["output"].as_array().unwrap().last().unwrap()["call_id"].clone();
        let output = json!([{"type": "function_call_output", "call_id": call, "output": "-3 C"}]);
        let next = json!({"model": "gpt-x", "stream": stream, "previous_response_id": mixed["id"], "tools": tools, "input": output});
        let all = response(&ask(next).await);
        assert!(all["output"].to_string().contains("42"), "{all}");
        // A conversation that the provider keeps.
        let kept = json!({"model": "gpt-x", "stream": stream, "conversation": format!("conv_{stream}"), "input": "mixed", "tools": tools});
        let mixed = response(&ask(kept.clone()).await);
        let call = mixed["output"].as_array().unwrap().last().unwrap()["call_id"].clone();
        let mut next = kept;
        next["input"] = json!([{"type": "function_call_output", "call_id": call, "output": "-3 C"}]);
        let all = response(&ask(next).await);
        assert!(all["output"].to_string().contains("42"), "{all}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Two gateways before one provider, as after a restart that lost what was kept, or beside a replica without a hub; and
/// one gateway with two callers. The provider knows the response that was shown, whose calls of Knack are open.
#[tokio::test]
async fn a_response_whose_loop_is_not_known_is_an_error_that_says_what_to_send() {
    let first = with_sandbox(SCRIPT).await;
    let second = start(Start {
        upstream: Some(first.mock.url.clone()),
        ..Start::default()
    })
    .await;
    for stream in [false, true] {
        let mut talk = Talk::plain((Format::Responses, stream), "please add");
        let body = |text: &str, previous: Option<&str>| json!({"model": "gpt-x", "stream": stream, "input": text, "previous_response_id": previous});
        let begun = body("please add", None);
        let added = talk.take(&first.send(talk.request(&first.url, &begun)).await);
        let lost = body("carry on", Some(&added.id));
        let another = Talk {
            key: "key-b",
            ..Talk::new((Format::Responses, stream))
        };
        for answer in [
            second.send(talk.request(&second.url, &lost)).await,
            first.send(another.request(&first.url, &lost)).await,
        ] {
            let error = &answer.json()["error"];
            assert_eq!(
                (answer.status, &error["code"], &error["param"]),
                (
                    400,
                    &json!("previous_response_not_found"),
                    &json!("previous_response_id")
                ),
                "{}",
                answer.text
            );
            assert!(answer.headers.contains_key("x-knack-request-id"), "{}", answer.text);
            let message = error["message"].as_str().unwrap();
            for said in [&*added.id, "send the items of the conversation in \"input\""] {
                assert!(message.contains(said), "{message}");
            }
            for ours in ["plover", "load_skill", "127.0.0.1"] {
                assert!(!message.contains(ours), "{message}");
            }
        }
        // What the error says works.
        talk.say("carry on");
        let whole = json!({"model": "gpt-x", "stream": stream, "input": talk.history});
        let answer = second.send(talk.request(&second.url, &whole)).await;
        assert_eq!(talk.take(&answer).text, "I read it all.", "stream {stream}");
        // Where the loop was seen, its results are there.
        let next = body("and then?", Some(&added.id));
        let answer = first.send(talk.request(&first.url, &next)).await;
        assert_eq!(talk.take(&answer).text, "I remember.", "stream {stream}");
    }
    assert_eq!(first.mock.handle.failures(), Vec::<String>::new());
}

/// A loop of which no saved turn fits: its messages are forgotten, and what a client needs that goes on by id is not.
#[tokio::test]
async fn a_loop_that_is_too_large_to_be_remembered_is_continued_by_id() {
    let long = "long ".repeat(60_000);
    let script = format!(
        r#"
turns:
  - user: mixed
    rounds:
      - reply: {{text: "{long}", calls: [{{tool: load_skill, arguments: {{skill: listed}}}}, {{tool: get_weather, arguments: {{city: Oslo}}}}]}}
      - expect: {{results: 2}}
        reply: {{text: "All."}}
  - user: and then
    rounds:
      - reply: {{text: "I remember."}}
  - rounds:
      - reply: {{text: "{long}", calls: [{{tool: load_skill, arguments: {{skill: listed}}}}]}}
      - reply: {{text: "I know."}}
"#
    );
    let tools = json!([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]);
    for stream in [false, true] {
        let knack = with_script(&script).await;
        let mut talk = Talk::new((Format::Responses, stream));
        let mut ask = async |body: Value| {
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            (talk.take(&answer), talk.history.last().cloned().unwrap())
        };
        let base = json!({"model": "gpt-x", "stream": stream, "tools": tools});
        let with = |more: Value| {
            let mut body = base.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let (begun, _) = ask(with(json!({"input": "look it up"}))).await;
        let (said, _) = ask(with(json!({"input": "and then?", "previous_response_id": begun.id}))).await;
        assert_eq!(said.text, "I remember.");
        for kept in [json!({}), json!({"conversation": "conv_1"})] {
            let mut first = with(json!({"input": "mixed"}));
            first.as_object_mut().unwrap().extend(kept.as_object().unwrap().clone());
            let (mixed, call) = ask(first.clone()).await;
            assert_eq!(mixed.calls, ["get_weather"]);
            first["input"] = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "-3 C"}]);
            if first.get("conversation").is_none() {
                first["previous_response_id"] = json!(mixed.id);
            }
            assert_eq!(ask(first).await.0.text, "All.", "{kept}");
        }
        // A client that sends the items has a miss, and loses nothing that it saw.
        let mut items = Talk::saying((Format::Responses, stream), "look it up");
        let whole = |history: &[Value]| json!({"model": "gpt-x", "stream": stream, "input": history});
        let answer = knack.send(items.request(&knack.url, &whole(&items.history))).await;
        assert!(items.take(&answer).text.ends_with("I know."));
        items.say("and then?");
        let answer = knack.send(items.request(&knack.url, &whole(&items.history))).await;
        assert_eq!(items.take(&answer).text, "I remember.");
        let sent = knack.upstream();
        let texts = sent["input"].to_string();
        assert!(
            texts.contains("long long") && texts.contains("I know."),
            "{}",
            &texts[..200]
        );
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    }
}

/// The first gateway injects, remembers and runs; the second one, which serves the same skills, leaves it alone.
#[tokio::test]
async fn two_gateways_in_a_row_inject_once() {
    let script = "turns:\n  - user: look\n    rounds:\n      - expect: {tool: load_skill, system: plover}\n        reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}\n      - expect: {result: {contains: Run python3}}\n        reply: {text: Looked.}\n  - user: and then\n    rounds:\n      - expect: {history: {contains: Run python3}}\n        reply: {text: I remember.}\n";
    let second = with_script(script).await;
    let first = start(Start {
        upstream: Some(second.url.clone()),
        through_knack: true,
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let mut talk = Talk::saying(row, "look");
        assert_eq!(talk.ask(&first).await.text, "Looked.", "{row:?}");
        let sent = second.upstream().to_string();
        assert_eq!(sent.matches("The word is plover.").count(), 1, "{row:?}: {sent}");
        assert_eq!(
            sent.matches("Returns the instructions, file list").count(),
            1,
            "{row:?}: {sent}"
        );
        talk.say("and then");
        assert_eq!(talk.ask(&first).await.text, "I remember.", "{row:?}");
    }
    assert_eq!(second.mock.handle.failures(), Vec::<String>::new());
    let lines = second.told_times("x-knack-via", 3 * ROWS.len()).await;
    assert!(!lines.contains("skills: always"), "{lines}");
    first.told_times("skills: always (always)", 2 * ROWS.len()).await;
}
