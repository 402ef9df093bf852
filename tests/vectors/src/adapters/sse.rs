//! Adapters of `sse.json`: frames of event streams.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use knack_gateway::model_calls::insert_stream_headers;
use knack_skill::agent_flow::{RUN_SYSTEM, RunEnd, RunEvent, RunSettings, begin_run, end_run, run_token};
use knack_skill::template::{substitute, validate_inputs};
use knack_wire::drive::{AnswerHead, Drive, DriveAction, DriveSettings};
use knack_wire::frame::{SseDecoder, push_event};
use knack_wire::json::Edits;
use knack_wire::request::Material;
use knack_wire::{CallKind, DriveInput, Format, Injection, ModelRoute, Request, Tool};
use serde_json::{Value, json};

use super::omniroute::text;
use super::template;
use crate::matching;
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("sse", "format", format).compared(Compare::Custom(same_event)),
    Op::new("sse", "heartbeat", heartbeat).compared(Compare::Custom(same_comment)),
    Op::new("sse", "execute", execute).compared(Compare::Custom(same_run)),
    Op::new("sse", "headers", headers).compared(Compare::Custom(same_headers)),
];

fn format(input: &Value) -> Outcome {
    let mut out = Vec::new();
    push_event(
        &mut out,
        text(input, "event").as_bytes(),
        input["data"].to_string().as_bytes(),
    );
    String::from_utf8(out)
        .map(Value::from)
        .map_err(|error| Failure::of_adapter(error.to_string()))
}

/// Frames are equal line by line; their data is compared as JSON, as the cases' notes say.
fn same_event(expected: &Value, actual: &Value) -> Result<(), String> {
    let (expected, actual) = (
        expected.as_str().unwrap_or_default(),
        actual.as_str().unwrap_or_default(),
    );
    if expected.lines().count() != actual.lines().count() || !actual.ends_with("\n\n") {
        return Err(format!("{actual:?} has other lines"));
    }
    for (expected, actual) in expected.lines().zip(actual.lines()) {
        let same = match (expected.strip_prefix("data: "), actual.strip_prefix("data: ")) {
            (Some(expected), Some(actual)) => {
                serde_json::from_str::<Value>(expected).ok() == serde_json::from_str(actual).ok()
            }
            _ => expected == actual,
        };
        if !same {
            return Err(format!("expected {expected:?}, got {actual:?}"));
        }
    }
    Ok(())
}

