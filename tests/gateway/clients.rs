//! Clients that leave, and a gateway that stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use knack_execution::{ExecutionStatus, Executor};
use knack_gateway::http_server::server::Stopping;
use serde_json::{Value, json};

use super::observed::Observed;
use super::support::{Running, Start, client, read, start, with_script};
use super::talk::{ROWS, Talk};

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-x", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

/// A gateway whose model calls for a run that outlasts every test.
async fn with_long_run() -> (Arc<Observed>, Running) {
    let script = "turns:\n  - rounds:\n      - reply: {calls: [{tool: run_code, arguments: {code: 'import time; time.sleep(50)'}}]}\n      - reply: {text: never}\n";
    let observed = Observed::new().await;
    let knack = start(Start {
        script: script.to_owned(),
        executor: Arc::clone(&observed) as Arc<dyn Executor>,
        ..Start::default()
    })
    .await;
    (observed, knack)
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_loop_ends_its_run() {
    let (observed, knack) = with_long_run().await;
    for (count, row) in ROWS.into_iter().enumerate() {
        let talk = Talk::plain(row, "go");
        let leaving = tokio::spawn(talk.request(&knack.url, &talk.body()).send());
        let run = observed.running_after(count).await;
        leaving.abort();
        // The answer's head may be here already: the client leaves when the answer is dropped.
        drop(leaving);
        let lines = knack.told_times("client left", count + 1).await;
        // The log has the status that went out: a stream's head was sent.
        let status = if row.1 { "200" } else { "499" };
        assert!(lines.lines().last().unwrap().starts_with(status), "{row:?}: {lines}");
        // Fifty seconds of sleep would end as a success.
        assert_eq!(observed.ended(&run).await, Some(ExecutionStatus::Error), "{row:?}");
        assert_eq!(
            knack.mock.handle.requests().len(),
            count + 1,
            "{row:?}: no second round"
        );
        // The round that was asked for is counted, and the run that its client did not wait for.
        let line = lines.lines().last().unwrap();
        assert!(line.contains("| 1 round | run_code: cancelled "), "{row:?}: {lines}");
        let metric = format!(r#"knack_executions_total{{status="cancelled",start=""}} {}"#, count + 1);
        assert!(knack.gateway.metrics_text().contains(&metric), "{row:?}: {metric}");
        // The provider's part is over when its answer is, and the run has its id.
        let steps = last_steps(&knack).await;
        assert_eq!(steps[0]["ended"], true, "{row:?}: {steps}");
        assert_eq!(steps[0]["failure"], Value::Null, "{row:?}: {steps}");
        assert_eq!(steps[1]["run"]["id"], run.id.to_string(), "{row:?}: {steps}");
        assert_eq!(steps[1]["run"]["status"], "cancelled", "{row:?}: {steps}");
    }
}

/// The steps of the last request, as `knack trace` gets them.
async fn last_steps(knack: &Running) -> Value {
    let kept = knack
        .send(client().get(format!("{}/knack/v1/requests", knack.url)))
        .await;
    kept.json()["requests"].as_array().unwrap().last().unwrap()["steps"].clone()
}

/// Seconds that a client waits, one after the other: on a machine that stands still meanwhile, the first may be over before a request is
/// where it is to be.
const WAITS: [u64; 3] = [2, 8, 32];

#[tokio::test]
async fn a_deadline_in_mid_loop_is_counted_as_the_runs_and_not_the_providers() {
    for seconds in WAITS {
        if deadline_in_mid_loop(seconds).await {
            return;
        }
    }
    panic!("no run begins in time");
}

/// False: the deadline came before the run.
async fn deadline_in_mid_loop(seconds: u64) -> bool {
    let (observed, knack) = with_long_run().await;
    let request = knack.chat(&chat("go", false));
    let answer = knack.send(request.header("x-stainless-timeout", seconds)).await;
    assert_eq!(answer.status, 504, "{}", answer.text);
    if observed.requests().is_empty() {
        return false;
    }
    let line = knack.told("504 chat").await;
    assert!(line.contains("| run_code: timeout "), "{line}");
    let metrics = knack.gateway.metrics_text();
    assert!(
        metrics.contains(r#"knack_executions_total{status="timeout",start=""} 1"#),
        "{metrics}"
    );
    let steps = last_steps(&knack).await;
    assert_eq!(
        (&steps[0]["failure"], &steps[0]["status"]),
        (&Value::Null, &json!(200)),
        "{steps}"
    );
    assert_eq!(steps[1]["run"]["status"], "timeout", "{steps}");
    true
}

#[tokio::test]
async fn a_provider_that_is_too_late_took_the_time_that_was_waited() {
    // It takes connections, and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let knack = start(Start {
        upstream: Some(format!("http://{}", silent.local_addr().unwrap())),
        ..Start::default()
    })
    .await;
    let mut told = Vec::new();
    for (count, seconds) in WAITS.into_iter().enumerate() {
        let request = knack.chat(&chat("go", false));
        let answer = knack.send(request.header("x-stainless-timeout", seconds)).await;
        assert_eq!(answer.status, 504, "{}", answer.text);
        knack.told_times("504 chat", count + 1).await;
        let steps = last_steps(&knack).await;
        // Half of the time that the client gives, if the provider was asked soon.
        if steps[0]["tookMs"].as_u64() >= Some(seconds * 500) {
            assert_eq!(steps[0]["failure"], "timeout", "{steps}");
            return;
        }
        told.push(steps);
    }
    panic!("{told:?}");
}

/// Comes back once a new connection is refused, or a new request is.
async fn turned_away(url: String) {
    loop {
        let request = client().post(format!("{url}/v1/chat/completions"));
        match request
            .bearer_auth("key-b")
            .body(chat("new", false).to_string())
            .send()
            .await
        {
            Err(_) => return,
            Ok(response) if response.status() == http::StatusCode::SERVICE_UNAVAILABLE => return,
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::test]
async fn a_stop_finishes_running_streams_and_turns_new_traffic_away() {
    let script = "turns:\n  - user: go\n    rounds:\n      - reply: {text: one two three four five six seven eight nine ten}\n        stream: {delay_ms: 60}\n  - rounds:\n      - reply: {text: served}\n";
    let mut knack = with_script(script).await;
    let response = knack.chat(&chat("go", true)).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let first = stream.next().await.unwrap().unwrap();
    let served = client().post(format!("{}/v1/chat/completions", knack.url));
    let served = served.bearer_auth("key-b").body(chat("new", false).to_string());
    assert_eq!(served.send().await.unwrap().status(), 200, "before the stop");
    knack.stop.take().unwrap().send(()).unwrap();
    let away = tokio::spawn(turned_away(knack.url.clone()));
    let mut text = String::from_utf8_lossy(&first).into_owned();
    while let Some(chunk) = stream.next().await {
        text.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
    }
    assert!(text.contains("[DONE]"), "{text}");
    assert!(knack.gateway.is_draining());
    tokio::time::timeout(Duration::from_mins(1), away)
        .await
        .unwrap()
        .unwrap();
    tokio::time::timeout(Duration::from_mins(1), &mut knack.server)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_rollout_cuts_no_stream_and_refuses_no_connection_before_load_balancers_have_noticed() {
    // The first is long enough for two requests on a busy machine, if it does not stand still meanwhile.
    for pause in [3, 9, 27].map(Duration::from_secs) {
        if rolls_out(pause).await {
            return;
        }
    }
    panic!("two requests take longer than any pause");
}

/// False: the pause was over before all was asked that is served in it.
async fn rolls_out(pause: Duration) -> bool {
    // Ten pieces and more, which take longer than the pause.
    let script = format!(
        "turns:\n  - user: go\n    rounds:\n      - reply: {{text: one two three four five six seven eight nine ten}}\n        stream: {{delay_ms: {}}}\n  - rounds:\n      - reply: {{text: served}}\n",
        pause.as_millis() / 6
    );
    let mut knack = start(Start {
        script,
        stopping: Stopping {
            pause,
            drain: Duration::from_mins(1),
        },
        ..Start::default()
    })
    .await;
    let response = knack.chat(&chat("go", true)).send().await.unwrap();
    let mut stream = response.bytes_stream();
    let first = stream.next().await.unwrap().unwrap();
    let stopped = Instant::now();
    knack.stop.take().unwrap().send(()).unwrap();
    // Not ready at once, and served all the same: each request on a connection of its own.
    let ready = format!("{}/readyz", knack.url);
    let asked = async {
        while client().get(&ready).send().await?.status() != http::StatusCode::SERVICE_UNAVAILABLE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        knack.chat(&chat("new", false)).send().await
    };
    match asked.await {
        Ok(answer) => assert_eq!(read(answer).await.said(), "served"),
        Err(_) if stopped.elapsed() >= pause => return false,
        Err(error) => panic!("{error:?}"),
    }
    let mut text = String::from_utf8_lossy(&first).into_owned();
    let reading = async {
        while let Some(chunk) = stream.next().await {
            text.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
        }
    };
    tokio::join!(reading, turned_away(knack.url.clone()));
    assert!(text.contains("[DONE]"), "{text}");
    // The process ends when the last answer has ended, not when the time for it is over.
    tokio::time::timeout(Duration::from_secs(30), &mut knack.server)
        .await
        .unwrap()
        .unwrap();
    true
}

#[tokio::test]
async fn an_answer_that_outlasts_the_drain_is_cut() {
    let script = "turns:\n  - rounds:\n      - reply: {text: one two three four five six seven eight nine ten}\n        stream: {delay_ms: 30000}\n";
    let mut knack = start(Start {
        script: script.to_owned(),
        stopping: Stopping {
            pause: Duration::ZERO,
            drain: Duration::from_millis(200),
        },
        ..Start::default()
    })
    .await;
    let response = knack.chat(&chat("go", true)).send().await.unwrap();
    knack.stop.take().unwrap().send(()).unwrap();
    let end = tokio::time::timeout(Duration::from_mins(1), response.bytes())
        .await
        .unwrap();
    assert!(end.is_err(), "{end:?}");
    // It was not its client that left.
    let line = knack.told("| shutdown |").await;
    assert!(line.starts_with("200 chat") && !line.contains("client left"), "{line}");
    tokio::time::timeout(Duration::from_mins(1), &mut knack.server)
        .await
        .unwrap()
        .unwrap();
}
