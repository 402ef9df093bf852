//! A run whose container the kernel ended for memory. On nodes with cgroup v2 it always ends the runner too, and on others it may:
//! the runner cannot report the end of the run then, and its journal and the pod tell it.

use std::time::Duration;

use knack_execution::conversation::{ExecutionRef, RunEnd};
use knack_execution::{Exit, StartKind};

use super::journal::Journal;
use super::pod_facts::{ContainerFacts, PodFacts};

/// Kubernetes' reason for the end of a container in which the kernel has killed for memory.
pub(super) const REASON: &str = "OOMKilled";

/// The end of a run whose container is over and whose journal has no result: a result like that of any other program over its
/// memory, with what it had printed. `None`: the container ended otherwise, or the journal does not show that this run began, and all of
/// it.
pub(in crate::jobs) fn end(
    facts: &PodFacts,
    journal: Journal,
    reference: ExecutionRef,
    start: StartKind,
) -> Option<RunEnd> {
    let is_by_memory = matches!(&facts.container, ContainerFacts::Terminated { cause, .. } if cause.reason == REASON);
    if !is_by_memory {
        return None;
    }
    let result = journal.without_result(reference, Exit::OutOfMemory, ran(facts, reference), start);
    result.map(RunEnd::Ended)
}

/// How long it ran, to the second: from the request, or from the start of its container if that came later, to the container's end.
fn ran(facts: &PodFacts, reference: ExecutionRef) -> Duration {
    let Some((begun, ended)) = facts.container_times else {
        return Duration::ZERO;
    };
    let seconds = |time: i64| Duration::from_secs(u64::try_from(time).unwrap_or(0));
    seconds(ended).saturating_sub(reference.id.time().max(seconds(begun)))
}

#[cfg(test)]
mod tests {
    use knack_execution::conversation::CollectedFrames;
    use knack_execution::{ExecutionId, ExecutionResult};
    use knack_runner::protocol::{Data, FromRunner, Key, Output, OutputStream, RunnerLink};

    use super::*;
    use crate::jobs::cluster::journal::tests::started;
    use crate::jobs::cluster::pod_facts::{Cause, Phase};

    const OURS: Key = Key::new([1; 32]);

    fn ended(reason: &str) -> PodFacts {
        PodFacts {
            phase: Phase::Failed,
            container: ContainerFacts::Terminated {
                cause: Cause {
                    reason: reason.to_owned(),
                    message: String::new(),
                },
                exit_code: 137,
            },
            container_times: Some((1_000, 1_040)),
            ..PodFacts::default()
        }
    }

    /// The journal of a run of `id` that printed a word and has no result.
    fn journal(id: ExecutionId, link: &mut RunnerLink) -> Journal {
        let mut journal = Journal::new(&OURS, CollectedFrames::default());
        journal.take(&link.encode(&started(&id.to_string())));
        journal.take(&link.encode(&FromRunner::Output(Output {
            stream: OutputStream::Stdout,
            data: Data(b"so far\n".to_vec()),
        })));
        journal
    }

    fn reference(seconds: u64) -> ExecutionRef {
        ExecutionRef {
            id: ExecutionId::new(Duration::from_secs(seconds), "request", 0, "call"),
            is_command: false,
        }
    }

    fn result_of(facts: &PodFacts, journal: Journal, reference: ExecutionRef) -> Option<ExecutionResult> {
        match end(facts, journal, reference, StartKind::Warm)? {
            RunEnd::Ended(result) => Some(result),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_that_the_kernel_ended_with_its_runner_is_a_result_with_what_it_printed() {
        // Requests to a warm pod, whose container is older than the request, and to a cold one.
        for (requested, seconds) in [(1_030, 10), (990, 40)] {
            let reference = reference(requested);
            let journal = journal(reference.id, &mut RunnerLink::new(&OURS));
            let result = result_of(&ended(REASON), journal, reference).unwrap();
            assert_eq!((result.id, result.exit), (reference.id, Exit::OutOfMemory));
            assert_eq!(result.stdout.bytes, "so far\n");
            assert_eq!(result.timings.run, Duration::from_secs(seconds));
            assert_eq!(result.locks.landlock, "FullyEnforced");
        }
    }

    #[test]
    fn incomplete_or_foreign_journal_gives_no_result() {
        let (reference, other) = (reference(1_030), reference(1_031));
        let mut link = RunnerLink::new(&OURS);
        let whole = || journal(reference.id, &mut RunnerLink::new(&OURS));
        assert!(result_of(&ended("Error"), whole(), reference).is_none(), "another end");
        assert!(result_of(&ended(REASON), whole(), other).is_none(), "another run");
        let unstarted = Journal::new(&OURS, CollectedFrames::default());
        assert!(result_of(&ended(REASON), unstarted, reference).is_none(), "no run");
        let mut damaged = journal(reference.id, &mut link);
        drop(link.encode(&FromRunner::Restarted {}));
        damaged.take(&link.encode(&FromRunner::Restarted {}));
        assert!(damaged.is_damaged);
        assert!(
            result_of(&ended(REASON), damaged, reference).is_none(),
            "frames are missing"
        );
    }
}
