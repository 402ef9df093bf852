//! A certificate of the hub that is replaced while gateways are connected.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use knack::certificates::state::service_names;
use knack::certificates::{CertificateState, issue, issue_root};
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, HubError, LineReader, Token};
use knack_hub_api::{CatalogLine, Version};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::beside;
use super::calls::Calls;
use super::chat::{Model, chat, content};
use super::support::{Installation, InstallationOptions, Process, SOON, free_port, next_skill, patiently};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// The hub looks at its files every 10 s, and a call that takes its time on a busy machine runs between two looks of the test.
const REPLACED_WITHIN: Duration = Duration::from_mins(1);
/// Requests at once, within what the runtime runs at once.
const CALLERS: usize = 2;

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A client of a hub that trusts the authorities of a file, which may change.
fn client(url: &str, authorities: &Path, token: &str) -> HubClient {
    HubClient::new(HubClientSettings {
        url: url.to_owned(),
        authorities: Authorities::File(authorities.to_owned()),
        token: Token::Fixed(token.to_owned()),
        address: None,
    })
    .unwrap()
}

fn secrets(installation: &Installation) -> Api<Secret> {
    Api::namespaced(installation.client.clone(), installation.system.name())
}

async fn state(installation: &Installation) -> (Secret, Value) {
    let secret = secrets(installation).get("knack-hub-tls").await.unwrap();
    let state = serde_json::from_slice(&secret.data.as_ref().unwrap()["state.json"].0).unwrap();
    (secret, state)
}

/// Puts a certificate that is 61 days old, by a root that is gone, in the place of the new one. Returns that root.
async fn age(installation: &Installation, mut names: Vec<String>) -> String {
    names.extend(service_names("knack-hub", installation.system.name()));
    names.sort();
    let (mut secret, value) = state(installation).await;
    let mut aged: CertificateState = serde_json::from_value(value).unwrap();
    let made = seconds_now() - 61 * DAY;
    let active = issue(made, &names, &issue_root(made).unwrap()).unwrap();
    aged.active = Some(active.clone());
    let data = secret.data.as_mut().unwrap();
    for (key, text) in [
        ("tls.crt", active.certificate),
        ("tls.key", active.key),
        ("ca.crt", active.authority.clone()),
        ("state.json", serde_json::to_string(&aged).unwrap()),
    ] {
        data.insert(key.to_owned(), ByteString(text.into_bytes()));
    }
    let api = secrets(installation);
    api.replace("knack-hub-tls", &PostParams::default(), &secret)
        .await
        .unwrap();
    active.authority
}

