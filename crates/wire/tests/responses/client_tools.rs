//! Calls beside Knack's that somebody else answers: the client's own tools, as Codex has them, and the provider's hosted ones.

use serde_json::{Value, json as value};

use super::previous::{go_on, stored};
use super::support::settings;
use super::{ASK, answer, call, message, play_with, response, stream};

/// An event of an item may have its id and no index.
#[test]
fn an_event_of_a_hidden_call_is_hidden_by_the_id_of_its_item() {
    let ours = call("skill_run", "call_s123456789abc");
    let shown = message("msg_1", "I look.");
    let mut round = stream("resp_1", &[shown.clone(), ours.clone()]);
    let odd = |item: &Value| {
        let event = value!({"type": "response.odd", "item_id": item["id"], "about": item["id"]});
        format!("event: response.odd\ndata: {event}\n\n")
    };
    let text = String::from_utf8(round.body).unwrap();
    let at = text.rfind("event: response.output_item.done").unwrap();
    round.body = [&text[..at], &odd(&ours), &odd(&shown), &text[at..]].concat().into();
    let last = stream("resp_2", &[message("msg_2", "5.")]);
    let ask = ASK.replacen('{', r#"{"stream":true,"#, 1);
    let played = play_with(&ask, settings(), &[round, last]);
    let odd: Vec<String> = played
        .data()
        .into_iter()
        .filter(|data| data.contains("response.odd"))
        .collect();
    assert_eq!(odd.len(), 1, "{odd:?}");
    assert!(odd[0].contains("msg_1"), "{odd:?}");
}

/// Items of tools that the client runs itself, as Codex has them, with the client's answers.
fn of_clients() -> Vec<(Value, Value)> {
    let id = "call_w123456789abc";
    let output = |kind: &str, output: Value| value!({"type": kind, "call_id": id, "output": output});
    let patch = value!({"id": "apc_1", "type": "apply_patch_call", "status": "completed", "call_id": id, "operation": {"type": "delete_file", "path": "a"}});
    let shell = value!({"id": "sh_1", "type": "shell_call", "status": "completed", "call_id": id, "action": {"commands": ["ls"]}, "environment": {"type": "local"}});
    let local = value!({"id": "lsh_1", "type": "local_shell_call", "status": "in_progress", "call_id": id, "action": {"type": "exec", "command": ["ls"], "env": {}}});
    let mouse = value!({"id": "cu_1", "type": "computer_call", "status": "completed", "call_id": id, "action": {"type": "screenshot"}, "pending_safety_checks": []});
    let custom = value!({"id": "ctc_1", "type": "custom_tool_call", "status": "completed", "call_id": id, "name": "apply_patch", "input": "*** Begin Patch"});
    let new = value!({"id": "x_1", "type": "brand_new_call", "status": "completed", "call_id": id, "name": "skill_run", "n": 1.50});
    vec![
        (
            patch,
            value!({"type": "apply_patch_call_output", "call_id": id, "status": "completed"}),
        ),
        (
            shell,
            output(
                "shell_call_output",
                value!([{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]),
            ),
        ),
        (local, output("local_shell_call_output", value!("a"))),
        (
            mouse,
            output(
                "computer_call_output",
                value!({"type": "computer_screenshot", "image_url": "data:,"}),
            ),
        ),
        (custom, output("custom_tool_call_output", value!("Done."))),
        (new, output("brand_new_call_output", value!("a"))),
    ]
}

#[test]
fn a_call_that_the_client_runs_itself_ends_the_turn_beside_ours_and_is_answered_with_our_result() {
    let ours = call("skill_run", "call_s123456789abc");
    for (theirs, answered) in of_clients() {
        for (streams, first) in [(false, false), (true, false), (true, true)] {
            let turn = if first {
                [theirs.clone(), ours.clone()]
            } else {
                [ours.clone(), theirs.clone()]
            };
            let played = play_with(ASK, settings(), &[answer(streams, "resp_1", &turn)]);
            assert_eq!(response(&played)["output"], value!([theirs]));
            assert_eq!((played.sent.len(), played.calls.len()), (1, 1), "{theirs}");
            let kept = stored(ASK, &played);
            // By its history, also if the client has written an item anew, and by what the provider keeps.
            let mut rewritten = theirs.clone();
            rewritten["caller"] = Value::Null;
            let items = |item: &Value| value!({"input": [{"role": "user", "content": "2+3?"}, item, answered]});
            for body in [
                items(&theirs),
                items(&rewritten),
                value!({"previous_response_id": "resp_1", "input": [answered]}),
                value!({"conversation": "conv_1", "input": [answered]}),
            ] {
                let sent: Value = serde_json::from_str(&go_on(&body.to_string(), &kept)).unwrap();
                let input = sent["input"].as_array().unwrap();
                let ids: Vec<&Value> = input.iter().map(|item| &item["call_id"]).collect();
                let result = input.iter().position(|item| item["type"] == "function_call_output");
                let last = input.iter().position(|item| *item == answered);
                assert!(result.is_some() && result < last, "{theirs}: {ids:?} in {sent}");
                assert_eq!(input[result.unwrap()]["call_id"], "call_s123456789abc", "{sent}");
            }
        }
    }
}

#[test]
fn hosted_tools_are_left_alone_beside_ours_and_their_items_go_round() {
    let hosted = [
        value!({"id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["q"], "results": null}),
        value!({"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1", "container_id": "cntr_1", "outputs": null}),
        value!({"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "skill_run", "input_schema": {}}]}),
        value!({"id": "mcp_1", "type": "mcp_call", "server_label": "s", "name": "skill_run", "arguments": "{}", "output": "x"}),
        value!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "AAAA"}),
        // A shell of the provider's: the answer is in the same response.
        value!({"id": "sh_1", "type": "shell_call", "status": "completed", "call_id": "call_h", "action": {"commands": ["ls"]}, "environment": {"type": "container_reference", "container_id": "cntr_1"}}),
        value!({"id": "sho_1", "type": "shell_call_output", "status": "completed", "call_id": "call_h", "output": []}),
    ];
    let tools = value!([{"type": "file_search", "vector_store_ids": ["vs_1"]}, {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "mcp", "server_label": "s", "server_url": "https://s.example"}, {"type": "image_generation"}, {"type": "web_search"},
        {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}, {"type": "apply_patch"}, {"type": "local_shell"}]);
    let ask = value!({"input": "x", "tools": tools, "include": ["file_search_call.results"]}).to_string();
    for streams in [false, true] {
        let turn = [&hosted[..], &[call("skill_run", "call_1")]].concat();
        let last = [message("msg_2", "5.")];
        let answers = [answer(streams, "resp_1", &turn), answer(streams, "resp_2", &last)];
        let played = play_with(&ask, settings(), &answers);
        assert_eq!(response(&played)["output"], Value::from([&hosted[..], &last].concat()));
        assert_eq!(played.calls.len(), 1);
        for round in [played.sent_value(0), played.sent_value(1)] {
            let sent = round["tools"].as_array().unwrap();
            assert_eq!(sent[..8], tools.as_array().unwrap()[..], "{round}");
            assert_eq!(round["include"], value!(["file_search_call.results"]));
        }
        let input = played.sent_value(1)["input"].clone();
        assert_eq!(input.as_array().unwrap()[1..=hosted.len()], hosted, "{input}");
    }
}

/// Who called is said again with the result, as the API has it for calls that have a `caller`.
#[test]
fn a_result_repeats_the_caller_of_its_call() {
    let program = value!({"type": "program", "caller_id": "call_p"});
    let mut called = call("skill_run", "a");
    called["caller"] = program.clone();
    for streams in [false, true] {
        let turn = answer(streams, "resp_1", &[called.clone(), call("skill_run", "b")]);
        let last = answer(streams, "resp_2", &[message("msg_2", "5.")]);
        let input = play_with(ASK, settings(), &[turn, last]).sent_value(1)["input"].clone();
        let results: Vec<&Value> = input.as_array().unwrap().iter().rev().take(2).collect();
        assert_eq!(
            (&results[1]["call_id"], &results[1]["caller"]),
            (&value!("a"), &program)
        );
        assert_eq!(results[0].get("caller"), None);
    }
}

/// An approval is the client's to give: nothing of the loop may go on before it.
#[test]
fn a_request_for_approval_beside_a_call_of_ours_is_handed_out() {
    let asks = value!({"id": "mcpr_0123456789abcdef", "type": "mcp_approval_request", "server_label": "s", "name": "delete", "arguments": "{}"});
    for streams in [false, true] {
        let output = [call("skill_run", "a"), asks.clone()];
        let played = play_with(ASK, settings(), &[answer(streams, "resp_1", &output)]);
        assert_eq!(response(&played)["output"], value!([asks]));
        assert_eq!(played.calls.len(), 1, "ours has run");
        let kept = stored(ASK, &played);
        let said =
            value!({"type": "mcp_approval_response", "approval_request_id": "mcpr_0123456789abcdef", "approve": true});
        for body in [
            value!({"input": [{"role": "user", "content": "2+3?"}, asks, said]}),
            value!({"previous_response_id": "resp_1", "input": [said]}),
            value!({"conversation": "conv_1", "input": [said]}),
        ] {
            let sent: Value = serde_json::from_str(&go_on(&body.to_string(), &kept)).unwrap();
            let input = sent["input"].as_array().unwrap();
            let (last, before) = input.split_last().unwrap();
            assert_eq!(*last, said, "{sent}");
            assert_eq!(before.last().unwrap()["type"], "function_call_output", "{sent}");
            assert_eq!(before.last().unwrap()["call_id"], "a", "{sent}");
        }
    }
}
