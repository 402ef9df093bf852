//! The log of `knack dev`: no content at any level, and one id for each request.

use serde_json::{Value, json};

use super::program::{Program, folder};

/// In prompts, code, arguments, results, addresses and granted values; never in the log.
const SECRET: &str = "plover-5531";
const SKILL: &str = "---\nname: given\ndescription: Prints what it is given.\ntool_env: [TOKEN]\ntools:\n  - name: show\n    \
    description: Shows.\n    command: [python3, scripts/show.py]\n    parameters:\n      \
    - {name: text, description: A text., required: true}\n---\nCall show.\n";
const SHOW: &str = "import os, sys\nprint(os.environ.get('TOKEN'), sys.argv)\n";

/// An MCP request; the id of its answer, and the answer.
async fn mcp(program: &Program, method: &str, params: Value) -> (String, Value) {
    let request = program
        .client
        .post(format!("{}/mcp", program.url))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-06-18")
        .body(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string());
    let answer = request.send().await.unwrap();
    let id = answer.headers()["x-knack-request-id"].to_str().unwrap().to_owned();
    (id, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

#[tokio::test]
async fn no_level_of_the_log_has_contents_and_every_id_of_an_answer_is_in_it() {
    for level in ["debug", "trace"] {
        let files = [("skills/given/SKILL.md", SKILL), ("skills/given/scripts/show.py", SHOW)];
        let environment = [("KNACK_LOG", level), ("TOKEN", SECRET)];
        let arguments = [
            "--upstream",
            "mock",
            "--registry",
            "registry",
            "--allow-env",
            "given:TOKEN",
        ];
        let mut program = Program::start_logged(folder(&files), &arguments, &environment).await;
        let prompt = json!({"model": "gpt-x", "messages": [{"role": "user", "content": SECRET}]});
        program.post("/v1/chat/completions", &prompt, &[]).await;
        let code = json!({"name": "run_code", "arguments": {"code": format!("print('{SECRET}')")}});
        let (ran, answer) = mcp(&program, "tools/call", code).await;
        assert!(answer["result"].to_string().contains(SECRET), "{answer}");
        let show = json!({"name": "given__show", "arguments": {"text": SECRET}});
        let (shown, answer) = mcp(&program, "tools/call", show).await;
        assert!(answer["result"].to_string().contains(SECRET), "{answer}");
        let uri = format!("skill://{SECRET}/{}", "x".repeat(700 << 10));
        let (refused, answer) = mcp(&program, "resources/read", json!({ "uri": uri })).await;
        assert!(answer["error"]["message"].as_str().unwrap().len() < 1 << 10, "{answer}");
        let listed = program
            .get("/v1/skills", &[("authorization", "Bearer sk-client")])
            .await;
        let headers = listed.headers().clone();
        let listed = headers["x-knack-request-id"].to_str().unwrap().to_owned();
        assert_eq!(headers["x-request-id"], listed.as_str());
        let line = loop {
            let line = program.line().await;
            if line.contains(" skills ") {
                break line;
            }
        };
        assert!(
            line.starts_with("200 skills GET /v1/skills | ") && line.ends_with(&listed),
            "{line}"
        );
        program.stop().await;

        let log = program.log();
        assert_eq!(log.lines().find(|line| line.contains(SECRET)), None, "{level}");
        let longest = log.lines().map(str::len).max().unwrap();
        assert!(longest < 16 << 10, "{level}: a line of {longest} bytes");
        // At trace so much is written that lines may be left out.
        let ids: &[&String] = if level == "debug" {
            &[&ran, &shown, &refused, &listed]
        } else {
            &[]
        };
        for id in ids {
            assert!(log.contains(id.as_str()), "{id} is not in the log");
        }
        assert!(ids.is_empty() || log.contains("JSON-RPC error -32"), "{log}");
    }
}
