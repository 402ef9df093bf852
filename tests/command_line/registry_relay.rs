//! A gateway in front of the registry of a cluster: what is sent there, as whom, and when the answer comes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::HeaderMap;
use knack_registry::REPORT_PATH;
use serde_json::{Value, json};

use super::gateway::{Gateway, client};
use super::saved_catalog::{Model, chat, cluster, until};
use super::stub_hub::Hub;

/// One request that the registry got: method and address, headers, body.
pub(crate) type Got = (String, HeaderMap, Vec<u8>);

/// How long the cluster takes from the registry's answer to the hub's line.
pub(crate) const ON_THE_WAY: Duration = Duration::from_millis(300);

/// How long the answer to a change waits at most until the gateway's catalog has it.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// How often a change is made that was not shown in this time.
const ATTEMPTS: usize = 10;

/// What the registry got so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<Got>>>);

impl Asked {
    pub(crate) fn push(&self, got: Got) {
        self.0.lock().unwrap().push(got);
    }

    /// The executions that were reported, as they came.
    pub(crate) fn reported(&self) -> Vec<Value> {
        let all = self.0.lock().unwrap();
        let reports = all.iter().filter(|(asked, ..)| asked.ends_with(REPORT_PATH));
        let read = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["executions"].clone();
        let executions = reports.map(|(.., body)| read(body));
        executions
            .flat_map(|of_one| of_one.as_array().unwrap().clone())
            .collect()
    }

    /// What came to the Skills APIs: the stub is a hub, too, which a gateway asks for more.
    pub(crate) fn take(&self) -> Vec<Got> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter()
            .filter(|(asked, ..)| asked.contains("/skills"))
            .collect()
    }
}

/// A gateway that relays to a hub with the registry's paths and one skill.
struct Relay {
    gateway: Gateway,
    hub: Hub,
    /// They live as long as the gateway.
    _model: Model,
    _folder: tempfile::TempDir,
}

impl Relay {
    /// `token` is what the gateway shows the hub.
    async fn start(token: &str) -> Self {
        let (folder, model, mut hub) = cluster(&[("token", token)]).await;
        hub.start();
        let more = [
            ("KNACK_REGISTRY", hub.url.as_str()),
            ("KNACK_START_WAIT_SECONDS", "0"),
            ("KNACK_UPSTREAM_ANTHROPIC", &model.url),
        ];
        let mut gateway = Gateway::start(folder.path(), &model.url, &hub.url, &more);
        gateway.healthy().await;
        Self {
            gateway,
            hub,
            _model: model,
            _folder: folder,
        }
    }
}

async fn ask(gateway: &Gateway, method: &str, path: &str, anthropic: bool, body: &str) -> (u16, HeaderMap, String) {
    let base = gateway.url.trim_end_matches("/v1");
    let mut request = client()
        .request(method.parse().unwrap(), format!("{base}{path}"))
        .header("x-api-key", "sk-of-the-client")
        .header("authorization", "Bearer sk-of-the-client")
        .body(body.to_owned());
    if anthropic {
        request = request.header("anthropic-version", "2023-06-01");
    }
    let answer = request.send().await.unwrap();
    (
        answer.status().as_u16(),
        answer.headers().clone(),
        answer.text().await.unwrap(),
    )
}

/// False: the upload was not shown within the time that its answer waits for that, as on a machine that stands still meanwhile.
async fn is_there_for_the_next_request(gateway: &Gateway, attempt: usize) -> bool {
    let word = format!("birches-{attempt}");
    let begun = Instant::now();
    let (status, headers, text) = ask(gateway, "POST", "/v1/skills?key=sk-of-the-client&x=1", true, &word).await;
    let took = begun.elapsed();
    assert_eq!((status, text.as_str()), (200, "POST /v1/skills?x=1"));
    assert_eq!(headers["x-of-the-registry"], "yes");
    assert!(took >= ON_THE_WAY);
    let said = chat(gateway).await;
    let is_there = said.contains(&format!("Say {word}."));
    assert!(is_there || took >= SHOWN_WITHIN, "the next request has it: {said}");
    is_there && took < SHOWN_WITHIN
}

