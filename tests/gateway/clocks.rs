//! A gateway whose request began by another clock than the one that judges its executions, and one whose client waits for a
//! time of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use knack_execution::{
    Capabilities, ExecutionError, ExecutionId, ExecutionRecord, ExecutionRequest, ExecutionResult, ExecutionStatus,
    Executor, now,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::observed::Observed;
use super::support::{Answer, LISTED, Start, start};
use super::talk::{Format, ROWS, Talk};

/// How far the first clock is ahead.
const AHEAD: Duration = Duration::from_mins(8);

/// An executor whose clock is known right only after its first answer, if ever, as that of a hub's replica.
#[derive(Debug)]
struct Replica {
    inner: Arc<Observed>,
    /// Whether its answers show its clock.
    shows: bool,
    has_answered: AtomicBool,
}

#[async_trait]
impl Executor for Replica {
    async fn execute(
        &self,
        request: ExecutionRequest,
        cancel: CancellationToken,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let result = self.inner.execute(request, cancel).await;
        self.has_answered.store(self.shows, Ordering::Relaxed);
        result
    }

    async fn get(&self, caller: &str, id: ExecutionId) -> Result<ExecutionRecord, ExecutionError> {
        self.inner.get(caller, id).await
    }

    async fn cancel(&self, caller: &str, id: ExecutionId) -> Result<(), ExecutionError> {
        self.inner.cancel(caller, id).await
    }

    fn now(&self) -> Duration {
        if self.has_answered.load(Ordering::Relaxed) {
            now()
        } else {
            now() + AHEAD
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

/// An id that was refused as ahead never ran: the call gets a new one by the clock that the refusal showed, once.
#[tokio::test]
async fn a_call_whose_id_is_ahead_of_the_executors_clock_runs_by_that_clock() {
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'print(6 * 7)'}}]}\n      - reply: {text: \"{{results}}\"}\n";
    for shows in [true, false] {
        let observed = Observed::new().await;
        let knack = start(Start {
            script: script.to_owned(),
            executor: Arc::new(Replica {
                inner: Arc::clone(&observed),
                shows,
                has_answered: AtomicBool::new(false),
            }),
            ..Start::default()
        })
        .await;
        let said = Talk::plain(ROWS[0], "go").hear(&knack).await.text;
        let asked = observed.requests();
        if shows {
            assert!(said.contains("42"), "{said}");
            assert_eq!(asked.len(), 2);
            let earlier = asked[0].id.time().saturating_sub(asked[1].id.time());
            assert!(earlier + Duration::from_mins(1) > AHEAD, "{earlier:?}");
        } else {
            assert!(said.contains("in the future; correct the clock"), "{said}");
            assert_eq!(asked.len(), 1, "nothing says that another id would be taken");
        }
    }
}

/// Seconds that a client waits, one after the other: on a busy machine the first may be over before the code has run.
const WAITS: [u64; 3] = [5, 20, 60];

/// A script whose last round takes longer than the client waits.
fn slow(seconds: u64) -> String {
    let script = r#"
turns:
  - rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}]}
      - stream: {head_ms: LONGER}
        reply: {text: "{{results}}"}
"#;
    script.replace("LONGER", &(1000 * (seconds + 1)).to_string())
}

/// A whole answer ends before its client gives up, which would ask again and run the loop once more. A stream has signs of
/// life, for which its client waits.
#[tokio::test]
async fn a_loop_ends_before_its_client_gives_up() {
    let ask = async |row: (Format, bool)| {
        let talk = Talk::plain(row, "go");
        let header = match row.0 {
            Format::Gemini => "x-server-timeout",
            _ => "x-stainless-timeout",
        };
        for seconds in WAITS {
            let observed = Observed::new().await;
            let knack = start(Start {
                script: slow(seconds),
                executor: Arc::clone(&observed) as Arc<dyn Executor>,
                ..Start::default()
            })
            .await;
            let request = talk.request(&knack.url, &talk.body()).header(header, seconds);
            let answer = knack.send(request).await;
            if row.1 {
                assert_eq!(answer.status, 200, "{}: {}", talk.row(), answer.text);
                assert!(answer.text.contains("42"), "{}: {}", talk.row(), answer.text);
                return;
            }
            assert_eq!(answer.status, 504, "{}: {}", talk.row(), answer.text);
            assert_eq!(answer.headers["x-should-retry"], "false", "{}", talk.row());
            if !observed.requests().is_empty() {
                return;
            }
        }
        panic!("{}: the code has never run", talk.row());
    };
    futures::future::join_all(ROWS.map(ask)).await;
}

/// A script whose run hangs.
const HANGS: &str = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'import time; time.sleep(1000)'}}]}\n      - reply: {text: \"{{results}}\"}\n";

/// Of whole answers the time that their client waits, of streams the runtime's deadline. The run may last for longer than both.
#[tokio::test]
async fn a_run_that_hangs_is_ended_by_the_deadline_with_an_error_of_the_format() {
    let check = async |row: (Format, bool)| {
        let talk = Talk::plain(row, "go");
        for seconds in WAITS {
            let deadline = if row.1 { seconds } else { 540 };
            let runtime = format!(
                "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: knack-dev}}\nspec: {{maxActivation: Always, maxRisk: Critical, sandbox: {{timeoutSeconds: 120}}, gateway: {{injection: {{deadlineSeconds: {deadline}}}}}}}\n"
            );
            let observed = Observed::new().await;
            let knack = start(Start {
                skills: vec![
                    ("listed/SKILL.md", LISTED),
                    ("listed/a.py", ""),
                    ("runtime.yaml", runtime.leak()),
                ],
                script: HANGS.to_owned(),
                executor: Arc::clone(&observed) as Arc<dyn Executor>,
                ..Start::default()
            })
            .await;
            let header = match row.0 {
                Format::Gemini => "x-server-timeout",
                _ => "x-stainless-timeout",
            };
            let mut request = talk.request(&knack.url, &talk.body());
            if !row.1 {
                request = request.header(header, seconds);
            }
            let answer = knack.send(request).await;
            if observed.requests().is_empty() {
                continue;
            }
            is_deadline(&talk, &answer);
            let run = observed.requests().remove(0);
            // What is cancelled is an error, what reaches its own limit a timeout. One that was never begun says nothing.
            let Some(ended) = observed.ended(&run).await else {
                continue;
            };
            assert_eq!(ended, ExecutionStatus::Error, "{}", talk.row());
            return;
        }
        panic!("{}: the code has never run", talk.row());
    };
    futures::future::join_all(ROWS.map(check)).await;
}

/// Whether an answer ends with the format's error about the deadline.
fn is_deadline(talk: &Talk, answer: &Answer) {
    let at = format!("{}: {}", talk.row(), answer.text);
    assert_eq!(answer.status, if talk.stream { 200 } else { 504 }, "{at}");
    let last = talk.values(answer).pop().unwrap();
    let error = &last["error"];
    assert!(error["message"].as_str().unwrap().contains("deadline"), "{at}");
    match talk.format {
        Format::Chat | Format::Responses => assert_eq!(error["type"], "server_error", "{at}"),
        Format::Messages => assert!(last["type"] == "error" && error["type"].is_string(), "{at}"),
        Format::Gemini => assert_eq!(
            (&error["code"], &error["status"]),
            (&json!(504), &json!("DEADLINE_EXCEEDED")),
            "{at}"
        ),
    }
    if !talk.stream {
        assert_eq!(answer.headers["x-should-retry"], "false", "{at}");
    }
}
