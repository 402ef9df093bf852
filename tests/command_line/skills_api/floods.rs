//! A caller that asks too often: refused in the shape of the API that it asked, while others are served.

use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use super::Served;
use super::executions::mcp;

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

#[tokio::test]
async fn the_tools_of_mcp_that_manage_skills_count_as_requests_to_the_api() {
    let served = Served::start("turns: [{rounds: [{reply: {text: hi}}]}]", &[]).await;
    let call = async |tool: &str, arguments: Value, key: &str| {
        let params = json!({"name": format!("omniroute_skills_{tool}"), "arguments": arguments});
        let result = mcp(&served, "tools/call", params, key).await;
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (text, result["isError"] == true)
    };
    // There is no such skill, so nothing is stored.
    let enable = async |key: &str| {
        let (text, failed) = call("enable", json!({"skillId": "none", "enabled": true}), key).await;
        assert!(failed, "{text}");
        text
    };
    let mut taken = 0;
    let refused = loop {
        let text = enable("flood").await;
        if text.contains("Too many") {
            break text;
        }
        taken += 1;
        assert!(
            taken < FLOOD,
            "{FLOOD} changes of one caller in a row are taken: {text}"
        );
    };
    assert!(taken >= 300, "refused after {taken}");
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!(refused["error"], TEXT, "in the shape of the API that the tool asks");

    // What the caller sends to the API itself counts with it: only what time has given back since is taken.
    let mut taken = 0;
    while served
        .call("PUT", "/api/skills/none", &json!({"enabled": true}), "flood")
        .await
        .0
        != 429
    {
        taken += 1;
        assert!(taken < 300, "the API counts by itself");
    }
    let (text, failed) = call("list", json!({}), "flood").await;
    assert!(!failed, "reads have their own pace: {text}");
    let text = enable("another").await;
    assert!(!text.contains("Too many"), "{text}");
}
