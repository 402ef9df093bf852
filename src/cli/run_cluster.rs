//! `knack skill run --runtime`: one run in the sandbox of a cluster, as the ServiceAccount that a gateway would be.
//!
//! The hub is reached through a forwarded port, and its certificate is checked by the authorities that the cluster
//! publishes. What runs, and whether it may, is decided there exactly as for a gateway.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use knack_execution::Executor as _;
use knack_execution::remote::{Progress, RemoteExecutor};
use knack_gateway::catalog::remote::fetch_skill;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, Route, Token};
use knack_hub_api::{DEFAULT_PORT, RuntimeName, ServiceAccountName};
use knack_skill::model::{Skill, SkillRef};
use knack_vocabulary::{CONFIG_MAP_HUB_CA, KEY_HUB_CA, SERVICE_HUB, TOKEN_AUDIENCE};
use kube::api::{ListParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::run_args::{RunArgs, RunLimits, request};
use super::run_result::{exit_code, print_json, print_text, save};
use super::stop::stop_on_signal;
use super::{Output, terminal};
use crate::api_call::CALL_TIMEOUT;

/// Life of the token: the longest run (an hour), its queue, a cold pod, and a hub that is lost in between.
const TOKEN_SECONDS: i64 = 4500;
/// How long a hub may be away before anything was asked to run; afterwards the run's own deadline counts.
const HUB_PATIENCE: Duration = Duration::from_mins(1);
/// First wait for it, doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// See [`RETRY_FIRST`].
const RETRY_LAST: Duration = Duration::from_secs(2);
/// How long a person who stops a run waits until the hub knows: it ends a run without a caller by itself, somewhat later.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// The label that distinguishes the hub's pods from others of the installation.
const HUB_PODS: &str = "app.kubernetes.io/component=hub,app.kubernetes.io/name=knack";

/// Runs once at `runtime`; the exit code is the program's.
pub(super) async fn run(args: RunArgs, runtime: RuntimeName) -> anyhow::Result<ExitCode> {
    if !args.allow_env.is_empty() {
        bail!("--allow-env: in a cluster, values come from the grants of the SkillRuntime (spec.env)");
    }
    if !args.config.is_empty() {
        bail!(
            "--set: in a cluster, values come from the pins of the SkillRuntime (spec.skillSelector.skills[].config)"
        );
    }
    args.typed.refuse(
        &["--ca-file", "--ca-pem"],
        "with --runtime, certificate authorities come from the kubeconfig, and packages are already installed",
    )?;
    args.typed.refuse(
        &["--skill"],
        "with --runtime, one Skill of the cluster is named as namespace/name",
    )?;
    let account = account(args.service_account.as_deref(), &runtime)?;
    let skill = skill_reference(&args, &account)?;
    let client = client(args.context.clone()).await?;
    let hub = reach(&client, &args.hub_namespace, &account).await?;
    let (skill, timeout) = fetch(&hub, &runtime, &skill).await?;
    let request = request(&args, &skill, &RunLimits::of_cluster(timeout), None, hub.now()).await?;
    terminal::note(&format!("running at {runtime} as ServiceAccount {account}"));
    let cancel = stop_on_signal();
    let text = args.output == Output::Text;
    let show = move |progress: Progress| match progress {
        Progress::Phase(phase) => terminal::note(&phase),
        Progress::Again(why) => terminal::note(&format!("retrying: {why}")),
        Progress::Output { error: false, bytes } if text => terminal::raw(&bytes),
        Progress::Output { error: true, bytes } if text => terminal::raw_error(&bytes),
        Progress::Output { .. } => {}
    };
    let executor = RemoteExecutor::new(hub, runtime);
    let result = executor.execute_shown(&request, &cancel, &show).await;
    if cancel.is_cancelled() {
        // The deletion of the execution is on its way; the process must not end before it is.
        let ending = executor.cancel(&request.caller, request.id);
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, ending).await;
    }
    let result = result?;
    let saved = save(&args.files_dir, &result).await;
    match args.output {
        // Its output was shown while it ran.
        Output::Text => print_text(&result, &saved),
        Output::Json => print_json(&result, &saved),
    }
    Ok(exit_code(result.exit, &saved))
}

