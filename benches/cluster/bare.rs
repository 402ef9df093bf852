//! The floor: Jobs as a person would write them, with the sandbox's image and resources, a read-only root and a place for
//! files, and nothing else.
//!
//! The place for files is a volume, and a volume of any kind costs a start 300 ms: the kubelet checks whether volumes
//! are mounted when the pod comes, which they never are, and then each 300 ms. `cold` measures it without a volume,
//! too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster_support::{Cluster, Namespace};
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::calls::{ANSWER, code};

/// Answers a question for its state, reads one program from stdin, runs it and ends.
const PROGRAM: &str = "import sys\nline = sys.stdin.readline()\nwhile line == 'ping\\n':\n    print('ready', flush=True)\n    line = sys.stdin.readline()\nexec(compile(sys.stdin.read(int(line)), 'run', 'exec'))\n";
/// Asks. Output from before the attach is not received.
const PING: &str = "ping\n";
/// Its answer when it is ready.
const READY: &str = "ready\n";
/// How long an attach that was accepted may stay silent: the interpreter starts within some 20 ms.
const SILENCE: Duration = Duration::from_secs(5);
/// Pause between two tries to attach, as Knack's.
const ATTACH_RETRY_FIRST: Duration = Duration::from_millis(20);
/// The longest, as Knack's.
const ATTACH_RETRY_LAST: Duration = Duration::from_millis(100);
/// How long a pod may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a watch says of a Job's pod.
#[derive(Debug, Clone, Default)]
struct Seen {
    pod: String,
    is_bound: bool,
    has_ended: bool,
}

/// A namespace of bare Jobs.
pub(crate) struct Bare {
    pub(crate) namespace: Namespace,
    jobs: Api<Job>,
    pods: Api<Pod>,
    image: String,
    has_volume: bool,
    seen: watch::Receiver<BTreeMap<String, Seen>>,
    _watch: AbortOnDropHandle<()>,
}

/// An attached pod with its interpreter started.
pub(crate) struct Attached {
    process: AttachedProcess,
    stdin: Box<dyn tokio::io::AsyncWrite + Send + Unpin>,
    stdout: Box<dyn tokio::io::AsyncRead + Send + Unpin>,
}

impl Bare {
    /// An empty one.
    pub(crate) async fn new(cluster: &'static Cluster) -> Self {
        let namespace = cluster.namespace("bare").await;
        let client = cluster.client().await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let (sender, seen) = watch::channel(BTreeMap::new());
        let watching = tokio::spawn(follow(pods.clone(), sender));
        Self {
            jobs: Api::namespaced(client, &namespace),
            pods,
            image: cluster.image("sandbox-python"),
            has_volume: true,
            namespace,
            seen,
            _watch: AbortOnDropHandle::new(watching),
        }
    }

    /// From now on with a place for files, or without.
    pub(crate) fn with_volume(&mut self, has_volume: bool) {
        self.has_volume = has_volume;
    }

    /// A Job that runs the code of a call by itself, from its creation to the end of its pod.
    pub(crate) async fn run(&self, ttl_seconds: u32) {
        let job = self
            .create(&["/usr/bin/python3", "-c", &code()], false, ttl_seconds)
            .await;
        self.until(&job, |seen| seen.has_ended).await;
    }

    /// A Job that is attached to as early as possible: from before its creation to its answer.
    pub(crate) async fn cold(&self, ttl_seconds: u32) -> Duration {
        let begun = Instant::now();
        // The code goes ahead: it waits in the pod for the interpreter.
        self.attach(ttl_seconds, &message(), ANSWER).await;
        begun.elapsed()
    }

    /// A warm pod.
    pub(crate) async fn attached(&self, ttl_seconds: u32) -> Attached {
        self.attach(ttl_seconds, PING, READY).await
    }

