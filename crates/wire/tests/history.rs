//! Hidden turns between requests (docs/design/conversation.md#hidden-turns), through the whole loop: a client that sends back what it
//! saw, a strict upstream, and a store that may lose everything at any time.

#[cfg(test)]
mod conversation;

use std::time::Duration;

use bytes::Bytes;
use conversation::{Client, Gateway, Upstream, before_messages, inner_messages};
use knack_wire::drive::{AnswerHead, CallOutcome, DriveAction, OpenCall};
use knack_wire::json::Edits;
use knack_wire::{CallKind, Drive, DriveInput, DriveSettings, Format, Injection, ModelRoute, Request, Tool};
use proptest::prelude::*;
use serde_json::{Value, json};

const FORMATS: [Format; 4] = [Format::Chat, Format::Responses, Format::Messages, Format::Gemini];

/// Load, mixed turn, text, follow-up run, follow-up: four HTTP requests. `wiped` names the requests before which the
/// store is lost. Returns the upstream bodies of each request.
fn four_requests(format: Format, stream: bool, wiped: &[usize]) -> Vec<Vec<String>> {
    let mut gateway = Gateway::new(format, 1);
    let mut client = Client::new(format, stream);
    let mut bodies = Vec::new();
    let mut request = |number: usize, client: &mut Client, script: &[Value]| {
        if wiped.contains(&number) {
            gateway.store.clear();
        }
        let mut upstream = Upstream::new(format, script);
        let answer = gateway.exchange(&client.body(), &mut upstream);
        bodies.push(upstream.received);
        client.take(&answer);
    };

    client.say("Chart this, please.");
    request(
        1,
        &mut client,
        &[
            json!({"text": "I load the skill.", "think": "t1", "calls": [["load_skill", {"skill": "csv"}]]}),
            json!({"think": "t2", "calls": [["run_code", {"code": "x = \"1\""}], ["get_data", {"b": 1, "a": "é"}]]}),
        ],
    );
    assert_eq!(client.open_calls().len(), 1, "only the client's call is shown");
    client.answer_calls("1,2,3");
    request(2, &mut client, &[json!({"text": "Here is the chart."})]);
    client.say("Slower.");
    request(
        3,
        &mut client,
        &[
            json!({"text": "One moment.", "think": "t3", "calls": [["run_code", {"code": "y"}]]}),
            json!({"text": "Done."}),
        ],
    );
    client.say("Thanks.");
    request(4, &mut client, &[json!({"text": "You are welcome."})]);
    bodies
}

#[test]
fn each_upstream_request_begins_with_the_bytes_of_the_one_before() {
    for format in FORMATS {
        for stream in [false, true] {
            let bodies = four_requests(format, stream, &[]);
            let all: Vec<&String> = bodies.iter().flatten().collect();
            assert_eq!(all.len(), 6, "{format:?}");
            for pair in all.windows(2) {
                let (before, after) = (inner_messages(pair[0]), inner_messages(pair[1]));
                assert!(
                    after.starts_with(before),
                    "{format:?} stream {stream}\n{before}\n{after}"
                );
                assert_eq!(before_messages(pair[0]), before_messages(pair[1]));
            }
            let last = all[5];
            for hidden in [
                "load_skill",
                "SKILL \\\"csv\\\" is loaded",
                "run result 1",
                "run result 2",
            ] {
                assert!(last.contains(hidden), "{format:?}: {hidden} is back\n{last}");
            }
        }
    }
}

#[test]
fn a_store_that_is_wiped_between_any_two_requests_leaves_a_valid_history() {
    // The upstream of the test refuses what a provider would refuse, so that the exchanges finish is the assertion.
    for format in FORMATS {
        for stream in [false, true] {
            for lost in 0u32..8 {
                let wiped: Vec<usize> = (0..3usize)
                    .filter(|bit| lost >> bit & 1 == 1)
                    .map(|bit| bit + 2)
                    .collect();
                let bodies = four_requests(format, stream, &wiped);
                let has = |request: usize, text: &str| bodies[request - 1][0].contains(text);
                assert_eq!(has(2, "run result 1"), !wiped.contains(&2), "{format:?} {wiped:?}");
                assert_eq!(has(4, "run result 2"), !wiped.contains(&4), "{format:?} {wiped:?}");
            }
        }
    }
}

