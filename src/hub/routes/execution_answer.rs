//! The answer to a run, as lines while it runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header;
use knack_execution::lines::{refusal_of_error, result_frames};
use knack_execution::{ExecutionError, ExecutionId, ExecutionResult, StartKind};
use knack_hub_api::{AcceptedFrame, Data, ExecutionFrame, HubRefusal, NDJSON, OutputFrame, PROTOCOL, StreamName};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::hub::metrics::{Metrics, RefusalLabels};
use crate::hub::trace::ExecutionTrace;
use crate::jobs::{Event, OutputStream};

/// How long the head of the answer is delayed: an error within this time is answered as an HTTP status; for a longer
/// run the stream begins and reports that the run goes on.
const HEAD_WAIT: Duration = Duration::from_millis(500);
/// A frame at least this often, so that a dead connection is known as one.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Why a request has no result.
pub(super) enum NoResult {
    /// It is not admitted.
    Refused(HubRefusal),
    /// Its execution ended without one, or is not known.
    Ended(ExecutionError),
}

/// Ends the wait for an execution when the answer is dropped; the execution continues for its grace period.
pub(super) struct AbortOnDrop(pub(super) JoinHandle<Result<Arc<ExecutionResult>, NoResult>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The answer to a run: its first frame decides about the status, the others are its body.
pub(super) struct RunAnswer {
    pub(super) id: ExecutionId,
    pub(super) live: bool,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) task: AbortOnDrop,
    pub(super) metrics: Arc<Metrics>,
    pub(super) runtime: String,
    pub(super) begun: Instant,
    pub(super) trace: ExecutionTrace,
    pub(super) stage: Stage,
}

/// The part of the answer that is due.
pub(super) enum Stage {
    /// The first line is due.
    Accepted,
    /// It runs.
    Running,
    /// The rest that is to be sent.
    Ending(Box<dyn Iterator<Item = ExecutionFrame> + Send>),
    /// Everything was sent.
    Over,
}

