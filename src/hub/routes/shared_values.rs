//! `/v1/kept`: what the replicas of a gateway keep for each other, at the replica that owns the runtime.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{HeaderMap, StatusCode, header};
use knack_execution::ExecutionError;
use knack_execution::lines::refusal_of_error;
use knack_hub_api::{
    HubRefusal, KEPT_MAX_BYTES, KeptHello, KeptKey, KeptLine, KeptValue, NDJSON, RefusalCode, read_keys,
};
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::stream_reader::StreamReader;
use super::{HubState, RefusalResponse, RuntimeQuery, Stop, granted, nobody};
use crate::account_auth::ServiceAccountCaller;
use crate::hub::access::GrantedCaller;
use crate::hub::shared_values::ValueOwner;
use crate::jobs::JobExecutor;

/// A line at least this often, so that a dead connection is known as one.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Lines of the first list sent in one piece: a few KiB, so that a long list is no large buffer.
const LINES_AT_ONCE: usize = 32;

/// The parts of a write besides its path.
#[derive(Debug, Deserialize)]
pub(super) struct WriteQuery {
    #[serde(default)]
    opening: Option<KeptKey>,
}

/// `PUT /v1/kept/{client}/{keys}`.
pub(super) async fn write(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Query(written): Query<WriteQuery>,
    Path(path): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, RefusalResponse> {
    let (.., owner) = here(&state, &caller, &query).await?;
    let (client, keys) = read_path(&path)?;
    let held = state
        .bodies
        .read_within("a value", KEPT_MAX_BYTES, &caller.key(), &headers, body)
        .await
        .map_err(refused)?;
    let value = KeptValue {
        client,
        keys,
        opening: written.opening,
        bytes: held.bytes.len() as u64,
    };
    // A grown buffer may be larger than its content; the store counts the content.
    let sealed = Bytes::copy_from_slice(&held.bytes);
    let kept = state.kept.put(&owner, value, sealed);
    kept.map_err(|error| refused(HubRefusal::new(RefusalCode::Unavailable, error.to_string()).retry_after(1)))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/kept/{client}/{key}`. Another account's value is as unknown as one that never was.
pub(super) async fn read(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    query: Query<RuntimeQuery>,
    Path(path): Path<(String, String)>,
) -> Result<Response, RefusalResponse> {
    let (.., owner) = here(&state, &caller, &query).await?;
    let (client, keys) = read_path(&path)?;
    let found = keys.iter().find_map(|key| state.kept.get(&owner, &client, key));
    let sealed = found.ok_or_else(|| {
        refused(HubRefusal::new(
            RefusalCode::NotFound,
            "no value is stored under this key",
        ))
    })?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], sealed).into_response())
}

/// `GET /v1/kept`.
pub(super) async fn follow(
    State(state): State<Arc<HubState>>,
    Extension(caller): Extension<ServiceAccountCaller>,
    Extension(Stop(stop)): Extension<Stop>,
    query: Query<RuntimeQuery>,
) -> Result<Response, RefusalResponse> {
    let (executor, granted, owner) = here(&state, &caller, &query).await?;
    let (there, stream) = state.kept.follow(&owner);
    let hello = KeptLine::Hello(KeptHello {
        secret: state.kept_secrets.of(&owner),
    });
    let there: Vec<Arc<KeptValue>> = there;
    let chunks = (0..there.len().div_ceil(LINES_AT_ONCE)).map(move |chunk| {
        let from = chunk * LINES_AT_ONCE;
        let to = (from + LINES_AT_ONCE).min(there.len());
        let lines = there[from..to].iter().map(|value| KeptLine::Kept((**value).clone()));
        lines.map(|line| to_bytes(&line)).collect::<Vec<_>>().concat().into()
    });
    let first = futures::stream::iter(std::iter::once(to_bytes(&hello).into()).chain(chunks));
    let synced = futures::stream::iter([Bytes::from(to_bytes(&KeptLine::Synced))]);
    let news: BoxStream<'static, Bytes> = futures::stream::unfold(
        KeptStream {
            reader: StreamReader::new(state, caller, granted),
            executor,
            values: stream,
            stop,
        },
        |mut stream| async move {
            let line = stream.next().await?;
            Some((to_bytes(&line).into(), stream))
        },
    )
    .boxed();
    let lines = first.chain(synced).chain(news).map(Ok::<Bytes, Infallible>);
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(lines)).into_response())
}

/// The rest of a stream, after the first list.
struct KeptStream {
    reader: StreamReader,
    executor: Arc<JobExecutor>,
    values: broadcast::Receiver<Arc<KeptValue>>,
    stop: CancellationToken,
}

impl KeptStream {
    /// The next line; `None` ends the stream: its reader fell behind, has lost its right, or is better served elsewhere.
    async fn next(&mut self) -> Option<KeptLine> {
        let ping_at = Instant::now() + PING_EVERY;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = self.executor.wait_until_not_owner() => return None,
                value = self.values.recv() => return value.ok().map(|value| KeptLine::Kept((*value).clone())),
                () = tokio::time::sleep_until(self.reader.check_at) => self.reader.check(|_, _| true).await?,
                () = tokio::time::sleep_until(ping_at) => return Some(KeptLine::Ping),
            }
        }
    }
}

/// The owner of a caller, if this replica owns the runtime; otherwise the owner's address. Requests never wait for an
/// owner: a gateway continues without the value.
async fn here(
    state: &HubState,
    caller: &ServiceAccountCaller,
    query: &Query<RuntimeQuery>,
) -> Result<(Arc<JobExecutor>, GrantedCaller, ValueOwner), RefusalResponse> {
    let granted = granted(state, caller, query, "kept").await?;
    let nobody = || refused(nobody(&granted.name));
    let executor = state.executors.get(&granted.name).ok_or_else(nobody)?;
    if !executor.is_owner() {
        return Err(match executor.other_owner() {
            Some(owner) => refused(refusal_of_error(&ExecutionError::NotOwner { owner: Some(owner) })),
            None => nobody(),
        });
    }
    let owner = ValueOwner {
        account: caller.key(),
        runtime: granted.name.clone(),
    };
    Ok((executor, granted, owner))
}

fn read_path((client, keys): &(String, String)) -> Result<(KeptKey, Vec<KeptKey>), RefusalResponse> {
    let read = client
        .parse::<KeptKey>()
        .and_then(|client| Ok((client, read_keys(keys)?)));
    read.map_err(|error| refused(HubRefusal::new(RefusalCode::Invalid, error.to_string())))
}

fn refused(refusal: HubRefusal) -> RefusalResponse {
    RefusalResponse::new("kept", refusal)
}

fn to_bytes(line: &KeptLine) -> Vec<u8> {
    // A line is plain data: writing it cannot fail.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
