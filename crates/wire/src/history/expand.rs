//! Puts the hidden turns back into a request.

use super::result_texts::ResultTexts;
use super::saved_turn::{FileNote, SavedMessage, SavedTurn, Segment};
use super::scan::Scan;
use super::turn::{Speaker, Turn};
use super::turn_match::{InjectionMode, TurnMatch};
use super::{markers, merge_key, read, repair, responses, runs, sent_runs, shown};
use crate::drive::OpenCall;
use crate::format::responses::{citations, shell};
use crate::json::{self, Edits, Span, ValueKind};
use crate::request::Request;
use crate::route::{CallKind, Format};
use crate::shown_run::ShownRun;
use crate::stored::{SentRun, SentRuns};

/// The name of the tool that runs programs in a history where nothing is injected.
const RUN_TOOL: &str = "run_code";

/// The tool that runs programs in this request.
fn run_tool(mode: InjectionMode<'_>) -> &str {
    match mode {
        InjectionMode::Injecting { run_tool: Some(name) } => name,
        InjectionMode::Injecting { run_tool: None } | InjectionMode::Off => RUN_TOOL,
    }
}

/// The result of an expansion.
#[derive(Debug, Clone, Default)]
pub struct Expansion {
    /// Changes inside the conversation, for [`crate::Drive::start`]. None: the request goes as it came.
    pub edits: Edits,
    /// Files that the found turns made, oldest first: they are staged again while they are kept.
    pub files: Vec<FileNote>,
    /// Knack's calls at the end of the conversation that have not run: the client resumes an answer that was paused at
    /// the limit of rounds. Only in requests that generate.
    pub open_calls: Vec<OpenCall>,
    /// Runs in the conversation as the client sent them, for [`SavedTurn::list_runs`] (Responses).
    pub runs: Vec<SentRun>,
}

/// Replaces each visible turn that has a saved turn by the recorded messages, merges Knack's results with the client's, and
/// repairs what is Knack's in the turns without a saved turn.
///
/// `runs_here`: the upstream of a Gemini request has no code execution, so every run in the history is one of Knack's.
///
/// `words` gives the texts. Of turns that have a saved turn the result is byte-equal to the earlier upstream request, but for a
/// cache marker that the client has set on the answer since.
pub fn expand(
    request: &Request,
    scan: &Scan,
    hits: &[TurnMatch],
    (mode, runs_here): (InjectionMode<'_>, bool),
    words: &mut dyn ResultTexts,
) -> Expansion {
    let mut writer = HistoryWriter {
        request,
        elements: &scan.elements,
        edits: Edits::new(),
        open: Vec::new(),
        files: Vec::new(),
        runs: SentRuns::default(),
    };
    let hits = &usable(&scan.turns, hits);
    for (index, turn) in scan.turns.iter().enumerate() {
        let first = turn.elements.start;
        let saved = hits.iter().find(|hit| hit.turn == index).map(|hit| hit.saved.as_ref());
        if turn.kept.is_some() {
            if let Some(saved) = saved {
                writer.resume_kept(saved, words);
            }
        } else if let Some(saved) = saved {
            writer.restore(turn, saved, words);
        } else if turn.speaker == Speaker::Assistant {
            writer.settle(first);
            writer.unremembered(turn, (mode, runs_here), words);
        } else if turn.canon.is_some() {
            writer.merge(first);
        }
    }
    let visible_end = scan.elements.len();
    let last = hits.iter().find(|hit| hit.turn + 1 == scan.turns.len());
    let answered_last = last.is_some() || !writer.open.is_empty();
    let mut open_calls = Vec::new();
    if let Some(hit) = last.filter(|hit| request.kind() == CallKind::Generate && !hit.saved.open_calls.is_empty()) {
        open_calls.clone_from(&hit.saved.open_calls);
        writer.open.clear();
    }
    writer.settle(visible_end);
    let (mut edits, files, runs) = (writer.edits, writer.files, writer.runs.finish());
    if request.format() == Format::Messages && matches!(mode, InjectionMode::Injecting { .. }) {
        repair::thinking(request, scan, hits, &mut edits);
        if !answered_last {
            repair::pause(request, scan, &mut edits);
        }
    }
    Expansion {
        edits,
        files,
        open_calls,
        runs,
    }
}

/// The hits whose messages fit: results of calls that an earlier answer left open must directly follow that answer, and a
/// saved turn without messages stands for turns that the upstream keeps only.
fn usable<'h>(turns: &[Turn], hits: &'h [TurnMatch]) -> Vec<&'h TurnMatch> {
    let mut usable: Vec<&TurnMatch> = Vec::with_capacity(hits.len());
    for hit in hits {
        if hit.saved.messages.is_empty() && turns.get(hit.turn).is_some_and(|turn| turn.kept.is_none()) {
            continue;
        }
        let follows = |before: &&TurnMatch| before.turn + 1 == hit.turn && !before.saved.open_calls.is_empty();
        if !hit.saved.resumes || usable.last().is_some_and(follows) {
            usable.push(hit);
        }
    }
    usable
}

