//! The spans of one request: one clock and one sink for all of them.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::context::TraceContext;
use super::span::{Description, Kind, Span};
use super::tracer::{Origin, Sink, Tracer};

/// Where spans of one request go, and what time it is for them: one reading of the wall clock, so that they are in order
/// whatever happens to it.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    sink: Arc<dyn Sink>,
    began: (SystemTime, Instant),
}

/// Where a span stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The span.
    pub(crate) context: TraceContext,
    /// What it is a part of, and whose that is.
    pub(crate) parent: Option<(TraceContext, Origin)>,
}

impl Scope {
    /// Begins the request's own span: a part of whatever sent the request, if that says so. `None` without a sink.
    pub(crate) fn open(
        tracer: &Tracer,
        headers: &http::HeaderMap,
        name: &str,
        kind: Kind,
        begun: Instant,
    ) -> Option<(Self, Place)> {
        let sink = tracer.sink()?;
        let parent = TraceContext::of_headers(headers).map(|parent| (parent, Origin::Remote));
        let place = Place {
            context: sink.begin(parent, name, kind),
            parent,
        };
        let scope = Self {
            sink: Arc::clone(sink),
            began: (SystemTime::now() - begun.elapsed(), begun),
        };
        Some((scope, place))
    }

    /// Begins a span below one of this request.
    pub(crate) fn child(&self, parent: TraceContext, name: &str, kind: Kind) -> Place {
        let parent = Some((parent, Origin::Local));
        Place {
            context: self.sink.begin(parent, name, kind),
            parent,
        }
    }

    /// When the request began.
    pub(crate) const fn began(&self) -> Instant {
        self.began.1
    }

    /// Tells a span that is over, if it is recorded.
    pub(crate) fn end(&self, place: Place, (begun, ended): (Instant, Instant), describe: impl FnOnce() -> Description) {
        if !place.context.sampled {
            return;
        }
        self.sink.end(Span {
            context: place.context,
            parent: place.parent.map(|(parent, _)| parent),
            parent_is_remote: matches!(place.parent, Some((_, Origin::Remote))),
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
