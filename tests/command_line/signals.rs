//! Signals to `knack dev`.

use super::dev::{FILES, hello};
use super::program::{Program, folder};

/// A person closes the terminal, or the connection to the machine breaks.
#[tokio::test]
async fn a_hangup_stops_it_unless_it_was_started_to_ignore_that() {
    let mut program = Program::start(folder(FILES), &["--upstream", "mock", "--no-local-executor"], &[]).await;
    program.send(rustix::process::Signal::HUP);
    if program.ignores_hangup() {
        assert_eq!(program.get("/healthz", &[]).await.status(), 200);
        program.signal();
    }
    assert!(program.line().await.starts_with("stopping"));
    assert_eq!(program.line().await, "stopped");
}

/// A person presses Ctrl-C again who does not want to wait for a model that is silent.
#[tokio::test]
async fn a_second_signal_cuts_off_what_is_still_running() {
    let script = "turns:\n  - rounds:\n      - reply: {text: never}\n        stream: {first_byte_ms: 120000}\n";
    let files = [FILES, &[("script.yaml", script)]].concat();
    let arguments = ["--upstream", "mock=script.yaml", "--no-local-executor"];
    let mut program = Program::start(folder(&files), &arguments, &[]).await;
    let mut body = hello();
    body["stream"] = true.into();
    let mut answer = program
        .client
        .post(format!("{}/v1/chat/completions", program.url))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    program.signal();
    assert!(program.line().await.starts_with("stopping"));
    let begun = std::time::Instant::now();
    program.stop().await;
    assert!(
        begun.elapsed() < std::time::Duration::from_mins(1),
        "{:?}",
        begun.elapsed()
    );
    // Its stream ends, too.
    while let Ok(Some(_)) = answer.chunk().await {}
}
