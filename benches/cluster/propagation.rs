//! A Skill applied, until it is in what every gateway sends to its provider.
//!
//! Every gateway is asked all the time, as applications would. The provider is in this process and looks for the mark of
//! the newest change in the requests that come out of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::{Json, Router, routing};
use knack_api::Skill;
use kube::Api;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::Bench;
use crate::installation::{TENANT, UPSTREAM_PORT, apply};
use crate::report::{Budget, Measured, Report};
use crate::statistics::{median_and_spread, of_sorted};

/// Gateways.
const GATEWAYS: usize = 3;
/// Changes measured: p99 of 100 is the second worst.
const CHANGES: usize = 100;
/// Changes of a batch, which show the spread.
const BATCH: usize = 20;
/// Between two requests to one gateway.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// Between two changes.
const APART: Duration = Duration::from_millis(100);
/// How long a change may take at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Before the number of a change, in the skill's body.
const MARK: &str = "change-number-";

/// When each gateway's requests first had a change, by gateway: the newest change and its time.
type Arrived = watch::Sender<HashMap<String, (usize, Instant)>>;

/// The row.
pub(crate) async fn to_every_gateway(bench: &mut Bench) {
    let Bench {
        installation, report, ..
    } = bench;
    installation.configure(json!({"warmPool": {"replicas": 0}})).await;
    let arrived: Arc<Arrived> = Arc::new(watch::Sender::default());
    let provider = AbortOnDropHandle::new(tokio::spawn(provide(Arc::clone(&arrived))));
    let addresses = installation.gateways(GATEWAYS).await;
    let askers: Vec<_> = addresses
        .into_iter()
        .map(|address| AbortOnDropHandle::new(tokio::spawn(ask(address))))
        .collect();
    let skills: Api<Skill> = Api::namespaced(installation.client.clone(), TENANT);
    let next = Mutex::new(0..);
    let change = async || -> f64 {
        let number = next.lock().expect("nobody panics with it").next().expect("no end");
        let begun = Instant::now();
        apply(
            &skills,
            "moving",
            "knack.dev/v1alpha1",
            "Skill",
            json!({"spec": moving(number)}),
        )
        .await;
        let everywhere = |arrived: &HashMap<String, (usize, Instant)>| {
            arrived.len() == GATEWAYS && arrived.values().all(|(newest, _)| *newest == number)
        };
        let mut seen = arrived.subscribe();
        let last = tokio::time::timeout(PATIENCE, seen.wait_for(everywhere)).await;
        let everyone = last.expect("a change arrives").expect("the provider lives");
        let last = everyone.values().map(|(_, at)| *at).max().expect("gateways");
        last.duration_since(begun).as_secs_f64() * 1e3
    };
    // The first ones wait for connections.
    for _ in 0..3 {
        change().await;
    }
    let budget = Budget {
        name: "skill_in_every_gateway_p99_ms",
        limit: 500.0,
    };
    let sample = async || {
        let mut times = Vec::with_capacity(CHANGES);
        for _ in 0..CHANGES {
            tokio::time::sleep(APART).await;
            times.push(change().await);
        }
        let (_, spread) = median_and_spread(
            times
                .chunks(BATCH)
                .map(|batch| median_and_spread(batch.to_vec()).0)
                .collect(),
        );
        times.sort_by(f64::total_cmp);
        let at = |percent| of_sorted(&times, percent);
        Report::note(&format!(
            "  {GATEWAYS} gateways, {CHANGES} changes: p50 {:.0}, p90 {:.0} ms",
            at(50),
            at(90)
        ));
        [Measured { value: at(99), spread }]
    };
    report.steady([budget], sample).await;
    drop((askers, provider));
    installation.gateways(0).await;
}

/// Always on, so that every request has its body.
fn moving(number: usize) -> Value {
    let text = format!("---\nname: moving\ndescription: Changes all the time.\n---\n{MARK}{number}.\n");
    json!({"activation": {"mode": "Always"}, "source": {"inline": {"files": {"SKILL.md": text}}}})
}

/// Asks a gateway without end.
async fn ask(address: String) {
    let http = reqwest::Client::builder()
        .tcp_nodelay(true)
        .no_proxy()
        .build()
        .expect("a client");
    let body = json!({"model": address, "max_tokens": 1000, "messages": [{"role": "user", "content": "Hello."}]});
    loop {
        let sent = http
            .post(format!("http://{address}:8080/v1/chat/completions"))
            .bearer_auth("bench")
            .json_body(&body)
            .send()
            .await;
        if let Ok(response) = sent {
            // Its connection serves the next one.
            drop(response.bytes().await);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// `reqwest` is built without its own JSON.
trait JsonBody {
    fn json_body(self, body: &Value) -> Self;
}

impl JsonBody for reqwest::RequestBuilder {
    fn json_body(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }
}

/// The provider: answers at once and remembers who sent which change first.
async fn provide(arrived: Arc<Arrived>) {
    let app = Router::new().fallback(routing::any(answer)).with_state(arrived);
    let listener = TcpListener::bind(("0.0.0.0", UPSTREAM_PORT))
        .await
        .expect("a free port");
    axum::serve(listener, app).await.expect("the provider serves");
}

async fn answer(State(arrived): State<Arc<Arrived>>, body: Bytes) -> Json<Value> {
    let now = Instant::now();
    if let Some((gateway, number)) = read(&body) {
        arrived.send_if_modified(|arrived| {
            let is_new = arrived.get(&gateway).is_none_or(|(newest, _)| *newest < number);
            if is_new {
                arrived.insert(gateway, (number, now));
            }
            is_new
        });
    }
    Json(json!({
        "id": "chatcmpl-bench", "object": "chat.completion", "created": 1_763_760_000, "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }))
}

/// The gateway's name and the change in a request; none if it came without the skill.
fn read(body: &[u8]) -> Option<(String, usize)> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let text = request["messages"].to_string();
    let begin = text.find(MARK)? + MARK.len();
    let digits = text[begin..].split('.').next()?;
    Some((request["model"].as_str()?.to_owned(), digits.parse().ok()?))
}
