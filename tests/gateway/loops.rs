//! The tool loop with real runs: answers, files, mixed turns, follow-ups, limits; in every format, whole and streaming.

use std::sync::Arc;
use std::time::{Duration, Instant};

use knack_execution::Executor;
use serde_json::{Value, json};

use super::observed::Observed;
use super::support::{Start, client, start, with_sandbox, with_script};
use super::talk::{Format, ROWS, Talk};

const ADD: &str = r#"
turns:
  - user: add
    rounds:
      - expect: {tool: load_skill, system: plover}
        reply: {thinking: I look it up., text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - expect: {result: {contains: "Run python3 skills/listed/add.py"}}
        reply: {thinking: Now I run it., calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py 2 3"}}]}
      - expect: {results: 2, result: {line: '5'}}
        reply: {text: "The sum is 5."}
  - user: and then
    rounds:
      - expect: {history: {contains: "exit 0"}}
        reply: {text: "I remember."}
  - user: go wrong
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {skill: listed, command: "python3 skills/listed/add.py two three"}}]}
      - expect: {result: {contains: "exit 1"}}
        reply: {text: "It failed."}
  - user: file
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "open('out.txt', 'w').write('made here')"}}]}
      - expect: {result: {contains: "Files for the user: out.txt (text/plain"}}
        reply: {text: Written.}
  - user: again
    rounds:
      - expect: {history: {contains: make a file}, body: {contains: "Files for the user: out.txt"}}
        reply: {calls: [{tool: run_code, arguments: {code: "print(open('out.txt').read().upper())"}}]}
      - expect: {result: {contains: MADE HERE}}
        reply: {text: Still there.}
  - user: mixed
    rounds:
      - reply: {thinking: Both., calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {results: 1}
        reply: {text: "Without the run: {{results}}"}
      - expect: {results: 2, result: "42"}
        reply: {text: "All: {{results}}"}
  - user: thoughts
    rounds:
      - when: {result: -3 C}
        reply: {text: Cold.}
      - reply: {thinking: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {thinking: Now the weather., calls: [{tool: get_weather, arguments: {city: Oslo}}]}
  - user: unknown tool
    rounds:
      - reply: {calls: [{unlisted: make_coffee, arguments: {}}]}
  - user: bad arguments
    rounds:
      - reply: {calls: [{tool: run_code, raw_arguments: "{\"code\": "}]}
      - expect: {no_result: "exit 0"}
        reply: {text: "Told: {{results}}"}
  - user: forever
    repeat_last: true
    rounds:
      - reply: {calls: [{tool: load_skill, arguments: {skill: listed}}]}
  - user: silent
    rounds:
      - reply: {text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {blocks: []}
  - user: pensive
    rounds:
      - reply: {text: I look it up., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - reply: {thinking: Is that all?}
  - user: go on
    rounds:
      - expect: {history: {contains: Run python3}}
        reply: {text: Here I am.}
  - user: one by one
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "open('t', 'w').write('alpha')"}}, {tool: run_code, arguments: {code: "print(open('t').read() + 'bet')"}}]}
      - expect: {results: 2, result: [alphabet]}
        reply: {text: Both ran.}
  - user: breaks
    rounds:
      - reply: {text: I begin., calls: [{tool: load_skill, arguments: {skill: listed}}]}
      - fail: {status: 400, message: no more}
  - user: split
    rounds:
      - reply: {thinking: "é1", text: "Straße ", calls: [{tool: load_skill, arguments: {skill: listed}}]}
        stream: {chunk_bytes: 1, piece_chars: 2}
      - reply: {text: "größer"}
        stream: {chunk_bytes: 3, piece_chars: 1}
"#;

