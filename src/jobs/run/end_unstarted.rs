//! The end of a pod that was bound and has not started: it is proven that nothing ran, or the run counts.

use std::time::Duration;

use knack_execution::ClusterFailureKind;
use knack_execution::conversation::RunEnd;
use knack_runner::protocol::FromRunner;
use tokio_util::sync::CancellationToken;

use crate::jobs::cluster::failure::failure;
use crate::jobs::cluster::journal::{self, ReadExtent};
use crate::jobs::pods::launch::Launcher;
use crate::jobs::pods::pod_index::{PodRef, PodState};

/// How long a deleted pod may take to end: a busy kubelet ends many one after another, and a pod whose end is not seen
/// costs a refusal.
const BURN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a pod that is ended waits for its journal to be open: a kubelet that is away must not keep it alive.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the watch may be behind a kubelet or an API server that no longer has the pod.
const GONE_PATIENCE: Duration = Duration::from_secs(5);
/// Between two reads of the journal of a pod that is being ended.
const BURN_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Ends a pod that was bound and has not started, while its journal is watched: if a run starts after all, it counts. Unless
/// it `keeps_job`, the Job goes before the pod: to the owner after this one, a Job whose pod is gone had a run that nobody knows.
pub(in crate::jobs) async fn end_unstarted(launcher: &Launcher, pod: &PodRef, keeps_job: bool) -> RunEnd {
    let watching = CancellationToken::new();
    let delete = async {
        // The journal is opened before the pod is deleted, or its end could be missed.
        let _ = tokio::time::timeout(OPEN_TIMEOUT, watching.cancelled()).await;
        if !keeps_job {
            launcher.cluster.delete_job(&pod.job).await;
        }
        launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
    };
    let watched = tokio::time::timeout(BURN_TIMEOUT, has_started(launcher, pod, &watching));
    let (has_started, ()) = tokio::join!(watched, delete);
    let failed = |kind, reason: &str, message: &str, may_have_run| failure(kind, reason, message, may_have_run);
    match has_started {
        Ok(Some(false)) => RunEnd::NotStarted(failed(
            ClusterFailureKind::ContainerFailed,
            "NotStarted",
            "the pod was bound but did not start the run; deleting it",
            false,
        )),
        Ok(Some(true)) => RunEnd::Failed(failed(
            ClusterFailureKind::PodDeleted,
            "Interrupted",
            "the run started while its pod was being deleted",
            true,
        )),
        Ok(None) | Err(_) => RunEnd::Failed(failed(
            ClusterFailureKind::ApiUnavailable,
            "JournalUnreadable",
            "could not determine from the pod whether the run started",
            true,
        )),
    }
}

/// Follows the journal of a pod that ends, up to the start of a run or the end of the container. A stream that ends
/// while the container lives (kubelet or containerd went away) proves nothing, and is opened again. `None`: the pod was
/// gone before its journal was read to the end. `watching` is cancelled as soon as nothing that the pod writes can be
/// missed.
async fn has_started(launcher: &Launcher, pod: &PodRef, watching: &CancellationToken) -> Option<bool> {
    let mut state = pod.state.clone();
    let mut last = FinalRead::Nothing;
    loop {
        // A run that ended before it is read has written everything.
        let had_ended = state.borrow_and_update().has_ended();
        let (opened, mut ignore) = (|| watching.cancel(), |_: &FromRunner| {});
        let pods = &launcher.cluster.pods;
        let journal = launcher.journal(&pod.uid);
        match journal::read_opened(pods, &pod.pod, journal, ReadExtent::Started, &opened, &mut ignore).await {
            Ok(journal) if journal.may_have_started() => return Some(true),
            Ok(_) if had_ended => return Some(false),
            Ok(_) => last = FinalRead::Read,
            // Gone; or its kubelet has just started, or its Node was deleted, and the pod is there: what it wrote since the last
            // read is unknown then.
            Err(error) if journal::is_not_found(&error) => {
                let gone = state.wait_for(|state| state.is_gone);
                if tokio::time::timeout(GONE_PATIENCE, gone).await.is_err() {
                    last = FinalRead::Nothing;
                }
            }
            // A container that has not been made has written nothing.
            Err(error) if journal::is_before_container(&error) => {
                last = FinalRead::NoContainer;
                watching.cancel();
            }
            // The kubelet answers that the container no longer exists: what was read to its end stays read.
            Err(kube::Error::Api(status)) if status.code < 500 => watching.cancel(),
            Err(_) => last = FinalRead::Nothing,
        }
        let ends = |state: &PodState| state.is_gone || (!had_ended && state.has_ended());
        let _ = tokio::time::timeout(BURN_POLL_INTERVAL, state.wait_for(ends)).await;
        if state.borrow().is_gone {
            return last.at_the_end(&state.borrow());
        }
    }
}

/// The result of the last read of the journal of a pod that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FinalRead {
    /// Nothing that can be relied on.
    Nothing,
    /// There was no container yet.
    NoContainer,
    /// No run, up to the end of the journal.
    Read,
}

impl FinalRead {
    /// Whether a run has started in a pod that is gone; `None`: unknown. The kubelet reports how the container ended
    /// before it removes a pod, so the last facts of one whose container was never created say that it has not started.
    fn at_the_end(self, state: &PodState) -> Option<bool> {
        let has_begun = state.facts.as_ref().is_none_or(|facts| facts.has_begun);
        let is_known = self == Self::Read || (self == Self::NoContainer && !has_begun);
        is_known.then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::cluster::pod_facts::PodFacts;

    #[test]
    fn a_pod_that_went_has_started_nothing_if_its_journal_or_its_last_status_says_so() {
        let begun = |has_begun| PodState {
            facts: Some(PodFacts {
                has_begun,
                ..PodFacts::default()
            }),
            is_gone: true,
        };
        for (last, state, expected) in [
            (FinalRead::Read, begun(true), Some(false)),
            (FinalRead::Read, begun(false), Some(false)),
            (FinalRead::NoContainer, begun(false), Some(false)),
            (FinalRead::NoContainer, begun(true), None),
            (FinalRead::NoContainer, PodState::default(), None),
            (FinalRead::Nothing, begun(false), None),
            (FinalRead::Nothing, begun(true), None),
        ] {
            assert_eq!(last.at_the_end(&state), expected, "{last:?} {state:?}");
        }
    }
}