/// The ServiceAccount of `--service-account`; `default` of the runtime's namespace if none is named.
fn account(named: Option<&str>, runtime: &RuntimeName) -> anyhow::Result<ServiceAccountName> {
    match named {
        Some(text) => text
            .parse()
            .map_err(|_| anyhow::anyhow!("--service-account {text}: write namespace/name")),
        None => Ok(ServiceAccountName::new(runtime.namespace.clone(), "default")),
    }
}

/// The positional argument as a Skill object: `namespace/name`, or a name in the ServiceAccount's namespace.
fn skill_reference(args: &RunArgs, account: &ServiceAccountName) -> anyhow::Result<SkillRef> {
    let text = args.path.to_str().unwrap_or_default();
    let full = if text.contains('/') {
        text.to_owned()
    } else {
        format!("{}/{text}", account.namespace)
    };
    full.parse().map_err(|_| {
        anyhow::anyhow!("{text:?}: with --runtime, name a Skill of the cluster as namespace/name, not a file")
    })
}

pub(super) async fn client(context: Option<String>) -> anyhow::Result<Client> {
    let config = match context {
        Some(context) => {
            let options = KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            };
            Config::from_kubeconfig(&options)
                .await
                .with_context(|| format!("--context {context}"))?
        }
        #[expect(clippy::disallowed_methods, reason = "it ends with its command, and forwards ports")]
        None => Config::infer()
            .await
            .context("no kubeconfig; set KUBECONFIG, or run where ~/.kube/config exists")?,
    };
    Client::try_from(config).context("the kubeconfig cannot be used")
}

/// A client of the hub, wherever its replicas are.
async fn reach(client: &Client, namespace: &str, account: &ServiceAccountName) -> anyhow::Result<HubClient> {
    let pods = Pods::of(Api::namespaced(client.clone(), namespace), namespace);
    let listed = timed(pods.list())
        .await
        .with_context(|| format!("listing the hub's pods in namespace {namespace}"))?;
    if listed.is_empty() {
        bail!("no hub found in namespace {namespace}; name another with --hub-namespace");
    }
    let hub = HubClient::new(HubClientSettings {
        url: format!("https://{SERVICE_HUB}.{namespace}.svc:{DEFAULT_PORT}"),
        authorities: Authorities::Pem(authorities(client, namespace).await?),
        token: Token::Fixed(token(client, account).await?),
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    })?;
    Ok(hub.routed(Arc::new(pods)))
}

/// The skill as the hub serves it. A hub that is being replaced is waited for.
async fn fetch(hub: &HubClient, runtime: &RuntimeName, skill: &SkillRef) -> anyhow::Result<(Arc<Skill>, Duration)> {
    let until = Instant::now() + HUB_PATIENCE;
    let mut pause = RETRY_FIRST;
    loop {
        match fetch_skill(hub, runtime, skill).await {
            Err(error) if error.is_transient() && Instant::now() + pause < until => {
                terminal::note(&format!("retrying: {error}"));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_LAST);
            }
            fetched => return Ok(fetched?),
        }
    }
}

/// The hub's pods, each behind a port of loopback. Every request looks up those that exist: a hub that was killed is
/// replaced by another pod, and another replica owns the runtime then.
#[derive(Debug)]
struct Pods {
    api: Api<Pod>,
    /// The name of the hub's Service.
    service: String,
    forwards: Mutex<HashMap<String, Forward>>,
    /// Requests so far that may go to any: each goes to the next one.
    turn: AtomicUsize,
}

