//! Clients of a shared gateway show tokens, which a hub checks: what many unknown ones cost, and whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use knack_gateway::callers::client_auth::{ClientAccess, ClientAuth};
use knack_gateway::callers::tenants::Tenants;
use knack_gateway::catalog::remote::Blobs;
use knack_gateway::http_server::budget::BodyTimes;
use knack_hub_api::client::{Authorities, HubClient, HubClientSettings, Token};
use knack_hub_api::{ClientAuthorization, HubRefusal, RefusalCode};
use knack_memory::MemoryBudget;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::support::{Running, Start, start};
use super::tls::{self, Flaw};

/// How long the hub's decisions may be used that a test does not want to get old, and those that it does, seconds.
const FRESH_SECONDS: u64 = 600;
const SOON_OLD_SECONDS: u64 = 1;
/// Tokens that one address forges, 32 at once.
const FORGED: usize = 400;
/// The most of them, in rounds of so many.
const FORGED_MAX: usize = 20_000;

/// The gateway's memory for requests: a quarter of it is the part of one caller for large bodies, and half of it that of all.
const MEMORY_BYTES: usize = 256 << 20;
/// A body that two of fit into a caller's part, bytes.
const LARGE_BYTES: usize = 28 << 20;
/// Enough of a body for its announced length to count, bytes.
const BEGUN_BYTES: usize = 1 << 20;

/// Longest wait for a decision to get old, and for what must come.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the hub was asked, and whether it is there.
#[derive(Debug)]
struct Hub {
    /// How long its next decisions may be used, seconds.
    fresh_seconds: AtomicU64,
    asked: AtomicUsize,
    /// Questions that it did not answer.
    unanswered: AtomicUsize,
    is_away: AtomicBool,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            fresh_seconds: AtomicU64::new(FRESH_SECONDS),
            asked: AtomicUsize::default(),
            unanswered: AtomicUsize::default(),
            is_away: AtomicBool::default(),
        }
    }
}

impl Hub {
    /// Tokens that begin with `real` are those of clients.
    fn answer(&self, body: &[u8]) -> Vec<u8> {
        let json = "content-type: application/json\r\n";
        if self.is_away.load(Ordering::SeqCst) {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            let refusal = HubRefusal::new(RefusalCode::Unavailable, "away");
            return tls::answer("503 Service Unavailable", json, &serde_json::to_vec(&refusal).unwrap());
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let check: Value = serde_json::from_slice(body).unwrap();
        let token = check["token"].as_str().unwrap();
        let is_real = token.starts_with("real");
        let authorization = ClientAuthorization {
            allowed: is_real,
            client: is_real.then(|| format!("team/{token}/1")),
            sees_all: true,
            reason: (!is_real).then(|| "the token is not valid in this cluster".to_owned()),
            valid_seconds: self.fresh_seconds.load(Ordering::SeqCst),
        };
        tls::answer("200 OK", json, &serde_json::to_vec(&authorization).unwrap())
    }
}

/// A gateway that has its clients checked by a hub, in front of a registry that takes everything.
async fn shared(hub: &Arc<Hub>, memory: MemoryBudget) -> Running {
    let served = Arc::clone(hub);
    let server = tls::serve(Flaw::None, move |head, body| {
        if head.contains(" /api/v1/skills") {
            tls::answer("200 OK", "content-type: application/json\r\n", b"{}")
        } else {
            served.answer(body)
        }
    });
    let asks = HubClient::new(HubClientSettings {
        url: server.url,
        authorities: Authorities::Pem(server.authority),
        token: Token::Fixed("the gateway's".to_owned()),
        address: None,
    })
    .unwrap();
    let runtime = || "team/default".parse().unwrap();
    let tenants = Tenants::new(asks.clone(), runtime(), Blobs::new(MemoryBudget::new(1 << 20)));
    start(Start {
        on_cluster: true,
        registry: Some((asks.clone(), false)),
        auth: Some(ClientAccess::Tokens(ClientAuth::new(asks, runtime(), tenants))),
        memory,
        // Bodies that are begun hold their memory until a test drops them.
        times: BodyTimes {
            arrive: Duration::from_mins(5),
            silence: Duration::from_mins(5),
        },
        ..Start::default()
    })
    .await
}

/// The status of a small request with this token.
async fn status(client: &reqwest::Client, knack: &Running, token: &str) -> u16 {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    let request = client
        .post(format!("{}/v1/chat/completions", knack.url))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(chat.to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    assert_eq!(
        answer.headers().contains_key("retry-after"),
        matches!(status, 429 | 503),
        "{status}"
    );
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(status == 200, body["error"].is_null(), "{body}");
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forged_tokens_costs_its_sender_and_no_other_client() {
    let hub = Arc::new(Hub::default());
    let knack = shared(&hub, MemoryBudget::new(MEMORY_BYTES)).await;
    let at = |last: u8| {
        let address = std::net::Ipv4Addr::new(127, 0, 0, last);
        reqwest::Client::builder()
            .no_proxy()
            .local_address(Some(address.into()))
            .build()
            .unwrap()
    };

    // Twenty requests of a client that is new are one question.
    let known = at(2);
    let first: Vec<u16> = futures::stream::iter(0..20)
        .map(|_| status(&known, &knack, "real-known"))
        .buffer_unordered(20)
        .collect()
        .await;
    assert_eq!(first, [200; 20]);
    assert_eq!(hub.asked.swap(0, Ordering::SeqCst), 1);

    let (forger, begun) = (at(3), Instant::now());
    let mut refused: Vec<u16> = Vec::new();
    // A machine that stands still meanwhile sends as slowly as a new address may go on: it sends more of them.
    while !refused.contains(&429) && refused.len() < FORGED_MAX {
        let numbers = refused.len()..refused.len() + FORGED;
        let statuses = futures::stream::iter(numbers)
            .map(|number| {
                let (forger, knack) = (&forger, &knack);
                async move { status(forger, knack, &format!("forged-{number}")).await }
            })
            .buffer_unordered(32);
        refused.extend(statuses.collect::<Vec<u16>>().await);
    }
    // A burst of 50, and 10 a second.
    let allowed = 50 + begun.elapsed().as_millis() / 100 + 1;
    let asked = hub.asked.load(Ordering::SeqCst);
    assert!(asked as u128 <= allowed, "{asked} of {allowed}");
    assert_eq!(refused.iter().filter(|status| **status == 401).count(), asked);
    assert!(refused.iter().all(|status| matches!(status, 401 | 429)), "{refused:?}");
    assert!(refused.contains(&429), "the address has used up its part");
    hub.fresh_seconds.store(SOON_OLD_SECONDS, Ordering::SeqCst);
    let new = at(4);
    assert_eq!(
        status(&new, &knack, "real-new").await,
        200,
        "a new client of another address"
    );

    // The hub goes away, and the decision gets old: who was let in stays in, and nobody else comes in.
    hub.is_away.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while hub.unanswered.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the decision does not get old");
        assert_eq!(status(&new, &knack, "real-new").await, 200);
    }
    assert_eq!(status(&at(5), &knack, "real-unknown").await, 503);
}

/// Metrics name the skills of all clients' namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_read_no_metrics_on_their_port() {
    let knack = shared(&Arc::new(Hub::default()), MemoryBudget::new(MEMORY_BYTES)).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, token, expected) in [
        ("/healthz", None, 200),
        ("/readyz", None, 200),
        ("/metrics", None, 401),
        ("/metrics", Some("real-one"), 404),
    ] {
        let mut request = client.get(format!("{}{path}", knack.url));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), expected, "{path} {token:?}");
        assert!(
            !answer.text().await.unwrap().contains("knack_gateway_"),
            "{path} {token:?}"
        );
    }
    assert!(knack.mock.handle.requests().is_empty(), "nothing of it went upstream");
}

