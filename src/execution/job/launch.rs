//! From nothing to a pod that stands attached, claimed and locked.

use std::sync::Arc;
use std::time::Duration;

use knack_runner::protocol::{
    Claim, Data, Exit, FromRunner, Interpreter, Journal, Landlock, Limits as WireLimits, PROTOCOL, Ready, Start,
    ToRunner, Watch, encode,
};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::attach::Attached;
use super::cluster::{Cluster, trouble_of};
use super::facts::{ContainerFacts, PodFacts};
use super::failure::{Trouble, failure, trouble, vanished};
use super::keys::Keys;
use super::names::RUN_PATH;
use super::pods::{PodIndex, PodState};
use super::spec::{JobIdentity, JobPurpose, job_spec};
use super::view::{EnvGrant, JournalMode, PodResources, RuntimeView};
use crate::execution::conversation::{Transport as _, address_space, lock_report, millis, wire_language};
use crate::execution::{ClusterFailureKind, ExecutionError, Language, Limits, LockReport};

/// Between two tries to attach: a container takes 300 ms to run, and each try costs the kubelet a call.
const ATTACH_RETRY_FIRST: Duration = Duration::from_millis(20);
/// The same, later.
const ATTACH_RETRY_LAST: Duration = Duration::from_millis(100);
/// How long one try may take.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a container that runs may refuse to be attached to: containerd tells "running" a moment before it takes one.
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);
/// How long a runner may take to answer `claim`: it answers in a millisecond, on a node without CPU to give in seconds.
/// A container that dies meanwhile ends the stream, and its pod says why.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an interpreter may take to stand: 15 to 40 ms are usual.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// When the Events of a Job without a pod are looked at, and how often: the Job controller makes the pod within 20 ms.
const EVENTS_AFTER: Duration = Duration::from_secs(1);
/// The log stays below the kubelet's rotation (10 MiB), with room for a second writer of the same file system.
const JOURNAL_BYTES: u64 = 6 << 20;
/// Processes and threads of one run: node starts a dozen by itself.
const MAX_PROCESSES: u64 = 128;
/// A request may ask for this many times the default output and files; beyond, it is lowered to that.
const MAX_OVER_DEFAULT: u64 = 16;
/// Longest part of the runtime's name in a Job's name, so that the pod's name, 6 longer, fits a label.
const NAME_PART_BYTES: usize = 40;

/// Which pod is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Its image.
    pub(super) image: String,
    /// Its resources.
    pub(super) resources: PodResources,
    /// Values from Secrets.
    pub(super) env: Vec<EnvGrant>,
    /// The interpreter to start ahead; none for commands.
    pub(super) language: Option<Language>,
}

impl Plan {
    /// The pod that the runtime's pool holds.
    pub(super) fn of_pool(view: &RuntimeView, language: Option<Language>) -> Self {
        Self {
            image: view.image.clone(),
            resources: view.resources.clone(),
            env: Vec::new(),
            language,
        }
    }
}

/// A pod that waits for its only run.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// The stream to its runner.
    pub(super) attached: Attached,
    /// Its Job.
    pub(super) job: String,
    /// Its name.
    pub(super) pod: String,
    /// Its uid.
    pub(super) uid: String,
    /// What the watch says of it.
    pub(super) state: watch::Receiver<PodState>,
    /// The locks that hold.
    pub(super) locks: Option<LockReport>,
    /// When the Job's deadline ends it.
    pub(super) dies: Instant,
    /// When it stood ready.
    pub(super) since: Instant,
}

/// Makes pods; see the module.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) cluster: Cluster,
    pub(super) index: Arc<PodIndex>,
    pub(super) keys: Keys,
    pub(super) replica: String,
    pub(super) start_timeout: Duration,
}

