//! The MCP server over real HTTP: what it offers is what models get, calls run in the real sandbox, and each bound holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use knack_gateway::callers::client_auth::{ClientAccess, ClientAuth};
use knack_gateway::callers::tenants::Tenants;
use knack_gateway::catalog::remote::Blobs;
use knack_gateway::http_server::budget::BodyTimes;
use knack_gateway::telemetry::timeline::Step;
use knack_memory::MemoryBudget;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::observed::Observed;
use super::support::{ALWAYS, Answer, LISTED, Running, Start, client, hub_that_is_away, read, start, write};

mod cancelled;
mod lines;

/// A skill that requests must name, with a declared tool that prints its arguments.
const STATS: &str = "---\nname: stats\ndescription: Counts words. Use when somebody counts.\nactivation: OnRequest\ntools:\n  \
    - name: count\n    description: Counts.\n    command: [python3, count.py]\n    parameters:\n      \
    - name: text\n        description: The text.\n        required: true\n---\nCall the tool count.\n";
const COUNT: &str = "import sys\nprint(len(' '.join(sys.argv[1:]).split()), 'words')\n";

fn skills() -> Vec<(&'static str, &'static str)> {
    vec![
        ("always/SKILL.md", ALWAYS),
        ("listed/SKILL.md", LISTED),
        ("listed/a file.py", "print(1)\n"),
        ("stats/SKILL.md", STATS),
        ("stats/count.py", COUNT),
    ]
}

/// A gateway with these skills and the real sandbox.
async fn running() -> Running {
    start(Start {
        skills: skills(),
        executor: Arc::new(super::runner::executor(1).await),
        ..Start::default()
    })
    .await
}

/// One JSON-RPC request, as a client of the revision 2025-06-18 sends it after its handshake.
fn request(knack: &Running, method: &str, params: &Value) -> RequestBuilder {
    request_by(&client(), &knack.url, method, params)
}

fn request_by(client: &reqwest::Client, url: &str, method: &str, params: &Value) -> RequestBuilder {
    client
        .post(format!("{url}/mcp"))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-06-18")
        .body(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string())
}

async fn send(request: RequestBuilder) -> Answer {
    read(request.send().await.unwrap()).await
}

/// The result of a request.
async fn ask(knack: &Running, method: &str, params: &Value) -> Value {
    let answer = send(request(knack, method, params)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "application/json");
    let value = answer.json();
    assert_eq!((&value["id"], value.get("error")), (&json!(7), None), "{value}");
    value["result"].clone()
}

async fn call(knack: &Running, tool: &str, arguments: &Value) -> Value {
    ask(knack, "tools/call", &json!({"name": tool, "arguments": arguments})).await
}

/// The text of a result, and whether it is an error.
fn said(result: &Value) -> (&str, bool) {
    (
        result["content"][0]["text"].as_str().unwrap(),
        result["isError"].as_bool().unwrap(),
    )
}

#[tokio::test]
async fn a_client_is_offered_the_tools_and_texts_that_models_get() {
    let knack = running().await;
    let params =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let opened = ask(&knack, "initialize", &params).await;
    assert_eq!(opened["protocolVersion"], "2025-06-18");
    assert_eq!(opened["serverInfo"]["name"], "knack");
    assert_eq!(opened["capabilities"]["tools"], json!({}), "no listChanged");
    let tools = ask(&knack, "tools/list", &json!({})).await["tools"].clone();
    let mut offered = BTreeMap::new();
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap().to_owned();
        offered.insert(name, (tool["description"].clone(), tool["inputSchema"].clone()));
    }
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    knack
        .send(knack.chat(&body).header("x-knack-skills", "listed,stats"))
        .await;
    let upstream = knack.upstream();
    let sent = upstream["tools"].as_array().unwrap().iter().map(|tool| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap().to_owned();
        (name, (function["description"].clone(), function["parameters"].clone()))
    });
    assert_eq!(offered, sent.collect());
    assert!(offered.contains_key("stats__count"), "{offered:?}");
    // Without naming, as a host's model is told at the start.
    knack.send(knack.chat(&body)).await;
    assert_eq!(knack.upstream()["messages"][0]["content"], opened["instructions"]);
}

