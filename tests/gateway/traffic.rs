//! Requests as other people's programs send them: coding agents with many tools and a long history, and media. What is
//! theirs reaches the provider as the bytes that they wrote, in every round.

use std::sync::Arc;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::support::{Running, Start, start, with_script};
use super::talk::{Format, ROWS, Talk};

const SCRIPT: &str = r#"
turns:
  - user: fix the build
    rounds:
      - expect: {tool: [load_skill, run_code, get_weather, tool_38], system: [plover, You are an agent.]}
        reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: On it., calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - expect: {results: 3, result: ["42", -3 C]}
        reply: {text: Built.}
  - user: look at these
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {text: Seen.}
"#;

/// Tools of an agent.
const TOOLS: usize = 40;
/// Calls in its history, each with an answer.
const CALLS: usize = 30;

/// A schema with what agents have in theirs.
fn schema() -> Value {
    json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "required": ["command"],
        "properties": {"command": {"type": "string", "description": "What to run, as in \"ls -l\" – no pipes"}, "timeout": {"type": ["number", "null"]}}})
}

/// Names of the agent's functions. The one that the script calls is in the middle.
fn names() -> impl Iterator<Item = String> {
    (0..TOOLS - 1).flat_map(|number| {
        let own = Some(format!("tool_{number}"));
        own.into_iter()
            .chain((number == TOOLS / 2).then(|| "get_weather".to_owned()))
    })
}

/// A list as its bytes without the last bracket, before which the gateway may add something.
fn open_list(list: &[Value]) -> String {
    let text = Value::from(list).to_string();
    text[..text.len() - 1].to_owned()
}

