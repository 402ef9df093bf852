use std::sync::{Arc, Mutex};

use http::HeaderValue;
use knack_telemetry::{Origin, Sink, Span, TRACEPARENT, Value};
use knack_wire::Route;

use super::*;
use crate::runs::skill_runs::RunReading;

/// Gives ids in order and keeps spans.
#[derive(Debug)]
struct SpanCollector {
    sampled: bool,
    spans: Mutex<(u64, Vec<Span>)>,
}

impl Sink for SpanCollector {
    fn begin(&self, parent: Option<(TraceContext, Origin)>, _: &str, _: SpanRole) -> TraceContext {
        let mut kept = self.spans.lock().unwrap();
        kept.0 += 1;
        TraceContext {
            trace: parent.map_or(7, |(parent, _)| parent.trace),
            span: kept.0,
            sampled: self.sampled,
        }
    }

    fn end(&self, span: Span) {
        self.spans.lock().unwrap().1.push(span);
    }

    fn close(&self, _: Duration) {}
}

impl SpanCollector {
    fn new(sampled: bool) -> Arc<Self> {
        Arc::new(Self {
            sampled,
            spans: Mutex::default(),
        })
    }

    /// `name parent=… error=…`, in order of their ends.
    fn reports(&self) -> Vec<String> {
        let spans = &self.spans.lock().unwrap().1;
        spans.iter().map(line).collect()
    }
}

fn line(span: &Span) -> String {
    assert!(span.ended >= span.begun, "{span:?}");
    let value = |name: &str| {
        let found = span.description.attributes.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| match value {
            Value::Text(text) => text.clone(),
            other => format!("{other:?}"),
        })
    };
    let parent = span.parent.map_or(0, |parent| parent.span);
    let mut line = format!("{} {} under {parent}", span.context.span, span.description.name);
    for name in ["gen_ai.response.id", "knack.execution.id", "error.type"] {
        if let Some(value) = value(name) {
            line.push_str(&format!(" {value}"));
        }
    }
    line
}

const PARENT: &str = "00-0000000000000000000000000000002a-00000000000000ff-01";

fn begin(sink: Option<&Arc<SpanCollector>>, parent: Option<&'static str>) -> RequestTrace {
    let tracer = sink.map_or_else(Tracer::off, |sink| {
        Tracer::to(Arc::clone(sink) as Arc<dyn Sink>, Conventions::V1_41)
    });
    let Route::Model(route) = knack_wire::route("POST", "/v1/chat/completions") else {
        panic!("a model route");
    };
    let mut request = http::Request::post("/v1/chat/completions?key=secret");
    if let Some(parent) = parent {
        request = request.header(TRACEPARENT, parent);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    RequestTrace::begin(&tracer, &route, &head, Instant::now())
}

fn log() -> RequestLog {
    RequestLog {
        subject: "m".to_owned(),
        status: 200,
        ..RequestLog::default()
    }
}

fn send(trace: &mut RequestTrace, round: u32) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(TRACEPARENT, HeaderValue::from_static(PARENT));
    let body = Bytes::from_static(b"{}");
    trace.send(&mut headers, (round, &body, Duration::ZERO), &log(), || None);
    headers
}

fn call() -> ToolCall {
    ToolCall {
        token: 0,
        round: 1,
        name: "run_code".to_owned(),
        id: "c".to_owned(),
        arguments: "{}".to_owned(),
    }
}

/// A call of an MCP client: no request of a model is around it.
#[tokio::test]
async fn a_call_by_itself_is_below_the_span_of_its_sender() {
    let kept = SpanCollector::new(true);
    let tracer = Tracer::to(Arc::clone(&kept) as Arc<dyn Sink>, Conventions::V1_41);
    let mut headers = HeaderMap::new();
    CallTrace::begin(&tracer, &headers, &call()).end(&CallFacts::default());
    headers.insert(TRACEPARENT, HeaderValue::from_static(PARENT));
    drop(CallTrace::begin(&tracer, &headers, &call()));
    assert_eq!(
        kept.reports(),
        [
            "1 execute_tool run_code under 0",
            "2 execute_tool run_code under 255 cancelled",
        ]
    );
    assert_eq!(CallTrace::begin(&Tracer::off(), &headers, &call()).context(), None);
}