#[tokio::test]
async fn the_skills_apis_go_to_the_registry_as_the_gateway_and_an_upload_is_there_for_the_next_request() {
    let relay = Relay::start("the gateway's own").await;
    let (gateway, hub) = (&relay.gateway, &relay.hub);
    until("the first text is served", async || {
        chat(gateway).await.contains("Say larches.")
    })
    .await;

    let mut attempts = 0;
    while !is_there_for_the_next_request(gateway, attempts).await {
        attempts += 1;
        assert!(attempts < ATTEMPTS, "no upload is shown within {SHOWN_WITHIN:?}");
        hub.asked.take();
    }
    let asked = hub.asked.take();
    let (_, headers, body) = &asked[0];
    assert_eq!(headers["authorization"], "Bearer the gateway's own");
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    assert_eq!(body, format!("birches-{attempts}").as_bytes());
    assert!(!format!("{headers:?}").contains("sk-of-the-client"), "{headers:?}");

    for (method, path) in [
        ("GET", "/v1/skills/skill_knack_1"),
        ("GET", "/api/v1/skills"),
        ("GET", "/api/skills"),
        ("GET", "/v1/skills/skill_knack_1/content"),
        ("GET", "/api/skills/skillssh?q=larches"),
        ("POST", "/api/skills/skillssh/install"),
        ("GET", "/api/skills/marketplace?q=larches"),
    ] {
        let (status, _, text) = ask(gateway, method, path, false, "").await;
        assert_eq!((status, text), (200, format!("{method} {path}")));
    }
    // The provider's own: not for the registry.
    hub.asked.take();
    for path in ["/v1/skills/skill_01AbC", "/v1/skills?source=anthropic"] {
        let (_, headers, _) = ask(gateway, "GET", path, true, "").await;
        assert!(!headers.contains_key("x-of-the-registry"), "{path}");
    }
    assert!(hub.asked.take().is_empty());
}

#[tokio::test]
async fn a_registry_that_is_away_or_refuses_the_gateway_is_reported_in_the_shape_of_the_api() {
    let mut relay = Relay::start("refused").await;
    for is_there in [true, false] {
        if !is_there {
            relay.hub.kill();
        }
        for anthropic in [true, false] {
            let (status, headers, text) = ask(&relay.gateway, "GET", "/v1/skills", anthropic, "").await;
            assert_eq!(status, 503, "{text}");
            assert!(headers.contains_key("retry-after"), "{headers:?}");
            let body: Value = serde_json::from_str(&text).unwrap();
            let message = body["error"]["message"].as_str().unwrap();
            assert!(message.contains("does not answer this gateway"), "{text}");
            assert_eq!(body.get("type"), anthropic.then_some(&json!("error")), "{text}");
            assert!(!text.contains("127.0.0.1") && !text.contains("https:"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_caller_that_floods_the_registry_through_a_gateway_leaves_the_others_their_part() {
    let relay = Relay::start("the gateway's own").await;
    let (gateway, hub) = (&relay.gateway, &relay.hub);
    let base = gateway.url.trim_end_matches("/v1").to_owned();
    // Without a catalog of another revision a change is answered after a while only, so all are sent at once.
    let send = async |key: &str| {
        let request = client().post(format!("{base}/api/v1/skills")).bearer_auth(key);
        request.send().await.unwrap()
    };
    let flood = futures::future::join_all((0..20).map(|_| send("flood"))).await;
    let (refused, taken): (Vec<_>, Vec<_>) = flood.into_iter().partition(|answer| answer.status() == 429);
    assert!(!taken.is_empty() && taken.iter().all(|answer| answer.status() == 200));
    assert!(
        !refused.is_empty(),
        "one caller sends all that the registry takes of its gateway"
    );
    assert_eq!(hub.asked.take().len(), taken.len(), "nothing of the others was sent on");
    for answer in refused {
        assert!(
            answer.headers()["retry-after"]
                .to_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
                > 0
        );
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let message = body["detail"]["message"].as_str().unwrap();
        assert!(message.starts_with("Too many changes by this caller"), "{body}");
    }
    assert_eq!(send("another").await.status(), 200);
}
