//! Somebody who may attach to sandboxes, beside the hub.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use knack_execution::{ExecutionStatus, Executor as _, Exit};
use knack_runner::protocol::{
    Area, Cwd, Data, Files, Key, Language, Limits, OwnerLink, Program, Run, StagedFile, ToRunner, encode,
};
use kube::api::{Api, AttachParams, AttachedProcess, ListParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, eventually, python, within};

/// The program of the owner, whose output says whether a stranger's file is there, and where it runs.
const OURS: &str = "import os; print('ours', 'planted.py' in os.listdir(), os.uname().nodename)";
/// The id of the run that a stranger asks for; a runner tells it in plain words when it starts one.
const STOLEN: &str = "stolen-run";

/// Whole lines that somebody may write who has the right to attach: frames of an owner, with a key of his own and without any, and
/// frames of a runner. A `claim` comes last: a runner answers it.
fn forged() -> Vec<u8> {
    let mut stranger = OwnerLink::new(Key::new([6; 32]));
    let mut lines = vec![stranger.bind(), b"not json\n".to_vec()];
    let file = StagedFile {
        path: "planted.py".to_owned(),
        data: Data(b"x".to_vec()),
        append: false,
        executable: false,
    };
    let steal = Run {
        id: STOLEN.to_owned(),
        context: String::new(),
        program: Program::Code {
            language: Language::Python,
            source: "print('foreign')".to_owned(),
            arguments: Vec::new(),
        },
        cwd: Cwd::Work,
        environment: BTreeMap::new(),
        limits: Limits::default(),
        require_landlock: 0,
    };
    for frame in [
        ToRunner::Files(Files {
            area: Area::Work,
            files: vec![file],
        }),
        ToRunner::Run(steal),
        ToRunner::Cancel,
        ToRunner::Ack,
    ] {
        lines.push(stranger.encode(&frame));
        lines.push(encode(&frame));
    }
    for kind in ["started", "output", "result"] {
        let frame = json!({"type": kind, "id": STOLEN, "exit": {"type": "code", "code": 0}, "mac": "A".repeat(32)});
        lines.push(format!("{frame}\n").into_bytes());
    }
    lines.push(stranger.bind());
    lines.concat()
}

/// How long a runner may take to answer a stranger's `claim` on a busy machine. A pod whose run has just ended never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How long the run takes into which a stranger writes, seconds: longer than all of them may take to answer.
const RUN_SECONDS: u64 = 30;

/// A stream to a pod that stays open: a stdin that ends is another case.
type OpenStream = (AttachedProcess, Box<dyn AsyncWrite + Send + Unpin>);

/// A stranger's streams to the pods that run.
struct Stranger {
    streams: BTreeMap<String, OpenStream>,
}

impl Stranger {
    /// Attaches to every pod that runs but `others`, and writes. `answers`: how often a runner then says that it has an owner, which
    /// shows that it has read the lines before; a pod that does not is not counted.
    async fn writes(fixture: &Fixture, others: &[&Self], bytes: &[u8], answers: usize) -> Self {
        let api: Api<Pod> = Api::namespaced(fixture.cluster.client().await, &fixture.namespace);
        let running = ListParams::default().fields("status.phase=Running");
        let pods = api.list(&running).await.unwrap();
        let names = pods.into_iter().filter_map(|pod| pod.metadata.name);
        let names = names.filter(|name| others.iter().all(|other| !other.streams.contains_key(name)));
        let written = names.map(async |name| {
            let asked = tokio::time::timeout(ANSWER_WITHIN, write(&api, &name, bytes, answers)).await;
            Some((name, asked.ok()??))
        });
        let streams: BTreeMap<_, _> = futures::future::join_all(written).await.into_iter().flatten().collect();
        assert!(!streams.is_empty());
        Self { streams }
    }
}

/// Attaches to a pod and writes, until the runner has answered so often; `None` if the pod ends.
async fn write(api: &Api<Pod>, pod: &str, bytes: &[u8], answers: usize) -> Option<OpenStream> {
    let parameters = AttachParams::default().container("sandbox").stdin(true).stderr(false);
    let mut process = api.attach(pod, &parameters).await.ok()?;
    let (mut stdin, mut stdout) = (process.stdin()?, process.stdout()?);
    stdin.write_all(bytes).await.ok()?;
    stdin.flush().await.ok()?;
    let (mut told, mut piece) = (String::new(), [0; 4096]);
    while told.matches(r#""type":"claimed""#).count() < answers {
        match stdout.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => told.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
    Some((process, Box::new(stdin)))
}

/// Whoever may attach writes into the same stdin as the hub. Whole lines change nothing; half a line may cost a run, which is told,
/// and never makes another one of it.
#[test]
fn frames_that_a_second_attacher_forges_run_nothing() {
    cluster_support::run("frames_that_a_second_attacher_forges_run_nothing", async |cluster| {
        let fixture = Fixture::new(cluster, json!({"warmPool": {"replicas": 1}})).await;
        let logs = cluster.keep_logs(&fixture.namespace);
        let executor = fixture.owner().await;
        let stands = async || eventually(60, "a pod stands", async || executor.counts().ready == 1).await;
        let said = |pod: &str| format!("ours False {pod}\n");

        stands().await;
        let stranger = Stranger::writes(&fixture, &[], &forged(), 2).await;
        let result = within(60, executor.execute(python(OURS), CancellationToken::new()))
            .await
            .unwrap();
        let expected: Vec<String> = stranger.streams.keys().map(|pod| said(pod)).collect();
        assert_eq!(
            *expected,
            [result.stdout.text().into_owned()],
            "in the pod that was written into"
        );

        stands().await;
        let mut request = python(&format!("import time; time.sleep({RUN_SECONDS}); {OURS}"));
        request.limits.timeout = Duration::from_secs(2 * RUN_SECONDS);
        let id = request.id;
        let forge = async {
            eventually(30, "it runs", async || {
                let record = executor.get("team/app/uid", id).await;
                record.is_ok_and(|record| record.status == ExecutionStatus::Running)
            })
            .await;
            Stranger::writes(&fixture, &[&stranger], &forged(), 2).await
        };
        let (outcome, second) = tokio::join!(executor.execute(request, CancellationToken::new()), forge);
        let result = outcome.unwrap();
        let text = result.stdout.text();
        assert!(
            second.streams.keys().any(|pod| said(pod) == text),
            "{text} {:?}",
            second.streams.keys()
        );
        assert_eq!(result.exit, Exit::Code(0));

        stands().await;
        let _stranger = Stranger::writes(&fixture, &[&stranger, &second], br#"{"type":"files","area":"#, 0).await;
        // What is on its way has no answer to wait for.
        tokio::time::sleep(Duration::from_millis(500)).await;
        match within(60, executor.execute(python(OURS), CancellationToken::new())).await {
            Ok(result) => assert!(result.stdout.text().starts_with("ours False "), "{result:?}"),
            Err(error) => println!("half a line: {error}"),
        }
        stands().await;
        executor.shutdown().await;
        let pods = logs.pods();
        assert!(pods.len() >= 3, "{pods:?}");
        let told: Vec<String> = pods.iter().flat_map(|pod| logs.lines(pod)).collect();
        assert!(told.iter().any(|line| line.contains(r#""type":"started""#)), "{told:?}");
        assert!(!told.iter().any(|line| line.contains(STOLEN)), "{told:?}");
    });
}
