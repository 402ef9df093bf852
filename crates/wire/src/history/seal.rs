//! From a finished loop to the saved turn that is stored, and the keys it is stored under.

use super::keys::{Caller, TurnKey};
use super::saved_turn::{FileNote, MAX_SAVED_BYTES, SavedMessage, SavedTurn, Segment};
use super::scan::{self, Chain};
use super::turn::Link;
use super::{merge_key, read};
use crate::drive::{self, CallResult, HiddenEntry, OpenCall};
use crate::format::dialect;
use crate::json::{self, Span};
use crate::route::Format;
use crate::stored::StoredForm;

/// Most rounds of an answer that are noted: more than a loop can have.
const MAX_NOTED: usize = 128;

/// Where the saved turns of an answer are put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerKeys {
    /// The keys of the answer's turn in the conversation: at most two, and the saved turn is found under each. None if
    /// nothing of it is hidden.
    pub turn: Vec<TurnKey>,
    /// The key of the answer's id, if the upstream keeps the answer. It is separate: an answer that says the same once
    /// more takes the keys of the turn.
    pub id: Option<TurnKey>,
    /// The key of the conversation's beginning, shared by all of its saved turns ([`super::opening`]).
    pub opening: TurnKey,
}

/// What is remembered of an answer. A saved turn that is larger than [`MAX_SAVED_BYTES`] is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedAnswer {
    /// For [`AnswerKeys::turn`].
    pub turn: Option<SavedTurn>,
    /// For [`AnswerKeys::id`]: without the messages, which the upstream has, and with all that is shown of the answer.
    pub id: Option<SavedTurn>,
}

/// The keys of an answer: the request's chain with the visible answer at its end, the ids of the client's calls, and its own
/// id. The saved turns are put under them before the end marker is sent. `request` is the chain of the body as the client
/// sent it.
pub fn keys(caller: &Caller, request: &Chain, answer: &drive::HiddenTurns) -> AnswerKeys {
    let mut visible = vec![b'['];
    for (index, element) in answer.visible.iter().enumerate() {
        if index > 0 {
            visible.push(b',');
        }
        visible.extend_from_slice(element);
    }
    visible.push(b']');
    let elements = json::elements(&visible, Span::new(0, visible.len())).unwrap_or_default();
    let turns = scan::turns(request.format, &visible, &elements);
    let link = turns.iter().fold(request.end, Link::then);
    // Without a message of the client, the answer is the first turn of the next request.
    let first = || turns.first().map(|turn| Link::origin(request.format).then(turn));
    let opening = request.opening.or_else(first).unwrap_or(link);
    // An answer that reads as several turns cannot be put back in place of one (Responses, outputs of hosted tools).
    let chain = (turns.len() <= 1).then(|| caller.chain_key(&link));
    let is_kept = !answer.state.is_empty() || answer.stored.is_some();
    // A client may name the items of an answer that is kept, instead of sending them.
    let of_item = || {
        let last = answer.visible.last().filter(|_| is_kept && turns.len() <= 1)?;
        caller.item_key(&json::get_text(last, Span::new(0, last.len()), "id")?)
    };
    let second = caller.calls_key(request.format, &answer.client_calls).or_else(of_item);
    AnswerKeys {
        turn: chain.into_iter().chain(second).collect(),
        id: is_kept.then(|| caller.response_key(&answer.response_id)),
        opening: caller.opening_key(&opening),
    }
}

/// The keys of an answer of which nothing is hidden: it is read by its id, and needs nothing put back.
pub fn response_keys(caller: &Caller, answer: &drive::HiddenTurns) -> AnswerKeys {
    let key = caller.response_key(&answer.response_id);
    AnswerKeys {
        turn: Vec::new(),
        id: Some(key),
        // No conversation begins so: requests are not searched for turns that nothing hides in.
        opening: key,
    }
}

/// The note that the other rounds of an answer are parts of it, and its keys: the upstream lists all of them (Chat). `saved`
/// is the one for the answer's id. `None`: it has one round.
pub fn round_note(caller: &Caller, id: &str, saved: &SavedTurn) -> Option<(Vec<TurnKey>, SavedTurn)> {
    let stored = saved.stored.as_ref()?;
    let rounds = [&saved.state].into_iter().chain(&stored.rounds);
    let keys: Vec<TurnKey> = rounds
        .filter(|round| *round != id && !round.is_empty())
        .take(MAX_NOTED)
        .map(|round| caller.response_key(round))
        .collect();
    let note = SavedTurn {
        state: saved.state.clone(),
        stored: Some(StoredForm::part(id.to_owned(), Vec::new())),
        ..SavedTurn::default()
    };
    (!keys.is_empty()).then_some((keys, note))
}