#[tokio::test]
async fn a_skill_is_loaded_and_run_and_comes_back_in_the_next_request() {
    let knack = with_sandbox(ADD).await;
    for row in ROWS {
        let mut talk = Talk::saying(row, "please add");
        let said = talk.ask(&knack).await;
        assert!(said.calls.is_empty(), "{row:?}: {said:?}");
        let glue = if row.0 == Format::Gemini || row.0 == Format::Chat {
            "\n\n"
        } else {
            ""
        };
        assert_eq!(said.text, format!("I look it up.{glue}The sum is 5."), "{row:?}");
        talk.say("and then?");
        assert_eq!(talk.ask(&knack).await.text, "I remember.", "{row:?}");
        talk.say("go wrong");
        assert_eq!(talk.ask(&knack).await.text, "It failed.", "{row:?}");
    }
    // In each row the skill was loaded once, ran once and failed once, and the one in the system text was carried three times.
    for rounds in ["| 3 rounds |", "| 1 round |", "| 2 rounds |"] {
        knack.told_times(rounds, ROWS.len()).await;
    }
    let metrics = knack.gateway.metrics.text();
    let uses = |skill: &str, what: &str, count: usize| {
        let line = format!(
            "knack_gateway_skill_uses_total{{skill=\"default/{skill}\",use=\"{what}\"}} {count} # {{request_id="
        );
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    };
    uses("listed", "loaded", ROWS.len());
    uses("listed", "ran", ROWS.len());
    uses("listed", "failed", ROWS.len());
    uses("always", "carried", 3 * ROWS.len());
    for skill in ["listed", "always"] {
        let of_skill = format!("knack_gateway_skill_tokens_total{{skill=\"default/{skill}\"}} ");
        let tokens = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&of_skill)?.split(' ').next());
        let tokens: Option<u64> = tokens.and_then(|tokens| tokens.parse().ok());
        assert!(tokens > Some(0), "{of_skill}{tokens:?} in\n{metrics}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Providers refuse a message of the model that says nothing, or thinks only: it is no part of what is remembered.
#[tokio::test]
async fn after_a_last_round_that_says_nothing_the_conversation_goes_on() {
    let knack = with_script(ADD).await;
    for row in ROWS {
        for text in ["silent", "pensive"] {
            let mut talk = Talk::saying(row, text);
            assert_eq!(talk.ask(&knack).await.text, "I look it up.", "{row:?} {text}");
            talk.say("go on");
            assert_eq!(talk.ask(&knack).await.text, "Here I am.", "{row:?} {text}");
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// A model may make two calls although its client forbids it; the second one may need what the first one makes.
#[tokio::test]
async fn calls_of_a_turn_run_one_after_the_other_where_the_client_forbids_parallel_ones() {
    let knack = with_sandbox(ADD).await;
    for row in ROWS {
        let talk = Talk::plain(row, "one by one");
        let mut body = talk.body();
        match row.0 {
            Format::Chat | Format::Responses => body["parallel_tool_calls"] = json!(false),
            Format::Messages => body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true}),
            // This API has no such setting.
            Format::Gemini => continue,
        }
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{row:?}: {}", answer.text);
        assert!(answer.text.contains("Both"), "{row:?}: {}", answer.text);
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_request_is_reported_by_its_steps_and_not_by_its_content() {
    let knack = with_sandbox(ADD).await;
    let mut talk = Talk::saying(ROWS[0], "please add");
    talk.ask(&knack).await;
    knack.told("3 rounds").await;
    let text = serde_json::to_string(&*knack.gateway.recent.last()[0]).unwrap();
    let told: Value = serde_json::from_str(&text).unwrap();
    let steps = told["steps"].as_array().unwrap();
    let kinds: Vec<String> = steps
        .iter()
        .map(|step| format!("{} {}", step["step"], step["tool"]))
        .collect();
    assert_eq!(
        kinds,
        [
            "\"round\" null",
            "\"call\" \"load_skill\"",
            "\"round\" null",
            "\"call\" \"run_code\"",
            "\"round\" null",
        ]
    );
    assert_eq!(steps[1]["skill"], "default/listed");
    let run = &steps[3]["run"];
    assert_eq!(
        (&steps[3]["skill"], &run["status"]),
        (&json!("default/listed"), &json!("success"))
    );
    assert!(
        run["programMs"].is_u64() && run["id"].is_string() && run["start"].is_string(),
        "{run}"
    );
    let ends = |step: &Value| step["begunMs"].as_u64().unwrap() + step["tookMs"].as_u64().unwrap();
    for (before, after) in steps.iter().zip(&steps[1..]) {
        // Whole milliseconds: a step may end within the one in which the next begins.
        assert!(
            ends(before) <= after["begunMs"].as_u64().unwrap() + 1,
            "{before} {after}"
        );
    }
    for content in ["please", "sum is", "add.py", "plover", "look it up", talk.key] {
        assert!(!text.contains(content), "{content}: {text}");
    }
}

#[tokio::test]
async fn files_are_delivered_listed_read_and_staged_into_the_next_turn() {
    let knack = with_sandbox(ADD).await;
    for row in ROWS {
        let mut talk = Talk::saying(row, "make a file");
        let said = talk.ask(&knack).await;
        assert_eq!(said.text, "Written.", "{row:?}");
        let url = format!("{}/knack/v1/responses/{}/files", knack.url, said.id);
        let list = knack.send(talk.sign(client().get(&url))).await;
        assert_eq!(list.json()["files"][0]["name"], "out.txt", "{row:?}: {}", list.text);
        let file = format!("{url}/out.txt");
        assert_eq!(knack.send(talk.sign(client().get(&file))).await.text, "made here");
        talk.key = "key-b";
        for another in [&file, &url] {
            let answer = knack.send(talk.sign(client().get(another))).await;
            assert_eq!(answer.status, 404, "{row:?}: {}", answer.text);
        }
        let lines = knack.lines.text();
        for (status, path) in [(200, "files"), (200, "files/"), (404, "files"), (404, "files/")] {
            let line = format!("{status} files GET /knack/v1/responses/{}/{path} | ", said.id);
            assert!(lines.contains(&line), "{row:?}: {line}: {lines}");
        }
        talk.key = "key-a";
        let folder = knack.folder.path().join("knack-files").join(&said.id);
        assert!(folder.join("out.txt").exists(), "{row:?}");
        // The next request of the same conversation: the hidden turn comes back, and with it the file.
        talk.say("again please");
        assert_eq!(talk.ask(&knack).await.text, "Still there.", "{row:?}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn a_mixed_turn_runs_ours_once_and_the_provider_takes_the_history_without_us() {
    let knack = with_sandbox(ADD).await;
    for row in ROWS {
        let mut talk = Talk::saying(row, "mixed");
        let said = talk.ask(&knack).await;
        assert_eq!(said.calls, ["get_weather"], "{row:?}");
        match row.0 {
            Format::Chat => assert_eq!(said.stop, "tool_calls"),
            Format::Messages => assert_eq!(said.stop, "tool_use"),
            Format::Responses => assert_eq!(said.stop, "completed"),
            Format::Gemini => assert_eq!(said.stop, "STOP"),
        }
        talk.answer_weather();
        let direct = knack.send(talk.request(&knack.mock.url, &talk.body())).await;
        assert_eq!(direct.status, 200, "{row:?}: {}", direct.text);
        let said = talk.hear(&knack).await.text;
        assert!(said.contains("42") && said.contains("-3 C"), "{row:?}: {said}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    knack.told_times("200 ", 2 * ROWS.len()).await;
    let lines = knack.lines.text();
    assert_eq!(lines.matches("run_code: ").count(), ROWS.len(), "{lines}");
}

#[tokio::test]
async fn a_tool_that_was_not_injected_is_the_clients() {
    let knack = with_sandbox(ADD).await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "unknown tool");
        assert_eq!(talk.ask(&knack).await.calls, ["make_coffee"], "{row:?}");
    }
}

/// Providers refuse a history with `@` in a name, and so does the mock: the call goes back by the tool's own name.
#[tokio::test]
async fn a_tool_called_by_name_and_version_is_ours_if_that_version_is_served() {
    let skill = "---\nname: lookup\ndescription: d\nversion: 1.2.0\nmode: llm\nactivation: Always\ntools:\n  - name: lookup\n    description: d\n    command: [python3, look.py]\n---\nx\n";
    let turn = "  - user: call VERSION\n    rounds:\n      - reply: {calls: [{unlisted: lookup@VERSION, arguments: {}}]}\n      - expect: {result: {contains: plover}}\n        reply: {text: Found.}\n";
    let turns = ["1.2.0", "latest", "9.9.9"].map(|version| turn.replace("VERSION", version));
    let knack = start(Start {
        skills: vec![("lookup/SKILL.md", skill), ("lookup/look.py", "print('plover')\n")],
        script: format!("turns:\n{}", turns.concat()),
        executor: Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        for version in ["1.2.0", "latest"] {
            let mut talk = Talk::plain(row, &format!("call {version}"));
            let said = talk.ask(&knack).await;
            assert_eq!(
                (said.text.as_str(), said.calls.len()),
                ("Found.", 0),
                "{row:?} {version}"
            );
        }
        let said = Talk::plain(row, "call 9.9.9").ask(&knack).await;
        assert_eq!(said.calls, ["lookup@9.9.9"], "{row:?}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// Whole answers of Messages, and Gemini in both ways, carry arguments as JSON, so a model cannot break them there.
#[tokio::test]
async fn unparsable_arguments_run_nothing_and_give_the_model_an_error() {
    let knack = with_sandbox(ADD).await;
    let rows = ROWS.into_iter().filter(|(format, stream)| match format {
        Format::Chat | Format::Responses => true,
        Format::Messages => *stream,
        Format::Gemini => false,
    });
    for (count, row) in rows.enumerate() {
        let mut talk = Talk::plain(row, "bad arguments");
        let said = talk.hear(&knack).await.text;
        assert!(said.starts_with("Told:"), "{row:?}: {said}");
        let lines = knack.told_times("200 ", count + 1).await;
        assert!(!lines.contains("run_code: "), "nothing ran: {lines}");
    }
}

#[tokio::test]
async fn a_model_that_never_stops_calling_is_ended_by_the_limit_in_the_formats_words() {
    let knack = with_script(ADD).await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let mut talk = Talk::plain(row, "forever");
        let said = talk.ask(&knack).await;
        let word = match row.0 {
            Format::Chat => "length",
            Format::Messages => "pause_turn",
            Format::Responses => "max_messages",
            Format::Gemini => "TOO_MANY_TOOL_CALLS",
        };
        assert_eq!((said.stop.as_str(), said.calls.len()), (word, 0), "{row:?}");
        let requests = knack.mock.handle.requests_with("forever");
        assert_eq!(
            requests.len(),
            11 * (count + 1),
            "{row:?}: the eleventh call is not run"
        );
        let last = String::from_utf8_lossy(&requests.last().unwrap().body).into_owned();
        assert!(last.contains("Last skill call available"), "{row:?}: {last}");
    }
}

#[tokio::test]
async fn a_failure_of_a_later_round_is_reported_in_the_formats_words() {
    let knack = with_script(ADD).await;
    for row in ROWS {
        let talk = Talk::saying(row, "breaks");
        let answer = talk.send(&knack).await;
        assert_eq!(answer.status, if row.1 { 200 } else { 400 }, "{row:?}: {}", answer.text);
        let last = talk.values(&answer).pop().unwrap();
        assert_eq!(last["error"]["message"], "no more", "{row:?}: {}", answer.text);
        if !row.1 {
            assert_eq!(answer.headers["x-should-retry"], "false", "{row:?}");
        }
    }
}

/// Members of a client's request that a second round must repeat.
fn fields(format: Format) -> Value {
    match format {
        Format::Chat => json!({"temperature": 0.3, "stop": ["END"], "seed": 7, "metadata": {"app": "a"}, "user": "u"}),
        Format::Messages => {
            json!({"temperature": 0.3, "stop_sequences": ["END"], "system": "Be brief.", "metadata": {"user_id": "u"}})
        }
        Format::Responses => {
            json!({"temperature": 0.3, "top_p": 0.9, "instructions": "Be brief.", "metadata": {"app": "a"}, "user": "u"})
        }
        Format::Gemini => json!({"generationConfig": {"temperature": 0.3, "stopSequences": ["END"]},
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]}),
    }
}

#[tokio::test]
async fn every_round_has_the_fields_and_the_credential_of_the_clients_request() {
    let knack = with_sandbox(ADD).await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let talk = Talk::saying(row, "please add");
        let mut body = talk.body();
        let fields = fields(row.0);
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = knack.send(talk.request(&knack.url, &body)).await;
        assert_eq!(answer.status, 200, "{row:?}: {}", answer.text);
        let requests = knack.mock.handle.requests();
        let rounds = &requests[3 * count..];
        assert_eq!(rounds.len(), 3, "{row:?}");
        let first = rounds[0].json();
        for round in rounds {
            let sent = round.json();
            for name in fields
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .chain(["tools", "model"])
            {
                assert_eq!(sent[name], first[name], "{row:?}: {name}");
            }
            for name in ["authorization", "x-api-key", "x-goog-api-key", "anthropic-version"] {
                assert_eq!(round.header(name), rounds[0].header(name), "{row:?}: {name}");
            }
            assert_eq!(round.path, rounds[0].path, "{row:?}");
        }
        for name in ["temperature", "metadata", "safetySettings"] {
            assert_eq!(first[name], body[name], "{row:?}: {name}");
        }
    }
}

#[tokio::test]
async fn bytes_may_come_in_any_pieces() {
    let knack = with_script(ADD).await;
    for row in ROWS {
        let said = Talk::saying(row, "split").ask(&knack).await.text;
        assert_eq!(said.replace("\n\n", ""), "Straße größer", "{row:?}");
    }
}

#[tokio::test]
async fn without_an_executor_the_model_reads_what_to_do_in_one_line() {
    let knack = with_script("turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'print(1)'}}]}\n      - reply: {text: \"{{results}}\"}\n").await;
    for row in ROWS {
        let said = Talk::plain(row, "run").hear(&knack).await.text;
        assert!(said.contains("--no-local-executor"), "{row:?}: {said}");
    }
}

/// The client saw the thinking of a hidden round directly before that of the round that called its tool. Another gateway without the saved turn
/// takes the former out, else the provider refuses the message.
#[tokio::test]
async fn thinking_of_two_rounds_in_a_row_stays_legal_without_a_record() {
    let knack = with_script(ADD).await;
    let mut body = json!({"model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "thoughts"}],
        "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]});
    let first = knack.send(knack.messages(&body)).await;
    let content = first.json()["content"].clone();
    let kinds: Vec<&str> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "thinking", "tool_use"], "{}", first.text);
    let call = content[2]["id"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages
        .push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "-3 C"}]}));
    let direct = client()
        .post(format!("{}/v1/messages", knack.mock.url))
        .header("anthropic-version", "2023-06-01");
    let direct = knack.send(direct.body(body.to_string())).await;
    assert_eq!(
        direct.status, 400,
        "the provider refuses it as it stands: {}",
        direct.text
    );
    assert!(direct.text.contains("cannot be modified"), "{}", direct.text);
    for key in ["key-a", "another-key"] {
        let request = client().post(format!("{}/v1/messages", knack.url));
        let request = request
            .header("x-api-key", key)
            .header("anthropic-version", "2023-06-01");
        let second = knack.send(request.body(body.to_string())).await;
        assert_eq!(
            (second.status, second.said().as_str()),
            (200, "Cold."),
            "{key}: {}",
            second.text
        );
    }
}

#[tokio::test]
async fn two_skills_with_the_same_file_path_keep_their_own_files() {
    let skills = vec![
        (
            "one/SKILL.md",
            "---\nname: one\ndescription: d\nactivation: Always\n---\nx\n",
        ),
        ("one/data.txt", "first"),
        (
            "two/SKILL.md",
            "---\nname: two\ndescription: d\nactivation: Always\n---\nx\n",
        ),
        ("two/data.txt", "second"),
    ];
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: \"print(open('skills/one/data.txt').read(), open('skills/two/data.txt').read())\"}}]}\n      - reply: {text: \"{{results}}\"}\n";
    let knack = start(Start {
        skills,
        script: script.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let said = Talk::plain(row, "read").hear(&knack).await.text;
        assert!(said.contains("first second"), "{row:?}: {said}");
    }
}

#[tokio::test]
async fn a_secret_without_a_grant_is_absent_and_a_granted_one_is_present() {
    let skill = "---\nname: Weather\ndescription: d\nmode: llm\nactivation: Always\ntool_env: [TOKEN, OTHER]\ntools:\n  - name: show\n    description: d\n    command: [python3, show.py]\n---\nx\n";
    let skills = || {
        vec![
            ("weather/SKILL.md", skill),
            (
                "weather/show.py",
                "import os\nprint(os.environ.get('TOKEN'), os.environ.get('OTHER'))\n",
            ),
        ]
    };
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: {suffix: show}, arguments: {}}]}\n      - reply: {text: \"{{results}}\"}\n";
    let grants =
        knack_gateway::runs::grants::Grants::parse(&["weather:TOKEN".to_owned()], |_| Some("granted".to_owned()))
            .unwrap();
    let executor = std::sync::Arc::new(super::runner::executor(1).await);
    let knack = start(Start {
        skills: skills(),
        script: script.to_owned(),
        executor,
        grants,
        ..Start::default()
    })
    .await;
    for row in ROWS {
        let said = Talk::plain(row, "show").hear(&knack).await.text;
        assert!(said.contains("granted None"), "{row:?}: {said}");
    }
}

/// How long `/healthz` may take beside a run that hangs: a twelfth of the minute that such a run has, for which a loop that is blocked
/// would hold it up.
const HEALTHY: Duration = Duration::from_secs(5);

/// What its deadline makes of such a request: `clocks.rs`.
#[tokio::test]
async fn a_hanging_sandbox_delays_no_other_request() {
    let script = "turns:\n  - user: hang\n    rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'while True: pass'}}]}\n      - reply: {text: \"{{results}}\"}\n  - rounds:\n      - reply: {text: hi}\n";
    let observed = Observed::new().await;
    let knack = start(Start {
        script: script.to_owned(),
        executor: Arc::clone(&observed) as Arc<dyn Executor>,
        ..Start::default()
    })
    .await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let talk = Talk::plain(row, "hang");
        let hanging = tokio::spawn(talk.request(&knack.url, &talk.body()).send());
        observed.running_after(count).await;
        let asks = client();
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            let health = knack.send(asks.get(format!("{}/healthz", knack.url))).await;
            assert_eq!(health.status, 200);
            best = best.min(begun.elapsed());
            assert_eq!(Talk::plain(row, "quick").ask(&knack).await.text, "hi", "{row:?}");
        }
        // A busy machine may delay some of them, a loop that is blocked all.
        assert!(best < HEALTHY, "{row:?}: health took {best:?}");
        hanging.abort();
        // The answer's head may be here already: the client leaves when the answer is dropped.
        drop(hanging);
        knack.told_times("client left", count + 1).await;
    }
}
