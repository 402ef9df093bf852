//! What one Skill's change costs controller and hub, and what waits beside it: few runtimes and Skills first, then 200 and
//! 10,000.
//!
//! A change touches the same in both: one Skill, its namespace's runtime with 50 Skills, the cluster default with all, and
//! two gateways. What the second one costs more is the price of what it does not touch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::{Skill, SkillRuntime};
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::Bench;
use crate::catalog::{Catalog, Served};
use crate::installation::{OTHERS, TEAMS, apply, skill_spec};
use crate::report::{Budget, Measured, Report};
use crate::{counted, processes, scale};

/// Runtimes in all, besides the chart's.
const RUNTIMES: usize = 200;
/// Skills of each team.
const TEAM_SKILLS: usize = 50;
/// Size of every Skill.
const SKILL_BYTES: usize = 2 << 10;
/// Gateways, which follow the cluster default.
const GATEWAYS: usize = 2;
/// Changes, each of another Skill of one team, which has as many: none has an older revision to be pruned.
const CHANGES: usize = TEAM_SKILLS;
/// Between two changes: longer than runtimes wait for more of them, so that none is done together with the next.
const APART: Duration = Duration::from_secs(1);
/// After the last change: statuses, Events, and what gateways fetch.
const AFTERMATH: Duration = Duration::from_secs(6);
/// How long nothing is done for the floor, whose CPU time is next to nothing.
const IDLE_FEW: Duration = Duration::from_secs(30);
/// How long nothing is done with many runtimes: the controller looks at each one's fence once a minute.
const IDLE_MANY: Duration = Duration::from_mins(1);
/// Objects made at once.
const CREATORS: usize = 16;
/// Runtimes made at once: each has a pod that probes its isolation, for 20 s where no plugin enforces policies, and the
/// node takes 110.
const RUNTIMES_AT_ONCE: usize = 64;
/// How long the probe of a runtime may take: its pod, behind those of the others.
const PROBE: Duration = Duration::from_secs(90);
/// ConfigMaps read at once, as the hub does.
const READS_AT_ONCE: usize = 32;
/// What a row may be over its floor.
const TIMES_THE_FLOOR: f64 = 2.0;
/// Half of the chart's limit for the hub, MB: the other half is its budget for requests, results and content.
const HUB_MB: f64 = 268.0;
/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long runtimes, gateways or the hub's catalog may take.
const LONG: Duration = Duration::from_mins(4);
/// Label of the Skills that a runtime of [`OTHERS`] serves, with the runtime's name.
const SLICE: &str = "bench.knack.dev/slice";
/// CPU time of a window that counts as rest, or as the same as before.
const REST: Duration = Duration::from_millis(30);
/// A window in which nothing is done.
const WINDOW: Duration = Duration::from_secs(3);
/// Windows until the bench goes on whatever happens.
const WINDOWS: usize = 20;

/// What was measured beside one installation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// CPU time of the controller for a change, ms.
    controller_ms: f64,
    /// CPU time of the hub for a change, ms.
    hub_ms: f64,
    /// Calls of both per second while nothing happens.
    calls_per_second: f64,
}

/// The floor: two runtimes with 50 Skills each.
pub(crate) async fn few(bench: &mut Bench) {
    let client = bench.installation.client.clone();
    assert!(
        !scale::is_there(&client, &scale::MANY).await,
        "the floor of `changes` is measured before the Skills of `skills` are there: take the cluster down first: KNACK_BED=bench tests/cluster/bed down"
    );
    bench.installation.configure(json!({"warmPool": {"replicas": 0}})).await;
    counted::begin(&client).await;
    for team in TEAMS {
        skills(&client, team, TEAM_SKILLS).await;
    }
    let all = i64::try_from(TEAM_SKILLS).expect("a small number");
    let with_runtime = async |team: &str| runtimes(bench, team, &[(team.to_owned(), json!({}))], all).await;
    let [team, other] = TEAMS;
    tokio::join!(with_runtime(team), with_runtime(other));
    bench.installation.gateways(GATEWAYS).await;
    let catalog = Catalog::follow(&client).await;
    served(&catalog, &TEAMS.map(|team| (team, TEAM_SKILLS))).await;
    let cost = cost(bench, &catalog, team, IDLE_FEW).await;
    bench.few = Some(cost);
    bench.installation.gateways(0).await;
}

