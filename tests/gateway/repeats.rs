//! Runs that programs ask for with an `idempotency-key` (docs/registry.md#the-history-on-a-cluster): gateways of a cluster in front of
//! a real `knack registry`, which is killed meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use knack_execution::Executor;
use knack_registry::{Execution, read_folder};
use serde_json::{Value, json};

use super::kept_files::{Kept, PATIENCE};
use super::observed::Observed;
use super::support::{Answer, Running, Start, client, read, start};

const SKILL: &[(&str, &str)] = &[
    (
        "clock/SKILL.md",
        "---\nname: clock\ndescription: Tells the time.\ntools:\n  - python: tools.py\ntimeout_ms: 30000\n---\nRead it.\n",
    ),
    (
        "clock/tools.py",
        "import time\nfrom tukuy.skills import skill\n\n@skill\ndef tell(wait: float = 0):\n    \"\"\"Tells the time.\"\"\"\n    time.sleep(wait)\n    \
         return {\"at\": time.time_ns()}\n",
    ),
    ("text/SKILL.md", "---\nname: text\ndescription: No tool.\n---\nText.\n"),
];

/// Two replicas of a gateway, and one of another account.
struct Cluster {
    kept: Kept,
    first: Running,
    second: Running,
    other: Running,
    /// Of all of them.
    observed: Arc<Observed>,
}

/// Results that are let go when no more are held.
const ALL: usize = 100;

impl Cluster {
    async fn start() -> Self {
        Self::of(Observed::new().await).await
    }

    async fn of(observed: Arc<Observed>) -> Self {
        let kept = Kept::keeping(&["history"]).await;
        let executor: Arc<dyn Executor> = Arc::clone(&observed) as Arc<dyn Executor>;
        let gateway = async |account: &str, secret: u8| {
            start(Start {
                skills: SKILL.to_vec(),
                executor: Arc::clone(&executor),
                secret: [secret; 32],
                registry: Some((kept.client(account), true)),
                on_cluster: true,
                ..Start::default()
            })
            .await
        };
        let (first, second, other) = (
            gateway("team:app", 1).await,
            gateway("team:app", 1).await,
            gateway("team:other", 2).await,
        );
        Self {
            kept,
            first,
            second,
            other,
            observed,
        }
    }

    /// What the registry keeps.
    fn kept(&self) -> Vec<Execution> {
        let folder: PathBuf = self.kept.folder.path().join("history");
        read_folder(&folder).unwrap().executions
    }
}

fn tell(wait: f64) -> Value {
    json!({"skillName": "clock", "input": {"wait": wait}})
}

async fn run(at: &Running, (credential, key): (&str, &str), body: &Value) -> Answer {
    let request = client()
        .post(format!("{}/api/skills/executions", at.url))
        .bearer_auth(credential)
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body.to_string());
    read(request.send().await.unwrap()).await
}

/// The answer to a repeat, once the registry knows how the run ended: the gateway that ran it waits for that for some seconds only.
async fn repeat(at: &Running, who: (&str, &str), body: &Value) -> Answer {
    let ended = async {
        loop {
            let again = run(at, who, body).await;
            if again.status != 409 {
                return again;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap()
}

#[tokio::test]
async fn replicas_of_a_gateway_run_the_same_request_once() {
    let cluster = Cluster::of(Observed::holding().await).await;
    let (first, second) = (&cluster.first, &cluster.second);
    let body = tell(0.0);
    let many = (0..6).map(|number| run([first, second][number % 2], ("one", "k"), &body));
    let mut many: FuturesUnordered<_> = many.collect();
    let mut answers = Vec::new();
    // Another request under the key of one that runs, at the gateway that runs it and at the other one.
    let conflicts = async |at: &Running| {
        let answer = run(at, ("one", "k"), &tell(0.001)).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (409, &json!("IDENTITY_CONFLICT")),
            "{}",
            answer.text
        );
    };
    // The one runs on until the others are answered.
    while answers.len() < 5 {
        let answer = tokio::time::timeout(PATIENCE, many.next()).await;
        answers.extend(answer.expect("five are answered while one runs"));
    }
    conflicts(first).await;
    conflicts(second).await;
    cluster.observed.let_go(ALL);
    answers.extend(many.next().await);
    let (ran, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((ran.len(), refused.len()), (1, 5), "{answers:?}");
    for answer in refused {
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (409, &json!("TOOL_IN_PROGRESS")),
            "{}",
            answer.text
        );
    }
    let ran = ran[0].json();
    assert_eq!(
        (&ran["replayed"], &ran["execution"]["status"]),
        (&json!(false), &json!("success")),
        "{ran}"
    );
    for at in [first, second] {
        let again = repeat(at, ("one", "k"), &body).await.json();
        assert_eq!(
            (&again["replayed"], &again["execution"]),
            (&json!(true), &ran["execution"])
        );
    }
    let kept = cluster.kept();
    assert_eq!(
        (kept.len(), kept[0].id.as_str()),
        (1, ran["execution"]["id"].as_str().unwrap())
    );
    conflicts(first).await;
    conflicts(second).await;
    // Another key, credential or account is another run.
    for (at, who, body) in [
        (second, ("one", "another"), body.clone()),
        (second, ("two", "k"), body.clone()),
        (&cluster.other, ("one", "k"), body.clone()),
    ] {
        let answer = run(at, who, &body).await;
        assert_eq!(
            (answer.status, &answer.json()["replayed"]),
            (200, &json!(false)),
            "{who:?}: {}",
            answer.text
        );
        assert_ne!(answer.json()["execution"]["output"], ran["execution"]["output"]);
    }
    assert_eq!(cluster.kept().len(), 4);
}

#[tokio::test]
async fn what_is_not_run_is_not_kept_and_what_takes_too_long_is_not_run_again() {
    let cluster = Cluster::start().await;
    let (first, second) = (&cluster.first, &cluster.second);
    for (body, status, says) in [
        (json!({"skillName": "clock", "input": {"wait": "long"}}), 400, "wait"),
        (
            json!({"skillName": "clock", "tool": "another"}),
            400,
            "declares the tools tell",
        ),
        (json!({"skillName": "nobody"}), 404, "nobody"),
    ] {
        for at in [first, second] {
            let answer = run(at, ("one", "k"), &body).await;
            assert!(
                answer.status == status && answer.text.contains(says),
                "{} {}",
                answer.status,
                answer.text
            );
        }
    }
    assert_eq!(cluster.kept(), [], "nothing was run");
    // As in knack dev: one that declares no tool is kept as an error.
    let body = json!({"skillName": "text"});
    assert_eq!(run(first, ("one", "k"), &body).await.status, 400);
    let again = repeat(second, ("one", "k"), &body).await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (500, &json!("TOOL_EXECUTION_ERROR")),
        "{}",
        again.text
    );
    let late = run(first, ("one", "late"), &tell(300.0)).await.json();
    assert_eq!(late["execution"]["status"], "timeout", "{late}");
    let again = repeat(second, ("one", "late"), &tell(300.0)).await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (504, &json!("TOOL_EXECUTION_TIMEOUT")),
        "{}",
        again.text
    );
}

