//! Many runtimes, spread over replicas of the hub that come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster_support::progress;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use knack::lease::{preferred, replica_of};
use knack_api::SkillRuntime;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::beside;
use super::calls::Calls;
use super::replicas::install;
use super::service::Service;
use super::support::{Installation, Process, SOON, free_port};

const REPLICAS: [&str; 3] = ["hub-a", "hub-b", "hub-c"];
/// Runtimes beside the default one.
const RUNTIMES: usize = 8;
/// How long the state must last, once each runtime is where it should be: several checks of every owner.
const STANDS_FOR: Duration = Duration::from_secs(10);

/// The holder of each runtime's Lease, and how often it has changed hands.
type Holders = BTreeMap<String, (String, i32)>;
/// How often the Lease of each runtime was lost.
type Losses = BTreeMap<String, i32>;

/// Replicas by name, and their Service.
struct Hubs<'w> {
    installation: &'w Installation,
    service: Service,
    alive: BTreeMap<String, (String, Process)>,
}

impl Hubs<'_> {
    async fn add(&mut self, name: &str) {
        let address = format!("127.0.0.1:{}", free_port());
        let mut words = self.installation.hub_words(&address);
        words.push(format!("--replica={name}"));
        let process = Process::start(self.installation.cluster, self.installation.folder.path(), name, &words);
        self.alive.insert(name.to_owned(), (address.clone(), process));
        self.installation.wait_for_hub_at(&format!("https://{address}")).await;
        self.tell().await;
    }

    async fn kill(&mut self, name: &str) {
        let (_, mut process) = self.alive.remove(name).unwrap();
        process.kill();
        self.tell().await;
    }

    fn names(&self) -> Vec<&str> {
        self.alive.keys().map(String::as_str).collect()
    }

    /// As Kubernetes does for a Service: ready replicas are in its EndpointSlice. Loopback is not allowed there, and
    /// the addresses are not used.
    async fn tell(&self) {
        self.service
            .point_to(self.alive.values().map(|(address, _)| address.clone()));
        let endpoint = |(index, name): (usize, &String)| {
            json!({"addresses": [format!("192.0.2.{}", index + 1)], "conditions": {"ready": true},
                "targetRef": {"kind": "Pod", "name": name}})
        };
        let endpoints: Vec<_> = self.alive.keys().enumerate().map(endpoint).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"name": "knack-hub-test", "labels": {"kubernetes.io/service-name": "knack-hub"}}, "ports": [],
        });
        let api: Api<EndpointSlice> = Api::namespaced(self.installation.client.clone(), &self.installation.system);
        let params = PatchParams::apply("hub-test").force();
        api.patch("knack-hub-test", &params, &Patch::Apply(&slice))
            .await
            .unwrap();
    }

    /// Who holds each runtime's Lease, and how often it has changed hands.
    async fn holders(&self) -> Holders {
        let leases: Api<Lease> = Api::namespaced(self.installation.client.clone(), &self.installation.run);
        let list = leases.list(&kube::api::ListParams::default()).await.unwrap();
        let held = list.items.into_iter().filter_map(|lease| {
            let runtime = lease.metadata.name?.strip_prefix("knack-runtime-")?.to_owned();
            let spec = lease.spec?;
            let holder = spec.holder_identity.unwrap_or_default();
            Some((
                runtime,
                (
                    replica_of(&holder).to_owned(),
                    spec.lease_transitions.unwrap_or_default(),
                ),
            ))
        });
        held.collect()
    }

    /// How often replicas have said that they have lost the Lease of each of these runtimes.
    fn lost(&self, of: &Holders) -> Losses {
        let folder = self.installation.folder.path();
        let logs = REPLICAS.map(|name| std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default());
        let lines = logs.iter().flat_map(|log| log.lines());
        let lines: Vec<&str> = lines
            .filter(|line| line.contains("lost the Lease of the runtime"))
            .collect();
        let times = |runtime: &String| {
            let name = format!("{}/{runtime}", self.installation.run.name());
            let names_it = |line: &&&str| {
                line.split(|letter: char| letter.is_whitespace() || "=\"".contains(letter))
                    .any(|word| word == name)
            };
            i32::try_from(lines.iter().filter(names_it).count()).unwrap()
        };
        of.keys().map(|runtime| (runtime.clone(), times(runtime))).collect()
    }

    /// The replica that should have a runtime.
    fn should_have(&self, runtime: &str) -> String {
        let key = format!("{}/{runtime}", self.installation.run.name());
        preferred(&key, self.names()).unwrap().to_owned()
    }

    /// Waits until each runtime is where it should be, and stays there; how long the first took.
    async fn settled(&self) -> (Duration, Holders) {
        let since = Instant::now();
        let mut right_since: Option<(Instant, Holders)> = None;
        let settled = async {
            loop {
                let holders = self.holders().await;
                let is_right = holders.len() == RUNTIMES + 1
                    && holders
                        .iter()
                        .all(|(runtime, (holder, _))| *holder == self.should_have(runtime));
                match &right_since {
                    Some((at, known)) if *known == holders && at.elapsed() >= STANDS_FOR => return (*at, holders),
                    Some((_, known)) if *known == holders => {}
                    _ => right_since = is_right.then(|| (Instant::now(), holders)),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (at, holders) = tokio::time::timeout(SOON, settled)
            .await
            .expect("each runtime is where it should be");
        progress("each runtime is where it should be");
        (at - since, holders)
    }
}

async fn apply_runtimes(installation: &Installation) {
    let api: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), &installation.run);
    let default = api.get("default").await.unwrap();
    for index in 0..RUNTIMES {
        let name = format!("runtime-{index}");
        let body = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": name}, "spec": default.spec,
        });
        let params = PatchParams::apply("hub-test").force();
        api.patch(&name, &params, &Patch::Apply(&body)).await.unwrap();
    }
}

