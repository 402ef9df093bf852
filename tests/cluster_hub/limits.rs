//! The hub under the memory limit of its chart, with everything at once that fills memory.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use cluster_support::{progress, run};
use k8s_openapi::api::coordination::v1::Lease;
use knack_api::SkillRuntime;
use knack_hub_api::SkillLine;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cgroup::{Group, resident_mib};
use super::chart;
use super::floor::Echo;
use super::limited::Limited;
use super::support::{Installation, InstallationOptions, SOON, fresh_id};

const MIB: usize = 1 << 20;
/// Bodies at once, and their size: just below the most that the hub takes, 23 MiB of input as base64. They announce it, as the
/// gateway does: the first one that has room is taken whole.
const BODIES: usize = 36;
const BODY_BYTES: usize = 31 * MIB;
/// Runs that ask to wait, and the size of their bodies: together 14 times the limit of the process. They announce nothing, so
/// that those which arrive together may refuse each other.
const QUEUED: usize = 300;
const QUEUED_BYTES: usize = 24 * MIB;
/// How often a sender whose connection broke asks: a hub that is gone refuses all of them at once.
const TRIES: usize = 4;
/// Clients that read nothing of the run that they have asked for. Each has a warm pod: the hub closes a reader a minute after it
/// stopped, so the last run must not end much later than the first, on a slow machine either.
const READERS: usize = 16;
/// Output and files of each of these runs, bytes: together more than half of what all results may take.
const OUTPUT_BYTES: usize = 1_000_000;
const FILE_BYTES: usize = 3_000_000;
/// Of these results, those that must be in the hub at once. Not all: sockets take an answer of 7 MB whole now and then.
const HELD_RESULTS: usize = READERS / 4 * 3;
/// The part of the budget that outcomes may take which are only kept for who asks again.
const KEPT_PART: usize = 4;
/// Senders of forged tokens.
const FORGERS: usize = 4;
/// Requests of the other caller that are measured at least.
const MEASURED: usize = 300;
/// The part of them that may be refused for now.
const AGAIN_PART: usize = 50;
/// What the process may hold besides kept results when all of it is over, MiB: the half of the limit that no budget counts.
const REST_MIB: usize = 256;
/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One caller: its own address, its own token.
#[derive(Clone)]
struct Sender {
    client: reqwest::Client,
    url: String,
    token: String,
}

impl Sender {
    async fn new(installation: &Installation, tenant: usize) -> Self {
        Self {
            client: client_of(tenant),
            url: installation.url(),
            token: installation
                .token(&installation.tenants[tenant], "default", "knack")
                .await,
        }
    }

    async fn get(&self, path: &str, token: &str) -> reqwest::Result<reqwest::Response> {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(token);
        request.send().await
    }

    /// Posts an execution whose input file is `file`, base64; the pieces are sent as they are, none is copied.
    async fn post(&self, post: &Post, file: Bytes) -> reqwest::Result<reqwest::Response> {
        let Post {
            announced,
            body: mut post,
        } = post.clone();
        post["inputs"] = json!([{"path": "large", "data": {"base64": "FILE"}}]);
        let text = post.to_string();
        let (before, after) = text.split_once("FILE").unwrap();
        let pieces = [Bytes::from(before.to_owned()), file, Bytes::from(after.to_owned())];
        let length: usize = pieces.iter().map(Bytes::len).sum();
        let pieces = futures::stream::iter(pieces.map(Ok::<_, std::io::Error>));
        let mut request = self.client.post(format!("{}/v1/executions", self.url));
        if announced {
            request = request.header(reqwest::header::CONTENT_LENGTH, length);
        }
        request
            .bearer_auth(&self.token)
            .body(reqwest::Body::wrap_stream(pieces))
            .send()
            .await
    }
}

/// A client with connections of its own, from the tenant's address.
fn client_of(tenant: usize) -> reqwest::Client {
    let address: IpAddr = format!("127.0.1.{}", tenant + 1).parse().unwrap();
    let builder = reqwest::Client::builder().danger_accept_invalid_certs(true);
    builder.local_address(address).build().unwrap()
}

/// Base64 of so many bytes of text.
fn base64(bytes: usize) -> Bytes {
    "A".repeat(bytes / 4 * 4).into()
}

