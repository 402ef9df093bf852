//! Replicas of the hub that are killed: nothing is lost and nothing runs twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster_support::progress;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::beside;
use super::calls::Calls;
use super::journals::Journals;
use super::replicas::{Replicas, install};

/// Executions, of 2 to 8 s.
const EXECUTIONS: usize = 120;
/// Replicas killed; every other one is the owner.
const KILLS: usize = 6;
/// Executions answered from one kill to the next.
const ANSWERED_BETWEEN: usize = 12;
/// Executions in flight at any kill, at least.
const IN_FLIGHT: usize = 8;
/// Asked for at once: more than the runtime runs, so that some wait.
const CALLERS: usize = 24;
/// Runs of the runtime at once.
const MAX_RUNS: usize = 16;
/// How often the journals are looked at while a moment is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a container may be there before its run starts.
const STARTS_WITHIN: Duration = Duration::from_secs(5);
/// How long after the owner's halt a start that it had asked for may take to be in the journals: one that comes between the last look
/// before the kill and the first one after it takes the moment away. A Lease outlasts a few of these.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
/// How long the name of the owner is good for.
const OWNER_KNOWN_FOR: Duration = Duration::from_millis(250);

/// When a replica is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The owner, with a pod that it has bound and that has started nothing.
    BetweenBindAndRun,
    /// The owner, at any time.
    Owner,
    /// The other one.
    Other,
}

impl Moment {
    fn of(kill: usize) -> Self {
        match kill % 4 {
            0 => Self::BetweenBindAndRun,
            2 => Self::Owner,
            _ => Self::Other,
        }
    }
}

/// How long the execution of an index sleeps, seconds.
fn seconds(index: usize) -> u64 {
    2 + index as u64 % 7
}

/// Executions on their way at this moment: started and not answered, or in a container that has come just now.
fn in_flight(journals: &Journals, answered: &AtomicUsize) -> usize {
    let unanswered = journals
        .started()
        .count()
        .saturating_sub(answered.load(Ordering::Relaxed));
    unanswered + journals.starting(STARTS_WITHIN)
}

#[test]
fn killed_hubs_lose_nothing_and_double_nothing() {
    beside("killed_hubs_lose_nothing_and_double_nothing", async |cluster| {
        let spec = json!({
            "warmPool": {"replicas": 2}, "concurrency": {"maxRuns": MAX_RUNS, "maxQueued": 300, "queueTimeoutSeconds": 300},
            "sandbox": {"ttlSecondsAfterFinished": 3600, "maxTimeoutSeconds": 60},
        });
        let installation = install(cluster, spec).await;
        let mut journals = Journals::keep(cluster, &installation.run);
        let mut replicas = Replicas::start(&installation, 2).await;
        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let calls = Calls::new(&installation, installation.hub_client_at(&replicas.service.url, &token)).await;

        let begun = Instant::now();
        let places = Arc::new(Semaphore::new(CALLERS));
        let (mut asked, mut ids) = (JoinSet::new(), BTreeSet::new());
        let answered = Arc::new(AtomicUsize::new(0));
        for index in 0..EXECUTIONS {
            let request = calls.sleeper(
                f64::from(u32::try_from(seconds(index)).unwrap()),
                &format!("done {index}"),
            );
            ids.insert(request.id.to_string());
            let (places, calls, answered) = (Arc::clone(&places), calls.clone(), Arc::clone(&answered));
            asked.spawn(async move {
                let _place = places.acquire_owned().await.unwrap();
                let outcome = calls.text(request).await;
                let count = answered.fetch_add(1, Ordering::Relaxed) + 1;
                progress(format!("{count} of {EXECUTIONS} executions were answered"));
                (index, outcome)
            });
        }
        let mut between = 0;
        for kill in 0..KILLS {
            let moment = Moment::of(kill);
            let (victim, bound) = wait_for(moment, &mut journals, &answered, &replicas, kill).await;
            let alive = in_flight(&journals, &answered);
            replicas.kill(&victim);
            progress(format!("kill {kill} of {KILLS}"));
            journals.look();
            between += usize::from(!bound.is_disjoint(journals.bound()));
            println!(
                "{:>5.1} s: kill {kill}, {moment:?}, {alive} in flight, {} left",
                begun.elapsed().as_secs_f64(),
                EXECUTIONS - answered.load(Ordering::Relaxed)
            );
            replicas.add();
        }
        while let Some(ended) = asked.join_next().await {
            let (index, outcome) = ended.unwrap();
            assert_eq!(outcome, Ok(format!("done {index}\n")), "execution {index}");
        }
        println!("all ended after {:?}", begun.elapsed());
        let starts = journals.starts();
        let count = |of: &dyn Fn(usize) -> bool| {
            let of_id = |id: &&String| of(starts.get(*id).copied().unwrap_or(0));
            ids.iter().filter(of_id).count()
        };
        let (lost, doubled) = (count(&|starts| starts == 0), count(&|starts| starts > 1));
        println!(
            "{EXECUTIONS} executions, {KILLS} kills, {between} between claim and run: {lost} lost, {doubled} doubled"
        );
        assert_eq!((lost, doubled), (0, 0));
        let planned = (0..KILLS).filter(|kill| Moment::of(*kill) == Moment::BetweenBindAndRun);
        assert_eq!(between, planned.count(), "kills that met a pod between claim and run");
    });
}

/// Waits for a moment; returns who is to be killed, and the pods that its death leaves between bind and run (for the moment
/// of that name; the owner is halted then, so that it stays so).
async fn wait_for(
    moment: Moment,
    journals: &mut Journals,
    answered: &AtomicUsize,
    replicas: &Replicas<'_>,
    kill: usize,
) -> (String, BTreeSet<String>) {
    journals.look();
    let before = journals.bound().clone();
    let (mut owner, mut asked) = (None, Instant::now());
    loop {
        // Not at once: the answer takes as long as a pod is between bind and run.
        if owner.is_none() || asked.elapsed() > OWNER_KNOWN_FOR {
            (owner, asked) = (replicas.owner().await, Instant::now());
        }
        journals.look();
        let bound: BTreeSet<String> = journals.bound().difference(&before).cloned().collect();
        // Spread over all executions: between two kills some are answered.
        let is_due = answered.load(Ordering::Relaxed) >= kill * ANSWERED_BETWEEN;
        let is_busy = is_due && in_flight(journals, answered) >= IN_FLIGHT;
        let is_now = is_busy && (moment != Moment::BetweenBindAndRun || !bound.is_empty());
        if is_now && let Some(owner) = &owner {
            match moment {
                Moment::Owner => return (owner.clone(), BTreeSet::new()),
                Moment::Other => {
                    let other = replicas.addresses().into_iter().find(|address| address != owner);
                    return (other.unwrap(), BTreeSet::new());
                }
                Moment::BetweenBindAndRun => {
                    replicas.freeze(owner);
                    tokio::time::sleep(SETTLES_WITHIN).await;
                    journals.look();
                    let left: BTreeSet<String> = bound.intersection(journals.bound()).cloned().collect();
                    if !left.is_empty() {
                        return (owner.clone(), left);
                    }
                    replicas.resume(owner);
                }
            }
        }
        // The moment needs runs on their way: with the last answer it can come no more.
        assert!(
            answered.load(Ordering::Relaxed) < EXECUTIONS,
            "kill {kill}: {moment:?} did not come before all were answered; owner {owner:?}"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
