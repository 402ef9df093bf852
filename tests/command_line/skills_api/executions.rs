//! OmniRoute's `/api/skills/executions`: what models, MCP clients and programs ran, over a restart and over a kill.

use std::time::{Duration, Instant};

use knack_registry::{Execution, read_folder};
use serde_json::{Value, json};

use super::super::gateway::PATIENCE;
use super::super::program::knack;
use super::super::{err, out};
use super::Served;

const SCRIPT: &str = r#"
turns:
  - user: reverse
    rounds:
      - expect: {tool: {contains: upside}}
        reply: {calls: [{tool: {contains: upside}, arguments: {text: abc}}]}
      - expect: {result: {contains: '{"reversed": "cba"}'}}
        reply: {text: reversed}
"#;

const CODE: &str = "import time\n\ndef handler(text):\n    if text == 'fail':\n        print('noise')\n        \
    raise ValueError('it failed')\n    \
    if text == 'wait':\n        time.sleep(60)\n    return {'reversed': text[::-1]}\n";

/// A skill that nobody may run, and what its runs would be given.
const FILE: (&str, &str) = (
    "skills/ours/SKILL.md",
    "---\nname: ours\ndescription: From a file.\nversion: 2.0.0\nactivation: Never\n---\nOurs.\n",
);

/// A skill whose tool runs longer than it may.
const SLOW: (&str, &str) = (
    "skills/slow/SKILL.md",
    "---\nname: slow\ndescription: Waits.\ntimeout_ms: 1000\ntools:\n  - name: wait\n    description: Waits.\n    command: [python3, -c, \
     'import time; time.sleep(600)']\n---\nWait.\n",
);

