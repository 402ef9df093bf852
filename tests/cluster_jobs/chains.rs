//! Calls one after another, as a model makes them: each finds a warm pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_support::progress;
use knack::jobs::{EnvGrant, JobExecutor};
use knack_execution::{ExecutionRequest, Executor as _, SkillMount, StartKind};
use knack_skill::call::ToolRun;
use knack_skill::fixture::{mk_empty_skill, mk_file, mk_ref};
use knack_skill::model::{ActivationMode, Skill};
use knack_skill::risk::Risk;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, fresh_id, python, within};

/// Calls of a chain.
const CALLS: usize = 10;
/// Between two calls of the first chain, where a pod is ready in half of that; elsewhere as long as a pod takes.
const PACE: Duration = Duration::from_millis(400);
/// Chains that are tried, each at half the pace of the one before: other tests take the machine too, but a pool that does not refill by
/// itself stays cold at every pace.
const TRIES: u32 = 6;

/// The skill of the tool, which has a script beside it.
fn skill() -> Arc<Skill> {
    let script = mk_file(b"import os; print(os.environ.get('API_KEY'))");
    Arc::new(Skill {
        id: mk_ref("team", "tested"),
        description: "tested".to_owned(),
        files: BTreeMap::from([("key.py".to_owned(), script)]),
        digest: "of-tested".to_owned(),
        ..mk_empty_skill("tested", ActivationMode::Listed)
    })
}

/// A run of its declared tool, which asks for a value.
fn tool() -> ExecutionRequest {
    let skill = skill();
    let run = ToolRun {
        skill: skill.id.clone(),
        tool: "key".to_owned(),
        arguments: serde_json::Map::new(),
        argv: vec!["python3".to_owned(), "key.py".to_owned()],
        env: vec!["API_KEY".to_owned()],
        is_open: false,
        risk: Risk::Safe,
        config: Vec::new(),
    };
    // As models know a skill whose name another one has, too. Elsewhere skills have plain names.
    let mount = SkillMount {
        name: "team/tested".to_owned(),
        skill,
    };
    ExecutionRequest::of_tool(fresh_id(), "team/app/uid", run, mount)
}

/// A run of the model's own that looks for the value.
fn prying() -> ExecutionRequest {
    python("import os; print(os.environ.get('API_KEY'))")
}

async fn call(executor: &JobExecutor, request: ExecutionRequest) -> (StartKind, String) {
    let result = within(60, executor.execute(request, CancellationToken::new()))
        .await
        .unwrap();
    (result.timings.start, result.stdout.text().trim().to_owned())
}

/// Runs a chain of calls at a pace.
async fn chain(executor: &JobExecutor, pace: Duration, request: fn() -> ExecutionRequest) -> Vec<(StartKind, String)> {
    let mut found = Vec::new();
    let mut ticks = tokio::time::interval(pace);
    for _ in 0..CALLS {
        ticks.tick().await;
        found.push(call(executor, request()).await);
    }
    found
}

/// Runs chains until each call of one has found a warm pod; all must give the same result.
async fn stays_warm(executor: &JobExecutor, pace: Duration, request: fn() -> ExecutionRequest, expected: &str) {
    for tried in 0..TRIES {
        let pace = pace * 2_u32.pow(tried);
        let chain = chain(executor, pace, request).await;
        assert!(chain.iter().all(|(_, said)| said == expected), "{chain:?}");
        let warm = chain.iter().filter(|(start, _)| *start == StartKind::Warm).count();
        println!("{expected}: {warm} of {CALLS} calls were warm, {pace:?} apart");
        if warm == CALLS {
            return;
        }
        progress("a chain has ended");
    }
    panic!("no chain stayed warm");
}

/// How long a pod takes on this machine: the longest of three runs without a pool.
async fn cold(fixture: &Fixture) -> Duration {
    let executor = fixture.owner().await;
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let began = Instant::now();
        let (start, _) = call(&executor, python("print(1)")).await;
        assert_eq!(start, StartKind::Cold);
        longest = longest.max(began.elapsed());
    }
    executor.shutdown().await;
    longest
}

#[test]
fn chained_calls_stay_warm_with_and_without_granted_values() {
    cluster_support::run(
        "chained_calls_stay_warm_with_and_without_granted_values",
        async |cluster| {
            let mut fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 0}})).await;
            let pace = PACE.max(cold(&fixture).await);
            println!("pace {pace:?}");
            let secret = ["create", "secret", "generic", "weather", "-n", &fixture.namespace];
            cluster.kubectl(&[&secret[..], &["--from-literal=key=granted"]].concat());
            fixture.resolved.warm_replicas = 2;
            fixture.resolved.env = vec![EnvGrant {
                name: "API_KEY".to_owned(),
                secret: "weather".to_owned(),
                key: "key".to_owned(),
                skills: vec!["team/tested".to_owned()],
            }];
            let executor = fixture.replica("chains").await;
            within(30, executor.wait_until_owner()).await;
            eventually(60, "two pods stand", async || executor.counts().ready == 2).await;
            stays_warm(&executor, pace, prying, "None").await;
            eventually(60, "two pods stand again", async || executor.counts().ready == 2).await;

            // The value is requested for the first time: the first call is cold, and those after it are not.
            assert_eq!(call(&executor, tool()).await, (StartKind::Cold, "granted".to_owned()));
            eventually(60, "two pods with the value stand too", async || {
                executor.counts().ready == 4
            })
            .await;
            stays_warm(&executor, pace, tool, "granted").await;
            // Model-written code never gets such a pod, even where there is no other.
            for round in 0..6 {
                assert_eq!(call(&executor, prying()).await.1, "None", "{round}");
            }

            // The grant is taken back: its pods go, and the next run has nothing.
            let mut resolved = fixture.resolved.clone();
            resolved.env[0].skills.clear();
            executor.update(resolved);
            eventually(60, "only pods without values stand", async || {
                executor.counts().ready == 2 && executor.counts().desired == 2
            })
            .await;
            // A declared tool without values is as warm as code.
            stays_warm(&executor, pace, tool, "None").await;
            executor.shutdown().await;
            fixture.no_pod_runs().await;
        },
    );
}
