//! What is injected, into which requests, and what the client sees of it.

use serde_json::{Value, json};

use super::support::{Answer, Start, start, with_script};
use super::talk::{Format, ROWS, Talk};

const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: \"You said: {{user}}\"}\n";

fn chat(text: &str) -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]})
}

fn messages(text: &str) -> Value {
    json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn system_text_and_tools_reach_the_provider_in_every_format() {
    let knack = with_script(ECHO).await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let answer = talk.send(&knack).await;
        assert!(answer.text.contains("You said: hi"), "{row:?}: {}", answer.text);
        assert!(answer.headers["x-knack"].to_str().unwrap().contains("skills=always"));
        let sent = knack.upstream();
        let (system, tool) = match row.0 {
            Format::Chat => (&sent["messages"][0]["content"], &sent["tools"][0]["function"]),
            Format::Messages => (&sent["system"], &sent["tools"][0]),
            Format::Responses => (&sent["instructions"], &sent["tools"][0]),
            Format::Gemini => (&sent["systemInstruction"], &sent["tools"][0]["functionDeclarations"][0]),
        };
        let system = system.to_string();
        assert!(
            system.contains("Adds numbers.") && system.contains("The word is plover."),
            "{row:?}: {system}"
        );
        assert_eq!(tool["name"], "load_skill", "{row:?}");
    }
}

/// The client's system text in the forms that its format has.
fn system_forms(format: Format) -> Vec<Value> {
    let text = "Be brief.";
    match format {
        Format::Chat => vec![json!(text), json!([{"type": "text", "text": text}])],
        Format::Messages => vec![
            json!(text),
            json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]),
        ],
        Format::Responses => vec![json!(text)],
        Format::Gemini => vec![
            json!({"parts": [{"text": text}]}),
            json!({"role": "system", "parts": [{"text": text}, {"text": "More."}]}),
        ],
    }
}

#[tokio::test]
async fn system_text_in_every_form_or_absent_gets_the_skills() {
    let knack = with_script(ECHO).await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        for system in system_forms(row.0).into_iter().map(Some).chain([None]) {
            let mut body = talk.body();
            if let Some(system) = &system {
                match row.0 {
                    Format::Chat => {
                        let messages = body["messages"].as_array_mut().unwrap();
                        messages.insert(0, json!({"role": "system", "content": system}));
                    }
                    Format::Messages => body["system"] = system.clone(),
                    Format::Responses => body["instructions"] = system.clone(),
                    Format::Gemini => body["systemInstruction"] = system.clone(),
                }
            }
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            assert_eq!(answer.status, 200, "{row:?} {system:?}: {}", answer.text);
            let sent = knack.upstream().to_string();
            assert!(sent.contains("plover"), "{row:?} {system:?}: {sent}");
            assert_eq!(sent.contains("Be brief."), system.is_some(), "{row:?}: {sent}");
        }
    }
}

#[tokio::test]
async fn no_skill_active_is_byte_equal_upstream() {
    let knack = start(Start {
        skills: vec![],
        ..Start::default()
    })
    .await;
    let odd =
        "{ \"model\" : \"gpt-x\",\"n\":1, \"messages\":[ {\"role\":\"user\", \"content\":\"h\\u0069\"} ],\"x\":1.0e2 }";
    let request = knack.chat(&json!({})).body(odd);
    assert_eq!(knack.send(request).await.status, 200);
    let received = knack.mock.handle.requests();
    assert_eq!(received.last().unwrap().body.as_ref(), odd.as_bytes());
}

#[tokio::test]
async fn the_header_none_switches_injection_off_and_stays_here() {
    let knack = with_script(ECHO).await;
    let body = chat("hi");
    assert_eq!(
        knack
            .send(knack.chat(&body).header("x-knack-skills", "none"))
            .await
            .status,
        200
    );
    let received = knack.mock.handle.requests();
    assert_eq!(received.last().unwrap().body.as_ref(), body.to_string().as_bytes());
    assert!(received.last().unwrap().header("x-knack-skills").is_none());
}