#[tokio::test]
async fn a_call_has_one_id_everywhere_and_its_run_is_a_step() {
    let knack = running().await;
    for (name, status) in [("run_code", Some("success")), ("no_such_tool", None)] {
        let params = json!({"name": name, "arguments": {"code": "print(1)"}});
        let answer = send(request(&knack, "tools/call", &params)).await;
        let id = answer.headers["x-knack-request-id"].to_str().unwrap();
        let report = knack.gateway.recent.find(id).unwrap();
        let [Step::Call { tool, failed, run, .. }] = &report.steps[..] else {
            panic!("{:?}", report.steps);
        };
        assert_eq!((tool.as_str(), *failed), (name, Some(status.is_none())));
        assert_eq!(run.as_ref().map(|run| run.status.as_str()), status);
        assert!(knack.lines.text().contains(id));
    }
}

#[tokio::test]
async fn calls_run_in_the_sandbox_and_their_files_come_back() {
    let knack = running().await;
    let counted = call(&knack, "stats__count", &json!({"text": "one two three"})).await;
    let (text, is_error) = said(&counted);
    assert!(text.contains('3') && text.contains("words") && !is_error, "{counted}");
    let code = "open('a.png','wb').write(b'png'); open('b c.csv','w').write('x,y'); open('big.bin','wb').write(b'z' * (800 << 10))";
    let made = call(&knack, "run_code", &json!({"code": code})).await;
    let (text, is_error) = said(&made);
    assert!(!is_error && text.contains("big.bin"), "{text}");
    let content = made["content"].as_array().unwrap();
    assert_eq!(content.len(), 3, "the large file is only named: {text}");
    assert_eq!(
        content[1],
        json!({"type": "image", "data": STANDARD.encode("png"), "mimeType": "image/png"})
    );
    let resource = &content[2]["resource"];
    assert_eq!(
        (&resource["blob"], &resource["mimeType"]),
        (&json!(STANDARD.encode("x,y")), &json!("text/csv"))
    );
    // Its URI is where it can be read again, as is that of the large one.
    let url = resource["uri"].as_str().unwrap();
    assert_eq!(send(client().get(url)).await.text, "x,y");
    let large = send(client().get(url.replace("b%20c.csv", "big.bin"))).await;
    assert_eq!((large.status, large.text.len()), (200, 800 << 10));
    // The next call has another work directory.
    let later = call(
        &knack,
        "run_code",
        &json!({"code": "import os; print(sorted(os.listdir()))"}),
    )
    .await;
    assert!(!said(&later).0.contains("a.png"), "{later}");
    let lines = knack.told("200 mcp run_code").await;
    assert!(
        lines.contains("200 mcp stats__count | ") && lines.contains("default/stats: success"),
        "{lines}"
    );
    assert!(knack.gateway.metrics_text().contains("format=\"mcp\""));
}

#[tokio::test]
async fn skills_are_loaded_and_mistakes_are_reported_to_the_model() {
    let knack = running().await;
    for (tool, arguments, expected, is_error) in [
        ("load_skill", json!({"skill": "stats"}), "Call the tool count.", false),
        (
            "load_skill",
            json!({"skill": "listed", "path": "a file.py"}),
            "print(1)\n",
            false,
        ),
        ("load_skill", json!({"skill": "lister"}), "No skill \"lister\"", true),
        (
            "stats__count",
            json!({"word": 1, "line": 2}),
            "do not match its schema",
            true,
        ),
        ("stats__count", json!({}), "nothing ran", true),
        ("make_coffee", json!({}), "No tool \"make_coffee\".", true),
        ("run_code", json!({"code": "raise SystemExit(3)"}), "exit 3", true),
    ] {
        let result = call(&knack, tool, &arguments).await;
        let (text, marked) = said(&result);
        assert!(
            text.contains(expected) && marked == is_error,
            "{tool} {arguments}: {result}"
        );
    }
}

