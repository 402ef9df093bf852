//! The steps of a new owner before it serves: it reads from the journals what ran, finishes what runs, and ends idle
//! pods.
//!
//! ```text
//! pod over               ─▶ its journal names a run ─▶ the outcome is known again
//! pod lives, run started ─▶ adopted: its journal is followed to the result
//! pod lives, no run      ─▶ ended while its journal is watched, and waited for
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use knack_execution::conversation::{CollectedFrames, DEADLINE_MARGIN, ExecutionRef, RunEnd, run_end};
use knack_execution::records::{Records, Run};
use knack_execution::{ExecutionError, ExecutionId, StartKind, now};
use knack_runner::protocol::RunResult;
use knack_vocabulary::{ANNOTATION_RESULT, LABEL_RUNTIME};
use kube::api::ListParams;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::term_services::TermServices;
use super::waiter_grace::leave_later;
use crate::jobs::cluster::journal::{self, Journal};
use crate::jobs::cluster::pod_facts::PodFacts;
use crate::jobs::cluster::{call, read_with_retries};
use crate::jobs::keys::Context;
use crate::jobs::pods::launch::Launcher;
use crate::jobs::pods::pod_index::PodState;
use crate::jobs::records::job_record::{self, PendingWrites};
use crate::jobs::records::lease_notes;
use crate::jobs::records::refused_executions::{self, PastExecutions};
use crate::jobs::resolved_runtime::ResolvedRuntime;
use crate::jobs::run::end_unstarted::end_unstarted;
use crate::jobs::run::settling_run::{SettlingRun, end_if_it_stays};
use crate::jobs::run::spool::{EventWriter, Spool};
use crate::jobs::settings::JobSettings;

/// Journals read at once: each is a connection to a kubelet, and may hold the largest result.
const READERS: usize = 16;
/// How long the logs of a takeover may take to open, together: as long as a kubelet or containerd takes to start. A dead
/// node never answers.
const OPEN_PATIENCE: Duration = Duration::from_secs(20);
/// How long one that is searched for later may take, whatever others have used.
const LATE_OPEN: Duration = Duration::from_secs(5);
/// The longest that the log of a pod that is over may take to be read, beside the margin of every run: a kubelet that is busy takes a while.
const OVER_PATIENCE: Duration = Duration::from_mins(2);
/// Between two tries.
const READ_RETRY: Duration = Duration::from_millis(500);
/// How long pods that are ended may take, together. A node that does not answer cannot confirm it; the Lease of the old owner has
/// expired, so no owner binds its pods.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The content of a pod's journal.
enum JournalContent {
    /// A run, by id and context.
    Run(Box<EarlierRun>),
    /// No run: the pod may go.
    Idle(PodFacts),
    /// A run that no caller of this hub can ask for: of a hub with another key.
    Foreign(PodFacts, ExecutionId),
    /// A pod that is gone, and its journal with it; and the time below which an unknown id may belong to its run: zero if there was
    /// none.
    Gone(PodFacts, Duration),
    /// Its journal cannot be read: it may have run anything.
    Unreadable(PodFacts),
}

/// A run of an earlier owner.
struct EarlierRun {
    facts: PodFacts,
    id: ExecutionId,
    context: Context,
    /// Its result, if its journal has it and there was memory for it.
    end: Option<(RunResult, CollectedFrames)>,
}

/// The pods of earlier owners, by what is to be done with them.
#[derive(Default)]
struct Takeover {
    /// The Jobs that stay: of runs that are known again, and of what may have run.
    kept: BTreeSet<String>,
    /// Pods to be ended, of which it is to be seen that they have run nothing.
    idle: Vec<PodFacts>,
    /// Pods to be ended, of which no more is to be seen: what they ran is refused.
    refused: Vec<PodFacts>,
    known: usize,
    unknown: usize,
}

