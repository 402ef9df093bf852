//! Gemini: what a client keeps, what a provider refuses, and what it answers.

use serde_json::{Value, json};

use super::client::{events, parse};
use super::upstream::calls;

/// The contents that a client keeps of an answer: one of a body, one per frame of a stream, as the SDK does.
pub(crate) fn answer(answer: &str, stream: bool) -> Vec<Value> {
    if !stream {
        return vec![parse(answer)["candidates"][0]["content"].clone()];
    }
    let frames = events(answer);
    let (last, rest) = frames.split_last().unwrap();
    assert!(last["candidates"][0]["finishReason"].is_string(), "{last}");
    let ends = |frame: &Value| frame["candidates"][0].get("finishReason").is_some();
    assert!(!rest.iter().any(ends), "one end: {answer}");
    let content = |frame: &Value| {
        let content = frame["candidates"][0]["content"].clone();
        // The SDK drops the whole answer from its history if a frame has no parts.
        assert_ne!(content["parts"], json!([]), "{answer}");
        content
    };
    frames
        .iter()
        .map(content)
        .filter(|content| !content.is_null())
        .collect()
}

/// The contents in other forms: each part in a content of its own, text cut in two.
pub(crate) fn reshaped(contents: &[Value]) -> Vec<Value> {
    let mut out = Vec::new();
    for (at, content) in contents.iter().enumerate() {
        for part in content["parts"].as_array().unwrap() {
            let role = &content["role"];
            match part["text"].as_str() {
                // The first content stands for the conversation's beginning.
                Some(text) if text.len() > 1 && at > 0 => {
                    out.push(json!({"role": role, "parts": [{"text": &text[..1]}]}));
                    out.push(json!({"role": role, "parts": [{"text": &text[1..]}]}));
                }
                _ => out.push(json!({"role": role, "parts": [part]})),
            }
        }
    }
    out
}

/// The calls of the last turn.
pub(crate) fn open_calls(contents: &[Value]) -> Vec<Value> {
    let last: Vec<&Value> = contents
        .iter()
        .rev()
        .take_while(|content| content["role"] == "model")
        .collect();
    let parts = last
        .into_iter()
        .rev()
        .flat_map(|content| content["parts"].as_array().unwrap());
    parts.filter_map(|part| part.get("functionCall").cloned()).collect()
}

/// Calls first and answers after, as many as calls, none without its call, signatures where the open turn needs them.
pub(crate) fn check(contents: &[Value]) {
    let mut turns: Vec<(bool, Vec<Value>)> = Vec::new();
    for content in contents {
        let model = content["role"] == "model";
        let parts = content["parts"].as_array().unwrap();
        assert!(
            !parts.is_empty() && parts.iter().all(|part| *part != json!({})),
            "{content}"
        );
        match turns.last_mut() {
            Some((last, own)) if *last == model => own.extend(parts.iter().cloned()),
            _ => turns.push((model, parts.clone())),
        }
    }
    assert!(!turns.last().unwrap().0, "the user speaks last: {contents:?}");
    let answers = |parts: &[Value]| -> Vec<Value> {
        let answers = parts.iter().filter_map(|part| part.get("functionResponse"));
        answers.map(|answer| answer["name"].clone()).collect()
    };
    let own = turns
        .iter()
        .rposition(|(model, parts)| !model && answers(parts).is_empty());
    let mut open: Vec<Value> = Vec::new();
    for (index, (model, parts)) in turns.iter().enumerate() {
        if !*model {
            assert_eq!(answers(parts), open, "each call is answered in its place: {contents:?}");
            open.clear();
            continue;
        }
        let calls: Vec<&Value> = parts.iter().filter(|part| part.get("functionCall").is_some()).collect();
        if let Some(first) = calls.first().filter(|_| own.is_none_or(|own| index > own)) {
            assert!(
                first["thoughtSignature"].is_string(),
                "a signature is missing: {contents:?}"
            );
        }
        open = calls.iter().map(|part| part["functionCall"]["name"].clone()).collect();
    }
}

pub(crate) fn scripted(step: &Value, seed: &str, stream: bool) -> String {
    let mut parts = Vec::new();
    if step["think"].is_string() {
        parts.push(json!({"text": step["think"], "thought": true}));
    }
    if let Some(text) = step["text"].as_str() {
        parts.push(json!({"text": text}));
    }
    for (at, (name, args)) in calls(step).into_iter().enumerate() {
        let mut part = json!({"functionCall": {"id": format!("fc{seed}x{at}"), "name": name, "args": args}});
        if at == 0 {
            part["thoughtSignature"] = format!("c2ln{seed}").into();
        }
        parts.push(part);
    }
    let frame = |parts: &[Value], last: bool| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if last {
            candidate["finishReason"] = "STOP".into();
        }
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "m", "responseId": format!("r{seed}")})
    };
    if !stream {
        return frame(&parts, true).to_string();
    }
    let count = parts.len();
    parts
        .chunks(1)
        .enumerate()
        .map(|(at, part)| format!("data: {}\r\n\r\n", frame(part, at + 1 == count)))
        .collect()
}
