//! Chat completions that the upstream keeps: what is remembered of an answer, so that it is read by its id as it was shown
//! (docs/design/wire-formats.md#stored-completions).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/chat.rs"]
mod bodies;
mod support;

use bodies::*;
use knack_wire::{Format, HiddenTurns, Injection, StoredForm};
use serde_json::{Value, json as value};
use support::*;

const ASK: &str = r#"{"model":"gpt-x","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"2+3?"}],"store":true}"#;

/// What is remembered of an exchange, and how its answer is read.
fn remembered(ask: &str, injection: Injection, answers: &[Answer]) -> (HiddenTurns, StoredForm) {
    let played = play_pieces(request(Format::Chat, ask), injection, settings(), answers, 9);
    let hidden = played.hidden.expect("an answer that is kept is remembered");
    let form = hidden.stored.clone().expect("with what is shown of it");
    (hidden, form)
}

/// A stored completion as its client reads it.
fn read(form: &StoredForm, body: &str) -> Value {
    let mut body: Value = serde_json::from_str(body).unwrap();
    body["tools"] = value!([{"type": "function", "function": {"name": "skill_run"}}]);
    serde_json::from_slice(&form.completion(body.to_string().as_bytes(), "c1")).unwrap()
}

fn own_call() -> String {
    call("call_s", "skill_run", r#"{"command":"sum"}"#)
}

/// The chunks of a round with this text that ends so.
fn streamed(id: &str, text: &str, calls: &[String], finish: &str) -> Answer {
    let mut chunks = vec![chunk(
        id,
        &format!(r#"{{"role":"assistant","content":"{text}"}}"#),
        "null",
    )];
    for (at, call) in calls.iter().enumerate() {
        let call = call.replacen('{', &format!(r#"{{"index":{at},"#), 1);
        chunks.push(chunk(id, &format!(r#"{{"tool_calls":[{call}]}}"#), "null"));
    }
    chunks.push(chunk(id, "{}", &format!("\"{finish}\"")));
    chunks.push(usage_chunk(id, 1));
    stream(&chunks)
}

/// A round, whole.
fn whole(id: &str, text: &str, calls: &[String], finish: &str) -> Answer {
    json(&completion(id, &format!("\"{text}\""), calls, finish, 1))
}

/// The text of a skill alone changes the request, too.
#[test]
fn an_answer_of_one_round_is_remembered_for_its_id_alone() {
    let text = Injection::new("# Skills".to_owned(), Vec::new());
    for round in [whole, streamed] {
        for injection in [injection(), text.clone()] {
            let (hidden, form) = remembered(ASK, injection, &[round("c1", "5", &[], "stop")]);
            assert!(hidden.entries.is_empty());
            assert_eq!((&*hidden.response_id, &*hidden.state), ("c1", "c1"));
            assert!(form.rounds.is_empty() && form.hidden.is_empty());
            assert_eq!(form.messages.as_ref().unwrap().changes[0].at, 0);
            let shown = read(&form, &completion("c1", "\"5\"", &[], "stop", 1));
            assert_eq!(shown["tools"], value!(null));
            assert_eq!(shown["choices"][0]["message"]["content"], "5");
        }
        // Nothing is kept, or nothing was added.
        for (ask, injection) in [
            (ASK.replace("true", "false"), injection()),
            (ASK.to_owned(), Injection::default()),
        ] {
            let answers = [round("c1", "5", &[], "stop")];
            let played = play_pieces(request(Format::Chat, &ask), injection, settings(), &answers, 9);
            assert!(played.hidden.is_none());
        }
    }
}

#[test]
fn a_loop_is_read_under_its_first_id_as_it_was_shown() {
    for round in [whole, streamed] {
        let answers = [
            round("c1", "Let me see.", &[own_call()], "tool_calls"),
            round("c2", "5", &[], "stop"),
        ];
        let (hidden, form) = remembered(ASK, injection(), &answers);
        assert_eq!((&*hidden.response_id, &*hidden.state), ("c1", "c2"));
        assert_eq!(
            (&*form.rounds, &*form.hidden),
            (&["c1".to_owned()][..], &["call_s".to_owned()][..])
        );
        let shown = read(&form, &completion("c2", "\"5\"", &[], "stop", 7));
        assert_eq!((&shown["id"], &shown["created"]), (&value!("c1"), &value!(1)));
        assert_eq!(shown["usage"]["total_tokens"], 2);
        assert_eq!(shown["choices"][0]["message"]["content"], "Let me see.\n\n5");
        assert_eq!(shown["choices"][0]["finish_reason"], "stop");
    }
}

/// While a loop runs, its rounds are noted: a streamed answer by the id that its client has, the others as parts of it.
#[test]
fn rounds_of_a_loop_are_noted_before_anything_of_them_is_sent() {
    let answers = |round: fn(&str, &str, &[String], &str) -> Answer| {
        [
            round("c1", "Let me see.", &[own_call()], "tool_calls"),
            round("c2", "And again.", &[own_call()], "tool_calls"),
            round("c3", "5", &[], "stop"),
        ]
    };
    let noted = |ask: &str, answers: &[Answer]| {
        let played = play_pieces(request(Format::Chat, ask), injection(), settings(), answers, 9);
        let notes = played.notes.into_iter();
        notes
            .map(|note| (note.id, note.form.part_of, note.is_over))
            .collect::<Vec<_>>()
    };
    let note = |id: &str, part_of: &str, is_over| (id.to_owned(), part_of.to_owned(), is_over);
    assert_eq!(
        noted(ASK, &answers(streamed)),
        [
            note("c1", "", false),
            note("c1", "", true),
            note("c2", "c1", false),
            note("c2", "c1", true),
            note("c3", "c1", false),
        ]
    );
    assert_eq!(
        noted(ASK, &answers(whole)),
        [note("c1", "c1", true), note("c2", "c1", true)],
        "of an answer that was not shown"
    );
    let unkept = ASK.replace("true", "false");
    assert_eq!(noted(&unkept, &answers(streamed)), []);
}

/// A loop of a hundred rounds has more calls than a form can name.
#[test]
fn only_calls_of_rounds_that_can_be_read_are_known() {
    let of_round = |id: &str| call(&format!("call_{id}"), "skill_run", r#"{"command":"sum"}"#);
    let answers = [
        streamed("c1", "On it.", &[of_round("c1")], "tool_calls"),
        streamed("c2", "On it.", &[of_round("c2")], "tool_calls"),
        error(400, r#"{"error":{"message":"no more"}}"#),
    ];
    let (_, form) = remembered(ASK, injection(), &answers);
    assert_eq!(form.hidden, ["call_c1"]);
    let weather = call("call_w", "get_weather", "{}");
    let answers = [
        whole("c1", "On it.", &[of_round("c1")], "tool_calls"),
        whole("c2", "On it.", &[of_round("c2")], "tool_calls"),
        whole("c3", "Both.", &[of_round("c3"), weather], "tool_calls"),
    ];
    let (_, form) = remembered(ASK, injection(), &answers);
    assert_eq!(form.hidden, ["call_c1", "call_c3"]);
}

#[test]
fn a_turn_of_both_is_read_with_the_clients_call_only() {
    for round in [whole, streamed] {
        let weather = call("call_w", "get_weather", "{}");
        let both = [own_call(), weather.clone()];
        let (hidden, form) = remembered(ASK, injection(), &[round("c1", "Both.", &both, "tool_calls")]);
        assert_eq!((&*hidden.state, &*form.hidden), ("c1", &["call_s".to_owned()][..]));
        let kept = completion("c1", "\"Both.\"", &both, "tool_calls", 1);
        let shown = read(&form, &kept)["choices"][0].clone();
        let weather: Value = serde_json::from_str(&weather).unwrap();
        assert_eq!(shown["message"]["tool_calls"], value!([weather]));
        assert_eq!(shown["finish_reason"], "tool_calls");
    }
}

/// The second round is refused. A stream has shown the id of the first; of an answer that was not shown nothing is the
/// client's.
#[test]
fn an_answer_that_breaks_off_is_its_first_round_or_none() {
    let refused = error(400, r#"{"error":{"message":"no more"}}"#);
    let first = |round: fn(&str, &str, &[String], &str) -> Answer| {
        let answers = [round("c1", "One moment.", &[own_call()], "tool_calls"), refused.clone()];
        remembered(ASK, injection(), &answers)
    };
    let (hidden, form) = first(streamed);
    assert_eq!((&*hidden.response_id, &*hidden.state, &*form.part_of), ("c1", "c1", ""));
    let kept = completion("c1", "\"One moment.\"", &[own_call()], "tool_calls", 1);
    let shown = read(&form, &kept)["choices"][0].clone();
    assert_eq!(shown["message"]["tool_calls"], value!(null));
    assert_eq!(shown["finish_reason"], "length");

    let (hidden, form) = first(whole);
    assert_eq!((&*hidden.response_id, &*hidden.state, &*form.part_of), ("c1", "", "c1"));

    // Some servers refuse with the status of an answer.
    let answers = [
        whole("c1", "One moment.", &[own_call()], "tool_calls"),
        json(r#"{"error":{"message":"no more"}}"#),
    ];
    let (hidden, form) = remembered(ASK, injection(), &answers);
    assert_eq!((&*hidden.response_id, &*hidden.state, &*form.part_of), ("c1", "", "c1"));
}

/// A round whose text has log probabilities.
fn likely(round: fn(&str, &str, &[String], &str) -> Answer, id: &str, text: &str, calls: &[String]) -> Answer {
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut answer = round(id, text, calls, finish);
    let body = String::from_utf8(answer.body).unwrap();
    let logprobs =
        format!(r#""logprobs":{{"content":[{{"token":"{text}","logprob":-0.5}}],"refusal":null}},"finish_reason""#);
    // In a stream the first chunk has the text.
    answer.body = body.replacen("\"finish_reason\"", &logprobs, 1).into_bytes();
    answer
}

fn with_logprobs(body: &str) -> String {
    body.replacen(
        "\"finish_reason\"",
        r#""logprobs":{"content":[{"token":"of the last round"}],"refusal":null},"finish_reason""#,
        1,
    )
}

#[test]
fn log_probabilities_are_those_of_the_whole_text_or_none() {
    let tokens = |choice: &Value| {
        let content = choice["logprobs"]["content"].as_array().into_iter().flatten();
        content
            .map(|one| one["token"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let kept = with_logprobs(&completion("c2", "\"5\"", &[], "stop", 7));
    for round in [whole, streamed] {
        let answers = [
            likely(round, "c1", "Let me see.", &[own_call()]),
            likely(round, "c2", "5", &[]),
        ];
        let (_, form) = remembered(ASK, injection(), &answers);
        let shown = read(&form, &kept)["choices"][0].clone();
        assert_eq!(tokens(&shown), ["Let me see.", "5"], "{shown}");
        assert_eq!(shown["logprobs"]["refusal"], Value::Null);
        // The last round has all of the text.
        let answers = [likely(round, "c1", "", &[own_call()]), likely(round, "c2", "5", &[])];
        let (_, form) = remembered(ASK, injection(), &answers);
        assert!(!form.members.contains_key("logprobs"), "{form:?}");
    }
    // A stream gathers no more than is kept.
    let long = "x".repeat(200 << 10);
    let answers = [
        likely(streamed, "c1", "Let me see.", &[own_call()]),
        likely(streamed, "c2", &long, &[]),
    ];
    let (_, form) = remembered(ASK, injection(), &answers);
    assert_eq!(read(&form, &kept)["choices"][0]["logprobs"], Value::Null);
}

/// The text of a turn with Knack's calls is dropped where a form is demanded, and what belongs to it with it.
#[test]
fn log_probabilities_of_a_dropped_text_are_not_shown() {
    let tools = r#""response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"get_weather"}}],"store""#;
    let ask = ASK.replace("\"store\"", tools);
    let calls = [own_call(), call("call_w", "get_weather", "{}")];
    let answers = [likely(whole, "c1", "Dropped.", &calls)];
    let played = play_pieces(request(Format::Chat, &ask), injection(), settings(), &answers, 9);
    let choice = &played.value()["choices"][0];
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["logprobs"], Value::Null, "{choice}");
    let form = played.hidden.unwrap().stored.unwrap();
    let shown = read(
        &form,
        &with_logprobs(&completion("c1", "\"Dropped.\"", &calls, "tool_calls", 7)),
    );
    assert_eq!(shown["choices"][0]["logprobs"], Value::Null, "{shown}");
}
