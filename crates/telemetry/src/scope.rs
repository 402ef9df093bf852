//! The spans of one request: one clock and one sink for all of them.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::context::TraceContext;
use super::span::{Description, Span, SpanRole};
use super::tracer::{Origin, Sink, Tracer};

/// Where spans of one request are sent, and the time base for them: one reading of the wall clock, so that they are in
/// order when the clock is set.
#[derive(Debug, Clone)]
pub struct Scope {
    sink: Arc<dyn Sink>,
    began: (SystemTime, Instant),
}

/// The position of a span.
#[derive(Debug, Clone, Copy)]
pub struct SpanPosition {
    /// The span.
    pub context: TraceContext,
    /// The parent, and the side that made it.
    pub parent: Option<(TraceContext, Origin)>,
}

impl Scope {
    /// Begins the request's own span: a child of the sender's span, if the request names one. `None` without a sink.
    pub fn open(
        tracer: &Tracer,
        headers: &http::HeaderMap,
        name: impl FnOnce() -> String,
        kind: SpanRole,
        begun: Instant,
    ) -> Option<(Self, SpanPosition)> {
        let sink = tracer.sink()?;
        let parent = TraceContext::of_headers(headers).map(|parent| (parent, Origin::Remote));
        let position = SpanPosition {
            context: sink.begin(parent, &name(), kind),
            parent,
        };
        let scope = Self {
            sink: Arc::clone(sink),
            began: (SystemTime::now() - begun.elapsed(), begun),
        };
        Some((scope, position))
    }

    /// Begins a span below one of this request.
    pub fn child(&self, parent: TraceContext, name: &str, kind: SpanRole) -> SpanPosition {
        let parent = Some((parent, Origin::Local));
        SpanPosition {
            context: self.sink.begin(parent, name, kind),
            parent,
        }
    }

    /// When the request began.
    pub const fn began(&self) -> Instant {
        self.began.1
    }

    /// Exports a span that is over, if it is recorded.
    pub fn end(
        &self,
        position: SpanPosition,
        (begun, ended): (Instant, Instant),
        describe: impl FnOnce() -> Description,
    ) {
        if !position.context.sampled {
            return;
        }
        self.sink.end(Span {
            context: position.context,
            parent: position.parent.map(|(parent, _)| parent),
            parent_is_remote: matches!(position.parent, Some((_, Origin::Remote))),
            begun: self.at(begun),
            ended: self.at(ended),
            description: describe(),
        });
    }

    fn at(&self, instant: Instant) -> SystemTime {
        let (wall, steady) = self.began;
        wall + instant.saturating_duration_since(steady)
    }
}
