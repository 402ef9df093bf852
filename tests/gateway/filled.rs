//! Templates that repeat an input: the text is bounded, and memory is taken for it before it is made.

use std::time::{Duration, Instant};

use knack_memory::MemoryBudget;
use serde_json::json;

use super::support::{Answer, Running, Start, client, read, start};

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often the template names its input.
const TIMES: usize = 1_000;

/// A gateway with so much memory and a skill that repeats its input.
async fn running(memory: &MemoryBudget) -> Running {
    let echo = format!(
        "---\nname: echo\ndescription: Repeats.\nactivation: OnRequest\ninputs: [{{name: text, required: true}}]\n---\n{}",
        "{{text}}".repeat(TIMES)
    );
    start(Start {
        skills: vec![("echo/SKILL.md", echo.leak())],
        memory: memory.clone(),
        ..Start::default()
    })
    .await
}

async fn says(knack: &Running, path: &str, text: &str) -> Answer {
    let body = json!({"model": "m", "max_tokens": 5_000, "messages": [{"role": "user", "content": text}]});
    let request = client().post(format!("{}{path}", knack.url)).body(body.to_string());
    read(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_text_that_fills_a_template_beyond_the_bound_is_refused_in_the_shape_of_the_api() {
    let memory = MemoryBudget::new(512 << 20);
    let knack = running(&memory).await;
    let long = format!("@echo {}", "x".repeat((4 << 20) / TIMES + 1));
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let answer = says(&knack, path, &long).await;
        assert_eq!(answer.status, 413, "{}", answer.text);
        let told = answer.json();
        let message = told["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("skill \"echo\"") && message.contains("4194304"),
            "{message}"
        );
        assert!(answer.headers.contains_key("x-knack-request-id"));
    }
    assert_eq!(says(&knack, "/v1/chat/completions", "@echo short").await.status, 200);
}

/// The largest text that is allowed does not fit into a small process, however small the request is.
#[tokio::test]
async fn a_filled_text_takes_memory_before_it_is_made_and_gives_it_back() {
    let memory = MemoryBudget::new(16 << 20);
    let knack = running(&memory).await;
    for (bytes, status) in [(4_000, 503), (500, 200), (4_000, 503), (10, 200)] {
        let answer = says(&knack, "/v1/chat/completions", &format!("@echo {}", "x".repeat(bytes))).await;
        assert_eq!(answer.status, status, "{bytes}: {}", answer.text);
        assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
    }
    // A moment after the last client has its answer.
    let begun = Instant::now();
    while memory.held_bytes() > 0 {
        assert!(begun.elapsed() < PATIENCE, "memory is held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