#[test]
fn two_users_of_one_key_with_equal_texts_never_cross() {
    for format in FORMATS {
        let mut gateway = Gateway::new(format, 1);
        let mut users = ["AAAA", "BBBB"].map(|image| {
            let mut client = Client::new(format, false);
            client.say_with_image("Describe it.", image);
            client
        });
        for client in &mut users {
            let mut upstream = Upstream::new(
                format,
                &[
                    json!({"calls": [["run_code", {"code": "z"}]]}),
                    json!({"text": "Done."}),
                ],
            );
            let answer = gateway.exchange(&client.body(), &mut upstream);
            client.take(&answer);
        }
        for (index, client) in users.iter_mut().enumerate() {
            client.say("Again.");
            let mut upstream = Upstream::new(format, &[json!({"text": "Done."})]);
            gateway.exchange(&client.body(), &mut upstream);
            let own = format!("run result {}", index + 1);
            let other = format!("run result {}", 2 - index);
            assert!(upstream.received[0].contains(&own), "{format:?}: {own} is back");
            assert!(
                !upstream.received[0].contains(&other),
                "{format:?}: {other} stays with its user"
            );
        }
    }
}

/// A conversation with one hidden run behind it, ready for the next request.
fn one_hidden_run(gateway: &mut Gateway, format: Format) -> Client {
    let mut client = Client::new(format, false);
    client.say("Run it.");
    let mut upstream = Upstream::new(
        format,
        &[
            json!({"calls": [["run_code", {"code": "z"}]]}),
            json!({"text": "Done."}),
        ],
    );
    let answer = gateway.exchange(&client.body(), &mut upstream);
    client.take(&answer);
    client.say("Again.");
    client
}

fn next_body(gateway: &mut Gateway, body: &str) -> String {
    let mut upstream = Upstream::new(gateway.format, &[json!({"text": "Done."})]);
    gateway.exchange(body, &mut upstream);
    upstream.received.remove(0)
}

#[test]
fn moved_cache_markers_and_other_forms_of_the_same_message_still_hit() {
    for format in FORMATS {
        let mut gateway = Gateway::new(format, 1);
        let client = one_hidden_run(&mut gateway, format);
        let changed = client.reshaped();
        assert_ne!(changed, client.body());
        for body in [client.body(), changed] {
            assert!(next_body(&mut gateway, &body).contains("run result 1"), "{format:?}");
        }
    }
}

#[test]
fn another_secret_another_credential_or_another_text_misses_and_leaves_the_messages_alone() {
    for format in FORMATS {
        let mut gateway = Gateway::new(format, 1);
        let client = one_hidden_run(&mut gateway, format);
        let body = client.body();
        let edited = body.replacen("Run it.", "Run it", 1);
        assert!(!next_body(&mut gateway, &edited).contains("run result 1"));
        for secret in [2, 1] {
            let mut other = gateway.clone();
            other.secret = secret;
            if secret == 1 {
                "other".clone_into(&mut other.credential);
            }
            let sent = next_body(&mut other, &body);
            assert!(
                inner_messages(&sent).ends_with(inner_messages(&body)),
                "{format:?}: {sent}"
            );
        }
        assert!(next_body(&mut gateway, &body).contains("run result 1"));
    }
}

#[test]
fn a_skill_that_changed_says_so_in_place_of_its_text() {
    for format in FORMATS {
        let mut gateway = Gateway::new(format, 1);
        let mut client = Client::new(format, false);
        client.say("Chart.");
        let script = [
            json!({"calls": [["load_skill", {"skill": "csv"}]]}),
            json!({"text": "Ready."}),
        ];
        let answer = gateway.exchange(&client.body(), &mut Upstream::new(format, &script));
        client.take(&answer);
        client.say("Go.");
        assert!(
            gateway
                .store
                .values()
                .all(|hidden| !serde_json::to_string(&**hidden).unwrap().contains("is loaded")),
            "no skill text at rest"
        );
        gateway.skill_changed = true;
        let sent = next_body(&mut gateway, &client.body());
        assert!(
            sent.contains("This skill changed; load it again.") && !sent.contains("is loaded"),
            "{sent}"
        );
    }
}

/// An answer that stopped at the limit of one round, with `run result 1` behind it and a call open.
fn paused(gateway: &mut Gateway, client: &mut Client) -> Vec<String> {
    gateway.max_rounds = 1;
    client.say("Run it twice.");
    let script = [
        json!({"text": "First.", "think": "t1", "calls": [["run_code", {"code": "a"}]]}),
        json!({"text": "Second.", "think": "t2", "calls": [["run_code", {"code": "b"}]]}),
    ];
    let mut upstream = Upstream::new(Format::Messages, &script);
    let answer = gateway.exchange(&client.body(), &mut upstream);
    assert!(answer.contains("pause_turn"), "{answer}");
    client.take(&answer);
    upstream.received
}