/// The rows.
pub(crate) async fn beside_many(bench: &mut Bench) {
    let client = bench.installation.client.clone();
    let few = bench.few.expect("the floor comes first");
    bench.installation.configure(json!({"warmPool": {"replicas": 0}})).await;
    scale::only_many(bench).await;
    bench.progress(&format!("{} runtimes more", RUNTIMES - TEAMS.len()));
    let more: Vec<(String, Value)> = (TEAMS.len()..RUNTIMES)
        .map(|number| {
            let name = format!("runtime-{number:03}");
            let selector = json!({"matchLabels": {SLICE: name}});
            (name, json!({"skillSelector": selector}))
        })
        .collect();
    // Before their runtimes: each Skill of their namespace is a look of all of them.
    skills(&client, OTHERS, more.len()).await;
    runtimes(bench, OTHERS, &more, 1).await;
    bench.progress(&format!("{GATEWAYS} gateways"));
    bench.installation.gateways(GATEWAYS).await;
    let catalog = Catalog::follow(&client).await;
    let many = [
        (TEAMS[0], TEAM_SKILLS),
        (TEAMS[1], TEAM_SKILLS),
        (scale::MANY.namespace, scale::MANY.count),
    ];
    served(&catalog, &many).await;
    let [_, team] = TEAMS;
    let cost = cost(bench, &catalog, team, IDLE_MANY).await;
    let rows = [
        (
            "controller_cpu_per_change_ms",
            floored(few.controller_ms),
            cost.controller_ms,
        ),
        ("hub_cpu_per_change_ms", floored(few.hub_ms), cost.hub_ms),
        (
            "api_calls_per_idle_runtime_s",
            0.5,
            cost.calls_per_second / RUNTIMES as f64,
        ),
    ];
    once(bench, rows).await;
    let bare = bare_reads(&client).await;
    bench.progress("the hub is killed");
    let (seconds, peak) = restart(&client, &catalog, &many).await;
    Report::note(&format!(
        "  all {} ConfigMaps read after {bare:.1} s, the catalog whole after {seconds:.1} s",
        scale::MANY.count
    ));
    let rows = [
        ("hub_restart_10000_of_2k_s", floored(bare), seconds),
        ("hub_peak_mb_restart_10000_of_2k", HUB_MB, peak),
    ];
    once(bench, rows).await;
    bench.installation.gateways(0).await;
    for namespace in TEAMS.into_iter().chain([OTHERS]) {
        let api: Api<SkillRuntime> = Api::namespaced(client.clone(), namespace);
        let (all, params) = (ListParams::default(), DeleteParams::background());
        api.delete_collection(&params, &all)
            .await
            .expect("runtimes can be deleted");
    }
}

/// The limit of what has a floor in the same run, in thousandths.
fn floored(floor: f64) -> f64 {
    (floor * TIMES_THE_FLOOR * 1e3).round() / 1e3
}

/// Rows of a name, a limit and a value. Each once, without a spread: a value is a sum over all changes, all runtimes or all
/// Skills, and another one would cost minutes.
async fn once<const N: usize>(bench: &mut Bench, rows: [(&str, f64, f64); N]) {
    let budgets = rows.map(|(name, limit, _)| Budget { name, limit });
    let values = rows.map(|(_, _, value)| Measured { value, spread: 0.0 });
    bench.report.steady(budgets, async || values).await;
}

/// The name of a Skill of [`skills`].
fn named(namespace: &str, number: usize) -> String {
    format!("{namespace}-{number:03}")
}

/// A Skill after so many changes.
async fn write(api: &Api<Skill>, namespace: &str, number: usize, changes: usize) {
    let name = named(namespace, number);
    let mut spec = skill_spec(&name, SKILL_BYTES);
    let document = &mut spec["source"]["inline"]["files"]["SKILL.md"];
    *document = format!("{}\nChange {changes}.\n", document.as_str().unwrap_or_default()).into();
    let slice = format!("runtime-{:03}", number + TEAMS.len());
    let body = json!({"metadata": {"labels": {SLICE: slice}}, "spec": spec});
    apply(api, &name, "knack.dev/v1alpha1", "Skill", body).await;
}

