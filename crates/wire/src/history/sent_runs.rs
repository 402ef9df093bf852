//! Runs in a Responses history, as a client that reads the answer by its id has them listed: the items that it sent, in
//! place of what they went upstream as.

use super::read::Fields;
use crate::format::responses::shell;
use crate::json::Span;
use crate::stored::{SentRun, SentRuns};

/// The type of the result of a shell call.
const OUTPUT: &str = "shell_call_output";

/// Adds an item that went upstream by itself, under its own call id.
pub(super) fn alone(src: &[u8], item: Span, runs: &mut SentRuns) {
    let fields = Fields::read(src, item);
    let place = (fields.text("call_id").into_owned(), fields.text("type") == OUTPUT);
    runs.add(run(src, item, place));
}

/// Adds the items of a turn that went upstream as the messages of its saved turn. The client was shown the calls of a round when
/// the round was over, so they are listed before the result of the first of them.
pub(super) fn restored(src: &[u8], elements: &[Span], messages: &[Vec<u8>], runs: &mut SentRuns) {
    let mut results = messages.iter().filter_map(|message| result(message));
    let mut calls = Vec::new();
    for item in elements {
        let fields = Fields::read(src, *item);
        let (kind, call_id) = (fields.text("type"), fields.text("call_id"));
        if !shell::is_own_item(&kind, &call_id) {
            continue;
        }
        calls.push(*item);
        if kind != OUTPUT {
            continue;
        }
        // Results of tools that are not shown are between them.
        let Some(id) = results.find(|id| shell::is_run_of(&call_id, id)) else {
            return;
        };
        for item in calls.drain(..) {
            runs.add(run(src, item, (id.clone(), true)));
        }
    }
}

/// The call id of a result as it went upstream.
fn result(message: &[u8]) -> Option<String> {
    let fields = Fields::read(message, Span::new(0, message.len()));
    (fields.text("type") == "function_call_output").then(|| fields.text("call_id").into_owned())
}

fn run(src: &[u8], item: Span, (call_id, is_result): (String, bool)) -> SentRun {
    SentRun {
        call_id,
        is_result,
        item: String::from_utf8_lossy(&shell::as_listed(src, item)).into_owned(),
    }
}