#[tokio::test]
async fn names_that_others_choose_are_cut() {
    let kept = SpanCollector::new(true);
    let tracer = Tracer::to(Arc::clone(&kept) as Arc<dyn Sink>, Conventions::V1_41);
    let long = "n".repeat(1 << 14);
    let path = format!("/v1beta/models/{long}:generateContent");
    let Route::Model(route) = knack_wire::route("POST", &path) else {
        panic!("a model route");
    };
    let (head, ()) = http::Request::post(path).body(()).unwrap().into_parts();
    let mut trace = RequestTrace::begin(&tracer, &route, &head, Instant::now());
    let called = ToolCall {
        name: long.clone(),
        id: long,
        ..call()
    };
    trace.call(&called).end(&CallFacts::default());
    trace.finish(&log(), None);
    let text = format!("{:?}", kept.spans.lock().unwrap().1);
    assert!(text.len() < 1 << 12, "{}", text.len());
}

#[tokio::test]
async fn two_rounds_and_a_run_between_them_are_one_trace() {
    let kept = SpanCollector::new(true);
    let mut trace = begin(Some(&kept), Some(PARENT));
    let headers = send(&mut trace, 1);
    // The provider sees the round's own span, in the client's trace.
    assert_eq!(
        headers[TRACEPARENT],
        "00-0000000000000000000000000000002a-0000000000000002-01"
    );
    trace.head(200, false);
    trace.bytes(br#"{"id":"a"#);
    trace.bytes(br#"1"}"#);
    let run = trace.call(&call());
    assert_eq!(
        run.context().map(|context| (context.trace, context.span)),
        Some((0x2a, 3))
    );
    run.end(&CallFacts {
        execution: Some("e1".to_owned()),
        ..CallFacts::default()
    });
    send(&mut trace, 2);
    trace.head(200, true);
    trace.bytes(b"data: {\"id\":\"a2\"}\n\n");
    trace.end(&EndKind::Answer, false);
    trace.finish(&log(), None);
    assert_eq!(
        kept.reports(),
        [
            "3 execute_tool run_code under 1 e1",
            "2 chat m under 1 a1",
            "4 chat m under 1 a2",
            "1 POST /v1/chat/completions under 255",
        ]
    );
    let spans = &kept.spans.lock().unwrap().1;
    assert!(spans[3].parent_is_remote && !spans[1].parent_is_remote);
    // The round ended when its last byte came, not when the run was over.
    assert!(spans[1].ended <= spans[0].ended);
    let text = format!("{spans:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn the_end_of_a_round_is_exported() {
    type Story = fn(&mut RequestTrace);
    let stories: [(Story, &[&str]); 7] = [
        (
            |trace| {
                trace.head(429, false);
                trace.bytes(b"{\"id\":\"not read\"}");
                send(trace, 1);
                trace.over(Some(Failure::Connect));
                trace.end(&EndKind::Fault(String::new()), false);
            },
            &["2 chat m under 1 429", "3 chat m under 1 connect"],
        ),
        (
            |trace| {
                trace.head(200, true);
                trace.over(Some(Failure::Broken));
                trace.end(&EndKind::Fault(String::new()), false);
            },
            &["2 chat m under 1 broken"],
        ),
        (
            |trace| {
                trace.head(200, true);
                trace.end(&EndKind::Fault(String::new()), true);
            },
            &["2 chat m under 1 timeout"],
        ),
        (
            |trace| {
                trace.head(200, true);
                trace.end(&EndKind::Fault(String::new()), false);
            },
            &["2 chat m under 1 unreadable"],
        ),
        (
            |trace| {
                trace.head(200, true);
                trace.bytes(b"data: {\"error\":{\"type\":\"overloaded\"}}\n\n");
                trace.end(&EndKind::Upstream(200), false);
            },
            &["2 chat m under 1 overloaded"],
        ),
        (
            |trace| {
                trace.head(401, false);
                trace.end(&EndKind::Upstream(401), false);
            },
            &["2 chat m under 1 401"],
        ),
        (|trace| trace.end(&EndKind::Passed, false), &["2 chat m under 1"]),
    ];
    for (story, expected) in stories {
        let kept = SpanCollector::new(true);
        let mut trace = begin(Some(&kept), None);
        send(&mut trace, 1);
        story(&mut trace);
        trace.finish(&log(), None);
        let mut reports = kept.reports();
        // What the last round ended with is the answer's too, after a head that says success.
        let why = expected
            .last()
            .and_then(|line| line.strip_prefix("3 ").or(line.strip_prefix("2 ")));
        let why = why
            .and_then(|line| line.strip_prefix("chat m under 1"))
            .unwrap_or_default();
        assert_eq!(reports.pop(), Some(format!("1 POST /v1/chat/completions under 0{why}")));
        assert_eq!(reports, expected);
        let kept = SpanCollector::new(true);
        let mut trace = begin(Some(&kept), None);
        send(&mut trace, 1);
        story(&mut trace);
        let refused = RequestLog { status: 404, ..log() };
        trace.finish(&refused, None);
        // A status of an error says it, and a client's own mistake is no failure of the server.
        assert_eq!(
            kept.reports().pop().as_deref(),
            Some("1 POST /v1/chat/completions under 0")
        );
    }
}

#[tokio::test]
async fn a_round_that_is_over_is_not_cancelled_with_the_run_that_it_asked_for() {
    for (dropped, word) in [(Failure::Cancelled, "cancelled"), (Failure::Shutdown, "shutdown")] {
        let kept = SpanCollector::new(true);
        let mut trace = begin(Some(&kept), None);
        send(&mut trace, 1);
        trace.head(200, false);
        trace.bytes(br#"{"id":"a1"}"#);
        trace.over(None);
        trace.call(&call()).end(&CallFacts {
            execution: Some("e1".to_owned()),
            failure: Some(Failure::Run("cancelled")),
            ..CallFacts::default()
        });
        trace.finish(&log(), Some(&dropped));
        assert_eq!(
            kept.reports(),
            [
                "2 chat m under 1 a1".to_owned(),
                "3 execute_tool run_code under 1 e1 cancelled".to_owned(),
                format!("1 POST /v1/chat/completions under 0 {word}"),
            ]
        );
    }
}

#[tokio::test]
async fn a_deadline_during_a_run_is_the_servers_and_not_the_providers() {
    let kept = SpanCollector::new(true);
    let mut trace = begin(Some(&kept), None);
    send(&mut trace, 1);
    trace.head(200, true);
    trace.over(None);
    trace.end(&EndKind::Fault(String::new()), true);
    trace.finish(&log(), None);
    assert_eq!(
        kept.reports(),
        ["2 chat m under 1", "1 POST /v1/chat/completions under 0 timeout"]
    );
}

#[tokio::test]
async fn a_run_of_a_skill_is_the_span_of_the_path_that_its_client_called() {
    let kept = SpanCollector::new(true);
    let tracer = Tracer::to(Arc::clone(&kept) as Arc<dyn Sink>, Conventions::V1_41);
    let Route::Model(route) = knack_wire::route("POST", "/v1/chat/completions") else {
        panic!("a model route");
    };
    let (mut head, ()) = http::Request::post("/v1/chat/completions")
        .body(())
        .unwrap()
        .into_parts();
    head.extensions.insert(RunOrigin {
        skill: knack_skill::model::SkillRef {
            namespace: "default".to_owned(),
            name: "adder".to_owned(),
        },
        reading: RunReading::default(),
        path: "/api/v1/skills/adder/run".to_owned(),
    });
    let mut trace = RequestTrace::begin(&tracer, &route, &head, Instant::now());
    trace.finish(&log(), None);
    assert_eq!(kept.reports(), ["1 POST /api/v1/skills/{name}/run under 0"]);
    let text = format!("{:?}", kept.spans.lock().unwrap().1);
    assert!(
        text.contains("/api/v1/skills/adder/run") && !text.contains("/v1/chat/completions"),
        "{text}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_cancels_what_is_open() {
    let kept = SpanCollector::new(true);
    let mut trace = begin(Some(&kept), None);
    send(&mut trace, 1);
    drop(trace.call(&call()));
    trace.finish(&log(), Some(&Failure::Cancelled));
    trace.finish(&log(), Some(&Failure::Cancelled));
    assert_eq!(
        kept.reports(),
        [
            "3 execute_tool run_code under 1 cancelled",
            "2 chat m under 1 cancelled",
            "1 POST /v1/chat/completions under 0 cancelled",
        ]
    );
}

#[tokio::test]
async fn a_trace_that_is_not_sampled_is_passed_on_and_not_exported() {
    let kept = SpanCollector::new(false);
    let mut trace = begin(Some(&kept), Some(PARENT));
    let headers = send(&mut trace, 1);
    assert_eq!(
        headers[TRACEPARENT],
        "00-0000000000000000000000000000002a-0000000000000002-00"
    );
    trace.head(200, false);
    trace.bytes(b"{}");
    trace.call(&call()).end(&CallFacts::default());
    trace.end(&EndKind::Answer, false);
    trace.finish(&log(), None);
    assert!(kept.reports().is_empty());
}

#[tokio::test]
async fn without_a_sink_headers_stay_as_they_came() {
    let mut trace = begin(None, Some(PARENT));
    let headers = send(&mut trace, 1);
    assert_eq!(headers[TRACEPARENT], PARENT);
    assert!(trace.call(&call()).context().is_none());
    trace.finish(&log(), None);
}