impl Pods {
    fn of(api: Api<Pod>, namespace: &str) -> Self {
        Self {
            api,
            service: format!("{SERVICE_HUB}.{namespace}.svc"),
            forwards: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    async fn list(&self) -> kube::Result<Vec<Pod>> {
        Ok(self.api.list(&ListParams::default().labels(HUB_PODS)).await?.items)
    }

    /// The port that leads to a pod; ports of pods that are gone are closed.
    async fn port(&self, pods: &[Pod], pod: &Pod) -> std::io::Result<u16> {
        let mut forwards = self.forwards.lock().await;
        forwards.retain(|name, _| pods.iter().any(|pod| pod.name_any() == *name));
        let name = pod.name_any();
        if let Some(forward) = forwards.get(&name) {
            return Ok(forward.port);
        }
        let forward = Forward::open(self.api.clone(), name.clone()).await?;
        let port = forward.port;
        forwards.insert(name, forward);
        Ok(port)
    }
}

#[async_trait]
impl Route for Pods {
    async fn base(&self, at: Option<&str>) -> Result<String, HubError> {
        let away = |text: String| HubError::Unreachable(text);
        let pods = timed(self.list()).await.map_err(|error| away(error.to_string()))?;
        let ready: Vec<&Pod> = pods.iter().filter(|pod| is_ready(pod)).collect();
        let pod = match at {
            Some(owner) => ready.iter().find(|pod| is_at(pod, owner)),
            None => ready.get(self.turn.fetch_add(1, Ordering::Relaxed) % ready.len().max(1)),
        };
        let pod = pod.ok_or_else(|| away("no pod of the hub is ready".to_owned()))?;
        let port = self.port(&pods, pod).await.map_err(|error| away(error.to_string()))?;
        let host = at.and_then(host_of).unwrap_or(&self.service);
        Ok(format!("https://{host}:{port}"))
    }
}

/// Whether a replica's `https://host:port` is that of a pod: its address is the host's first part.
fn is_at(pod: &Pod, owner: &str) -> bool {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
    let first = host_of(owner).and_then(|host| host.split('.').next());
    address.is_some_and(|address| first == Some(address.replace(['.', ':'], "-").as_str()))
}

fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    Some(rest.rsplit_once(':').map_or(rest, |(host, _)| host))
}

async fn authorities(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = timed(maps.get(CONFIG_MAP_HUB_CA)).await.with_context(|| {
        format!("ConfigMap {namespace}/{CONFIG_MAP_HUB_CA}; is Knack installed there? name another namespace with --hub-namespace")
    })?;
    map.data
        .and_then(|mut data| data.remove(KEY_HUB_CA))
        .with_context(|| format!("ConfigMap {namespace}/{CONFIG_MAP_HUB_CA}: no key {KEY_HUB_CA}"))
}

async fn token(client: &Client, account: &ServiceAccountName) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![TOKEN_AUDIENCE.to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let answer = timed(accounts.create_token_request(&account.name, &params, &request))
        .await
        .with_context(|| {
            format!("a token of ServiceAccount {account}; you need the right to create serviceaccounts/token there, or name another with --service-account")
        })?;
    let status = answer.status.with_context(|| {
        format!("ServiceAccount {account}: TokenRequest returned no token; is the account being deleted?")
    })?;
    Ok(status.token)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|list| {
        list.iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// A loopback port whose connections end at a pod of the hub.
#[derive(Debug)]
struct Forward {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Forward {
    async fn open(pods: Api<Pod>, pod: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((mut local, _)) = listener.accept().await {
                let (pods, pod) = (pods.clone(), pod.clone());
                tokio::spawn(async move {
                    let Ok(mut forwarder) = pods.portforward(&pod, &[DEFAULT_PORT]).await else {
                        return;
                    };
                    if let Some(mut remote) = forwarder.take_stream(DEFAULT_PORT) {
                        // Either side may close the connection; the client detects an incomplete answer.
                        let _ = tokio::io::copy_bidirectional(&mut local, &mut remote).await;
                    }
                });
            }
        });
        Ok(Self { port, task })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn timed<T>(call: impl Future<Output = Result<T, kube::Error>>) -> anyhow::Result<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(result) => Ok(result?),
        Err(_) => bail!("the API server did not answer within {} s", CALL_TIMEOUT.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replica_is_found_by_the_address_in_its_name_and_by_nothing_less() {
        let pod = |ip: &str| -> Pod { serde_json::from_value(json!({"status": {"podIP": ip}})).unwrap() };
        let owner = "https://10-0-0-7.knack-hub.knack-system.svc:8443";
        for (ip, expected) in [
            ("10.0.0.7", true),
            ("10.0.0.70", false),
            ("0.0.0.7", false),
            ("10.0.0", false),
        ] {
            assert_eq!(is_at(&pod(ip), owner), expected, "{ip}");
        }
        assert!(is_at(
            &pod("fd00::7"),
            "https://fd00--7.knack-hub.knack-system.svc:8443"
        ));
        assert_eq!(host_of(owner), Some("10-0-0-7.knack-hub.knack-system.svc"));
    }
}
