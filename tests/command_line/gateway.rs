//! `knack gateway` as a sidecar: configured by its environment, without a hub, asked by `knack gateway health`.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use futures::StreamExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::port::free_port;
use super::program::{folder, knack};
use super::{err, out};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// Ends within a second on an idle machine; a loaded one takes some more. Far below the time for draining.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Gateway {
    child: Child,
    pub(crate) url: String,
    metrics: String,
    /// Of its environment, which the probe in its container has too.
    settings: Vec<(String, String)>,
}

impl Gateway {
    pub(crate) fn start(folder: &Path, upstream: &str, hub: &str, more: &[(&str, &str)]) -> Self {
        Self::logging(folder, upstream, hub, more, Stdio::inherit())
    }

    /// With its log elsewhere.
    pub(crate) fn logging(folder: &Path, upstream: &str, hub: &str, more: &[(&str, &str)], log: Stdio) -> Self {
        let (port, metrics) = (free_port(), free_port());
        let own = format!("127.0.0.1:{port}");
        let given = more.iter().find(|(name, _)| *name == "KNACK_LISTEN");
        let listen = given.map_or(own.as_str(), |(_, value)| *value);
        let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
        command
            .arg("gateway")
            .env("KNACK_LISTEN", listen)
            .env("KNACK_METRICS_LISTEN", format!("127.0.0.1:{metrics}"))
            .env("KNACK_HUB", hub)
            .env("KNACK_HUB_CA", folder.join("ca.crt"))
            .env("KNACK_TOKEN_FILE", folder.join("token"))
            .env("KNACK_DEFAULT_RUNTIME", "sandboxes/default")
            .env("KNACK_UPSTREAM_OPENAI", upstream)
            .env("KNACK_SHUTDOWN_PAUSE_SECONDS", "0")
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        Self {
            child: command.spawn().unwrap(),
            url: format!("http://{listen}/v1"),
            metrics: format!("127.0.0.1:{metrics}"),
            settings: more
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    /// What `knack gateway health` says.
    async fn health(&self) -> Result<(), String> {
        let folder = folder(&[]);
        let mut settings = vec![
            ("KNACK_METRICS_LISTEN", self.metrics.as_str()),
            ("KNACK_DEFAULT_RUNTIME", "sandboxes/default"),
        ];
        settings.extend(
            self.settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        let done = knack(folder.path(), &["gateway", "health"], &settings).await;
        assert!(out(&done).is_empty());
        done.status.success().then_some(()).ok_or_else(|| err(&done))
    }

    pub(crate) async fn healthy(&mut self) {
        let begun = Instant::now();
        while let Err(why) = self.health().await {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended");
            assert!(begun.elapsed() < PATIENCE, "{why}");
        }
    }

    pub(crate) async fn ready(&self) -> (u16, String) {
        self.probe("readyz").await
    }

    /// What a page for kubelets and scrapers says.
    pub(crate) async fn probe(&self, page: &str) -> (u16, String) {
        let url = format!("http://{}/{page}", self.metrics);
        let answer = client().get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Asks it to end, and waits: what it has logged is written then.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        self.ended(PATIENCE).await;
    }

    /// Ends it without any warning.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    async fn ended(&mut self, within: Duration) {
        let status = tokio::time::timeout(within, self.child.wait())
            .await
            .expect("it ends")
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// A provider: `/v1/models` at once, `/v1/slow` as the test sends.
pub(crate) async fn provider() -> (String, mpsc::UnboundedSender<String>) {
    let (sender, receiver) = mpsc::unbounded_channel::<String>();
    let receiver = Arc::new(tokio::sync::Mutex::new(Some(receiver)));
    let slow = move || async move {
        let receiver = receiver.lock().await.take().unwrap();
        let parts = futures::stream::unfold(receiver, |mut receiver| async move {
            let part = receiver.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(part), receiver))
        });
        Body::from_stream(parts)
    };
    let router = Router::new()
        .route("/v1/models", get(|| async { "models" }))
        .route("/v1/slow", post(slow));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, sender)
}

#[tokio::test]
async fn a_sidecar_waits_for_nothing_and_ends_at_once() {
    let folder = folder(&[]);
    let (upstream, _sender) = provider().await;
    // There is no listener, and neither the authorities nor the token exist yet.
    let hub = format!("https://127.0.0.1:{}", free_port());
    let mut gateway = Gateway::start(folder.path(), &upstream, &hub, &[("KNACK_START_WAIT_SECONDS", "0")]);
    gateway.healthy().await;
    let answer = client().get(format!("{}/models", gateway.url)).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "models");
    let (status, text) = gateway.ready().await;
    assert!(status == 200 && text.contains("without catalog"), "{status} {text}");
    // Who is in the pod sees its requests; applications of others do not, on the port that serves them.
    let begun = Instant::now();
    loop {
        let shown = knack(folder.path(), &["trace", "--gateway", &gateway.metrics], &[]).await;
        if out(&shown).contains("200 proxy /v1/models") {
            break;
        }
        // A report is there a moment after the client has its answer.
        assert!(begun.elapsed() < PATIENCE, "{shown:?}");
    }
    let served = gateway
        .url
        .strip_prefix("http://")
        .and_then(|url| url.strip_suffix("/v1"))
        .unwrap();
    let hidden = knack(folder.path(), &["trace", "--gateway", served], &[]).await;
    assert!(
        out(&hidden).is_empty() && err(&hidden).contains("does not show its requests here"),
        "{hidden:?}"
    );
    gateway.terminate();
    gateway.ended(SOON).await;
    let gone = gateway.health().await.unwrap_err();
    assert!(gone.contains(&gateway.metrics), "{gone}");
}

