//! A gateway in this process, its skills in a folder of its own, a mock behind it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use knack::dev::Search;
use knack_execution::{DisabledExecutor, Executor};
use knack_gateway::callers::caller::CallerSecret;
use knack_gateway::callers::client_auth::ClientAccess;
use knack_gateway::files::FileStore;
use knack_gateway::files::user_files::{Bounds as FileBounds, Clock, UserFiles};
use knack_gateway::http_server::budget::{BodyTimes, RequestMemory};
use knack_gateway::http_server::server::{self, BOUNDS, Service, Stopping};
use knack_gateway::model_calls::inject::Materials;
use knack_gateway::model_calls::turn_store::TurnStore;
use knack_gateway::providers::base_url::BaseUrl;
use knack_gateway::providers::provider::Api;
use knack_gateway::providers::upstream::{ProviderEndpoint, Upstreams};
use knack_gateway::runs::code_tools::CodeTools;
use knack_gateway::runs::execution_reporter::Reports;
use knack_gateway::runs::grants::Grants;
use knack_gateway::runs::run_history::RunHistory;
use knack_gateway::runs::skill_runs::SkillRuns;
use knack_gateway::skills_api::registry_relay::Relay;
use knack_gateway::skills_api::uploads::Uploads;
use knack_gateway::telemetry::log::RequestLog;
use knack_gateway::telemetry::metrics::Metrics;
use knack_gateway::telemetry::observe::Console;
use knack_gateway::{Gateway, HostPolicy};
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_memory::MemoryBudget;
use knack_mock_provider::{MockServer, Script, spawn};
use knack_serving::{Bounds, Stop};
use knack_skill::catalog::Node;
use knack_telemetry::Tracer;
use knack_trust::Roots;
use knack_wire::history::HistorySecret;
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::net::TcpListener;

use super::port::free_port;

/// A skill that is always active and contains a secret word, so that a mock can see it.
pub(crate) const ALWAYS: &str =
    "---\nname: always\ndescription: Says the word.\nactivation: Always\n---\nThe word is plover.\n";
/// The runtime of a gateway whose skills come with none. Its runs have a minute: no test waits for the default of 10 s to pass, and on a
/// machine that stands still for some of them an interpreter may need the rest to start.
const RUNTIME: &str = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: knack-dev}\nspec: {maxActivation: Always, maxRisk: Critical, sandbox: {timeoutSeconds: 60}}\n";
/// A listed skill with a script.
pub(crate) const LISTED: &str = "---\nname: listed\ndescription: Adds numbers. Use when somebody adds.\n---\nRun python3 skills/listed/add.py A B.\n";

/// Console lines, for assertions.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

impl Console for Lines {
    fn show(&self, request: &RequestLog) {
        self.0.lock().unwrap().push(request.line());
    }
}

