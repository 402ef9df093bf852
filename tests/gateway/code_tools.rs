//! Tools by which a client asks its provider to run programs, run here: OpenAI's shell and Anthropic's code execution.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::support::{Answer, LISTED, Running, Start, start};
use super::talk::{Format, Talk, events};

/// The provider has no tool that runs programs.
const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: compute
    rounds:
      - expect: {tool: run_code}
        reply: {thinking: I compute., calls: [{tool: run_code, arguments: {code: "import sys\nprint(6 * 7)\nprint('warned', file=sys.stderr)\nsys.exit(3)"}}]}
      - expect: {result: {contains: "exit 3"}}
        reply: {text: "It is 42."}
  - user: and then
    rounds:
      - expect: {history: {contains: "exit 3"}, tool: run_code}
        reply: {text: "I remember."}
  - user: two at once
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {command: "python3 -c print(1)"}}, {tool: run_code, arguments: {code: "print(2)"}}]}
      - expect: {results: 2}
        reply: {text: Both.}
  - user: mixed
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {results: 1}
        reply: {text: "Without the run."}
      - expect: {results: 2, result: "42"}
        reply: {text: "All."}
  - user: add by skill
    rounds:
      - expect: {tool: run_code, system: "Run python3 skills/listed/add.py"}
        reply: {calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {result: {line: "5"}}
        reply: {text: "The sum is 5."}
  - user: badly
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(1)", language: ruby}}, {tool: run_code, arguments: {code: "a", command: "b"}}, {tool: run_code, arguments: {code: "print(1)", skill: nope}}]}
      - expect: {results: 3, result: [{contains: "Schema: "}, {contains: "nope"}]}
        reply: {text: "It cannot be run."}
  - repeat_last: true
    rounds:
      - expect: {no_tool: run_code}
        reply: {text: "You said: {{user}}"}
"#;

/// Responses and Messages, whole and streaming.
const ROWS: [(Format, bool); 4] = [
    (Format::Responses, false),
    (Format::Responses, true),
    (Format::Messages, false),
    (Format::Messages, true),
];

/// A gateway without skills of its own, whose providers lack the tools.
async fn without_code_tools() -> Running {
    start(Start {
        skills: Vec::new(),
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::OpenAi, CodeTools::Anthropic],
        ..Start::default()
    })
    .await
}

pub(crate) fn shell(environment: &Value) -> Value {
    json!({"type": "shell", "environment": environment})
}

/// The code tool of a format.
pub(crate) fn code_tool(format: Format) -> Value {
    match format {
        Format::Messages => json!({"type": "code_execution_20250825", "name": "code_execution"}),
        Format::Gemini => json!({"codeExecution": {}}),
        _ => shell(&json!({"type": "container_auto", "memory_limit": "4g"})),
    }
}

/// The conversation with the code tool before the client's own.
fn body(talk: &Talk) -> Value {
    let mut body = talk.body();
    let mut tools = vec![code_tool(talk.format)];
    tools.extend(body["tools"].as_array().cloned().unwrap_or_default());
    body["tools"] = json!(tools);
    body
}

async fn ask(knack: &Running, talk: &Talk) -> Answer {
    let answer = knack.send(talk.request(&knack.url, &body(talk))).await;
    assert_eq!(answer.status, 200, "{}: {}", talk.row(), answer.text);
    assert!(!answer.text.contains("run_code"), "{}: {}", talk.row(), answer.text);
    answer
}

/// The items or blocks of the last answer.
fn shown(talk: &Talk) -> Vec<Value> {
    match talk.format {
        Format::Messages => talk.history.last().unwrap()["content"].as_array().unwrap().clone(),
        _ => talk.history.clone(),
    }
}

pub(crate) fn of_type(all: &[Value], kind: &str) -> Vec<Value> {
    all.iter().filter(|one| one["type"] == kind).cloned().collect()
}

