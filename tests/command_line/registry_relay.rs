//! A gateway in front of the registry of a cluster: what is sent there, as whom, and when the answer comes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use http::HeaderMap;
use knack_registry::REPORT_PATH;
use knack_vocabulary::HEADER_CLIENT;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

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

    /// Whether anything came to the registry, for its Skills APIs or for gateways.
    fn has_any(&self) -> bool {
        let all = self.0.lock().unwrap();
        all.iter()
            .any(|(asked, ..)| asked.contains("skills") || asked.contains("/knack/"))
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
        Self::between(token, None).await
    }

    /// With these providers, of OpenAI's APIs and of Anthropic's, in the place of the model.
    async fn between(token: &str, providers: Option<[&str; 2]>) -> Self {
        let (folder, model, mut hub) = cluster(&[("token", token)]).await;
        hub.start();
        let [openai, anthropic] = providers.unwrap_or([&model.url; 2]);
        let more = [
            ("KNACK_REGISTRY", hub.url.as_str()),
            ("KNACK_START_WAIT_SECONDS", "0"),
            ("KNACK_UPSTREAM_ANTHROPIC", anthropic),
        ];
        let mut gateway = Gateway::start(folder.path(), openai, &hub.url, &more);
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

/// A provider that says which one it is, and keeps what it got.
async fn provider(name: &'static str) -> (String, Asked) {
    let asked = Asked::default();
    let kept = asked.clone();
    let router = Router::new().fallback(move |request: axum::extract::Request| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        kept.push((format!("{} {}", parts.method, parts.uri), parts.headers, body.to_vec()));
        name
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

#[tokio::test]
async fn what_names_a_provider_goes_to_that_one_byte_for_byte() {
    let ((openai, of_openai), (anthropic, of_anthropic)) = (provider("openai").await, provider("anthropic").await);
    let relay = Relay::between("the gateway's own", Some([&openai, &anthropic])).await;
    let base = relay.gateway.url.trim_end_matches("/v1");
    let form = "multipart/form-data; boundary=\"a boundary\"";
    // Neither the end of a form nor text: whoever reads it would refuse it or change it.
    let body: Vec<u8> = (0..=u8::MAX).cycle().take(10_000).collect();
    for (method, path, named, other) in [
        (
            "POST",
            "/v1/skills?custom_llm_provider=anthropic&x=%2F",
            &of_anthropic,
            &of_openai,
        ),
        (
            "POST",
            "/v1/skills?custom_llm_provider=openai",
            &of_openai,
            &of_anthropic,
        ),
        (
            "POST",
            "/v1/skills/skill_01AbC/versions?custom_llm_provider=anthropic",
            &of_anthropic,
            &of_openai,
        ),
        (
            "GET",
            "/v1/skills?limit=2&custom_llm_provider=openai",
            &of_openai,
            &of_anthropic,
        ),
        (
            "GET",
            "/v1/skills?custom_llm_provider=anthropic",
            &of_anthropic,
            &of_openai,
        ),
        (
            "DELETE",
            "/v1/skills/skill_01AbC?custom_llm_provider=openai",
            &of_openai,
            &of_anthropic,
        ),
    ] {
        let sent = if method == "POST" { &body[..] } else { &[] };
        let request = client().request(method.parse().unwrap(), format!("{base}{path}"));
        let request = request.header("content-type", form).header("x-of-the-client", "kept");
        let answer = request
            .bearer_auth("sk-of-the-client")
            .body(sent.to_vec())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{method} {path}");
        let is_anthropic = answer.text().await.unwrap() == "anthropic";
        assert_eq!(is_anthropic, path.contains("anthropic"), "{method} {path}");
        let got = named.take();
        let [(asked, headers, got)] = &got[..] else {
            panic!("{method} {path}: {got:?}")
        };
        assert_eq!(*asked, format!("{method} {path}"));
        assert!(got == sent, "{method} {path}: the body is another one");
        for (name, value) in [
            ("content-type", form),
            ("x-of-the-client", "kept"),
            ("authorization", "Bearer sk-of-the-client"),
        ] {
            assert_eq!(headers[name], value, "{method} {path}: {name}");
        }
        assert!(other.take().is_empty() && !relay.hub.asked.has_any(), "{method} {path}");
    }
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

/// Sends a path as written, and reads status and body: an HTTP library would resolve its dot segments.
async fn raw(gateway: &Gateway, line: &str) -> (u16, String) {
    let address = gateway.url.trim_start_matches("http://").trim_end_matches("/v1");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

#[tokio::test]
async fn a_path_that_would_be_another_one_at_the_registry_is_refused_and_not_sent_on() {
    let relay = Relay::start("the gateway's own").await;
    for (line, api) in [
        ("GET /api/skills/./executions", "omniroute"),
        ("GET /api/skills/x/../executions?limit=100", "omniroute"),
        ("GET /api/skills/%2e/executions", "omniroute"),
        ("GET /api/skills/x/%2E%2e/executions", "omniroute"),
        ("GET /api/skills/x/.%2E/executions/req", "omniroute"),
        ("GET /api/skills/x\\..\\executions", "omniroute"),
        ("GET /api/skills\\executions", ""),
        ("POST /api/skills/../../knack/v1/executions", "omniroute"),
        ("POST /api/skills/../../knack/v1/executions/claims", "omniroute"),
        ("POST /api/v1/skills/../../../knack/v1/files", "agent flow"),
        ("POST /v1/skills/skill_knack_1/..\\..\\..\\knack/v1/files", "openai"),
        ("PUT /v1/skills/../api/skills/x", "omniroute"),
    ] {
        let (status, body) = raw(&relay.gateway, line).await;
        assert_eq!(status, 400, "{line}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let message = match api {
            "agent flow" => &body["detail"]["message"],
            "omniroute" => &body["error"],
            _ => &body["error"]["message"],
        };
        let message = message.as_str().unwrap_or_else(|| panic!("{line}: {body}"));
        assert!(
            message.contains("has a dot segment") || message.contains("has a backslash"),
            "{message}"
        );
    }
    assert!(!relay.hub.asked.has_any(), "it was sent on");
    // What no API has is answered here, too.
    for (line, expected) in [
        ("GET /api/skills/x/executions", 404),
        ("PATCH /api/skills", 404),
        ("PATCH /api/v1/skills/a", 404),
        ("PUT /v1/skills", 405),
        ("PUT /v1/skills/litellm_skill_1", 405),
    ] {
        let (status, body) = raw(&relay.gateway, line).await;
        assert_eq!(status, expected, "{line}: {body}");
    }
    assert!(!relay.hub.asked.has_any(), "it was sent on");
}

/// With the gateway's token alone the registry would show what all of its clients have.
#[tokio::test]
async fn the_registry_is_told_whose_request_each_is() {
    let relay = Relay::start("the gateway's own").await;
    let base = relay.gateway.url.trim_end_matches("/v1");
    let mut clients = Vec::new();
    for (method, path) in [
        ("GET", "/api/skills/executions"),
        ("GET", "/api/skills/executions/a"),
        ("GET", "/api/skills"),
        ("GET", "/v1/skills"),
        ("GET", "/api/v1/skills"),
        ("DELETE", "/v1/skills/litellm_skill_1"),
    ] {
        for key in ["one", "two"] {
            let request = client().request(method.parse().unwrap(), format!("{base}{path}"));
            // Nobody says who somebody else is.
            let request = request.bearer_auth(key).header(HEADER_CLIENT, "of-the-client");
            assert_eq!(request.send().await.unwrap().status(), 200, "{method} {path}");
        }
        let asked = relay.hub.asked.take();
        let told = asked
            .iter()
            .map(|(_, headers, _)| headers[HEADER_CLIENT].to_str().unwrap().to_owned());
        clients.push(told.collect::<Vec<_>>());
    }
    assert!(clients.iter().all(|told| *told == clients[0]), "{clients:?}");
    let [one, two] = &clients[0][..] else {
        panic!("{clients:?}")
    };
    assert!(one != two && one.len() == 64 && two.len() == 64, "{one} {two}");
}

/// Another change comes first, and ends no wait.
#[tokio::test]
async fn an_upload_is_there_for_the_next_request_whatever_else_changes_meanwhile() {
    let relay = Relay::start("the gateway's own").await;
    let (gateway, hub) = (&relay.gateway, &relay.hub);
    until("the first text is served", async || {
        chat(gateway).await.contains("Say larches.")
    })
    .await;
    for attempt in 0.. {
        assert!(attempt < ATTEMPTS, "no upload is shown within {SHOWN_WITHIN:?}");
        let (id, word) = (format!("skill_knack_{attempt}"), format!("rowans-{attempt}"));
        let other = async {
            tokio::time::sleep(ON_THE_WAY / 3).await;
            hub.skill(&format!("elms-{attempt}"));
        };
        let body = format!("{id} {word}");
        let begun = Instant::now();
        let (answer, ()) = tokio::join!(ask(gateway, "POST", "/v1/skills", false, &body), other);
        let took = begun.elapsed();
        assert_eq!((answer.0, answer.2), (200, format!("{{\"id\":\"{id}\"}}")));
        let said = chat(gateway).await;
        if said.contains(&format!("Say {word}.")) && took < SHOWN_WITHIN {
            break;
        }
        assert!(took >= SHOWN_WITHIN, "the next request has it: {said}");
    }
}