/// Recovers; see the module. Returns when all idle pods are gone, or after about a minute where nodes do not answer. Running
/// executions continue in tasks that end with `term_ended`.
pub(super) async fn recover(
    services: &TermServices,
    resolved: &ResolvedRuntime,
    settings: &JobSettings,
    term_ended: &CancellationToken,
) {
    let (launcher, records) = (&services.launcher, &services.records);
    let adoption = Adoption {
        launcher: launcher.clone(),
        resolved: Arc::new(resolved.clone()),
        records: Arc::clone(records),
        unwritten: services.unwritten.clone(),
        orphan_grace: settings.orphan_grace,
        term_ended: term_ended.clone(),
        again: Arc::new(Semaphore::new(0)),
    };
    let mut pods: Vec<PodFacts> = launcher.index.all();
    // The records keep the results that come last, if not all of them have room.
    pods.sort_by_key(|facts| facts.created);
    // What an earlier owner ran before the oldest Job that is kept is unknown, and its ids may have been ahead of the clock.
    records.raise_floor(lease_notes::take_over(&launcher.cluster, resolved, now()).await);
    let seen = pods_by_job(&pods);
    let jobs = list_jobs(launcher, resolved).await;
    let past = past_of_jobs(jobs.as_deref(), &seen, settings.max_finished);
    refuse_past(records, &past);
    let open_until = Instant::now() + OPEN_PATIENCE;
    // Each result goes to the records before others are read: together they may be more than the process has memory for.
    let mut found = futures::stream::iter(pods)
        .map(|facts| read_pod(launcher, facts, open_until))
        .buffer_unordered(READERS);
    let mut takeover = Takeover {
        // Jobs with several pods are kept: what is known of one pod says nothing about the others.
        kept: seen
            .into_iter()
            .filter(|(_, pods)| *pods > 1)
            .map(|(job, _)| job)
            .collect(),
        ..Takeover::default()
    };
    takeover.kept.extend(past.jobs);
    let jobs: BTreeSet<String> = jobs.into_iter().flatten().filter_map(|job| job.metadata.name).collect();
    while let Some(found) = found.next().await {
        takeover.take(&adoption, found).await;
    }
    // Now the memory that all readers took is free.
    adoption.again.add_permits(1);
    let Takeover {
        kept,
        idle,
        refused,
        known,
        unknown,
    } = takeover;
    tracing::info!(runtime = %resolved.reference(), known, idle = idle.len(), unknown, "took over the runtime");
    let refused = refused.into_iter().map(|facts| end_refused(launcher, facts));
    let mut ending: Vec<_> = futures::stream::iter(refused).buffer_unordered(READERS).collect().await;
    let idle = idle.into_iter().map(|facts| end_idle(&adoption, &jobs, &kept, facts));
    let mut idle = futures::stream::iter(idle).buffer_unordered(READERS);
    while let Some(ended) = idle.next().await {
        ending.extend(ended);
    }
    let all_ended = ending.into_iter().map(|mut state| async move {
        let _ = state.wait_for(PodState::has_ended).await;
    });
    let _ = tokio::time::timeout(END_PATIENCE, futures::future::join_all(all_ended)).await;
    delete_leftover_jobs(launcher, resolved, &kept).await;
}

/// How many pods each Job has.
fn pods_by_job(pods: &[PodFacts]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for facts in pods {
        *counts.entry(facts.job.clone()).or_default() += 1;
    }
    counts
}

impl Takeover {
    /// Takes a pod with the content of its journal; a run is adopted, what may have run and is not known is refused. The Jobs of
    /// both stay, for the owner after this one.
    async fn take(&mut self, adoption: &Adoption, content: JournalContent) {
        let records = &adoption.records;
        match content {
            JournalContent::Run(run) => {
                self.known += 1;
                self.kept.insert(run.facts.job.clone());
                adoption.adopt(*run);
            }
            JournalContent::Idle(facts) if facts.has_ended() => {}
            JournalContent::Idle(facts) => self.idle.push(facts),
            JournalContent::Foreign(facts, id) => {
                tracing::warn!(%id, pod = %facts.name, "the journal of a run has another key than this hub's: the run's result is lost");
                records.refuse(id);
                if self.kept.insert(facts.job.clone()) {
                    // The pod goes, and the journal with it.
                    let cluster = &adoption.launcher.cluster;
                    job_record::name_execution(cluster, &adoption.resolved, &facts.job, id).await;
                }
                self.unknown += 1;
                self.refused.push(facts);
            }
            JournalContent::Gone(facts, floor) => {
                if !floor.is_zero() {
                    tracing::warn!(pod = %facts.name, "a pod is gone and its journal was not read; rejecting unknown execution ids");
                    records.raise_floor(floor);
                    self.kept.insert(facts.job);
                }
                self.unknown += 1;
            }
            JournalContent::Unreadable(facts) => {
                // It is unknown which execution it was: one that was requested before now is refused rather than run
                // twice.
                tracing::error!(pod = %facts.name, "a journal cannot be read; rejecting unknown execution ids");
                records.raise_floor(now());
                self.kept.insert(facts.job.clone());
                self.unknown += 1;
                self.refused.push(facts);
            }
        }
    }
}

