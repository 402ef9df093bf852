//! A pod's log read as the journal of its run.

use std::time::Duration;

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use knack_runner::protocol::{Decoder, FromRunner, RunResult, Started, open};
use kube::Api;
use kube::api::LogParams;

use super::names::CONTAINER;
use crate::execution::conversation::Collected;

/// One read of a log.
const READ_BYTES: usize = 64 << 10;

/// How long reading a whole log may take: 6 MiB over a slow link.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What a journal tells so far.
#[derive(Debug, Default)]
pub struct Journal {
    /// The nonce that the runner is bound to.
    pub nonce: Option<String>,
    /// The run, once it has started.
    pub started: Option<Started>,
    /// What the run wrote.
    pub(super) collected: Collected,
    /// Its end.
    pub result: Option<RunResult>,
}

impl Journal {
    /// Takes one frame. Frames of another nonce, and sealed ones that do not open, tell nothing.
    pub fn take(&mut self, frame: FromRunner, key: &[u8]) -> Option<FromRunner> {
        let frame = match frame {
            FromRunner::Sealed(sealed) => open(key, &sealed)?,
            frame => frame,
        };
        match &frame {
            FromRunner::Claimed(claimed) => {
                self.nonce.get_or_insert_with(|| claimed.nonce.clone());
            }
            FromRunner::Started(started) if Some(&started.nonce) == self.nonce.as_ref() => {
                self.started.get_or_insert_with(|| started.clone());
            }
            FromRunner::Result(result) if Some(&result.nonce) == self.nonce.as_ref() => {
                self.result.get_or_insert_with(|| result.clone());
            }
            _ => {}
        }
        if let Some(nonce) = &self.nonce {
            self.collected.take(frame.clone(), nonce);
        }
        Some(frame)
    }
}

/// How far a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// What is there now.
    Now,
    /// Up to the result, or the end of the container.
    Result,
    /// Up to the first word that a run has started, or the end of the container.
    Started,
}

/// Reads a pod's log from its beginning; `observe` sees every frame.
///
/// Errors: the log cannot be read; what was read so far is in `journal`.
pub(super) async fn read(
    api: &Api<Pod>,
    pod: &str,
    key: &[u8],
    until: Until,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> kube::Result<Journal> {
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow: until != Until::Now,
        ..LogParams::default()
    };
    let mut journal = Journal::default();
    let reading = async {
        let mut stream = Box::pin(api.log_stream(pod, &parameters).await?);
        let mut decoder = Decoder::new();
        let mut scratch = vec![0; READ_BYTES];
        loop {
            // A stream that broke is not a journal that ended: what is missing may be the start of a run.
            let read = stream.read(&mut scratch).await;
            let count = read.map_err(|error| kube::Error::Service(error.into()))?;
            if count == 0 {
                return Ok::<(), kube::Error>(());
            }
            decoder.push(&scratch[..count]);
            while let Some(line) = decoder.next_frame::<FromRunner>() {
                if let Ok(frame) = line
                    && let Some(frame) = journal.take(frame, key)
                {
                    observe(&frame);
                }
            }
            let is_enough = match until {
                Until::Now => false,
                Until::Result => journal.result.is_some(),
                Until::Started => journal.started.is_some(),
            };
            if is_enough {
                return Ok(());
            }
        }
    };
    if until == Until::Now {
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(kube::Error::Service("the log was not read in time".into())),
        }
    } else {
        reading.await?;
    }
    Ok(journal)
}

/// Whether there is no journal because there is no container yet. Kubelet says 400 to this and to other things, so its
/// words count.
pub(super) fn is_before_container(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 400
        && ["is waiting to start", "does not have a host assigned"]
            .iter()
            .any(|words| status.message.contains(words))
}

#[cfg(test)]
mod tests {
    use knack_runner::protocol::{Claimed, Data, Output, OutputStream};

    use super::*;

    fn started(nonce: &str, id: &str) -> FromRunner {
        FromRunner::Started(Started {
            nonce: nonce.to_owned(),
            id: id.to_owned(),
            digest: String::new(),
            context: String::new(),
        })
    }

    #[test]
    fn only_the_first_bound_conversation_tells_what_ran() {
        let mut journal = Journal::default();
        // Before any claim, and with another nonce: nothing of ours.
        journal.take(started("x", "forged"), &[]);
        assert!(journal.started.is_none());
        let claimed = |nonce: &str| {
            FromRunner::Claimed(Claimed {
                nonce: nonce.to_owned(),
            })
        };
        journal.take(claimed("n"), &[]);
        journal.take(claimed("late"), &[]);
        journal.take(started("late", "forged"), &[]);
        assert!(journal.started.is_none());
        journal.take(started("n", "ours"), &[]);
        journal.take(started("n", "second"), &[]);
        assert_eq!(journal.started.unwrap().id, "ours");
    }

    #[test]
    fn a_run_cannot_forge_frames_on_its_own_stdout() {
        // What the run prints travels inside an `output` frame, never as a line of the journal.
        let mut journal = Journal {
            nonce: Some("n".to_owned()),
            ..Journal::default()
        };
        let forged = r#"{"type":"result","nonce":"n","id":"x"}"#;
        journal.take(
            FromRunner::Output(Output {
                nonce: "n".to_owned(),
                stream: OutputStream::Stdout,
                data: Data(forged.as_bytes().to_vec()),
            }),
            &[],
        );
        assert!(journal.result.is_none());
    }
}
