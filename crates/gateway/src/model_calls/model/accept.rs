//! Taking a request in: its body, its recording, and what of Knack it names.

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use knack_wire::history::Caller;
use knack_wire::{Fault, ModelRoute};

use crate::callers::caller;
use crate::files::user_files::named::{self, NamedFiles};
use crate::http_server::budget::HeldBody;
use crate::http_server::fault::body_fault;
use crate::model_calls::call::ModelCall;
use crate::model_calls::compressed;
use crate::model_calls::turn_store::KeyedHash;
use crate::telemetry::body_files::Recording;

/// A request that was taken in.
pub(super) struct Accepted {
    /// Its body and the body's share of the budget.
    pub(super) held: HeldBody,
    /// The body as it was received, if that was compressed and nothing in it was replaced.
    pub(super) received: Option<Bytes>,
    /// Its recording, which has its body.
    pub(super) recording: Option<Recording>,
    /// The files and the container of Knack that it names.
    pub(super) named: NamedFiles,
    /// The caller against whose limits its memory counts.
    pub(super) counted: KeyedHash,
}

/// Takes a request in, its body within the budget.
pub(super) async fn accept(
    call: &ModelCall,
    caller: &Caller,
    route: &ModelRoute,
    parts: &Parts,
    body: Body,
) -> Result<Accepted, Fault> {
    let gateway = &call.gateway;
    let counted = caller::counted_beside(caller, &gateway.secret.current(), parts).bucket();
    let held = gateway.requests.read(&counted, &parts.headers, body).await;
    let held = held.map_err(body_fault)?;
    let (mut held, received) = compressed::decode(held, &parts.headers).await?;
    let decoded = held.bytes.as_ptr().addr();
    let recording = recording(call, &held.bytes);
    let address = caller::unchecked_address(parts);
    let named = named::resolve(gateway, caller, counted, address, route, &mut held.bytes).await?;
    // The received bytes are used only while the body was not changed.
    let received = received.filter(|_| held.bytes.as_ptr().addr() == decoded);
    Ok(Accepted {
        held,
        received,
        recording,
        named,
        counted,
    })
}

/// The recording of a request, started with its body.
fn recording(call: &ModelCall, body: &Bytes) -> Option<Recording> {
    let recording = call.gateway.recorder.as_ref()?.request(&call.log.request_id);
    recording.write("request.json", body.clone());
    Some(recording)
}
