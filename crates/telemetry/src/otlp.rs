//! Exports spans to an OpenTelemetry collector: OTLP over HTTP with protobuf bodies, in batches, on a separate thread.
//!
//! The SDK's batch processor bounds what waits (2,048 spans, `OTEL_BSP_MAX_QUEUE_SIZE`) and drops what comes beyond it, so
//! that a collector that is away costs nothing but spans. Its requests go through the one HTTP client of this program, so
//! that no second TLS stack comes in. A collector that takes no spans is logged when that begins and when it ends; the SDK's own
//! lines for each export are left out (`log`).

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use knack_trust::Roots;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, Context, InstrumentationScope, KeyValue, StringValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Config, IdGenerator, SamplingDecision, ShouldSample, SpanData, SpanEvents, SpanLinks,
    SpanProcessor as _,
};
use percent_encoding::percent_decode_str;
use tokio::runtime::Handle;

use super::cause::root_cause;
use super::context::TraceContext;
use super::span::{Attribute, Span, SpanRole, Value};
use super::tracer::{Origin, Sink};

/// Time to connect to a collector: it is on the node or in the cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// One export, if `OTEL_EXPORTER_OTLP_TIMEOUT` says nothing: the standard's default.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a collector's answer: a count and a sentence.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// Whether spans are exported: a collector's address is set, or the exporter is named. The default endpoint of the
/// standard alone does not enable export; otherwise an unconfigured gateway would retry a closed port forever.
///
/// Errors: a value that this program cannot follow.
pub(super) fn is_export_configured(variable: &impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(false);
    }
    let addressed = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").is_some() || set("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
    let wanted = match set("OTEL_TRACES_EXPORTER").as_deref() {
        None => addressed,
        Some("otlp") => true,
        Some("none") => false,
        Some(other) => {
            return Err(format!(
                "OTEL_TRACES_EXPORTER={other}: this program has the exporter otlp; write otlp or none"
            ));
        }
    };
    let protocol = set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| set("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match protocol.as_deref() {
        Some(other) if wanted && other != "http/protobuf" => Err(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL={other}: this program speaks http/protobuf; unset the variable"
        )),
        _ => Ok(wanted),
    }
}

/// The exporter as a sink.
#[derive(Debug)]
pub(super) struct OtlpSink {
    sampler: Box<dyn ShouldSample>,
    ids: Box<dyn IdGenerator>,
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl OtlpSink {
    /// As the environment says, trusting these authorities. Errors: an address or a header that cannot be used.
    pub(super) fn from_env(service: &'static str, roots: &Roots) -> Result<Self, String> {
        let client = CollectorClient::new(roots).map_err(|error| format!("the collector's client: {error}"))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(client)
            .build()
            .map_err(|error| format!("OTEL_EXPORTER_OTLP_*: {error}"))?;
        // Sampler and limits by the standard's variables.
        let config = Config::default();
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(&resource(service, &|name| std::env::var(name).ok()));
        Ok(Self {
            sampler: config.sampler,
            ids: config.id_generator,
            processor,
            scope: InstrumentationScope::builder("knack")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        })
    }
}

/// The variable with attributes of the resource.
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The resource, as the standard says: `OTEL_SERVICE_NAME` takes precedence over the attributes of the environment, and those
/// over `service` and the version of this program. The SDK prefers the attributes, and does not decode them.
fn resource(service: &'static str, variable: &impl Fn(&str) -> Option<String>) -> Resource {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let given = set(RESOURCE_ATTRIBUTES).map_or(Ok(Vec::new()), |text| attributes(&text));
    let given = given.unwrap_or_else(|problem| {
        tracing::warn!(
            "{RESOURCE_ATTRIBUTES} is ignored: {problem}; write name=value,name=value, with %2C for a comma in a value"
        );
        Vec::new()
    });
    let name = set("OTEL_SERVICE_NAME").map(|name| KeyValue::new("service.name", name));
    // If two have one name, the later one counts.
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attribute(KeyValue::new("service.name", service))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(given)
        .with_attributes(name)
        .build()
}

/// The attributes of a variable. Errors: one of them cannot be read, which makes all of them void by the standard.
fn attributes(text: &str) -> Result<Vec<KeyValue>, &'static str> {
    let decoded = |part: &str| {
        let decoded = percent_decode_str(part.trim()).decode_utf8();
        decoded
            .map(Cow::into_owned)
            .map_err(|_| "a name or a value is not UTF-8")
    };
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    let read = entries.map(|entry| -> Result<KeyValue, &'static str> {
        let (name, value) = entry.split_once('=').ok_or("an entry has no =")?;
        Ok(KeyValue::new(decoded(name)?, decoded(value)?))
    });
    read.collect()
}

