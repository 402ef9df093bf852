//! Chat completions that the provider stores: every replica of a gateway shows them as their client was shown them.

use cluster_support::run;
use knack_mock_provider::{Script, spawn};
use serde_json::{Value, json};

use super::gateway_replicas::{KNOWN, Replica, owned, until};
use super::support::{Installation, SOON};

const SCRIPT: &str = r#"
turns:
  - user: add
    rounds:
      - reply: {text: I look it up., calls: [{tool: run_code, arguments: {code: "print(2 + 3)"}}]}
      - reply: {text: "It is 5."}
  - user: mixed
    rounds:
      - when: {results: 0}
        reply: {text: Both., calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {}
        expect: {results: 2, result: "42"}
        reply: {text: "All is known."}
"#;
const KEY: &str = "sk-of-the-client";

/// Says it through a replica, to a provider that stores the answer; returns the answer.
async fn ask(replica: &Replica, messages: &Value) -> Value {
    let weather = json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}});
    let body = json!({"model": "gpt-x", "store": true, "messages": messages, "tools": [weather]});
    let request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{}/v1/chat/completions", replica.port))
        .bearer_auth(KEY)
        .header("content-type", "application/json")
        .timeout(SOON)
        .body(body.to_string());
    let response = request.send().await.unwrap();
    let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// What a client was shown of an answer.
fn shown(answer: &Value) -> Value {
    let choice = &answer["choices"][0];
    json!({"id": answer["id"], "message": choice["message"], "finish": choice["finish_reason"], "usage": answer["usage"]})
}

async fn read(replica: &Replica, behind: &str) -> Value {
    let (status, text) = replica.get(&format!("/v1/chat/completions{behind}"), KEY).await;
    assert_eq!(status, 200, "{text}");
    assert!(!text.contains("run_code"), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A turn that ends in the client's call is found by three keys: of the conversation, of the call, and of its id.
#[test]
fn a_stored_completion_is_read_through_another_replica_as_it_was_shown() {
    run(
        "a_stored_completion_is_read_through_another_replica_as_it_was_shown",
        async |cluster| {
            let installation = Installation::start(cluster, 1, json!({})).await;
            let hub = installation.tenant(0).await;
            installation
                .skill(&installation.tenants[0], "steady", "print('x')")
                .await;
            installation.served(&hub, "steady").await;
            owned(&installation, &hub).await;
            let mock = spawn(Script::parse(SCRIPT).unwrap()).await.unwrap();
            let one = Replica::start(&installation, &mock, "one", 0).await;
            let two = Replica::start(&installation, &mock, "two", 0).await;

            // A loop: its turn, its id, and its second round.
            let added = ask(&one, &json!([{"role": "user", "content": "add"}])).await;
            until(two.probes, KNOWN, 3).await;
            // A turn of both: its turn, and its id.
            let mut messages = json!([{"role": "user", "content": "mixed"}]);
            let mixed = ask(&one, &messages).await;
            until(two.probes, KNOWN, 5).await;
            let message = &mixed["choices"][0]["message"];
            let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "-3 C"});
            messages.as_array_mut().unwrap().extend([message.clone(), result]);
            let done = ask(&two, &messages).await;
            assert_eq!(done["choices"][0]["message"]["content"], "All is known.");
            until(one.probes, KNOWN, 6).await;
            assert_eq!((mock.handle.refusals(), mock.handle.failures()), (vec![], vec![]));

            for replica in [&two, &one] {
                let all: Vec<Value> = [&added, &mixed, &done].map(shown).into();
                let listed = read(replica, "").await;
                let listed: Vec<Value> = listed["data"].as_array().unwrap().iter().map(shown).collect();
                assert_eq!(listed, all);
                for answer in &all {
                    let id = answer["id"].as_str().unwrap();
                    assert_eq!(&shown(&read(replica, &format!("/{id}")).await), answer);
                }
                let asked = read(replica, &format!("/{}/messages", done["id"].as_str().unwrap())).await;
                let roles = asked["data"].as_array().unwrap().iter().map(|one| &one["role"]);
                assert_eq!(roles.collect::<Vec<_>>(), ["user", "assistant", "tool"]);
            }
        },
    );
}
