//! Providers that are compatible to OpenAI's API, by their base URLs, paths and headers.

use std::sync::Arc;

use knack_mock_provider::{Script, spawn};
use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start};
use super::talk::events;

const SCRIPT: &str = r#"
provider: {api_key: key-a}
turns:
  - user: file
    rounds:
      - expect: {tool: run_code, system: plover}
        reply: {calls: [{tool: run_code, arguments: {code: "open('out.txt', 'w').write('made here')"}}]}
      - expect: {result: {contains: "Files for the user: out.txt"}}
        reply: {text: Written.}
"#;

/// A provider: what is configured as its base, the path of a client's request, and the path at which it has to arrive.
struct Provider {
    name: &'static str,
    base: &'static str,
    asked: &'static str,
    arrives: &'static str,
    /// The client sends its key as Azure's clients do.
    is_azure: bool,
}

const fn provider(name: &'static str, base: &'static str, asked: &'static str, arrives: &'static str) -> Provider {
    Provider {
        name,
        base,
        asked,
        arrives,
        is_azure: false,
    }
}

const fn azure(name: &'static str, base: &'static str, asked: &'static str, arrives: &'static str) -> Provider {
    Provider {
        is_azure: true,
        ..provider(name, base, asked, arrives)
    }
}

const CHAT: &str = "/v1/chat/completions";
const DEPLOYMENT: &str = "/openai/deployments/gpt-x/chat/completions?api-version=2026-10-01";

const PROVIDERS: [Provider; 10] = [
    provider("vLLM, Ollama, xAI", "/v1", CHAT, CHAT),
    provider("xAI, Responses", "/v1", "/v1/responses", "/v1/responses"),
    provider("DeepSeek", "", "/chat/completions", "/chat/completions"),
    provider("OpenRouter", "/api/v1", CHAT, "/api/v1/chat/completions"),
    provider(
        "Google's compatible endpoint",
        "/v1beta/openai",
        CHAT,
        "/v1beta/openai/chat/completions",
    ),
    provider(
        "Google's compatible endpoint of Vertex AI",
        "/v1/projects/p/locations/l/endpoints/openapi",
        CHAT,
        "/v1/projects/p/locations/l/endpoints/openapi/chat/completions",
    ),
    provider("LiteLLM's proxy", "", CHAT, CHAT),
    azure("Azure by deployment", "", DEPLOYMENT, DEPLOYMENT),
    azure(
        "Azure, Responses",
        "",
        "/openai/responses?api-version=2026-10-01",
        "/openai/responses?api-version=2026-10-01",
    ),
    azure("Azure, v1", "/openai/v1", CHAT, "/openai/v1/chat/completions"),
];

/// A request of a client of this provider, with a key.
fn sign(request: reqwest::RequestBuilder, provider: &Provider, key: &str) -> reqwest::RequestBuilder {
    if provider.is_azure {
        request.header("api-key", key)
    } else {
        request.bearer_auth(key)
    }
}

async fn ask(knack: &Running, provider: &Provider, stream: bool) -> Answer {
    let body = if provider.asked.contains("/responses") {
        json!({"model": "gpt-x", "stream": stream, "input": "make a file"})
    } else {
        json!({"model": "gpt-x", "stream": stream, "messages": [{"role": "user", "content": "make a file"}]})
    };
    let request = client().post(format!("{}{}", knack.url, provider.asked));
    let request = sign(request, provider, "key-a").header("content-type", "application/json");
    knack.send(request.body(body.to_string())).await
}

/// The id of an answer.
fn id(answer: &Answer, stream: bool) -> String {
    let first = if stream {
        events(&answer.text).remove(0)
    } else {
        answer.json()
    };
    let of = |value: &Value| value["id"].as_str().map(str::to_owned);
    of(&first).or_else(|| of(&first["response"])).unwrap()
}

/// A skill runs with each; every round arrives where the provider is, with the client's own key, which is what tells one
/// caller from another.
#[tokio::test]
async fn a_skill_runs_with_every_compatible_provider_and_callers_are_kept_apart() {
    let executor = Arc::new(super::runner::executor(1).await);
    for provider in PROVIDERS {
        let mock = spawn(Script::parse(SCRIPT).unwrap()).await.unwrap();
        let knack = start(Start {
            upstream: Some(format!("{}{}", mock.url, provider.base)),
            executor: executor.clone(),
            ..Start::default()
        })
        .await;
        let name = provider.name;
        for stream in [false, true] {
            let answer = ask(&knack, &provider, stream).await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text);
            assert!(answer.text.contains("Written"), "{name}: {}", answer.text);
            assert!(!answer.text.contains("run_code"), "{name}: {}", answer.text);
            let url = format!("{}/knack/v1/responses/{}/files/out.txt", knack.url, id(&answer, stream));
            for (key, status) in [("key-a", 200), ("key-b", 404)] {
                let file = knack.send(sign(client().get(&url), &provider, key)).await;
                assert_eq!(file.status, status, "{name}, {key}: {}", file.text);
            }
        }
        let requests = mock.handle.requests();
        assert_eq!(requests.len(), 4, "{name}: two rounds each");
        for request in requests {
            assert_eq!(request.path, provider.arrives, "{name}");
        }
        assert_eq!(mock.handle.failures(), Vec::<String>::new(), "{name}");
    }
}