impl Sink for OtlpSink {
    fn begin(&self, parent: Option<(TraceContext, Origin)>, name: &str, kind: SpanRole) -> TraceContext {
        let trace = parent.map_or_else(|| self.ids.new_trace_id(), |(parent, _)| TraceId::from(parent.trace));
        let around = parent.map(|(parent, origin)| {
            Context::new().with_remote_span_context(span_context(parent, origin == Origin::Remote))
        });
        let decided = self
            .sampler
            .should_sample(around.as_ref(), trace, name, &span_kind(kind), &[], &[]);
        TraceContext {
            trace: u128::from_be_bytes(trace.to_bytes()),
            span: u64::from_be_bytes(self.ids.new_span_id().to_bytes()),
            sampled: decided.decision == SamplingDecision::RecordAndSample,
        }
    }

    fn end(&self, span: Span) {
        self.processor.on_end(span_data(span, self.scope.clone()));
    }

    fn close(&self, within: Duration) {
        if let Err(error) = self.processor.shutdown_with_timeout(within) {
            tracing::warn!(%error, "spans that were waiting may be lost");
        }
    }
}

fn span_context(of: TraceContext, remote: bool) -> SpanContext {
    let flags = if of.sampled {
        TraceFlags::SAMPLED
    } else {
        TraceFlags::NOT_SAMPLED
    };
    SpanContext::new(
        TraceId::from(of.trace),
        SpanId::from(of.span),
        flags,
        remote,
        TraceState::NONE,
    )
}

const fn span_kind(kind: SpanRole) -> SpanKind {
    match kind {
        SpanRole::Server => SpanKind::Server,
        SpanRole::Client => SpanKind::Client,
        SpanRole::Internal => SpanKind::Internal,
    }
}

fn span_data(span: Span, scope: InstrumentationScope) -> SpanData {
    let description = span.description;
    SpanData {
        span_context: span_context(span.context, false),
        parent_span_id: span.parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span)),
        parent_span_is_remote: span.parent_is_remote,
        span_kind: span_kind(description.kind),
        name: Cow::Owned(description.name),
        start_time: span.begun,
        end_time: span.ended,
        attributes: description.attributes.into_iter().map(key_value).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: if description.failed {
            Status::error("")
        } else {
            Status::Unset
        },
        instrumentation_scope: scope,
    }
}

fn key_value((name, value): Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => opentelemetry::Value::from(text),
        Value::Texts(texts) => {
            opentelemetry::Value::Array(Array::String(texts.into_iter().map(StringValue::from).collect()))
        }
        Value::Integer(number) => number.into(),
        Value::Number(number) => number.into(),
        Value::Flag(flag) => flag.into(),
    };
    KeyValue::new(name, value)
}

/// The HTTP client for the collector. The batch processor's thread has no tokio runtime: requests run on the runtime
/// that existed when the client was made.
#[derive(Debug)]
struct CollectorClient {
    client: reqwest::Client,
    runtime: Handle,
    /// Since when spans are lost.
    lost_since: Mutex<Option<Instant>>,
}