/// The saved turn of a round while its loop runs, and its key. What is remembered of the answer takes its place.
pub fn running(caller: &Caller, format: Format, note: drive::RoundNote) -> (TurnKey, SavedTurn) {
    let drive::RoundNote { id, mut form, .. } = note;
    form.bound();
    if form.part_of.is_empty() {
        form.show_no_answer(format);
    }
    let saved = SavedTurn {
        stored: Some(form),
        ..SavedTurn::default()
    };
    (caller.response_key(&id), saved)
}

/// The saved turns of a loop. Where a client may go on from what the upstream keeps (Responses), the saved turn of a turn that is too
/// large is kept without its messages: in a conversation of the upstream the id of the last round and the results that are
/// open are enough. A client that sends the items gets a miss. If these results do not fit into the saved turn for the id either,
/// what the client may read by it is kept.
///
/// `render` gives the text of a load result from its reference, as it will do when the saved turn is used; a result whose
/// text does not begin with it is kept whole. `files` are the files that the loop's runs made.
pub fn seal(
    format: Format,
    answer: &drive::HiddenTurns,
    files: Vec<FileNote>,
    render: &mut dyn FnMut(&str) -> Option<String>,
) -> SavedAnswer {
    let mut saved = SavedTurn {
        client_calls: answer.client_calls.clone(),
        resumes: matches!(answer.entries.first(), Some(HiddenEntry::Results(_))),
        files,
        state: answer.state.clone(),
        ..SavedTurn::default()
    };
    for (index, entry) in answer.entries.iter().enumerate() {
        match entry {
            HiddenEntry::Turn(elements) => {
                saved.messages.extend(elements.iter().map(|raw| whole(raw)));
            }
            HiddenEntry::Results(results) => {
                let last = index + 1 == answer.entries.len();
                // Only Messages has an ending that a client resumes.
                let paused = last && answer.paused && format == Format::Messages;
                if paused {
                    saved.open_calls = results.iter().map(open_call).collect();
                }
                let open = paused || (last && !answer.client_calls.is_empty());
                for element in dialect(format).results(results) {
                    let element = String::from_utf8_lossy(&element);
                    if let Some(key) = merge_key(format).filter(|_| open) {
                        saved.open_results.extend(blocks(&element, key, results, render));
                        continue;
                    }
                    let piece = cut_all(&element, results, render);
                    if open && format == Format::Responses {
                        saved.open_results.push(piece.clone());
                    }
                    saved.messages.push(piece);
                }
            }
        }
    }
    let mut form = answer.stored.clone();
    if let Some(form) = &mut form {
        form.bound();
    }
    let mut by_id = saved.of_id(form);
    if by_id.size() > MAX_SAVED_BYTES && by_id.stored.is_some() {
        by_id = unresumed(by_id, answer);
    }
    if format == Format::Responses {
        // Later answers hide what this one hides.
        saved.stored = by_id.stored.as_ref().map(StoredForm::hiding);
        if saved.size() > MAX_SAVED_BYTES && !saved.state.is_empty() {
            saved.messages.clear();
        }
    }
    let fits = |saved: &SavedTurn| saved.size() <= MAX_SAVED_BYTES;
    SavedAnswer {
        turn: Some(saved).filter(fits),
        id: Some(by_id).filter(fits),
    }
}

/// What is left of a saved turn whose open results do not fit: nobody can go on from its state, and it is shown all the same.
fn unresumed(saved: SavedTurn, answer: &drive::HiddenTurns) -> SavedTurn {
    let mut stored = saved.stored.unwrap_or_default();
    stored.rounds.retain(|id| *id != answer.response_id);
    stored
        .rounds
        .extend((saved.state != answer.response_id).then_some(saved.state));
    SavedTurn {
        state: answer.response_id.clone(),
        stored: Some(stored),
        ..SavedTurn::default()
    }
}

fn open_call(refused: &CallResult) -> OpenCall {
    OpenCall {
        id: refused.id.clone(),
        name: refused.name.clone(),
        arguments: refused.arguments.clone(),
    }
}

fn whole(raw: &[u8]) -> SavedMessage {
    vec![Segment::Raw(String::from_utf8_lossy(raw).into_owned())]
}

/// The blocks of a message of results, each on its own.
fn blocks(
    element: &str,
    key: &str,
    results: &[CallResult],
    render: &mut dyn FnMut(&str) -> Option<String>,
) -> Vec<SavedMessage> {
    let src = element.as_bytes();
    let fields = read::Fields::read(src, Span::new(0, src.len()));
    let blocks = fields.elements(key);
    blocks
        .iter()
        .map(|span| cut_all(&element[span.start..span.end], results, render))
        .collect()
}