/// Asks until a client that trusts the last authority only is refused by TLS; calls of gateways continue meanwhile.
async fn until_replaced(calls: &Calls, url: &str, last: &Path, token: &str) {
    let begun = Instant::now();
    loop {
        assert_eq!(calls.text(calls.sleeper(0.0, "again")).await, Ok("again\n".to_owned()));
        // A fresh client each time: an open connection would keep the certificate that it has seen.
        match client(url, last, token).hub().get::<Version>("/v1/version").await {
            Ok(_) => assert!(begun.elapsed() < REPLACED_WITHIN, "the hub goes on with the old one"),
            Err(HubError::Unreachable(why) | HubError::Broken(why)) => {
                println!("who trusts the last authority only, after {:?}: {why}", begun.elapsed());
                return;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Lets an hour pass since a moment that the controller has written down, and the next controller look.
async fn an_hour_later(installation: &mut Installation, member: &str, moment: &str) {
    installation.stop_controller();
    let (mut secret, mut state) = state(installation).await;
    let before = state[member][moment].as_u64().unwrap();
    state[member][moment] = json!(before - HOUR);
    let bytes = ByteString(serde_json::to_vec(&state).unwrap());
    secret.data.as_mut().unwrap().insert("state.json".to_owned(), bytes);
    let api = secrets(installation);
    api.replace("knack-hub-tls", &PostParams::default(), &secret)
        .await
        .unwrap();
    installation.start_controller();
}

/// Waits until the controller has come to a state, and mounts what it has written, as kubelet does for hub and gateway.
async fn until(installation: &Installation, authorities: &Path, what: &str, fits: impl Fn(&Value) -> bool) -> String {
    let begun = Instant::now();
    while !fits(&state(installation).await.1) {
        assert!(begun.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The ConfigMap is written before the Secret, so both are of this state.
    let bundle = installation.mount_certificates().await;
    let next = authorities.with_extension("next");
    std::fs::write(&next, &bundle).unwrap();
    std::fs::rename(&next, authorities).unwrap();
    bundle
}

/// Requests with a skill through a gateway, all the time.
struct Load {
    _gateway: Process,
    _model: Model,
    stop: Arc<AtomicBool>,
    callers: JoinSet<usize>,
}

impl Load {
    async fn start(installation: &Installation, hub: &str, authorities: &Path) -> Self {
        let model = Model::start_for(installation, hub, authorities).await;
        let (gateway, port) = model.gateway(installation, "gateway-rotated").await;
        let begun = Instant::now();
        while !has_run(port).await {
            assert!(begun.elapsed() < SOON, "the gateway has no catalog: {}", gateway.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (stop, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..CALLERS {
            let stop = Arc::clone(&stop);
            callers.spawn(async move {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert!(has_run(port).await, "request {count} of a caller");
                    count += 1;
                }
                count
            });
        }
        Self {
            _gateway: gateway,
            _model: model,
            stop,
            callers,
        }
    }

    /// How many requests there were; every one was served.
    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.join_all().await.into_iter().sum()
    }
}

/// Whether an answer has what the skill printed.
async fn has_run(port: u16) -> bool {
    let (status, body) = chat(port, "run it", Some("steady")).await;
    let is_so = status == 200 && content(&body).contains("steady ran");
    if !is_so {
        println!("{status} {body}");
    }
    is_so
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// A change comes by the stream.
async fn goes_on(installation: &Installation, catalog: &mut LineReader) {
    installation.skill(&installation.tenants[0], "late", "print('x')").await;
    let late = async {
        loop {
            if let Some(CatalogLine::Skill(skill)) = catalog.next_value::<CatalogLine>().await.unwrap()
                && skill.name == "late"
            {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, late)
        .await
        .expect("the first stream goes on");
}

/// Two thirds of a certificate's life are over. The next one is published and served, and the last one is forgotten; a
/// gateway's streams and calls continue through all of it, not one request of an application fails, and a client that trusts only the last authority gets a TLS
/// error.
#[test]
fn a_certificate_is_replaced_under_its_gateways() {
    beside("a_certificate_is_replaced_under_its_gateways", async |cluster| {
        let names = vec!["127.0.0.1".to_owned()];
        let options = InstallationOptions {
            tenants: 1,
            spec: json!({"warmPool": {"replicas": 1}}),
            hub_names: names.clone(),
            hub_words: Vec::new(),
        };
        let mut installation = Installation::install(cluster, options).await;
        installation.stop_controller();
        let last = age(&installation, names).await;
        let authorities = installation.folder.path().join("ca.crt");
        std::fs::write(&authorities, &last).unwrap();
        installation.mount_certificates().await;

        let port = free_port();
        let url = format!("https://127.0.0.1:{port}");
        let token = installation.token(&installation.tenants[0], "default", "knack").await;
        let gateway = client(&url, &authorities, &token);
        let hub = installation.replica("hub-rotated", port);
        let begun = Instant::now();
        while gateway.hub().get::<Version>("/v1/version").await.is_err() {
            assert!(
                begun.elapsed() < SOON,
                "the hub serves the old certificate: {}",
                hub.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Published first.
        installation.start_controller();
        let bundle = until(&installation, &authorities, "the next one is prepared", |state| {
            !state["next"].is_null()
        })
        .await;
        assert_eq!(count(&bundle), 2, "{bundle}");
        let calls = Calls::new(&installation, gateway.clone()).await;
        let load = Load::start(&installation, &url, &authorities).await;
        let mut catalog = gateway
            .hub()
            .watch(&format!("{}&watch=true", installation.catalog()))
            .await
            .unwrap();
        next_skill(&mut catalog, |skill| skill.name == "steady").await;
        let long = tokio::spawn({
            let calls = calls.clone();
            async move {
                calls
                    .text(calls.python("import time; time.sleep(25); print('through')", 100))
                    .await
            }
        });

        // An hour later it serves; a hub looks at its files every 10 s.
        an_hour_later(&mut installation, "next", "published_at").await;
        let bundle = until(&installation, &authorities, "the next one serves", |state| {
            !state["previous"].is_null()
        })
        .await;
        assert_eq!(count(&bundle), 2, "{bundle}");
        let only_last = installation.folder.path().join("last.crt");
        std::fs::write(&only_last, &last).unwrap();
        until_replaced(&calls, &url, &only_last, &token).await;
        let fresh = client(&url, &authorities, &token);
        let version = patiently(async || fresh.hub().get::<Version>("/v1/version").await).await;
        assert!(version.is_ok(), "{version:?}");

        // An hour later the last authority is forgotten.
        an_hour_later(&mut installation, "previous", "replaced_at").await;
        let bundle = until(&installation, &authorities, "the last one is dropped", |state| {
            state["previous"].is_null()
        })
        .await;
        assert_eq!(count(&bundle), 1, "{bundle}");
        assert!(!bundle.contains(last.trim()));
        assert_eq!(calls.text(calls.sleeper(0.0, "last")).await, Ok("last\n".to_owned()));
        // A root that is deleted is followed by another, which is published before it is used.
        installation.stop_controller();
        let deleted = secrets(&installation)
            .delete("knack-root", &DeleteParams::default())
            .await;
        assert!(deleted.is_ok(), "{deleted:?}");
        installation.start_controller();
        let both = until(&installation, &authorities, "a certificate by another root", |state| {
            !state["next"].is_null()
        })
        .await;
        assert_eq!(count(&both), 2, "{both}");
        assert!(both.contains(bundle.trim()), "the root of the certificate that serves");
        assert_eq!(calls.text(calls.sleeper(0.0, "both")).await, Ok("both\n".to_owned()));

        let served = load.end().await;
        assert!(served > 0);
        println!("{served} requests with a skill were served through all of it");

        // What was connected at the beginning is connected still.
        assert_eq!(long.await.unwrap(), Ok("through\n".to_owned()));
        goes_on(&installation, &mut catalog).await;
    });
}