impl CollectorClient {
    fn new(roots: &Roots) -> reqwest::Result<Self> {
        let millis = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
        let timeout = millis("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
            .or_else(|| millis("OTEL_EXPORTER_OTLP_TIMEOUT"))
            .map_or(EXPORT_TIMEOUT, Duration::from_millis);
        let client = roots
            .http()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            // Headers of the exporter may be credentials; they go where they were meant to.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            client,
            runtime: Handle::current(),
            lost_since: Mutex::default(),
        })
    }

    /// Notes how an export ended; a change has a line in the log.
    fn note(&self, collector: &str, problem: Option<String>) {
        let mut lost_since = self.lost_since.lock().unwrap_or_else(PoisonError::into_inner);
        match (problem, *lost_since) {
            (Some(error), None) => {
                *lost_since = Some(Instant::now());
                tracing::warn!(collector, error, "spans are lost: the collector does not take them");
            }
            (None, Some(since)) => {
                *lost_since = None;
                tracing::info!(
                    collector,
                    seconds = since.elapsed().as_secs(),
                    "spans are exported again"
                );
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

/// The address of a collector without what may be a credential: user, path and query.
fn address(uri: &http::Uri) -> String {
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}")
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let collector = address(request.uri());
        let sent = self.runtime.spawn(async move {
            let mut answer = client.execute(request.try_into()?).await?;
            let mut body = BytesMut::new();
            while let Some(chunk) = answer.chunk().await? {
                let room = ANSWER_MAX_BYTES.saturating_sub(body.len()).min(chunk.len());
                body.extend_from_slice(&chunk[..room]);
            }
            let mut response = http::Response::new(body.freeze());
            *response.status_mut() = answer.status();
            *response.headers_mut() = std::mem::take(answer.headers_mut());
            Ok::<_, reqwest::Error>(response)
        });
        // Without the address: it may hold a credential.
        let sent = sent.await?.map_err(reqwest::Error::without_url);
        self.note(
            &collector,
            match &sent {
                Ok(response) if response.status().is_success() => None,
                Ok(response) => Some(format!("status {}", response.status().as_u16())),
                Err(error) if error.is_timeout() => Some("no answer in time".to_owned()),
                Err(error) => Some(root_cause(error)),
            },
        );
        sent.map_err(|error| Box::new(error) as HttpError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_name_of_its_own_variable_and_attributes_are_decoded() {
        for (name, attributes, expected) in [
            (None, None, ("knack-dev", None)),
            (Some(""), Some(""), ("knack-dev", None)),
            (
                None,
                Some("service.name=shop,team=a%2Cb%3D%C3%A4"),
                ("shop", Some("a,b=ä")),
            ),
            (
                Some("till"),
                Some(" service.name = shop , team = a%20b ,"),
                ("till", Some("a b")),
            ),
            (Some("till"), Some("team=a,stray"), ("till", None)),
            (None, Some("service.name=shop,team=%FF"), ("knack-dev", None)),
        ] {
            let resource = resource("knack-dev", &|variable: &str| {
                let value = match variable {
                    "OTEL_SERVICE_NAME" => name,
                    RESOURCE_ATTRIBUTES => attributes,
                    _ => None,
                };
                value.map(str::to_owned)
            });
            let get = |name: &'static str| resource.get(&name.into()).map(|value| value.to_string());
            let found = (get("service.name"), get("team"));
            let expected = (Some(expected.0.to_owned()), expected.1.map(str::to_owned));
            assert_eq!(found, expected, "{name:?} {attributes:?}");
            assert_eq!(get("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
            assert_eq!(get("telemetry.sdk.language").as_deref(), Some("rust"));
        }
    }

    #[test]
    fn the_log_has_no_credential_of_a_collectors_address() {
        for (uri, expected) in [
            ("http://name:word@c:4318/v1/traces?key=word", "http://c:4318"),
            ("https://c.example/word/v1/traces", "https://c.example"),
            ("http://[::1]:4318/", "http://[::1]:4318"),
        ] {
            assert_eq!(address(&uri.parse().unwrap()), expected);
        }
    }

    #[test]
    fn a_collector_must_be_named_and_spoken_to_as_this_program_can() {
        let of = |pairs: &'static [(&str, &str)]| {
            is_export_configured(&|name: &str| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        for (pairs, expected) in [
            (&[][..], Ok(false)),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")][..], Ok(true)),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/v1/traces")],
                Ok(true),
            ),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], Ok(false)),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], Ok(true)),
            (
                &[
                    ("OTEL_TRACES_EXPORTER", "none"),
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
                ],
                Ok(false),
            ),
            (
                &[
                    ("OTEL_SDK_DISABLED", "TRUE"),
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
                ],
                Ok(false),
            ),
            (&[("OTEL_TRACES_EXPORTER", "zipkin")], Err("zipkin")),
            (
                &[
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
                ],
                Err("grpc"),
            ),
            // Not followed, since nothing is exported.
            (&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], Ok(false)),
        ] {
            match (of(pairs), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{pairs:?}"),
                (Err(text), Err(word)) => assert!(text.contains(word), "{text}"),
                (found, _) => panic!("{pairs:?}: {found:?}"),
            }
        }
    }
}