impl RunAnswer {
    /// The response, whose body ends with the execution. Errors: it was refused, or could not run, within [`HEAD_WAIT`].
    pub(super) async fn respond(mut self) -> Result<Response, HubRefusal> {
        let first = self.first().await?;
        let frames = futures::stream::unfold((self, first), |(mut answer, first)| async move {
            let bytes = match first {
                Some(bytes) => bytes,
                None => answer.next().await?,
            };
            Some((Ok::<_, Infallible>(bytes), (answer, None)))
        });
        Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(frames)).into_response())
    }

    /// Waits briefly for the beginning. An error that comes first is the answer's status.
    async fn first(&mut self) -> Result<Option<Bytes>, HubRefusal> {
        let ended = tokio::select! {
            biased;
            ended = &mut self.task.0 => ended,
            event = self.events.recv() => match event {
                Some(event) => return Ok(Some(self.opening(event))),
                None => (&mut self.task.0).await,
            },
            () = tokio::time::sleep(HEAD_WAIT) => return Ok(None),
        };
        match self.outcome(ended) {
            Ok(result) => {
                self.stage = Stage::Ending(Box::new(result_frames(result)));
                Ok(Some(line(&self.accepted())))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// `accepted`, and the first event with it.
    fn opening(&mut self, event: Event) -> Bytes {
        self.stage = Stage::Running;
        let mut bytes = line(&self.accepted()).to_vec();
        if let Some(frame) = self.frame(event) {
            bytes.extend_from_slice(&line(&frame));
        }
        bytes.into()
    }

    fn accepted(&self) -> ExecutionFrame {
        ExecutionFrame::Accepted(AcceptedFrame {
            protocol: PROTOCOL,
            id: self.id.to_string(),
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.stage {
                Stage::Accepted => {
                    self.stage = Stage::Running;
                    return Some(line(&self.accepted()));
                }
                Stage::Running => {
                    if let Some(frame) = self.running().await {
                        return Some(line(&frame));
                    }
                }
                Stage::Ending(frames) => match frames.next() {
                    Some(frame) => return Some(line(&frame)),
                    None => self.stage = Stage::Over,
                },
                Stage::Over => return None,
            }
        }
    }

    async fn running(&mut self) -> Option<ExecutionFrame> {
        let ended = tokio::select! {
            // Output that was written before the end is sent before the end.
            biased;
            Some(event) = self.events.recv() => return self.frame(event),
            ended = &mut self.task.0 => ended,
            () = tokio::time::sleep(PING_EVERY) => return Some(ExecutionFrame::Ping),
        };
        self.stage = match self.outcome(ended) {
            Ok(result) => Stage::Ending(Box::new(result_frames(result))),
            Err(refusal) => Stage::Ending(Box::new(std::iter::once(ExecutionFrame::Error(refusal)))),
        };
        None
    }

    fn frame(&self, event: Event) -> Option<ExecutionFrame> {
        let phase = |text: &str| Some(ExecutionFrame::Phase { phase: text.to_owned() });
        match event {
            Event::Output { stream, data } => self.live.then(|| {
                ExecutionFrame::Output(OutputFrame {
                    stream: match stream {
                        OutputStream::Stdout => StreamName::Stdout,
                        OutputStream::Stderr => StreamName::Stderr,
                    },
                    data: Data(data),
                })
            }),
            Event::Placed { start, note } => {
                let start = match start {
                    StartKind::Warm => "a warm sandbox is ready",
                    StartKind::Cold => "starting a sandbox",
                };
                match note {
                    Some(note) => phase(&format!("{start} ({note})")),
                    None => phase(start),
                }
            }
            Event::Progress(text) => phase(&text),
            Event::Started => phase("running"),
        }
    }

    fn outcome(
        &mut self,
        ended: Result<Result<Arc<ExecutionResult>, NoResult>, JoinError>,
    ) -> Result<Arc<ExecutionResult>, HubRefusal> {
        let outcome = match ended {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(NoResult::Ended(error))) => Err(error),
            Ok(Err(NoResult::Refused(refusal))) => {
                self.trace.refuse(refusal.code.as_str());
                // A refusal before the head is counted with its status.
                if matches!(self.stage, Stage::Running) {
                    self.metrics.refused(RefusalLabels {
                        route: "executions",
                        code: refusal.code.as_str(),
                    });
                }
                return Err(refusal);
            }
            Err(_) => Err(ExecutionError::Internal("the run was abandoned".to_owned())),
        };
        let status = match &outcome {
            Ok(result) => result.status().as_str(),
            Err(error) => error.metric_label(),
        };
        self.trace.end(outcome.as_deref());
        let seconds = self.begun.elapsed().as_secs_f64();
        self.metrics.executed(&self.runtime, status, seconds);
        tracing::info!(runtime = %self.runtime, execution = %self.id, status, seconds, "execution ended");
        outcome.map_err(|error| refusal_of_error(&error))
    }
}

fn line(frame: &ExecutionFrame) -> Bytes {
    // A frame is plain data: writing it cannot fail.
    let mut bytes = serde_json::to_vec(frame).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use knack_hub_api::RefusalCode;
    use knack_telemetry::Tracer;

    use super::*;

    /// The answer to a request that has this outcome after so long.
    fn answer(after: Duration, outcome: NoResult) -> RunAnswer {
        let (sender, events) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            drop(sender);
            Err(outcome)
        });
        let begun = Instant::now();
        RunAnswer {
            id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            live: false,
            events,
            task: AbortOnDrop(task),
            metrics: Arc::default(),
            runtime: "run/default".to_owned(),
            begun,
            trace: ExecutionTrace::begin(&Tracer::off(), &HeaderMap::new(), begun),
            stage: Stage::Accepted,
        }
    }

    /// A replica that takes a runtime over knows what it has run only at the end.
    #[tokio::test(start_paused = true)]
    async fn the_head_does_not_wait_for_a_takeover_or_for_content() {
        let refused = || HubRefusal::new(RefusalCode::NotFound, "gone");
        for (outcome, code) in [
            (NoResult::Refused(refused()), "not_found"),
            (NoResult::Ended(ExecutionError::NotOwner { owner: None }), "not_owner"),
        ] {
            let begun = Instant::now();
            let response = answer(Duration::from_secs(25), outcome).respond().await.unwrap();
            assert_eq!((response.status(), begun.elapsed()), (StatusCode::OK, HEAD_WAIT));
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&body)
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let text = format!("{lines:?}");
            assert!(
                text.contains("accepted") && text.contains("ping") && text.contains(code),
                "{text}"
            );
        }
        let quick = answer(HEAD_WAIT / 2, NoResult::Refused(refused())).respond().await;
        assert_eq!(quick.unwrap_err().code, RefusalCode::NotFound, "a status");
    }
}