impl Lines {
    /// The lines so far, joined.
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

/// A running gateway.
pub(crate) struct Running {
    pub url: String,
    pub gateway: Arc<Gateway>,
    pub mock: MockServer,
    pub folder: tempfile::TempDir,
    pub lines: Arc<Lines>,
    pub stop: Option<tokio::sync::oneshot::Sender<()>>,
    pub server: tokio::task::JoinHandle<()>,
    _watching: Box<dyn std::any::Any + Send>,
}

/// How a gateway is started.
pub(crate) struct Start {
    pub skills: Vec<(&'static str, &'static str)>,
    pub script: String,
    pub executor: Arc<dyn Executor>,
    pub upstream: Option<String>,
    pub grants: Grants,
    /// Bounds of connections.
    pub bounds: Bounds,
    /// How long bodies may take.
    pub times: BodyTimes,
    /// The process's memory budget.
    pub memory: MemoryBudget,
    /// What happens after the stop signal.
    pub stopping: Stopping,
    /// Provider keys of the operator.
    pub operator_key: Option<&'static str>,
    /// The upstream of every API is another gateway of Knack.
    pub through_knack: bool,
    /// APIs whose upstream has no tool that runs programs.
    pub sandbox_code_tools: Vec<CodeTools>,
    /// Keeps uploads and containers, by this clock and within these bounds.
    pub user_files: Option<(FileBounds, Clock)>,
    /// Where uploads and containers are kept instead.
    pub kept_files: Option<Arc<UserFiles>>,
    /// What callers are known by: each account of a cluster has one of its own.
    pub secret: [u8; 32],
    /// The registry of a cluster, and whether runs are reported to it.
    pub registry: Option<(HubClient, bool)>,
    /// As on a cluster: any Host is its own, and its public URL is not known.
    pub on_cluster: bool,
    /// Authorities besides those of the system, for the provider.
    pub roots: Roots,
    /// A check of who the client is.
    pub auth: Option<ClientAccess>,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            skills: vec![
                ("always/SKILL.md", ALWAYS),
                ("listed/SKILL.md", LISTED),
                (
                    "listed/add.py",
                    "import sys\nprint(int(sys.argv[1]) + int(sys.argv[2]))\n",
                ),
            ],
            script: "turns:\n  - rounds:\n      - reply: {text: \"You said: {{user}}\"}\n".to_owned(),
            executor: Arc::new(DisabledExecutor::by_flag()),
            upstream: None,
            grants: Grants::default(),
            bounds: BOUNDS,
            times: BodyTimes::default(),
            memory: MemoryBudget::new(512 << 20),
            stopping: Stopping::AT_ONCE,
            operator_key: None,
            through_knack: false,
            sandbox_code_tools: Vec::new(),
            user_files: None,
            kept_files: None,
            secret: [9; 32],
            registry: None,
            on_cluster: false,
            roots: Roots::default(),
            auth: None,
        }
    }
}

/// A gateway with this script and the default skills.
pub(crate) async fn with_script(script: &str) -> Running {
    start(Start {
        script: script.to_owned(),
        ..Start::default()
    })
    .await
}

