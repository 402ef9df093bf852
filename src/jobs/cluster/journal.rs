//! A pod's log read as the journal of its run.

use std::time::Duration;

use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use knack_execution::conversation::{CollectedFrames, ExecutionRef, lock_report, timings};
use knack_execution::{ExecutionError, ExecutionResult, Exit, StartKind};
use knack_runner::protocol::{Decoder, FromRunner, Incoming, Key, Reader, RunResult, Started};
use kube::Api;
use kube::api::LogParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::jobs::names::CONTAINER;

/// One read of a log.
const READ_BYTES: usize = 64 << 10;

/// How long reading a whole log may take: 6 MiB over a slow link.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of a run, from the part of its journal that was read.
#[derive(Debug)]
pub struct Journal {
    reader: Reader,
    /// The runner has an owner with this hub's key.
    pub is_bound: bool,
    /// The run, once it has started.
    pub started: Option<Started>,
    /// The run's output.
    pub(in crate::jobs) collected: CollectedFrames,
    /// The end of the run.
    pub result: Option<RunResult>,
    /// More was written than a run may write, or than there is memory for: nothing after it counts.
    pub(in crate::jobs) violation: Option<ExecutionError>,
    /// Frames are missing, at the beginning or in between, and their content is unknown.
    pub is_damaged: bool,
    /// The run, as reported by a runner that has another key than this hub's: of a hub with another secret, or of a client
    /// that bound the runner before this hub did.
    pub foreign_run: Option<String>,
}

impl Journal {
    /// The journal of a runner with this key, whose output goes to `collected`.
    #[must_use]
    pub fn new(key: &Key, collected: CollectedFrames) -> Self {
        Self {
            reader: Reader::of_log(key),
            is_bound: false,
            started: None,
            collected,
            result: None,
            violation: None,
            is_damaged: false,
            foreign_run: None,
        }
    }

    /// Whether a run has started, or may have in frames that are missing.
    pub(in crate::jobs) const fn may_have_started(&self) -> bool {
        self.started.is_some() || self.is_damaged || self.foreign_run.is_some()
    }

    /// Whether more of it may come.
    pub(in crate::jobs) const fn is_without_end(&self) -> bool {
        self.result.is_none() && self.violation.is_none()
    }

    /// The run as far as the journal shows it, where it ended with its pod: `exit` says how, after how long. `None`: the journal does not
    /// show that this run began, and all of it.
    pub(in crate::jobs) fn without_result(
        self,
        reference: ExecutionRef,
        exit: Exit,
        ran: Duration,
        start: StartKind,
    ) -> Option<ExecutionResult> {
        if self.is_damaged || self.foreign_run.is_some() {
            return None;
        }
        let started = self.started.filter(|started| started.id == reference.id.to_string())?;
        Some(self.collected.into_result(
            reference.id,
            exit,
            [false, false],
            timings(ran, start),
            lock_report(started.locks),
        ))
    }

    /// Takes one line. Only frames that the runner has made with the key count; of others it is remembered that a run
    /// was started.
    pub fn take(&mut self, line: &[u8]) -> Option<FromRunner> {
        let frame = match self.reader.read(line) {
            Incoming::Frame(frame) => frame,
            // The container was restarted: the log of the previous one is another file.
            Incoming::Gap { .. } | Incoming::Unproven(FromRunner::Restarted {}) => {
                self.is_damaged = true;
                return None;
            }
            Incoming::Unproven(FromRunner::Started(started)) => {
                self.foreign_run.get_or_insert(started.id);
                return None;
            }
            Incoming::Unproven(_) | Incoming::Nothing => return None,
        };
        if self.violation.is_some() {
            // Its report of its own end no longer counts.
            return None;
        }
        // Before the result is read: a result after an incomplete file is invalid.
        if let Err(error) = self.collected.take(frame.clone()) {
            self.violation = Some(error);
            self.is_damaged = true;
            return None;
        }
        match &frame {
            FromRunner::Bound(_) => self.is_bound = true,
            FromRunner::Started(started) => {
                self.started.get_or_insert_with(|| started.clone());
            }
            FromRunner::Result(result) => {
                self.result.get_or_insert_with(|| result.clone());
            }
            _ => {}
        }
        Some(frame)
    }
}

