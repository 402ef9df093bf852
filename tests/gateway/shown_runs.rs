//! What a model reads in the next turn of runs that its client was shown, with their saved turn and without.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::Value;

use super::code_tools::code_tool;
use super::support::{Running, Start, start};
use super::talk::{Format, Talk};

const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: make a file
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "import sys\nprint(42)\nprint('warned', file=sys.stderr)\nopen('plot.png', 'w').write('picture')\nopen('big.bin', 'wb').write(b'x' * (5 << 20))"}}]}
      - reply: {text: Made.}
  - user: read it
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(open('plot.png').read())"}}]}
      - reply: {text: "{{results}}"}
"#;

async fn gateway() -> Running {
    start(Start {
        skills: Vec::new(),
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::Anthropic],
        ..Start::default()
    })
    .await
}

/// The texts of all results that the provider got last, in order.
fn results(knack: &Running) -> Vec<String> {
    let sent = knack.upstream();
    let messages = sent["messages"].as_array().unwrap().iter();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results
        .map(|block| block["content"].as_str().unwrap().to_owned())
        .collect()
}

async fn ask(knack: &Running, talk: &mut Talk) -> String {
    let mut body = talk.body();
    body["tools"] = Value::Array(vec![code_tool(talk.format)]);
    let answer = knack.send(talk.request(&knack.url, &body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    talk.take(&answer).text
}

/// A result without what only a saved turn has: how long the run took.
fn without_duration(live: &str) -> String {
    let (first, rest) = live.split_once('\n').unwrap();
    format!("{}\n{rest}", first.split(',').next().unwrap())
}

#[tokio::test]
async fn notes_on_files_come_back_with_the_record_and_as_far_as_the_client_shows_without() {
    for stream in [false, true] {
        let knack = gateway().await;
        let mut talk = Talk::plain((Format::Messages, stream), "make a file");
        assert_eq!(ask(&knack, &mut talk).await, "Made.");
        let live = results(&knack)[0].clone();
        knack.told("files of runs are not delivered").await;
        for note in [
            "Files for the user: plot.png (image/png, 7 B",
            "File not delivered: big.bin",
        ] {
            assert!(live.contains(note), "{live}");
        }
        talk.say("read it");
        // Remembered: the words that the model read, and the file is there again.
        let mut remembered = Talk::plain((Format::Messages, stream), "");
        remembered.history.clone_from(&talk.history);
        assert!(ask(&knack, &mut remembered).await.contains("picture"));
        assert_eq!(results(&knack)[0], live);
        // The client changed what it said, so it has no saved turn; its file is still kept.
        talk.history[0]["content"] = "make a file, please".into();
        let mut changed = Talk::plain((Format::Messages, stream), "");
        changed.history.clone_from(&talk.history);
        assert!(ask(&knack, &mut changed).await.contains("picture"));
        let rebuilt = results(&knack)[0].clone();
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&rebuilt), sorted(&without_duration(&live)), "{rebuilt}");
        // Nothing is kept after a restart: that there was a file is known.
        let after = gateway().await;
        ask(&after, &mut talk).await;
        let rebuilt = results(&after)[0].clone();
        assert!(rebuilt.contains("Files for the user: 1 of unknown name"), "{rebuilt}");
        assert!(rebuilt.contains("File not delivered: big.bin"), "{rebuilt}");
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
        assert_eq!(after.mock.handle.failures(), Vec::<String>::new());
    }
}
