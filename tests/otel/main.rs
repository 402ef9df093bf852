//! `knack dev` and a collector: what is exported, that it holds no content, and that a collector that is away costs nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on ends by panicking"
)]

mod collector;
#[path = "../support/program.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod program;
mod provider;
#[path = "../support/runner.rs"]
#[expect(dead_code, reason = "shared with other test binaries, which use other parts of it")]
mod runner;

use std::time::{Duration, Instant};

use collector::{Collector, PARENT, ReceivedSpan, TRACE, only};
use program::{Program, folder, knack};
use provider::Provider;
use serde_json::{Value, json};

/// In the prompt, in the code that runs, in its output, in the answer; never in a span.
const SECRET: &str = "plover-5531";
const UNSAMPLED: &str = "00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

const SKILL: &str =
    "---\nname: always\ndescription: Says the word.\nactivation: Always\n---\nRun code when somebody says so.\n";

async fn start(provider: &str, environment: &[(&str, &str)]) -> Program {
    let files = [
        ("skills/always/SKILL.md", SKILL),
        ("skills/always/say.py", "print(1)\n"),
    ];
    Program::start(folder(&files), &["--upstream", provider], environment).await
}

/// Posts, perhaps with a trace.
async fn post(program: &Program, path: &str, body: &Value, parent: Option<&str>) -> String {
    let header = parent.map(|parent| ("traceparent", parent));
    let path = format!("{path}?key=sk-client-query");
    program.post(&path, body, header.as_slice()).await
}

/// No export before the end unless a batch is full: what arrives was flushed at shutdown.
const LATE: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "600000");

fn names(told: &[ReceivedSpan]) -> Vec<&str> {
    told.iter().map(|span| span.name.as_str()).collect()
}

#[tokio::test]
async fn a_request_with_a_run_is_one_trace_and_arrives_at_shutdown() {
    let collector = Collector::start().await;
    let provider = Provider::start(SECRET).await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=te%20st,service.name=shop",
        ),
        ("OTEL_SERVICE_NAME", "till"),
        LATE,
    ];
    let mut program = start(&provider.url, &environment).await;
    let ask =
        json!({"model": "gpt-x", "max_tokens": 77, "messages": [{"role": "user", "content": format!("run {SECRET}")}]});
    let answer = post(&program, "/v1/chat/completions", &ask, Some(PARENT)).await;
    assert!(answer.contains(SECRET), "{answer}");
    let stream = json!({"model": "claude-x", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    post(&program, "/v1/messages", &stream, None).await;
    post(
        &program,
        "/v1/chat/completions",
        &json!({"model": "busy", "messages": []}),
        None,
    )
    .await;
    post(&program, "/v1/chat/completions", &ask, Some(UNSAMPLED)).await;
    assert_eq!(collector.requests(), 0);
    program.stop().await;

    let told = collector.spans();
    let seen = provider.traceparents();
    a_trace_with_a_run(&told, &provider);
    let streamed = only(&told, "chat claude-x", None);
    assert_eq!(streamed.get("gen_ai.request.stream"), Some("true"));
    assert_eq!(streamed.get("gen_ai.usage.input_tokens"), Some("13"));
    assert_eq!(streamed.get("gen_ai.response.finish_reasons"), Some("[end_turn]"));
    assert!(streamed.get("gen_ai.response.time_to_first_chunk").is_some());
    assert!(only(&told, "chat busy", Some("429")).failed);

    // A trace that is not sampled goes on to the provider, and nowhere else.
    let last = seen.last().unwrap().clone().unwrap();
    assert!(last.starts_with(&UNSAMPLED[..36]) && last.ends_with("-00"), "{last}");
    assert!(!told.iter().any(|span| UNSAMPLED.contains(&span.trace)));

    let resource = collector.resource();
    for (name, value) in [
        ("service.name", "till"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("deployment.environment.name", "te st"),
    ] {
        assert_eq!(resource.get(name).map(String::as_str), Some(value), "{resource:?}");
    }
    assert!(collector.all_had_header("x-tenant", "blue"));
    assert!(!collector.raw_contains(SECRET), "content in a span");
    assert!(!collector.raw_contains("sk-client"), "a credential in a span");
}

/// A request with a run has a round, the run and a second round, in order, each exported and propagated.
fn a_trace_with_a_run(told: &[ReceivedSpan], provider: &Provider) {
    let traced: Vec<ReceivedSpan> = told.iter().filter(|span| span.trace == TRACE).cloned().collect();
    let mut sorted = names(&traced);
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "POST /v1/chat/completions",
            "chat gpt-x",
            "chat gpt-x",
            "execute_tool run_code"
        ]
    );
    let server = only(&traced, "POST /v1/chat/completions", None);
    assert_eq!((server.parent.as_str(), server.kind), ("00f067aa0ba902b7", "server"));
    assert_eq!(server.get("knack.rounds"), Some("2"));
    assert_eq!(server.get("knack.skills"), Some("[always (always)]"));
    assert_eq!(server.get("http.response.status_code"), Some("200"));
    let run = only(&traced, "execute_tool run_code", None);
    assert_eq!((run.parent.as_str(), run.kind), (server.span.as_str(), "internal"));
    assert_eq!(run.get("gen_ai.tool.call.id"), Some("call_1"));
    assert!(
        run.get("knack.execution.id").is_some_and(|id| id.len() == 36),
        "{run:?}"
    );
    assert!(
        matches!(run.get("knack.execution.start"), Some("warm" | "cold")),
        "{run:?}"
    );

    let mut rounds: Vec<&ReceivedSpan> = traced.iter().filter(|span| span.name == "chat gpt-x").collect();
    rounds.sort_by_key(|span| span.begun);
    for (round, (id, reason, input)) in rounds
        .iter()
        .zip([("chatcmpl-1", "[tool_calls]", "10"), ("chatcmpl-2", "[stop]", "20")])
    {
        assert_eq!((round.parent.as_str(), round.kind), (server.span.as_str(), "client"));
        for (name, value) in [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "openai"),
            ("gen_ai.request.model", "gpt-x"),
            ("gen_ai.request.max_tokens", "77"),
            ("gen_ai.response.model", "gpt-x-2026"),
            ("gen_ai.response.id", id),
            ("gen_ai.response.finish_reasons", reason),
            ("gen_ai.usage.input_tokens", input),
            ("gen_ai.usage.output_tokens", "5"),
            ("server.address", "127.0.0.1"),
            ("server.port", provider.port.as_str()),
        ] {
            assert_eq!(round.get(name), Some(value), "{name}");
        }
    }
    // In order: round, run, round, all inside the request.
    assert!(rounds[0].ended <= run.begun && run.ended <= rounds[1].begun);
    assert!(server.begun <= rounds[0].begun && rounds[1].ended <= server.ended);
    // The provider received each round's span.
    let seen = provider.traceparents();
    let expected = |round: &ReceivedSpan| Some(format!("00-{TRACE}-{}-01", round.span));
    assert_eq!(seen[0], expected(rounds[0]));
    assert_eq!(seen[1], expected(rounds[1]));
}