/// The bytes of recorded messages.
fn write_all(pieces: &[SavedMessage], words: &mut dyn ResultTexts) -> Vec<Vec<u8>> {
    pieces.iter().map(|piece| write(piece, words)).collect()
}

/// The bytes of a recorded message, with its load results rendered.
fn write(piece: &SavedMessage, words: &mut dyn ResultTexts) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in piece {
        match segment {
            Segment::Raw(raw) => out.extend_from_slice(raw.as_bytes()),
            Segment::Load(reference) => json::push_escaped(&mut out, &words.load(reference)),
        }
    }
    out
}

/// Writes changes of whole elements. A changed element takes the separator before it along, so that the bytes do not
/// depend on how the client spaces its JSON.
struct HistoryWriter<'a> {
    request: &'a Request,
    elements: &'a [Span],
    edits: Edits,
    /// Results that wait for the client's next message.
    open: Vec<Vec<u8>>,
    /// Files of the turns so far.
    files: Vec<FileNote>,
    /// Runs of the turns so far, as the client sent them.
    runs: SentRuns,
}

impl HistoryWriter<'_> {
    /// Replaces the elements `from..to` by `with`.
    fn replace(&mut self, from: usize, to: usize, with: &[Vec<u8>]) {
        let (Some(first), Some(last)) = (
            self.elements.get(from),
            to.checked_sub(1).and_then(|at| self.elements.get(at)),
        ) else {
            return;
        };
        let joined = with.join(&b',');
        match from.checked_sub(1).and_then(|before| self.elements.get(before)) {
            Some(before) => {
                let mut out = Vec::with_capacity(joined.len() + 1);
                if !joined.is_empty() {
                    out.push(b',');
                    out.extend_from_slice(&joined);
                }
                self.edits.replace(Span::new(before.end, last.end), out);
            }
            None if joined.is_empty() => {
                let end = self.elements.get(to).map_or(last.end, |next| next.start);
                self.edits.replace(Span::new(first.start, end), joined);
            }
            None => self.edits.replace(Span::new(first.start, last.end), joined),
        }
    }

    /// Continues a response that the provider keeps, with the results that its saved turn left open.
    fn resume_kept(&mut self, saved: &SavedTurn, words: &mut dyn ResultTexts) {
        let open = write_all(&saved.open_results, words);
        responses::go_on(self.request, &saved.state, &open, &mut self.edits);
        self.files.extend(saved.files.iter().cloned());
    }

    /// Replaces a visible turn by the messages of its saved turn.
    fn restore(&mut self, turn: &Turn, saved: &SavedTurn, words: &mut dyn ResultTexts) {
        if saved.resumes {
            // They ran after all.
            self.open.clear();
        }
        let mut messages = write_all(&saved.messages, words);
        let answer = &self.elements[turn.elements.clone()];
        markers::keep(self.request.format(), self.request.raw(), answer, &mut messages);
        if self.request.format() == Format::Responses {
            self.runs.begin_turn();
            sent_runs::restored(self.request.raw(), answer, &messages, &mut self.runs);
        }
        self.settle(turn.elements.start);
        self.replace(turn.elements.start, turn.elements.end, &messages);
        self.open = write_all(&saved.open_results, words);
        self.files.extend(saved.files.iter().cloned());
    }

    /// An answer without a saved turn: Knack's runs that it shows become calls of the tool that ran them, and their results.
    fn unremembered(&mut self, turn: &Turn, (mode, runs_here): (InjectionMode<'_>, bool), words: &mut dyn ResultTexts) {
        let (src, elements) = (self.request.raw(), &self.elements[turn.elements.clone()]);
        let change = match (self.request.format(), elements.first()) {
            (Format::Messages, Some(message)) => shown::expand(src, *message, mode, words),
            (Format::Gemini, _) if runs_here => runs::expand(src, elements, run_tool(mode), words),
            (Format::Responses, _) => return self.items(elements, mode, words),
            _ => None,
        };
        if let Some(change) = change {
            self.replace(turn.elements.start, turn.elements.end, &change.messages);
            self.open = change.open_results;
            self.files.extend(change.files);
        }
    }

    /// Knack's items, each by itself: a provider without a shell knows none.
    fn items(&mut self, elements: &[Span], mode: InjectionMode<'_>, words: &mut dyn ResultTexts) {
        let src = self.request.raw();
        self.runs.begin_turn();
        for span in elements {
            let mut run_text = |seen: &ShownRun| {
                let run_text = words.run(seen);
                self.files.extend(run_text.files);
                run_text.text
            };
            if let Some(item) = shell::upstream(src, *span, run_tool(mode), &mut run_text) {
                self.edits.replace(*span, item);
                if json::get(src, *span, "call_id").is_some() {
                    sent_runs::alone(src, *span, &mut self.runs);
                }
            } else {
                citations::remove_own(src, *span, &mut self.edits);
            }
        }
    }

    /// Merges open results into the client's message at `index`, before its own results.
    fn merge(&mut self, index: usize) {
        let Some(key) = merge_key(self.request.format()) else {
            return;
        };
        if self.open.is_empty() {
            return;
        }
        let src = self.request.raw();
        let fields = read::Fields::read(src, self.elements[index]);
        let open = std::mem::take(&mut self.open).join(&b',');
        match fields.span(key).and_then(|span| Some((json::kind(src, span)?, span))) {
            Some((ValueKind::Array, span)) => {
                let filled = !json::elements(src, span).unwrap_or_default().is_empty();
                let mut out = open;
                if filled {
                    out.push(b',');
                }
                self.edits.insert(span.start + 1, out);
            }
            Some((ValueKind::String, span)) => {
                let mut out = vec![b'['];
                out.extend_from_slice(&open);
                // An empty text block is refused as input.
                if span.of(src) != br#""""# {
                    out.extend_from_slice(br#",{"type":"text","text":"#);
                    out.extend_from_slice(span.of(src));
                    out.push(b'}');
                }
                out.push(b']');
                self.edits.replace(span, out);
            }
            Some((ValueKind::Object, span)) => {
                self.edits.insert(span.start, [b"[", open.as_slice(), b","].concat());
                self.edits.insert(span.end, "]");
            }
            _ => self.open = vec![open],
        }
    }

    /// Gives open results a message of their own before the element at `index`: the next message is no user's, or
    /// there is none.
    fn settle(&mut self, index: usize) {
        let Some(key) = merge_key(self.request.format()) else {
            return;
        };
        let Some(before) = index.checked_sub(1).and_then(|before| self.elements.get(before)) else {
            return;
        };
        if self.open.is_empty() {
            return;
        }
        let mut out = format!(r#",{{"role":"user","{key}":["#).into_bytes();
        out.extend_from_slice(&std::mem::take(&mut self.open).join(&b','));
        out.extend_from_slice(b"]}");
        self.edits.insert(before.end, out);
    }
}