/// Reads the journal of a pod; of one that is gone, what its Job says. Several of these run at once: an API server that does not
/// answer delays all of them together, not one after the other.
async fn read_pod(launcher: &Launcher, facts: PodFacts, open_until: Instant) -> JournalContent {
    match read_journal(launcher, facts, open_until).await {
        JournalContent::Gone(facts, _) => {
            let floor = floor_of(launcher, &facts).await;
            JournalContent::Gone(facts, floor)
        }
        content => content,
    }
}

/// Reads the journal of a pod, which may take until `open_until` to open. Of a pod that is gone its Job is not read: the time is zero.
async fn read_journal(launcher: &Launcher, facts: PodFacts, open_until: Instant) -> JournalContent {
    if facts.is_probe {
        return JournalContent::Idle(facts);
    }
    let open_until = open_until.max(Instant::now() + LATE_OPEN);
    loop {
        let journal = launcher.journal(&facts.uid);
        match journal::read_present(&launcher.cluster.pods, &facts.name, journal, open_until).await {
            Ok(journal) => return judge(launcher, facts, journal),
            // A pod that is there is without its log for a moment if its kubelet starts, and until it goes, too, if its Node
            // was deleted: it may have run, and may run yet.
            Err(error) if journal::is_not_found(&error) && !launcher.index.has(&facts) => {
                return JournalContent::Gone(facts, Duration::ZERO);
            }
            // No container yet: nothing has run.
            Err(error) if journal::is_before_container(&error) => return JournalContent::Idle(facts),
            Err(error) => {
                tracing::warn!(pod = %facts.name, %error, "a journal could not be read; retrying");
                if Instant::now() + READ_RETRY >= open_until {
                    return JournalContent::Unreadable(facts);
                }
                tokio::time::sleep(READ_RETRY).await;
            }
        }
    }
}

/// The time below which an unknown id may belong to the run of a pod that is gone and was not read. An owner that ends a pod that has run nothing
/// deletes its Job first, or the Job says so; a pod that is lost with its node, or deleted by others, leaves its Job.
async fn floor_of(launcher: &Launcher, gone: &PodFacts) -> Duration {
    match read_with_retries(|| launcher.cluster.jobs.get_metadata_opt(&gone.job)).await {
        Ok(None) => Duration::ZERO,
        Ok(Some(job)) if job_record::ran_nothing(job.metadata.annotations.as_ref()) => Duration::ZERO,
        Ok(Some(_)) => refused_executions::floor_of_gone(gone, now()),
        Err(error) => {
            tracing::warn!(job = %gone.job, %error, "the Job of a pod that is gone cannot be read");
            refused_executions::floor_of_gone(gone, now())
        }
    }
}

fn judge(launcher: &Launcher, facts: PodFacts, journal: Journal) -> JournalContent {
    let Some(started) = &journal.started else {
        return match journal.foreign_run.as_deref().map(str::parse) {
            Some(Ok(id)) => JournalContent::Foreign(facts, id),
            Some(Err(_)) => JournalContent::Unreadable(facts),
            // The missing part may have the line that says what has started.
            None if journal.is_damaged => JournalContent::Unreadable(facts),
            None => JournalContent::Idle(facts),
        };
    };
    let Ok(id) = started.id.parse() else {
        return JournalContent::Unreadable(facts);
    };
    match launcher.keys.open(&facts.uid, &started.context) {
        Some(context) => JournalContent::Run(Box::new(EarlierRun {
            facts,
            id,
            context,
            end: journal.result.map(|result| (result, journal.collected)),
        })),
        None => JournalContent::Foreign(facts, id),
    }
}

/// The executions that the Jobs of earlier owners record. `pods` were listed before the Jobs: a Job may have been deleted since,
/// with its pod.
fn past_of_jobs(jobs: Result<&[Job], &kube::Error>, pods: &BTreeMap<String, usize>, kept: usize) -> PastExecutions {
    match jobs {
        Ok(jobs) => PastExecutions::of(jobs, pods, kept, now()),
        Err(error) => {
            tracing::error!(%error, "the Jobs of the last owner cannot be listed; rejecting unknown execution ids");
            PastExecutions {
                floor: now(),
                ..PastExecutions::default()
            }
        }
    }
}

