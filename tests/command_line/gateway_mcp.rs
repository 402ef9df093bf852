//! The MCP server of `knack gateway`: served where its setting says so, over the catalog of a hub.

use knack_vocabulary::GROUP;
use serde_json::{Value, json};

use super::gateway::{Gateway, client};
use super::program::folder;
use super::saved_catalog::{Model, until};
use super::stub_hub::Hub;

/// What `/mcp` says.
async fn ask(gateway: &Gateway, method: &str, params: &Value) -> (u16, Value) {
    let url = gateway.url.strip_suffix("/v1").unwrap();
    let answer = client()
        .post(format!("{url}/mcp"))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-06-18")
        .body(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
        .send()
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_gateway_of_a_cluster_serves_mcp_clients_where_its_setting_says_so() {
    let folder = folder(&[("token", "a token")]);
    let model = Model::start().await;
    let mut hub = Hub::new();
    std::fs::write(folder.path().join("ca.crt"), &hub.pem).unwrap();
    hub.skill("larches");
    hub.start();
    let start = |more: &[(&str, &str)]| Gateway::start(folder.path(), &model.url, &hub.url, more);
    let (mut without, mut with) = (start(&[]), start(&[("KNACK_MCP", "true")]));
    for gateway in [&mut without, &mut with] {
        gateway.healthy().await;
        until("the skill is served", async || {
            gateway.ready().await.1.contains("skills=1")
        })
        .await;
    }
    let (status, answer) = ask(&without, "tools/list", &json!({})).await;
    assert!(
        status != 200 && answer["result"].is_null(),
        "the provider's answer: {status} {answer}"
    );
    let (status, answer) = ask(&with, "tools/list", &json!({})).await;
    assert_eq!(
        (status, &answer["result"]["tools"][0]["name"]),
        (200, &json!("load_skill")),
        "{answer}"
    );
    let params = json!({"name": "load_skill", "arguments": {"skill": "steady"}});
    let (_, answer) = ask(&with, "tools/call", &params).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Say larches."), "{answer}");
    let (_, answer) = ask(&with, "skills/list", &json!({})).await;
    let skill = &answer["result"]["skills"][0];
    assert_eq!(skill["uri"], "skill://steady/SKILL.md", "{answer}");
    assert!(
        skill["_meta"][format!("{GROUP}/digest")]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
}
