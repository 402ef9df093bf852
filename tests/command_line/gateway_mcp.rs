//! The MCP server of `knack gateway`: served where its setting says so, over the catalog of a hub.

use knack_vocabulary::GROUP;
use serde_json::{Value, json};

use super::gateway::{Gateway, client};
use super::saved_catalog::{cluster, until};
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
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
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

/// One with a history: what runs through it is reported there, and read and run by the API.
#[tokio::test]
async fn runs_are_reported_to_the_history_and_each_client_asks_for_its_own() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    hub.start();
    let url = hub.url.clone();
    let more = [
        ("KNACK_MCP", "true"),
        ("KNACK_REGISTRY", url.as_str()),
        ("KNACK_HISTORY", url.as_str()),
    ];
    let mut gateway = Gateway::start(folder.path(), &model.url, &hub.url, &more);
    gateway.healthy().await;
    until("the skill is served", async || {
        gateway.ready().await.1.contains("skills=1")
    })
    .await;

    let (_, answer) = ask(&gateway, "tools/list", &json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap().clone();
    for name in ["list", "enable", "execute", "executions"] {
        let name = format!("omniroute_skills_{name}");
        assert!(tools.iter().any(|tool| tool["name"] == name), "{name}: {answer}");
    }
    let code = json!({"name": "run_code", "arguments": {"code": "print(1)"}});
    let (_, answer) = ask(&gateway, "tools/call", &code).await;
    assert_eq!(answer["result"]["isError"], true, "the hub runs nothing: {answer}");
    until("the run is reported", async || {
        let last = hub.asked.reported().pop();
        last.is_some_and(|last| last["status"] == "error")
    })
    .await;
    let reported = hub.asked.reported();
    assert_eq!(
        (&reported[0]["tool"], &reported[0]["input"]["code"]),
        (&json!("run_code"), &json!("print(1)"))
    );

    // By whom: who asks for its history is whom its runs are reported for, and no credential goes further.
    let base = gateway.url.strip_suffix("/v1").unwrap().to_owned();
    hub.asked.take();
    for key in [None, Some("sk-of-the-client")] {
        let mut asking = client().get(format!("{base}/api/skills/executions?limit=5"));
        if let Some(key) = key {
            asking = asking.bearer_auth(key);
        }
        let asking = asking.header("x-knack-client", "somebody-else");
        assert_eq!(asking.send().await.unwrap().status(), 200);
    }
    let (_, called) = ask(
        &gateway,
        "tools/call",
        &json!({"name": "omniroute_skills_executions", "arguments": {}}),
    )
    .await;
    assert_eq!(called["result"]["isError"], false, "{called}");
    let got = hub.asked.take();
    assert_eq!(got.len(), 3);
    for (_, headers, _) in &got {
        let client = headers["x-knack-client"].to_str().unwrap();
        assert!(
            client.len() == 64 && headers["authorization"] == "Bearer a token",
            "{headers:?}"
        );
    }
    let of = |at: usize| got[at].1["x-knack-client"].to_str().unwrap();
    assert_eq!(of(2), reported[0]["caller"], "the same client");
    assert!(of(1) != of(2), "another credential");

    // An argument is a part of the path, and leads to no other one.
    let enable = json!({"name": "omniroute_skills_enable", "arguments": {"skillId": "..", "enabled": true}});
    let (_, called) = ask(&gateway, "tools/call", &enable).await;
    assert_eq!(called["result"]["isError"], true, "{called}");
    assert!(called.to_string().contains("has a dot segment"), "{called}");

    programs_run_tools_here(&gateway, &hub, &base).await;
}

/// Runs for programs: by the gateway, which has the skills and the hub.
async fn programs_run_tools_here(gateway: &Gateway, hub: &Hub, base: &str) {
    let run = |body: Value| {
        let asking = client().post(format!("{base}/api/skills/executions"));
        asking.header("content-type", "application/json").body(body.to_string())
    };
    for (request, status, text) in [
        (run(json!({"skillName": "steady"})), 400, "declares no tool"),
        (run(json!({"skillName": "stead"})), 404, "Skill not found"),
        (
            run(json!({"skillName": "steady"})).header("idempotency-key", "a"),
            // The hub has not sent the secret of callers' identities: another replica would not find what this one claims.
            503,
            "does not answer this gateway at this moment",
        ),
    ] {
        let answer = request.send().await.unwrap();
        let (found, body) = (answer.status(), answer.text().await.unwrap());
        assert!(found == status && body.contains(text), "{found} {body}");
    }
    assert!(hub.asked.take().is_empty(), "the registry is not asked to run anything");
    let (_, metrics) = gateway.probe("metrics").await;
    assert!(
        metrics.contains("\nknack_executions_history_dropped_total 0\n"),
        "{metrics}"
    );
}

/// A version that is not the default is an object of its own on a cluster, and is named by the name of the skill.
#[tokio::test]
async fn programs_and_mcp_clients_run_the_version_that_they_name() {
    let (folder, model, mut hub) = cluster(&[("token", "a token")]).await;
    for version in ["1.0.0", "1.2.0", "2.0.0"] {
        hub.release(version);
    }
    hub.start();
    let more = [("KNACK_MCP", "true"), ("KNACK_REGISTRY", hub.url.as_str())];
    let mut gateway = Gateway::start(folder.path(), &model.url, &hub.url, &more);
    gateway.healthy().await;
    // The fourth is the one without a number that every such hub has.
    until("the versions are served", async || {
        gateway.ready().await.1.contains("skills=4")
    })
    .await;
    let base = gateway.url.strip_suffix("/v1").unwrap();
    for (member, reference, expected) in [
        ("skillName", "steady", Ok("2.0.0")),
        ("skillName", "steady@^1", Ok("1.2.0")),
        ("skillName", "steady@1.0.0", Ok("1.0.0")),
        ("skillName", "team/steady@~1.0", Ok("1.0.0")),
        ("skillName", "steady-v2", Ok("1.0.0")),
        ("skillId", "skill_knack_u", Ok("2.0.0")),
        ("skillId", "skill_knack_u:2", Ok("1.0.0")),
        ("skillId", "skill_knack_u:^1", Ok("1.2.0")),
        ("skillName", "steady@^3", Err(404)),
        ("skillName", "stead@^1", Err(404)),
    ] {
        let body = json!({member: reference, "input": {}});
        let asking = client().post(format!("{base}/api/skills/executions"));
        let asking = asking.header("content-type", "application/json").body(body.to_string());
        let answer = asking.send().await.unwrap();
        let status = answer.status().as_u16();
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(status, expected.err().unwrap_or(200), "{reference}: {answer}");
        let version = |answer: &Value| answer["execution"]["skillVersion"].as_str().map(str::to_owned);
        assert_eq!(version(&answer).as_deref(), expected.ok(), "{reference}: {answer}");
        let call = json!({"name": "omniroute_skills_execute", "arguments": body});
        let (_, called) = ask(&gateway, "tools/call", &call).await;
        assert_eq!(called["result"]["isError"], expected.is_err(), "{reference}: {called}");
        let text = called["result"]["content"][0]["text"].as_str().unwrap();
        let answer = serde_json::from_str(text).unwrap();
        assert_eq!(version(&answer).as_deref(), expected.ok(), "{reference}: {called}");
    }
}