/// Refuses executions that only the Jobs of earlier owners record. A journal that records how one of them ended goes
/// first.
fn refuse_past(records: &Records, past: &PastExecutions) {
    if !past.floor.is_zero() {
        tracing::info!("pods of the last owner are gone; rejecting unknown execution ids from before they ended");
    }
    records.raise_floor(past.floor);
    for id in &past.ids {
        records.refuse(*id);
    }
}

async fn list_jobs(launcher: &Launcher, resolved: &ResolvedRuntime) -> kube::Result<Vec<Job>> {
    let parameters = ListParams::default().labels(&format!("{LABEL_RUNTIME}={}", resolved.name));
    Ok(read_with_retries(|| launcher.cluster.jobs.list(&parameters))
        .await?
        .items)
}

/// Makes runs of an earlier owner known again.
#[derive(Clone)]
struct Adoption {
    launcher: Launcher,
    resolved: Arc<ResolvedRuntime>,
    records: Arc<Records>,
    unwritten: PendingWrites,
    orphan_grace: Duration,
    term_ended: CancellationToken,
    /// The permit for a journal that is read once more because there was no memory for it beside others; none before
    /// all journals were read once.
    again: Arc<Semaphore>,
}

impl Adoption {
    /// Makes a run known; one that still runs is followed to its end.
    fn adopt(&self, known: EarlierRun) {
        let skill = known.context.skill.as_ref().map(|skill| skill.id.to_string());
        let Some((run, waiter)) = self.records.adopt(&known.context.caller, known.id, skill.as_deref()) else {
            tracing::error!(id = %known.id, pod = %known.facts.name, "two pods have started one execution");
            return;
        };
        run.start();
        // A run that is over takes nothing that a cancellation could free, and waits for its turn to be read: nobody need ask meanwhile.
        let kept = if known.facts.has_ended() {
            Some(waiter)
        } else {
            tokio::spawn(leave_later(waiter, self.orphan_grace.max(Duration::from_secs(1))));
            None
        };
        let finished = Box::pin(finish(self.clone(), run, known));
        self.unwritten.spawn(async move {
            finished.await;
            drop(kept);
        });
    }
}

/// Follows an adopted run to its end and writes its record.
async fn finish(adoption: Adoption, run: Run, known: EarlierRun) {
    let Adoption {
        launcher,
        resolved,
        term_ended,
        again,
        ..
    } = adoption;
    let EarlierRun {
        facts,
        id,
        context,
        end,
    } = known;
    let start = if context.is_warm {
        StartKind::Warm
    } else {
        StartKind::Cold
    };
    let reference = ExecutionRef {
        id,
        is_command: context.is_command,
    };
    let was_over = facts.has_ended();
    let cancel = run.cancel.clone();
    let outcome = if let Some((result, collected)) = end {
        if !was_over {
            let pod = launcher.index.pod_ref(&facts);
            tokio::spawn(end_if_it_stays(launcher.clone(), pod));
        }
        run_end(reference, &result, collected, start)
    } else {
        let pod = launcher.index.pod_ref(&facts);
        let determine = async {
            // The semaphore is never closed. The time for reading begins with the permit.
            let _turn = if was_over { again.acquire().await.ok() } else { None };
            let timeout = Duration::from_millis(context.timeout_ms);
            // What is over has only to be read: a log that opens no more must not keep the others waiting for the time of its run.
            let left = if was_over { timeout.min(OVER_PATIENCE) } else { timeout };
            let settling = SettlingRun {
                launcher: &launcher,
                pod: &pod,
                reference,
                start,
                timeout,
                deadline: Instant::now() + left + DEADLINE_MARGIN,
            };
            let mut events = EventWriter::new(Spool::new(launcher.results.clone()));
            Box::pin(settling.determine_end(true, &mut events)).await
        };
        tokio::select! {
            end = determine => end,
            () = cancel.cancelled() => {
                launcher.cluster.delete_pod(&pod.pod, &pod.uid).await;
                RunEnd::Failed(ExecutionError::Cancelled)
            }
            () = term_ended.cancelled() => RunEnd::Failed(ExecutionError::NotOwner { owner: None }),
        }
    };
    let outcome = match outcome {
        RunEnd::Ended(result) => Ok(Arc::new(result)),
        // Its journal says that it started.
        RunEnd::Failed(error) | RunEnd::NotStarted(error) => Err(error),
    };
    let is_ours = !matches!(outcome, Err(ExecutionError::NotOwner { .. }));
    // A record of it says the same, whoever wrote it: what became of a run that was read from its journal.
    let is_certain = outcome.is_ok();
    let summary = job_record::Summary::of(&outcome);
    run.finish(now(), outcome);
    if is_ours && !(was_over && has_record(&launcher, &facts.job, is_certain).await) {
        let reference = job_record::JobExecution {
            id,
            skill: context.skill,
        };
        job_record::write(&launcher.cluster, &resolved, &facts.job, &reference, &summary).await;
    }
}