#[tokio::test]
async fn a_skill_named_by_header_or_mention_is_active_and_an_unknown_one_is_404_in_the_clients_shape() {
    let skills = vec![(
        "quiet/SKILL.md",
        "---\nname: quiet\ndescription: d\nactivation: OnRequest\n---\nThe quiet word.\n",
    )];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    knack.send(knack.chat(&chat("hi"))).await;
    assert!(!knack.upstream().to_string().contains("quiet word"));
    knack
        .send(knack.chat(&chat("hi")).header("x-knack-skills", "quiet"))
        .await;
    assert!(knack.upstream().to_string().contains("quiet word"));
    knack.send(knack.messages(&messages("@quiet do it"))).await;
    assert!(knack.upstream().to_string().contains("quiet word"));
    let refused = knack
        .send(knack.chat(&chat("hi")).header("x-knack-skills", "nobody"))
        .await;
    assert_eq!(refused.status, 404);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("nobody"));
    let mut body = messages("hi");
    body["container"] = json!({"skills": [{"type": "custom", "skill_id": "litellm:nobody"}]});
    let refused = knack.send(knack.messages(&body)).await;
    assert_eq!(
        (refused.status, refused.json()["type"].as_str().unwrap().to_owned()),
        (404, "error".to_owned())
    );
    assert!(refused.text.contains("nobody"));
}

