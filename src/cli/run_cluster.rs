//! `knack skill run --runtime`: one run in the sandbox of a cluster, as the ServiceAccount that a gateway would be.
//!
//! The hub is reached through a forwarded port, and its certificate is checked by the authorities that the cluster
//! publishes. What runs, and whether it may, is decided there exactly as for a gateway.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use knack_skill::model::SkillRef;
use kube::api::{ListParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config, ResourceExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::run::{RunArgs, exit_code, print_json, print_text, request, save};
use super::{Output, terminal};
use crate::api::vocabulary::{CONFIG_MAP_HUB_CA, KEY_HUB_CA, SERVICE_HUB, TOKEN_AUDIENCE};
use crate::catalog::remote::fetch_skill;
use crate::execution::ExecutionId;
use crate::execution::remote::{Progress, RemoteExecutor};
use crate::hub_api::{DEFAULT_PORT, ExecutionView, ProblemCode, RuntimeName};
use crate::hub_client::{Authorities, HubClient, HubClientSettings, HubError, Token};

/// One call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Life of the token: the shortest that the API server gives. A run with its queue and a cold pod ends well within it.
const TOKEN_SECONDS: i64 = 600;
/// The label that tells the hub's pods from others of the installation.
const HUB_PODS: &str = "app.kubernetes.io/component=hub,app.kubernetes.io/name=knack";

/// Runs once at `runtime`; the exit code is the program's.
pub(super) async fn run(args: RunArgs, runtime: RuntimeName) -> anyhow::Result<ExitCode> {
    if !args.allow_env.is_empty() {
        bail!("--allow-env: in a cluster, values come from the grants of the SkillRuntime (spec.env)");
    }
    let account = account(args.service_account.as_deref(), &runtime)?;
    let skill = skill_reference(&args, &account)?;
    let client = client(args.context.clone()).await?;
    let hub = Hub::reach(&client, &args.hub_namespace, &account, &runtime).await?;
    let (skill, timeout) = fetch_skill(&hub.client, &runtime, &skill)
        .await
        .map_err(anyhow::Error::msg)?;
    let request = request(&args, &skill, timeout).await?;
    terminal::note(&format!("running at {runtime} as ServiceAccount {account}"));
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let interrupt = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let text = args.output == Output::Text;
    let show = move |progress: Progress| match progress {
        Progress::Phase(phase) => terminal::note(&phase),
        Progress::Again(why) => terminal::note(&format!("asking again: {why}")),
        Progress::Output { error: false, bytes } if text => terminal::raw(&bytes),
        Progress::Output { error: true, bytes } if text => terminal::raw_error(&bytes),
        Progress::Output { .. } => {}
    };
    let executor = RemoteExecutor::new(hub.client.clone(), runtime);
    let result = executor.execute_shown(&request, &cancel, &show).await;
    interrupt.abort();
    if cancel.is_cancelled() {
        // The deletion of the execution is on its way; the process must not end before it is.
        let _ = hub.client.delete(None, &executor.path(request.id)).await;
    }
    let result = result?;
    let saved = save(&args.files_dir, &result).await?;
    match args.output {
        // What it wrote was shown while it ran.
        Output::Text => print_text(&result, &saved, false),
        Output::Json => print_json(&result, &saved),
    }
    Ok(exit_code(result.exit))
}

/// `namespace/name` of the ServiceAccount; `default` of the runtime's namespace if none is named.
fn account(named: Option<&str>, runtime: &RuntimeName) -> anyhow::Result<RuntimeName> {
    match named {
        Some(text) => text
            .parse()
            .map_err(|_| anyhow::anyhow!("--service-account {text}: write namespace/name")),
        None => Ok(RuntimeName::new(runtime.namespace.clone(), "default")),
    }
}

/// The positional argument as a Skill object: `namespace/name`, or a name in the ServiceAccount's namespace.
fn skill_reference(args: &RunArgs, account: &RuntimeName) -> anyhow::Result<SkillRef> {
    let text = args.path.to_str().unwrap_or_default();
    let full = if text.contains('/') {
        text.to_owned()
    } else {
        format!("{}/{text}", account.namespace)
    };
    let name: RuntimeName = full.parse().map_err(|_| {
        anyhow::anyhow!("{text:?}: with --runtime, name a Skill of the cluster as namespace/name, not a file")
    })?;
    Ok(SkillRef {
        namespace: name.namespace,
        name: name.name,
    })
}

async fn client(context: Option<String>) -> anyhow::Result<Client> {
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
        None => Config::infer().await.context("no kubeconfig")?,
    };
    Client::try_from(config).context("the kubeconfig cannot be used")
}