/// The extent of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jobs) enum ReadExtent {
    /// The present log.
    Now,
    /// Up to the result, or the end of the container.
    Result,
    /// Up to the first frame that says that a run has started, or the end of the container.
    Started,
}

/// Reads a pod's log from its beginning into `journal`; `observe` sees every frame.
///
/// Errors: the log cannot be read.
pub(in crate::jobs) async fn read(
    api: &Api<Pod>,
    pod: &str,
    journal: Journal,
    until: ReadExtent,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> kube::Result<Journal> {
    read_opened(api, pod, journal, until, &|| {}, observe).await
}

/// Reads what a pod's log has now. Errors: it cannot be read, or the kubelet has not answered at `open_until`.
pub(in crate::jobs) async fn read_present(
    api: &Api<Pod>,
    pod: &str,
    journal: Journal,
    open_until: Instant,
) -> kube::Result<Journal> {
    let is_open = CancellationToken::new();
    let (opened, mut ignore) = (|| is_open.cancel(), |_: &FromRunner| {});
    let reading = read_opened(api, pod, journal, ReadExtent::Now, &opened, &mut ignore);
    let is_late = async {
        tokio::time::sleep_until(open_until).await;
        if is_open.is_cancelled() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        read = reading => read,
        () = is_late => Err(kube::Error::Service("the kubelet has not opened the log in time".into())),
    }
}

/// Reads a log as [`read`] does, and calls `opened` when the kubelet has answered: from then on the log is read to its end, also of a pod that
/// is deleted.
pub(in crate::jobs) async fn read_opened(
    api: &Api<Pod>,
    pod: &str,
    mut journal: Journal,
    until: ReadExtent,
    opened: &(dyn Fn() + Sync),
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> kube::Result<Journal> {
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow: until != ReadExtent::Now,
        ..LogParams::default()
    };
    let reading = async {
        let mut stream = Box::pin(api.log_stream(pod, &parameters).await?);
        opened();
        let mut decoder = Decoder::new();
        let mut scratch = vec![0; READ_BYTES];
        loop {
            // A broken stream is not the end of a journal: the start of a run may be missing.
            let read = stream.read(&mut scratch).await;
            let count = read.map_err(|error| kube::Error::Service(error.into()))?;
            if count == 0 {
                return Ok::<(), kube::Error>(());
            }
            decoder.push(&scratch[..count]);
            while let Some(line) = decoder.next_line() {
                if let Ok(line) = line
                    && let Some(frame) = journal.take(line)
                {
                    observe(&frame);
                }
            }
            let is_enough = match until {
                ReadExtent::Now => false,
                ReadExtent::Result => journal.result.is_some() || journal.violation.is_some(),
                ReadExtent::Started => journal.may_have_started(),
            };
            if is_enough {
                return Ok(());
            }
        }
    };
    if until == ReadExtent::Now {
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(kube::Error::Service("the log was not read in time".into())),
        }
    } else {
        reading.await?;
    }
    Ok(journal)
}

/// Whether there is no such pod any more, and no journal of it.
pub(in crate::jobs) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether there is no journal because there is no container yet. The kubelet answers 400 to this and to other things,
/// so its text decides.
pub(in crate::jobs) fn is_before_container(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 400
        && ["is waiting to start", "does not have a host assigned"]
            .iter()
            .any(|words| status.message.contains(words))
}

#[cfg(test)]
pub(in crate::jobs) mod tests {
    use knack_memory::MemoryBudget;
    use knack_runner::fixture::mk_result;
    use knack_runner::protocol::{
        Data, Exit, LandlockState, Locks, Output, OutputStream, RunnerLink, WorkBound, encode,
    };

    use super::*;
    use crate::jobs::keys::{Context, Keys};

    const OURS: Key = Key::new([1; 32]);
    const THEIRS: Key = Key::new([2; 32]);

