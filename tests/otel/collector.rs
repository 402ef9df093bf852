//! A small OTLP/HTTP receiver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use http::HeaderMap;
use knack_skill::tree::hex;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message as _;

/// Exports as they came.
type Got = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A trace that a client began, and its header.
pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The one span of a name that ended so.
pub(crate) fn only<'t>(told: &'t [ReceivedSpan], name: &str, error: Option<&str>) -> &'t ReceivedSpan {
    let found: Vec<&ReceivedSpan> = told
        .iter()
        .filter(|span| span.name == name && span.get("error.type") == error)
        .collect();
    let [one] = found[..] else {
        let names: Vec<&str> = told.iter().map(|span| span.name.as_str()).collect();
        panic!("{name}: {found:?} of {names:?}");
    };
    one
}

/// A running collector.
pub(crate) struct Collector {
    pub(crate) url: String,
    got: Got,
}

/// A span as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) parent: String,
    pub(crate) kind: &'static str,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) failed: bool,
    attributes: BTreeMap<String, String>,
}

impl ReceivedSpan {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

async fn take(State(got): State<Got>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    got.lock().unwrap().push((headers, body));
    ExportTraceServiceResponse::default().encode_to_vec()
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::start_at(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn start_at(listener: tokio::net::TcpListener) -> Self {
        let got = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(Arc::clone(&got));
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, got }
    }

    /// Exports so far.
    pub(crate) fn requests(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    fn decoded(&self) -> Vec<ExportTraceServiceRequest> {
        let got = self.got.lock().unwrap();
        let decode = |(headers, body): &(HeaderMap, Bytes)| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            ExportTraceServiceRequest::decode(body.clone()).unwrap()
        };
        got.iter().map(decode).collect()
    }

    /// All spans.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        let exports = self.decoded();
        let scopes = exports
            .iter()
            .flat_map(|export| &export.resource_spans)
            .flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| &scope.spans).map(told).collect()
    }

    /// The resource of the first export.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        let exports = self.decoded();
        attributes(&exports[0].resource_spans[0].resource.as_ref().unwrap().attributes)
    }

    pub(crate) fn all_had_header(&self, name: &str, value: &str) -> bool {
        let got = self.got.lock().unwrap();
        !got.is_empty()
            && got
                .iter()
                .all(|(headers, _)| headers.get(name).is_some_and(|is| is == value))
    }

    /// Whether a text is anywhere in the received data.
    pub(crate) fn raw_contains(&self, text: &str) -> bool {
        let got = self.got.lock().unwrap();
        got.iter()
            .any(|(_, body)| body.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}

fn told(span: &Span) -> ReceivedSpan {
    ReceivedSpan {
        name: span.name.clone(),
        trace: hex(&span.trace_id),
        span: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: match span.kind() {
            SpanKind::Server => "server",
            SpanKind::Client => "client",
            SpanKind::Internal => "internal",
            _ => "other",
        },
        begun: span.start_time_unix_nano,
        ended: span.end_time_unix_nano,
        failed: span
            .status
            .as_ref()
            .is_some_and(|status| status.code() == StatusCode::Error),
        attributes: attributes(&span.attributes),
    }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    list.iter()
        .map(|pair| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default()))
        .collect()
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::ArrayValue(array)) => {
            let texts: Vec<String> = array.values.iter().map(text).collect();
            format!("[{}]", texts.join(", "))
        }
        other => panic!("{other:?}"),
    }
}
