//! The attack suite inside real sandbox pods, on a network that enforces no policy.
//!
//! ```text
//! control   a privileged pod, no profile: each attack unlocked, as uid 65532, else as root
//! cold      executions in pods that are started for them      ┐ the same table,
//! warm      executions in pods that stood ready, locks on     ┘ tests/attacks/expected/pod.json
//! none      cold ones where the kernel has no Landlock: all but the bombs, pod-no-landlock.json
//! ```
//!
//! What neither control opens is closed by the kernel, or by what the node has not, and is not counted. A newly open cell
//! fails; a newly closed one asks for an update of the table (`KNACK_UPDATE_ATTACKS=1`). The bombs run one to an
//! execution; afterwards the node must say that it is well, and another tenant's pod must not have noticed.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test program: a failure is a panic, and helpers are tests too"
)]

mod outside;
mod pods;
#[path = "../attacks/program.rs"]
mod program;
#[path = "../attacks/table.rs"]
mod table;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use cluster_support::{Cluster, Switches, own, progress, run};
use knack_execution::{ExecutionId, ExecutionRequest, Executor as _, Exit, Language, Limits, Program};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Attacks that end the run, or everything in the pod, when they meet a limit: one to an execution.
fn bombs() -> Vec<String> {
    let output = Command::new("/usr/bin/python3")
        .args(["-c", program::PROGRAM, "--bombs"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The rest goes in parts, since a part has the time limit of one run.
const PARTS: usize = 3;

/// The longest that a runtime allows.
const PART_TIMEOUT: Duration = Duration::from_mins(2);

/// The burn takes 10 s unlocked; it must meet the limit first, however late that is noticed. Others wait 4 s at their end.
fn time_limit(bomb: &str) -> Duration {
    Duration::from_secs(if bomb == "cpu_burn" { 2 } else { 30 })
}

/// One execution of the attacks' program with these words, in a pod of the runtime's way; its output, or how the run ended.
async fn execute(runtime: &pods::Runtime, words: &[&str], timeout: Duration) -> Result<String, String> {
    let words = serde_json::to_string(&[&["attacks.py"], words].concat()).unwrap();
    let script = program::PROGRAM;
    // Code is given no environment by anybody.
    let targets = serde_json::to_string(&targets().to_string()).unwrap();
    let program = Program::Code {
        language: Language::Python,
        source: format!("import os, sys\nos.environ['KNACK_TARGETS'] = {targets}\nsys.argv = {words}\n{script}"),
    };
    let request = ExecutionRequest {
        limits: Limits {
            timeout,
            max_output_bytes: 64 << 10,
            ..Limits::default()
        },
        ..ExecutionRequest::new(ExecutionId::new(pods::now(), "attacks", 0, &words), "attacks", program)
    };
    runtime.ready().await;
    let result = runtime
        .executor
        .execute(request, CancellationToken::new())
        .await
        .map_err(|error| format!("no result: {error}"))?;
    progress("a run of attacks has ended");
    assert_eq!(
        result.timings.start,
        runtime.way.start(),
        "the pod came about in another way"
    );
    match &result.exit {
        Exit::Code(0) => Ok(result.stdout.text().into_owned()),
        // Counted over it at the end: what was done has no effect.
        Exit::DiskLimit => Err("DiskLimit".to_owned()),
        // What was said before the end counts.
        exit => table::outcome_of(&result.stdout.text())
            .map(|outcome| format!("RESULT {outcome}\n"))
            .ok_or_else(|| match exit {
                Exit::Code(code) => {
                    let text = result.stderr.text();
                    format!("exit {code}: {}", text.lines().last().unwrap_or_default())
                }
                other => format!("{other:?}"),
            }),
    }
}

/// What the code inside knows. The runner is PID 1; none of the other targets is in the pod: no second process, no file of
/// its own uid outside the run, no token, no setuid program. Those cells say ENOENT, which is the answer of the pod. `/tmp` is a
/// folder of the run, so what is outside is another one.
fn targets() -> serde_json::Value {
    json!({
        "v4": outside::V4, "v6": "2001:db8::1", "victim": 1, "runner": 1, "victim_address": 4096, "peer": 1,
        "unix_path": "/tmp/victim.sock", "unix_abstract": "knack-attack-victim", "outside": "/etc", "link_source": "/etc/passwd",
        "token": "/var/run/secrets/kubernetes.io/serviceaccount/token", "setuid_id": "/usr/bin/id", "mounted": "/work",
        "readable": "/usr/bin/python3",
        "program": "/usr/bin/python3", "statted": "/etc/passwd",
    })
}

/// Every attack at one runtime.
async fn column(runtime: &pods::Runtime, controls: &BTreeMap<String, table::Control>) -> BTreeMap<String, String> {
    let mut cells = BTreeMap::new();
    let bombs = bombs();
    let gentle: Vec<&str> = controls
        .keys()
        .map(String::as_str)
        .filter(|name| !bombs.iter().any(|bomb| bomb == name))
        .collect();
    for part in gentle.chunks(gentle.len().div_ceil(PARTS)) {
        let words = [&["--each"], part].concat();
        let text = execute(runtime, &words, PART_TIMEOUT)
            .await
            .unwrap_or_else(|ended| panic!("a part of the attacks has no output: {ended}"));
        cells.extend(table::each(&text));
    }
    // No limit that they meet is Landlock's.
    if runtime.way == pods::Way::WithoutLandlock {
        return cells;
    }
    for bomb in bombs {
        let cell = match execute(runtime, &[&bomb], time_limit(&bomb)).await {
            Ok(text) => table::outcome_of(&text).unwrap_or_else(|| "no outcome".to_owned()),
            Err(ended) => ended,
        };
        cells.insert(bomb, cell);
    }
    cells
}

/// One way of pods, compared with the table of all pods.
async fn compare(cluster: &Cluster, way: pods::Way, controls: &BTreeMap<String, table::Control>) -> bool {
    let runtime = pods::Runtime::start(cluster, way).await;
    let before = pods::node(cluster);
    let cells = column(&runtime, controls).await;
    println!("attacks pod ({way:?}): the node says {}", pods::node(cluster));
    pods::assert_well(cluster, &before).await;
    runtime.bystander.assert_unharmed(cluster).await;
    runtime.stop().await;
    table::compare(way.table(), controls, &cells)
}

#[test]
fn attacks_in_sandbox_pods_meet_the_table_cold_and_warm() {
    run(
        "attacks_in_sandbox_pods_meet_the_table_cold_and_warm",
        async |cluster| {
            let _peer = outside::Peer::start(cluster);
            let controls = pods::controls(cluster).await;
            let cold = compare(cluster, pods::Way::Cold, &controls).await;
            let warm = compare(cluster, pods::Way::Warm, &controls).await;
            let without = compare(cluster, pods::Way::WithoutLandlock, &controls).await;
            assert!(cold && warm && without, "a cell changed; the lines above say which");
        },
    );
}

/// Kubelet's own default sets no limit of processes: then it is the runner's, which counts per user id, and every pod has
/// one of its own.
#[test]
fn bombs_end_where_the_node_sets_no_process_limit() {
    let environment = [("KNACK_BED_PIDS", "-1".to_owned())].into();
    let test = "bombs_end_where_the_node_sets_no_process_limit";
    own(test, "knack-bed-pids", Switches { environment }, async |cluster| {
        cluster.import(&[&pods::build_sandbox()]);
        let before = pods::node(cluster);
        let runtime = pods::Runtime::start(cluster, pods::Way::Cold).await;
        for bomb in ["fork_bomb", "thread_bomb", "memory_bomb"] {
            let ended = execute(&runtime, &[bomb], time_limit(bomb)).await;
            println!("without a process limit of the node: {bomb} {ended:?}");
            let outcome = ended.as_deref().ok().and_then(table::outcome_of);
            assert_ne!(outcome.as_deref(), Some("OPEN"), "{bomb}");
        }
        pods::assert_well(cluster, &before).await;
        runtime.bystander.assert_unharmed(cluster).await;
        runtime.stop().await;
    });
}
