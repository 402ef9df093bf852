//! An installation of Knack for one test.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster_support::{Cluster, Namespace};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use knack::api::Skill;
use knack::catalog::remote::fetch_skill;
use knack::execution::remote::RemoteExecutor;
use knack::execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Executor as _, Limits, Program, SkillMount,
    WorkingDirectory,
};
use knack::hub_api::{CatalogLine, RuntimeName, SkillLine, Version};
use knack::hub_client::{Authorities, HubClient, HubClientSettings, Lines, Token};
use knack_skill::model::SkillRef;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long anything that should come soon may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);

/// A process of this build; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(cluster: &Cluster, folder: &Path, name: &str, words: &[String]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_knack"))
            .args(words)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("RUST_LOG", "info,kube=warn,tower=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
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

/// An installation: controller, hub, one runtime that is the cluster default, and namespaces of tenants.
pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: kube::Client,
    pub(crate) system: Namespace,
    pub(crate) run: Namespace,
    pub(crate) tenants: Vec<Namespace>,
    pub(crate) hub: Process,
    _controller: Process,
    // Behind the processes, whose logs it holds.
    pub(crate) folder: tempfile::TempDir,
    hub_words: Vec<String>,
    pub(crate) port: u16,
    authorities: String,
}

/// The label by which the runtime lets a tenant in.
const TENANT: &str = "hub-test-tenant";

impl World {
    /// Installs; `spec` is merged into the SkillRuntime's.
    pub(crate) async fn start(cluster: &'static Cluster, tenants: usize, spec: Value) -> Self {
        let client = cluster.client().await;
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        cluster.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            crds.to_str().unwrap(),
        ]);
        let system = cluster.namespace("hub-system").await;
        let run = cluster.namespace("hub-run").await;
        let mut list = Vec::new();
        for _ in 0..tenants {
            // A label of this installation, so that parallel tests keep apart.
            list.push(cluster.namespace_with("hub-tenant", &[(TENANT, run.name())]).await);
        }
        apply_runtime(&client, cluster, &run, spec).await;
        let folder = tempfile::tempdir().unwrap();
        let watched: Vec<String> = list
            .iter()
            .chain([&run])
            .map(|namespace| format!("--watch-namespace={}", namespace.name()))
            .collect();
        let mut words = vec![
            "controller".to_owned(),
            format!("--namespace={}", system.name()),
            format!("--default-runtime={}/default", run.name()),
            "--allow-image-tags".to_owned(),
            "--hub-name=127.0.0.1".to_owned(),
            "--metrics-listen=127.0.0.1:0".to_owned(),
        ];
        words.extend(watched.iter().cloned());
        let controller = Process::start(cluster, folder.path(), "controller", &words);
        let authorities = certificates(&client, system.name(), folder.path()).await;
        let port = free_port();
        let mut hub_words = vec![
            "hub".to_owned(),
            format!("--namespace={}", system.name()),
            format!("--listen=127.0.0.1:{port}"),
            format!("--advertise=https://127.0.0.1:{port}"),
            format!("--runtime-namespaces={}", run.name()),
            format!("--default-runtime={}/default", run.name()),
            "--allow-image-tags".to_owned(),
            format!("--tls-dir={}", folder.path().display()),
            "--metrics-listen=127.0.0.1:0".to_owned(),
        ];
        hub_words.extend(watched);
        let hub = Process::start(cluster, folder.path(), "hub", &hub_words);
        let world = Self {
            cluster,
            client,
            system,
            run,
            tenants: list,
            folder,
            hub,
            hub_words,
            port,
            authorities,
            _controller: controller,
        };
        world.wait_for_hub().await;
        world
    }

    /// Starts the hub again after it was killed.
    pub(crate) async fn restart_hub(&mut self) {
        self.hub = Process::start(self.cluster, self.folder.path(), "hub-again", &self.hub_words);
        self.wait_for_hub().await;
    }

    async fn wait_for_hub(&self) {
        let client = self.hub_client(&self.token(&self.run, "default", "knack").await);
        tokio::time::timeout(SOON, async {
            while client.get::<Version>("/v1/version").await.is_err() {
                tokio::time::sleep(POLL).await;
            }
        })
        .await
        .expect("the hub answers");
    }

    pub(crate) fn runtime(&self) -> RuntimeName {
        RuntimeName::new(self.run.name(), "default")
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A token of a ServiceAccount.
    pub(crate) async fn token(&self, namespace: &str, account: &str, audience: &str) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.to_owned()],
                expiration_seconds: Some(600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .unwrap();
        answer.status.unwrap().token
    }

    pub(crate) fn hub_client(&self, token: &str) -> HubClient {
        HubClient::new(HubClientSettings {
            url: self.url(),
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
        let mut lines = client.watch(&format!("{}&watch=true", self.catalog())).await.unwrap();
        tokio::time::timeout(SOON, next_skill(&mut lines, |skill| skill.name == name))
            .await
            .unwrap_or_else(|_| panic!("{name} is served"))
    }

    /// Names in a caller's catalog.
    pub(crate) async fn names(&self, client: &HubClient) -> Vec<String> {
        let mut lines = client.watch(&self.catalog()).await.unwrap();
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
        let (skill, _) = fetch_skill(client, &self.runtime(), &id).await.unwrap();
        let request = ExecutionRequest {
            id: fresh_id(),
            caller: "test".to_owned(),
            skill: Some(format!("{namespace}/{name}")),
            program: Program::Command {
                argv: words.iter().map(ToString::to_string).collect(),
            },
            mounts: vec![SkillMount {
                name: name.to_owned(),
                skill,
            }],
            inputs: Vec::new(),
            working_directory: WorkingDirectory::Work,
            env: std::collections::BTreeMap::new(),
            limits: Limits::default(),
            trace: None,
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

/// The next skill line that fits.
pub(crate) async fn next_skill(lines: &mut Lines, fits: impl Fn(&SkillLine) -> bool) -> SkillLine {
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

async fn apply_runtime(client: &kube::Client, cluster: &Cluster, run: &Namespace, spec: Value) {
    let mut whole = json!({
        "maxActivation": "Always",
        "sandbox": {"image": cluster.image("sandbox-python")},
        "warmPool": {"replicas": 0},
        "allowedCallers": {"namespaces": {"selector": {"matchExpressions": [
            {"key": TENANT, "operator": "In", "values": [run.name()]},
        ]}}},
    });
    for (key, value) in spec.as_object().cloned().unwrap_or_default() {
        whole[key] = value;
    }
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": "default"}, "spec": whole,
    });
    let api: Api<knack::api::SkillRuntime> = Api::namespaced(client.clone(), run.name());
    let params = PatchParams::apply("hub-test").force();
    api.patch("default", &params, &Patch::Apply(&body)).await.unwrap();
}

/// Waits for the controller's certificates and writes them where a pod would have them mounted.
async fn certificates(client: &kube::Client, namespace: &str, folder: &Path) -> String {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    tokio::time::timeout(SOON, async {
        loop {
            let secret = secrets.get_opt("knack-hub-tls").await.unwrap();
            let map = maps.get_opt("knack-hub-ca").await.unwrap();
            if let (Some(data), Some(mut authorities)) =
                (secret.and_then(|secret| secret.data), map.and_then(|map| map.data))
            {
                for key in ["tls.crt", "tls.key", "journal.key"] {
                    std::fs::write(folder.join(key), &data[key].0).unwrap();
                }
                return authorities.remove("ca.crt").unwrap();
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
    .expect("the controller makes certificates")
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
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
