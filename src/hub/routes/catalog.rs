//! `GET /v1/catalog`: an index, then changes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, header};
use knack_hub_api::{
    CatalogLine, HEADER_PROTOCOL, HubRefusal, NDJSON, PROTOCOL_MIN, PROTOCOLS, RefusalCode, RuntimeName,
};
use knack_skill::model::SkillRef;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::stream_reader::StreamReader;
use super::{HubState, RefusalResponse, RuntimeQuery, Stop, granted};
use crate::account_auth::ServiceAccountCaller;
use crate::hub::catalog_view::{self, CatalogView};
use crate::hub::start::starting;

/// A line at least this often, so that a dead connection is known as one.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Changes within this time are sent together: one apply is several events (spec, status, artifact).
const SETTLE_FIRST: Duration = Duration::from_millis(10);
/// The pause while changes keep coming, as when thousands of Skills are applied: four checks a second.
const SETTLE_MAX: Duration = Duration::from_millis(250);
/// Without changes for this long they count as single ones again.
const QUIET: Duration = Duration::from_secs(1);
/// How long a request waits for a hub that has just started.
const START_WAIT: Duration = Duration::from_secs(5);

/// The route.
pub(super) async fn catalog(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    Extension(Stop(stop)): Extension<Stop>,
    query: Query<RuntimeQuery>,
    headers: HeaderMap,
) -> Result<Response, RefusalResponse> {
    if tokio::time::timeout(START_WAIT, state.start.over()).await.is_err() {
        return Err(RefusalResponse::new("catalog", starting()));
    }
    let mut changes = state.shared.changes();
    let granted = granted(&state, &caller, &query, "catalog").await?;
    // Before the number: the view of that number contains everything observed by now.
    let seen = state.shared.newest_version();
    let version = *changes.borrow_and_update();
    let view = state.views.get(version, &granted.name, granted.sees.as_deref());
    let view = view.ok_or_else(|| RefusalResponse::new("catalog", gone(&granted.name)))?;
    state
        .metrics
        .skill_uses
        .serve(&granted.name.to_string(), names(view.skills.keys()));
    let mut queue = VecDeque::new();
    let watched = crate::cluster_reader::watch::namespaces(&state.settings.watching());
    queue.extend(catalog_view::index(
        &view,
        &seen,
        protocol_with(&headers),
        caller.acting_for.as_deref(),
        watched,
    ));
    let gauge = state.metrics.streams.clone();
    gauge.inc();
    let stream = CatalogStream {
        reader: StreamReader::new(state, caller, granted),
        changes,
        view,
        queue,
        watch: query.watch,
        pace: Pace::starting(Instant::now()),
        stop,
        _open: OpenStream(gauge),
    };
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        let line = stream.next().await?;
        Some((Ok::<_, Infallible>(line), stream))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

/// The protocol to speak with the sender of these headers. Gateways of protocol 1 did not say which one they speak.
fn protocol_with(headers: &HeaderMap) -> u32 {
    let stated = headers
        .get(HEADER_PROTOCOL)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    PROTOCOLS.with(stated.unwrap_or(PROTOCOL_MIN))
}

/// Skills as reports of their uses name them.
fn names<'a>(skills: impl Iterator<Item = &'a Arc<SkillRef>>) -> impl Iterator<Item = String> {
    skills.map(ToString::to_string)
}

fn gone(name: &RuntimeName) -> HubRefusal {
    let text = format!("SkillRuntime {name} was deleted; apply it again, or name another");
    HubRefusal::new(RefusalCode::NotFound, text)
}

struct CatalogStream {
    reader: StreamReader,
    changes: watch::Receiver<u64>,
    /// The state of the reader once the queue is sent.
    view: Arc<CatalogView>,
    queue: VecDeque<CatalogLine>,
    watch: bool,
    pace: Pace,
    stop: CancellationToken,
    _open: OpenStream,
}

