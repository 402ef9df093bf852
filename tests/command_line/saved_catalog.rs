//! A gateway that is killed while its hub is away serves from the catalog that it saved, and follows the hub again.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use knack_hub_api::{HubRefusal, RefusalCode};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::gateway::{Gateway, PATIENCE, client};
use super::port::free_port;
use super::program::folder;
use super::stub_hub::Hub;

/// How often a condition without a signal is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The folder of a gateway with these files and what it trusts, a provider, and a hub of one skill that does not run yet.
pub(crate) async fn cluster(files: &[(&str, &str)]) -> (tempfile::TempDir, Model, Hub) {
    let folder = folder(files);
    let model = Model::start().await;
    let hub = Hub::new();
    std::fs::write(folder.path().join("ca.crt"), &hub.pem).unwrap();
    hub.skill("larches");
    (folder, model, hub)
}

/// A model that loads the skill that it sees, and repeats what it was told.
pub(crate) struct Model {
    pub(crate) url: String,
    _child: Child,
}

impl Model {
    pub(crate) async fn start() -> Self {
        let port = free_port();
        let child = Command::new(env!("CARGO_BIN_EXE_knack"))
            .args(["mock", &format!("--listen=127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until("the model listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        let url = format!("http://127.0.0.1:{port}");
        Self { url, _child: child }
    }
}

/// A gateway with a folder for its catalog, without any wait for the hub.
pub(crate) async fn gateway(folder: &Path, model: &Model, hub: &Hub) -> Gateway {
    let saved = folder.join("saved");
    let more = [
        ("KNACK_CATALOG_DIR", saved.to_str().unwrap()),
        ("KNACK_START_WAIT_SECONDS", "0"),
    ];
    let mut gateway = Gateway::start(folder, &model.url, &hub.url, &more);
    gateway.healthy().await;
    until("requests are taken", async || gateway.ready().await.0 == 200).await;
    gateway
}

/// What the model says.
pub(crate) async fn chat(gateway: &Gateway) -> String {
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    let answer = client()
        .post(format!("{}/chat/completions", gateway.url))
        .header("authorization", "Bearer sk-mock")
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let text = answer.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap();
    let content = body["choices"][0]["message"]["content"].as_str();
    content.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Whether the metric has a value of 1.
async fn says_saved(gateway: &Gateway) -> bool {
    let (_, text) = gateway.probe("metrics").await;
    assert!(text.contains("\nknack_gateway_catalog_saved "), "{text}");
    text.contains("\nknack_gateway_catalog_saved 1\n")
}

pub(crate) async fn until(what: &str, mut is_done: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_done().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until the file has a text, or does not.
async fn saved(file: &Path, text: &str, expected: bool) {
    until(&format!("the file has {text:?}: {expected}"), async || {
        let bytes = std::fs::read(file).unwrap_or_default();
        let has = bytes.windows(text.len()).any(|part| part == text.as_bytes());
        !bytes.is_empty() && has == expected
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_without_a_hub_serves_the_catalog_that_it_saved() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    let file = folder.path().join("saved/catalog");
    hub.start();
    let first = gateway(folder.path(), &model, &hub).await;
    until("the skill is served", async || {
        chat(&first).await.contains("Say larches.")
    })
    .await;
    let (_, text) = first.ready().await;
    assert!(text.contains("skills=1") && !text.contains("catalog="), "{text}");
    assert!(!says_saved(&first).await);
    saved(&file, "Say larches.", true).await;

    hub.kill();
    first.kill().await;
    let second = gateway(folder.path(), &model, &hub).await;
    let said = chat(&second).await;
    assert!(
        said.contains("Say larches.") && said.contains("notes/more.txt"),
        "{said}"
    );
    let (_, text) = second.ready().await;
    assert!(text.contains("skills=1 catalog=saved age_seconds="), "{text}");
    assert!(says_saved(&second).await);

    hub.skill("alders");
    hub.start();
    until("the hub is followed", async || {
        chat(&second).await.contains("Say alders.")
    })
    .await;
    until("it says so", async || !says_saved(&second).await).await;
    let (_, text) = second.ready().await;
    assert!(text.contains("skills=1") && !text.contains("catalog="), "{text}");
    saved(&file, "Say alders.", true).await;

    // What was deleted does not come back.
    hub.remove();
    until("the skill is gone", async || !chat(&second).await.contains("Say ")).await;
    saved(&file, "Say alders.", false).await;
    hub.kill();
    second.kill().await;
    let third = gateway(folder.path(), &model, &hub).await;
    let said = chat(&third).await;
    assert!(!said.contains("alders"), "{said}");
    let (_, text) = third.ready().await;
    assert!(text.contains("skills=0 catalog=saved"), "{text}");
}

#[tokio::test]
async fn a_damaged_catalog_keeps_nothing_from_starting_and_is_replaced() {
    let (folder, model, mut hub) = cluster(&[("token", "a token"), ("saved/catalog", "not a catalog")]).await;
    let gateway = gateway(folder.path(), &model, &hub).await;
    let said = chat(&gateway).await;
    assert!(said.contains("You said: hello"), "{said}");
    let (_, text) = gateway.ready().await;
    assert!(text.contains("without catalog"), "{text}");
    assert!(!says_saved(&gateway).await);
    hub.start();
    until("the skill is served", async || {
        chat(&gateway).await.contains("Say larches.")
    })
    .await;
    saved(&folder.path().join("saved/catalog"), "Say larches.", true).await;
}

/// A refusal that nobody mends fills no log.
#[tokio::test]
async fn a_gateway_that_the_hub_refuses_logs_it_once() {
    let folder = folder(&[("token", "a token")]);
    let model = Model::start().await;
    let mut hub = Hub::new();
    std::fs::write(folder.path().join("ca.crt"), &hub.pem).unwrap();
    hub.refuse(Some(HubRefusal::new(RefusalCode::Forbidden, "not team")));
    hub.start();
    let log = folder.path().join("log");
    let more = [
        ("KNACK_START_WAIT_SECONDS", "0"),
        ("KNACK_LOG", "info,knack_gateway=debug"),
    ];
    let written = std::fs::File::create(&log).unwrap().into();
    let _gateway = Gateway::logging(folder.path(), &model.url, &hub.url, &more, written);
    let lines = |word: &str| {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines()
            .filter(|line| line.contains("not team") && line.contains(word))
            .count()
    };
    until("it has asked again twice", async || lines("\"DEBUG\"") >= 2).await;
    assert_eq!(lines("\"WARN\""), 1);
}

/// A pod whose namespace the runtime does not allow: its traffic passes, and whoever looks learns why there are no skills.
#[tokio::test]
async fn a_gateway_that_the_hub_refuses_says_why_until_it_is_served() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    let why = "namespace team may not use run/main: spec.allowedCallers";
    hub.refuse(Some(HubRefusal::new(RefusalCode::Forbidden, why)));
    hub.start();
    let gateway = gateway(folder.path(), &model, &hub).await;
    until("it says why", async || {
        let (status, text) = gateway.ready().await;
        status == 200 && text.contains(&format!("without catalog: the hub refuses it: {why}"))
    })
    .await;
    assert!(!chat(&gateway).await.contains("larches"));

    hub.refuse(None);
    until("the skill is served", async || {
        chat(&gateway).await.contains("Say larches.")
    })
    .await;
    let (_, text) = gateway.ready().await;
    assert!(text.contains("skills=1"), "{text}");
}