/// The most runtimes that one replica has.
fn held_by_one(holders: &Holders) -> i32 {
    let count = |name: &&str| holders.values().filter(|(holder, _)| holder == name).count();
    i32::try_from(REPLICAS.iter().map(count).max().unwrap()).unwrap()
}

/// Runtimes whose holder is another one.
fn moved(before: &Holders, after: &Holders) -> Vec<String> {
    let moved = before
        .iter()
        .filter(|(runtime, (holder, _))| after[*runtime].0 != *holder);
    moved.map(|(runtime, _)| runtime.clone()).collect()
}

/// What changed hands did so once, and what did not was never let go of. `lost`: how often each Lease was lost until before and until
/// after, as replicas say. One that gets no processor for so long loses it, without being killed, and each such loss is a change of hands
/// or two.
fn assert_moved_once((before, after): (&Holders, &Holders), moved: &[String], lost: (&Losses, &Losses)) {
    let lost_now = |runtime: &String| lost.1.get(runtime).unwrap_or(&0) - lost.0.get(runtime).unwrap_or(&0);
    // A process that stands still for as long as a Lease lasts loses all that it holds at once; a machine whose replicas lose more than
    // one of them has is broken.
    let lost_in_all = before.keys().map(lost_now).sum::<i32>();
    let most_held = held_by_one(before).max(held_by_one(after));
    assert!(
        lost_in_all <= most_held && lost_in_all < i32::try_from(before.len()).unwrap(),
        "{lost_in_all} of {most_held}: {before:?} {after:?} {lost:?}"
    );
    for (runtime, (_, transitions)) in before {
        let (hands, expected) = (after[runtime].1 - transitions, i32::from(moved.contains(runtime)));
        let more = 2 * lost_now(runtime);
        assert!(
            (expected..=expected + more).contains(&hands),
            "{runtime}: {before:?} {after:?} {lost:?}"
        );
    }
}

/// Each runtime has the owner that the replicas' names say. A replica that dies leaves its own to the others, and nothing
/// else moves; when it is back it gets exactly those again, one after another, and calls go on meanwhile.
#[test]
fn runtimes_are_spread_over_replicas_and_follow_them() {
    beside("runtimes_are_spread_over_replicas_and_follow_them", async |cluster| {
        let installation = install(cluster, json!({"concurrency": {"maxRuns": 4}})).await;
        let mut hubs = Hubs {
            installation: &installation,
            service: Service::start().await,
            alive: BTreeMap::new(),
        };
        for name in REPLICAS {
            hubs.add(name).await;
        }
        apply_runtimes(&installation).await;
        let (took, spread) = hubs.settled().await;
        println!("9 runtimes at 3 replicas are spread after {took:?}: {spread:?}");

        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let client = installation.hub_client_at(&hubs.service.url, &token);
        // The one that answers the calls goes.
        let count = |name: &str| spread.values().filter(|(holder, _)| holder == name).count();
        let victim = &*spread["default"].0;
        let calls = Calls::new(&installation, client).await;
        let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let calling = tokio::spawn({
            let (ended, answered, calls) = (Arc::clone(&ended), Arc::clone(&answered), calls.clone());
            async move {
                while !ended.load(Ordering::Relaxed) {
                    let word = format!("call {}", answered.load(Ordering::Relaxed));
                    assert_eq!(calls.text(calls.sleeper(0.2, &word)).await, Ok(format!("{word}\n")));
                    answered.fetch_add(1, Ordering::Relaxed);
                    // Longer than a runtime must be quiet before it moves.
                    tokio::time::sleep(Duration::from_secs(7)).await;
                }
            }
        });

        let at_first = hubs.lost(&spread);
        hubs.kill(victim).await;
        let (took, without) = hubs.settled().await;
        let orphans = moved(&spread, &without);
        println!(
            "{} runtimes of a killed replica are where they should be after {took:?}",
            orphans.len()
        );
        assert_eq!(orphans.len(), count(victim));
        assert_moved_once((&spread, &without), &orphans, (&at_first, &hubs.lost(&without)));

        let at_loss = hubs.lost(&without);
        hubs.add(victim).await;
        let (took, again) = hubs.settled().await;
        let returned = moved(&without, &again);
        println!(
            "{} runtimes moved to the replica that came after {took:?}",
            returned.len()
        );
        assert_eq!(returned, orphans);
        assert_moved_once((&without, &again), &returned, (&at_loss, &hubs.lost(&again)));
        ended.store(true, Ordering::Relaxed);
        calling.await.unwrap();
        println!("{} calls meanwhile, all answered", answered.load(Ordering::Relaxed));
    });
}
