//! `knack trace`: rounds, skills, runs and times of one request, from the gateway that served it.
//!
//! A gateway shows its last requests within its own pod only (`knack_gateway::telemetry::recent_requests`): `knack dev` is asked on loopback,
//! gateways in a cluster through a forwarded port of each pod, with the caller's own right to do that.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Container, Pod};
use knack_gateway::telemetry::request_report::RequestReport;
use knack_vocabulary::CONTAINER_SIDECAR;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::explicit_flags::ExplicitFlags;
use super::run_cluster::{client, timed};
use super::trace_text::{list, page};
use super::{Output, terminal};
use crate::counted::counted;

/// Time for one gateway: its answer needs no work, but a forwarded port is opened by the API server and a kubelet.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest answer: 20 reports, each below 100 KiB.
const ANSWER_MAX_BYTES: u64 = 4 << 20;
/// Gateways that are asked at once: each is a connection through the API server.
const AT_ONCE: usize = 8;
/// Longest request id: that of a gateway is a UUID, of 36 characters, or `req_knack_` with one, of 42.
const ID_MAX_BYTES: usize = 64;
/// Pods of a namespace that are searched.
const PODS_MAX: u32 = 5_000;

/// Arguments of `knack trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    #[command(flatten)]
    typed: ExplicitFlags,
    /// Id of the request, from the response header x-knack-request-id, the log or an exemplar; without it, the last requests
    /// are listed
    request_id: Option<String>,
    /// Address of a gateway on this machine, or the URL that knack dev prints
    #[arg(long, value_name = "ADDRESS", env = "KNACK_LISTEN", default_value = "127.0.0.1:4141", value_parser = gateway_address)]
    gateway: SocketAddr,
    /// Ask the gateways in this namespace of a cluster: the gateway of an installation, and sidecars
    #[arg(long, short = 'n', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, requires = "namespace")]
    context: Option<String>,
    /// How to print the result
    #[arg(long, short = 'o', value_enum, default_value_t)]
    output: Output,
}

/// The answer to a question without an id.
#[derive(Debug, Default, Serialize, Deserialize)]
struct RequestList {
    requests: Vec<RequestReport>,
}