    /// Makes a Job, attaches as soon as it goes, says `words` and waits for `expected`.
    async fn attach(&self, ttl_seconds: u32, words: &str, expected: &str) -> Attached {
        let job = self
            .create(&["/usr/bin/python3", "-c", PROGRAM], true, ttl_seconds)
            .await;
        let pod = self.until(&job, |seen| seen.is_bound).await.pod;
        let parameters = AttachParams::default()
            .container("run")
            .stdin(true)
            .stdout(true)
            .stderr(false)
            .max_stdin_buf_size(64 << 10)
            .max_stdout_buf_size(64 << 10);
        let mut pause = ATTACH_RETRY_FIRST;
        let attach = async {
            loop {
                if let Ok(mut process) = self.pods.attach(&pod, &parameters).await
                    && let (Some(stdin), Some(stdout)) = (process.stdin(), process.stdout())
                {
                    let mut attached = Attached {
                        process,
                        stdin: Box::new(stdin),
                        stdout: Box::new(stdout),
                    };
                    // Accepted before the container ran, it ends at once.
                    if attached.stdin.write_all(words.as_bytes()).await.is_ok() && attached.hear(expected).await {
                        return attached;
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 3 / 2).min(ATTACH_RETRY_LAST);
            }
        };
        tokio::time::timeout(PATIENCE, attach).await.expect("a bare pod stands")
    }

    async fn create(&self, command: &[&str], stdin: bool, ttl_seconds: u32) -> String {
        let name = format!("bare-{}", &uuid::Uuid::new_v4().simple().to_string()[..10]);
        let job = serde_json::from_value(self.spec(&name, command, stdin, ttl_seconds)).expect("a Job");
        self.jobs
            .create(&PostParams::default(), &job)
            .await
            .expect("a Job can be made");
        name
    }

    /// The resources are those of Knack's pods, and no token is mounted, which would take the node longer.
    fn spec(&self, name: &str, command: &[&str], stdin: bool, ttl_seconds: u32) -> Value {
        let (volumes, mounts) = if self.has_volume {
            (
                json!([{"name": "work", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]),
                json!([{"name": "work", "mountPath": "/work"}]),
            )
        } else {
            (json!([]), json!([]))
        };
        json!({
            "metadata": {"name": name},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": ttl_seconds,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                    "volumes": volumes,
                    "containers": [{
                        "name": "run",
                        "image": self.image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": command,
                        "stdin": stdin,
                        "volumeMounts": mounts,
                        "resources": {
                            "requests": {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"},
                            "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "64Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                }},
            },
        })
    }

    async fn until(&self, job: &str, holds: impl Fn(&Seen) -> bool) -> Seen {
        let mut all = self.seen.clone();
        let found = all.wait_for(|all| all.get(job).is_some_and(&holds));
        let found = tokio::time::timeout(PATIENCE, found).await.expect("a bare pod gets on");
        found.expect("the watch goes on")[job].clone()
    }
}

impl Attached {
    /// Sends the code of a call and waits for its answer.
    pub(crate) async fn ask(&mut self) -> Duration {
        let begun = Instant::now();
        self.stdin
            .write_all(message().as_bytes())
            .await
            .expect("the pod listens");
        assert!(self.hear(ANSWER).await, "a bare pod answers");
        begun.elapsed()
    }

    /// Reads so many bytes; false if the stream ends or stays silent before.
    async fn hear(&mut self, expected: &str) -> bool {
        let mut heard = vec![0; expected.len()];
        let read = tokio::time::timeout(SILENCE, self.stdout.read_exact(&mut heard));
        if !matches!(read.await, Ok(Ok(_))) {
            return false;
        }
        assert_eq!(heard, expected.as_bytes(), "what a bare pod says");
        true
    }
}

/// The code of a call as [`PROGRAM`] reads it.
fn message() -> String {
    let code = code();
    format!("{}\n{code}", code.len())
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.process.abort();
    }
}

async fn follow(pods: Api<Pod>, sender: watch::Sender<BTreeMap<String, Seen>>) {
    let mut events = std::pin::pin!(
        watcher(pods, watcher::Config::default().labels("batch.kubernetes.io/job-name"))
            .default_backoff()
            .touched_objects()
    );
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let labels = pod.metadata.labels.unwrap_or_default();
        let Some(job) = labels.get("batch.kubernetes.io/job-name") else {
            continue;
        };
        let seen = Seen {
            pod: pod.metadata.name.unwrap_or_default(),
            is_bound: pod.spec.and_then(|spec| spec.node_name).is_some(),
            has_ended: matches!(
                pod.status.and_then(|status| status.phase).as_deref(),
                Some("Succeeded" | "Failed")
            ),
        };
        sender.send_modify(|all| {
            all.insert(job.clone(), seen);
        });
    }
}
