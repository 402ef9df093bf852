//! The first frames between an owner and a runner: `claim`, the protocol, and the locks that the runner reports.

use std::time::Duration;

use knack_execution::conversation::NO_LANDLOCK;
use knack_execution::{ClusterFailureKind, ExecutionError, LockReport};
use knack_runner::protocol::{FromRunner, Incoming, PROTOCOL, PROTOCOL_MIN, Ready, common_protocol};

use super::attach::Attachment;
use crate::jobs::cluster::failure::failure;

/// How long a runner may take to answer `claim`: it answers in a millisecond, on a node without CPU to give in seconds.
/// A container that dies meanwhile ends the stream, and its pod says why.
const BIND_TIMEOUT: Duration = Duration::from_secs(20);
/// When a `claim` without an answer is sent again, after it and after each that follows. containerd gives a container what an attacher
/// sends before it gives the attacher what the container answers (`ContainerIO.Attach`), so on a busy node the answer may be in
/// the log alone. A runner answers eight such frames.
const BIND_AGAIN: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// The error for a stream that ended between bind and run: kubelet or containerd went away. Another pod may be tried.
pub(in crate::jobs) const STREAM_ENDED: &str = "StreamEnded";

/// The error of a conversation whose stream ended before the run began.
pub(super) fn stream_ended(error: &ExecutionError) -> ExecutionError {
    let message = format!("before the run began: {error}");
    failure(ClusterFailureKind::ApiUnavailable, STREAM_ENDED, &message, false)
}

/// Sends `claim`, and again while there is no answer. `false`: the stream ended before anything came.
pub(super) async fn bind(attached: &mut Attachment) -> Result<bool, ExecutionError> {
    let mut pauses = BIND_AGAIN.iter();
    let conversation = async {
        loop {
            if attached.bind().await.is_err() {
                return Ok(false);
            }
            let answer = bound(attached);
            match pauses.next() {
                None => return answer.await,
                Some(pause) => {
                    if let Ok(answer) = tokio::time::timeout(*pause, answer).await {
                        return answer;
                    }
                }
            }
        }
    };
    tokio::time::timeout(BIND_TIMEOUT, conversation)
        .await
        .unwrap_or_else(|_| {
            Err(failure(
                ClusterFailureKind::RunnerTooOld,
                "NoAnswer",
                "the program in the container does not answer as knack-runner",
                false,
            ))
        })
}

/// Waits for the answer to `claim`. `false`: the stream ended. Cancel-safe.
async fn bound(attached: &mut Attachment) -> Result<bool, ExecutionError> {
    loop {
        match attached.receive().await {
            Ok(Incoming::Frame(FromRunner::Bound(_))) => return Ok(true),
            Ok(Incoming::Unproven(FromRunner::Bound(_))) => {
                return Err(failure(
                    ClusterFailureKind::ContainerFailed,
                    "ClaimedByAnother",
                    "another key than this hub's was sent to the runner first, as by another hub; its pod is not used",
                    false,
                ));
            }
            Ok(Incoming::Unproven(FromRunner::Ready(ready))) => check_version(&ready)?,
            // An old runner answers like this to a `claim` that it does not support.
            Ok(Incoming::Unproven(FromRunner::Rejected(rejected))) => {
                return Err(failure(
                    ClusterFailureKind::RunnerTooOld,
                    "Rejected",
                    &rejected.message,
                    false,
                ));
            }
            Ok(_) => {}
            Err(_) => return Ok(false),
        }
    }
}

/// Errors: this owner and the runner have no protocol in common.
fn check_version(ready: &Ready) -> Result<(), ExecutionError> {
    let spoken = ready.protocols();
    if common_protocol(&(PROTOCOL_MIN..=PROTOCOL), &spoken).is_some() {
        return Ok(());
    }
    Err(failure(
        ClusterFailureKind::RunnerTooOld,
        "ProtocolMismatch",
        &format!(
            "runner {} speaks protocol {} to {}, this knack {PROTOCOL_MIN} to {PROTOCOL}; use a sandbox image of \
             this release",
            ready.version,
            spoken.start(),
            spoken.end()
        ),
        false,
    ))
}

