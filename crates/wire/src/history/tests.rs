//! Scan, expansion and repair on values; the loop around them is tested in `tests/history.rs`.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::drive::{self, OpenCall};
use crate::request::Request;
use crate::route::{CallKind, Format, ModelRoute};
use crate::stored::{MessageChange, SentMessages, SentRun, StoredForm};

fn request(format: Format, body: &str) -> Request {
    let route = ModelRoute::new(format, CallKind::Generate);
    Request::parse(route, Bytes::from(body.to_owned())).unwrap()
}

fn body(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}],"x":1}}"#)
}

fn caller() -> Caller {
    Caller::new(&HistorySecret::new([7; 32]), b"Bearer k")
}

fn end(format: Format, messages: &str) -> Link {
    scan(&request(format, &body(messages))).chain().end
}

/// Texts that say what they were asked for.
pub(super) struct Plain;

impl ResultTexts for Plain {
    fn load(&mut self, reference: &str) -> String {
        format!("<{reference}>")
    }

    fn run(&mut self, run: &ShownRun) -> RunText {
        let end = match run.end {
            ShownEnd::Exit(_) if !run.is_code => "tool".to_owned(),
            ShownEnd::Exit(code) => format!("exit {code}"),
            ShownEnd::Failed => "failed".to_owned(),
            ShownEnd::Timeout => "timeout".to_owned(),
        };
        let (ids, unnamed) = (run.file_ids.join(","), run.unnamed_files);
        RunText {
            text: format!(
                "{end} | {} | {} | {ids} | {unnamed}",
                run.stdout.trim(),
                run.stderr.trim()
            ),
            files: Vec::new(),
        }
    }
}

/// The messages after expansion with saved turns at the given turns.
fn expanded(format: Format, messages: &str, hits: &[TurnMatch], mode: InjectionMode<'_>) -> String {
    let request = request(format, &body(messages));
    let edits = expand(&request, &scan(&request), hits, (mode, false), &mut Plain).edits;
    let out = String::from_utf8(edits.apply(request.raw())).unwrap();
    serde_json::from_str::<serde_json::Value>(&out).unwrap();
    let inner = out
        .strip_prefix(r#"{"model":"m","messages":["#)
        .and_then(|rest| rest.strip_suffix(r#"],"x":1}"#));
    inner
        .unwrap_or_else(|| panic!("outside of messages changed: {out}"))
        .to_owned()
}

const INJECTING: InjectionMode<'_> = InjectionMode::Injecting {
    run_tool: Some("run_code"),
};

fn raw(text: &str) -> SavedMessage {
    vec![Segment::Raw(text.to_owned())]
}

#[test]
fn canon_ignores_form_and_keeps_meaning() {
    let same = [
        // String and array, cache markers.
        (
            Format::Messages,
            r#"{"role":"user","content":"Hi "}"#,
            r#"{"content":[{"type":"text","text":"\u0048i","cache_control":{"type":"ephemeral"}}],"role":"user"}"#,
        ),
        // Key order and nulls of an image block, a moved cache marker.
        (
            Format::Messages,
            r#"{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}"#,
            r#"{"role":"user","content":[{"source":{"data":"AA==","type":"base64"},"cache_control":{"type":"ephemeral"},"title":null,"type":"image"}]}"#,
        ),
        // Thinking is not counted, arguments by value.
        (
            Format::Messages,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"s"},{"type":"tool_use","id":"t","name":"n","input":{"a":1,"b":"x"}}]}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"b":"x", "a":1},"caller":{"type":"direct"}}]}"#,
        ),
        // A run of Knack by its id, whatever a client keeps of it.
        (
            Format::Messages,
            r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_knack_1","content":{"stdout":"1"}}]}"#,
            r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{},"caller":{"type":"direct"}}]}"#,
        ),
        (
            Format::Chat,
            r#"{"role":"assistant","content":"A","refusal":null,"annotations":[]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"A"}]}"#,
        ),
        (
            Format::Chat,
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{\"a\": 1}"}}]}"#,
            r#"{"role":"assistant","tool_calls":[{"id":"c","function":{"arguments":"{\"a\":1}","name":"n"},"type":"function","index":0}],"reasoning_content":"why"}"#,
        ),
        (
            Format::Chat,
            r#"{"role":"tool","tool_call_id":"c","content":"r"}"#,
            r#"{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"}]}"#,
        ),
    ];
    for (format, one, other) in same {
        assert_eq!(end(format, one), end(format, other), "{one}\n{other}");
    }
    let different = [
        (
            Format::Chat,
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":"a"}"#,
        ),
        (
            Format::Chat,
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"user","content":"b"}"#,
        ),
        (
            Format::Chat,
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:1"}}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:2"}}]}"#,
        ),
        (
            Format::Messages,
            r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"n","input":{}}]}"#,
            r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_knack_2","name":"n","input":{}}]}"#,
        ),
        (
            Format::Messages,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x","is_error":true}]}"#,
        ),
        (
            Format::Messages,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"a":1}}]}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{"a":2}}]}"#,
        ),
    ];
    for (format, one, other) in different {
        assert_ne!(end(format, one), end(format, other), "{one}\n{other}");
    }
}

