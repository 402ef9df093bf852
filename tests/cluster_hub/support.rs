//! An installation of Knack for one test.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster_support::{Cluster, Namespace};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knack_api::Skill;
use knack_execution::remote::RemoteExecutor;
use knack_execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Executor as _, Limits, Program, SkillMount,
};
use knack_gateway::catalog::remote::fetch_skill;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, LineReader, Token};
use knack_hub_api::{CatalogLine, ExecutionFrame, HubRefusal, RefusalCode, RuntimeName, SkillLine};
use knack_skill::model::{Skill as LoadedSkill, SkillRef};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) use super::port::free_port;

/// How long anything that should come soon may take on a busy machine. Shorter than the watch over the test's progress, which cannot say
/// what was waited for.
pub(crate) const SOON: Duration = cluster_support::STILL.saturating_sub(Duration::from_mins(1));

/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);

/// The limit of a run that is not about its limit. The default is 10 s, which an interpreter takes to start where many pods share a
/// node.
const RUN_TIMEOUT: Duration = Duration::from_mins(1);

/// The limits of such a run.
pub(crate) fn unhurried() -> Limits {
    Limits {
        timeout: RUN_TIMEOUT,
        ..Limits::default()
    }
}

/// Asks the hub again while it, or the API server that it asks, is too busy to answer.
pub(crate) async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, HubError>) -> Result<T, HubError> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.is_transient() && begun.elapsed() < SOON => tokio::time::sleep(POLL).await,
            answer => return answer,
        }
    }
}