/// The required lock that a runner does not report, as a message; `None`: all are on.
pub(super) fn missing_lock(locks: Option<&LockReport>, requires_landlock: bool) -> Option<&'static str> {
    let Some(locks) = locks else {
        return Some("the runner does not report its locks; use a sandbox image of this release");
    };
    if !locks.seccomp {
        return Some("the runner reports no seccomp filter; use a sandbox image of this release");
    }
    (requires_landlock && locks.landlock == NO_LANDLOCK).then_some(
        "the node's kernel does not enforce Landlock and spec.sandbox.landlock is Required; use nodes with Linux 5.13 or later and lsm=landlock,...",
    )
}

#[cfg(test)]
mod tests {
    use knack_runner::protocol::{Bound, Key, LineRefusal, RunnerLink};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    /// A runner that answers each `claim`; the first `lost` answers reach nobody. Returns the outcome, and the frames that came.
    async fn bind_with_lost_answers(lost: usize) -> (Result<bool, ExecutionError>, usize) {
        let key = Key::new([7; 32]);
        let (stdin, of_runner) = tokio::io::duplex(4096);
        let (mut to_owner, stdout) = tokio::io::duplex(4096);
        let mut attached = Attachment::over(stdin, stdout, (), key.clone());
        let mut binds = 0;
        let runner = async {
            let mut link = RunnerLink::new(&key);
            let mut lines = BufReader::new(of_runner).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                assert!(
                    matches!(link.read(line.as_bytes()), Err(LineRefusal::Bind(_))),
                    "{line}"
                );
                let answer = link.line(&FromRunner::Bound(Bound {
                    protocol: PROTOCOL,
                    version: String::new(),
                }));
                link.sent();
                binds += 1;
                if binds > lost {
                    to_owner.write_all(&answer).await.unwrap();
                }
            }
        };
        let outcome = tokio::select! {
            outcome = bind(&mut attached) => outcome,
            () = runner => panic!("the owner is gone"),
        };
        (outcome, binds)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_lost_is_asked_for_again() {
        for lost in 0..=BIND_AGAIN.len() {
            let (outcome, binds) = bind_with_lost_answers(lost).await;
            assert_eq!((outcome, binds), (Ok(true), lost + 1));
        }
        let (outcome, binds) = bind_with_lost_answers(usize::MAX).await;
        let Err(ExecutionError::Cluster(failure)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((failure.reason.as_str(), binds), ("NoAnswer", BIND_AGAIN.len() + 1));
    }

    #[test]
    fn a_pod_without_a_promised_lock_is_not_used() {
        let report = |seccomp, landlock: &str| {
            Some(LockReport {
                seccomp,
                landlock: landlock.to_owned(),
                landlock_abi: 0,
            })
        };
        for (locks, required, refused) in [
            (None, false, Some("does not report")),
            (report(false, "FullyEnforced"), false, Some("no seccomp")),
            (report(true, "FullyEnforced"), true, None),
            (report(true, "PartiallyEnforced"), true, None),
            (report(true, "NotEnforced"), false, None),
            (report(true, "NotEnforced"), true, Some("Landlock")),
        ] {
            let found = missing_lock(locks.as_ref(), required);
            assert_eq!(found.is_some(), refused.is_some(), "{locks:?} {required}");
            assert!(
                found.unwrap_or_default().contains(refused.unwrap_or_default()),
                "{found:?}"
            );
        }
    }

    #[test]
    fn the_runner_of_another_protocol_is_refused_by_name() {
        let ready = |oldest, newest| Ready {
            protocol_min: oldest,
            protocol: newest,
            version: "0.0.9".to_owned(),
            locks: None,
        };
        for known in [
            ready(None, PROTOCOL),
            ready(Some(1), PROTOCOL_MIN),
            ready(Some(PROTOCOL), PROTOCOL + 9),
        ] {
            assert!(check_version(&known).is_ok(), "{known:?}");
        }
        for strange in [
            ready(None, PROTOCOL_MIN - 1),
            ready(None, PROTOCOL + 1),
            ready(Some(PROTOCOL + 1), PROTOCOL + 2),
            ready(Some(1), PROTOCOL_MIN - 1),
        ] {
            let error = check_version(&strange).unwrap_err();
            assert_eq!(error.metric_label(), "runner_too_old");
            assert!(error.to_string().contains("0.0.9"), "{error}");
        }
    }
}
