//! Plays one exchange through the gateway's loop, for adapters that ask what it does with a response.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knack_wire::drive::{
    AnswerHead, CallOutcome, Drive, DriveAction, DriveSettings, DriveSummary, GeneratedFile, UpstreamFailure,
};
use knack_wire::json::Edits;
use knack_wire::request::Material;
use knack_wire::{CallKind, DriveInput, Format, Injection, ModelRoute, Request, Tool, ToolCall};
use serde_json::Value;

use crate::registry::Failure;

/// Instead of a status: there is no connection.
pub(crate) const NO_CONNECTION: u16 = 0;

/// What an exchange came to.
#[derive(Debug, Default)]
pub(crate) struct ExchangeResult {
    /// Waits before each upstream request.
    pub(crate) delays: Vec<Duration>,
    /// Bodies of the upstream requests.
    pub(crate) sent: Vec<Bytes>,
    /// Calls that ran here.
    pub(crate) calls: Vec<ToolCall>,
    /// Status of the client's answer.
    pub(crate) status: u16,
    /// Body of the client's answer.
    pub(crate) body: Vec<u8>,
    /// How it ended.
    pub(crate) summary: Option<DriveSummary>,
}

impl ExchangeResult {
    /// The client's answer as a value.
    pub(crate) fn answer(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| Failure::of_adapter(error.to_string()))
    }
}

/// Answers the loop with `answers`, the last one again and again, and each call with `files`. Not streamed.
pub(crate) fn play(
    format: Format,
    tools: &[String],
    answers: &[(u16, Value)],
    files: &[GeneratedFile],
) -> Result<ExchangeResult, Failure> {
    let done = |_: &ToolCall| -> Result<CallOutcome, Failure> {
        Ok(CallOutcome {
            text: "done".to_owned(),
            files: files.to_vec(),
            ..CallOutcome::default()
        })
    };
    play_calls(format, tools, answers, &done)
}

/// Plays an exchange in which a function answers each call.
pub(crate) fn play_calls(
    format: Format,
    tools: &[String],
    answers: &[(u16, Value)],
    run: &dyn Fn(&ToolCall) -> Result<CallOutcome, Failure>,
) -> Result<ExchangeResult, Failure> {
    let route = ModelRoute::new(format, CallKind::Generate);
    let body = br#"{"model":"m","max_tokens":1024,"messages":[{"role":"user","content":"x"}]}"#;
    let fault = |fault: knack_wire::Fault| Failure::new(fault.message);
    let request = Request::parse(route, body.to_vec().into()).map_err(fault)?;
    let tool = |name: &String| Tool {
        name: name.clone(),
        description: String::new(),
        schema: r#"{"type":"object"}"#.to_owned(),
    };
    let injection = Injection {
        material: Arc::new(Material::new(String::new(), tools.iter().map(tool).collect())),
        ..Injection::default()
    };
    let settings = DriveSettings {
        litellm: true,
        ..DriveSettings::default()
    };
    let fields = request.fields().map_err(fault)?;
    let mut drive = Drive::with_fields(request, fields, injection, settings).map_err(fault)?;
    let mut played = ExchangeResult::default();
    let mut answers: VecDeque<&(u16, Value)> = answers.iter().collect();
    let (now, mut out) = (Duration::ZERO, Vec::new());
    drive.start(Edits::new(), Vec::new(), now, &mut out);
    while !drive.finished() {
        for one in std::mem::take(&mut out) {
            match one {
                DriveAction::Send { delay, body, .. } => {
                    played.delays.push(delay);
                    played.sent.push(body);
                    let answer = if answers.len() > 1 {
                        answers.pop_front()
                    } else {
                        answers.front().copied()
                    };
                    let Some((status, body)) = answer else {
                        return Err(Failure::of_adapter("no answer is scripted"));
                    };
                    if *status == NO_CONNECTION {
                        drive.feed(DriveInput::Failed(UpstreamFailure::Connect), now, &mut out);
                        continue;
                    }
                    drive.feed(
                        DriveInput::Head(AnswerHead {
                            status: *status,
                            stream: false,
                            retry_after: None,
                        }),
                        now,
                        &mut out,
                    );
                    drive.feed(DriveInput::Body(body.to_string().into()), now, &mut out);
                    drive.feed(DriveInput::End, now, &mut out);
                }
                DriveAction::Run(call) => {
                    let outcome = CallOutcome {
                        token: call.token,
                        ..run(&call)?
                    };
                    played.calls.push(call);
                    drive.feed(DriveInput::Result(outcome), now, &mut out);
                }
                other => take(&mut played, other),
            }
        }
    }
    for one in out {
        take(&mut played, one);
    }
    Ok(played)
}

fn take(played: &mut ExchangeResult, out: DriveAction) {
    match out {
        DriveAction::ClientHead(head) => played.status = head.status,
        DriveAction::ClientBytes(bytes) => played.body.extend_from_slice(&bytes),
        DriveAction::Finish(summary) => played.summary = Some(summary),
        _ => {}
    }
}