/// So many Skills in a namespace, each with the label of a runtime of [`OTHERS`].
async fn skills(client: &kube::Client, namespace: &str, count: usize) {
    let api: Api<Skill> = Api::namespaced(client.clone(), namespace);
    futures::stream::iter(0..count)
        .for_each_concurrent(CREATORS, async |number| write(&api, namespace, number, 0).await)
        .await;
}

/// Makes runtimes of a namespace, each a name and what its spec has besides, and waits until each serves so many Skills and
/// its node was probed. They are of Node.js: what the hub tries in a sandbox of Python would be a second pod of each.
async fn runtimes(bench: &Bench, namespace: &str, all: &[(String, Value)], serve: i64) {
    let api: Api<SkillRuntime> = Api::namespaced(bench.installation.client.clone(), namespace);
    let (sender, standing) = watch::channel(HashMap::new());
    let _following = AbortOnDropHandle::new(tokio::spawn(follow(api.clone(), serve, sender)));
    let image = bench.installation.cluster.image("sandbox-node");
    let unknown = AtomicUsize::new(0);
    futures::stream::iter(all)
        .for_each_concurrent(RUNTIMES_AT_ONCE, async |(name, more)| {
            let mut spec = more.clone();
            spec["sandbox"] = json!({"image": image, "languages": ["node"]});
            spec["warmPool"] = json!({"replicas": 0});
            apply(&api, name, "knack.dev/v1alpha1", "SkillRuntime", json!({"spec": spec})).await;
            let mut standing = standing.clone();
            let serves = tokio::time::timeout(LONG, standing.wait_for(|standing| standing.contains_key(name))).await;
            let serves = serves.map(|serves| serves.is_ok());
            assert!(
                serves == Ok(true),
                "SkillRuntime {namespace}/{name} serves within {LONG:?}"
            );
            let is_probed = |standing: &HashMap<String, bool>| standing.get(name) == Some(&true);
            if tokio::time::timeout(PROBE, standing.wait_for(is_probed)).await.is_err() {
                unknown.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
    let unknown = unknown.into_inner();
    if unknown > 0 {
        Report::note(&format!(
            "  {unknown} runtimes without a result of their probe: each tries again every minute, which counts as calls"
        ));
    }
}

/// Names the runtimes that serve, with whether their probe has a result.
async fn follow(api: Api<SkillRuntime>, serve: i64, standing: watch::Sender<HashMap<String, bool>>) {
    let mut events = std::pin::pin!(
        watcher(api, watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    while let Some(event) = events.next().await {
        let Ok(runtime) = event else { continue };
        let status = runtime.status.clone().unwrap_or_default();
        let serves = status.skills.is_some_and(|skills| skills.accepted == serve) && status.owner.is_some();
        let is_probed = status.isolation.is_some_and(|found| found.cni.is_some());
        if serves {
            standing.send_if_modified(|standing| standing.insert(runtime.name_any(), is_probed) != Some(is_probed));
        }
    }
}

/// Waits until the hub serves so many Skills of each namespace.
async fn served(catalog: &Catalog, expected: &[(&str, usize)]) {
    let what = format!("the hub serves {expected:?}");
    let all = |served: &Served| {
        let mut expected = expected.iter();
        expected.all(|(namespace, count)| served.count(namespace) == *count)
    };
    catalog.until(&what, LONG, all).await;
}

/// What both processes have used, controller first.
fn used(pids: [u32; 2]) -> [Duration; 2] {
    pids.map(processes::cpu_time)
}

fn since(pids: [u32; 2], before: [Duration; 2]) -> [Duration; 2] {
    let now = used(pids);
    [0, 1].map(|of| now[of].saturating_sub(before[of]))
}

/// Waits until both processes use as much as a moment before: what follows the last step is over.
async fn calm(pids: [u32; 2]) {
    let mut last = [Duration::MAX; 2];
    for _ in 0..WINDOWS {
        let before = used(pids);
        tokio::time::sleep(WINDOW).await;
        let now = since(pids, before);
        if [0, 1].iter().all(|of| now[*of].abs_diff(last[*of]) <= REST) {
            return;
        }
        last = now;
    }
    Report::note("  it does not come to rest");
}

/// CPU time of changes of a team's Skills, one after the other, and what both processes do while nothing happens, which is
/// subtracted from it.
async fn cost(bench: &Bench, catalog: &Catalog, team: &str, idle: Duration) -> Cost {
    let client = &bench.installation.client;
    let pids = [
        processes::running(client, "controller").await,
        processes::running(client, "hub").await,
    ];
    calm(pids).await;
    let (before, calls, begun) = (used(pids), counted::calls(client).await, Instant::now());
    tokio::time::sleep(idle).await;
    let seconds = begun.elapsed().as_secs_f64();
    let at_rest = since(pids, before).map(|cpu| cpu.as_secs_f64() / seconds);
    let calls_per_second = (counted::calls(client).await - calls) / seconds;

    let api: Api<Skill> = Api::namespaced(client.clone(), team);
    let (before, begun) = (used(pids), Instant::now());
    let mut times = Vec::with_capacity(CHANGES);
    for number in 0..CHANGES {
        let name = named(team, number);
        let old = catalog.digest(team, &name);
        let changing = Instant::now();
        write(&api, team, number, 1).await;
        let what = format!("the change of {name} is served");
        let is_new = |served: &Served| {
            served
                .digest(team, &name)
                .is_some_and(|new| Some(new) != old.as_deref())
        };
        catalog.until(&what, PATIENCE, is_new).await;
        times.push(changing.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(APART).await;
    }
    tokio::time::sleep(AFTERMATH).await;
    let (cpu, seconds) = (since(pids, before), begun.elapsed().as_secs_f64());
    let [controller_ms, hub_ms] =
        [0, 1].map(|of| (cpu[of].as_secs_f64() - at_rest[of] * seconds).max(0.0) * 1e3 / CHANGES as f64);
    times.sort_by(f64::total_cmp);
    Report::note(&format!(
        "  {CHANGES} changes, served after {:.0} ms (median): controller {controller_ms:.1} ms, hub {hub_ms:.1} ms each; \
         at rest controller {:.1} ms/s, hub {:.1} ms/s, {calls_per_second:.1} calls/s",
        times[CHANGES / 2],
        at_rest[0] * 1e3,
        at_rest[1] * 1e3
    ));
    Cost {
        controller_ms,
        hub_ms,
        calls_per_second,
    }
}

/// Seconds in which a program reads every ConfigMap of the many Skills: the least that a hub has to do that has just
/// started.
async fn bare_reads(client: &kube::Client) -> f64 {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), scale::MANY.namespace);
    let begun = Instant::now();
    let found = api.list_metadata(&ListParams::default()).await;
    let names = found.expect("ConfigMaps can be listed").items;
    let reading = futures::stream::iter(names.iter().filter_map(|found| found.metadata.name.as_deref()));
    reading
        .for_each_concurrent(READS_AT_ONCE, async |name| {
            api.get(name).await.expect("a ConfigMap can be read");
        })
        .await;
    begun.elapsed().as_secs_f64()
}

/// Kills the hub's process, as a node without memory would: seconds until it serves everything again, and the largest
/// resident set, in MB, of the new one until then.
async fn restart(client: &kube::Client, catalog: &Catalog, expected: &[(&str, usize)]) -> (f64, f64) {
    let old = processes::running(client, "hub").await;
    let pid = i32::try_from(old).ok().and_then(rustix::process::Pid::from_raw);
    let begun = Instant::now();
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::KILL).expect("it can be killed");
    let gone = |served: &Served| served.is_empty();
    catalog.until("the stream ends with its hub", PATIENCE, gone).await;
    served(catalog, expected).await;
    let seconds = begun.elapsed().as_secs_f64();
    let new = processes::running(client, "hub").await;
    assert_ne!(new, old, "it is another process");
    (seconds, processes::peak(new) as f64 / 1e6)
}
