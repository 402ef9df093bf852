//! A skill that is deleted while a model works with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::program::{Program, folder};

/// A model that calls a skill in two rounds, between which the skill is deleted by its own client.
#[derive(Debug, Default)]
struct Model {
    /// Address of the gateway, and the path of the skill there.
    gateway: OnceLock<(String, String)>,
    asked: AtomicUsize,
    deleted: OnceLock<u16>,
}

async fn answer(State(model): State<Arc<Model>>, body: String) -> axum::Json<Value> {
    let body: Value = serde_json::from_str(&body).unwrap();
    let round = model.asked.fetch_add(1, Ordering::SeqCst) + 1;
    let (url, path) = model.gateway.get().unwrap();
    if round == 2 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let gone = client
            .delete(format!("{url}{path}"))
            .bearer_auth("one")
            .send()
            .await
            .unwrap();
        model.deleted.set(gone.status().as_u16()).unwrap();
    }
    let names = body["tools"].as_array().into_iter().flatten();
    let tool = names
        .filter_map(|tool| tool["function"]["name"].as_str())
        .find(|name| name.contains("upside"));
    let message = match (round, tool) {
        (1 | 2, Some(tool)) => {
            let arguments = json!({"text": format!("abc{round}")}).to_string();
            let call = json!({"id": format!("call_{round}"), "type": "function", "function": {"name": tool, "arguments": arguments}});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
        (3, _) => json!({"role": "assistant", "content": body["messages"].to_string()}),
        _ => json!({"role": "assistant", "content": tool.unwrap_or("no such tool")}),
    };
    let end = if message["tool_calls"].is_array() {
        "tool_calls"
    } else {
        "stop"
    };
    axum::Json(
        json!({"id": format!("r{round}"), "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": end}]}),
    )
}

#[tokio::test]
async fn a_request_runs_the_version_that_it_began_with_to_its_end() {
    let model = Arc::new(Model::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&model));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let registry = tempfile::tempdir().unwrap();
    let arguments = [
        "--upstream-openai",
        &provider,
        "--registry",
        registry.path().to_str().unwrap(),
    ];
    let program = Program::start(folder(&[("skills/README", "")]), &arguments, &[]).await;
    let install = json!({
        "name": "upside", "version": "1.0.0", "description": "Reverses.",
        "handlerCode": "def handler(text):\n    return {'reversed': text[::-1]}\n",
        "schema": {"input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    });
    let key = [("authorization", "Bearer one")];
    let installed: Value = serde_json::from_str(&program.post("/api/skills/install", &install, &key).await).unwrap();
    let path = format!("/api/skills/{}", installed["id"].as_str().unwrap());
    model.gateway.set((program.url.clone(), path)).unwrap();

    let ask = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "reverse it"}]});
    let said = program.post("/v1/chat/completions", &ask, &key).await;
    assert_eq!(model.deleted.get(), Some(&200));
    for reversed in ["1cba", "2cba"] {
        assert!(said.contains(reversed), "{reversed}: {said}");
    }
    // The next request has no such skill.
    let said = program.post("/v1/chat/completions", &ask, &key).await;
    assert!(said.contains("no such tool"), "{said}");
}
