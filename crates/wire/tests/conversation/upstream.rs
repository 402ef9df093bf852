//! A scripted upstream that refuses what a provider refuses: calls without results, results without calls, wrong order,
//! moved thinking, empty texts.

use knack_wire::Format;
use serde_json::{Value, json};

use super::{gemini, responses};

/// One step of a script: `{"text", "think", "calls": [[name, arguments]]}`.
pub(crate) struct Upstream {
    format: Format,
    script: Vec<Value>,
    /// It counts the calls of each answer instead of giving them random ids.
    pub(crate) counts: bool,
    pub(crate) received: Vec<String>,
}

impl Upstream {
    pub(crate) fn new(format: Format, script: &[Value]) -> Self {
        Self {
            format,
            script: script.to_vec(),
            counts: false,
            received: Vec::new(),
        }
    }

    /// Checks a request and answers it: whether it is a stream, and the bytes.
    pub(crate) fn answer(&mut self, body: &[u8]) -> (bool, Vec<u8>) {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let request: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        check_ids(&request);
        let messages = |key: &str| request[key].as_array().unwrap();
        match self.format {
            Format::Chat => check_chat(messages("messages")),
            Format::Messages => check_messages(messages("messages")),
            Format::Responses => responses::check(messages("input")),
            Format::Gemini => gemini::check(messages("contents")),
        }
        // Ids are unique over the whole conversation, as a provider's are: they come from what was received.
        let seed = format!("{:08x}{}", fnv(body), self.received.len());
        self.received.push(text);
        let step = self.script[self.received.len() - 1].clone();
        let stream = request["stream"] == true;
        let answer = match self.format {
            Format::Chat => chat_answer(&step, &seed, stream),
            Format::Responses => responses::scripted(&step, &seed, stream),
            Format::Gemini => gemini::scripted(&step, &seed, stream),
            Format::Messages => messages_answer(&step, &seed, stream),
        };
        let answer = if self.counts {
            answer.replace(&format!("{seed}x"), "")
        } else {
            answer
        };
        (stream, answer.into_bytes())
    }
}

fn fnv(body: &[u8]) -> u32 {
    body.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// No two calls of a conversation have one id.
fn check_ids(request: &Value) {
    fn collect<'a>(value: &'a Value, ids: &mut Vec<&'a Value>) {
        let id = match value["type"].as_str() {
            Some("tool_use" | "function") => &value["id"],
            Some("function_call") => &value["call_id"],
            _ => &value["functionCall"]["id"],
        };
        ids.extend(Some(id).filter(|id| id.is_string()));
        match value {
            Value::Array(list) => list.iter().for_each(|inner| collect(inner, ids)),
            Value::Object(members) => members.values().for_each(|inner| collect(inner, ids)),
            _ => {}
        }
    }
    let mut ids = Vec::new();
    collect(request, &mut ids);
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[..at].contains(id), "two calls have the id {id}: {request}");
    }
}

fn check_chat(messages: &[Value]) {
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at = open.iter().position(|call| call == id);
            open.remove(at.unwrap_or_else(|| panic!("result of no open call {id}: {messages:?}")));
            continue;
        }
        assert!(open.is_empty(), "calls {open:?} are not answered: {messages:?}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open = calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
        assert!(
            !message["content"].is_null() || !open.is_empty(),
            "an empty message: {message}"
        );
    }
    assert!(open.is_empty(), "calls {open:?} are not answered: {messages:?}");
    assert_ne!(messages.last().unwrap()["role"], "assistant");
}

fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(list) => list.clone(),
        other => panic!("content {other}"),
    }
}

fn check_messages(messages: &[Value]) {
    let mut open: Vec<String> = Vec::new();
    // The open tool turn begins behind the last message that is the user's own.
    let own = |message: &Value| {
        message["role"] == "user" && blocks(message).iter().all(|block| block["type"] != "tool_result")
    };
    let turn = messages.iter().rposition(own).unwrap();
    for (index, message) in messages.iter().enumerate() {
        let blocks = blocks(message);
        assert!(!blocks.is_empty(), "an empty message: {messages:?}");
        assert!(
            blocks.iter().all(|block| block["text"] != ""),
            "an empty text: {message}"
        );
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let answered: Vec<&str> = results.map(|block| block["tool_use_id"].as_str().unwrap()).collect();
        assert_eq!(
            answered.len(),
            blocks.iter().filter(|block| block["type"] == "tool_result").count(),
            "results first"
        );
        let mut sorted: Vec<&str> = open.iter().map(String::as_str).collect();
        let mut got = answered.clone();
        sorted.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, sorted, "each call is answered in the next message: {messages:?}");
        open.clear();
        if message["role"] == "assistant" {
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
            open = calls.map(|block| block["id"].as_str().unwrap().to_owned()).collect();
            if index > turn {
                check_thinking(&blocks, message);
            }
        }
    }
    assert!(open.is_empty(), "calls are not answered: {messages:?}");
    assert_ne!(messages.last().unwrap()["role"], "assistant");
}