/// One run of a skill: its events, and what the model is sent.
fn execute(input: &Value) -> Outcome {
    let skill = &input["skill"];
    let prompt = text(skill, "prompt");
    let document = format!(
        "---\nname: s\nmodel: {}\nknowledge_base: {}\n---\n{prompt}",
        skill["model"], skill["knowledge_base"]
    );
    let settings = RunSettings::of(&document);
    let (declared, given) = (template::declared(skill), template::provided(input));
    let checked = validate_inputs(&declared, &given);
    let is_run = checked.is_ok();
    let mut events = begin_run(checked, settings.knowledge_base.as_deref());
    if !is_run {
        return Ok(json!({ "events": shown(&events) }));
    }
    let tokens: Vec<&str> = input["llm"]["tokens"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let failed = input["llm"]["error_after"]
        .as_u64()
        .and_then(|after| usize::try_from(after).ok());
    events.extend(
        tokens
            .iter()
            .take(failed.unwrap_or(tokens.len()))
            .map(|token| run_token(token)),
    );
    events.extend(end_run(if failed.is_some() {
        RunEnd::Failed
    } else {
        RunEnd::Answered
    }));
    let user = substitute(prompt, &declared, |name| given.get(name).map(String::as_str));
    let user = user.map_err(template::too_large)?;
    let mut run = json!({
        "events": shown(&events),
        "llm_messages": [{"role": "system", "content": RUN_SYSTEM}, {"role": "user", "content": user}],
        "temperature": settings.temperature,
    });
    if let Some(max_tokens) = settings.max_tokens {
        run["max_tokens"] = max_tokens.into();
    }
    Ok(run)
}

/// Whole where the case lists the events, else the members that it names. The limit of the answer counts where it is named.
fn same_run(expected: &Value, actual: &Value) -> Result<(), String> {
    let compare = if expected.get("events").is_some() {
        Compare::Whole
    } else {
        Compare::Named
    };
    let mut actual = actual.clone();
    if let Some(members) = actual.as_object_mut()
        && expected.get("max_tokens").is_none()
    {
        members.remove("max_tokens");
    }
    matching::check(compare, expected, &Ok(actual))
}

/// The headers of a run's stream.
fn headers(_: &Value) -> Outcome {
    let mut headers = HeaderMap::new();
    insert_stream_headers(&mut headers);
    let mut shown = json!({});
    for (name, value) in &headers {
        shown[name.as_str()] = value.to_str().unwrap_or_default().into();
    }
    Ok(shown)
}

/// Names in any case; a media type with or without its charset. HTTP/1.1 keeps connections alive unless a header says otherwise.
fn same_headers(expected: &Value, actual: &Value) -> Result<(), String> {
    let named = match expected.as_object() {
        Some(members) if members.len() == 1 => members.get("headers").unwrap_or(expected),
        _ => expected,
    };
    let named = named.as_object().filter(|named| !named.is_empty());
    for (name, expected) in named.ok_or("expected must name headers")? {
        let name = name.to_ascii_lowercase();
        let found = &actual[&name];
        let is_kept_alive = name == "connection" && expected == "keep-alive" && found.is_null();
        let essence = found.as_str().and_then(|found| found.split(';').next());
        let is_essence = name == "content-type" && expected.as_str() == essence;
        if !is_kept_alive && !is_essence {
            matching::check(Compare::Whole, expected, &Ok(found.clone())).map_err(|why| format!("{name}{why}"))?;
        }
    }
    Ok(())
}

fn shown(events: &[RunEvent]) -> Vec<Value> {
    let shown = events
        .iter()
        .map(|event| json!({"event": event.name, "data": event.data}));
    shown.collect()
}

/// What a client gets of a stream while a skill runs and nothing else happens.
fn heartbeat(input: &Value) -> Outcome {
    let route = ModelRoute::new(Format::Chat, CallKind::Generate);
    let fault = |fault: knack_wire::Fault| Failure::new(fault.message);
    let request = Request::parse(route, br#"{"messages":[],"stream":true}"#.to_vec().into()).map_err(fault)?;
    let tool = Tool {
        name: "t".to_owned(),
        description: String::new(),
        schema: "{}".to_owned(),
    };
    let injection = Injection {
        material: Arc::new(Material::new(String::new(), vec![tool])),
        ..Injection::default()
    };
    let fields = request.fields().map_err(fault)?;
    let mut drive = Drive::with_fields(request, fields, injection, DriveSettings::default()).map_err(fault)?;
    let (now, mut out) = (Duration::ZERO, Vec::new());
    drive.start(Edits::new(), Vec::new(), now, &mut out);
    drive.feed(
        DriveInput::Head(AnswerHead {
            status: 200,
            stream: true,
            retry_after: None,
        }),
        now,
        &mut out,
    );
    let turn = concat!(
        "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"t\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: [DONE]\n\n"
    );
    drive.feed(DriveInput::Body(turn.into()), now, &mut out);
    out.clear();
    drive.feed(
        DriveInput::Tick,
        Duration::from_secs(input["idle_seconds"].as_u64().unwrap_or_default()),
        &mut out,
    );
    let shown = out.iter().filter_map(|out| {
        if let DriveAction::ClientBytes(bytes) = out {
            std::str::from_utf8(bytes).ok()
        } else {
            None
        }
    });
    Ok(Value::from(shown.collect::<String>()))
}

/// Both are one comment: a reader of events sees nothing. The words of a comment mean nothing.
fn same_comment(expected: &Value, actual: &Value) -> Result<(), String> {
    for frame in [expected, actual] {
        let frame = frame.as_str().unwrap_or_default();
        let mut events = Vec::new();
        let read = SseDecoder::new().push(frame.as_bytes(), &mut events);
        if read.is_err() || !events.is_empty() || !frame.starts_with(':') || !frame.ends_with("\n\n") {
            return Err(format!("{frame:?} is not one comment"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_that_a_case_names_is_compared() {
        let actual = headers(&Value::Null).unwrap();
        for (expected, holds) in [
            (
                json!({"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Connection": "keep-alive"}),
                true,
            ),
            (json!({"headers": {"X-Accel-Buffering": "no"}}), true),
            (json!({"content-type": {"$regex": "^text/event-stream"}}), true),
            (json!({"content-type": "text/plain"}), false),
            (json!({"connection": "close"}), false),
            (json!({"x-other": "a"}), false),
            (json!({"x-other": {"$regex": ".*"}}), false),
            (json!({"headers": {"cache-control": "no-cache"}, "status": 200}), false),
            (json!({}), false),
            (json!("text/event-stream"), false),
        ] {
            let compared = same_headers(&expected, &actual);
            assert_eq!(compared.is_ok(), holds, "{expected}: {compared:?}");
        }
        assert!(same_headers(&json!({"connection": "keep-alive"}), &json!({"connection": "close"})).is_err());
    }
}
