//! Gemini requests in the forms of the API's own curl examples, which the JSON of protocol buffers allows: one object for a
//! list of one, words in any case, both spellings.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start, with_script};
use super::talk::events;

const SCRIPT: &str = r#"
turns:
  - user: lights
    rounds:
      - expect: {tool: load_skill, system: [lighting, plover]}
        reply: {text: "I look.", calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - expect: {system: lighting, result: {contains: "Run python3"}, history: {contains: lights}}
        reply: {text: "They are on."}
  - user: Hello
    rounds:
      - expect: {system: [Neko, plover]}
        reply: {text: Meow.}
  - rounds:
      - reply: {text: "You said: {{user}}"}
"#;

/// Both paths of an answer.
const PATHS: [&str; 2] = [
    "/v1beta/models/gemini-x:generateContent",
    "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
];

async fn ask(knack: &Running, path: &str, body: &str, skills: Option<&str>) -> Answer {
    let post = client()
        .post(format!("{}{path}", knack.url))
        .header("x-goog-api-key", "key-a");
    let post = match skills {
        Some(skills) => post.header("x-knack-skills", skills),
        None => post,
    };
    let post = post.header("content-type", "application/json").body(body.to_owned());
    knack.send(post).await
}

/// The texts of an answer, joined.
fn said(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let values = if answer.text.starts_with("data: ") {
        events(&answer.text)
    } else {
        vec![answer.json()]
    };
    let parts = values
        .iter()
        .flat_map(|value| value["candidates"][0]["content"]["parts"].as_array().unwrap());
    parts.map(|part| part["text"].as_str().unwrap_or_default()).collect()
}

/// `google-gemini/api-examples`, `rest/function_calling.sh`, with `tools` as one object too.
fn function_calling(one_tool: bool) -> String {
    let tool = r#"{"function_declarations": {"name": "enable_lights", "description": "Turn on the lighting system."}}"#;
    let tools = if one_tool { tool.to_owned() } else { format!("[{tool}]") };
    format!(
        r#"{{"system_instruction": {{"parts": {{"text": "You are a helpful lighting system bot."}}}}, "tools": {tools},
        "tool_config": {{"function_calling_config": {{"mode": "auto"}}}},
        "contents": {{"role": "user", "parts": {{"text": "Turn on the lights please."}}}}}}"#
    )
}

/// `rest/system_instruction.sh`.
const SYSTEM: &str = r#"{"system_instruction": {"parts": {"text": "You are a cat. Your name is Neko."}}, "contents": {"parts": {"text": "Hello there"}}}"#;