#[tokio::test]
async fn a_registry_that_is_killed_lets_nothing_run_twice() {
    let mut cluster = Cluster::of(Observed::holding().await).await;
    cluster.observed.let_go(1);
    let done = run(&cluster.first, ("one", "done"), &tell(0.0)).await.json();
    let (url, body) = (cluster.first.url.clone(), tell(0.0));
    let request = client()
        .post(format!("{url}/api/skills/executions"))
        .bearer_auth("one")
        .header("idempotency-key", "under-way")
        .header("content-type", "application/json")
        .body(body.to_string());
    let running = tokio::spawn(request.send());
    // The registry has the claim on its disk a moment before the gateway knows that it is its own; killed in between, nothing runs.
    cluster.observed.asked_after(1).await;
    cluster.kept.kill();
    for at in [&cluster.first, &cluster.second] {
        let answer = run(at, ("one", "new"), &tell(0.0)).await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(
            answer.json()["error"].as_str().unwrap().contains("nothing was run"),
            "{}",
            answer.text
        );
    }
    cluster.kept.begin().await;
    // What ran before is known.
    let again = repeat(&cluster.second, ("one", "done"), &tell(0.0)).await.json();
    assert_eq!(
        (&again["replayed"], &again["execution"]),
        (&json!(true), &done["execution"])
    );
    // Of a run that was under way the outcome is unknown; it is not run again, and its end is known once it is reported.
    let lost = run(&cluster.second, ("one", "under-way"), &body).await;
    assert_eq!(
        (lost.status, &lost.json()["code"]),
        (500, &json!("TOOL_STATE_UNKNOWN")),
        "{}",
        lost.text
    );
    let is_told = lost.text.contains("whether the program did its work is not known");
    assert!(is_told, "{}", lost.text);
    cluster.observed.let_go(ALL);
    let ran: Value = serde_json::from_str(&running.await.unwrap().unwrap().text().await.unwrap()).unwrap();
    assert_eq!(ran["execution"]["status"], "success", "{ran}");
    let mut again = run(&cluster.second, ("one", "under-way"), &body).await.json();
    let begun = Instant::now();
    while again["replayed"] != true && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        again = run(&cluster.second, ("one", "under-way"), &body).await.json();
    }
    assert_eq!(
        (&again["replayed"], &again["execution"]),
        (&json!(true), &ran["execution"])
    );
    // What was refused while the registry was away runs now.
    let new = run(&cluster.second, ("one", "new"), &tell(0.0)).await;
    assert_eq!(
        (new.status, &new.json()["replayed"]),
        (200, &json!(false)),
        "{}",
        new.text
    );
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run_and_a_repeat_gets_that_answer() {
    let cluster = Cluster::start().await;
    let body = tell(25.0);
    tokio::select! {
        early = run(&cluster.first, ("one", "k"), &body) => panic!("it runs longer: {early:?}"),
        _running = cluster.observed.running_after(0) => {}
    }
    let again = repeat(&cluster.second, ("one", "k"), &body).await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (500, &json!("TOOL_EXECUTION_ERROR")),
        "{}",
        again.text
    );
    assert!(again.text.contains("its client disconnected"), "{}", again.text);
}

#[tokio::test]
async fn without_a_history_the_header_is_refused_by_what_to_set() {
    let kept = Kept::keeping(&["files"]).await;
    let executor: Arc<dyn Executor> = Arc::new(super::runner::executor(1).await);
    for is_reported in [false, true] {
        let gateway = start(Start {
            skills: SKILL.to_vec(),
            executor: Arc::clone(&executor),
            registry: Some((kept.client("team:app"), is_reported)),
            on_cluster: true,
            ..Start::default()
        })
        .await;
        let answer = run(&gateway, ("one", "k"), &tell(0.0)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("registry.history.enabled"), "{}", answer.text);
    }
}