/// What answers were, by status.
#[derive(Debug, Default)]
struct Answers {
    taken: AtomicUsize,
    refused: AtomicUsize,
    /// Without an answer after [`TRIES`].
    unanswered: AtomicUsize,
    /// Connections that broke before an answer, by what their sender saw.
    broken: Mutex<BTreeMap<String, usize>>,
}

impl Answers {
    /// Posts an execution until it is taken, or refused by name and for now. A sender that a busy machine lets connect too late
    /// asks again by the same id, as the gateway does.
    async fn count(&self, sender: &Sender, post: &Post, file: &Bytes) {
        for _ in 0..TRIES {
            let error = match sender.post(post, file.clone()).await {
                Ok(answer) => match self.counted(answer).await {
                    Ok(()) => return,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            self.breaks(&error);
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
    }

    async fn counted(&self, answer: reqwest::Response) -> reqwest::Result<()> {
        match answer.status().as_u16() {
            200 => {
                // Whatever its end is, it is told.
                let told = answer.text().await?;
                assert!(told.contains("\"result\"") || told.contains("\"error\""), "{told}");
                self.taken.fetch_add(1, Ordering::Relaxed);
            }
            status @ (503 | 429) => {
                assert!(answer.headers().contains_key("retry-after"), "{status}");
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            status => panic!("{status}: {}", answer.text().await?),
        }
        Ok(())
    }

    fn breaks(&self, error: &reqwest::Error) {
        let mut why: &dyn std::error::Error = error;
        while let Some(source) = why.source() {
            why = source;
        }
        *self.broken.lock().unwrap().entry(why.to_string()).or_default() += 1;
    }

    /// Panics if an execution had no answer.
    fn assert_all_answered(&self, what: &str) {
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        let (counts, broken) = (self.both(), self.broken());
        assert_eq!(
            unanswered, 0,
            "{what} without an answer; taken and refused: {counts:?}; {broken}"
        );
    }

    fn broken(&self) -> String {
        format!("broken before an answer: {:?}", self.broken.lock().unwrap())
    }

    fn both(&self) -> [usize; 2] {
        [&self.taken, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Posts `count` executions at once, and counts the answers.
fn at_once(
    tasks: &mut JoinSet<()>,
    sender: &Sender,
    post: &Posts,
    (count, file): (usize, &Bytes),
    told: &Arc<Answers>,
) {
    for _ in 0..count {
        let (sender, post, file, told) = (sender.clone(), post.next(), file.clone(), Arc::clone(told));
        tasks.spawn(async move {
            told.count(&sender, &post, &file).await;
            progress("a large execution was answered");
        });
    }
}

/// An execution to be posted.
#[derive(Clone)]
struct Post {
    body: Value,
    /// Whether its length is announced.
    announced: bool,
}

/// Posts of one program, each with an id of its own.
struct Posts(Post);

impl Posts {
    fn new(installation: &Installation, skill: &SkillLine, announced: bool) -> Self {
        let source = "import time; time.sleep(1)";
        let mut body = installation.post(skill, "", &["python3", "-c", source]);
        body["limits"] = json!({});
        Self(Post { body, announced })
    }

    fn next(&self) -> Post {
        let mut post = self.0.clone();
        post.body["id"] = json!(fresh_id().to_string());
        post
    }
}

/// Shows one forged token after another, until told to stop: each is another one, so each needs a look.
async fn forge(sender: Sender, number: usize, stop: Arc<AtomicBool>) -> usize {
    let parts: Vec<String> = sender.token.split('.').map(ToOwned::to_owned).collect();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&parts[1]).unwrap()).unwrap();
    let mut shown = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut claims = claims.clone();
        claims["sub"] = json!(format!("system:serviceaccount:kube-system:forged-{number}-{shown}"));
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let token = format!("{}.{claims}.{}", parts[0], parts[2]);
        let status = sender.get("/v1/version", &token).await.unwrap().status().as_u16();
        assert!(matches!(status, 401 | 429 | 503), "{status}");
        shown += 1;
    }
    shown
}

/// Waits until the pool has a pod for each reader.
async fn warm(installation: &Installation) {
    let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), &installation.run);
    let has_all = async {
        loop {
            let status = runtimes.get("default").await.unwrap().status;
            let ready = status.and_then(|status| status.warm_pool).map_or(0, |pool| pool.ready);
            progress(format!("{ready} of {READERS} pods are warm"));
            if usize::try_from(ready).unwrap() >= READERS {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    // Pods that start one after another, where the node has no processor to give.
    tokio::time::timeout(3 * SOON, has_all).await.expect("the pool is full");
}

/// Runs whose answers are not read beyond their heads, each on a connection of its own.
async fn unread(
    installation: &Installation,
    tenant: usize,
    sender: &Sender,
    skill: &SkillLine,
) -> Vec<reqwest::Response> {
    let program =
        format!("import sys; sys.stdout.write('o' * {OUTPUT_BYTES}); open('file', 'wb').write(bytes({FILE_BYTES}))");
    let asked = (0..READERS).map(async |_| {
        let mut post = installation.post(skill, &fresh_id().to_string(), &["python3", "-c", &program]);
        post["live"] = json!(true);
        // One token: the hub looks at few new ones of an address at once.
        let request = client_of(tenant).post(format!("{}/v1/executions", sender.url));
        let answer = request
            .bearer_auth(&sender.token)
            .body(post.to_string())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        answer
    });
    futures::future::join_all(asked).await
}

/// Waits until [`HELD_RESULTS`] of them are in the hub.
async fn held(hub: &Limited, before: usize) {
    let begun = Instant::now();
    let full = before + HELD_RESULTS * (OUTPUT_BYTES + FILE_BYTES);
    loop {
        let holds = hub.metric("knack_hub_memory_held_bytes").await;
        if holds >= full {
            break;
        }
        assert!(begun.elapsed() < SOON, "{holds} bytes are in the hub, not {full}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    progress("nobody reads the results");
}

/// The holder of the runtime's Lease, and how often it has changed hands.
async fn lease(installation: &Installation) -> (String, i32) {
    let leases: Api<Lease> = Api::namespaced(installation.client.clone(), &installation.run);
    let lease = leases.list(&ListParams::default()).await.unwrap().items.pop().unwrap();
    let spec = lease.spec.unwrap();
    (
        spec.holder_identity.unwrap_or_default(),
        spec.lease_transitions.unwrap_or_default(),
    )
}

/// How long small requests of another caller take while something goes on, and what the machine alone takes meanwhile. Of those few for
/// which the API server has no time to say who asks, it is the time until they were asked again and answered.
async fn measured(sender: &Sender, installation: &Installation, goes_on: impl Fn() -> bool) -> [Vec<Duration>; 2] {
    let (mut took, mut floor, mut again) = (Vec::new(), Vec::new(), 0);
    let mut echo = Echo::start().await;
    let catalog = installation.catalog();
    while took.len() < MEASURED || goes_on() {
        for path in ["/v1/version", catalog.as_str()] {
            let begun = Instant::now();
            let answered = async {
                let mut answer = sender.get(path, &sender.token).await.unwrap();
                while answer.status() == 503 && begun.elapsed() < SOON {
                    again += 1;
                    tokio::time::sleep(LOOK_EVERY).await;
                    answer = sender.get(path, &sender.token).await.unwrap();
                }
                assert_eq!(answer.status(), 200);
                answer.bytes().await.unwrap();
                begun.elapsed()
            };
            let (answered, machine) = echo.beside(answered).await;
            took.push(answered);
            floor.push(machine);
        }
        progress("small requests were answered");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        again <= took.len() / AGAIN_PART,
        "{again} of {} were refused",
        took.len()
    );
    took.sort();
    floor.sort();
    [took, floor]
}

/// Waits until what requests and results hold is back at what it was.
async fn given_back(hub: &Limited, before: usize) {
    let begun = Instant::now();
    while hub.metric("knack_hub_memory_held_bytes").await > before + MIB {
        assert!(begun.elapsed() < SOON, "the budget is given back");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// 16 readers that stop before results of 4 MB, 36 bodies of 31 MiB, 300 runs with 24 MiB each that want to wait, and forged tokens, from three
/// callers. A fourth one's requests are answered as ever, the hub is not killed, and afterwards its memory is free again.
#[test]
fn everything_at_once_that_fills_memory_leaves_the_hub_alive_and_others_served() {
    run(
        "everything_at_once_that_fills_memory_leaves_the_hub_alive_and_others_served",
        async |cluster| {
            let limit = chart::memory_limit("hub");
            let Some(group) = Group::new(limit) else {
                cluster_support::skip("the hub's limit", "no memory control group can be made here");
                return;
            };
            let options = InstallationOptions::of(
                4,
                json!({
                    "warmPool": {"replicas": READERS},
                    "concurrency": {"maxRuns": 4, "maxQueued": 600, "queueTimeoutSeconds": 600},
                }),
            );
            let installation = Installation::install(cluster, options).await;
            let mut hub = Limited::start(&installation, cluster, group).await;
            let (client, tenants) = (installation.tenant(3).await, &installation.tenants);
            let mut skills = Vec::new();
            let mut senders = Vec::new();
            for (tenant, namespace) in tenants.iter().enumerate() {
                let name = format!("s{tenant}");
                installation.skill(namespace, &name, "print('x')").await;
                skills.push(installation.served(&installation.tenant(tenant).await, &name).await);
                senders.push(Sender::new(&installation, tenant).await);
            }
            warm(&installation).await;
            let before = hub.metric("knack_hub_memory_held_bytes").await;
            let held_by = lease(&installation).await;
            let streams = unread(&installation, 2, &senders[2], &skills[2]).await;
            held(&hub, before).await;

            let (stop, mut tasks, mut forgers) = (Arc::<AtomicBool>::default(), JoinSet::new(), JoinSet::new());
            let (bodies, queued) = (Arc::<Answers>::default(), Arc::<Answers>::default());
            for number in 0..FORGERS {
                forgers.spawn(forge(senders[2].clone(), number, Arc::clone(&stop)));
            }
            let posts =
                [true, false].map(|announced| Posts::new(&installation, &skills[usize::from(!announced)], announced));
            let (large, less) = (base64(BODY_BYTES), base64(QUEUED_BYTES));
            at_once(&mut tasks, &senders[0], &posts[0], (BODIES, &large), &bodies);
            at_once(&mut tasks, &senders[1], &posts[1], (QUEUED, &less), &queued);
            let [others, floor] = measured(&senders[3], &installation, || {
                bodies.both().iter().sum::<usize>() < BODIES
            })
            .await;
            let begun = Instant::now();
            let words = ["python3", "skills/s3/scripts/run.py"];
            let ran = installation.run_skill(&client, &tenants[3], "s3", &words).await;
            assert_eq!(ran.unwrap().stdout.text(), "x\n", "another caller's code runs");
            let ran = begun.elapsed();
            tasks.join_all().await;
            stop.store(true, Ordering::Relaxed);
            let forged: usize = forgers.join_all().await.into_iter().sum();
            hub.process.assert_runs();
            let [p50, p99] = [50, 99].map(|percent| others[others.len() * percent / 100]);
            let [alone, machine] = [50, 99].map(|percent| floor[floor.len() * percent / 100]);
            println!(
                "bodies taken and refused: {:?}; waiting runs: {:?}; forged tokens: {forged}; others: {} requests, p50 {p50:?}, p99 {p99:?}, of the machine alone {machine:?}, a run {ran:?}; \
                 resident {} MiB, peak of the group {:?} MiB of {}",
                bodies.both(),
                queued.both(),
                others.len(),
                resident_mib(hub.process.id()),
                hub.group.peak_bytes().map(|bytes| bytes / MIB),
                limit / MIB
            );
            let (state, of_bodies, of_runs) = (hub.state(), bodies.broken(), queued.broken());
            println!("the hub: {state}; bodies {of_bodies}; runs {of_runs}");
            assert_eq!(hub.group.killed(), 0, "killed for want of memory");
            bodies.assert_all_answered("bodies");
            queued.assert_all_answered("waiting runs");
            assert!(bodies.both()[0] > 0, "some of the large ones find room");
            // Senders, hub, API server and sandboxes share two processors here: the slowest wait for one, and senders that wait
            // behind all others are too slow for the hub.
            assert!(p50 < Duration::from_secs(1) + 10 * alone, "{p50:?}, {alone:?}");
            let holds = lease(&installation).await;
            println!("the Lease of the runtime: {held_by:?} before, {holds:?} after");
            assert_eq!(holds.0, held_by.0, "the hub leads still");
            drop(streams);
            // The newest results are kept for who asks again.
            let kept = hub.metric("knack_hub_memory_budget_bytes").await / KEPT_PART;
            given_back(&hub, before + kept).await;
            let rest = resident_mib(hub.process.id());
            println!("afterwards: {rest} MiB");
            assert!(rest < REST_MIB + kept / MIB, "{rest} MiB stay");
            // Who tries again later is taken.
            let answer = senders[0].post(&posts[0].next(), large).await.unwrap();
            assert_eq!(answer.status(), 200);
            assert!(answer.text().await.unwrap().contains("\"result\""));
        },
    );
}
