//! Plays whole exchanges through the loop: a client request, scripted upstream answers, scripted results.
#![allow(
    clippy::allow_attributes,
    dead_code,
    clippy::unwrap_used,
    reason = "test support: each file uses its own part"
)]

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use knack_wire::drive::{
    AnswerHead, CallOutcome, ClientHead, Drive, DriveAction, DriveSettings, DriveSummary, EndKind, GeneratedFile,
    HiddenTurns, RoundNote,
};
use knack_wire::json::Edits;
use knack_wire::{CallKind, DriveInput, Format, Injection, ModelRoute, Request, Tool};

/// One upstream answer.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) stream: bool,
    pub(crate) body: Vec<u8>,
    /// Breaks off instead of ending.
    pub(crate) broken: bool,
    pub(crate) retry_after: Option<Duration>,
}

pub(crate) fn json(body: &str) -> Answer {
    Answer {
        status: 200,
        stream: false,
        body: body.into(),
        broken: false,
        retry_after: None,
    }
}

pub(crate) fn sse(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status: 200,
        stream: true,
        body: body.into(),
        broken: false,
        retry_after: None,
    }
}

pub(crate) fn error(status: u16, body: &str) -> Answer {
    Answer { status, ..json(body) }
}

/// A stream fixture (wire.md's `events`) as bytes: `named` writes `event:` lines.
pub(crate) fn events(text: &str, named: bool) -> Vec<u8> {
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('{') {
            let kind = serde_json::from_str::<serde_json::Value>(line).unwrap()["type"]
                .as_str()
                .unwrap_or("")
                .to_owned();
            if named {
                out += &format!("event: {kind}\n");
            }
            out.push_str(&format!("data: {line}\n\n"));
        } else if line == "[DONE]" {
            out.push_str("data: [DONE]\n\n");
        } else if line.starts_with(':') {
            out.push_str(&format!("{line}\n\n"));
        }
    }
    out.into_bytes()
}

pub(crate) fn fixture(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What came out of an exchange.
#[derive(Debug, Default)]
pub(crate) struct ExchangeResult {
    pub(crate) sent: Vec<Bytes>,
    pub(crate) delays: Vec<Duration>,
    pub(crate) head: Option<ClientHead>,
    pub(crate) client: Vec<u8>,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) hidden: Option<HiddenTurns>,
    pub(crate) summary: Option<DriveSummary>,
    /// What was noted of its rounds meanwhile.
    pub(crate) notes: Vec<RoundNote>,
    /// `Remember` came before the last client bytes.
    pub(crate) remembered_first: bool,
}

impl ExchangeResult {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.client.clone()).unwrap()
    }
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.client).unwrap()
    }
    pub(crate) fn end(&self) -> &EndKind {
        &self.summary.as_ref().unwrap().end
    }
    /// The data of all events, comments left out.
    pub(crate) fn data(&self) -> Vec<String> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }
    pub(crate) fn sent_value(&self, at: usize) -> serde_json::Value {
        serde_json::from_slice(&self.sent[at]).unwrap()
    }
}

pub(crate) fn tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: "Runs a skill script.".to_owned(),
        schema: r#"{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}"#.to_owned(),
    }
}

pub(crate) fn injection() -> Injection {
    Injection::new("# Skills\nUse \"them\".".to_owned(), vec![tool("skill_run")])
}

pub(crate) fn request(format: Format, body: &str) -> Request {
    let route = ModelRoute::new(format, CallKind::Generate);
    Request::parse(route, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// Settings of most tests.
pub(crate) fn settings() -> DriveSettings {
    DriveSettings {
        last_note: "Last skill call available for this request; answer now.",
        ..DriveSettings::default()
    }
}

/// Plays an exchange; upstream bytes come in pieces of at most `piece` bytes.
pub(crate) fn play_pieces(
    request: Request,
    injection: Injection,
    settings: DriveSettings,
    answers: &[Answer],
    piece: usize,
) -> ExchangeResult {
    let mut drive = Drive::new(request, injection, settings).unwrap();
    let mut answers: VecDeque<Answer> = answers.iter().cloned().collect();
    let mut played = ExchangeResult::default();
    let mut out = Vec::new();
    let now = Duration::from_millis(5);
    drive.start(Edits::new(), Vec::new(), now, &mut out);
    let mut upstream: Option<Answer> = None;
    let mut calls = Vec::new();
    loop {
        for one in out.drain(..) {
            match one {
                DriveAction::Send { body, delay, .. } => {
                    played.sent.push(body);
                    played.delays.push(delay);
                    upstream = Some(answers.pop_front().expect("an answer is left"));
                }
                DriveAction::Run(call) => {
                    played.calls.push((call.name.clone(), call.arguments.clone()));
                    calls.push(call);
                }
                DriveAction::Remember(hidden) => played.hidden = Some(*hidden),
                DriveAction::Note(note) => played.notes.push(*note),
                DriveAction::ClientHead(head) => {
                    assert!(played.head.is_none(), "one head");
                    played.head = Some(head);
                }
                DriveAction::ClientBytes(bytes) => {
                    assert!(played.head.is_some(), "head first");
                    played.remembered_first = played.hidden.is_some();
                    played.client.extend_from_slice(&bytes);
                }
                DriveAction::Finish(summary) => played.summary = Some(summary),
            }
        }
        if drive.finished() {
            return played;
        }
        if let Some(answer) = upstream.take() {
            drive.feed(
                DriveInput::Head(AnswerHead {
                    status: answer.status,
                    stream: answer.stream,
                    retry_after: answer.retry_after,
                }),
                now,
                &mut out,
            );
            for piece in answer.body.chunks(piece.max(1)) {
                if out.iter().any(|out| matches!(out, DriveAction::Send { .. })) {
                    break;
                }
                drive.feed(DriveInput::Body(Bytes::copy_from_slice(piece)), now, &mut out);
            }
            if !out.iter().any(|out| matches!(out, DriveAction::Send { .. })) {
                drive.feed(
                    if answer.broken {
                        DriveInput::Failed(knack_wire::drive::UpstreamFailure::Broken)
                    } else {
                        DriveInput::End
                    },
                    now,
                    &mut out,
                );
            }
            continue;
        }
        assert!(!calls.is_empty(), "the loop waits for nothing");
        for call in calls.drain(..).rev() {
            let file = GeneratedFile {
                name: "a.txt".into(),
                media_type: "text/plain".into(),
                bytes: Bytes::from_static(b"hi"),
            };
            let outcome = CallOutcome {
                token: call.token,
                text: format!("result of {}", call.id),
                files: vec![file],
                ..CallOutcome::default()
            };
            drive.feed(DriveInput::Result(outcome), now, &mut out);
        }
    }
}

pub(crate) fn play(format: Format, body: &str, answers: &[Answer]) -> ExchangeResult {
    play_pieces(request(format, body), injection(), settings(), answers, usize::MAX)
}
