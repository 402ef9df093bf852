//! Adapters of `toolcalls.json`: extraction, ownership, results and loops.

use base64::Engine as _;
use knack_skill::call::{End, LITELLM_TIMEOUT_SECONDS, Outcome as RunOutcome, OutputFile};
use knack_skill::texts;
use knack_wire::Format;
use knack_wire::drive::{EndKind, GeneratedFile};
use serde_json::{Map, Value, json};

use super::exchange::{ExchangeResult, NO_CONNECTION, play};
use super::injection::litellm::pre_call;
use super::omniroute::{items, text};
use crate::facts::extract::{self, Family};
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("toolcalls", "extract", extract_calls),
    Op::new("toolcalls", "detect_provider", detect_provider),
    Op::new("toolcalls", "ownership", ownership),
    Op::new("toolcalls", "provider_retry", provider_retry),
    Op::new("toolcalls", "provider_redirect", provider_redirect),
    Op::new("toolcalls", "litellm_extract", litellm_extract),
    Op::new("toolcalls", "litellm_code_result", litellm_code_result),
    Op::new("toolcalls", "litellm_loop", litellm_loop).compared(Compare::Named),
];

fn extract_calls(input: &Value) -> Outcome {
    found(Family::of_model(text(input, "model")), &input["response"], "arguments")
}

fn litellm_extract(input: &Value) -> Outcome {
    // LiteLLM reads blocks first, and choices where no block is a call.
    let blocks = items(&input["response"], "content").iter();
    let family = if blocks.map(|block| text(block, "type")).any(|kind| kind == "tool_use") {
        Family::Anthropic
    } else {
        Family::OpenAi
    };
    let mut response = input["response"].clone();
    if let Some(choices) = response.get_mut("choices").and_then(Value::as_array_mut) {
        // LiteLLM reads the first choice only; requests for several are refused here.
        choices.truncate(1);
    }
    found(family, &response, "input")
}

fn found(family: Family, response: &Value, arguments: &str) -> Outcome {
    let one = |call: extract::ExtractedCall| {
        let value: Value =
            serde_json::from_str(&call.arguments).map_err(|error| Failure::of_adapter(error.to_string()))?;
        let mut row = Map::new();
        row.insert("id".to_owned(), call.id.into());
        row.insert("name".to_owned(), call.name.into());
        row.insert(arguments.to_owned(), value);
        Ok(Value::Object(row))
    };
    extract::calls(family, response.to_string().as_bytes())
        .into_iter()
        .map(one)
        .collect()
}

fn detect_provider(input: &Value) -> Outcome {
    Ok(Family::of_model(text(input, "model")).name().into())
}