#[tokio::test]
async fn the_forms_of_the_apis_own_examples_are_read_and_nothing_of_them_is_lost() {
    let knack = with_script(SCRIPT).await;
    for path in PATHS {
        for one_tool in [false, true] {
            let answer = ask(&knack, path, &function_calling(one_tool), None).await;
            assert_eq!(said(&answer), "I look.\n\nThey are on.", "{path}");
            let sent = knack.upstream();
            assert_eq!(
                sent["tools"][0]["function_declarations"]["name"], "enable_lights",
                "{sent}"
            );
        }
        for member in ["systemInstruction", "system_instruction"] {
            let body = SYSTEM.replace("system_instruction", member);
            assert_eq!(said(&ask(&knack, path, &body, None).await), "Meow.", "{path}");
            // One system instruction, in the client's spelling.
            let sent = knack.upstream();
            let spellings = ["systemInstruction", "system_instruction"];
            assert_eq!(
                spellings
                    .iter()
                    .filter(|name| sent.get(**name).is_some())
                    .collect::<Vec<_>>(),
                [&member]
            );
            assert_eq!(sent[member]["parts"].as_array().unwrap().len(), 2, "{sent}");
        }
        // Untouched, it goes as it came.
        let body = SYSTEM.replace("Hello", "Good day");
        assert_eq!(
            said(&ask(&knack, path, &body, Some("none")).await),
            "You said: Good day there"
        );
        assert_eq!(knack.mock.handle.requests().pop().unwrap().body, body.as_bytes());
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_system_instruction_without_parts_gets_them_and_one_that_is_none_is_refused_as_it_came() {
    let knack = with_script(SCRIPT).await;
    let contents = r#""contents": {"parts": {"text": "hi"}}"#;
    for (system, sent) in [
        (r#""system_instruction": null"#, json!({})),
        (r#""system_instruction": {}"#, json!({})),
        (r#""system_instruction": {"role": "user"}"#, json!({"role": "user"})),
        (
            r#""systemInstruction": {"role": "user", "parts": null}"#,
            json!({"role": "user"}),
        ),
    ] {
        let answer = ask(&knack, PATHS[0], &format!("{{{system}, {contents}}}"), None).await;
        assert_eq!(said(&answer), "You said: hi", "{system}");
        let member = if system.contains('_') {
            "system_instruction"
        } else {
            "systemInstruction"
        };
        let mut got = knack.upstream()[member].take();
        let parts = got.as_object_mut().unwrap().remove("parts").unwrap();
        assert!(parts[0]["text"].as_str().unwrap().contains("plover"), "{parts}");
        assert_eq!(
            (got, knack.upstream().as_object().unwrap().len()),
            (sent, 3),
            "{system}"
        );
    }
    let body = format!(r#"{{"system_instruction": ["You are a cat."], {contents}}}"#);
    let refused = ask(&knack, PATHS[0], &body, None).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert_eq!(knack.upstream()["system_instruction"], json!(["You are a cat."]));
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// `rest/code_execution.sh`, without the comma at its end; with `tools` as one object too.
#[tokio::test]
async fn code_execution_of_the_examples_is_left_to_a_provider_that_has_it_and_served_where_none_does() {
    let code = |tools: &str| format!(r#"{{"tools": {tools}, "contents": {{"parts": {{"text": "compute the sum"}}}}}}"#);
    let forms = [r#"[{"code_execution": {}}]"#, r#"{"code_execution": {}}"#];
    let provider = with_script(SCRIPT).await;
    for path in PATHS {
        for tools in forms {
            let body = code(tools);
            assert_eq!(
                said(&ask(&provider, path, &body, None).await),
                "You said: compute the sum"
            );
            assert_eq!(provider.mock.handle.requests().pop().unwrap().body, body.as_bytes());
        }
    }
    assert_eq!(provider.mock.handle.failures(), Vec::<String>::new());
    let script = r#"
provider: {code_tools: false}
turns:
  - rounds:
      - expect: {tool: run_code}
        reply: {calls: [{tool: run_code, arguments: {code: "print(5117)"}}]}
      - expect: {result: {contains: "5117"}, history: {contains: compute}}
        reply: {text: "It is 5117."}
"#;
    let knack = start(Start {
        script: script.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::Gemini],
        ..Start::default()
    })
    .await;
    for path in PATHS {
        for tools in forms {
            let answer = ask(&knack, path, &code(tools), None).await;
            assert_eq!(said(&answer), "It is 5117.", "{path} {tools}");
            assert!(answer.text.contains("executableCode"), "{}", answer.text);
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn the_words_of_a_calling_mode_have_any_case_and_may_be_numbers() {
    let script = r#"
turns:
  - rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - expect: {body: '"AUTO"'}
        reply: {text: "Loaded."}
"#;
    let knack = with_script(script).await;
    let body = |mode: &str| {
        format!(
            r#"{{"tool_config": {{"function_calling_config": {{"mode": {mode}}}}}, "contents": [{{"parts": [{{"text": "hi"}}]}}]}}"#
        )
    };
    for path in PATHS {
        // A client without tools of its own: the choice is free once Knack's was called.
        for mode in ["\"ANY\"", "\"any\"", "2"] {
            assert_eq!(
                said(&ask(&knack, path, &body(mode), None).await),
                "Loaded.",
                "{path} {mode}"
            );
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    let knack = with_script("turns: [{rounds: [{reply: {text: ok}}]}]").await;
    for mode in ["\"NONE\"", "\"none\"", "3"] {
        assert_eq!(said(&ask(&knack, PATHS[0], &body(mode), None).await), "ok");
        let sent: Value = knack.upstream();
        assert_eq!(
            (sent.get("tools"), sent.get("systemInstruction")),
            (None, None),
            "{mode}"
        );
    }
}

/// Clients keep the empty texts that a model, or a frame whose parts were hidden, showed them. Vertex AI refuses them.
#[tokio::test]
async fn empty_parts_of_the_history_go_nowhere_and_empty_texts_not_to_vertex() {
    let knack = with_script(SCRIPT).await;
    let path = format!(
        "/v1/projects/p/locations/l/publishers/google{}",
        PATHS[0].trim_start_matches("/v1beta")
    );
    let model = |parts: &Value| {
        let contents = json!([{"role": "user", "parts": [{"text": "Who?"}]}, {"role": "model", "parts": parts}, {"role": "user", "parts": [{"text": "Tell."}]}]);
        json!({ "contents": contents }).to_string()
    };
    let text = json!({"text": "I."});
    for (parts, kept) in [
        (json!([{"text": ""}, text, {}]), json!([text])),
        (json!([text, {"text": ""}]), json!([text])),
    ] {
        let answer = ask(&knack, &path, &model(&parts), None).await;
        assert_eq!(said(&answer), "You said: Tell.");
        assert_eq!(knack.upstream()["contents"][1]["parts"], kept);
    }
    // Elsewhere empty texts are taken, and stay. Parts without anything, as an SDK makes of what it does not know, are
    // refused everywhere.
    for (parts, kept) in [
        (json!([{"text": ""}, text]), json!([{"text": ""}, text])),
        (json!([{}, {"text": ""}, text, {}]), json!([{"text": ""}, text])),
    ] {
        assert_eq!(
            said(&ask(&knack, PATHS[0], &model(&parts), None).await),
            "You said: Tell."
        );
        assert_eq!(knack.upstream()["contents"][1]["parts"], kept);
    }
}

/// Models that speak or draw take neither a system text nor functions.
#[tokio::test]
async fn requests_for_speech_or_images_get_nothing_unless_their_client_has_functions() {
    let knack = with_script(SCRIPT).await;
    for path in PATHS {
        for (config, tools, is_injected) in [
            (
                json!({"responseModalities": ["AUDIO"], "speechConfig": {}}),
                false,
                false,
            ),
            (json!({"responseModalities": ["TEXT", "IMAGE"]}), false, false),
            (json!({"response_modalities": ["text", 2]}), false, false),
            (json!({"responseModalities": ["AUDIO"]}), true, true),
            (json!({"responseModalities": ["text"]}), false, true),
            (json!({"responseModalities": [1]}), false, true),
            (json!({"responseModalities": []}), false, true),
        ] {
            let mut body = json!({"contents": [{"parts": [{"text": "Tell."}]}], "generationConfig": config});
            if tools {
                body["tools"] = json!([{"functionDeclarations": [{"name": "get_weather"}]}]);
            }
            let body = body.to_string();
            assert_eq!(said(&ask(&knack, path, &body, None).await), "You said: Tell.");
            let sent = knack.mock.handle.requests().pop().unwrap().body;
            assert_eq!(sent == body.as_bytes(), !is_injected, "{path} {body}");
        }
    }
}

/// A form of the answer that is no JSON is one too: what the model writes before it calls is no part of the answer.
#[tokio::test]
async fn the_text_of_an_answer_of_another_form_waits_for_the_turns_end() {
    let script = r#"
turns:
  - rounds:
      - reply: {text: "I look.", calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: "yes"}
"#;
    let knack = with_script(script).await;
    for path in PATHS {
        let path = path.replace("gemini-x", "gemini-3");
        let body = r#"{"contents": [{"parts": [{"text": "Is it?"}]}],
            "generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["yes", "no"]}}}"#;
        assert_eq!(said(&ask(&knack, &path, body, None).await), "yes", "{path}");
    }
}