/// How long a stream waits for further changes after one: longer while they keep coming. And when its next line must be sent.
#[derive(Debug)]
struct Pace {
    settle: Duration,
    last_check: Option<Instant>,
    /// A time, not a pause: changes of which this reader sees none must not put it off.
    ping_at: Instant,
}

impl Pace {
    fn starting(now: Instant) -> Self {
        Self {
            settle: SETTLE_FIRST,
            last_check: None,
            ping_at: now + PING_EVERY,
        }
    }

    /// Lines are sent at `now`.
    fn sent(&mut self, now: Instant) {
        self.ping_at = now + PING_EVERY;
    }

    /// The wait after a change that came at `now`.
    fn next(&mut self, now: Instant) -> Duration {
        let is_busy = self.last_check.is_some_and(|last| now.duration_since(last) < QUIET);
        self.settle = if is_busy {
            (self.settle * 2).min(SETTLE_MAX)
        } else {
            SETTLE_FIRST
        };
        self.last_check = Some(now + self.settle);
        self.settle
    }
}

/// Counts an open stream.
struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Lines sent in one piece: enough that ten thousand skills are a few hundred writes, few enough to be no buffer.
const LINES_AT_ONCE: usize = 64;

impl CatalogStream {
    /// The next bytes; `None` ends the stream. They are made when the reader asks for them, so a reader that stops
    /// holds one view, which others share.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.queue.is_empty() {
                self.pace.sent(Instant::now());
                return Some(self.take());
            }
            if !self.watch {
                return None;
            }
            tokio::select! {
                () = self.stop.cancelled() => return None,
                changed = self.changes.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                    tokio::time::sleep(self.pace.next(Instant::now())).await;
                    self.queue_changes()?;
                }
                // Another view is another stream.
                () = tokio::time::sleep_until(self.reader.check_at) => {
                    self.reader.check(|was, is| was.sees == is.sees).await?;
                }
                () = tokio::time::sleep_until(self.pace.ping_at) => self.queue.push_back(CatalogLine::Ping),
            }
        }
    }

    fn take(&mut self) -> Bytes {
        let mut bytes = Vec::new();
        for line in self.queue.drain(..self.queue.len().min(LINES_AT_ONCE)) {
            if serde_json::to_writer(&mut bytes, &line).is_ok() {
                bytes.push(b'\n');
            }
        }
        bytes.into()
    }

    /// Queues what differs in the newest view. `None`: the runtime is gone.
    fn queue_changes(&mut self) -> Option<()> {
        let seen = self.reader.state.shared.newest_version();
        let version = *self.changes.borrow_and_update();
        let StreamReader { state, granted, .. } = &self.reader;
        let view = state.views.get(version, &granted.name, granted.sees.as_deref())?;
        let new = view
            .skills
            .keys()
            .filter(|skill| !self.view.skills.contains_key(*skill));
        state.metrics.skill_uses.serve(&granted.name.to_string(), names(new));
        self.queue.extend(catalog_view::changes(&self.view, &view, &seen));
        self.view = view;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_change_is_sent_at_once_and_a_storm_four_times_a_second() {
        let start = Instant::now();
        let mut pace = Pace::starting(start);
        assert_eq!(pace.next(start), SETTLE_FIRST);
        let mut now = start;
        let mut checks = 0;
        while now < start + Duration::from_secs(10) {
            now += pace.next(now) + Duration::from_millis(1);
            checks += 1;
        }
        assert!(checks < 50, "{checks}");
        assert_eq!(pace.next(now), SETTLE_MAX);
        assert_eq!(pace.next(now + Duration::from_secs(5)), SETTLE_FIRST);
    }

    #[test]
    fn changes_that_a_reader_does_not_see_put_no_ping_off() {
        let start = Instant::now();
        let mut pace = Pace::starting(start);
        let mut now = start;
        while now < start + PING_EVERY {
            now += pace.next(now);
        }
        assert_eq!(pace.ping_at, start + PING_EVERY);
        pace.sent(now);
        assert_eq!(pace.ping_at, now + PING_EVERY);
    }
}