/// Takes the texts of all load results out of a message, in order.
fn cut_all(element: &str, results: &[CallResult], render: &mut dyn FnMut(&str) -> Option<String>) -> SavedMessage {
    let mut piece = Vec::new();
    let mut rest = element.to_owned();
    for result in results {
        let Some(reference) = &result.reference else { continue };
        let Some(text) = render(reference).filter(|text| result.text.starts_with(text)) else {
            continue;
        };
        let mut cut = Segment::cut(&rest, &text, reference);
        if cut.len() == 3
            && let Some(Segment::Raw(tail)) = cut.pop()
        {
            rest = tail;
            piece.append(&mut cut);
        }
    }
    piece.push(Segment::Raw(rest));
    piece
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::history::HistorySecret;

    #[test]
    fn the_other_rounds_of_an_answer_are_noted_under_their_ids() {
        let caller = Caller::new(&HistorySecret::new([7; 32]), b"Bearer k");
        let note = |state: &str, rounds: &[&str]| {
            let saved = SavedTurn {
                state: state.to_owned(),
                stored: Some(StoredForm {
                    rounds: rounds.iter().map(|&id| id.to_owned()).collect(),
                    ..StoredForm::default()
                }),
                ..SavedTurn::default()
            };
            let (keys, note) = round_note(&caller, "c1", &saved)?;
            Some((keys, note.state, note.stored.unwrap_or_default().part_of))
        };
        let keys = |ids: &[&str]| ids.iter().map(|id| caller.response_key(id)).collect::<Vec<_>>();
        let of_answer = |state: &str, ids: &[&str]| Some((keys(ids), state.to_owned(), "c1".to_owned()));
        assert_eq!(note("c3", &["c1", "c2"]), of_answer("c3", &["c3", "c2"]));
        assert_eq!(note("c1", &[]), None, "one round");
        assert_eq!(note("", &["c2"]), of_answer("", &["c2"]), "one that was not shown");
    }

    /// Nothing of the answer is shown, however long what the client sent is.
    #[test]
    fn a_round_of_a_running_loop_shows_no_answer_and_is_provisional() {
        let caller = Caller::new(&HistorySecret::new([7; 32]), b"Bearer k");
        let stored = br#"{"id":"r1","object":"response","status":"completed","instructions":"Skills","output":[{"type":"function_call"}],"usage":{}}"#;
        for (length, instructions) in [(2, r#""xx""#), (200 << 10, "null")] {
            let own = format!("\"{}\"", "x".repeat(length));
            let form = StoredForm {
                members: [("instructions".to_owned(), own)].into(),
                ..StoredForm::default()
            };
            let note = |form| drive::RoundNote {
                id: "r1".to_owned(),
                form,
                is_over: false,
            };
            let (key, saved) = running(&caller, Format::Responses, note(form.clone()));
            assert_eq!((key, saved.is_provisional()), (caller.response_key("r1"), true));
            let shown = saved.stored.unwrap().response(stored, "r1");
            assert_eq!(
                String::from_utf8(shown).unwrap(),
                format!(
                    r#"{{"id":"r1","object":"response","status":"in_progress","instructions":{instructions},"output":[],"usage":null}}"#
                )
            );
            let (_, part) = running(
                &caller,
                Format::Chat,
                note(StoredForm::part("c1".to_owned(), Vec::new())),
            );
            assert!(part.stored.unwrap().members.is_empty());
        }
        let ended = SavedTurn {
            state: "r2".to_owned(),
            stored: Some(StoredForm::new()),
            ..SavedTurn::default()
        };
        assert!(!ended.is_provisional() && !SavedTurn::default().is_provisional());
    }

    /// A long answer that the upstream keeps is remembered twice: what is shown of it, by its id, and its hidden turns.
    #[test]
    fn what_is_read_by_id_takes_no_room_from_the_hidden_turns() {
        let answer = drive::HiddenTurns {
            entries: vec![drive::HiddenEntry::Turn(vec![Bytes::from(vec![b'x'; 200 << 10])])],
            response_id: "c1".to_owned(),
            state: "c2".to_owned(),
            stored: Some(StoredForm {
                members: [("message".to_owned(), "x".repeat(100 << 10))].into(),
                hidden: vec!["call_1".to_owned()],
                rounds: vec!["c1".to_owned()],
                ..StoredForm::default()
            }),
            ..drive::HiddenTurns::default()
        };
        for format in [Format::Chat, Format::Responses] {
            let saved_turns = seal(format, &answer, Vec::new(), &mut |_| None);
            let (turn, by_id) = (saved_turns.turn.unwrap(), saved_turns.id.unwrap());
            assert_eq!((turn.messages.len(), by_id.messages.len()), (1, 0), "{format:?}");
            assert_eq!((by_id.state.as_str(), by_id.stored), ("c2", answer.stored.clone()));
            let hidden = turn.stored.map(|form| (form.hidden, form.members.len()));
            let expected = (format == Format::Responses).then(|| (vec!["call_1".to_owned()], 0));
            assert_eq!(hidden, expected, "only Responses lists what earlier answers hide");
        }
    }
}