/// Saved with an error, suspended: whoever names it reads what is wrong, in the shape of its API, and nothing goes to the provider.
#[tokio::test]
async fn a_named_skill_that_is_not_served_is_answered_with_the_reason() {
    let manifest = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: halted}\nspec:\n  suspend: true\n  source: {inline: {files: {SKILL.md: \"---\\nname: halted\\ndescription: d\\n---\\nx\"}}}\n";
    let skills = vec![
        (
            "broken/SKILL.md",
            "---\nname: broken\ndescription: [d\n---\nThe broken word.\n",
        ),
        ("halted.yaml", manifest),
    ];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        for (name, why) in [("broken", "SKILL.md:3"), ("halted", "suspend")] {
            let request = talk.request(&knack.url, &talk.body()).header("x-knack-skills", name);
            let answer = knack.send(request).await;
            assert_eq!(answer.status, 404, "{row:?} {name}: {}", answer.text);
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(
                message.contains(&format!("skill \"{name}\" is here but not served: ")) && message.contains(why),
                "{row:?}: {message}"
            );
        }
    }
    let mut body = messages("hi");
    body["container"] = json!({"skills": [{"type": "custom", "skill_id": "broken"}]});
    let refused = knack.send(knack.messages(&body)).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
    assert!(
        knack.mock.handle.requests().is_empty(),
        "a bare name goes to no provider"
    );
    // What a message names stays a message.
    assert_eq!(knack.send(knack.messages(&messages("@broken do it"))).await.status, 200);
    knack.told("@broken is here but not served").await;
}

#[tokio::test]
async fn a_container_with_ours_and_native_skills_lists_both_in_the_answer() {
    let skills = vec![(
        "quiet/SKILL.md",
        "---\nname: quiet\ndescription: d\nversion: 1.4.0\nactivation: OnRequest\n---\nThe quiet word.\n",
    )];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    // The version that was served, whether the request asks for the latest or for none.
    let served = json!({"type": "custom", "skill_id": "quiet", "version": "1.4.0"});
    let unversioned = json!({"type": "custom", "skill_id": "quiet"});
    let (ours, native) = (
        json!({"type": "custom", "skill_id": "quiet", "version": "latest"}),
        json!({"type": "anthropic", "skill_id": "pptx", "version": "20251013"}),
    );
    for stream in [false, true] {
        for (asked, upstream, answered) in [
            (json!([ours, native]), json!([native]), json!([native, served])),
            (json!([native]), json!([native]), json!([native])),
            (json!([ours]), Value::Null, json!([served])),
            (json!([unversioned]), Value::Null, json!([served])),
        ] {
            let mut body = messages("hi");
            body["stream"] = json!(stream);
            body["container"] = json!({"skills": asked});
            body["tools"] = json!([{"type": "code_execution_20250825", "name": "code_execution"}]);
            let answer = knack.send(knack.messages(&body)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(knack.upstream()["container"]["skills"], upstream);
            let container = if stream {
                let events = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
                let events = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
                let mut ends = events.filter(|event| event["type"] == "message_delta");
                ends.next().unwrap()["delta"]["container"].clone()
            } else {
                answer.json()["container"].clone()
            };
            assert_eq!(container["skills"], answered, "stream {stream}: {}", answer.text);
            let is_own = container["id"].as_str().unwrap().starts_with("container_knack_");
            assert_eq!(is_own, upstream.is_null(), "{container}");
        }
    }
}

/// Beside a name as beside an id, in `container.skills` and at a shell.
#[tokio::test]
async fn the_version_that_a_request_names_is_served_or_refused() {
    let skills = vec![(
        "quiet/SKILL.md",
        "---\nname: quiet\ndescription: d\nversion: 1.4.0\nactivation: OnRequest\n---\nThe quiet word.\n",
    )];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    for (id, version, status, code) in [
        ("quiet", json!("1.4.0"), 200, Value::Null),
        ("quiet", json!("^1"), 200, Value::Null),
        ("quiet", json!("latest"), 200, Value::Null),
        ("quiet", Value::Null, 200, Value::Null),
        ("quiet@^1", json!("^1"), 200, Value::Null),
        ("quiet@^1", json!("latest"), 200, Value::Null),
        ("quiet", json!("2.0.0"), 404, json!("skill_not_found")),
        ("quiet@^1", json!("2.0.0"), 400, json!("skill_version_invalid")),
        ("quiet", json!(["1.4.0"]), 400, json!("skill_version_invalid")),
    ] {
        for format in [Format::Chat, Format::Responses] {
            let entry = json!({"type": "skill_reference", "skill_id": id, "version": version});
            let mut body = Talk::plain((format, false), "hi").body();
            if format == Format::Responses {
                body["tools"] =
                    json!([{"type": "shell", "environment": {"type": "container_auto", "skills": [entry]}}]);
            } else {
                body["container"] = json!({"skills": [entry]});
            }
            let answer = knack
                .send(Talk::plain((format, false), "hi").request(&knack.url, &body))
                .await;
            let at = format!("{format:?} {id} {version}: {}", answer.text);
            assert_eq!(answer.status, status, "{at}");
            assert_eq!(answer.json()["error"]["code"], code, "{at}");
        }
        let mut body = messages("hi");
        body["container"] = json!({"skills": [{"type": "custom", "skill_id": id, "version": version}]});
        let answer = knack.send(knack.messages(&body)).await;
        assert_eq!(answer.status, status, "{id} {version}: {}", answer.text);
    }
    // A whole number is a version of OpenAI's form alone.
    let mut body = messages("hi");
    body["container"] = json!({"skills": [{"type": "custom", "skill_id": "quiet", "version": 1}]});
    assert_eq!(knack.send(knack.messages(&body)).await.status, 400);
}

/// What is too short for a skill gets none, and its answer names none.
#[tokio::test]
async fn an_answer_without_injection_has_no_container_of_ours() {
    let skills = vec![(
        "quiet/SKILL.md",
        "---\nname: quiet\ndescription: d\nactivation: OnRequest\n---\nThe quiet word.\n",
    )];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    for (tokens, has_container) in [(9, false), (64, true)] {
        let mut body = messages("hi");
        body["max_tokens"] = json!(tokens);
        body["container"] = json!({"skills": [{"type": "custom", "skill_id": "quiet"}]});
        let answer = knack.send(knack.messages(&body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(knack.upstream()["container"], Value::Null);
        assert_eq!(answer.json()["container"].is_object(), has_container, "{}", answer.text);
    }
}

#[tokio::test]
async fn several_answers_at_once_are_refused_while_skills_are_active() {
    let knack = with_script(ECHO).await;
    for several in [json!(2), json!(2.0), json!("2")] {
        let mut body = chat("hi");
        body["n"] = several;
        let refused = knack.send(knack.chat(&body)).await;
        assert_eq!(
            (refused.status, refused.json()["error"]["param"].clone()),
            (400, json!("n")),
            "{body}"
        );
    }
}

/// A client that goes on from a thread sends only what is new in it, with neither system text nor tools: the SDKs send the whole
/// conversation when the thread is lost.
#[tokio::test]
async fn threads_of_messages_are_the_providers_alone() {
    let knack = with_script(ECHO).await;
    let body = |thread: Value| {
        let mut body = messages("hi");
        body["thread"] = thread;
        body
    };
    let create = body(json!({"type": "create"}));
    let goes_on = body(json!({"type": "continue", "previous_message_id": "msg_1"}));
    let answer = knack.send(knack.messages(&create)).await;
    assert_eq!((answer.status, answer.said()), (200, "You said: hi".to_owned()));
    assert!(knack.upstream()["thread"].is_null() && knack.upstream()["system"].is_string());
    let lost = knack.send(knack.messages(&goes_on)).await;
    let error = &lost.json()["error"];
    assert_eq!(
        (lost.status, &error["details"]["error_code"]),
        (404, &json!("thread_not_found")),
        "{error}"
    );
    assert_eq!(
        lost.json()["request_id"],
        lost.headers["x-knack-request-id"].to_str().unwrap()
    );
    assert_eq!(knack.mock.handle.requests().len(), 1, "it was not sent");
    for (thread, status) in [(create, 200), (goes_on, 404)] {
        let request = knack.messages(&thread).header("x-knack-skills", "none");
        assert_eq!(knack.send(request).await.status, status);
        assert_eq!(knack.upstream(), thread);
    }
}

#[tokio::test]
async fn token_counts_count_the_injected_text() {
    let knack = with_script(ECHO).await;
    let count = |url: String, body: Value| async move {
        let request = super::support::client()
            .post(url)
            .header("x-api-key", "k")
            .header("anthropic-version", "2023-06-01")
            .body(body.to_string());
        super::support::read(request.send().await.unwrap()).await.json()["input_tokens"]
            .as_u64()
            .unwrap()
    };
    let body = json!({"model": "claude-x", "messages": [{"role": "user", "content": "hi"}]});
    let with = count(format!("{}/v1/messages/count_tokens", knack.url), body.clone()).await;
    let without = count(format!("{}/v1/messages/count_tokens", knack.mock.url), body).await;
    assert!(with > without + 50, "{with} against {without}");
}

#[tokio::test]
async fn a_path_prefix_and_unknown_paths_pass() {
    let knack = with_script(ECHO).await;
    let request = super::support::client()
        .post(format!("{}/gw/v1/chat/completions", knack.url))
        .bearer_auth("k")
        .body(chat("hi").to_string());
    assert_eq!(knack.send(request).await.status, 200);
    let models = knack
        .send(
            super::support::client()
                .get(format!("{}/v1/models", knack.url))
                .bearer_auth("k"),
        )
        .await;
    assert_eq!((models.status, models.json()["object"].clone()), (200, json!("list")));
}

/// A tool of the client's.
fn declared(format: Format, name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    match format {
        Format::Chat => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        Format::Messages => json!({"name": name, "input_schema": schema}),
        Format::Responses => json!({"type": "function", "name": name, "parameters": schema}),
        Format::Gemini => json!({"functionDeclarations": [{"name": name, "parametersJsonSchema": schema}]}),
    }
}

/// The names of the tools that the provider was sent, in order.
fn offered(format: Format, sent: &Value) -> Vec<String> {
    let tools = sent["tools"].as_array().unwrap().iter();
    let named = tools.flat_map(|tool| match format {
        Format::Chat => vec![&tool["function"]["name"]],
        Format::Messages | Format::Responses => vec![&tool["name"]],
        Format::Gemini => {
            let functions = tool["functionDeclarations"].as_array().unwrap().iter();
            functions.map(|function| &function["name"]).collect()
        }
    });
    named.map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// `x-knack` without its revision.
fn told(answer: &Answer) -> &str {
    let header = answer.headers["x-knack"].to_str().unwrap();
    let (revision, rest) = header.split_once("; ").unwrap_or((header, ""));
    assert!(revision.starts_with("revision=") && revision.len() > 12, "{header}");
    rest
}

/// The client's tool is the client's; header and console say that the skill's was left out.
#[tokio::test]
async fn a_declared_tool_with_a_name_of_the_clients_is_left_out_and_the_header_says_so() {
    let skill = "---\nname: lookup\ndescription: d\nmode: llm\nactivation: Always\ntools:\n  - name: lookup\n    description: The skill's.\n    command: [python3, look.py]\n---\nx\n";
    let script = "turns:\n  - user: look\n    rounds:\n      - reply: {calls: [{tool: lookup, arguments: {}}]}\n";
    let knack = start(Start {
        skills: vec![("lookup/SKILL.md", skill), ("lookup/look.py", "")],
        script: script.to_owned(),
        ..Start::default()
    })
    .await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let mut talk = Talk::plain(row, "look");
        let mut body = talk.body();
        body["tools"] = json!([declared(row.0, "lookup")]);
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        let said = talk.take(&answer);
        assert_eq!(said.calls, ["lookup"], "{row:?}");
        assert!(
            told(&answer).starts_with("skills=lookup; added-tokens="),
            "{}",
            told(&answer)
        );
        assert!(
            told(&answer).ends_with("; left-out=lookup"),
            "{row:?}: {}",
            told(&answer)
        );
        let names = offered(row.0, &knack.upstream());
        assert_eq!(names.iter().filter(|name| *name == "lookup").count(), 1, "{names:?}");
        assert!(!knack.upstream().to_string().contains("The skill's."), "{row:?}");
        knack.told_times("tool lookup is left out", count + 1).await;
    }
}

#[tokio::test]
async fn generic_tools_with_names_of_the_clients_get_others_and_nothing_is_left_out() {
    let script = "turns:\n  - user: look\n    rounds:\n      - expect: {system: call knack_load_skill with its name}\n        reply: {calls: [{tool: knack_load_skill, arguments: {skill: listed}}]}\n      - expect: {result: {contains: Run python3}}\n        reply: {calls: [{tool: load_skill, arguments: {}}, {tool: run_code, arguments: {}}]}\n";
    let knack = with_script(script).await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "look");
        let mut body = talk.body();
        body["tools"] = json!([declared(row.0, "load_skill"), declared(row.0, "run_code")]);
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(talk.take(&answer).calls, ["load_skill", "run_code"], "{row:?}");
        assert!(!answer.text.contains("knack_load_skill"), "{row:?}: {}", answer.text);
        assert!(!told(&answer).contains("left-out"), "{row:?}: {}", told(&answer));
        let names = offered(row.0, &knack.upstream());
        assert_eq!(
            names,
            ["load_skill", "run_code", "knack_load_skill", "knack_run_code"],
            "{row:?}"
        );
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The reason is one of a few words: no text of the client's is in the header.
#[tokio::test]
async fn an_answer_without_skills_says_why_in_its_header() {
    let knack = with_script(ECHO).await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let plain = talk.body();
        let mut few = plain.clone();
        let mut refused = plain.clone();
        match row.0 {
            Format::Chat | Format::Messages => few["max_tokens"] = json!(9),
            Format::Responses => few["max_output_tokens"] = json!(9),
            Format::Gemini => few["generationConfig"] = json!({"maxOutputTokens": 9}),
        }
        match row.0 {
            Format::Chat => {
                refused["functions"] = json!([{"name": "f", "parameters": {"type": "object", "properties": {}}}]);
            }
            Format::Messages => refused["tool_choice"] = json!({"type": "none"}),
            Format::Responses => refused["background"] = json!(true),
            Format::Gemini => refused["cachedContent"] = json!("c"),
        }
        let word = match row.0 {
            Format::Chat => "legacy-functions",
            Format::Messages => "tool_choice",
            Format::Responses => "background",
            Format::Gemini => "cachedContent",
        };
        for (body, header, word) in [
            (&plain, "none", "x-knack-skills"),
            (&few, "", "max_tokens"),
            (&refused, "", word),
        ] {
            let request = talk.request(&knack.url, body).header("x-knack-skills", header);
            let answer = knack.send(request).await;
            let expected = format!("skills=; added-tokens=0; off={word}");
            assert_eq!(told(&answer), expected, "{row:?}: {}", answer.text);
        }
        let via = talk.request(&knack.url, &plain).header("x-knack-via", "anything");
        let answer = knack.send(via).await;
        assert_eq!(told(&answer), "skills=; added-tokens=0; off=x-knack-via", "{row:?}");
        assert_eq!(knack.upstream(), plain, "{row:?}");
    }
}

/// A request that is refused has the revision by which it was judged.
#[tokio::test]
async fn refusals_have_the_revision_of_the_catalog() {
    let knack = with_script(ECHO).await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let served = talk.send(&knack).await;
        let revision = served.headers["x-knack"]
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        let unknown = talk
            .request(&knack.url, &talk.body())
            .header("x-knack-skills", "nobody");
        let mut several = talk.body();
        let is_refused = match row.0 {
            Format::Chat => {
                several["n"] = json!(2);
                true
            }
            Format::Gemini => {
                several["generationConfig"] = json!({"candidateCount": 2});
                true
            }
            Format::Messages | Format::Responses => false,
        };
        let mut asked = vec![(404, unknown)];
        if is_refused {
            asked.push((400, talk.request(&knack.url, &several)));
        }
        for (status, request) in asked {
            let answer = knack.send(request).await;
            assert_eq!(answer.status, status, "{row:?}: {}", answer.text);
            assert_eq!(answer.headers["x-knack"], revision.as_str(), "{row:?}");
        }
    }
    // No catalog was asked.
    let unread = knack
        .send(knack.chat(&json!({})).header("content-encoding", "odd"))
        .await;
    assert_eq!(unread.status, 415);
    assert!(unread.headers.get("x-knack").is_none());
}