fn chat_turn(calls: &[Value], finish: &str) -> Value {
    let call = |(at, call): (usize, &Value)| {
        let id = call.get("id").cloned().unwrap_or_else(|| format!("c{at}").into());
        json!({"id": id, "type": "function", "function": {"name": call["name"], "arguments": "{}"}})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let message = if calls.is_empty() {
        json!({"role": "assistant", "content": "done"})
    } else {
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    };
    json!({"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]})
}

fn final_turn() -> (u16, Value) {
    (200, chat_turn(&[], "stop"))
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn ownership(input: &Value) -> Outcome {
    let context = &input["context"];
    let mut tools = strings(&context["builtinToolNames"]);
    if context["customSkillExecutionEnabled"] != json!(false) {
        tools.extend(strings(&context["injectedCustomSkillNames"]));
    }
    let calls = input["calls"].as_array().cloned().unwrap_or_default();
    let played = play(
        Format::Chat,
        &tools,
        &[(200, chat_turn(&calls, "tool_calls")), final_turn()],
        &[],
    )?;
    let server: Vec<&str> = played.calls.iter().map(|call| call.id.as_str()).collect();
    let answer = played.answer()?;
    let left = answer["choices"][0]["message"]["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let client: Vec<Value> = left.iter().map(|call| call["id"].clone()).collect();
    Ok(json!({"server": server, "client": client}))
}

fn provider_retry(input: &Value) -> Outcome {
    let tools = ["t".to_owned()];
    let first = (200, chat_turn(&[json!({"name": "t"})], "tool_calls"));
    let mut seen = None;
    for status in input["statuses"].as_array().into_iter().flatten() {
        let status = match status.as_u64() {
            Some(status) => u16::try_from(status).map_err(|error| Failure::of_adapter(error.to_string()))?,
            // In words: a network error.
            None => NO_CONNECTION,
        };
        let played = play(
            Format::Chat,
            &tools,
            &[first.clone(), (status, json!({"error": {"message": "no"}}))],
            &[],
        )?;
        let waits: Vec<_> = played
            .delays
            .iter()
            .skip(2)
            .map(std::time::Duration::as_millis)
            .collect();
        let facts = json!({"attempts": played.delays.len() - 1, "backoff_ms": waits});
        if seen.as_ref().is_some_and(|seen| *seen != facts) {
            return Err(Failure::of_adapter(format!(
                "status {status} behaves in another way: {facts}"
            )));
        }
        seen = Some(facts);
    }
    Ok(seen.unwrap_or_default())
}

/// A redirect is an upstream answer like any other: it goes to the client, and nothing is sent a second time.
fn provider_redirect(input: &Value) -> Outcome {
    let status = u16::try_from(input["status"].as_u64().unwrap_or_default())
        .map_err(|error| Failure::of_adapter(error.to_string()))?;
    let played = play(Format::Chat, &[], &[(status, json!({}))], &[])?;
    if played.delays.len() == 1 && played.status == status {
        return Err(Failure::new("refused, key never replayed"));
    }
    Ok(json!({"sent": played.delays.len(), "status": played.status}))
}

fn litellm_code_result(input: &Value) -> Outcome {
    let result = &input["sandbox_result"];
    let mut files = Vec::new();
    let mut outputs = Vec::new();
    for file in result["files"].as_array().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text(file, "content_base64"))
            .map_err(|error| Failure::of_adapter(error.to_string()))?;
        outputs.push(OutputFile {
            path: text(file, "name").to_owned(),
            mime: text(file, "mime_type").to_owned(),
            size: bytes.len() as u64,
            url: None,
        });
        files.push(GeneratedFile {
            name: text(file, "name").to_owned(),
            media_type: text(file, "mime_type").to_owned(),
            bytes: bytes.into(),
        });
    }
    let outcome = RunOutcome {
        end: End::Exit(i32::from(result["success"] != json!(true))),
        duration_ms: 1,
        stdout: text(result, "output").to_owned(),
        stderr: text(result, "error").to_owned(),
        truncated: false,
        files: outputs,
        file_errors: Vec::new(),
    };
    let played = play(
        Format::Chat,
        &["t".to_owned()],
        &[(200, chat_turn(&[json!({"name": "t"})], "tool_calls")), final_turn()],
        &files,
    )?;
    let generated = played
        .answer()?
        .get("_litellm_generated_files")
        .cloned()
        .unwrap_or_else(|| json!([]));
    Ok(json!({"tool_result": texts::litellm_result(&outcome), "generated_files": generated}))
}

/// Facts in words: each is measured on the loop itself, and reported in the case's words only if it is so.
fn litellm_loop(input: &Value) -> Outcome {
    let own = ["litellm_code_execution".to_owned(), "litellm_skill_1_a".to_owned()];
    let file = |at: u64| GeneratedFile {
        name: format!("{at}.txt"),
        media_type: "text/plain".to_owned(),
        bytes: vec![b'x'].into(),
    };
    if let Some(tool) = input["tool"].as_str() {
        let name = tool.replace("<id with underscores>", "1_a");
        let played = play(
            Format::Chat,
            &own,
            &[(200, chat_turn(&[json!({"name": name})], "tool_calls")), final_turn()],
            &[],
        )?;
        return Ok(json!({"executed": played.calls.len() == 1}));
    }
    if input.get("sandbox_timeout_seconds").is_some() {
        return Ok(json!({"sandbox_timeout_seconds": LITELLM_TIMEOUT_SECONDS}));
    }
    if let Some(looped) = loops(input, &own)? {
        return Ok(json!({"loop": looped}));
    }
    if input.get("iterations").is_some() {
        let again = (200, chat_turn(&[json!({"name": own[0]})], "tool_calls"));
        let played = play(Format::Chat, &own, &[again], &[file(1)])?;
        let with_files = played.answer()?.get("_litellm_generated_files").is_some();
        let at_limit = played
            .summary
            .as_ref()
            .is_some_and(|summary| summary.end == EndKind::Limit);
        let then = if played.status == 200 && with_files && at_limit {
            "last response returned with files"
        } else {
            "something else"
        };
        return Ok(json!({"max_iterations": played.calls.len(), "then": then}));
    }
    if let Some(reason) = input["stop_reason"].as_str() {
        let count = input["tool_calls"].as_u64().unwrap_or_default();
        let blocks: Vec<Value> = (0..count)
            .map(|at| json!({"type": "tool_use", "id": format!("t{at}"), "name": own[0], "input": {}}))
            .collect();
        let turn = json!({"id": "m", "type": "message", "role": "assistant", "content": blocks, "stop_reason": reason, "usage": {"output_tokens": 1}});
        let played = play(
            Format::Messages,
            &own,
            &[(200, turn), (200, json!({"content": [], "stop_reason": "end_turn"}))],
            &[],
        )?;
        return Ok(json!({"loop": if played.calls.is_empty() { "ends" } else { "goes on" }}));
    }
    if let Some(count) = input["files"].as_u64() {
        let files: Vec<GeneratedFile> = (0..count).map(file).collect();
        let played = play(
            Format::Chat,
            &own,
            &[(200, chat_turn(&[json!({"name": own[0]})], "tool_calls")), final_turn()],
            &files,
        )?;
        return generated(&played, count);
    }
    if input["llm_call_fails_mid_loop"].is_boolean() {
        let first = (200, chat_turn(&[json!({"name": own[0]})], "tool_calls"));
        let played = play(
            Format::Chat,
            &own,
            &[first, (400, json!({"error": {"message": "no"}}))],
            &[],
        )?;
        // LiteLLM's loop for Messages catches the error and returns the first response, whose calls the client cannot answer; its
        // loop for Chat raises it. Here the error of a later round is the client's in every format.
        return match played.status {
            200..400 => Ok(json!({"status": played.status})),
            status => Err(Failure::new(format!("status {status}"))),
        };
    }
    Err(Failure::of_adapter("a fact that the loop does not decide"))
}

/// Whether the loop begins, where a case asks for that: only a call of a tool that this request got from here begins it.
fn loops(input: &Value, own: &[String]) -> Result<Option<bool>, Failure> {
    let is = |fact: &str| input[fact] == json!(true);
    let (tools, called) = if let Some(called) = input["only_tool"].as_str() {
        (own.to_vec(), called)
    } else if is("metadata_flag_missing") {
        // Upstream marks the requests that it gave the code tool to.
        (Vec::new(), own[0].as_str())
    } else if is("skill_files_empty") {
        (tools_without_files()?, own[0].as_str())
    } else {
        return Ok(None);
    };
    let turn = (200, chat_turn(&[json!({"name": called})], "tool_calls"));
    let played = play(Format::Chat, &tools, &[turn, final_turn()], &[])?;
    Ok(Some(!played.calls.is_empty()))
}

/// The tools of a request that names a stored skill without files.
fn tools_without_files() -> Result<Vec<String>, Failure> {
    let id = "litellm_skill_1";
    let request = json!({
        "call_type": "completion", "stored_skills": {id: {"display_title": "T", "instructions": "I"}},
        "request": {
            "model": "m", "messages": [{"role": "user", "content": "x"}], "container": {"skills": [{"skill_id": id}]},
        },
    });
    let body = pre_call(&request)?;
    let names = items(&body, "tools")
        .iter()
        .map(|tool| text(&tool["function"], "name").to_owned());
    Ok(names.collect())
}

/// The list in the case's notation: one row, texts as `..`, numbers as 0.
fn generated(played: &ExchangeResult, count: u64) -> Outcome {
    let answer = played.answer()?;
    let Some(list) = answer.get("_litellm_generated_files") else {
        return Ok(json!({"_litellm_generated_files": "absent"}));
    };
    let rows = list.as_array().cloned().unwrap_or_default();
    if rows.len() as u64 != count {
        return Err(Failure::of_adapter(format!("{} files instead of {count}", rows.len())));
    }
    let blank = |value: &Value| if value.is_number() { json!(0) } else { json!("..") };
    let row = |row: &Value| {
        row.as_object().map(|row| {
            row.iter()
                .map(|(key, value)| (key.clone(), blank(value)))
                .collect::<Map<_, _>>()
        })
    };
    Ok(json!({"_litellm_generated_files": [rows.first().and_then(row)]}))
}
