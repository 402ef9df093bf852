//! The log of a process, and the events of a request as OpenTelemetry spans of the GenAI conventions.
//!
//! ```text
//! gateway/trace ─▶ genai: what happened ─▶ span: a value ─▶ Tracer ─▶ sink: otlp (cargo feature `otel`)
//!      └─ context: traceparent, from the client and to the provider
//! ```
//!
//! Everything but the exporter is always compiled. Without a sink a request has no trace and pays one comparison.

mod cause;
mod context;
mod from_env;
pub mod genai;
mod lines;
mod log;
#[cfg(feature = "otel")]
mod otlp;
mod scope;
mod span;
mod tracer;

pub use cause::root_cause;
pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
pub use lines::{LineWriter, LineWriterGuard};
pub use log::begin_log;
pub use scope::{Scope, SpanPosition};
pub use span::{Attribute, Description, Span, SpanRole, Value};
pub use tracer::{Origin, Sink, Tracer};