#[tokio::test]
async fn a_gateway_of_a_deployment_waits_for_its_first_catalog() {
    let folder = folder(&[]);
    let (upstream, _sender) = provider().await;
    let hub = format!("https://127.0.0.1:{}", free_port());
    let mut gateway = Gateway::start(
        folder.path(),
        &upstream,
        &hub,
        &[("KNACK_START_WAIT_SECONDS", "100000")],
    );
    gateway.healthy().await;
    let (status, text) = gateway.ready().await;
    assert!(
        status == 503 && text.contains("waiting for the first catalog"),
        "{status} {text}"
    );
    // As the first process of its container it would hear nothing that it does not catch.
    gateway.terminate();
    gateway.ended(SOON).await;
}

#[tokio::test]
async fn an_answer_under_way_is_drained() {
    let folder = folder(&[]);
    let (upstream, sender) = provider().await;
    let hub = format!("https://127.0.0.1:{}", free_port());
    let mut gateway = Gateway::start(folder.path(), &upstream, &hub, &[("KNACK_START_WAIT_SECONDS", "0")]);
    gateway.healthy().await;
    sender.send("one ".to_owned()).unwrap();
    let answer = client()
        .post(format!("{}/slow", gateway.url))
        .body("{}")
        .send()
        .await
        .unwrap();
    let mut parts = answer.bytes_stream();
    assert_eq!(&parts.next().await.unwrap().unwrap()[..], b"one ");
    gateway.terminate();
    // It has heard the signal when its readiness is gone.
    let begun = Instant::now();
    while gateway.ready().await.0 == 200 {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(gateway.child.try_wait().unwrap().is_none(), "it waits for the answer");
    sender.send("two".to_owned()).unwrap();
    drop(sender);
    assert_eq!(&parts.next().await.unwrap().unwrap()[..], b"two");
    assert!(parts.next().await.is_none());
    gateway.ended(SOON).await;
}

/// A hub that only shakes hands, with an authority of its own: PEM, and what it got over TLS.
pub(crate) async fn hub() -> (String, String, mpsc::UnboundedReceiver<()>) {
    let (pem, acceptor) = super::stub_hub::authority();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if acceptor.accept(stream).await.is_ok() && sender.send(()).is_err() {
                return;
            }
        }
    });
    (url, pem, receiver)
}

#[tokio::test]
async fn authorities_that_come_late_and_change_are_read() {
    let folder = folder(&[("token", "a token")]);
    let (upstream, _sender) = provider().await;
    let (url, pem, mut trusted) = hub().await;
    let (_, other, _) = hub().await;
    let mut gateway = Gateway::start(folder.path(), &upstream, &url, &[("KNACK_START_WAIT_SECONDS", "0")]);
    gateway.healthy().await;
    std::fs::write(folder.path().join("ca.crt"), other).unwrap();
    // Longer than a file is cached, and several tries: no client trusts the hub with the other's authority.
    assert!(
        tokio::time::timeout(Duration::from_secs(8), trusted.recv())
            .await
            .is_err()
    );
    std::fs::write(folder.path().join("ca.crt"), pem).unwrap();
    tokio::time::timeout(PATIENCE, trusted.recv())
        .await
        .expect("the new authority is trusted")
        .unwrap();
}
