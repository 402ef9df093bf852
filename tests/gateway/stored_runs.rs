//! Runs that a client was shown as shell items and sends back: what is read by id has them as it sent them, although the
//! provider was sent calls and results.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::code_tools::code_tool;
use super::stored::{Keeping, said};
use super::support::{Running, Start, start};
use super::talk::Format;

/// The provider has no tool that runs programs.
const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: compute
    rounds:
      - reply: {thinking: I compute., text: I compute., calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: run_code, arguments: {code: "print(2)"}}]}
      - expect: {results: 2}
        reply: {calls: [{tool: load_skill, arguments: {skill: listed}}, {tool: run_code, arguments: {code: "print(3)"}}]}
      - reply: {text: "It is 42."}
  - user: mixed
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - expect: {results: 2}
        reply: {text: "All."}
  - user: and then
    rounds:
      - reply: {text: "I remember."}
"#;

async fn without_code_tools() -> Running {
    start(Start {
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::OpenAi],
        ..Start::default()
    })
    .await
}

/// A request with a shell and a tool of the client's.
fn asking(input: &Value) -> Value {
    let weather = json!({"type": "function", "name": "get_weather", "parameters": {"type": "object"}});
    json!({"input": input, "tools": [code_tool(Format::Responses), weather]})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn kinds(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["type"].as_str().unwrap_or("message"))
        .collect()
}

/// An answer lists these items, in pages of any size and both orders. What has no id gets one of the provider's.
async fn lists(client: &Keeping<'_>, id: &Value, sent: &[Value]) {
    for (order, limit) in [("asc", 1), ("asc", 2), ("asc", 100), ("desc", 1), ("desc", 3)] {
        let mut listed = client.listed(id, order, limit).await;
        if order == "desc" {
            listed.reverse();
        }
        assert_eq!(kinds(&listed), kinds(sent), "{order}, {limit}");
        for (listed, sent) in listed.iter().zip(sent) {
            if sent["id"].is_string() {
                assert_eq!(listed, sent, "{order}, {limit}");
            } else {
                assert_eq!(said(listed), said(sent), "{order}, {limit}");
            }
        }
    }
}

#[tokio::test]
async fn runs_are_listed_as_the_client_sent_them() {
    let (knack, restarted) = (without_code_tools().await, without_code_tools().await);
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let answer = client.ask(asking(&json!("please compute"))).await;
        let output = answer["output"].as_array().unwrap();
        assert_eq!(
            kinds(output)[2..],
            [
                "shell_call",
                "shell_call",
                "shell_call_output",
                "shell_call_output",
                "shell_call",
                "shell_call_output",
                "message"
            ]
        );
        let (status, text) = client.get(&answer["id"], "").await;
        assert_eq!((status, &serde_json::from_str::<Value>(&text).unwrap()), (200, &answer));
        let mut sent = vec![user("please compute")];
        sent.extend(output.iter().cloned());
        sent.push(user("and then?"));
        let next = client.ask(asking(&json!(sent))).await;
        assert!(knack.upstream()["input"].to_string().contains("load_skill"));
        lists(&client, &next["id"], &sent).await;
        // Clients may leave out what is optional in a request.
        let mut bare = sent.clone();
        for item in bare
            .iter_mut()
            .filter(|item| item["type"].as_str().is_some_and(|kind| kind.starts_with("shell")))
        {
            let members = item.as_object_mut().unwrap();
            members.remove("id");
            members.remove("status");
        }
        let next = client.ask(asking(&json!(bare))).await;
        lists(&client, &next["id"], &sent).await;
        // The saved turn of the first answer is lost.
        let client = Keeping {
            knack: &restarted,
            stream,
        };
        let next = client.ask(asking(&json!(sent))).await;
        assert!(!restarted.upstream()["input"].to_string().contains("load_skill"));
        lists(&client, &next["id"], &sent).await;
    }
    for knack in [knack, restarted] {
        assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    }
}

/// The client is shown its call first, and the model made it last.
#[tokio::test]
async fn runs_beside_calls_of_the_client_are_listed_in_the_clients_order() {
    let knack = without_code_tools().await;
    for stream in [false, true] {
        let client = Keeping { knack: &knack, stream };
        let answer = client.ask(asking(&json!("mixed"))).await;
        let output = answer["output"].as_array().unwrap();
        assert_eq!(kinds(output), ["function_call", "shell_call", "shell_call_output"]);
        let mut sent = vec![user("mixed")];
        sent.extend(output.iter().cloned());
        sent.push(json!({"type": "function_call_output", "call_id": output[0]["call_id"], "output": "-3 C"}));
        let next = client.ask(asking(&json!(sent))).await;
        assert_eq!(next["output"][0]["content"][0]["text"], "All.");
        lists(&client, &next["id"], &sent).await;
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// What is remembered of an answer is bounded: none of the runs is listed, and everything else is.
#[tokio::test]
async fn runs_that_are_too_large_are_not_listed() {
    let knack = without_code_tools().await;
    let client = Keeping {
        knack: &knack,
        stream: false,
    };
    let call = json!({"type": "shell_call", "call_id": "call_knack_1", "action": {"commands": ["ls"]}});
    let output = |stdout: &str| {
        let outcome = json!({"type": "exit", "exit_code": 0});
        let output = json!([{"stdout": stdout, "stderr": "", "outcome": outcome}]);
        json!({"type": "shell_call_output", "call_id": "call_knack_1", "output": output})
    };
    for (stdout, shown) in [("a".to_owned(), 4), ("a".repeat(128 << 10), 2)] {
        let sent = [user("compute"), call.clone(), output(&stdout), user("and then?")];
        let answer = client.ask(asking(&json!(sent))).await;
        for limit in [1, 100] {
            assert_eq!(client.listed(&answer["id"], "asc", limit).await.len(), shown);
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}