#[test]
fn system_messages_are_not_in_the_chain() {
    let user = r#"{"role":"user","content":"a"}"#;
    for role in ["system", "developer"] {
        let with = format!(r#"{{"role":"{role}","content":"now it is 12:00"}},{user}"#);
        assert_eq!(end(Format::Chat, &with), end(Format::Chat, user));
    }
}

#[test]
fn an_answer_is_found_again_by_chain_and_by_call_ids() {
    let user = r#"{"role":"user","content":"a"}"#;
    let assistant = r#"{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"tool_use","id":"toolu_01abcdefgh","name":"n","input":{}}]}"#;
    let first = scan(&request(Format::Messages, &body(user)));
    let answer = drive::HiddenTurns {
        visible: vec![Bytes::from_static(assistant.as_bytes())],
        client_calls: vec!["toolu_01abcdefgh".to_owned()],
        ..drive::HiddenTurns::default()
    };
    let stored = keys(&caller(), &first.chain(), &answer).turn;
    assert_eq!(stored.len(), 2);
    let next = scan(&request(Format::Messages, &body(&format!("{user},{assistant}"))));
    assert_eq!(
        next.lookups(&caller()),
        [Lookup {
            turn: 1,
            keys: stored.clone()
        }]
    );

    let summarised = scan(&request(
        Format::Messages,
        &body(&format!(r#"{{"role":"user","content":"sum"}},{assistant}"#)),
    ));
    assert_eq!(summarised.lookups(&caller())[0].keys[1], stored[1]);
    assert_ne!(summarised.lookups(&caller())[0].keys[0], stored[0]);

    let other_key = Caller::new(&HistorySecret::new([8; 32]), b"Bearer k");
    let other_user = Caller::new(&HistorySecret::new([7; 32]), b"Bearer l");
    for other in [other_key, other_user] {
        assert!(next.lookups(&other)[0].keys.iter().all(|key| !stored.contains(key)));
    }
}

#[test]
fn a_hit_replaces_the_visible_message_and_nothing_else() {
    let hit = TurnMatch {
        turn: 1,
        saved: SavedTurn {
            messages: vec![
                raw(r#"{"role":"assistant","tool_calls":[]}"#),
                vec![
                    Segment::Raw(r#"{"role":"tool","content":""#.to_owned()),
                    Segment::Load("l\"1\n".to_owned()),
                    Segment::Raw(r#""}"#.to_owned()),
                ],
            ],
            ..SavedTurn::default()
        }
        .into(),
    };
    let got = expanded(
        Format::Chat,
        r#"{"role":"user","content":"a"} , {"role":"assistant","content":"b"} , {"role":"tool","content":"c"}"#,
        &[hit],
        INJECTING,
    );
    assert_eq!(
        got,
        r#"{"role":"user","content":"a"},{"role":"assistant","tool_calls":[]},{"role":"tool","content":"<l\"1\n>"} , {"role":"tool","content":"c"}"#
    );
}

#[test]
fn open_results_merge_before_the_clients_own() {
    let saved = SavedTurn {
        messages: vec![raw(r#"{"m":1}"#)],
        open_results: vec![raw(r#"{"r":1}"#)],
        ..SavedTurn::default()
    };
    let cases = [
        (
            r#"{"role":"user","content":[{"type":"tool_result"}]}"#,
            r#"{"role":"user","content":[{"r":1},{"type":"tool_result"}]}"#,
        ),
        (
            r#"{"role":"user","content":[]}"#,
            r#"{"role":"user","content":[{"r":1}]}"#,
        ),
        (
            r#"{"role":"user","content":"go"}"#,
            r#"{"role":"user","content":[{"r":1},{"type":"text","text":"go"}]}"#,
        ),
        (
            r#"{"role":"user","content":""}"#,
            r#"{"role":"user","content":[{"r":1}]}"#,
        ),
        (
            r#"{"role":"assistant","content":"x"}"#,
            r#"{"role":"user","content":[{"r":1}]},{"role":"assistant","content":"x"}"#,
        ),
    ];
    for (next, merged) in cases {
        let got = expanded(
            Format::Messages,
            &format!(r#"{{"role":"user","content":"a"}},{{"role":"assistant","content":"b"}},{next}"#),
            &[TurnMatch {
                turn: 1,
                saved: saved.clone().into(),
            }],
            INJECTING,
        );
        assert_eq!(got, format!(r#"{{"role":"user","content":"a"}},{{"m":1}},{merged}"#));
    }
}

const T1: &str = r#"{"type":"thinking","thinking":"1","signature":"s1"}"#;
const T2: &str = r#"{"type":"thinking","thinking":"2","signature":"s2"}"#;
const SEALED: &str = r#"{"type":"redacted_thinking","data":"d"}"#;
const TEXT: &str = r#"{"type":"text","text":"x"}"#;
const USE: &str = r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#;

#[test]
fn thinking_of_earlier_rounds_leaves_the_open_tool_turn_only() {
    let turn = |blocks: &str| {
        format!(
            r#"{{"role":"user","content":"q"}},{{"role":"assistant","content":[{blocks}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t"}}]}}"#
        )
    };
    let cases = [
        (vec![T1, TEXT, T2, USE], vec![TEXT, T2, USE]),
        (vec![T1, TEXT, USE], vec![T1, TEXT, USE]),
        (vec![T1, USE, T2, USE], vec![T1, USE, T2, USE]),
        (vec![T1, T2, USE], vec![T2, USE]),
        (vec![T1, T2, TEXT, USE], vec![T2, TEXT, USE]),
        (vec![T1, T1, T2, TEXT, USE, USE], vec![T2, TEXT, USE, USE]),
        (vec![T1, SEALED, USE], vec![T1, SEALED, USE]),
        (vec![SEALED, T1, USE], vec![SEALED, T1, USE]),
        (vec![T1, SEALED, T2, USE], vec![T1, SEALED, T2, USE]),
        (vec![T1, TEXT, SEALED, T2, USE], vec![TEXT, SEALED, T2, USE]),
    ];
    for (before, after) in cases {
        let got = expanded(Format::Messages, &turn(&before.join(",")), &[], INJECTING);
        assert_eq!(got, turn(&after.join(",")));
    }
    let closed = format!(
        r#"{},{{"role":"assistant","content":"a"}},{{"role":"user","content":"q"}}"#,
        turn(&[T1, TEXT, T2, USE].join(","))
    );
    assert_eq!(expanded(Format::Messages, &closed, &[], INJECTING), closed);
    let off = turn(&[T1, TEXT, T2, USE].join(","));
    assert_eq!(expanded(Format::Messages, &off, &[], InjectionMode::Off), off);
}

#[test]
fn a_paused_answer_without_saved_gets_a_user_turn_and_a_prefill_does_not() {
    let user = r#"{"role":"user","content":"q"}"#;
    let two_texts = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
    let cases = [
        (
            two_texts,
            format!(r#"{two_texts},{{"role":"user","content":"Continue."}}"#),
        ),
        (
            r#"{"role":"assistant","content":[]}"#,
            r#"{"role":"user","content":"Continue."}"#.to_owned(),
        ),
        (
            r#"{"role":"assistant","content":"{"}"#,
            r#"{"role":"assistant","content":"{"}"#.to_owned(),
        ),
        (
            r#"{"role":"assistant","content":[{"type":"text","text":"{"}]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"{"}]}"#.to_owned(),
        ),
    ];
    for (last, want) in cases {
        let got = expanded(Format::Messages, &format!("{user},{last}"), &[], INJECTING);
        assert_eq!(got, format!("{user},{want}"));
    }
}

#[test]
fn native_blocks_of_ours_become_calls_or_go_and_foreign_ones_stay() {
    let user = r#"{"role":"user","content":"q"}"#;
    let shown = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{"command":"x"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_knack_1","content":{"type":"bash_code_execution_result","stdout":"5\n","stderr":"w","return_code":0,"content":[{"type":"bash_code_execution_output","file_id":"file_1"}]}},{"type":"text","text":"b"}]}"#;
    let got = expanded(Format::Messages, &format!("{user},{shown},{user}"), &[], INJECTING);
    assert_eq!(
        got,
        format!(
            r#"{user},{{"role":"assistant","content":[{{"type":"text","text":"a"}},{{"type":"tool_use","id":"toolu_1","name":"run_code","input":{{"command":"x"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":"exit 0 | 5 | w | file_1 | 0"}}]}},{{"role":"assistant","content":[{{"type":"text","text":"b"}}]}},{user}"#
        )
    );
    let got = expanded(
        Format::Messages,
        &format!("{user},{shown},{user}"),
        &[],
        InjectionMode::Off,
    );
    assert_eq!(
        got,
        format!(
            r#"{user},{{"role":"assistant","content":[{{"type":"text","text":"a"}},{{"type":"text","text":"b"}}]}},{user}"#
        )
    );
    let foreign = shown.replace("srvtoolu_knack_", "srvtoolu_01");
    let all = format!("{user},{foreign},{user}");
    for mode in [INJECTING, InjectionMode::Off] {
        assert_eq!(expanded(Format::Messages, &all, &[], mode), all);
    }
}

#[test]
fn a_paused_answer_in_the_native_form_gets_a_user_turn_unless_the_upstream_paused() {
    let user = r#"{"role":"user","content":"q"}"#;
    let paused = |id: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"server_tool_use","id":"{id}","name":"bash_code_execution","input":{{}}}},{{"type":"bash_code_execution_tool_result","tool_use_id":"{id}","content":{{"stdout":"o","stderr":"","return_code":0}}}},{{"type":"text","text":"x"}}]}}"#
        )
    };
    let ours = expanded(
        Format::Messages,
        &format!("{user},{}", paused("srvtoolu_knack_1")),
        &[],
        INJECTING,
    );
    assert!(
        ours.ends_with(
            r#"{"role":"assistant","content":[{"type":"text","text":"x"}]},{"role":"user","content":"Continue."}"#
        ),
        "{ours}"
    );
    let theirs = format!("{user},{}", paused("srvtoolu_01"));
    assert_eq!(expanded(Format::Messages, &theirs, &[], INJECTING), theirs);
}

#[test]
fn native_input_goes_back_to_the_call_that_the_model_made() {
    let user = r#"{"role":"user","content":"q"}"#;
    let cases = [
        (
            r#"{"command":"print(1)","code":"print(1)\n","language":"python"}"#,
            r#""name":"run_code","input":{"code":"print(1)\n","language":"python"}"#,
            "exit 0 | out |  |  | 0",
        ),
        (
            r#"{"command":"load_skill {\"skill\":\"x\"}","skill":"x"}"#,
            r#""name":"load_skill","input":{"skill":"x"}"#,
            "tool | out |  |  | 0",
        ),
        (
            r#"{"command":"echo {} x"}"#,
            r#""name":"run_code","input":{"command":"echo {} x"}"#,
            "exit 0 | out |  |  | 0",
        ),
        ("{}", r#""name":"run_code","input":{}"#, "exit 0 | out |  |  | 0"),
    ];
    for (native, want, text) in cases {
        let shown = format!(
            r#"{{"role":"assistant","content":[{{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{native}}},{{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_knack_1","content":{{"stdout":"out","stderr":"","return_code":0}}}}]}}"#
        );
        let got = expanded(Format::Messages, &format!("{user},{shown},{user}"), &[], INJECTING);
        assert!(got.contains(want), "{got}");
        assert!(
            got.contains(&format!(r#""content":{}"#, serde_json::Value::from(text))),
            "{got}"
        );
    }
}

#[test]
fn a_run_that_ended_badly_is_reported_as_failed_whatever_its_form_has_of_it() {
    let user = r#"{"role":"user","content":"q"}"#;
    for (content, message) in [
        (
            r#"{"stdout":"a","stderr":"b","return_code":137}"#,
            "exit 137 | a | b |  | 0",
        ),
        (
            r#"{"type":"bash_code_execution_tool_result_error","error_code":"execution_time_exceeded"}"#,
            "timeout |  |  |  | 0",
        ),
        (r#"{"error_code":"unavailable"}"#, "failed |  |  |  | 0"),
        ("null", "failed |  |  |  | 0"),
    ] {
        let shown = format!(
            r#"{{"role":"assistant","content":[{{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{{"code":"x"}}}},{{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_knack_1","content":{content}}}]}}"#
        );
        let got = expanded(Format::Messages, &format!("{user},{shown},{user}"), &[], INJECTING);
        assert!(
            got.contains(&format!(r#""content":"{message}","is_error":true"#)),
            "{got}"
        );
    }
}

#[test]
fn a_message_of_nothing_but_ours_goes_whole() {
    let user = r#"{"role":"user","content":"q"}"#;
    let ours = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_knack_1","name":"bash_code_execution","input":{}}]}"#;
    assert_eq!(
        expanded(
            Format::Messages,
            &format!("{user},{ours},{user}"),
            &[],
            InjectionMode::Off
        ),
        format!("{user},{user}")
    );
}

#[test]
fn a_saved_survives_its_serial_form_and_another_shape_is_a_miss() {
    let saved = SavedTurn {
        messages: vec![vec![
            Segment::Raw("a".to_owned()),
            Segment::Load("l".to_owned()),
            Segment::Raw(String::new()),
        ]],
        open_results: vec![raw("r")],
        client_calls: vec!["c".to_owned()],
        open_calls: vec![OpenCall {
            id: "i".to_owned(),
            name: "n".to_owned(),
            arguments: "{}".to_owned(),
        }],
        resumes: true,
        files: vec![FileNote {
            name: "f".to_owned(),
            sha256: "00".to_owned(),
            response_id: "x".to_owned(),
        }],
        state: "resp_2".to_owned(),
        stored: Some(StoredForm {
            members: [("tools".to_owned(), "[]".to_owned())].into(),
            hidden: vec!["call_1".to_owned()],
            crowded: false,
            cut: false,
            rounds: vec!["resp_1".to_owned()],
            messages: Some(SentMessages {
                count: 2,
                changes: vec![MessageChange {
                    at: 0,
                    sent: 1,
                    own: vec!["{}".to_owned()],
                }],
            }),
            runs: vec![SentRun {
                call_id: "call_2".to_owned(),
                is_result: true,
                item: "{}".to_owned(),
            }],
            streams: true,
            part_of: "resp_0".to_owned(),
        }),
    };
    let bytes = serde_json::to_vec(&saved).unwrap();
    let read = |bytes: &[u8]| serde_json::from_slice::<SavedTurn>(bytes).ok();
    assert_eq!(read(&bytes), Some(saved));
    assert!((0..bytes.len()).all(|end| read(&bytes[..end]).is_none()));
    // While a gateway is updated, replicas of the release before read and write saved turns of bytes that begin with this word: what
    // they write, here an empty saved turn, is none for Knack, and Knack's is none for them.
    let before = [&b"KH\x03\x00"[..], &[0; 25]].concat();
    assert_eq!(read(&before), None);
    assert!(!bytes.starts_with(b"KH"));
    let text = String::from_utf8(bytes).unwrap();
    // Saved turns of the version before have no form of what is stored.
    let (rest, _) = text.split_once(r#","stored""#).unwrap();
    let older = read(format!("{rest}}}").as_bytes()).unwrap();
    assert_eq!((older.state.as_str(), older.stored.is_none()), ("resp_2", true));
    assert_eq!(read(text.replacen('{', r#"{"later":1,"#, 1).as_bytes()), None);
    assert_eq!(read(text.replacen("resumes", "resumed", 1).as_bytes()), None);
}

#[test]
fn a_loop_that_is_larger_than_a_saved_is_not_remembered() {
    let sealed = |bytes: usize| {
        let answer = drive::HiddenTurns {
            entries: vec![drive::HiddenEntry::Turn(vec![Bytes::from(vec![b'x'; bytes])])],
            ..drive::HiddenTurns::default()
        };
        seal(Format::Chat, &answer, Vec::new(), &mut |_| None).turn
    };
    let around = sealed(0).unwrap().size();
    let largest = sealed(MAX_SAVED_BYTES - around).unwrap();
    assert_eq!(largest.size(), MAX_SAVED_BYTES);
    assert_eq!(sealed(MAX_SAVED_BYTES - around + 1), None);
}

#[test]
fn what_is_read_by_id_is_kept_of_an_answer_whose_open_results_do_not_fit() {
    let result = drive::CallResult {
        id: "call_1".to_owned(),
        text: "x".repeat(MAX_SAVED_BYTES),
        ..drive::CallResult::default()
    };
    let answer = drive::HiddenTurns {
        entries: vec![
            drive::HiddenEntry::Turn(vec![Bytes::from_static(b"{}")]),
            drive::HiddenEntry::Results(vec![result]),
        ],
        client_calls: vec!["call_2".to_owned()],
        response_id: "resp_1".to_owned(),
        state: "resp_2".to_owned(),
        stored: Some(StoredForm {
            rounds: vec!["resp_1".to_owned()],
            ..StoredForm::default()
        }),
        ..drive::HiddenTurns::default()
    };
    let saved_turns = seal(Format::Responses, &answer, Vec::new(), &mut |_| None);
    let saved = saved_turns.id.unwrap();
    assert_eq!((saved.state.as_str(), saved.open_results.len()), ("resp_1", 0));
    assert_eq!(saved.stored.unwrap().rounds, ["resp_2"]);
    assert_eq!(saved_turns.turn, None);
}

proptest! {
    #[test]
    fn no_conversation_makes_history_panic_or_lose_its_form(
        messages in "([\\[{}\\],: ]|\"(role|content|type|text|assistant|user|tool_use|tool_result|thinking|id|srvtoolu_knack_1|server_tool_use|tool_use_id|bash_code_execution_tool_result|file_id)\"|null|1){0,40}",
        off in any::<bool>(),
    ) {
        for (format, key) in [(Format::Chat, "messages"), (Format::Messages, "messages"), (Format::Responses, "input"), (Format::Gemini, "contents")] {
            let text = body(&messages).replacen("messages", key, 1);
            let route = ModelRoute::new(format, CallKind::Generate);
            let Ok(request) = Request::parse(route, Bytes::from(text)) else { continue };
            let scan = scan(&request);
            let hits: Vec<TurnMatch> = (0..scan.turns.len())
                .filter(|turn| turn % 3 == 1)
                .map(|turn| TurnMatch { turn, saved: SavedTurn { messages: vec![raw("1")], open_results: vec![raw("2")], ..SavedTurn::default() }.into() })
                .collect();
            let mode = if off { InjectionMode::Off } else { INJECTING };
            let edits = expand(&request, &scan, &hits, (mode, false), &mut Plain).edits;
            let out = edits.apply(request.raw());
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_ok(), "{}", String::from_utf8_lossy(&out));
        }
    }
}
