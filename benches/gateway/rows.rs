//! What is measured: CPU per request, added latency, first streamed byte, memory.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;

use super::bodies::RequestBody;
use super::measure::{anonymous_memory, cpu_times, median};
use super::pairs;
use super::processes::{Floor, Knack};
use super::report::{Budget, Measured, Report};
use super::statistics::{measured, median_and_spread};
use super::upstream::Upstream;
use super::wire::Wire;

/// CPU and added latency may be a tenth above the floor's.
const RATIO_LIMIT: f64 = 1.10;
/// First streamed byte, milliseconds after the floor's.
const FIRST_BYTE_LIMIT_MS: f64 = 0.5;
/// Anonymous memory after the load, MB.
const MEMORY_LIMIT_MB: f64 = 20.0;
/// Requests before memory is read.
const MEMORY_REQUESTS: usize = 50_000;

/// How often CPU time is measured before the bench gives up.
const CPU_TRIES: usize = 5;

struct Client {
    http: reqwest::Client,
}

impl Client {
    fn new() -> Self {
        let http = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
        Self { http }
    }

    async fn post(&self, base: &str, path: &str, body: Bytes) -> reqwest::Response {
        let sent = self
            .http
            .post(format!("{base}{path}"))
            .bearer_auth("bench")
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await;
        let response = sent.expect("the server answers");
        assert!(response.status().is_success(), "{base} answered {}", response.status());
        response
    }

    /// Median time of whole requests.
    async fn latency(&self, base: &str, body: &RequestBody) -> Duration {
        let (path, count) = (body.wire.path(false), body.requests);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            self.post(base, path, body.plain.clone())
                .await
                .bytes()
                .await
                .expect("a whole answer");
            times.push(begun.elapsed());
        }
        median(times)
    }

    /// Median time to the first body byte of a stream.
    async fn first_byte(&self, base: &str, body: &RequestBody, count: usize) -> Duration {
        let path = body.wire.path(true);
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            let mut stream = self.post(base, path, body.streamed.clone()).await.bytes_stream();
            stream.next().await.expect("a first event").expect("a readable event");
            times.push(begun.elapsed());
            while stream.next().await.is_some() {}
        }
        median(times)
    }
}

/// CPU time per request and latency added over no proxy at all, both as ratios to the floor's.
pub(crate) async fn request_cost(
    report: &mut Report,
    upstream: &Upstream,
    floor: &Floor,
    knack: &Knack,
    body: &RequestBody,
    suffix: &str,
) {
    let client = Client::new();
    for base in [&floor.url, &knack.url, &upstream.url] {
        client.latency(base, body).await;
    }
    let cpu = format!("gateway_cpu_ratio_{}{suffix}", body.name);
    let sample = async || {
        let mut ratios = Vec::with_capacity(pairs());
        for _ in 0..pairs() {
            let floor_cost = cpu_of(&client, floor.pid, &floor.url, body).await;
            let knack_cost = cpu_of(&client, knack.pid, &knack.url, body).await;
            ratios.push(knack_cost / floor_cost);
        }
        [measured(ratios)]
    };
    report.steady([ratio(&cpu)], sample).await;
    let added = format!("gateway_added_p50_ratio_{}{suffix}", body.name);
    let sample = async || {
        let mut ratios = Vec::with_capacity(pairs());
        for _ in 0..pairs() {
            let direct = client.latency(&upstream.url, body).await;
            let by_floor = client.latency(&floor.url, body).await;
            let by_knack = client.latency(&knack.url, body).await;
            let added = |with: Duration| with.saturating_sub(direct).as_secs_f64().max(1e-6);
            ratios.push(added(by_knack) / added(by_floor));
        }
        [measured(ratios)]
    };
    report.steady([ratio(&added)], sample).await;
}

/// CPU seconds per request. What a thread has used is gone with it, as the threads for files are 10 s after their last one: then it is
/// measured again.
async fn cpu_of(client: &Client, pid: u32, base: &str, body: &RequestBody) -> f64 {
    for _ in 0..CPU_TRIES {
        let before = cpu_times(pid);
        client.latency(base, body).await;
        let after = cpu_times(pid);
        if before.keys().all(|thread| after.contains_key(thread)) {
            let used: u64 = after.values().sum::<u64>() - before.values().sum::<u64>();
            return Duration::from_nanos(used).as_secs_f64() / body.requests as f64;
        }
    }
    panic!("threads of the server ended at each of {CPU_TRIES} measurements");
}

/// First streamed byte: milliseconds later than through the floor.
pub(crate) async fn first_byte(report: &mut Report, floor: &Floor, knack: &Knack, body: &RequestBody, suffix: &str) {
    let client = Client::new();
    let count = body.requests.min(100);
    let name = format!("first_byte_later_ms_{}{suffix}", body.name);
    let mut floor_ms = 0.0;
    let budget = Budget {
        name: &name,
        limit: FIRST_BYTE_LIMIT_MS,
    };
    let sample = async || {
        let mut differences = Vec::with_capacity(pairs());
        let mut floors = Vec::with_capacity(pairs());
        for _ in 0..pairs() {
            let by_floor = client.first_byte(&floor.url, body, count).await.as_secs_f64() * 1e3;
            let by_knack = client.first_byte(&knack.url, body, count).await.as_secs_f64() * 1e3;
            differences.push(by_knack - by_floor);
            floors.push(by_floor);
        }
        // The spread that matters is that of the floor: a difference near zero has no relative spread.
        let ((value, _), (floor_median, spread)) = (median_and_spread(differences), median_and_spread(floors));
        floor_ms = floor_median;
        [Measured { value, spread }]
    };
    report.steady([budget], sample).await;
    Report::note(&format!("  floor's first byte: {floor_ms:.3} ms"));
}

fn ratio(name: &str) -> Budget<'_> {
    Budget {
        name,
        limit: RATIO_LIMIT,
    }
}

/// Anonymous memory of the gateway after 50,000 requests of 2 KB, eight at a time.
pub(crate) async fn memory(report: &mut Report, knack: &Knack, suffix: &str) {
    let client = Client::new();
    let (body, path) = (super::bodies::small(Wire::Chat).plain, Wire::Chat.path(false));
    let requests = futures::stream::iter(0..MEMORY_REQUESTS)
        .map(|_| async { client.post(&knack.url, path, body.clone()).await.bytes().await.is_ok() })
        .buffer_unordered(8);
    let answered = requests.filter(|ok| std::future::ready(*ok)).count().await;
    assert_eq!(answered, MEMORY_REQUESTS, "every request is answered");
    let value = anonymous_memory(knack.pid) as f64 / 1e6;
    let name = format!("gateway_anonymous_mb{suffix}");
    let budget = Budget {
        name: &name,
        limit: MEMORY_LIMIT_MB,
    };
    report
        .steady([budget], async || [Measured { value, spread: 0.0 }])
        .await;
}
