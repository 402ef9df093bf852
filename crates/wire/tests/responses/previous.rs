//! Requests that go on from a response by its id.

use std::sync::Arc;
use std::time::Duration;

use knack_wire::drive::{AnswerHead, UpstreamFailure};
use knack_wire::frame::SseDecoder;
use knack_wire::history::{self, Caller, HistorySecret, InjectionMode, TurnMatch};
use knack_wire::json::Edits;
use knack_wire::{Drive, DriveAction, DriveInput, Format, Injection};
use serde_json::{Value, json as value};

use super::support::{ExchangeResult, error, injection, json, play_pieces, request, settings};
use super::{ASK, body, call, message, play_with, snapshot, two_rounds};

/// Nothing is put back whose words count here.
struct Silent;

impl history::ResultTexts for Silent {
    fn load(&mut self, _: &str) -> String {
        String::new()
    }

    fn run(&mut self, _: &history::ShownRun) -> history::RunText {
        history::RunText::default()
    }
}

/// One request of a client that goes on from a response by its id, with a store of one answer.
pub(super) fn go_on(body: &str, stored: &[(Vec<history::TurnKey>, Arc<history::SavedTurn>)]) -> String {
    let request = request(Format::Responses, body);
    let caller = Caller::new(&HistorySecret::new([3; 32]), b"k");
    let scan = history::scan(&request);
    let find = |key: &history::TurnKey| {
        stored
            .iter()
            .find(|(keys, _)| keys.contains(key))
            .map(|(_, hidden)| hidden)
    };
    let hits: Vec<TurnMatch> = scan
        .lookups(&caller)
        .into_iter()
        .filter_map(|lookup| {
            let saved = Arc::clone(lookup.keys.iter().find_map(find)?);
            Some(TurnMatch {
                turn: lookup.turn,
                saved,
            })
        })
        .collect();
    assert!(hits.is_empty() || history::may_hold_calls(&request));
    let edits = history::expand(
        &request,
        &scan,
        &hits,
        (InjectionMode::Injecting { run_tool: None }, false),
        &mut Silent,
    )
    .edits;
    let mut drive = Drive::new(request, injection(), settings()).unwrap();
    let mut out = Vec::new();
    drive.start(edits, Vec::new(), Duration::ZERO, &mut out);
    match &out[..] {
        [DriveAction::Send { body, .. }] => String::from_utf8(body.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn stored(body: &str, played: &ExchangeResult) -> Vec<(Vec<history::TurnKey>, Arc<history::SavedTurn>)> {
    let caller = Caller::new(&HistorySecret::new([3; 32]), b"k");
    let scan = history::scan(&request(Format::Responses, body));
    let hidden = played.hidden.as_ref().unwrap();
    let keys = history::keys(&caller, &scan.chain(), hidden);
    let saved = history::seal(Format::Responses, hidden, Vec::new(), &mut |_| None);
    let (turn, by_id) = (Arc::new(saved.turn.unwrap()), Arc::new(saved.id.unwrap()));
    vec![(keys.turn, turn), (keys.id.into_iter().collect(), by_id)]
}

#[test]
fn a_response_is_continued_from_where_the_upstream_really_is() {
    let played = play_with(ASK, settings(), &two_rounds(true));
    let kept = stored(ASK, &played);
    let next = r#"{"previous_response_id":"resp_1","input":"And 4?"}"#;
    let sent: Value = serde_json::from_str(&go_on(next, &kept)).unwrap();
    assert_eq!(
        (&sent["previous_response_id"], &sent["input"]),
        (&value!("resp_2"), &value!([{"role": "user", "content": "And 4?"}]))
    );
    // Also of a request that nothing is added to: its answer repeats the id that the client sent.
    let plain = request(
        Format::Responses,
        r#"{"previous_response_id":"resp_1","input":"And 4?","tool_choice":"none"}"#,
    );
    let previous = plain.present("previous_response_id").unwrap();
    let mut edits = Edits::new();
    edits.replace(previous, "\"resp_2\"");
    let mut drive = Drive::new(plain, Injection::default(), settings()).unwrap();
    drive.start(edits, Vec::new(), Duration::ZERO, &mut Vec::new());
    assert!(drive.reads());
    // Without the map the id goes as it came.
    let sent: Value = serde_json::from_str(&go_on(next, &[])).unwrap();
    assert_eq!(sent["previous_response_id"], "resp_1");
}

#[test]
fn a_kept_mixed_turn_gets_our_results_before_the_clients() {
    let turn = [
        call("skill_run", "call_s123456789abc"),
        call("get_weather", "call_w123456789abc"),
    ];
    let played = play_with(ASK, settings(), &[body("resp_1", &turn)]);
    let kept = stored(ASK, &played);
    let output = r#"{"type":"function_call_output","call_id":"call_w123456789abc","output":"-3"}"#;
    for state in [r#""previous_response_id":"resp_1""#, r#""conversation":"conv_1""#] {
        let sent: Value = serde_json::from_str(&go_on(&format!(r#"{{{state},"input":[{output}]}}"#), &kept)).unwrap();
        let input = sent["input"].as_array().unwrap();
        assert_eq!(input.len(), 2, "{sent}");
        assert_eq!(
            (&input[0]["call_id"], &input[1]["call_id"]),
            (&value!("call_s123456789abc"), &value!("call_w123456789abc"))
        );
    }
}

#[test]
fn a_call_that_a_lost_hidden_left_open_is_answered_once() {
    let ask = r#"{"conversation":"conv_1","input":"And 4?"}"#;
    let refusal = r#"{"error":{"message":"No tool output found for function call call_1.","type":"invalid_request_error","param":"input","code":null}}"#;
    let [_, last] = two_rounds(false);
    let played = play_with(ask, settings(), &[error(400, refusal), last]);
    assert_eq!(played.value()["output"][1], message("msg_2", "5."));
    assert_eq!(
        played.sent_value(1)["input"],
        value!([{"type": "function_call_output", "call_id": "call_1", "output": "result no longer available"}, {"role": "user", "content": "And 4?"}])
    );
    // Once, and nothing else is answered: the client gets the provider's own refusal.
    let played = play_with(ask, settings(), &[error(400, refusal), error(400, refusal)]);
    assert_eq!((played.text().as_str(), played.head.unwrap().status), (refusal, 400));
    let other = r#"{"error":{"message":"No."}}"#;
    assert_eq!(play_with(ask, settings(), &[error(400, other)]).text(), other);
    assert_eq!(play_with(ASK, settings(), &[error(400, refusal)]).text(), refusal);
}

#[test]
fn a_lost_response_is_an_error_that_says_what_to_send() {
    let ask = r#"{"previous_response_id":"resp_1","input":"And 4?"}"#;
    let refusal = r#"{"error":{"message":"No tool output found for function call call_1.","type":"invalid_request_error","param":"input","code":null}}"#;
    let played = play_with(ask, settings(), &[error(400, refusal)]);
    assert_eq!((played.sent.len(), played.head.unwrap().status), (1, 400));
    let reported = &played.value()["error"];
    assert_eq!(
        (&reported["type"], &reported["param"], &reported["code"]),
        (
            &value!("invalid_request_error"),
            &value!("previous_response_id"),
            &value!("previous_response_not_found")
        )
    );
    for said in ["resp_1", "call_1", "send the items of the conversation in \"input\""] {
        assert!(reported["message"].as_str().unwrap().contains(said), "{reported}");
    }
    // What the provider refuses for another reason is its own to say, and so is everything without Knack's tools.
    let other = r#"{"error":{"message":"Previous response with id 'resp_1' not found."}}"#;
    assert_eq!(play_with(ask, settings(), &[error(400, other)]).text(), other);
    let plain = play_pieces(
        request(Format::Responses, ask),
        knack_wire::Injection::default(),
        settings(),
        &[error(400, refusal)],
        999,
    );
    assert_eq!(plain.text(), refusal);
}

#[test]
fn the_clients_own_previous_id_is_echoed() {
    let mut one = snapshot("resp_2", "completed", &[message("msg_1", "x")]);
    one["previous_response_id"] = "resp_upstream".into();
    let played = play_with(
        r#"{"previous_response_id":"resp_shown","input":"x"}"#,
        settings(),
        &[json(&one.to_string())],
    );
    assert_eq!(played.value()["previous_response_id"], "resp_shown");
}

/// A client parses each line as JSON: half of one would hide the error behind it, as an answer that cannot be read.
#[test]
fn half_a_line_of_a_stream_in_the_background_that_breaks_is_not_passed_and_the_error_is_an_event() {
    let body = r#"{"model":"m","input":"x","background":true,"stream":true,"previous_response_id":"resp_1"}"#;
    let sent = concat!(
        "event: response.created\n",
        "data: {\"sequence_number\":0,\"response\":{\"id\":\"resp_2\",\"object\":\"response\",\"previous_response_id\":\"resp_1b\"}}\n\n",
        "event: response.output_text.delta\n",
        "data: {\"sequence_number\":1,\"delta\":\"cut",
    );
    for piece in [1, 7, sent.len()] {
        let request = request(Format::Responses, body);
        let mut edits = Edits::new();
        edits.replace(request.present("previous_response_id").unwrap(), "\"resp_1b\"");
        let mut drive = Drive::new(request, Injection::default(), settings()).unwrap();
        let (mut out, now) = (Vec::new(), Duration::ZERO);
        drive.start(edits, Vec::new(), now, &mut out);
        let head = AnswerHead {
            status: 200,
            stream: true,
            retry_after: None,
        };
        drive.feed(DriveInput::Head(head), now, &mut out);
        for bytes in sent.as_bytes().chunks(piece) {
            drive.feed(DriveInput::Body(bytes.to_vec().into()), now, &mut out);
        }
        drive.feed(DriveInput::Failed(UpstreamFailure::Broken), now, &mut out);
        let shown: Vec<u8> = out
            .iter()
            .filter_map(|action| match action {
                DriveAction::ClientBytes(bytes) => Some(&bytes[..]),
                _ => None,
            })
            .collect::<Vec<_>>()
            .concat();
        let mut events = Vec::new();
        SseDecoder::new().push(&shown, &mut events).unwrap();
        let events: Vec<Value> = events
            .iter()
            .map(|event| serde_json::from_slice(&event.data).unwrap())
            .collect();
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[0]["response"]["previous_response_id"], "resp_1");
        assert_eq!(events[1]["type"], "error", "{events:?}");
    }
}