/// A hub behind a forwarded port.
struct Hub {
    client: HubClient,
    /// Ends the forwarding when dropped.
    _forward: Forward,
}

impl Hub {
    /// Forwards a port to the replica that runs the runtime's code.
    async fn reach(
        client: &Client,
        namespace: &str,
        account: &RuntimeName,
        runtime: &RuntimeName,
    ) -> anyhow::Result<Self> {
        let authorities = authorities(client, namespace).await?;
        let token = token(client, account).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let list = timed(pods.list(&ListParams::default().labels(HUB_PODS)))
            .await
            .with_context(|| format!("listing the hub's pods in namespace {namespace}"))?;
        let ready: Vec<&Pod> = list.items.iter().filter(|pod| is_ready(pod)).collect();
        let Some(first) = ready.first() else {
            bail!("no pod of the hub is ready in namespace {namespace}; name another with --hub-namespace")
        };
        let open = async |pod: &Pod| -> anyhow::Result<Self> {
            let forward = Forward::open(pods.clone(), pod.name_any()).await?;
            let client = HubClient::new(HubClientSettings {
                url: format!("https://{SERVICE_HUB}.{namespace}.svc:{}", forward.port),
                authorities: Authorities::Pem(authorities.clone()),
                token: Token::Fixed(token.clone()),
                address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            })?;
            Ok(Self {
                client,
                _forward: forward,
            })
        };
        let hub = open(first).await?;
        let Some(owner) = hub.other_owner(runtime).await? else {
            return Ok(hub);
        };
        let address = |pod: &&&Pod| {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
            ip.is_some_and(|ip| owner.contains(&ip.replace(['.', ':'], "-")))
        };
        match ready.iter().find(address) {
            Some(pod) => open(pod).await,
            None => bail!("the replica of the hub that owns {runtime} is not ready; try again in a few seconds"),
        }
    }

    /// Where the owner is, if it is another replica: asked by an execution that does not exist.
    async fn other_owner(&self, runtime: &RuntimeName) -> anyhow::Result<Option<String>> {
        let now = crate::execution::now();
        let id = ExecutionId::new(now, &uuid::Uuid::now_v7().to_string(), 0, "owner");
        let asked = self
            .client
            .get::<ExecutionView>(&format!("/v1/executions/{id}?runtime={runtime}"))
            .await;
        match asked {
            Err(HubError::Refused(problem)) if problem.code == ProblemCode::NotFound => Ok(None),
            Err(HubError::Refused(problem)) if problem.code == ProblemCode::NotOwner => match problem.owner {
                Some(owner) => Ok(Some(owner)),
                None => bail!("no replica of the hub owns {runtime} at this moment; try again in a few seconds"),
            },
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    }
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

async fn token(client: &Client, account: &RuntimeName) -> anyhow::Result<String> {
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
    let status = answer.status.context("the API server gave no token")?;
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
struct Forward {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Forward {
    async fn open(pods: Api<Pod>, pod: String) -> anyhow::Result<Self> {
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
                        // Either side may hang up; the client knows what an answer without end means.
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

async fn timed<T>(call: impl Future<Output = Result<T, kube::Error>>) -> anyhow::Result<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(result) => Ok(result?),
        Err(_) => bail!("the API server did not answer within {} s", CALL_TIMEOUT.as_secs()),
    }
}
