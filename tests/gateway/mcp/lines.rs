//! The lines of requests that are no calls of a tool, in console, log and metrics.

use serde_json::{Value, json};

use super::{ask, call, request, running, send};

#[tokio::test]
async fn a_request_that_is_no_call_has_a_line_of_its_method_and_a_sign_of_life_has_none() {
    let knack = running().await;
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    ask(&knack, "ping", &json!({})).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let told = send(request(&knack, "", &Value::Null).body(ready.to_string())).await;
    assert_eq!(told.status, 202, "{}", told.text);
    let opened = send(request(&knack, "initialize", &params)).await;
    let id = opened.headers["x-knack-request-id"].to_str().unwrap();
    ask(&knack, "tools/list", &json!({})).await;
    send(request(&knack, "resources/read", &json!({"uri": "skill://none/x"}))).await;
    send(request(&knack, "made up", &json!({}))).await;
    send(request(&knack, "", &Value::Null).body("{")).await;
    call(&knack, "run_code", &json!({"code": "print(1)"})).await;
    let text = knack.told("200 mcp run_code").await;
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| line.contains(" mcp "))
        .map(|line| line.split_once(" | ").unwrap())
        .collect();
    let heads: Vec<&str> = lines.iter().map(|(head, _)| *head).collect();
    let expected = [
        "200 mcp initialize",
        "200 mcp tools/list",
        "200 mcp resources/read",
        "200 mcp POST /mcp",
        "400 mcp POST /mcp",
        "200 mcp run_code",
    ];
    assert_eq!(heads, expected, "{text}");
    let ends = [
        "ms ",
        "ms ",
        "JSON-RPC error -32",
        "JSON-RPC error -32601",
        "JSON-RPC error -32",
        "skills: none",
    ];
    for ((_, rest), end) in lines.iter().zip(ends) {
        assert!(rest.contains(end), "{end} in {text}");
    }
    assert!(lines[0].1.ends_with(id), "{text}");
    let metrics = knack.gateway.metrics_text();
    let counted = r#"knack_gateway_requests_total{format="mcp",status="200"} 5"#;
    assert!(metrics.contains(counted), "a call is counted once: {metrics}");
}
