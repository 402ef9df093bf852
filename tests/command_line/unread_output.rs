//! Whoever should read the output of a process and does not, such as a terminal that is stopped, keeps no request waiting.

use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use super::gateway::Gateway;
use super::program::{Program, folder};
use super::saved_catalog::{chat, cluster, until};

/// Longest wait for one answer, or for a command: who waits for a reader would wait for ever.
const SOON: Duration = Duration::from_mins(5);
/// Lines of requests that no pipe holds (64 KiB), and that wait in memory.
const REQUESTS: usize = 1200;

#[tokio::test]
async fn a_terminal_that_is_stopped_keeps_no_request_waiting() {
    let folder = folder(&[("skills/a/SKILL.md", "---\nname: a\ndescription: A skill.\n---\nText.\n")]);
    let mut program = Program::start(folder, &["--upstream", "mock", "--no-local-executor"], &[]).await;
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    for number in 0..REQUESTS {
        let answer = tokio::time::timeout(SOON, program.post("/v1/chat/completions", &body, &[])).await;
        let text = answer.unwrap_or_else(|_| panic!("request {number} is not answered"));
        assert!(text.contains("chat.completion"), "{text}");
    }
    let mut of_requests = 0;
    while of_requests < REQUESTS {
        let line = program.line().await;
        assert!(!line.contains("were dropped"), "{line}");
        of_requests += usize::from(line.contains("gpt-x"));
    }
}

#[tokio::test]
async fn a_log_that_is_not_read_keeps_no_request_waiting() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    hub.start();
    let more = [("KNACK_LOG", "info")];
    let mut gateway = Gateway::logging(folder.path(), &model.url, &hub.url, &more, Stdio::piped());
    gateway.healthy().await;
    until("requests are taken", async || gateway.ready().await.0 == 200).await;
    for number in 0..REQUESTS {
        let answer = tokio::time::timeout(SOON, chat(&gateway)).await;
        answer.unwrap_or_else(|_| panic!("request {number} is not answered"));
    }
}

/// What a full disk cuts is no success; a reader that has seen enough is none of the command's business.
#[tokio::test]
async fn a_failed_write_of_the_output_is_an_error_of_the_command() {
    let skill = "---\nname: a\ndescription: A skill.\n---\nText.\n";
    let pod = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}]}\n";
    let folder = folder(&[
        ("a/SKILL.md", skill),
        ("pod.yaml", pod),
        ("t.py", "def t(a: int) -> int:\n    return a\n"),
    ]);
    for arguments in [
        &["inject", "-f", "pod.yaml"][..],
        &["skill", "import", "a"],
        &["skill", "validate", "a"],
        &["skill", "packages", "a"],
        &["skill", "schema", "t.py"],
        &["doctor"],
        &["skill", "run", "a", "--", "echo", "text"],
    ] {
        let run = |out: Stdio| {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_knack"));
            command
                .args(arguments)
                .current_dir(folder.path())
                .env("KNACK_RUNNER", super::runner::binary());
            command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
            tokio::time::timeout(SOON, command.spawn().unwrap().wait_with_output())
        };
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = run(full.into()).await.unwrap().unwrap();
        let told = super::err(&done);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(
            told.contains("error: standard output: No space left"),
            "{arguments:?}: {told}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = run(writer.into()).await.unwrap().unwrap();
        assert!(
            !super::err(&done).contains("standard output"),
            "{arguments:?}: {}",
            super::err(&done)
        );
    }
}