impl Launcher {
    /// Makes a Job and waits until its runner stands ready; `progress` is told each step. On an error, and if the future is
    /// dropped, nothing of it stays.
    pub(super) async fn launch(
        &self,
        view: &RuntimeView,
        plan: &Plan,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Sandbox, ExecutionError> {
        let identity = JobIdentity {
            name: job_name(&view.name),
            uid: self.pick_uid(view),
            image: plan.image.clone(),
            resources: plan.resources.clone(),
            env: plan.env.clone(),
            owner: self.replica.clone(),
            purpose: JobPurpose::Run,
        };
        let mut cleanup = Cleanup {
            cluster: Some(self.cluster.clone()),
            job: identity.name.clone(),
        };
        let mut state = self.index.follow(&identity.name);
        let began = Instant::now();
        self.cluster.create(&job_spec(view, &identity)).await?;
        progress("created");
        let deadline = began + self.start_timeout;
        let (facts, attached) =
            match tokio::time::timeout_at(deadline, self.attach(&identity.name, &mut state, progress)).await {
                Ok(outcome) => outcome?,
                Err(_) => {
                    return Err(failure(
                        ClusterFailureKind::StartTimeout,
                        "StartTimeout",
                        &format!("the pod did not stand within {} s", self.start_timeout.as_secs()),
                        false,
                    ));
                }
            };
        let mut sandbox = Sandbox {
            attached,
            job: identity.name,
            pod: facts.name,
            uid: facts.uid,
            state,
            locks: None,
            dies: began + view.active_deadline(),
            since: began,
        };
        self.start(&mut sandbox, view, plan).await?;
        sandbox.since = Instant::now();
        cleanup.cluster = None;
        Ok(sandbox)
    }

    /// Waits for the pod and attaches as soon as it takes it.
    async fn attach(
        &self,
        job: &str,
        state: &mut watch::Receiver<PodState>,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(PodFacts, Attached), ExecutionError> {
        let nonce = Uuid::new_v4().to_string();
        let mut troubles = Troubles::default();
        let mut retry = ATTACH_RETRY_FIRST;
        let mut running_since: Option<Instant> = None;
        let mut told_bound = false;
        loop {
            let now = state.borrow_and_update().clone();
            self.judge(job, &now, &mut troubles).await?;
            let Some(facts) = now.facts.filter(|facts| facts.node.is_some()) else {
                // Bound or in trouble: either is a change. Without a pod nothing changes, so the Job is asked.
                let changed = tokio::time::timeout(EVENTS_AFTER, state.changed()).await;
                if changed.is_err()
                    && state.borrow().facts.is_none()
                    && let Some(found) = self.cluster.job_trouble(job).await
                {
                    return Err(found.error(false));
                }
                continue;
            };
            if !told_bound {
                told_bound = true;
                progress("bound");
            }
            if facts.container == ContainerFacts::Running {
                running_since.get_or_insert_with(Instant::now);
            }
            let key = self.keys.journal(&facts.uid);
            let opening = Attached::open(&self.cluster.attach, &facts.name, nonce.clone(), key);
            match tokio::time::timeout(ATTACH_TIMEOUT, opening).await {
                Ok(Ok(mut attached)) => {
                    if claim(&mut attached, &nonce).await? {
                        progress("running");
                        return Ok((facts, attached));
                    }
                    // Accepted before the container ran, and ended at once: not ready.
                }
                Ok(Err(error))
                    if running_since.is_some_and(|since| since.elapsed() > ATTACH_PATIENCE) || is_forbidden(&error) =>
                {
                    let said = trouble_of(&error);
                    return Err(failure(
                        ClusterFailureKind::AttachRefused,
                        &said.reason,
                        &said.message,
                        false,
                    ));
                }
                Ok(Err(_)) | Err(_) => {}
            }
            // The watch may tell the reason sooner than the next try.
            let _ = tokio::time::timeout(retry, state.changed()).await;
            retry = (retry * 3 / 2).min(ATTACH_RETRY_LAST);
        }
    }

    /// Fails if the pod is in a trouble that has lasted.
    async fn judge(&self, job: &str, state: &PodState, troubles: &mut Troubles) -> Result<(), ExecutionError> {
        if state.is_gone {
            let job_failed = self.cluster.job_failed(job).await;
            return Err(vanished(state.facts.as_ref(), job_failed.as_ref()).error(false));
        }
        let Some(facts) = &state.facts else { return Ok(()) };
        let found = trouble(facts).or_else(|| {
            facts.is_over().then(|| Trouble {
                kind: ClusterFailureKind::ContainerFailed,
                reason: "Completed".to_owned(),
                message: "the container ended before it was claimed".to_owned(),
                patience: Duration::ZERO,
            })
        });
        match troubles.lasting(found) {
            Some(found) => Err(found.error(false)),
            None => Ok(()),
        }
    }

    /// Sends `start` and waits until the interpreter stands.
    async fn start(&self, sandbox: &mut Sandbox, view: &RuntimeView, plan: &Plan) -> Result<(), ExecutionError> {
        let frame = start_frame(view, plan, sandbox.attached.nonce(), &self.keys.journal(&sandbox.uid));
        let sent = sandbox.attached.send(&encode(&ToRunner::Start(frame))).await;
        sent.map_err(|error| stream_ended(&error))?;
        let answer = async {
            let nonce = sandbox.attached.nonce();
            loop {
                match sandbox.attached.next().await? {
                    FromRunner::Ready(ready) if ready.nonce == nonce => {
                        return check_version(&ready).map(|()| ready.locks);
                    }
                    FromRunner::Result(result) => {
                        let reason = match result.exit {
                            Exit::NotStarted { reason } => reason,
                            other => format!("{other:?}"),
                        };
                        return Err(failure(
                            ClusterFailureKind::ContainerFailed,
                            "NotStarted",
                            &reason,
                            false,
                        ));
                    }
                    FromRunner::Rejected(rejected) => {
                        return Err(failure(
                            ClusterFailureKind::RunnerTooOld,
                            "Rejected",
                            &rejected.message,
                            false,
                        ));
                    }
                    _ => {}
                }
            }
        };
        let answered = tokio::time::timeout(READY_TIMEOUT, answer).await;
        match answered {
            Ok(Ok(locks)) => {
                sandbox.locks = locks.map(lock_report);
                Ok(())
            }
            Ok(Err(error @ ExecutionError::Cluster(_))) => Err(error),
            // The stream ended: the pod knows why.
            Ok(Err(error)) => match trouble(&self.index.state(&sandbox.job).facts.unwrap_or_default()) {
                Some(found) => Err(found.error(false)),
                None => Err(stream_ended(&error)),
            },
            Err(_) => Err(failure(
                ClusterFailureKind::ContainerFailed,
                "NoAnswer",
                "the runner did not say that it is ready",
                false,
            )),
        }
    }

    /// A user id that no pod of the runtime has. Two runtimes may meet in one by chance; they share the process limit then.
    fn pick_uid(&self, view: &RuntimeView) -> u32 {
        let used = self.index.uids();
        let (first, last) = (view.uids.first, view.uids.last.max(view.uids.first));
        let size = u128::from(last - first) + 1;
        let start = Uuid::new_v4().as_u128() % size;
        let free = (0..size.min(1024))
            .filter_map(|step| u32::try_from((start + step) % size).ok())
            .map(|offset| first + offset)
            .find(|uid| !used.contains(uid));
        free.unwrap_or(first)
    }
}

/// The word of a stream that ended between claim and run: kubelet or containerd went away. Another pod may be tried.
pub(super) const STREAM_ENDED: &str = "StreamEnded";

fn stream_ended(error: &ExecutionError) -> ExecutionError {
    let message = format!("before the run began: {error}");
    failure(ClusterFailureKind::ApiUnavailable, STREAM_ENDED, &message, false)
}

/// Sends `claim` and waits for its echo. `false`: the stream ended before anything came.
async fn claim(attached: &mut Attached, nonce: &str) -> Result<bool, ExecutionError> {
    let frame = encode(&ToRunner::Claim(Claim {
        nonce: nonce.to_owned(),
    }));
    if attached.send(&frame).await.is_err() {
        return Ok(false);
    }
    let echo = async {
        loop {
            match attached.next().await {
                Ok(FromRunner::Claimed(claimed)) if claimed.nonce == nonce => return Ok(true),
                Ok(FromRunner::Claimed(_)) => {
                    return Err(ExecutionError::Internal("the pod belongs to somebody else".into()));
                }
                Ok(FromRunner::Ready(ready)) if ready.nonce.is_empty() => check_version(&ready)?,
                Ok(_) => {}
                Err(_) => return Ok(false),
            }
        }
    };
    tokio::time::timeout(CLAIM_TIMEOUT, echo).await.unwrap_or_else(|_| {
        Err(failure(
            ClusterFailureKind::RunnerTooOld,
            "NoAnswer",
            "what runs in the container does not answer as a knack-runner",
            false,
        ))
    })
}

fn check_version(ready: &Ready) -> Result<(), ExecutionError> {
    if ready.protocol == PROTOCOL {
        return Ok(());
    }
    Err(failure(
        ClusterFailureKind::RunnerTooOld,
        "ProtocolMismatch",
        &format!(
            "runner {} speaks protocol {}, this knack {PROTOCOL}; use a sandbox image of this release",
            ready.version, ready.protocol
        ),
        false,
    ))
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// The frame that builds the sandbox in a pod.
fn start_frame(view: &RuntimeView, plan: &Plan, nonce: String, key: &[u8; 32]) -> Start {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut read = texts(&[
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/ssl/openssl.cnf",
        "/etc/ssl/certs",
        "/dev/zero",
        "/dev/urandom",
    ]);
    // Debian's `sitecustomize` is a link into the directory of its version. What does not exist is passed over.
    read.extend((8..=20).map(|minor| format!("/etc/python3.{minor}")));
    let environment = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        // Skill folders are read-only.
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    Start {
        nonce,
        directory: RUN_PATH.to_owned(),
        interpreter: plan.language.map(|language| Interpreter {
            language: wire_language(language),
            path: interpreter_path(language).to_owned(),
        }),
        read,
        execute: texts(&["/usr", "/lib", "/lib64", "/bin"]),
        write: texts(&["/dev/null"]),
        landlock: Landlock::BestEffort,
        identity: None,
        environment,
        inherit: plan.env.iter().map(|grant| grant.name.clone()).collect(),
        limits: WireLimits {
            timeout_ms: Some(millis(view.max_timeout)),
            processes: Some(MAX_PROCESSES),
            output_bytes: Some(Limits::DEFAULT_OUTPUT_BYTES * MAX_OVER_DEFAULT),
            result_bytes: Some(Limits::DEFAULT_FILES_BYTES * MAX_OVER_DEFAULT),
            result_files: Some(u64::from(Limits::DEFAULT_FILES) * MAX_OVER_DEFAULT),
            address_space_bytes: plan
                .language
                .filter(|language| *language == Language::Python)
                .and_then(|language| address_space(Some(language), None)),
            ..WireLimits::default()
        },
        // The pod's cgroup and its volume's size watch.
        watch: Watch::default(),
        // Stdin may end with the node's container runtime: the run goes on, and its journal tells how it ended.
        eof_grace_ms: millis(view.max_timeout),
        journal: Some(Journal {
            key: (view.logs == JournalMode::Sealed).then(|| Data(key.to_vec())),
            max_bytes: JOURNAL_BYTES,
        }),
    }
}

/// Where the interpreters of sandbox images are.
pub(super) const fn interpreter_path(language: Language) -> &'static str {
    match language {
        Language::Python => "/usr/bin/python3",
        Language::Node => "/usr/bin/node",
    }
}

/// `<runtime>-<10 random characters>`, at most 51 bytes: a pod's name adds 6, and a label holds 63.
pub(super) fn job_name(runtime: &str) -> String {
    let part = runtime
        .get(..NAME_PART_BYTES)
        .unwrap_or(runtime)
        .trim_end_matches(['-', '.']);
    let random = Uuid::new_v4().simple().to_string();
    format!("{}-{}", part.replace('.', "-"), &random[..10])
}

/// Which trouble is seen since when.
#[derive(Debug, Default)]
struct Troubles {
    seen: Option<(ClusterFailureKind, Instant)>,
}

impl Troubles {
    /// The trouble, if its patience is used up.
    fn lasting(&mut self, found: Option<Trouble>) -> Option<Trouble> {
        let found = found?;
        let since = match self.seen {
            Some((kind, since)) if kind == found.kind => since,
            _ => {
                let now = Instant::now();
                self.seen = Some((found.kind, now));
                now
            }
        };
        (since.elapsed() >= found.patience).then_some(found)
    }
}

/// Deletes the Job unless it was told not to.
struct Cleanup {
    cluster: Option<Cluster>,
    job: String,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let job = std::mem::take(&mut self.job);
            runtime.spawn(async move { cluster.delete_job(&job).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs_fit_a_label_with_their_pods_suffix() {
        for runtime in ["a", "default", &"x".repeat(63), &format!("{}-", "y".repeat(39)), "a.b"] {
            let name = job_name(runtime);
            assert!(name.len() + 6 <= 63, "{name}");
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
                "{name}"
            );
            assert!(!name.contains("--"), "{name}");
        }
        assert_ne!(job_name("a"), job_name("a"));
    }

    #[test]
    fn the_runner_of_another_protocol_is_refused_by_name() {
        let ready = |protocol| Ready {
            nonce: String::new(),
            protocol,
            version: "0.0.9".to_owned(),
            locks: None,
        };
        assert!(check_version(&ready(PROTOCOL)).is_ok());
        for protocol in [PROTOCOL - 1, PROTOCOL + 1] {
            let error = check_version(&ready(protocol)).unwrap_err();
            assert_eq!(error.metric_label(), "runner_too_old");
            assert!(error.to_string().contains("0.0.9"), "{error}");
        }
    }
}