/// Thinking is in the message of the answer that it came with: signature and call ids name the same answer.
fn check_thinking(blocks: &[Value], message: &Value) {
    let seen = blocks.iter().filter(|block| block["type"] == "thinking");
    let call = blocks
        .iter()
        .find(|block| block["type"] == "tool_use")
        .and_then(|block| block["id"].as_str());
    // An id that is counted names no answer.
    let answer = call.and_then(|id| id.rsplit('_').next()?.split_once('x'));
    if let Some((answer, _)) = answer {
        for thinking in seen {
            assert_eq!(
                thinking["signature"],
                format!("sig{answer}"),
                "thinking was moved: {message}"
            );
        }
    }
}

pub(crate) fn calls(step: &Value) -> Vec<(String, Value)> {
    let list = step["calls"].as_array().cloned().unwrap_or_default();
    list.into_iter()
        .map(|call| (call[0].as_str().unwrap().to_owned(), call[1].clone()))
        .collect()
}

fn chat_answer(step: &Value, seed: &str, stream: bool) -> String {
    let calls: Vec<Value> = calls(step)
        .into_iter()
        .enumerate()
        .map(|(at, (name, arguments))| json!({"id": format!("call_{seed}x{at}"), "type": "function", "function": {"name": name, "arguments": arguments.to_string()}}))
        .collect();
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut message =
        json!({"role": "assistant", "content": step["text"], "refusal": null, "reasoning_content": step["think"]});
    if !calls.is_empty() {
        message["tool_calls"] = calls.clone().into();
    }
    if !stream {
        return json!({"id": format!("chatcmpl-{seed}"), "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).to_string();
    }
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    if let Some(text) = step["text"].as_str() {
        deltas.extend(text.split_inclusive(' ').map(|piece| json!({"content": piece})));
    }
    for (at, mut call) in calls.into_iter().enumerate() {
        let arguments = call["function"]["arguments"].take();
        call["index"] = at.into();
        call["function"]["arguments"] = "".into();
        deltas.push(json!({"tool_calls": [call]}));
        deltas.push(json!({"tool_calls": [{"index": at, "function": {"arguments": arguments}}]}));
    }
    let chunk = |delta: &Value, finish: Value| json!({"id": format!("chatcmpl-{seed}"), "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let mut out: String = deltas
        .iter()
        .map(|delta| format!("data: {}\n\n", chunk(delta, Value::Null)))
        .collect();
    out.push_str(&format!(
        "data: {}\n\ndata: [DONE]\n\n",
        chunk(&json!({}), finish.into())
    ));
    out
}

fn messages_answer(step: &Value, seed: &str, stream: bool) -> String {
    let mut blocks = Vec::new();
    if step["think"].is_string() {
        blocks.push(json!({"type": "thinking", "thinking": step["think"], "signature": format!("sig{seed}")}));
    }
    if step["text"].is_string() {
        blocks.push(json!({"type": "text", "text": step["text"]}));
    }
    let calls = calls(step);
    let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
    for (at, (name, input)) in calls.into_iter().enumerate() {
        blocks.push(json!({"type": "tool_use", "id": format!("toolu_{seed}x{at}"), "name": name, "input": input}));
    }
    let mut message = json!({"id": format!("msg_{seed}"), "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
    if !stream {
        return message.to_string();
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, mut block) in blocks.into_iter().enumerate() {
        let (field, kind, member) = match block["type"].as_str().unwrap() {
            "text" => ("text", "text_delta", "text"),
            "thinking" => ("thinking", "thinking_delta", "thinking"),
            _ => ("input", "input_json_delta", "partial_json"),
        };
        let content = match block[field].take() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        block[field] = if field == "input" { json!({}) } else { "".into() };
        let signature = block.get_mut("signature").map(Value::take);
        if signature.is_some() {
            block["signature"] = "".into();
        }
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let half = content
            .char_indices()
            .nth(content.chars().count() / 2)
            .map_or(0, |(at, _)| at);
        for piece in [&content[..half], &content[half..]] {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, member: piece}}));
        }
        if let Some(signature) = signature {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": signature}}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 1}}));
    events.push(json!({"type": "message_stop"}));
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}