#[tokio::test]
async fn every_file_is_a_resource_with_its_digest() {
    let knack = running().await;
    let listed = ask(&knack, "resources/list", &json!({})).await;
    let resources = listed["resources"].as_array().unwrap();
    let uris: Vec<&str> = resources
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap())
        .collect();
    let expected = [
        ("skill://always/SKILL.md", ALWAYS),
        ("skill://listed/SKILL.md", LISTED),
        ("skill://listed/a%20file.py", "print(1)\n"),
        ("skill://stats/SKILL.md", STATS),
        ("skill://stats/count.py", COUNT),
    ];
    assert_eq!(uris, expected.map(|(uri, _)| uri));
    for (resource, (uri, text)) in resources.iter().zip(expected) {
        let digest = format!("sha256:{}", knack_skill::digest::sha256(text));
        assert_eq!(resource["_meta"], json!({"knack.dev/digest": digest}), "{uri}");
        assert_eq!(resource["size"], text.len(), "{uri}");
        let read = ask(&knack, "resources/read", &json!({"uri": uri})).await;
        assert_eq!(read["contents"][0]["text"], text, "{uri}");
        assert_eq!(read["contents"][0]["mimeType"], resource["mimeType"], "{uri}");
    }
    for uri in [
        "skill://stats/none.py",
        "skill://stats/../listed/SKILL.md",
        "file:///etc/passwd",
    ] {
        let answer = send(request(&knack, "resources/read", &json!({"uri": uri})))
            .await
            .json();
        assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
    }
    // The skills extension: a manifest per skill.
    let skills = ask(&knack, "skills/list", &json!({})).await["skills"].clone();
    assert_eq!(skills.as_array().unwrap().len(), 3);
    let uri = "skill://listed/SKILL.md";
    let skill = ask(&knack, "skills/get", &json!({"uri": uri})).await["skill"].clone();
    assert_eq!(skill["frontmatter"]["name"], "listed");
    assert_eq!(
        skill["resources"][1]["digest"],
        resources[2]["_meta"]["knack.dev/digest"]
    );
}

