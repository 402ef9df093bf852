//! How the end of a run by a limit is told by the tools of clients that run programs.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::code_tools::code_tool;
use super::support::{Running, Start, start};
use super::talk::{Format, Talk};

/// A skill whose runs have twenty seconds: an interpreter takes some of them to start on a busy machine.
const SLOW: &str = "---\nname: slow\ndescription: Takes long.\ntimeout_ms: 20000\n---\nWait.\n";

const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: too long
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {skill: slow, code: "import time\nprint('begun', flush=True)\ntime.sleep(600)"}}]}
      - expect: {result: {contains: "time limit of 20 s"}}
        reply: {text: "It takes too long."}
  - user: too much
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "import time\nprint('begun', flush=True)\nx = [b'x' * (16 << 20) for _ in range(100)]\ntime.sleep(600)"}}]}
      - expect: {result: {contains: "out of memory"}}
        reply: {text: "It takes too much."}
  - user: and then
    rounds:
      - expect: {history: {contains: "time limit of 20 s"}}
        reply: {text: "I remember."}
"#;

const ROWS: [(Format, bool); 6] = [
    (Format::Responses, false),
    (Format::Responses, true),
    (Format::Messages, false),
    (Format::Messages, true),
    (Format::Gemini, false),
    (Format::Gemini, true),
];

async fn ask(knack: &Running, talk: &mut Talk) -> String {
    let mut body = talk.body();
    body["tools"] = json!([code_tool(talk.format)]);
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    talk.take(&answer).text.trim().to_owned()
}

/// The result of the run, as the history has it.
fn result(talk: &Talk) -> Value {
    let within = |item: &Value| match talk.format {
        Format::Messages => {
            let blocks = item["content"].as_array()?.iter();
            let mut results = blocks.filter(|block| block["type"] == "bash_code_execution_tool_result");
            results.next().map(|block| block["content"].clone())
        }
        Format::Gemini => item["parts"]
            .as_array()?
            .iter()
            .find_map(|part| part.get("codeExecutionResult").cloned()),
        _ => (item["type"] == "shell_call_output").then(|| item["output"][0].clone()),
    };
    talk.history.iter().find_map(within).expect("the run is shown")
}

/// A gateway of a row of its own, with a sandbox.
async fn running() -> Running {
    start(Start {
        skills: vec![("slow/SKILL.md", SLOW)],
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::OpenAi, CodeTools::Anthropic, CodeTools::Gemini],
        ..Start::default()
    })
    .await
}

#[tokio::test]
async fn a_limit_of_time_is_reported_in_the_words_of_the_api() {
    // All at once, since each takes the whole limit.
    let check = async |row: (Format, bool)| {
        let knack = running().await;
        let mut talk = Talk::plain(row, "too long");
        assert_eq!(ask(&knack, &mut talk).await, "It takes too long.", "{row:?}");
        let told = result(&talk);
        match row.0 {
            Format::Messages => assert_eq!(
                told,
                json!({"type": "bash_code_execution_tool_result_error", "error_code": "execution_time_exceeded"})
            ),
            Format::Gemini => assert_eq!(
                (&told["outcome"], &told["output"]),
                (
                    &json!("OUTCOME_DEADLINE_EXCEEDED"),
                    &json!("begun\nstopped at the time limit of 20 s")
                )
            ),
            _ => assert_eq!(
                told,
                json!({"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}})
            ),
        }
        // Whatever the API has no place for, the model knows it in the next turn.
        talk.say("and then?");
        assert_eq!(ask(&knack, &mut talk).await, "I remember.", "{row:?}");
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new(), "{row:?}");
    };
    futures::future::join_all(ROWS.map(check)).await;
}

#[tokio::test]
async fn a_limit_of_memory_is_reported_in_the_words_of_the_api() {
    let knack = running().await;
    for row in ROWS {
        let mut talk = Talk::plain(row, "too much");
        assert_eq!(ask(&knack, &mut talk).await, "It takes too much.", "{row:?}");
        let told = result(&talk);
        match row.0 {
            Format::Messages => {
                assert_eq!(
                    (&told["stdout"], &told["stderr"], &told["return_code"]),
                    (
                        &json!("begun\n"),
                        &json!("ended by the sandbox: out of memory\n"),
                        &json!(137)
                    )
                );
            }
            Format::Gemini => {
                let output = told["output"].as_str().unwrap();
                assert_eq!(told["outcome"], "OUTCOME_FAILED");
                assert!(
                    output.starts_with("begun\nended by the sandbox: out of memory"),
                    "{output}"
                );
            }
            _ => assert_eq!(told["outcome"], json!({"type": "exit", "exit_code": 137})),
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}