/// Whether a Job has its record. Where that cannot be read, one is written again if it `is_certain`, and else none is replaced.
async fn has_record(launcher: &Launcher, job: &str, is_certain: bool) -> bool {
    match call(launcher.cluster.jobs.get_metadata_opt(job)).await {
        Ok(Some(job)) => {
            let annotations = job.metadata.annotations;
            annotations.is_some_and(|annotations| annotations.contains_key(ANNOTATION_RESULT))
        }
        Ok(None) => false,
        Err(error) => {
            tracing::warn!(%job, %error, is_certain, "the Job of a run cannot be read: whether it holds the record of the run is unknown");
            !is_certain
        }
    }
}

/// Ends a pod whose run is refused. Its Job stays.
async fn end_refused(launcher: &Launcher, facts: PodFacts) -> watch::Receiver<PodState> {
    let state = launcher.index.pod_ref(&facts).state;
    launcher.cluster.delete_pod(&facts.name, &facts.uid).await;
    state
}

/// Ends a pod that has run nothing; if it starts something at the last moment, that counts. Its Job goes with it, unless it is one
/// of those that are `kept`. `jobs`: those that the takeover found. `None`: it is adopted.
async fn end_idle(
    adoption: &Adoption,
    jobs: &BTreeSet<String>,
    kept: &BTreeSet<String>,
    facts: PodFacts,
) -> Option<watch::Receiver<PodState>> {
    let Adoption { launcher, records, .. } = adoption;
    let pod = launcher.index.pod_ref(&facts);
    let state = pod.state.clone();
    let keeps_job = kept.contains(&facts.job);
    if facts.node.is_some() && !facts.is_probe {
        // How the run ended says only whether a run began; the journal says which one, while it exists.
        if let RunEnd::Failed(_) = end_unstarted(launcher, &pod, keeps_job).await {
            match read_journal(launcher, facts.clone(), Instant::now()).await {
                JournalContent::Run(run) => {
                    adoption.adopt(*run);
                    return None;
                }
                JournalContent::Foreign(_, id) => records.refuse(id),
                JournalContent::Idle(_) => {}
                // The owner before was ending it: a pod whose Job it has deleted is given no run, and there was none.
                JournalContent::Gone(..) | JournalContent::Unreadable(_) if !jobs.contains(&facts.job) => {}
                JournalContent::Gone(..) | JournalContent::Unreadable(_) => {
                    tracing::warn!(pod = %facts.name, "cannot tell whether a terminated pod started a run; rejecting unknown execution ids");
                    records.raise_floor(now());
                }
            }
        }
    }
    // For pods without a node and probes, and once more for the others: a Job that stays would refuse ids at the next owner.
    if keeps_job {
        launcher.cluster.delete_pod(&facts.name, &facts.uid).await;
    } else {
        launcher.cluster.delete_job(&facts.job).await;
    }
    Some(state)
}

/// Jobs whose pod did not exist yet when the old owner ended: it may exist by now, and no owner would ever bind it.
async fn delete_leftover_jobs(launcher: &Launcher, resolved: &ResolvedRuntime, kept: &BTreeSet<String>) {
    let jobs = match list_jobs(launcher, resolved).await {
        Ok(jobs) => jobs,
        Err(error) => {
            tracing::warn!(%error, "the Jobs of the last owner cannot be listed");
            return;
        }
    };
    let is_finished = |job: &Job| {
        job.status.as_ref().is_some_and(|status| {
            status.succeeded.unwrap_or(0) > 0 || status.failed.unwrap_or(0) > 0 || status.completion_time.is_some()
        })
    };
    let leftover = jobs.into_iter().filter(|job| !is_finished(job)).filter_map(|job| {
        let name = job.metadata.name?;
        (!kept.contains(&name)).then_some(name)
    });
    for job in leftover {
        launcher.cluster.delete_job(&job).await;
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
pub(in crate::jobs) mod tests;