#[tokio::test]
async fn a_changed_catalog_is_served_to_the_next_request() {
    let knack = running().await;
    let count = || async {
        ask(&knack, "resources/list", &json!({})).await["resources"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(count().await, 5);
    write(&knack.folder.path().join("skills"), "listed/more.txt", "more");
    let begun = Instant::now();
    while count().await != 6 {
        assert!(begun.elapsed() < Duration::from_mins(1), "the new file is not listed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_runtime_decides_what_is_offered() {
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {suspend: true}\n";
    let denying = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {maxActivation: Always, sandbox: {modelCode: Deny}}\n";
    for (runtime, offered, resources) in [(runtime, &[][..], 0), (denying, &["load_skill", "stats__count"][..], 5)] {
        let mut skills = skills();
        skills.push(("runtime.yaml", runtime));
        let knack = start(Start {
            skills,
            ..Start::default()
        })
        .await;
        let tools = ask(&knack, "tools/list", &json!({})).await["tools"].clone();
        let names: Vec<&str> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, offered, "{runtime}");
        let listed = ask(&knack, "resources/list", &json!({})).await["resources"].clone();
        assert_eq!(listed.as_array().unwrap().len(), resources, "{runtime}");
        let code = call(&knack, "run_code", &json!({"code": "1"})).await;
        assert_eq!(said(&code), ("No tool \"run_code\".", true), "{runtime}");
    }
}

#[tokio::test]
async fn web_pages_and_other_methods_are_refused() {
    let knack = running().await;
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("host", "evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let answer = send(request(&knack, "tools/list", &json!({})).header(name, value)).await;
        assert_eq!(answer.status, 403, "{name}: {}", answer.text);
    }
    let local = send(request(&knack, "tools/list", &json!({})).header("origin", "http://localhost:6274")).await;
    assert_eq!(local.status, 200, "a page of this machine, such as the MCP Inspector");
    for path in ["/mcp", "/mcp/"] {
        assert_eq!(
            send(client().get(format!("{}{path}", knack.url))).await.status,
            405,
            "{path}"
        );
    }
    let large = json!({"name": "run_code", "arguments": {"code": "#".repeat(5 << 20)}});
    assert_eq!(send(request(&knack, "tools/call", &large)).await.status, 413);
}

/// What the transport refuses is JSON-RPC, too, so that clients can read why.
#[tokio::test]
async fn body_that_is_no_request_is_refused_in_json_rpc() {
    let knack = running().await;
    let base = || request(&knack, "tools/list", &json!({}));
    let large = json!({"name": "run_code", "arguments": {"code": "#".repeat(5 << 20)}});
    for (what, request, status, code, id) in [
        ("no JSON", base().body("{"), 400, -32700, Value::Null),
        ("nothing", base().body(""), 400, -32700, Value::Null),
        ("no message", base().body(r#"{"id": 3}"#), 400, -32600, json!(3)),
        ("a batch", base().body("[]"), 400, -32600, Value::Null),
        (
            "too large",
            request(&knack, "tools/call", &large),
            413,
            -32000,
            Value::Null,
        ),
        (
            "another type",
            client()
                .post(format!("{}/mcp", knack.url))
                .header("accept", "application/json, text/event-stream")
                .header("content-type", "text/plain")
                .body("{}"),
            415,
            -32000,
            Value::Null,
        ),
        (
            "no events",
            client()
                .post(format!("{}/mcp", knack.url))
                .header("accept", "application/json")
                .header("content-type", "application/json")
                .body("{}"),
            406,
            -32000,
            Value::Null,
        ),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        assert!(answer.headers.contains_key("x-knack-request-id"), "{what}");
        let value = answer.json();
        assert_eq!(
            (&value["jsonrpc"], &value["id"], &value["error"]["code"]),
            (&json!("2.0"), &id, &json!(code)),
            "{what}: {value}"
        );
        assert!(!value["error"]["message"].as_str().unwrap().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_as_such() {
    let knack = running().await;
    for (method, params, code) in [
        ("resources/list", json!({"cursor": "zzz"}), -32602),
        ("resources/list", json!({"cursor": "a"}), -32602),
        ("resources/list", json!({"cursor": 5}), -32602),
        ("skills/list", json!({"cursor": ""}), -32602),
        ("skills/list", json!({"cursor": ["skill://a"]}), -32602),
        ("tools/list", json!({"cursor": "skill://a"}), -32602),
        ("skills/get", json!({}), -32602),
        ("resources/read", json!({"uri": 5}), -32602),
        ("tools/call", json!({}), -32602),
        ("skills/put", json!({}), -32601),
    ] {
        let answer = send(request(&knack, method, &params)).await;
        assert_eq!(
            answer.json()["error"]["code"],
            code,
            "{method} {params}: {}",
            answer.text
        );
    }
    // One that a page may have ended with.
    let listed = ask(&knack, "resources/list", &json!({"cursor": "skill://listed/SKILL.md"})).await;
    assert_eq!(listed["resources"].as_array().unwrap().len(), 3, "{listed}");
    for params in [json!({}), json!({"cursor": null})] {
        assert_eq!(
            ask(&knack, "resources/list", &params).await["resources"]
                .as_array()
                .unwrap()
                .len(),
            5
        );
    }
}

/// The values of a list of numbers take many times the memory of its text, and are made before anybody looks at them.
#[tokio::test]
async fn a_request_of_very_many_values_is_refused() {
    let knack = running().await;
    let arguments = json!({"skill": vec![0; 1_000_000]});
    let params = json!({"name": "load_skill", "arguments": arguments});
    let response = request(&knack, "tools/call", &params).send().await.unwrap();
    assert_eq!(response.status(), 400);
    let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("100000 JSON values"), "{answer}");
}

/// The body of a request that ends only at a word.
fn stalling(mut ends: watch::Receiver<bool>, begun: Arc<AtomicUsize>) -> reqwest::Body {
    let begins = futures::stream::iter([Ok::<_, std::io::Error>(
        r#"{"jsonrpc": "2.0", "id": 7, "method": "tools/list""#,
    )]);
    let end = futures::stream::once(async move {
        begun.fetch_add(1, Ordering::Relaxed);
        let _ = ends.wait_for(|ends| *ends).await;
        Ok("}")
    });
    reqwest::Body::wrap_stream(begins.chain(end))
}

#[tokio::test]
async fn a_caller_has_a_bound_of_requests_at_once() {
    let patient = BodyTimes {
        arrive: Duration::from_mins(5),
        silence: Duration::from_mins(5),
    };
    let knack = start(Start {
        times: patient,
        ..Start::default()
    })
    .await;
    let client = client();
    let list = || request_by(&client, &knack.url, "tools/list", &json!({}));
    // One that is sent again after the word hears it, too.
    let open = watch::Sender::new(false);
    let sent = Arc::new(AtomicUsize::new(0));
    let mut held = Vec::new();
    for _ in 0..32 {
        let (client, url, open, sent) = (client.clone(), knack.url.clone(), open.clone(), Arc::clone(&sent));
        held.push(tokio::spawn(async move {
            loop {
                let request = request_by(&client, &url, "tools/list", &json!({}));
                let answer = request
                    .body(stalling(open.subscribe(), Arc::clone(&sent)))
                    .send()
                    .await
                    .unwrap();
                // A look at whether all places are taken took this one.
                if answer.status() != 429 {
                    return answer.status();
                }
            }
        }));
    }
    let begun = Instant::now();
    let refused = loop {
        // A place that this took from one of them is back only when the refused one's body was given up.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < Duration::from_mins(3), "not all places are taken");
        if sent.load(Ordering::Relaxed) < 32 {
            continue;
        }
        let answer = send(list()).await;
        if answer.status == 429 {
            break answer;
        }
    };
    assert_eq!(refused.headers["retry-after"], "1");
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("Too many requests"), "{message}");
    let other = list().bearer_auth("another-key");
    assert_eq!(send(other).await.status, 200, "another caller has its own");
    open.send_replace(true);
    for held in held {
        assert_eq!(held.await.unwrap(), 200);
    }
    assert_eq!(send(list()).await.status, 200);
}

#[tokio::test]
async fn the_result_of_a_run_is_sent_though_there_is_no_room_for_it() {
    let observed = Observed::holding().await;
    let knack = cancelled::watched(&observed).await;
    let params = json!({"name": "run_code", "arguments": {"code": "print('kumquat')"}});
    let running = tokio::spawn(request(&knack, "tools/call", &params).send());
    observed.asked_after(0).await;
    let budget = knack.gateway.requests.process();
    let mut shares = Vec::new();
    // What the run gives back, too.
    while !running.is_finished() {
        shares.extend(budget.try_take(budget.free_bytes()));
        if shares.len() == 1 {
            observed.let_go(1);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = read(running.await.unwrap().unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.contains("kumquat"), "{}", answer.text);
}

#[tokio::test]
async fn on_a_cluster_no_web_page_calls_and_links_lead_to_where_the_client_called() {
    let knack = start(Start {
        skills: skills(),
        executor: Arc::new(super::runner::executor(1).await),
        on_cluster: true,
        ..Start::default()
    })
    .await;
    for origin in ["https://evil.example", "http://localhost:6274", "null"] {
        let answer = send(request(&knack, "tools/list", &json!({})).header("origin", origin)).await;
        assert_eq!(answer.status, 403, "{origin}: {}", answer.text);
        assert_eq!(answer.json()["error"]["code"], -32_000, "{origin}");
    }
    let code = json!({"code": "open('b.csv','w').write('x,y')"});
    let params = json!({"name": "run_code", "arguments": code});
    let host = knack.url.replace("http://127.0.0.1", "knack-gateway.knack-system.svc");
    let made = send(request(&knack, "tools/call", &params).header("host", &host))
        .await
        .json();
    let url = made["result"]["content"][1]["resource"]["uri"].as_str().unwrap();
    let path = url
        .strip_prefix(&format!("http://{host}"))
        .unwrap_or_else(|| panic!("{url}"));
    assert_eq!(send(client().get(format!("{}{path}", knack.url))).await.text, "x,y");
}

#[tokio::test]
async fn clients_are_checked_as_those_of_models_and_refused_in_json_rpc() {
    let (hub, runtime) = (hub_that_is_away(), "team/default".parse().unwrap());
    let tenants = Tenants::new(hub.clone(), runtime, Blobs::new(MemoryBudget::new(1 << 20)));
    let knack = start(Start {
        on_cluster: true,
        auth: Some(ClientAccess::Tokens(ClientAuth::new(
            hub,
            "team/default".parse().unwrap(),
            tenants,
        ))),
        ..Start::default()
    })
    .await;
    for (request, status, retry) in [
        (request(&knack, "tools/list", &json!({})), 401, None),
        (
            request(&knack, "tools/list", &json!({})).header("x-knack-client", "team/app/1"),
            401,
            None,
        ),
        (
            request(&knack, "tools/list", &json!({})).bearer_auth("token"),
            503,
            Some("1"),
        ),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(
            answer.headers.get("retry-after").map(|value| value.to_str().unwrap()),
            retry
        );
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], -32_000);
        assert!(
            error["message"].as_str().unwrap().contains("credential") || status == 401,
            "{error}"
        );
    }
    assert!(knack.lines.text().is_empty(), "nothing was called");
}