/// A gateway with this script, the default skills and the real sandbox.
pub(crate) async fn with_sandbox(script: &str) -> Running {
    start(Start {
        script: script.to_owned(),
        executor: Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await
}

/// Writes files below a folder.
pub(crate) fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// One provider for all APIs.
fn bases(url: &str, operator_key: Option<&'static str>) -> BTreeMap<Api, ProviderEndpoint> {
    let base = || ProviderEndpoint {
        url: BaseUrl::parse(url).unwrap(),
        key: operator_key.map(http::HeaderValue::from_static),
    };
    [Api::OpenAi, Api::Anthropic, Api::Gemini]
        .into_iter()
        .map(|api| (api, base()))
        .collect()
}

/// What the gateway searches: the skills, and the runtime of the tests unless they bring one.
fn served(folder: &Path, skills: &[(&str, &str)]) -> Vec<PathBuf> {
    let mut served = vec![folder.join("skills")];
    if skills.iter().all(|(_, text)| !text.contains("kind: SkillRuntime")) {
        write(folder, "runtime.yaml", RUNTIME);
        served.push(folder.join("runtime.yaml"));
    }
    served
}

pub(crate) async fn start(options: Start) -> Running {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("skills")).unwrap();
    for (path, text) in &options.skills {
        write(&folder.path().join("skills"), path, text);
    }
    let script = Script::parse(&options.script).unwrap_or_else(|error| panic!("{error}"));
    let mock = spawn(script).await.unwrap();
    let url = options.upstream.unwrap_or_else(|| mock.url.clone());
    let bases = bases(&url, options.operator_key);
    let lines = Arc::new(Lines::default());
    let (catalog, watching) =
        knack::dev::watch::watch(Search::of(served(folder.path(), &options.skills)), Node::Absent, |_| {})
            .await
            .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let secret: Arc<CallerSecret> = Arc::new(HistorySecret::new(options.secret).into());
    let (reports, reporting) = match &options.registry {
        Some((client, true)) => Some(Reports::start(client.clone())).unzip(),
        _ => (None, None),
    };
    let relay = options.registry.map(|(client, _)| {
        let (catalog, secret) = (Arc::clone(&catalog), Arc::clone(&secret));
        Arc::new(Relay::new(client, catalog, secret, reports.clone()))
    });
    let gateway = Arc::new(Gateway {
        catalog,
        catalog_age: None,
        upstreams: Upstreams::new(&bases, &options.roots)
            .unwrap()
            .through_knack(bases.into_keys().filter(|_| options.through_knack)),
        executor: options.executor,
        sandbox_code_tools: options.sandbox_code_tools.into_iter().collect(),
        uploads: relay.clone().map(|relay| relay as Arc<dyn Uploads>),
        history: reports.map(|reports| reports as Arc<dyn RunHistory>),
        discovery: None,
        grants: Arc::new(options.grants),
        files: FileStore::open(64 << 20).unwrap(),
        user_files: options
            .user_files
            .map(|(bounds, clock)| UserFiles::temporary(bounds, clock).unwrap())
            .or(options.kept_files),
        files_folder: Some(folder.path().join("knack-files")),
        turn_store: TurnStore::new(4 << 20),
        secret,
        replicas: None,
        requests: RequestMemory::new(&options.memory, options.times),
        metrics: Metrics::default(),
        recent: Arc::default(),
        tracer: Tracer::off(),
        console: Arc::clone(&lines) as Arc<dyn Console>,
        recorder: None,
        host_policy: if options.on_cluster {
            HostPolicy::Any
        } else {
            HostPolicy::LocalOnly
        },
        public_url: (!options.on_cluster).then(|| format!("http://{address}")),
        skill_runs: SkillRuns::new(None),
        materials: Materials::default(),
        stops: Stop::default(),
    });
    if let Some(relay) = &relay {
        relay.run_by(&gateway);
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let service = Service {
        routes: knack_mcp::router(Arc::clone(&gateway)),
        auth: options.auth,
        bounds: options.bounds,
        stopping: options.stopping,
        ..Service::open(Arc::clone(&gateway))
    };
    let server = tokio::spawn(server::serve(service, listener, async {
        let _ = stopped.await;
    }));
    Running {
        url: format!("http://{address}"),
        gateway,
        mock,
        folder,
        lines,
        stop: Some(stop),
        server,
        _watching: Box::new((watching, reporting)),
    }
}

/// A client that uses no proxy and never retries.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// An answer with its JSON body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The text of a Chat or Messages answer.
    pub(crate) fn said(&self) -> String {
        let value = self.json();
        let chat = value["choices"][0]["message"]["content"].as_str().map(str::to_owned);
        chat.unwrap_or_else(|| {
            value["content"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|block| block["text"].as_str())
                .collect::<Vec<_>>()
                .join("|")
        })
    }
}

pub(crate) async fn read(response: Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer {
        status,
        headers,
        text: response.text().await.unwrap_or_default(),
    }
}

impl Running {
    /// A Chat Completions request.
    pub(crate) fn chat(&self, body: &Value) -> RequestBuilder {
        client()
            .post(format!("{}/v1/chat/completions", self.url))
            .bearer_auth("key-a")
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// A Messages request.
    pub(crate) fn messages(&self, body: &Value) -> RequestBuilder {
        client()
            .post(format!("{}/v1/messages", self.url))
            .header("x-api-key", "key-a")
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        read(request.send().await.unwrap()).await
    }

    /// What the provider received last, as JSON.
    pub(crate) fn upstream(&self) -> Value {
        self.mock
            .handle
            .requests()
            .last()
            .expect("the provider was asked")
            .json()
    }

    /// Waits until the console has a line with this text: requests are logged when their answer has ended.
    pub(crate) async fn told(&self, text: &str) -> String {
        self.told_times(text, 1).await
    }

    /// Waits until the console has this text this many times.
    pub(crate) async fn told_times(&self, text: &str, times: usize) -> String {
        for _ in 0..6_000 {
            if self.lines.text().matches(text).count() >= times {
                return self.lines.text();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "{times} console lines with {text:?} are missing:\n{}",
            self.lines.text()
        );
    }
}

/// A hub that does not answer.
pub(crate) fn hub_that_is_away() -> HubClient {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
        .unwrap()
        .cert
        .pem();
    let port = free_port();
    HubClient::new(HubClientSettings {
        url: format!("https://127.0.0.1:{port}"),
        authorities: Authorities::Pem(pem),
        token: Token::Fixed("a token".to_owned()),
        address: None,
    })
    .unwrap()
}