/// Keys of a provider may come beside the token, in a header or in the address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_has_one_share_of_the_registry_whatever_keys_it_sends_beside_its_token() {
    let knack = shared(&Arc::new(Hub::default()), MemoryBudget::new(MEMORY_BYTES)).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |account: &str, key: usize| {
        let request = client.post(format!("{}/api/v1/skills?key={key}", knack.url));
        let request = request.header("x-knack-token", account).bearer_auth(key);
        request.send().await.unwrap().status().as_u16()
    };
    let all = futures::future::join_all((0..20).map(|key| send("real-one", key))).await;
    assert!(all.iter().all(|status| matches!(status, 200 | 429)), "{all:?}");
    assert!(all.contains(&200) && all.contains(&429), "{all:?}");
    assert_eq!(send("real-two", 0).await, 200, "another account has its own");
}

/// Begins a large request and does not end it: its connection, once it has its memory.
async fn begin(knack: &Running, memory: &MemoryBudget, (path, token): (&str, &str)) -> TcpStream {
    let held = memory.held_bytes();
    let address = knack.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-knack-token: {token}\r\ncontent-length: {LARGE_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; BEGUN_BYTES]).await.unwrap();
    until(|| memory.held_bytes() >= held + LARGE_BYTES, "the body is taken").await;
    stream
}

async fn until(is_so: impl Fn() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Sends a large request whole; the status of its answer.
async fn send_large(knack: &Running, client: &reqwest::Client, (path, token): (&str, &str)) -> u16 {
    let request = client
        .post(format!("{}{path}", knack.url))
        .header("x-knack-token", token);
    request
        .body(vec![b' '; LARGE_BYTES])
        .send()
        .await
        .unwrap()
        .status()
        .as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_of_forged_tokens_take_no_memory_and_those_of_one_account_its_part() {
    let memory = MemoryBudget::new(MEMORY_BYTES);
    let knack = shared(&Arc::new(Hub::default()), memory.clone()).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let before = memory.held_bytes();
    let mut most = before;
    for number in 0..4 {
        let token = format!("forged-{number}");
        let sent = send_large(&knack, &client, ("/v1/chat/completions", &token));
        tokio::pin!(sent);
        let status = loop {
            tokio::select! {
                status = &mut sent => break status,
                () = tokio::time::sleep(Duration::from_millis(1)) => most = most.max(memory.held_bytes()),
            }
        };
        assert_eq!(status, 401);
    }
    assert!(most < before + LARGE_BYTES, "refused before the body is read: {most}");
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let keyed = |key: usize| format!("{path}?key={key}");
        let held = [
            begin(&knack, &memory, (&keyed(0), "real-one")).await,
            begin(&knack, &memory, (&keyed(1), "real-one")).await,
        ];
        let third = send_large(&knack, &client, (&keyed(2), "real-one")).await;
        assert_eq!(third, 503, "{path}: one account has one part, whatever keys it sends");
        let other = begin(&knack, &memory, (path, "real-two")).await;
        drop((held, other));
        until(|| memory.held_bytes() <= before, "the memory is given back").await;
    }
}