/// Asks, answers the call of the agent's own tool, and asks again: the provider gets the agent's bytes in every round.
async fn plays(knack: &Running, mut talk: Talk, tools: &str, send: impl Fn(RequestBuilder, &str) -> RequestBuilder) {
    let before = knack.mock.handle.requests().len();
    let history = open_list(&talk.history);
    for calls in [&["get_weather"][..], &[]] {
        let conversation = Value::from(talk.history.clone()).to_string();
        let request = send(talk.request(&knack.url, &Value::Null), &conversation);
        let answer = knack.send(request).await;
        for hidden in ["load_skill", "run_code", "plover"] {
            assert!(!answer.text.contains(hidden), "{hidden}: {}", answer.text);
        }
        let said = talk.take(&answer);
        assert_eq!(said.calls, calls, "{}", answer.text);
        if calls.is_empty() {
            assert_eq!(said.text, "Built.");
        } else {
            talk.answer_weather();
        }
    }
    let requests = knack.mock.handle.requests().split_off(before);
    assert_eq!(requests.len(), 3, "the hidden rounds ran once");
    for request in requests {
        let body = String::from_utf8_lossy(&request.body);
        for kept in [tools, history.as_str()] {
            assert!(body.contains(kept), "{kept}\n\n{body}");
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    assert_eq!(knack.mock.handle.refusals(), Vec::new());
}

async fn gateway() -> Running {
    start(Start {
        script: SCRIPT.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await
}

/// As Claude Code sends it: the system text in blocks, four cache markers, its tools, a long history of calls.
#[tokio::test]
async fn an_agent_of_messages_with_cache_markers_and_many_tools_keeps_its_bytes() {
    let knack = gateway().await;
    let marker = json!({"type": "ephemeral", "ttl": "1h"});
    let system = json!([
        {"type": "text", "text": "x-agent: cli 2.0"},
        {"type": "text", "text": "You are an agent.", "cache_control": marker},
        {"type": "text", "text": "# Environment\nWorking directory: /src", "cache_control": marker},
    ]);
    let mut tools: Vec<Value> = names()
        .map(|name| json!({"name": name, "description": "Runs a \"command\".", "input_schema": schema()}))
        .collect();
    tools[TOOLS - 1]["cache_control"] = marker.clone();
    for stream in [true, false] {
        let mut talk = Talk::new((Format::Messages, stream));
        talk.history = vec![
            json!({"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"}, {"type": "text", "text": "what is here"}]}),
        ];
        for number in 0..CALLS {
            let id = format!("toolu_{number}");
            let call = json!({"type": "tool_use", "id": id, "name": format!("tool_{number}"), "input": {"command": format!("ls {number} \"é\"")}});
            talk.history
                .push(json!({"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]}));
            let result = json!({"type": "tool_result", "tool_use_id": id, "is_error": number % 7 == 0, "content": [{"type": "text", "text": "a\nb"}]});
            talk.history.push(json!({"role": "user", "content": [result]}));
        }
        talk.history
            .push(json!({"role": "assistant", "content": [{"type": "text", "text": "Done so far."}]}));
        let asked = json!({"type": "text", "text": "fix the build", "cache_control": marker});
        talk.history.push(json!({"role": "user", "content": [asked]}));
        assert!(talk.history.len() > 60);
        let (system, listed) = (system.to_string(), Value::from(tools.clone()).to_string());
        plays(&knack, talk, &open_list(&tools), |request, messages| {
            let body = format!(
                r#"{{"model":"claude-x","messages":{messages},"system":{system},"tools":{listed},"metadata":{{"user_id":"user_1"}},"max_tokens":32000,"stream":{stream}}}"#
            );
            let request = request.header("anthropic-beta", "claude-code-20250219,context-management-2025-06-27");
            request.header("x-app", "cli").header("user-agent", "claude-cli/2.0 (external, cli)").body(body)
        })
        .await;
    }
    for request in knack.mock.handle.requests() {
        let markers = String::from_utf8_lossy(&request.body).matches("cache_control").count();
        assert_eq!(markers, 4, "the client's, and no more");
        assert_eq!(
            request.header("anthropic-beta").unwrap(),
            "claude-code-20250219,context-management-2025-06-27"
        );
        assert_eq!(
            (request.header("x-app"), request.header("user-agent")),
            (Some("cli"), Some("claude-cli/2.0 (external, cli)"))
        );
    }
}

/// A call of Codex and its answer, of each kind that it has.
fn codex_call(number: usize) -> [Value; 2] {
    let id = format!("call_{number}");
    let output = |kind: &str| json!({"type": kind, "call_id": id, "output": "{\"output\":\"a\\n\",\"metadata\":{\"exit_code\":0}}"});
    match number % 5 {
        0 => [
            json!({"type": "function_call", "name": "tool_0", "arguments": "{\"command\":[\"bash\",\"-lc\",\"ls\"]}", "call_id": id}),
            output("function_call_output"),
        ],
        1 => [
            json!({"type": "custom_tool_call", "status": "completed", "call_id": id, "name": "apply_patch", "input": "*** Begin Patch\n*** Update File: a\n@@\n-é\n+e\n*** End Patch"}),
            output("custom_tool_call_output"),
        ],
        2 => [
            json!({"type": "local_shell_call", "call_id": id, "status": "completed", "action": {"type": "exec", "command": ["bash", "-lc", "ls"], "timeout_ms": null, "working_directory": "/src", "env": null, "user": null}}),
            output("local_shell_call_output"),
        ],
        3 => [
            json!({"type": "apply_patch_call", "call_id": id, "status": "completed", "operation": {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}}),
            json!({"type": "apply_patch_call_output", "call_id": id, "status": "failed", "output": "no such file"}),
        ],
        _ => [
            json!({"type": "shell_call", "call_id": id, "status": "completed", "action": {"commands": ["ls", "pwd"], "timeout_ms": 1000, "max_output_length": null}, "environment": {"type": "local"}}),
            json!({"type": "shell_call_output", "call_id": id, "max_output_length": null, "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}, {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]}),
        ],
    }
}

/// As Codex sends it: nothing stored, patches and shells of its own, hosted tools, a long history of all of them.
#[tokio::test]
async fn an_agent_of_responses_with_patches_and_shells_keeps_its_bytes() {
    let knack = gateway().await;
    let functions = names().map(|name| json!({"type": "function", "name": name, "description": "Runs a \"command\".", "strict": false, "parameters": schema()}));
    let mut tools: Vec<Value> = functions.collect();
    tools.extend([
        json!({"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch hunk+ end_patch"}}),
        json!({"type": "apply_patch"}),
        json!({"type": "local_shell"}),
        json!({"type": "shell", "environment": {"type": "local"}}),
        json!({"type": "web_search"}),
    ]);
    for stream in [true, false] {
        let mut talk = Talk::new((Format::Responses, stream));
        talk.history = vec![
            json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>\nread only\n</permissions>"}]}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"}]}),
        ];
        talk.history.extend((0..CALLS).flat_map(codex_call));
        talk.history.push(json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done so far."}]}));
        talk.history.push(
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix the build"}]}),
        );
        assert!(talk.history.len() > 60);
        let listed = Value::from(tools.clone()).to_string();
        plays(&knack, talk, &open_list(&tools), |request, input| {
            let body = format!(
                r#"{{"model":"gpt-x","instructions":"You are an agent.","input":{input},"tools":{listed},"tool_choice":"auto","parallel_tool_calls":true,"reasoning":{{"effort":"medium","summary":"auto"}},"store":false,"stream":{stream},"include":["reasoning.encrypted_content"],"prompt_cache_key":"0199","text":{{"verbosity":"low"}}}}"#
            );
            request.header("originator", "codex_cli_rs").header("session_id", "0199").body(body)
        })
        .await;
    }
    for request in knack.mock.handle.requests() {
        assert_eq!(
            (request.header("originator"), request.header("session_id")),
            (Some("codex_cli_rs"), Some("0199"))
        );
        assert_eq!(request.json()["prompt_cache_key"], "0199");
    }
}

/// Parts of a message besides its text.
fn media(format: Format) -> Vec<Value> {
    let (png, pdf) = ("iVBORw0KGgo=", "JVBERi0xLjQ=");
    match format {
        Format::Chat => vec![
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{png}"), "detail": "low"}}),
            json!({"type": "image_url", "image_url": {"url": "https://img.example/\u{e9}.png"}}),
            json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")}}),
        ],
        Format::Messages => vec![
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}),
            json!({"type": "document", "title": "A", "citations": {"enabled": true}, "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}),
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Gr\u{fc}\u{df}e"}}),
            json!({"type": "search_result", "source": "https://a.example", "title": "t", "content": [{"type": "text", "text": "x"}], "citations": {"enabled": true}}),
        ],
        Format::Responses => vec![
            json!({"type": "input_image", "detail": "auto", "image_url": format!("data:image/png;base64,{png}")}),
            json!({"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")}),
            json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        ],
        Format::Gemini => vec![
            json!({"inlineData": {"mimeType": "image/png", "data": png}}),
            json!({"inline_data": {"mime_type": "application/pdf", "data": pdf}}),
            json!({"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}),
            json!({"fileData": {"fileUri": "https://video.example/1", "mimeType": "video/mp4"}, "videoMetadata": {"fps": 0.5}}),
        ],
    }
}

#[tokio::test]
async fn images_documents_and_audio_go_round_untouched() {
    let knack = with_script(SCRIPT).await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "");
        let parts = media(row.0);
        let text = match row.0 {
            Format::Chat | Format::Messages => json!({"type": "text", "text": "look at these"}),
            Format::Responses => json!({"type": "input_text", "text": "look at these"}),
            Format::Gemini => json!({"text": "look at these"}),
        };
        let all = [&parts[..], &[text]].concat();
        talk.history = vec![if row.0 == Format::Gemini {
            json!({"role": "user", "parts": all})
        } else {
            json!({"role": "user", "content": all})
        }];
        assert_eq!(talk.ask(&knack).await.text, "Seen.", "{row:?}");
        let requests = knack.mock.handle.requests();
        for request in &requests[requests.len() - 2..] {
            let body = String::from_utf8_lossy(&request.body);
            assert!(body.contains(&open_list(&parts)), "{row:?}: {body}");
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// An agent marks the answers of its history too: what takes the place of one ends in its marker.
#[tokio::test]
async fn a_cache_marker_on_an_answer_with_a_hidden_round_is_kept() {
    let marker = json!({"type": "ephemeral", "ttl": "1h"});
    for (format, stream) in ROWS {
        if !matches!(format, Format::Messages | Format::Chat) {
            continue;
        }
        let knack = with_script(SCRIPT).await;
        let mut talk = Talk::plain((format, stream), "look at these");
        talk.ask(&knack).await;
        let content = &mut talk.history.last_mut().unwrap()["content"];
        if format == Format::Chat {
            *content = json!([{"type": "text", "text": content.take()}]);
        }
        content.as_array_mut().unwrap().last_mut().unwrap()["cache_control"] = marker.clone();
        talk.say("look at these again");
        talk.ask(&knack).await;
        let sent = knack.mock.handle.requests()[2].json();
        assert_eq!(sent.to_string().matches("cache_control").count(), 1, "{sent}");
        let messages = sent["messages"].as_array().unwrap();
        let answer = &messages[messages.len() - 2];
        assert_eq!(answer["role"], "assistant", "{sent}");
        let last = answer["content"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["text"], &last["cache_control"]),
            (&json!("Seen."), &marker),
            "{sent}"
        );
        assert!(
            messages
                .iter()
                .any(|message| message.to_string().contains("load_skill")),
            "{sent}"
        );
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    }
}