/// Prints it. An error if no gateway that was asked knows the request.
pub async fn trace(args: TraceArgs) -> anyhow::Result<ExitCode> {
    if let Some(id) = &args.request_id {
        check_id(id)?;
    }
    if args.namespace.is_some() {
        args.typed.refuse(
            &["--gateway"],
            "with --namespace, every gateway of that namespace is asked",
        )?;
    }
    let found = match &args.namespace {
        None => Lookups::of(vec![(args.gateway.to_string(), on_this_machine(&args).await)]),
        Some(namespace) => Lookups::of(in_cluster(&args, namespace).await?),
    };
    for (gateway, error) in &found.errors {
        terminal::note(&format!("{gateway}: {error:#}"));
    }
    let where_asked = match &args.namespace {
        None => format!("the gateway at {}", args.gateway),
        Some(namespace) => format!("{} in namespace {namespace}", counted(found.asked, "gateway")),
    };
    if found.errors.len() == found.asked {
        bail!("no answer was received from {where_asked}");
    }
    match (&args.request_id, found.answers.as_slice()) {
        (Some(id), []) => bail!(
            "{where_asked}: no request {id} is kept there; a gateway keeps its last requests (1 MiB, about 1,000) in memory, until it ends; requests that are refused before a model is asked are not kept: its log has them"
        ),
        (Some(_), [text, ..]) => one(text, args.output)?,
        (None, texts) => all(texts, args.output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn one(text: &str, output: Output) -> anyhow::Result<()> {
    let report: RequestReport = serde_json::from_str(text).context(OTHER_VERSION)?;
    match output {
        Output::Text => terminal::line(page(&report).trim_end()),
        Output::Json => terminal::line(&serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

fn all(texts: &[String], output: Output) -> anyhow::Result<()> {
    let mut listed = RequestList::default();
    for text in texts {
        let more: RequestList = serde_json::from_str(text).context(OTHER_VERSION)?;
        listed.requests.extend(more.requests);
    }
    listed.requests.sort_by_key(|report| report.begun);
    match output {
        Output::Text if listed.requests.is_empty() => terminal::note("no request so far"),
        Output::Text => terminal::line(list(&listed.requests).trim_end()),
        Output::Json => terminal::line(&serde_json::to_string_pretty(&listed)?),
    }
    Ok(())
}

/// The message for an answer that cannot be read.
const OTHER_VERSION: &str = "the gateway's response is not that of this version of knack";

/// An id is a part of a path.
fn check_id(id: &str) -> anyhow::Result<()> {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.is_empty() || id.len() > ID_MAX_BYTES || !id.bytes().all(is_id) {
        bail!("{id:?} is not a request id; use the value of the response header x-knack-request-id");
    }
    Ok(())
}

/// The answer of one gateway: `None` if it does not know the request.
type Lookup = anyhow::Result<Option<String>>;

struct Lookups {
    asked: usize,
    answers: Vec<String>,
    errors: Vec<(String, anyhow::Error)>,
}

impl Lookups {
    fn of(all: Vec<(String, Lookup)>) -> Self {
        let mut found = Self {
            asked: all.len(),
            answers: Vec::new(),
            errors: Vec::new(),
        };
        for (gateway, asked) in all {
            match asked {
                Ok(answer) => found.answers.extend(answer),
                Err(error) => found.errors.push((gateway, error)),
            }
        }
        found
    }
}

async fn on_this_machine(args: &TraceArgs) -> Lookup {
    let asked = async {
        let stream = TcpStream::connect(args.gateway).await.context(
            "is knack dev running? name its address with --gateway, or a namespace of a cluster with --namespace",
        )?;
        ask(stream, args.request_id.as_deref()).await
    };
    bounded(asked).await
}

async fn in_cluster(args: &TraceArgs, namespace: &str) -> anyhow::Result<Vec<(String, Lookup)>> {
    let pods: Api<Pod> = Api::namespaced(client(args.context.clone()).await?, namespace);
    let listed = timed(pods.list(&ListParams::default().limit(PODS_MAX)))
        .await
        .with_context(|| format!("listing the pods of namespace {namespace}"))?;
    let gateways: Vec<(String, u16)> = listed
        .iter()
        .filter_map(|pod| Some((pod.name_any(), gateway_port(pod)?)))
        .collect();
    if gateways.is_empty() {
        bail!(
            "no pod of namespace {namespace} runs a gateway; installations are usually in knack-system, sidecars beside their applications"
        );
    }
    let (pods, id) = (&pods, args.request_id.as_deref());
    let asked = stream::iter(gateways).map(async |(pod, port)| {
        let asked = async {
            let mut forwarder = pods
                .portforward(&pod, &[port])
                .await
                .context("you need the right to create pods/portforward there")?;
            let stream = forwarder.take_stream(port).context("no stream for the port")?;
            ask(stream, id).await
        };
        let asked = bounded(asked).await;
        (format!("pod {pod}"), asked)
    });
    Ok(asked.buffer_unordered(AT_ONCE).collect().await)
}

/// The port with the last requests, if the pod runs a gateway.
fn gateway_port(pod: &Pod) -> Option<u16> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Running") {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().chain(&spec.containers);
    if let Some(sidecar) = sidecars.clone().find(|container| container.name == CONTAINER_SIDECAR) {
        return listen_port(sidecar);
    }
    let labels = pod.labels();
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    if !is("app.kubernetes.io/name", "knack") || !is("app.kubernetes.io/component", "gateway") {
        return None;
    }
    let mut ports = spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    let metrics = ports.find(|port| port.name.as_deref() == Some("metrics"))?;
    u16::try_from(metrics.container_port).ok()
}

/// An address as people have it at hand: with a scheme, or with the name of this machine.
fn gateway_address(written: &str) -> Result<SocketAddr, String> {
    let authority = written.strip_prefix("http://").unwrap_or(written).trim_end_matches('/');
    let address = match authority.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse::<SocketAddr>(),
        None => authority.parse(),
    };
    address.map_err(|_| "write an IP address and a port, such as 127.0.0.1:4141".to_owned())
}

/// The variable that says where it answers.
const LISTEN: &str = "KNACK_METRICS_LISTEN";

fn listen_port(sidecar: &Container) -> Option<u16> {
    let listen = sidecar.env.iter().flatten().find(|variable| variable.name == LISTEN)?;
    let address: SocketAddr = listen.value.as_ref()?.parse().ok()?;
    Some(address.port())
}

async fn bounded(asked: impl Future<Output = Lookup>) -> Lookup {
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(asked) => asked,
        Err(_) => bail!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
    }
}

/// One request over a connection of its own. HTTP/1.0, so that the answer ends with the connection.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, id: Option<&str>) -> Lookup {
    let id = id.map(|id| format!("/{id}")).unwrap_or_default();
    let request = format!("GET /knack/v1/requests{id} HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer).await?;
    let found = read(&answer)?;
    if id.is_empty() && found.is_none() {
        bail!("it does not show its requests here; in a pod they are on the port of its metrics");
    }
    Ok(found)
}

/// The body of an answer; `None` for one that does not know the request.
fn read(answer: &[u8]) -> Lookup {
    let end = memchr::memmem::find(answer, b"\r\n\r\n").context("the response header is incomplete")?;
    let head = String::from_utf8_lossy(&answer[..end]);
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(Some(String::from_utf8_lossy(&answer[end + 4..]).into_owned())),
        Some("404") => Ok(None),
        _ => bail!("answers {line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_is_that_of_a_running_gateway_wherever_it_is() {
        let deployed = json!({"containers": [{"name": "gateway", "ports": [
            {"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}]}]});
        let sidecar = json!({"containers": [{"name": "app"}], "initContainers": [
            {"name": "wait"},
            {"name": "knack-gateway", "env": [{"name": "KNACK_METRICS_LISTEN", "value": "127.0.0.1:4142"}]}]});
        let bare = json!({"containers": [{"name": "knack-gateway"}]});
        for (component, phase, spec, expected) in [
            ("gateway", "Running", &deployed, Some(9090)),
            ("gateway", "Pending", &deployed, None),
            ("hub", "Running", &deployed, None),
            ("", "Running", &sidecar, Some(4142)),
            ("", "Running", &bare, None),
        ] {
            let labels = json!({"app.kubernetes.io/name": "knack", "app.kubernetes.io/component": component});
            let pod = json!({"metadata": {"labels": labels}, "spec": spec, "status": {"phase": phase}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(gateway_port(&pod), expected, "{component} {phase}");
        }
    }

    #[test]
    fn an_id_is_no_path() {
        for id in ["", "../metrics", "a b", "a\r\nb", "a/b", &"a".repeat(65)] {
            assert!(check_id(id).is_err(), "{id:?}");
        }
        for id in [
            "0199c0de-0000-7000-8000-000000000000",
            "req_knack_0199c0de000070008000000000000000",
        ] {
            assert!(check_id(id).is_ok(), "{id}");
        }
    }

    #[test]
    fn answers_are_distinguished() {
        assert_eq!(
            read(b"HTTP/1.0 200 OK\r\na: b\r\n\r\n{}").unwrap().as_deref(),
            Some("{}")
        );
        assert_eq!(read(b"HTTP/1.1 404 Not Lookups\r\n\r\n").unwrap(), None);
        for answer in [&b""[..], b"HTTP/1.0 403 Forbidden\r\n\r\n", b"SSH-2.0\r\n\r\n"] {
            assert!(read(answer).is_err(), "{answer:?}");
        }
    }
}