#[tokio::test]
async fn a_code_tool_that_the_provider_does_not_have_runs_here_in_the_form_of_the_api() {
    let knack = without_code_tools().await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "please compute");
        let answer = ask(&knack, &talk).await;
        assert_eq!(talk.take(&answer).text, "It is 42.", "{row:?}");
        let all = shown(&talk);
        if row.0 == Format::Messages {
            let result = &of_type(&all, "bash_code_execution_tool_result")[0]["content"];
            assert_eq!(
                (&result["stdout"], &result["stderr"], &result["return_code"]),
                (&json!("42\n"), &json!("warned\n"), &json!(3)),
                "{result}"
            );
            let container = if row.1 {
                events(&answer.text)
                    .iter()
                    .find_map(|event| event["delta"].get("container").cloned())
                    .unwrap()
            } else {
                answer.json()["container"].clone()
            };
            assert!(container["id"].as_str().unwrap().starts_with("container_knack_"));
        } else {
            let (call, output) = (&of_type(&all, "shell_call")[0], &of_type(&all, "shell_call_output")[0]);
            assert_eq!(call["call_id"], output["call_id"]);
            let command = call["action"]["commands"][0].as_str().unwrap();
            assert!(
                command.starts_with("python3 - <<") && command.contains("print(6 * 7)"),
                "{command}"
            );
            let ran = json!([{"stdout": "42\n", "stderr": "warned\n", "outcome": {"type": "exit", "exit_code": 3}}]);
            assert_eq!((&output["output"], &output["status"]), (&ran, &json!("completed")));
        }
        // The upstream had neither the tool nor what only the client sees.
        let upstream = knack.upstream().to_string();
        for foreign in ["\"shell", "code_execution", "knack_"] {
            assert!(!upstream.contains(foreign), "{row:?}: {foreign}: {upstream}");
        }
        // The next turn has the run again, in the words in which the model read it.
        talk.say("and then?");
        assert_eq!(talk.take(&ask(&knack, &talk).await).text, "I remember.", "{row:?}");
        // So it has after the saved turn is lost.
        let after = without_code_tools().await;
        talk.history.pop();
        let answer = ask(&after, &talk).await;
        assert_eq!(talk.take(&answer).text, "I remember.", "{row:?}");
        assert_eq!(after.mock.handle.failures(), Vec::<String>::new());
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// A client that names the items of an answer by their ids names Knack's, too, which no provider knows. The Vercel AI SDK sends the
/// output of a shell whole.
#[tokio::test]
async fn runs_that_are_named_by_their_ids_come_back_as_calls() {
    let knack = without_code_tools().await;
    for stream in [false, true] {
        let talk = Talk::plain((Format::Responses, stream), "please compute");
        let ask = |input: &Value, key: &'static str| {
            let talk = Talk {
                key,
                ..Talk::plain((Format::Responses, stream), "")
            };
            let mut body = body(&talk);
            body["store"] = json!(true);
            body["input"] = input.clone();
            knack.send(talk.request(&knack.url, &body))
        };
        let answer = ask(&json!(talk.history), "key-a").await;
        let output = if stream {
            events(&answer.text).pop().unwrap()["response"]["output"].clone()
        } else {
            answer.json()["output"].clone()
        };
        let mut input = talk.history.clone();
        let name = |item: &Value| match item["type"].as_str() {
            Some("shell_call_output") => item.clone(),
            _ => json!({"type": "item_reference", "id": item["id"]}),
        };
        input.extend(output.as_array().unwrap().iter().map(name));
        input.push(json!({"role": "user", "content": "and then?"}));
        // With its saved turn, and without.
        for (key, call) in [("key-a", "print(6 * 7)"), ("key-b", "call_knack_")] {
            let answer = ask(&json!(input), key).await;
            assert!(answer.text.contains("I remember."), "{key}: {}", answer.text);
            let sent = knack.upstream()["input"].to_string();
            assert!(sent.contains(call) && !sent.contains("sh_knack_"), "{key}: {sent}");
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The model is told what is wrong; the client, which has not declared the tool, is told that nothing was started.
#[tokio::test]
async fn refused_arguments_show_nothing_of_the_tool() {
    let knack = without_code_tools().await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "badly");
        let answer = ask(&knack, &talk).await;
        assert_eq!(talk.take(&answer).text, "It cannot be run.", "{row:?}");
        for of_tool in ["Schema", "do not match", "neither", "No skill"] {
            assert!(!answer.text.contains(of_tool), "{row:?} {of_tool}: {}", answer.text);
        }
        let all = shown(&talk);
        let shown: Vec<(Value, Value, Value)> = if row.0 == Format::Messages {
            let results = of_type(&all, "bash_code_execution_tool_result");
            let of = |block: &Value| {
                let run = &block["content"];
                (run["stdout"].clone(), run["stderr"].clone(), run["return_code"].clone())
            };
            results.iter().map(of).collect()
        } else {
            let outputs = of_type(&all, "shell_call_output");
            let of = |item: &Value| {
                let run = &item["output"][0];
                (
                    run["stdout"].clone(),
                    run["stderr"].clone(),
                    run["outcome"]["exit_code"].clone(),
                )
            };
            outputs.iter().map(of).collect()
        };
        let told = "Nothing was started: the call was refused.\n";
        assert_eq!(shown, vec![(json!(""), json!(told), json!(126)); 3], "{row:?}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn shell_items_are_numbered_streamed_and_whole_alike() {
    let knack = without_code_tools().await;
    for stream in [false, true] {
        let mut talk = Talk::plain((Format::Responses, stream), "two at once");
        let answer = ask(&knack, &talk).await;
        talk.take(&answer);
        let kinds: Vec<String> = shown(&talk)[1..]
            .iter()
            .map(|item| item["type"].as_str().unwrap().to_owned())
            .collect();
        let expected = [
            "shell_call",
            "shell_call",
            "shell_call_output",
            "shell_call_output",
            "message",
        ];
        assert_eq!(kinds, expected, "stream {stream}");
        let outputs = of_type(&shown(&talk), "shell_call_output");
        let printed: Vec<&Value> = outputs.iter().map(|item| &item["output"][0]["stdout"]).collect();
        assert_eq!(printed, [&json!("1\n"), &json!("2\n")]);
        if stream {
            let events = events(&answer.text);
            for (number, event) in events.iter().enumerate() {
                assert_eq!(event["sequence_number"], number, "{event}");
            }
            let indices = |kind: &str| -> Vec<u64> {
                let of_kind = events.iter().filter(|event| event["type"] == kind);
                of_kind.map(|event| event["output_index"].as_u64().unwrap()).collect()
            };
            for kind in ["response.output_item.added", "response.output_item.done"] {
                assert_eq!(indices(kind), [0, 1, 2, 3, 4], "{kind}");
            }
            assert_eq!(indices("response.shell_call_command.done"), [0, 1]);
            assert_eq!(indices("response.shell_call_output_content.done"), [2, 3]);
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_call_of_the_client_beside_a_run_comes_back_to_it() {
    let knack = without_code_tools().await;
    for row in ROWS {
        let mut talk = Talk::saying(row, "mixed");
        let answer = ask(&knack, &talk).await;
        assert_eq!(talk.take(&answer).calls, ["get_weather"], "{row:?}");
        talk.answer_weather();
        assert_eq!(talk.take(&ask(&knack, &talk).await).text, "All.", "{row:?}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Skills that are attached are Knack's, so the shell is: also where the provider has one.
#[tokio::test]
async fn a_shell_with_skills_of_ours_runs_here() {
    let knack = start(Start {
        skills: vec![
            ("listed/SKILL.md", LISTED),
            (
                "listed/add.py",
                "import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n",
            ),
        ],
        script: SCRIPT.replace("provider: {code_tools: false}\n", ""),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    let reference = |id: &str| json!({"type": "skill_reference", "skill_id": id});
    let (ours, foreign) = (reference("litellm:listed"), reference("skill_of_openai"));
    for stream in [false, true] {
        for (skills, left) in [
            (json!([ours]), Value::Null),
            // The provider's stay with it, and Knack's run beside them.
            (json!([ours, foreign]), json!([foreign])),
        ] {
            let mut talk = Talk::plain((Format::Responses, stream), "add by skill");
            let mut body = talk.body();
            body["tools"] = json!([shell(&json!({"type": "container_auto", "skills": skills}))]);
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            assert_eq!(talk.take(&answer).text, "The sum is 5.", "{}", answer.text);
            let (call, output) = (
                of_type(&talk.history, "shell_call"),
                of_type(&talk.history, "shell_call_output"),
            );
            assert_eq!(
                call[0]["action"]["commands"],
                json!(["python3 skills/listed/add.py 2 3"])
            );
            assert_eq!(output[0]["output"][0]["stdout"], "5\n");
            let tools = knack.upstream()["tools"].as_array().unwrap().clone();
            let shells = of_type(&tools, "shell");
            let kept = shells
                .first()
                .map_or(&Value::Null, |tool| &tool["environment"]["skills"]);
            assert_eq!(*kept, left);
            // What the client declared is what it is told, and the provider takes its history without us.
            let told = if stream {
                events(&answer.text).last().unwrap()["response"].clone()
            } else {
                answer.json()
            };
            assert_eq!(told["tools"], body["tools"]);
            talk.say("bye");
            let direct = knack.send(talk.request(&knack.mock.url, &talk.body())).await;
            assert_eq!(direct.status, 200, "{}", direct.text);
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// What is the client's, or the provider's, is the same bytes upstream.
#[tokio::test]
async fn a_shell_of_the_clients_and_tools_of_the_provider_are_untouched() {
    let provider = SCRIPT.replace("provider: {code_tools: false}\n", "");
    let has_tools = |sandbox_code_tools| Start {
        skills: Vec::new(),
        script: provider.clone(),
        sandbox_code_tools,
        ..Start::default()
    };
    let without = start(has_tools(Vec::new())).await;
    let with = start(has_tools(vec![CodeTools::OpenAi, CodeTools::Anthropic])).await;
    let local = json!({"type": "local", "skills": [{"name": "a", "description": "b", "path": "c"}]});
    let call = json!([
        {"role": "user", "content": "hi"},
        {"type": "shell_call", "call_id": "call_s", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "shell_call_output", "call_id": "call_s", "max_output_length": 10,
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    ]);
    for (knack, environment) in [
        (&with, &local),
        (&with, &Value::Null),
        (&with, &json!({"type": "container_reference", "container_id": "cntr_1"})),
        (&without, &json!({"type": "container_auto", "file_ids": ["file_1"]})),
        // Only the provider has the files, and it can run the skill.
        (
            &without,
            &json!({"type": "container_auto", "file_ids": ["file_1"], "skills": [super::whole_skills::adder()]}),
        ),
    ] {
        for stream in [false, true] {
            let talk = Talk::new((Format::Responses, stream));
            let body = json!({"model": "gpt-x", "stream": stream, "input": call, "tools": [shell(environment)]});
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let sent = knack.mock.handle.requests().pop().unwrap().body;
            assert_eq!(sent, body.to_string().as_bytes(), "{environment}");
        }
    }
    // Without tools nothing is called, so a tool that the provider lacks is only taken out.
    let gateway = without_code_tools().await;
    for row in ROWS {
        let talk = Talk::plain(row, "hi");
        let mut body = body(&talk);
        body["tool_choice"] = match row.0 {
            Format::Messages => json!({"type": "none"}),
            _ => json!("none"),
        };
        let answer = gateway.send(talk.request(&gateway.url, &body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.contains("You said: hi"), "{}", answer.text);
    }
}

#[tokio::test]
async fn what_only_the_provider_could_do_is_refused_by_name() {
    let knack = without_code_tools().await;
    for (environment, said) in [
        (json!({"file_ids": ["file_1"]}), "file_ids"),
        (
            json!({"network_policy": {"type": "allowlist", "allowed_domains": ["a.example"]}}),
            "network_policy",
        ),
        (
            json!({"skills": [{"type": "skill_reference", "skill_id": "skill_other"}]}),
            "skill_other",
        ),
    ] {
        let mut environment = environment;
        environment["type"] = json!("container_auto");
        let talk = Talk::plain((Format::Responses, true), "hi");
        let mut body = talk.body();
        body["tools"] = json!([shell(&environment)]);
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"]),
            (400, &json!("tools")),
            "{}",
            answer.text
        );
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
    }
    assert_eq!(knack.mock.handle.requests().len(), 0);
}

/// A forced code tool is forced once: the round after the run is free.
#[tokio::test]
async fn a_forced_code_tool_is_forced_once() {
    let knack = without_code_tools().await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "please compute");
        for choice in match row.0 {
            Format::Messages => [
                json!({"type": "tool", "name": "code_execution"}),
                json!({"type": "any"}),
            ],
            _ => [json!({"type": "shell"}), json!("required")],
        } {
            talk.history.truncate(1);
            let mut body = body(&talk);
            body["tool_choice"] = choice;
            // Thinking and a forced tool exclude each other in Messages; the script thinks all the same.
            let answer = knack.send(talk.request(&knack.url, &body)).await;
            assert_eq!(talk.take(&answer).text, "It is 42.", "{row:?}");
            let requests = knack.mock.handle.requests();
            let sent: Vec<Value> = requests
                .iter()
                .rev()
                .take(2)
                .map(|one| one.json()["tool_choice"].clone())
                .collect();
            assert!(sent[0] == "auto" || sent[0]["type"] == "auto", "{sent:?}");
            assert!(!sent[1].to_string().contains("shell") && !sent[1].to_string().contains("code_execution"));
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Some servers count the calls of each answer. Where no saved turn is left, the runs of two answers are in one request, and a
/// provider refuses two calls of one id.
#[tokio::test]
async fn runs_of_servers_that_count_their_calls_have_ids_of_their_own() {
    let script = r#"
provider: {code_tools: false}
turns:
  - user: compute
    rounds:
      - reply: {calls: [{id: call_0, tool: run_code, arguments: {code: "print(6 * 7)"}}]}
      - reply: {text: "It is 42."}
  - user: and then
    rounds:
      - expect: {history: {contains: "42"}}
        reply: {text: "I remember."}
"#;
    for row in ROWS {
        let mut talk = Talk::plain(row, "compute");
        // Each gateway and provider of its own, as after a restart.
        for (seed, next) in ["compute again", "and then?", "bye"].into_iter().enumerate() {
            let knack = start(Start {
                skills: Vec::new(),
                script: format!("seed: {}\n{script}", seed + 1),
                executor: std::sync::Arc::new(super::runner::executor(1).await),
                sandbox_code_tools: vec![CodeTools::OpenAi, CodeTools::Anthropic],
                ..Start::default()
            })
            .await;
            let answer = ask(&knack, &talk).await;
            talk.take(&answer);
            talk.say(next);
            assert_eq!(knack.mock.handle.failures(), Vec::<String>::new(), "{row:?}");
        }
        let ids: Vec<Value> = if row.0 == Format::Messages {
            let blocks = talk.history.iter().filter_map(|message| message["content"].as_array());
            let blocks: Vec<Value> = blocks.flatten().cloned().collect();
            let uses = of_type(&blocks, "server_tool_use");
            uses.iter().map(|block| block["id"].clone()).collect()
        } else {
            let calls = of_type(&talk.history, "shell_call");
            calls.iter().map(|item| item["call_id"].clone()).collect()
        };
        assert_eq!(ids.len(), 2, "{row:?}");
        assert_ne!(ids[0], ids[1], "{row:?}");
    }
}
