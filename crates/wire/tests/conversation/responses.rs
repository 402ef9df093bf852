//! Responses: what a client keeps, what a provider refuses, and what it answers.

use serde_json::{Value, json};

use super::client::{events, parse};
use super::upstream::calls;

/// The items that a client keeps of an answer. A stream is checked as an accumulating client does.
pub(crate) fn answer(answer: &str, stream: bool) -> Vec<Value> {
    let response = if stream {
        accumulated(&events(answer))
    } else {
        parse(answer)
    };
    response["output"].as_array().unwrap().clone()
}

fn accumulated(events: &[Value]) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let index = event["output_index"]
            .as_u64()
            .map(|index| usize::try_from(index).unwrap());
        match (event["type"].as_str().unwrap(), index) {
            ("response.output_item.added", Some(index)) => {
                assert_eq!(index, items.len(), "indices have no gaps: {event}");
                items.push(event["item"].clone());
            }
            ("response.output_item.done", Some(index)) => items[index] = event["item"].clone(),
            _ => {}
        }
    }
    let end = events.last().unwrap();
    assert!(
        end["type"] == "response.completed" || end["type"] == "response.incomplete",
        "{end}"
    );
    assert_eq!(end["response"]["output"], Value::from(items));
    for event in events.iter().filter(|event| event.get("response").is_some()) {
        assert_eq!(event["response"]["id"], end["response"]["id"]);
    }
    end["response"].clone()
}

pub(crate) fn reshaped(items: &[Value]) -> Vec<Value> {
    let mut items = items.to_vec();
    for item in &mut items {
        if let Value::String(text) = item["content"].clone() {
            item["content"] = json!([{"type": "input_text", "text": text}]);
        } else if item["role"] == "assistant" {
            *item = json!({"role": "assistant", "content": item["content"][0]["text"]});
        }
    }
    items
}

/// The calls of the last turn.
pub(crate) fn open_calls(items: &[Value]) -> Vec<Value> {
    let answered = |call: &Value| {
        items
            .iter()
            .any(|item| item["type"] == "function_call_output" && item["call_id"] == call["call_id"])
    };
    let calls = items.iter().filter(|item| item["type"] == "function_call");
    calls.filter(|call| !answered(call)).cloned().collect()
}

/// Each call has one output behind it, each output its call, and reasoning stands before the item that it belongs to.
pub(crate) fn check(items: &[Value]) {
    for (at, item) in items.iter().enumerate() {
        let id = item["id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or("message") {
            "function_call" => {
                let outputs = items[at..]
                    .iter()
                    .filter(|one| one["type"] == "function_call_output" && one["call_id"] == item["call_id"]);
                assert_eq!(outputs.count(), 1, "No tool output found for function call: {items:?}");
            }
            "function_call_output" => {
                let call = items[..at]
                    .iter()
                    .any(|one| one["type"] == "function_call" && one["call_id"] == item["call_id"]);
                assert!(call, "an output of no call: {items:?}");
            }
            "reasoning" => {
                let next = items
                    .get(at + 1)
                    .and_then(|next| next["id"].as_str())
                    .unwrap_or_default();
                assert!(
                    next.ends_with(&format!("after{id}")),
                    "reasoning without its following item: {items:?}"
                );
            }
            _ => {}
        }
        if let Some((_, reasoning)) = id.split_once("after") {
            assert!(
                at > 0 && items[at - 1]["id"] == reasoning,
                "an item without its reasoning: {items:?}"
            );
        }
    }
}

pub(crate) fn scripted(step: &Value, seed: &str, stream: bool) -> String {
    let mut output: Vec<Value> = Vec::new();
    let mut after = String::new();
    if step["think"].is_string() {
        let id = format!("rs_{seed}");
        output.push(json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": step["think"]}));
        after = format!("after{id}");
    }
    if let Some(text) = step["text"].as_str() {
        let after = std::mem::take(&mut after);
        output.push(
            json!({"id": format!("msg_{seed}{after}"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}),
        );
    }
    for (at, (name, arguments)) in calls(step).into_iter().enumerate() {
        let after = std::mem::take(&mut after);
        output.push(
            json!({"id": format!("fc_{seed}x{at}{after}"), "type": "function_call", "status": "completed",
            "call_id": format!("call_{seed}x{at}"), "name": name, "arguments": arguments.to_string()}),
        );
    }
    let response = |status: &str, output: &[Value]| {
        json!({"id": format!("resp_{seed}"), "object": "response", "created_at": 1, "status": status, "error": null, "incomplete_details": null,
            "instructions": "Be brief.", "model": "m", "output": output, "parallel_tool_calls": true, "metadata": {}, "tool_choice": "auto", "tools": [],
            "temperature": 1, "top_p": 1, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
    };
    if !stream {
        return response("completed", &output).to_string();
    }
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", &[])}),
        json!({"type": "response.in_progress", "response": response("in_progress", &[])}),
    ];
    for (index, item) in output.iter().enumerate() {
        let id = &item["id"];
        let mut opened = item.clone();
        let mut between = Vec::new();
        match item["type"].as_str().unwrap() {
            "message" => {
                opened["content"] = json!([]);
                let text = item["content"][0]["text"].as_str().unwrap();
                between = text
                    .split_inclusive(' ')
                    .map(|piece| json!({"type": "response.output_text.delta", "item_id": id, "output_index": index, "content_index": 0, "delta": piece, "logprobs": []}))
                    .collect();
            }
            "function_call" => {
                opened["arguments"] = "".into();
                between.push(json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": index, "delta": item["arguments"]}));
            }
            _ => {
                opened.as_object_mut().unwrap().remove("encrypted_content");
            }
        }
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": opened}));
        events.extend(between);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": response("completed", &output)}));
    let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
        event["sequence_number"] = number.into();
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    });
    numbered.collect()
}