/// A collector that takes connections and never answers: the worst kind. The queue holds four spans.
#[tokio::test]
async fn a_hanging_collector_delays_no_request_and_no_exit() {
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", hanging.local_addr().unwrap());
    let provider = Provider::start(SECRET).await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
        // Ten minutes: whatever waits for an export takes longer than `soon`, on any machine.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
    ];
    let soon = Duration::from_mins(1);
    let mut program = start(&provider.url, &environment).await;
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    post(&program, "/v1/chat/completions", &body, None).await;
    // It is being asked, and does not answer.
    let held = hanging.accept().await.unwrap();
    // Answers of a provider on loopback, more of them than spans have room.
    for _ in 0..50 {
        let begun = Instant::now();
        post(&program, "/v1/chat/completions", &body, None).await;
        assert!(begun.elapsed() < soon, "{:?}", begun.elapsed());
    }
    let begun = Instant::now();
    program.stop().await;
    assert!(begun.elapsed() < soon, "{:?}", begun.elapsed());
    drop(held);
}

/// It is logged when spans begin to be lost and when they are exported again, each once, with the address.
#[tokio::test]
async fn a_collector_that_is_away_has_one_line_in_the_log_and_one_when_it_is_back() {
    // A port that nothing listens at, and that nobody else is given meanwhile.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap().to_string();
    let url = format!("http://name:word@{address}");
    let provider = Provider::start(SECRET).await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        // A collector that stands still for a while loses nothing.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "120000"),
        ("KNACK_LOG", "info"),
    ];
    let files = [("skills/always/SKILL.md", SKILL)];
    let mut program = Program::start_logged(folder(&files), &["--upstream", &provider.url], &environment).await;
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    let patience = Duration::from_mins(2);
    let begun = Instant::now();
    let mut requests = 0;
    while requests < 20 || !program.log().contains("spans are lost") {
        post(&program, "/v1/chat/completions", &body, None).await;
        requests += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < patience, "{}", program.log());
    }
    let collector = Collector::start_at(port.listen(64).unwrap());
    while collector.requests() < 3 {
        post(&program, "/v1/chat/completions", &body, None).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < patience, "{}", program.log());
    }
    program.stop().await;
    let log = program.log();
    for text in ["spans are lost", "spans are exported again"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(text)).collect();
        assert!(lines.len() == 1 && lines[0].contains(&address), "{text}: {log}");
    }
    assert!(
        !log.contains("\"target\":\"opentelemetry") && !log.contains("word@"),
        "{log}"
    );
}

#[tokio::test]
async fn without_a_collectors_address_nothing_is_added_to_a_request() {
    let provider = Provider::start(SECRET).await;
    let mut program = start(&provider.url, &[]).await;
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    post(&program, "/v1/chat/completions", &body, None).await;
    post(&program, "/v1/chat/completions", &body, Some(PARENT)).await;
    program.stop().await;
    assert_eq!(provider.traceparents(), [None, Some(PARENT.to_owned())]);
}

#[tokio::test]
async fn settings_that_cannot_be_followed_end_the_start() {
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_EXPORTER", "jaeger"),
    ] {
        let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), (name, value)];
        let folder = folder(&[("skills/always/SKILL.md", SKILL)]);
        let output = knack(
            folder.path(),
            &["dev", "skills", "--listen", "127.0.0.1:0"],
            &environment,
        )
        .await;
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(name) && said.contains(value), "{said}");
    }
}
