//! The lines of a run's answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use knack_hub_api::client::{HubClient, HubError, LineReader};
use knack_hub_api::{ExecutionFrame, HubRefusal, StreamName};

use super::support::{SOON, patiently};

/// Between two tries of a request whose connection failed.
const AGAIN: Duration = Duration::from_millis(100);

/// What the hub says to a run at once: its answer, or why there is none. A connection that a busy machine makes too late is made again:
/// the run has an id.
pub(crate) async fn posted(client: &HubClient, body: impl Into<Bytes>) -> Result<LineReader, HubRefusal> {
    let (body, begun) = (body.into(), Instant::now());
    loop {
        match client.hub().post_stream("/v1/executions", body.clone()).await {
            Ok(lines) => return Ok(lines),
            Err(HubError::Refused(refusal)) => return Err(refusal),
            Err(error) => assert!(error.is_transient() && begun.elapsed() < SOON, "{error:?}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The answer of a run that must be accepted: a hub, or an API server, that is busy is asked again.
pub(crate) async fn accepted(client: &HubClient, body: impl Into<Bytes>) -> LineReader {
    let body = body.into();
    let asked = patiently(async || client.hub().post_stream("/v1/executions", body.clone()).await);
    asked.await.unwrap()
}

/// Reads an execution's answer until its program has printed something. Panics if it ends before.
pub(crate) async fn until_it_prints(lines: &mut LineReader) {
    loop {
        match lines.next_value::<ExecutionFrame>().await.unwrap() {
            Some(ExecutionFrame::Output(output)) if output.stream == StreamName::Stdout => return,
            Some(ExecutionFrame::Error(refusal)) => panic!("{refusal}"),
            Some(_) => {}
            None => panic!("the answer ended before the run began"),
        }
    }
}

/// Reads an execution's answer up to its end; what it printed. Panics if it ends otherwise.
pub(crate) async fn printed(lines: &mut LineReader) -> String {
    while let Some(frame) = lines.next_value::<ExecutionFrame>().await.unwrap() {
        match frame {
            ExecutionFrame::Result(result) => return String::from_utf8_lossy(&result.stdout.0).into_owned(),
            ExecutionFrame::Error(refusal) => panic!("{refusal}"),
            _ => {}
        }
    }
    panic!("the answer ended before the result");
}
