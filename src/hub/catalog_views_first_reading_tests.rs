//! The start of a replica: which content it waits for.

use super::*;
use crate::cluster_reader::watch::WatchSettings;
use crate::hub::start::{self, Start};

/// The start of a replica for the Skills and runtimes that the cluster has.
fn start(cluster: &Cluster, packages: bool) -> Start {
    let watching = WatchSettings {
        packages,
        ..WatchSettings::default()
    };
    start_watching(cluster, &watching)
}

fn start_watching(cluster: &Cluster, watching: &WatchSettings) -> Start {
    let (start, reading) = start::begin(&cluster.shared, cluster.artifacts.clone(), watching);
    tokio::spawn(reading);
    start
}

/// The end of the first lists.
fn listed(cluster: &Cluster, skills: &[Skill]) {
    let runtimes: Vec<SkillRuntime> = cluster.shared.read(|cluster_state| {
        let runtimes = cluster_state.runtimes.iter();
        runtimes.map(|runtime| (**runtime).clone()).collect()
    });
    cluster
        .shared
        .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Init));
    for runtime in runtimes {
        cluster
            .shared
            .write(|cluster_state| cluster_state.runtimes.apply(None, Event::InitApply(runtime)));
    }
    cluster
        .shared
        .write(|cluster_state| cluster_state.runtimes.apply(None, Event::InitDone));
    cluster
        .shared
        .write(|cluster_state| cluster_state.take_namespace::<ConfigMap>(Event::InitDone));
    cluster.take(Event::Init);
    for skill in skills {
        cluster.take(Event::InitApply(skill.clone()));
    }
    cluster.take(Event::InitDone);
}

/// Whether a replica goes on with its start while nothing happens.
async fn starts_still(start: &Start) -> bool {
    let over = tokio::time::timeout(std::time::Duration::from_millis(300), start.over());
    over.await.is_err() && start.waiting_for().is_some()
}

#[tokio::test]
async fn a_replica_has_not_started_before_it_has_the_content_of_the_listed_skills() {
    let cluster = Cluster::start().await;
    let started = start(&cluster, false);
    assert_eq!(started.waiting_for(), Some("Skills"));
    cluster.silent.send_replace(true);
    let skill = cluster.deliver("a", "one", &json!({}));
    listed(&cluster, &[skill]);
    assert!(starts_still(&started).await, "its catalog would lack a skill");
    cluster.silent.send_replace(false);
    started.over().await;
    assert_eq!(started.waiting_for(), None);
    assert_eq!(cluster.view(None).skills.len(), 1);
    // What comes later is served once it is read, and delays nobody.
    cluster.silent.send_replace(true);
    let later = cluster.deliver("b", "two", &json!({}));
    cluster.take(Event::Apply(later));
    assert_eq!(started.waiting_for(), None);
}

/// Views are read before a start is over, by requests for content. The one that the first catalog is made of is newer
/// than these: a start is not over between the moment that content is known and the note that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn start_ends_after_views_have_the_last_content() {
    let cluster = Cluster::start().await;
    cluster.silent.send_replace(true);
    let skill = cluster.deliver("a", "one", &json!({}));
    let wanted = ServedRevision::of(&skill).unwrap();
    cluster.take(Event::Apply(skill.clone()));
    assert!(cluster.view(None).skills.is_empty(), "read too early");
    let (reads, is_held) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let shared = Arc::clone(&cluster.shared);
    // A reader of the cluster state: the note waits for it.
    let reader = std::thread::spawn(move || {
        shared.read(|_| {
            is_held.0.send(()).unwrap();
            reads.1.recv().unwrap();
        });
    });
    is_held.1.recv().unwrap();
    cluster.silent.send_replace(false);
    // Threads and their clock: the note holds a worker of the runtime, and with it maybe its timers.
    while cluster.artifacts.summary(&skill, None).is_none() {
        std::thread::yield_now();
    }
    let (artifacts, answer) = (cluster.artifacts.clone(), std::sync::mpsc::channel());
    let asked = std::thread::spawn(move || answer.0.send(artifacts.is_settled(&wanted)));
    let settled = answer.1.recv_timeout(std::time::Duration::from_millis(200));
    assert_ne!(settled, Ok(true), "no view has been sent");
    reads.0.send(()).unwrap();
    reader.join().unwrap();
    asked.join().unwrap().ok();
    cluster.is_settled(&skill).await;
    assert_eq!(cluster.view(None).skills.len(), 1);
}

#[tokio::test]
async fn content_that_cannot_be_had_does_not_delay_a_start() {
    let cluster = Cluster::start().await;
    let started = start(&cluster, false);
    let broken = cluster.deliver("a", "one", &json!({}));
    lock(&cluster.maps).clear();
    let good = cluster.deliver("b", "two", &json!({}));
    listed(&cluster, &[broken, good]);
    let over = tokio::time::timeout(READ_WITHIN, started.over());
    assert!(
        over.await.is_ok(),
        "one skill without its ConfigMap keeps all others from their callers"
    );
    assert_eq!(cluster.view(None).skills.len(), 1);
}

#[tokio::test]
async fn a_replica_has_not_started_before_it_has_the_records_of_environments() {
    let cluster = Cluster::start().await;
    let started = start(&cluster, true);
    listed(&cluster, &[]);
    assert!(
        starts_still(&started).await,
        "skills with packages would be in no catalog"
    );
    cluster.shared.write(|cluster_state| {
        cluster_state.environments_listed = true;
        Some(Change::All)
    });
    started.over().await;
}

#[tokio::test]
async fn a_replica_has_not_started_before_it_has_listed_the_fences_of_its_namespaces() {
    let cluster = Cluster::start().await;
    let watching = WatchSettings {
        runtime_namespaces: ["a", "b"].map(str::to_owned).into(),
        fences: true,
        ..WatchSettings::default()
    };
    let started = start_watching(&cluster, &watching);
    listed(&cluster, &[]);
    let list = |namespace: &str| {
        cluster
            .shared
            .write(|cluster_state| Arc::make_mut(&mut cluster_state.fences).apply(namespace, Event::InitDone));
    };
    list("a");
    assert!(starts_still(&started).await, "a run in b would have no fence");
    list("b");
    started.over().await;
}
