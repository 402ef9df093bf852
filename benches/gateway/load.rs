//! Many at once: requests per second at full load, and memory of streams that wait.

use std::time::{Duration, Instant};

use futures::StreamExt;
use http::header::CONTENT_TYPE;

use super::bodies::RequestBody;
use super::measure::anonymous_memory;
use super::pairs;
use super::processes::{Floor, Knack};
use super::report::{Budget, Measured, Report};
use super::statistics::measured;
use super::upstream::WAIT;
use super::wire::Wire;

/// Connections that send as fast as they are answered.
const CONNECTIONS: usize = 32;
/// Answered requests of one sample, for each request that a latency sample has.
const REQUESTS_EACH: usize = 5;
/// Requests per second are at least nine tenths of the floor's, as the floor's over Knack's.
const LOAD_LIMIT: f64 = 1.111;
/// Streams that wait at once.
const STREAMS: usize = 10_000;
/// Streams of one HTTP/2 connection: fewer than servers allow, and few enough connections for one peer.
const STREAMS_EACH: usize = 50;
/// Anonymous memory with all of them, MB.
const STREAMS_LIMIT_MB: f64 = 400.0;
/// How long all streams may take to begin.
const BEGUN_WITHIN: Duration = Duration::from_secs(40);

/// Requests per second of the floor over Knack's, at 32 connections.
pub(crate) async fn full_load(report: &mut Report, floor: &Floor, knack: &Knack, body: &RequestBody, suffix: &str) {
    let http = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    let name = format!("full_load_bare_to_knack_{}{suffix}", body.name);
    let budget = Budget {
        name: &name,
        limit: LOAD_LIMIT,
    };
    let sample = async || {
        let mut ratios = Vec::with_capacity(pairs());
        for _ in 0..pairs() {
            let by_floor = answered_per_second(&http, &floor.url, body).await;
            let by_knack = answered_per_second(&http, &knack.url, body).await;
            ratios.push(by_floor / by_knack);
        }
        [measured(ratios)]
    };
    report.steady([budget], sample).await;
}

async fn answered_per_second(http: &reqwest::Client, base: &str, body: &RequestBody) -> f64 {
    let (url, count) = (
        format!("{base}{}", body.wire.path(false)),
        body.requests * REQUESTS_EACH,
    );
    let begun = Instant::now();
    let answers = futures::stream::iter(0..count).map(|_| async {
        let post = http
            .post(&url)
            .bearer_auth("bench")
            .header(CONTENT_TYPE, "application/json");
        let answer = post.body(body.plain.clone()).send().await.expect("the server answers");
        assert!(answer.status().is_success(), "{base} answered {}", answer.status());
        answer.bytes().await.expect("a whole answer");
    });
    answers.buffer_unordered(CONNECTIONS).for_each(async |()| {}).await;
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Anonymous memory of the gateway with 10,000 streams whose provider has said one word and says no more. The clients are
/// a hundred connections of HTTP/2; the provider has a connection for each.
pub(crate) async fn idle_streams(report: &mut Report, knack: &Knack) {
    let text = Wire::Chat.request(
        &serde_json::json!({"model": "bench", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": WAIT}]}),
        true,
    );
    let (url, text) = (format!("{}{}", knack.url, Wire::Chat.path(true)), text.to_string());
    let clients: Vec<reqwest::Client> = (0..STREAMS / STREAMS_EACH)
        .map(|_| {
            let client = reqwest::Client::builder().http2_prior_knowledge();
            client.build().expect("a client")
        })
        .collect();
    let begin = |number: usize| {
        let post = clients[number % clients.len()].post(&url).bearer_auth("bench");
        let post = post.header(CONTENT_TYPE, "application/json").body(text.clone());
        async move {
            let mut stream = post.send().await.expect("the gateway answers").bytes_stream();
            stream.next().await.expect("a first event").expect("a readable event");
            stream
        }
    };
    let begun = Instant::now();
    let streams: Vec<_> = futures::stream::iter(0..STREAMS)
        .map(begin)
        .buffer_unordered(CONNECTIONS)
        .collect()
        .await;
    // A provider that says nothing for a minute is dead: all of them have to wait at one time.
    assert!(begun.elapsed() < BEGUN_WITHIN, "{:?} until all waited", begun.elapsed());
    assert_eq!(streams.len(), STREAMS, "every stream waits");
    let value = anonymous_memory(knack.pid) as f64 / 1e6;
    let budget = Budget {
        name: "anonymous_mb_10000_idle_streams",
        limit: STREAMS_LIMIT_MB,
    };
    report
        .steady([budget], async || [Measured { value, spread: 0.0 }])
        .await;
}
