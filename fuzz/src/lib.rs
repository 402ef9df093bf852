//! What several fuzz targets share: requests, exchanges and the checks on them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a fuzz target reports"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use knack_wire::drive::{AnswerHead, CallOutcome, Drive, DriveAction, EndKind};
use knack_wire::json::{self, Edits};
use knack_wire::{CallKind, DriveInput, DriveSettings, Format, Injection, ModelRoute, Request, Tool};

/// Inputs of this process, and those of them that the product read to their end.
static INPUTS: AtomicU64 = AtomicU64::new(0);
static WHOLE: AtomicU64 = AtomicU64::new(0);

/// Counts an input. Printed at each power of two, since libFuzzer ends the process without a word; fuzz/run.sh reads the last.
fn count(whole: bool) {
    let inputs = INPUTS.fetch_add(1, Ordering::Relaxed) + 1;
    let whole = WHOLE.fetch_add(u64::from(whole), Ordering::Relaxed) + u64::from(whole);
    if inputs.is_power_of_two() {
        eprintln!("whole: {whole} of {inputs}");
    }
}

/// A request of a format, if the bytes are one. `stream` is what Gemini's path says; the other formats say it in the body.
pub fn request(format: Format, stream: bool, body: &[u8]) -> Option<Request> {
    let route = ModelRoute {
        format,
        kind: CallKind::Generate,
        model: None,
        stream,
        vertex: false,
    };
    Request::parse(route, Bytes::copy_from_slice(body)).ok()
}

/// What is injected in all targets.
pub fn injection() -> Injection {
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        description: "d".to_owned(),
        schema: r#"{"type":"object"}"#.to_owned(),
    };
    Injection::new(
        "# Skills\n\"x\"".to_owned(),
        vec![tool("skill_run"), tool("get_weather_2")],
    )
}

/// Reads everything of a request and injects into it: what goes upstream is JSON again, and without an injection it is
/// the same bytes.
pub fn check_request(format: Format, body: &[u8]) {
    let parsed = request(format, false, body);
    count(parsed.as_ref().is_some_and(|request| request.fields().is_ok()));
    let Some(request) = parsed else { return };
    request.messages();
    request.attachments();
    request.conversation();
    request.tools_json();
    let same = request.apply(&Injection::default(), Edits::new());
    if memmem(body, b"knack_") {
        assert!(json::document(&same).is_ok());
    } else {
        assert_eq!(same, body, "nothing injected is byte-equal");
    }
    if request.fields().is_ok() {
        let sent = request.apply(&injection(), Edits::new());
        assert!(json::document(&sent).is_ok(), "{}", String::from_utf8_lossy(&sent));
    }
}

fn memmem(body: &[u8], needle: &[u8]) -> bool {
    body.windows(needle.len()).any(|window| window == needle)
}

/// Drives one exchange over streams that the input gives: its first byte is the size of the pieces, a line `====`
/// parts the rounds. The loop must come to an end once the upstream has.
pub fn check_stream(format: Format, request_body: &str, input: &[u8]) {
    check_exchange(format, true, request_body, input);
}

/// Drives one exchange over answers in one piece of JSON.
pub fn check_answer(format: Format, request_body: &str, input: &[u8]) {
    check_exchange(format, false, request_body, input);
}

fn check_exchange(format: Format, stream: bool, request_body: &str, input: &[u8]) {
    let Some((size, rounds)) = input.split_first() else {
        return;
    };
    let size = usize::from(*size).max(1);
    let request = request(format, stream, request_body.as_bytes()).expect("the request is fixed");
    let mut drive = Drive::new(request, injection(), DriveSettings::default()).expect("nothing forbids it");
    let mut rounds = split(rounds).into_iter();
    let now = Duration::ZERO;
    let mut out = Vec::new();
    let mut whole = false;
    drive.start(Edits::new(), Vec::new(), now, &mut out);
    // Each turn of this loop answers what was asked; ten rounds with a few retries each are the most.
    for _ in 0..100 {
        let actions = std::mem::take(&mut out);
        if actions.is_empty() {
            break;
        }
        for action in actions {
            match action {
                DriveAction::Send { .. } => {
                    let round = rounds.next().unwrap_or_default();
                    drive.feed(
                        DriveInput::Head(AnswerHead {
                            status: 200,
                            stream,
                            retry_after: None,
                        }),
                        now,
                        &mut out,
                    );
                    for piece in round.chunks(size) {
                        drive.feed(DriveInput::Body(Bytes::copy_from_slice(piece)), now, &mut out);
                        if out
                            .iter()
                            .any(|action| matches!(action, DriveAction::Send { .. } | DriveAction::Finish(_)))
                        {
                            break;
                        }
                    }
                    if !out
                        .iter()
                        .any(|action| matches!(action, DriveAction::Send { .. } | DriveAction::Finish(_)))
                    {
                        drive.feed(DriveInput::End, now, &mut out);
                    }
                }
                DriveAction::Run(call) => {
                    let outcome = CallOutcome {
                        token: call.token,
                        text: "r".to_owned(),
                        ..CallOutcome::default()
                    };
                    drive.feed(DriveInput::Result(outcome), now, &mut out);
                }
                DriveAction::Finish(summary) => whole = summary.end == EndKind::Answer,
                DriveAction::Remember(_)
                | DriveAction::Note(_)
                | DriveAction::ClientHead(_)
                | DriveAction::ClientBytes(_) => {}
            }
        }
    }
    assert!(drive.finished(), "the loop waits for nothing");
    count(whole);
}

/// The rounds of an input.
fn split(mut stream: &[u8]) -> Vec<&[u8]> {
    const MARK: &[u8] = b"\n====\n";
    let mut rounds = Vec::new();
    while let Some(at) = stream.windows(MARK.len()).position(|window| window == MARK) {
        rounds.push(&stream[..at]);
        stream = &stream[at + MARK.len()..];
    }
    rounds.push(stream);
    rounds
}

/// The lines of a text input: the first `count - 1` and the rest.
pub fn fields(input: &[u8], count: usize) -> Option<Vec<&str>> {
    let text = std::str::from_utf8(input).ok()?;
    let fields: Vec<&str> = text.splitn(count, '\n').collect();
    (fields.len() == count).then_some(fields)
}
