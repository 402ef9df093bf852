//! Where spans go.

use std::sync::Arc;
use std::time::Duration;

use super::context::TraceContext;
use super::genai::Conventions;
use super::span::{Span, SpanRole};

/// Takes finished spans and gives ids to new ones. Neither may wait for anybody.
pub trait Sink: Send + Sync + std::fmt::Debug {
    /// The context of a new span: of the parent's trace, or of a new one. It is sampled if it is to be recorded.
    fn begin(&self, parent: Option<(TraceContext, Origin)>, name: &str, kind: SpanRole) -> TraceContext;
    /// Takes a span that was sampled. Drops it if too many are waiting.
    fn end(&self, span: Span);
    /// Sends what is waiting, within the time given. Blocks.
    fn close(&self, within: Duration);
}

/// Which side made a parent span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This process.
    Local,
    /// The sender of the request.
    Remote,
}

/// The way to the sink; most processes have none.
#[derive(Debug, Clone, Default)]
pub struct Tracer {
    sink: Option<Arc<dyn Sink>>,
    conventions: Conventions,
}

/// How long the end of a process waits for the collector: with the 25 s of running answers it stays below the 30 s that
/// Kubernetes grants.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(4);

impl Tracer {
    /// Records nothing.
    pub const fn off() -> Self {
        Self {
            sink: None,
            conventions: Conventions::V1_41,
        }
    }

    /// Gives spans to a sink.
    pub fn to(sink: Arc<dyn Sink>, conventions: Conventions) -> Self {
        Self {
            sink: Some(sink),
            conventions,
        }
    }

    /// The sink, if there is one.
    pub const fn sink(&self) -> Option<&Arc<dyn Sink>> {
        self.sink.as_ref()
    }

    /// Which names are used.
    pub const fn conventions(&self) -> Conventions {
        self.conventions
    }

    /// Sends what is waiting, and takes no longer than a few seconds.
    pub async fn close(&self) {
        if let Some(sink) = self.sink.clone() {
            // It blocks, and the exports that it waits for need this runtime.
            let closed = tokio::task::spawn_blocking(move || sink.close(CLOSE_TIMEOUT)).await;
            if let Err(error) = closed {
                tracing::warn!(%error, "spans that were waiting may be lost");
            }
        }
    }
}