#[test]
fn a_resumed_answer_runs_the_calls_that_the_limit_left_open_before_anything_is_sent() {
    for stream in [false, true] {
        let mut gateway = Gateway::new(Format::Messages, 1);
        let mut client = Client::new(Format::Messages, stream);
        let mut all = paused(&mut gateway, &mut client);
        assert_eq!(gateway.runs, 1, "the call over the limit has not run");
        let script = [
            json!({"text": "Third.", "calls": [["run_code", {"code": "c"}]]}),
            json!({"text": "Done."}),
        ];
        let mut upstream = Upstream::new(Format::Messages, &script);
        let answer = gateway.exchange(&client.body(), &mut upstream);
        client.take(&answer);
        assert_eq!(gateway.runs, 3);
        assert!(
            upstream.received[0].contains("run result 2"),
            "{}",
            upstream.received[0]
        );
        client.say("Thanks.");
        let after = next_body(&mut gateway, &client.body());
        assert_eq!(gateway.runs, 3, "nothing runs twice");
        all.extend(upstream.received);
        all.push(after);
        for pair in all.windows(2) {
            let (before, after) = (inner_messages(&pair[0]), inner_messages(&pair[1]));
            assert!(after.starts_with(before), "stream {stream}\n{before}\n{after}");
        }
    }
}

#[test]
fn a_paused_answer_that_is_not_resumed_or_whose_hidden_is_lost_stays_valid() {
    for stream in [false, true] {
        // Something else is said: the open call stays refused.
        let mut gateway = Gateway::new(Format::Messages, 1);
        let mut client = Client::new(Format::Messages, stream);
        paused(&mut gateway, &mut client);
        let mut resumed = client.clone();
        client.say("Never mind.");
        let sent = next_body(&mut gateway, &client.body());
        assert!(sent.contains("limit reached") && gateway.runs == 1, "{sent}");

        // The saved turn of the paused answer is lost, before the resumption or after it.
        let mut wiped = gateway.clone();
        wiped.store.clear();
        let sent = next_body(&mut wiped, &resumed.body());
        assert!(sent.contains("Continue.") && wiped.runs == 1, "{sent}");
        let kept = gateway.store.clone();
        let mut upstream = Upstream::new(Format::Messages, &[json!({"text": "Done."})]);
        resumed.take(&gateway.exchange(&resumed.body(), &mut upstream));
        assert_eq!(gateway.runs, 2);
        gateway.store.retain(|key, _| !kept.contains_key(key));
        assert!(!gateway.store.is_empty());
        resumed.say("Thanks.");
        let sent = next_body(&mut gateway, &resumed.body());
        assert!(!sent.contains("run result"), "results without their calls: {sent}");
    }
}

/// The formats that have a form of their own for programs that ran.
const NATIVE: [Format; 3] = [Format::Messages, Format::Responses, Format::Gemini];

#[test]
fn a_shown_run_comes_back_as_the_model_read_it_and_without_its_hidden_as_the_client_saw_it() {
    for format in NATIVE {
        for stream in [false, true] {
            let mut gateway = Gateway::new(format, 1);
            gateway.native = true;
            let mut client = Client::new(format, stream);
            client.shows_native = true;
            client.say("Run it.");
            let script = [
                json!({"text": "I run it.", "calls": [["run_code", {"code": "x"}]]}),
                json!({"text": "Done."}),
            ];
            let mut upstream = Upstream::new(format, &script);
            client.take(&gateway.exchange(&client.body(), &mut upstream));
            client.say("And then?");
            let live = inner_messages(&upstream.received[1]).to_owned();
            let sent = next_body(&mut gateway, &client.body());
            assert!(inner_messages(&sent).starts_with(&live), "{format:?}\n{live}\n{sent}");
            gateway.store.clear();
            let sent = next_body(&mut gateway, &client.body());
            assert!(sent.contains("seen: run result 1"), "{format:?}: {sent}");
        }
    }
}

#[test]
fn runs_of_an_upstream_that_counts_its_calls_stay_apart_when_their_saved_are_lost() {
    for format in NATIVE {
        for stream in [false, true] {
            let mut gateway = Gateway::new(format, 1);
            gateway.native = true;
            let mut client = Client::new(format, stream);
            client.shows_native = true;
            for text in ["One.", "Two.", "Three."] {
                client.say(text);
                gateway.store.clear();
                let script = [
                    json!({"calls": [["run_code", {"code": text}], ["run_code", {"code": "x"}]]}),
                    json!({"text": "Done."}),
                ];
                let mut upstream = Upstream::new(format, &script);
                upstream.counts = true;
                client.take(&gateway.exchange(&client.body(), &mut upstream));
            }
            client.say("And then?");
            gateway.store.clear();
            // That every result has a call of its own is the upstream's to check; here: each is there, in its place.
            let sent = next_body(&mut gateway, &client.body());
            let places: Vec<usize> = (1..=6)
                .map(|run| {
                    let result = format!("run result {run}");
                    let mut found = sent.match_indices(&result);
                    let (place, _) = found.next().unwrap_or_else(|| panic!("{format:?} {run}: {sent}"));
                    assert!(found.next().is_none(), "{format:?} {run}: {sent}");
                    place
                })
                .collect();
            assert!(places.is_sorted(), "{format:?}: {sent}");
        }
    }
}

