//! A caller that asks too often: refused in the shape of the API that it asked, while others are served.

use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::Served;

/// More changes than are taken in a row of one caller; the program prints a line for each, which nobody reads here.
const FLOOD: usize = 600;
/// What is said of them.
const TEXT: &str = "Too many changes by this caller: the limit is 128 at once, 300 in a row, then one every 0.1 s";

/// Repeats a change until it is refused, and returns that answer.
async fn flood(served: &Served, (method, path): (&str, &str), headers: &HeaderMap) -> reqwest::Response {
    for _ in 0..FLOOD {
        let url = format!("{}{path}", served.program.url);
        let request = served.client.request(method.parse().unwrap(), url);
        let answer = request
            .bearer_auth("flood")
            .headers(headers.clone())
            .send()
            .await
            .unwrap();
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            return answer;
        }
    }
    panic!("{method} {path}: {FLOOD} changes of one caller in a row are taken")
}

#[tokio::test]
async fn a_caller_that_makes_too_many_changes_gets_429_in_each_api_and_another_is_served() {
    let served = Served::start("turns: [{rounds: [{reply: {text: hi}}]}]", &[]).await;
    let anthropic: HeaderMap = [("anthropic-version".parse().unwrap(), "2023-06-01".parse().unwrap())]
        .into_iter()
        .collect();
    let none = HeaderMap::new();
    // None of them has what the API requires, so nothing is stored.
    for (call, headers, pointer, expected) in [
        (("POST", "/v1/skills"), &anthropic, "/error/type", "rate_limit_error"),
        (("POST", "/v1/skills"), &none, "/error/code", "rate_limit_exceeded"),
        (
            ("DELETE", "/v1/skills/litellm_skill_1"),
            &none,
            "/error/type",
            "throttling_error",
        ),
        (("PUT", "/api/v1/skills/a"), &none, "/detail/field", ""),
        (("POST", "/api/skills/install"), &none, "/error", TEXT),
    ] {
        let answer = flood(&served, call, headers).await;
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1", "{call:?}");
        let text = answer.text().await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body.pointer(pointer), Some(&json!(expected)), "{call:?}: {text}");
        assert!(text.contains(TEXT), "{call:?}: {text}");
    }
    let (status, body) = served.call("GET", "/api/v1/skills", &Value::Null, "flood").await;
    assert_eq!(status, 200, "reads have their own pace: {body}");
    let (status, body) = served.call("POST", "/api/v1/skills", &json!({}), "another").await;
    assert_eq!(status, 400, "{body}");
}