async fn started() -> Served {
    let served = Served::start(SCRIPT, &[FILE]).await;
    let body = json!({
        "name": "upside", "version": "1.0.0", "description": "Reverses.", "handlerCode": CODE,
        "schema": {"input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    });
    let (status, answer) = served.call("POST", "/api/skills/install", &body, "one").await;
    assert_eq!(status, 200, "{answer}");
    served
}

async fn run(served: &Served, body: Value) -> (u16, Value) {
    served.call("POST", "/api/skills/executions", &body, "one").await
}

async fn list(served: &Served, query: &str, key: &str) -> Value {
    let path = format!("/api/skills/executions{query}");
    let (status, list) = served.call("GET", &path, &Value::Null, key).await;
    assert_eq!(status, 200, "{list}");
    list
}

fn upside(text: &str) -> Value {
    json!({"skillName": "upside@^1", "input": {"text": text}, "sessionId": "s"})
}

pub(super) async fn mcp(served: &Served, method: &str, params: Value, key: &str) -> Value {
    mcp_at(served, "/mcp", (method, params), key).await
}

/// The answer to a request of MCP at an address with a query.
async fn mcp_at(served: &Served, path: &str, (method, params): (&str, Value), key: &str) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let request = served
        .client
        .post(format!("{}{path}", served.program.url))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2025-06-18")
        .body(body.to_string());
    let request = if key.is_empty() {
        request
    } else {
        request.bearer_auth(key)
    };
    let text = request.send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer["result"].clone()
}

/// Calls the skill's tool over MCP.
async fn over_mcp(served: &Served, text: &str) {
    let tools = mcp(served, "tools/list", json!({}), "one").await;
    let names = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str());
    let name = names.into_iter().find(|name| name.starts_with("upside")).unwrap();
    let called = json!({"name": name, "arguments": {"text": text}});
    let called = mcp(served, "tools/call", called, "one").await;
    assert_eq!(called["isError"], false, "{called}");
}

/// Waits until what has happened is on the disk: no run waits for that.
async fn on_disk(served: &Served, mut is_there: impl FnMut(&[Execution]) -> bool) {
    let begun = Instant::now();
    while !read_folder(served.registry.path()).is_ok_and(|read| is_there(&read.executions)) {
        assert!(begun.elapsed() < PATIENCE, "it is not on the disk");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Beside the writer, and as a file. `done` is the second of four, the newest first.
async fn a_person_reads_them(served: &Served, done: &Value) {
    on_disk(served, |all| {
        all.iter().filter(|one| one.status.has_ended()).count() == 4
    })
    .await;
    let folder = served.registry.path().to_str().unwrap();
    let work = tempfile::tempdir().unwrap();
    let table = knack(
        work.path(),
        &["history", "--registry", folder, "--status", "error", "--since", "1h"],
        &[],
    )
    .await;
    let shown = out(&table);
    assert!(
        shown.contains("upside@1.0.0") && shown.contains("it failed"),
        "{shown}{}",
        err(&table)
    );
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let exported = knack(
        work.path(),
        &["history", "--registry", folder, "--export", "all.jsonl"],
        &[],
    )
    .await;
    assert!(exported.status.success(), "{}", err(&exported));
    let lines = std::fs::read_to_string(work.path().join("all.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[2]), (4, done));
}

#[tokio::test]
async fn an_answer_has_more_of_an_output_than_the_history_stores() {
    let served = started().await;
    let text = "ö".repeat(40_000);
    let (status, answer) = run(&served, upside(&text)).await;
    assert_eq!(status, 200, "{answer}");
    let execution = &answer["execution"];
    assert_eq!(execution["output"], json!({"reversed": text}), "JSON as it was printed");
    let path = format!("/api/skills/executions/{}", execution["id"].as_str().unwrap());
    let (_, stored) = served.call("GET", &path, &Value::Null, "one").await;
    let output = stored["output"].as_str().unwrap();
    assert!(
        output.starts_with("{\"reversed\"") && output.len() <= 32 << 10,
        "{}",
        output.len()
    );
    let (_, answer) = run(&served, upside(&"a".repeat(120_000))).await;
    let output = &answer["execution"]["output"];
    assert_eq!(
        output.as_str().map(str::len),
        Some(100_000),
        "{}",
        answer["execution"]["status"]
    );
}

#[tokio::test]
async fn runs_of_models_mcp_clients_and_programs_are_in_the_history_of_their_caller() {
    let served = started().await;
    let answer = served.chat("reverse abc", "one", &[]).await;
    assert!(answer.contains("\"reversed\""), "{answer}");
    over_mcp(&served, "mcp").await;
    let (status, answer) = run(&served, upside("xyz")).await;
    assert_eq!(status, 200, "{answer}");
    let done = &answer["execution"];
    assert_eq!(
        (
            &done["status"],
            &done["output"],
            &done["sessionId"],
            &answer["replayed"]
        ),
        (
            &json!("success"),
            &json!({"reversed": "zyx"}),
            &json!("s"),
            &json!(false)
        ),
        "{answer}"
    );
    let (status, failed) = run(&served, upside("fail")).await;
    assert_eq!(
        (status, &failed["execution"]["status"]),
        (200, &json!("error")),
        "{failed}"
    );
    // The message alone: no traceback, nothing that the function printed, and no output.
    assert_eq!(
        (&failed["execution"]["errorMessage"], &failed["execution"]["output"]),
        (&json!("it failed"), &Value::Null),
        "{failed}"
    );

    let all = list(&served, "", "one").await;
    assert_eq!(
        (&all["total"], &all["limit"], &all["page"]),
        (&json!(4), &json!(50), &json!(1)),
        "{all}"
    );
    let texts: Vec<&Value> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["input"]["text"])
        .collect();
    assert_eq!(texts, ["fail", "xyz", "mcp", "abc"], "the newest first");
    for one in all["data"].as_array().unwrap() {
        assert_eq!(
            (&one["skillName"], &one["skillVersion"]),
            (&json!("upside"), &json!("1.0.0"))
        );
        assert!(
            one["durationMs"].is_u64() && one["requestId"].as_str().unwrap().len() == 36,
            "{one}"
        );
    }
    assert_eq!(all["data"][1], *done);
    let skill = all["data"][0]["skillId"].as_str().unwrap();
    for (query, total) in [
        ("?status=error".to_owned(), 1),
        (format!("?skillId={skill}&limit=2&page=2"), 4),
        ("?skillId=another".to_owned(), 0),
    ] {
        assert_eq!(list(&served, &query, "one").await["total"], total, "{query}");
    }
    // Another's are not there.
    let one = format!("/api/skills/executions/{}", done["id"].as_str().unwrap());
    assert_eq!(served.call("GET", &one, &Value::Null, "one").await, (200, done.clone()));
    assert_eq!(served.call("GET", &one, &Value::Null, "two").await.0, 404);
    assert_eq!(list(&served, "", "two").await["total"], 0);
    let (status, _) = served.call("GET", "/api/skills/executions", &Value::Null, "").await;
    assert_eq!(status, 401);

    a_person_reads_them(&served, done).await;
}

#[tokio::test]
async fn a_run_that_a_program_asks_for_is_refused_by_what_is_wrong_and_repeated_by_its_key() {
    let served = started().await;
    for (body, status, says) in [
        (json!({"skillName": "upside", "input": {}}), 400, "input"),
        (json!({"skillName": "upside", "tool": "another"}), 400, "tool"),
        (json!({"skillName": "another"}), 404, "Skill not found: another"),
        (json!({"input": {}}), 400, "skillName"),
        (json!({"skillName": "ours"}), 409, "Skill is disabled: ours@2.0.0"),
    ] {
        let (found, refused) = run(&served, body).await;
        assert_eq!(found, status, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(says), "{refused}");
    }
    assert_eq!(list(&served, "", "one").await["total"], 0, "nothing was run");
    let repeat = async |key: &str, text: &str| {
        let request = served
            .client
            .post(format!("{}/api/skills/executions", served.program.url))
            .header("idempotency-key", key)
            .header("content-type", "application/json")
            .body(upside(text).to_string());
        served.send(request, "one").await
    };
    let ((status, first), (_, second)) = (repeat("call-1", "again").await, repeat("call-1", "again").await);
    assert_eq!(
        (status, &first["replayed"], &second["replayed"]),
        (200, &json!(false), &json!(true))
    );
    assert_eq!(first["execution"], second["execution"]);
    let (status, refused) = repeat("call-1", "other").await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("IDENTITY_CONFLICT")),
        "{refused}"
    );
    assert_eq!(list(&served, "", "one").await["total"], 1, "it ran once");
    let ((status, first), (again, refused)) = (repeat("call-2", "fail").await, repeat("call-2", "fail").await);
    assert_eq!(
        (status, &first["execution"]["status"]),
        (200, &json!("error")),
        "{first}"
    );
    assert_eq!(
        (again, &refused["code"]),
        (500, &json!("TOOL_EXECUTION_ERROR")),
        "{refused}"
    );
    let says = refused["error"].as_str().unwrap();
    assert!(
        says.contains("it failed;") && says.contains(first["execution"]["id"].as_str().unwrap()),
        "{says}"
    );
    assert_eq!(list(&served, "", "one").await["total"], 2, "it ran once");
}

#[tokio::test]
async fn a_run_that_reaches_its_limit_is_a_timeout_in_its_answer_in_the_list_and_by_filter() {
    let served = Served::start(SCRIPT, &[SLOW]).await;
    let repeat = async || {
        let request = served
            .client
            .post(format!("{}/api/skills/executions", served.program.url))
            .header("idempotency-key", "call-1")
            .header("content-type", "application/json")
            .body(json!({"skillName": "slow"}).to_string());
        served.send(request, "one").await
    };
    let (status, answer) = repeat().await;
    let execution = &answer["execution"];
    assert_eq!((status, &execution["status"]), (200, &json!("timeout")), "{answer}");
    assert!(
        execution["durationMs"].as_u64().unwrap() >= 1000 && execution["errorMessage"].is_string(),
        "{answer}"
    );
    for (query, total) in [("?status=timeout", 1), ("?status=error", 0), ("?status=success", 0)] {
        let found = list(&served, query, "one").await;
        assert_eq!(found["total"], total, "{query}: {found}");
    }
    let path = format!("/api/skills/executions/{}", execution["id"].as_str().unwrap());
    let (_, stored) = served.call("GET", &path, &Value::Null, "one").await;
    assert_eq!(&stored, execution);
    let (status, refused) = repeat().await;
    assert_eq!(
        (status, &refused["code"]),
        (504, &json!("TOOL_EXECUTION_TIMEOUT")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_refused_run_has_the_status_of_its_answer_on_the_console() {
    let mut served = started().await;
    let said = async |served: &mut Served| loop {
        let line = served.program.line().await;
        if line.contains("omniroute") {
            return line;
        }
    };
    let (status, refused) = run(&served, json!({"skillName": "upside", "input": {}})).await;
    assert_eq!(status, 400, "{refused}");
    let line = said(&mut served).await;
    assert!(
        line.starts_with("400 omniroute ") && line.contains("| nothing was run: the answer says why |"),
        "{line}"
    );
    // A run that fails is one.
    assert_eq!(run(&served, upside("fail")).await.0, 200);
    let line = said(&mut served).await;
    assert!(
        line.starts_with("200 omniroute ") && !line.contains("nothing was run"),
        "{line}"
    );
}

/// Models know what shares its name as `namespace/name`: versions that are not the default, and uploads beside a file.
#[tokio::test]
async fn what_shares_its_name_runs_as_well() {
    let served = started().await;
    for (name, version, word) in [("upside", "2.0.0", "second"), ("ours", "3.0.0", "third")] {
        let body = json!({
            "name": name, "version": version, "description": "Tells which one.", "schema": {"input": {}},
            "handlerCode": format!("def handler():\n    return '{word}'\n"),
        });
        let (status, answer) = served.call("POST", "/api/skills/install", &body, "one").await;
        assert_eq!(status, 200, "{answer}");
    }
    for (name, input, output) in [
        ("upside@1.0.0", json!({"text": "abc"}), json!({"reversed": "cba"})),
        ("upside@2.0.0", json!({}), json!("second")),
        ("ours@3.0.0", json!({}), json!("third")),
    ] {
        let (status, done) = run(&served, json!({"skillName": name, "input": input})).await;
        let execution = &done["execution"];
        assert_eq!((status, &execution["output"]), (200, &output), "{name}: {done}");
        assert_eq!(execution["status"], "success", "{name}: {done}");
    }
}

#[tokio::test]
async fn what_ran_when_the_process_was_killed_is_an_error_that_says_so() {
    let served = started().await;
    let request = served
        .client
        .post(format!("{}/api/skills/executions", served.program.url))
        .header("content-type", "application/json")
        .bearer_auth("one")
        .body(upside("wait").to_string());
    let waiting = tokio::spawn(request.send());
    loop {
        let running = list(&served, "?status=running", "one").await;
        if running["total"] == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    on_disk(&served, |all| all.len() == 1).await;
    let Served {
        mut program,
        client,
        registry,
    } = served;
    program.kill().await;
    let _ = waiting.await;
    let program = Served::program(SCRIPT, &[], &registry, (&[], &[])).await;
    let served = Served {
        program,
        client,
        registry,
    };
    let all = list(&served, "", "one").await;
    assert_eq!(
        (&all["total"], &all["data"][0]["status"]),
        (&json!(1), &json!("error")),
        "{all}"
    );
    let why = all["data"][0]["errorMessage"].as_str().unwrap();
    assert!(why.contains("process that ran it ended"), "{why}");
}

#[tokio::test]
async fn mcp_clients_with_a_credential_manage_their_skills() {
    let served = started().await;
    let names = async |key: &str| {
        let listed = mcp(&served, "tools/list", json!({}), key).await;
        let tools = listed["tools"].as_array().unwrap().clone();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("omniroute_")).collect::<Vec<_>>()
    };
    let expected = ["list", "enable", "execute", "executions"].map(|name| format!("omniroute_skills_{name}"));
    assert_eq!(names("one").await, expected);
    assert_eq!(names("").await, [""; 0], "not to clients without a credential");
    let call = async |tool: &str, arguments: Value| {
        let params = json!({"name": format!("omniroute_skills_{tool}"), "arguments": arguments});
        let result = mcp(&served, "tools/call", params, "one").await;
        let text = result["content"][0]["text"].as_str().unwrap();
        let said: Value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        (said, result["isError"] == true)
    };
    let (skills, _) = call("list", json!({"name": "upside", "enabled": true})).await;
    assert_eq!(skills["total"], 1, "{skills}");
    let (ran, failed) = call("execute", json!({"skillName": "upside", "input": {"text": "ab"}})).await;
    assert_eq!(
        (&ran["execution"]["output"], failed),
        (&json!({"reversed": "ba"}), false),
        "{ran}"
    );
    // The key may be in the address, where a client of MCP can be given nothing else.
    let params = json!({"name": "omniroute_skills_list", "arguments": {"name": "upside"}});
    let listed = mcp_at(&served, "/mcp?x=1&key=two", ("tools/call", params), "").await;
    assert_eq!(listed["isError"], false, "{listed}");
    let (past, _) = call("executions", json!({"limit": 5})).await;
    assert_eq!(past["data"][0], ran["execution"]);
    let id = &skills["data"][0]["id"];
    let (set, _) = call("enable", json!({"skillId": id, "enabled": false})).await;
    assert_eq!(set, json!({"success": true, "enabled": false, "mode": "off"}));
    let (refused, failed) = call("execute", json!({"skillName": "upside", "input": {"text": "ab"}})).await;
    assert!(
        failed && refused["error"].as_str().unwrap().contains("is disabled"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_run_has_the_id_of_its_request_in_answer_history_and_trace() {
    let served = started().await;
    let request = served
        .client
        .post(format!("{}/api/skills/executions", served.program.url))
        .header("content-type", "application/json")
        .bearer_auth("one")
        .body(upside("xyz").to_string());
    let answer = request.send().await.unwrap();
    let headers = answer.headers().clone();
    let id = headers["x-knack-request-id"].to_str().unwrap();
    assert_eq!(headers["x-request-id"], id);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["execution"]["requestId"], id, "{answer}");

    let address = served.program.url.strip_prefix("http://").unwrap();
    let work = tempfile::tempdir().unwrap();
    let traced = knack(work.path(), &["trace", "--gateway", address, id, "-o", "json"], &[]).await;
    assert!(traced.status.success(), "{}", err(&traced));
    let traced: Value = serde_json::from_str(&out(&traced)).unwrap();
    let step = &traced["steps"][0];
    assert_eq!(
        (&step["step"], &step["failed"], &step["run"]["status"]),
        (&json!("call"), &json!(false), &json!("success")),
        "{traced}"
    );

    // A refusal has one id, too, also in the body where Anthropic's API has it.
    let request = served
        .client
        .get(format!("{}/v1/skills/skill_knack_none", served.program.url));
    let request = request.header("anthropic-version", "2023-06-01").bearer_auth("one");
    let answer = request.send().await.unwrap();
    let headers = answer.headers().clone();
    let id = headers["x-knack-request-id"].to_str().unwrap();
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(
        (&headers["request-id"], &body["request_id"]),
        (&headers["x-knack-request-id"], &json!(id)),
        "{body}"
    );
}

async fn metrics(served: &Served) -> String {
    let answer = served.program.get("/metrics", &[]).await;
    answer.text().await.unwrap()
}

/// One line and one count for each request, also for one whose client leaves.
#[tokio::test]
async fn a_run_is_reported_once_also_where_its_client_leaves() {
    let served = started().await;
    let requests = |text: &str| {
        let lines = text.lines();
        let counts = lines.filter(|line| line.starts_with("knack_gateway_requests_total{"));
        counts
            .map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap())
            .sum::<u64>()
    };
    let before = requests(&metrics(&served).await);
    assert_eq!(run(&served, upside("xyz")).await.0, 200);
    let after = metrics(&served).await;
    assert_eq!(requests(&after), before + 1, "{after}");

    let request = served
        .client
        .post(format!("{}/api/skills/executions", served.program.url))
        .header("content-type", "application/json")
        .bearer_auth("one")
        .body(upside("wait").to_string());
    let leaving = tokio::spawn(request.send());
    while list(&served, "?status=running", "one").await["data"]
        .as_array()
        .unwrap()
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leaving.abort();
    let parts = [
        r#"knack_gateway_requests_total{format="omniroute",status="499"} 1"#,
        r#"status="cancelled""#,
    ];
    let begun = Instant::now();
    // The parts of one report are counted one after the other.
    let counted = loop {
        let text = metrics(&served).await;
        if parts.iter().all(|part| text.contains(part)) {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "{parts:?} in\n{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(!counted.contains(r#"format="skills",status="499""#), "{counted}");
}