    /// The frame of a run that has begun.
    pub(in crate::jobs) fn started(id: &str) -> FromRunner {
        FromRunner::Started(Started {
            id: id.to_owned(),
            digest: String::new(),
            locks: Locks {
                seccomp: true,
                landlock: LandlockState::FullyEnforced,
                landlock_abi: 7,
                work: WorkBound::Outside,
            },
            context: String::new(),
        })
    }

    /// The journal of a run that has begun, in a pod of the owner before, whose hub has keys from the secret `[0; 32]`; `end`: and has
    /// ended.
    pub(in crate::jobs) fn written_journal(pod_uid: &str, id: &str, end: Option<Exit>) -> Vec<u8> {
        let keys = Keys::new([0; 32]);
        let context = Context {
            caller: "c".to_owned(),
            skill: None,
            is_command: true,
            is_warm: false,
            timeout_ms: 1000,
        };
        let mut begun = started(id);
        if let FromRunner::Started(started) = &mut begun {
            started.context = keys.seal(pod_uid, &context);
        }
        let mut link = RunnerLink::new(&keys.runner(pod_uid));
        let mut journal = link.encode(&begun);
        if let Some(exit) = end {
            journal.extend(link.encode(&FromRunner::Result(mk_result(id, exit))));
        }
        journal
    }

    #[test]
    fn only_frames_with_our_key_say_what_ran() {
        let (mut ours, mut theirs) = (RunnerLink::new(&OURS), RunnerLink::new(&THEIRS));
        let mut journal = Journal::new(&OURS, CollectedFrames::default());
        // A frame of another claimant, and one without any key.
        journal.take(&theirs.encode(&started("forged")));
        journal.take(&encode(&started("forged")));
        assert!(journal.started.is_none() && journal.may_have_started());
        assert_eq!(journal.foreign_run.as_deref(), Some("forged"));
        journal.take(&ours.encode(&started("ours")));
        journal.take(&ours.encode(&started("second")));
        assert_eq!(journal.started.unwrap().id, "ours");
        assert!(!journal.is_damaged);
    }

    #[test]
    fn a_journal_whose_beginning_is_gone_is_damaged() {
        let mut runner = RunnerLink::new(&OURS);
        drop(runner.encode(&started("rotated away")));
        let mut journal = Journal::new(&OURS, CollectedFrames::default());
        journal.take(&runner.encode(&started("later")));
        assert!(journal.is_damaged && journal.started.is_none());
    }

    #[test]
    fn the_log_of_a_container_that_was_started_again_proves_nothing() {
        let mut journal = Journal::new(&OURS, CollectedFrames::default());
        assert!(!journal.may_have_started());
        journal.take(&encode(&FromRunner::Restarted {}));
        assert!(journal.may_have_started() && journal.started.is_none());
    }

    #[test]
    fn a_run_cannot_forge_frames_on_its_own_stdout() {
        // Output of the run is inside an `output` frame, never a line of the journal.
        let mut runner = RunnerLink::new(&OURS);
        let mut journal = Journal::new(&OURS, CollectedFrames::default());
        let forged = "{\"type\":\"result\",\"id\":\"x\"}\n";
        journal.take(&runner.encode(&FromRunner::Output(Output {
            stream: OutputStream::Stdout,
            data: Data(forged.as_bytes().to_vec()),
        })));
        assert!(journal.result.is_none());
    }

    #[test]
    fn a_journal_counts_in_the_memory_for_results_and_ends_where_there_is_none() {
        let memory = MemoryBudget::new(64 << 10);
        let mut runner = RunnerLink::new(&OURS);
        let mut journal = Journal::new(&OURS, CollectedFrames::of_unknown(Some(&memory)));
        let output = FromRunner::Output(Output {
            stream: OutputStream::Stdout,
            data: Data(vec![b'x'; 40 << 10]),
        });
        assert!(journal.take(&runner.encode(&started("run"))).is_some());
        assert!(journal.take(&runner.encode(&output)).is_some());
        assert_eq!(memory.held_bytes(), 40 << 10);
        assert!(journal.take(&runner.encode(&output)).is_none());
        assert!(journal.violation.is_some() && journal.started.is_some());
        drop(journal);
        assert_eq!(memory.held_bytes(), 0);
    }
}