/// A process of this build; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(cluster: &Cluster, folder: &Path, name: &str, words: &[String]) -> Self {
        Self::start_as(cluster.kubeconfig(), folder, name, words)
    }

    /// A process with another way to the API server.
    fn start_as(kubeconfig: &Path, folder: &Path, name: &str, words: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
        command.args(words).env("KUBECONFIG", kubeconfig);
        Self::spawn(folder, name, &mut command)
    }

    /// A process with words of its own, whose errors and log go to `<name>.log`.
    pub(crate) fn spawn(folder: &Path, name: &str, command: &mut Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = command
            .env("RUST_LOG", "info,kube=warn,tower=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Panics if it has ended, with what it said last.
    pub(crate) fn assert_runs(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{}: {status}", self.log.display());
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to stop, and waits.
    pub(crate) fn stop(&mut self) {
        self.terminate();
        let _ = self.child.wait();
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Stops and waits, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            let _ = writeln!(std::io::stderr(), "{}:", self.log.display());
            for line in tail.iter().rev() {
                let _ = writeln!(std::io::stderr(), "  {line}");
            }
        }
    }
}

/// What an installation is made of, beside what all have.
pub(crate) struct InstallationOptions {
    /// Namespaces of tenants.
    pub(crate) tenants: usize,
    /// Merged into the SkillRuntime's.
    pub(crate) spec: Value,
    /// Names that the hub's certificate is for.
    pub(crate) hub_names: Vec<String>,
    /// More words of every hub.
    pub(crate) hub_words: Vec<String>,
}

impl InstallationOptions {
    /// Of hubs on loopback without words of their own.
    pub(crate) fn of(tenants: usize, spec: Value) -> Self {
        Self {
            tenants,
            spec,
            hub_names: vec!["127.0.0.1".to_owned()],
            hub_words: Vec::new(),
        }
    }
}

/// An installation: controller, hub, one runtime that is the cluster default, and namespaces of tenants.
pub(crate) struct Installation {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: kube::Client,
    pub(crate) system: Namespace,
    pub(crate) run: Namespace,
    pub(crate) tenants: Vec<Namespace>,
    hub: Option<Process>,
    controller: Option<Process>,
    // Behind the processes, whose logs it holds.
    pub(crate) folder: tempfile::TempDir,
    /// What its processes find the API server by, and are known as there.
    pub(crate) kubeconfig: PathBuf,
    controller_words: Vec<String>,
    hub_words: Vec<String>,
    pub(crate) port: u16,
    authorities: String,
}

/// The label by which the runtime lets a tenant in.
const TENANT: &str = "hub-test-tenant";

impl Installation {
    /// Installs; `spec` is merged into the SkillRuntime's.
    pub(crate) async fn start(cluster: &'static Cluster, tenants: usize, spec: Value) -> Self {
        let mut installation = Self::install(cluster, InstallationOptions::of(tenants, spec)).await;
        installation.restart_hub().await;
        installation
    }

    /// Installs everything but a hub.
    pub(crate) async fn install(cluster: &'static Cluster, options: InstallationOptions) -> Self {
        let client = cluster.client().await;
        cluster.install_definitions();
        let system = cluster.namespace("hub-system").await;
        let run = cluster.namespace("hub-run").await;
        let mut tenants = Vec::new();
        for _ in 0..options.tenants {
            // A label of this installation, so that parallel tests keep apart.
            tenants.push(cluster.namespace_with("hub-tenant", &[(TENANT, run.name())]).await);
        }
        apply_runtime(&client, cluster, &run, options.spec).await;
        let folder = tempfile::tempdir().unwrap();
        let watched: Vec<String> = tenants
            .iter()
            .chain([&run])
            .map(|namespace| format!("--watch-namespace={}", namespace.name()))
            .collect();
        let mut controller_words = vec![
            "controller".to_owned(),
            format!("--namespace={}", system.name()),
            format!("--runtime-namespaces={}", run.name()),
            format!("--default-runtime={}/default", run.name()),
            "--allow-image-tags".to_owned(),
            "--metrics-listen=127.0.0.1:0".to_owned(),
        ];
        controller_words.extend(options.hub_names.iter().map(|name| format!("--hub-name={name}")));
        controller_words.extend(watched.iter().cloned());
        let mut hub_words = vec![
            "hub".to_owned(),
            format!("--namespace={}", system.name()),
            format!("--runtime-namespaces={}", run.name()),
            format!("--default-runtime={}/default", run.name()),
            "--allow-image-tags".to_owned(),
            format!("--tls-dir={}", folder.path().display()),
            format!("--journal-key={}", folder.path().join("journal.key").display()),
            "--metrics-listen=127.0.0.1:0".to_owned(),
        ];
        hub_words.extend(watched);
        hub_words.extend(options.hub_words);
        let mut installation = Self {
            cluster,
            client,
            system,
            run,
            tenants,
            folder,
            hub: None,
            controller: None,
            kubeconfig: cluster.kubeconfig().to_path_buf(),
            controller_words,
            hub_words,
            port: free_port(),
            authorities: String::new(),
        };
        installation.start_controller();
        installation.authorities = installation.mount_certificates().await;
        cluster_support::progress("the certificates are there");
        installation
    }

    /// From now on processes are started as a user of this name at the API server.
    pub(crate) fn acts_as(&mut self, user: &str) {
        let text = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        for entry in config["users"].as_array_mut().unwrap() {
            entry["user"]["as"] = json!(user);
        }
        self.kubeconfig = self.folder.path().join("kubeconfig");
        std::fs::write(&self.kubeconfig, config.to_string()).unwrap();
    }

    /// Starts the controller, or another one after it was stopped.
    pub(crate) fn start_controller(&mut self) {
        let words = &self.controller_words;
        self.controller = Some(Process::start_as(
            &self.kubeconfig,
            self.folder.path(),
            "controller",
            words,
        ));
    }

    /// Stops the controller as an upgrade does: it gives its Lease back.
    pub(crate) fn stop_controller(&mut self) {
        if let Some(mut controller) = self.controller.take() {
            controller.stop();
        }
    }

    /// Starts the hub, or starts it again after it was killed.
    pub(crate) async fn restart_hub(&mut self) {
        let mut hub = self.replica("hub", self.port);
        self.wait_for_hub(&self.url(), || hub.assert_runs()).await;
        self.hub = Some(hub);
    }

    /// SIGKILL to the hub.
    pub(crate) fn kill_hub(&mut self) {
        self.hub = None;
    }

    /// Another replica of the hub, on a port of loopback.
    pub(crate) fn replica(&self, name: &str, port: u16) -> Process {
        let words = self.hub_words(&format!("127.0.0.1:{port}"));
        Process::start_as(&self.kubeconfig, self.folder.path(), name, &words)
    }

    /// The words of a replica that serves, and is reached, at an address.
    pub(crate) fn hub_words(&self, address: &str) -> Vec<String> {
        let mut words = self.hub_words.clone();
        words.push(format!("--listen={address}"));
        words.push(format!("--advertise=https://{address}"));
        words
    }

    /// Waits until a hub at a URL serves, as a Service does before it sends traffic to a pod: it answers, and has read what the
    /// cluster has. Before that it asks to try again.
    pub(crate) async fn wait_for_hub_at(&self, url: &str) {
        self.wait_for_hub(url, || {}).await;
    }

    async fn wait_for_hub(&self, url: &str, mut meanwhile: impl FnMut()) {
        let client = self.hub_client_at(url, &self.token(&self.run, "default", "knack").await);
        tokio::time::timeout(SOON, async {
            // This caller may have no right to the runtime; a hub that says so has read its lists.
            while let Err(error) = client.hub().watch(&self.catalog()).await
                && error.is_transient()
            {
                meanwhile();
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .expect("the hub serves");
        cluster_support::progress("the hub serves");
    }

    pub(crate) fn runtime(&self) -> RuntimeName {
        RuntimeName::new(self.run.name(), "default")
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A token of a ServiceAccount.
    pub(crate) async fn token(&self, namespace: &str, account: &str, audience: &str) -> String {
        cluster_support::token(&self.client, namespace, account, audience).await
    }

    pub(crate) fn hub_client(&self, token: &str) -> HubClient {
        self.hub_client_at(&self.url(), token)
    }

    /// A client of the hub behind another URL.
    pub(crate) fn hub_client_at(&self, url: &str, token: &str) -> HubClient {
        HubClient::new(HubClientSettings {
            url: url.to_owned(),
            authorities: Authorities::Pem(self.authorities.clone()),
            token: Token::Fixed(token.to_owned()),
            address: None,
        })
        .unwrap()
    }

    /// A client as the default ServiceAccount of a tenant.
    pub(crate) async fn tenant(&self, index: usize) -> HubClient {
        let token = self.token(&self.tenants[index], "default", "knack").await;
        self.hub_client(&token)
    }

    /// Waits for the controller's certificates and writes them where a pod of the hub would have them mounted. Returns what
    /// a gateway would have: the authorities.
    pub(crate) async fn mount_certificates(&self) -> String {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.system.name());
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.system.name());
        tokio::time::timeout(SOON, async {
            loop {
                let secret = secrets.get_opt("knack-hub-tls").await.unwrap();
                let journal = secrets.get_opt("knack-hub-journal").await.unwrap();
                let map = maps.get_opt("knack-hub-ca").await.unwrap();
                if let (Some(mut data), Some(journal), Some(mut authorities)) = (
                    secret.and_then(|secret| secret.data),
                    journal.and_then(|secret| secret.data),
                    map.and_then(|map| map.data),
                ) {
                    data.extend(journal);
                    for key in ["tls.crt", "tls.key", "journal.key"] {
                        std::fs::write(self.folder.path().join(key), &data[key].0).unwrap();
                    }
                    return authorities.remove("ca.crt").unwrap();
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .expect("the controller makes certificates")
    }

    pub(crate) fn authorities_file(&self) -> PathBuf {
        let path = self.folder.path().join("ca.crt");
        std::fs::write(&path, &self.authorities).unwrap();
        path
    }

    /// Applies a Skill with a script.
    pub(crate) async fn skill(&self, namespace: &str, name: &str, script: &str) {
        apply_skill(&self.client, namespace, name, script).await;
    }

    pub(crate) fn catalog(&self) -> String {
        format!("/v1/catalog?runtime={}", self.runtime())
    }

    /// Waits until a Skill is served to a caller, by the stream's own word.
    pub(crate) async fn served(&self, client: &HubClient, name: &str) -> SkillLine {
        let path = format!("{}&watch=true", self.catalog());
        let mut lines = patiently(async || client.hub().watch(&path).await).await.unwrap();
        let line = tokio::time::timeout(SOON, next_skill(&mut lines, |skill| skill.name == name)).await;
        cluster_support::progress(format!("{name} is served"));
        line.unwrap_or_else(|_| panic!("{name} is served"))
    }

    /// Names in a caller's catalog.
    pub(crate) async fn names(&self, client: &HubClient) -> Vec<String> {
        let mut lines = patiently(async || client.hub().watch(&self.catalog()).await)
            .await
            .unwrap();
        let mut names = Vec::new();
        while let Some(line) = lines.next_value::<CatalogLine>().await.unwrap() {
            if let CatalogLine::Skill(skill) = line {
                names.push(format!("{}/{}", skill.namespace, skill.name));
            }
        }
        names
    }

    /// Runs a command of a skill as a caller.
    pub(crate) async fn run_skill(
        &self,
        client: &HubClient,
        namespace: &str,
        name: &str,
        words: &[&str],
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let id = SkillRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let skill = fetched(client, &self.runtime(), &id).await;
        let program = Program::Command {
            argv: words.iter().map(ToString::to_string).collect(),
        };
        let request = ExecutionRequest {
            skill: Some(id),
            mounts: vec![SkillMount {
                name: name.to_owned(),
                skill,
            }],
            limits: unhurried(),
            ..ExecutionRequest::new(fresh_id(), "test", program)
        };
        RemoteExecutor::new(client.clone(), self.runtime())
            .execute(request, CancellationToken::new())
            .await
    }

    /// A body of `POST /v1/executions` for a skill.
    pub(crate) fn post(&self, skill: &SkillLine, id: &str, words: &[&str]) -> Value {
        json!({
            "protocol": 1, "runtime": self.runtime().to_string(), "id": id, "skill": 0,
            "program": {"kind": "command", "argv": words},
            "mounts": [{"mount": skill.name, "namespace": skill.namespace, "name": skill.name, "digest": skill.digest}],
        })
    }
}

/// An id of now.
pub(crate) fn fresh_id() -> ExecutionId {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    ExecutionId::new(now, &uuid::Uuid::new_v4().to_string(), 0, "test")
}

/// The content of a skill, asked for again while the hub does not have it yet or is busy.
pub(crate) async fn fetched(client: &HubClient, runtime: &RuntimeName, id: &SkillRef) -> Arc<LoadedSkill> {
    let begun = Instant::now();
    loop {
        match fetch_skill(client, runtime, id).await {
            Ok((skill, _)) => return skill,
            Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The next skill line that fits.
pub(crate) async fn next_skill(lines: &mut LineReader, fits: impl Fn(&SkillLine) -> bool) -> SkillLine {
    while let Some(line) = lines.next_value::<CatalogLine>().await.unwrap() {
        if let CatalogLine::Skill(skill) = line
            && fits(&skill)
        {
            return *skill;
        }
    }
    panic!("the stream ended");
}

pub(crate) async fn apply_skill(client: &kube::Client, namespace: &str, name: &str, script: &str) {
    let document = format!("---\nname: {name}\ndescription: A skill of a test.\n---\nRun scripts/run.py.\n");
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": name},
        "spec": {"source": {"inline": {"files": {"SKILL.md": document, "scripts/run.py": script}}}},
    });
    let api: Api<Skill> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply("hub-test").force();
    api.patch(name, &params, &Patch::Apply(&body)).await.unwrap();
}

/// Members of `more` over those of `whole`, at every depth.
fn merge(whole: &mut Value, more: Value) {
    match (whole.as_object_mut(), more) {
        (Some(members), Value::Object(more)) => {
            for (key, value) in more {
                merge(members.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, more) => *whole = more,
    }
}

async fn apply_runtime(client: &kube::Client, cluster: &Cluster, run: &Namespace, spec: Value) {
    let mut whole = json!({
        "maxActivation": "Always",
        // A test of a limit names its own.
        "sandbox": {"image": cluster.image("sandbox-python"), "timeoutSeconds": RUN_TIMEOUT.as_secs()},
        "warmPool": {"replicas": 0},
        "allowedCallers": {"namespaces": {"selector": {"matchExpressions": [
            {"key": TENANT, "operator": "In", "values": [run.name()]},
        ]}}},
    });
    merge(&mut whole, spec);
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": "default"}, "spec": whole,
    });
    let api: Api<knack_api::SkillRuntime> = Api::namespaced(client.clone(), run.name());
    let params = PatchParams::apply("hub-test").force();
    api.patch("default", &params, &Patch::Apply(&body)).await.unwrap();
}

/// Waits until a port of this machine is served.
pub(crate) async fn listening(port: u16) {
    tokio::time::timeout(SOON, async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    })
    .await
    .expect("it listens");
}

/// The code of an answer that is a refusal.
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, HubError>) -> RefusalCode {
    match answer {
        Err(HubError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

/// The refusal of a run that is posted: a status, or where the hub needs longer to refuse it (the head does not wait), a frame.
pub(crate) async fn refused(client: &HubClient, body: String) -> HubRefusal {
    let body = bytes::Bytes::from(body);
    let posted = patiently(async || client.hub().post_stream("/v1/executions", body.clone()).await);
    let mut frames = match posted.await {
        Ok(frames) => frames,
        Err(HubError::Refused(refusal)) => return refusal,
        Err(other) => panic!("{other:?}"),
    };
    loop {
        match frames.next_value::<ExecutionFrame>().await.unwrap() {
            Some(ExecutionFrame::Error(refusal)) => return refusal,
            Some(ExecutionFrame::Accepted(_) | ExecutionFrame::Phase { .. } | ExecutionFrame::Ping) => {}
            other => panic!("{other:?}"),
        }
    }
}