#[test]
fn in_the_native_form_too_open_calls_run_first() {
    let mut gateway = Gateway::new(Format::Messages, 1);
    gateway.native = true;
    let mut client = Client::new(Format::Messages, false);
    client.shows_native = true;
    paused(&mut gateway, &mut client);
    let mut upstream = Upstream::new(Format::Messages, &[json!({"text": "Done."})]);
    client.take(&gateway.exchange(&client.body(), &mut upstream));
    assert_eq!(gateway.runs, 2);
    assert!(
        upstream.received[0].contains("run result 2"),
        "{}",
        upstream.received[0]
    );
    client.say("Thanks.");
    let after = next_body(&mut gateway, &client.body());
    assert!(
        inner_messages(&after).starts_with(inner_messages(&upstream.received[0])),
        "{after}"
    );
}

/// Two answers with runs in the native form: what the client got, what the upstream did, and what is remembered.
fn shown_runs(
    format: Format,
    stream: bool,
    counts: bool,
    pieces: &[usize],
) -> (Vec<String>, Vec<String>, Vec<Vec<u8>>) {
    let mut gateway = Gateway::new(format, 1);
    gateway.native = true;
    gateway.pieces = pieces.to_vec();
    let mut client = Client::new(format, stream);
    client.shows_native = true;
    let (mut answers, mut sent) = (Vec::new(), Vec::new());
    for text in ["One.", "Two."] {
        client.say(text);
        let script = [
            json!({"text": "é, I run it.", "think": "t1", "calls": [["run_code", {"code": text}], ["run_code", {"command": "x \"y\""}]]}),
            json!({"text": "Done."}),
        ];
        // Who counts uses an id again that its own saved turn has.
        if counts {
            gateway.store.clear();
        }
        let mut upstream = Upstream::new(format, &script);
        upstream.counts = counts;
        let answer = gateway.exchange(&client.body(), &mut upstream);
        client.take(&answer);
        answers.push(answer);
        sent.extend(upstream.received);
    }
    let stored = gateway.store.into_values();
    let mut saved: Vec<Vec<u8>> = stored.map(|hidden| format!("{hidden:?}").into_bytes()).collect();
    saved.sort();
    (answers, sent, saved)
}

proptest! {
    #[test]
    fn any_split_of_the_upstreams_bytes_shows_the_same_runs(
        format in proptest::sample::select(&NATIVE[..]),
        stream in any::<bool>(),
        counts in any::<bool>(),
        pieces in proptest::collection::vec(1usize..200, 1..6),
    ) {
        prop_assert_eq!(shown_runs(format, stream, counts, &pieces), shown_runs(format, stream, counts, &[]));
    }
}

/// Calls have run by then, so an SDK that asks again would run them again.
#[test]
fn an_error_behind_resumed_calls_is_not_to_be_retried() {
    let route = ModelRoute::new(Format::Messages, CallKind::Generate);
    let body = br#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;
    let run_code = Tool {
        name: "run_code".to_owned(),
        description: String::new(),
        schema: "{}".to_owned(),
    };
    let injection = Injection::new(String::new(), vec![run_code]);
    for open in [0, 1] {
        let request = Request::parse(route.clone(), Bytes::from_static(body)).unwrap();
        let mut drive = Drive::new(request, injection.clone(), DriveSettings::default()).unwrap();
        let (mut out, now) = (Vec::new(), Duration::ZERO);
        let call = OpenCall {
            id: "toolu_1".to_owned(),
            name: "run_code".to_owned(),
            arguments: "{}".to_owned(),
        };
        drive.start(Edits::new(), vec![call; open], now, &mut out);
        drive.feed(DriveInput::Result(CallOutcome::default()), now, &mut out);
        let head = AnswerHead {
            status: 529,
            stream: false,
            retry_after: None,
        };
        drive.feed(DriveInput::Head(head), now, &mut out);
        let heads = out.iter().filter_map(|action| match action {
            DriveAction::ClientHead(head) => Some((head.status, head.no_retry)),
            _ => None,
        });
        assert_eq!(heads.collect::<Vec<_>>(), [(529, open > 0)]);
    }
}
