//! Gemini's `codeExecution`, run here: on every path, whole, as events and as an array.

use knack_gateway::runs::code_tools::CodeTools;
use serde_json::{Value, json};

use super::support::{Answer, Running, Start, client, start};
use super::talk::events;

/// The provider has no code execution.
const SCRIPT: &str = r#"
provider: {code_tools: false}
turns:
  - user: compute
    rounds:
      - expect: {tool: run_code}
        reply: {thinking: I compute., text: I compute., calls: [{tool: run_code, arguments: {code: "import sys\nprint(6 * 7)\nprint('warned', file=sys.stderr)\nsys.exit(3)"}}], usage: {input: 100, output: 10}}
      - expect: {result: {contains: "exit 3"}}
        reply: {text: "It is 42.", usage: {input: 200, output: 20}}
  - user: and then
    rounds:
      - expect: {history: {contains: "42\n"}, tool: run_code}
        reply: {text: "I remember."}
  - user: draw
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "open('plot.png', 'wb').write(b'picture')\nopen('data.csv', 'w').write('1')\nprint(42)"}}]}
      - expect: {result: {contains: "plot.png"}}
        reply: {text: Drawn.}
  - user: two at once
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {command: "python3 -c print(1)"}}, {tool: run_code, arguments: {code: "print(2)"}}]}
      - expect: {results: 2}
        reply: {text: Both.}
  - user: mixed
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(6 * 7)"}}, {tool: get_weather, arguments: {city: Oslo}}]}
      - when: {results: 1}
        reply: {text: "Without the run."}
      - expect: {results: 2, result: "42"}
        reply: {text: "All."}
  - user: badly
    rounds:
      - reply: {calls: [{tool: run_code, arguments: {code: "print(1)", language: ruby}}, {tool: run_code, arguments: {code: "a", command: "b"}}]}
      - expect: {results: 2, result: {contains: "Schema: "}}
        reply: {text: "It cannot be run."}
  - repeat_last: true
    rounds:
      - expect: {no_tool: run_code}
        reply: {text: "You said: {{user}}"}
"#;

/// Paths, each with the tool in a spelling of the API's.
const ROWS: [(&str, &str); 5] = [
    ("/v1/models/gemini-x:generateContent", "codeExecution"),
    (
        "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        "code_execution",
    ),
    ("/v1beta/models/gemini-x:streamGenerateContent", "codeExecution"),
    (
        "/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent",
        "code_execution",
    ),
    (
        "/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent?alt=sse",
        "codeExecution",
    ),
];

async fn without_code_tools() -> Running {
    start(Start {
        skills: Vec::new(),
        script: SCRIPT.to_owned(),
        executor: std::sync::Arc::new(super::runner::executor(1).await),
        sandbox_code_tools: vec![CodeTools::Gemini],
        ..Start::default()
    })
    .await
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn weather() -> Value {
    json!({"name": "get_weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}})
}

fn asking(contents: &[Value], tool: &str) -> Value {
    json!({"contents": contents, "tools": [{tool: {}}]})
}

async fn post(base: &str, path: &str, body: &Value) -> Answer {
    let post = client()
        .post(format!("{base}{path}"))
        .header("x-goog-api-key", "key-a")
        .header("content-type", "application/json");
    let answer = post.body(body.to_string()).send().await.unwrap();
    super::support::read(answer).await
}

/// The body, the events or the elements of the array.
fn frames(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    if answer.text.starts_with("data: ") {
        return events(&answer.text);
    }
    match answer.json() {
        Value::Array(frames) => frames,
        whole => vec![whole],
    }
}

/// Sends a conversation and takes the answer into it as the SDK does, one content for each frame. Gives the parts, texts
/// of neighbours joined.
async fn ask(knack: &Running, path: &str, body: &Value, history: &mut Vec<Value>) -> Vec<Value> {
    let answer = post(&knack.url, path, body).await;
    assert!(!answer.text.contains("run_code"), "{path}: {}", answer.text);
    let frames = frames(&answer);
    let ends: Vec<&Value> = frames
        .iter()
        .map(|frame| &frame["candidates"][0]["finishReason"])
        .collect();
    let (last, before) = ends.split_last().unwrap();
    assert!(
        *last == "STOP" && before.iter().all(|end| end.is_null()),
        "{path}: {ends:?}"
    );
    let contents: Vec<Value> = frames
        .iter()
        .map(|frame| frame["candidates"][0]["content"].clone())
        .collect();
    let mut parts: Vec<Value> = Vec::new();
    for part in contents.iter().flat_map(|content| content["parts"].as_array().unwrap()) {
        let joined = parts.last().and_then(|last| {
            let (before, text) = (last["text"].as_str()?, part["text"].as_str()?);
            (last["thought"] == part["thought"]).then(|| format!("{before}{text}"))
        });
        match joined {
            Some(text) => parts.last_mut().unwrap()["text"] = json!(text),
            None => parts.push(part.clone()),
        }
    }
    history.extend(contents);
    parts
}

fn of<'a>(parts: &'a [Value], key: &str) -> Vec<&'a Value> {
    parts.iter().filter_map(|part| part.get(key)).collect()
}

/// What the provider received last, up to the end of its contents.
fn sent(knack: &Running) -> String {
    let sent = knack.mock.handle.requests().pop().unwrap().body;
    let sent = String::from_utf8(sent.to_vec()).unwrap();
    sent.split("],\"tools\"").next().unwrap().to_owned()
}

/// A part as a client keeps it that knows no ids of runs.
fn without_ids(history: &[Value]) -> Vec<Value> {
    let mut history = history.to_vec();
    let parts = history
        .iter_mut()
        .flat_map(|content| content["parts"].as_array_mut().unwrap());
    for part in parts {
        for key in ["executableCode", "codeExecutionResult"] {
            if let Some(own) = part.get_mut(key).and_then(Value::as_object_mut) {
                own.shift_remove("id");
            }
        }
    }
    history
}

#[tokio::test]
async fn code_execution_that_the_provider_does_not_have_runs_here_in_the_parts_of_the_api() {
    let knack = without_code_tools().await;
    for (path, tool) in ROWS {
        let mut history = vec![user("please compute")];
        let parts = ask(&knack, path, &asking(&history, tool), &mut history).await;
        let keys: Vec<&str> = parts
            .iter()
            .map(|part| part.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        let order = ["text", "text", "executableCode", "codeExecutionResult", "text"];
        assert_eq!(keys, order, "{path}: {parts:?}");
        assert_eq!(
            (&parts[0]["thought"], &parts[1]["text"]),
            (&json!(true), &json!("I compute."))
        );
        let (code, result) = (&parts[2]["executableCode"], &parts[3]["codeExecutionResult"]);
        assert_eq!(code["language"], "PYTHON");
        assert!(code["code"].as_str().unwrap().contains("print(6 * 7)"), "{code}");
        assert_eq!(
            (&result["outcome"], &result["output"]),
            (&json!("OUTCOME_FAILED"), &json!("42\nwarned\n"))
        );
        // The API of Vertex AI has no ids of runs.
        assert_eq!(code["id"].is_null(), path.contains("publishers"), "{path}");
        assert_eq!(code["id"], result["id"]);
        assert_eq!(parts[4]["text"], "\n\nIt is 42.");
        // The upstream had neither the tool nor what only the client sees, and got the run's own words.
        let before = sent(&knack);
        let upstream = knack.upstream().to_string();
        assert!(
            !upstream.contains(tool) && !upstream.contains("xecutableCode"),
            "{upstream}"
        );
        // The next turn has the run again, byte for byte, whatever of it the client kept.
        history.push(user("and then?"));
        for kept in [history.clone(), without_ids(&history)] {
            let again = ask(&knack, path, &asking(&kept, tool), &mut Vec::new()).await;
            assert_eq!(again[0]["text"], "I remember.", "{path}");
            assert!(sent(&knack).starts_with(&before), "{path}: {before}\n{}", sent(&knack));
            // So it has after the saved turn is lost, as far as the client can tell.
            let after = without_code_tools().await;
            let again = ask(&after, path, &asking(&kept, tool), &mut Vec::new()).await;
            assert_eq!(again[0]["text"], "I remember.", "{path}");
            assert_eq!(after.mock.handle.failures(), Vec::<String>::new());
        }
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

/// The model is told what is wrong; the client, which has not declared the tool, is told that nothing was started.
#[tokio::test]
async fn refused_arguments_show_nothing_of_the_tool() {
    let knack = without_code_tools().await;
    for (path, tool) in ROWS {
        let parts = ask(&knack, path, &asking(&[user("badly")], tool), &mut Vec::new()).await;
        for result in of(&parts, "codeExecutionResult") {
            assert_eq!(
                (&result["outcome"], &result["output"]),
                (
                    &json!("OUTCOME_FAILED"),
                    &json!("Nothing was started: the call was refused.\n")
                ),
                "{path}"
            );
        }
        assert_eq!(of(&parts, "codeExecutionResult").len(), 2, "{path}");
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
}

#[tokio::test]
async fn usage_is_the_sum_and_pictures_are_parts() {
    let knack = without_code_tools().await;
    for (path, tool) in ROWS {
        let answer = post(&knack.url, path, &asking(&[user("compute")], tool)).await;
        let usage = frames(&answer).pop().unwrap()["usageMetadata"].clone();
        assert_eq!(
            (&usage["promptTokenCount"], &usage["totalTokenCount"]),
            (&json!(300), &json!(330))
        );
        let mut history = vec![user("draw")];
        let parts = ask(&knack, path, &asking(&history, tool), &mut history).await;
        let keys: Vec<&str> = parts
            .iter()
            .map(|part| part.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        let order = ["executableCode", "codeExecutionResult", "inlineData", "text"];
        assert_eq!(keys, order, "{path}: {parts:?}");
        let result = json!({"outcome": "OUTCOME_OK", "output": "42\n"});
        assert_eq!(parts[1]["codeExecutionResult"]["outcome"], result["outcome"]);
        assert_eq!(parts[1]["codeExecutionResult"]["output"], result["output"]);
        assert_eq!(
            parts[2]["inlineData"],
            json!({"mimeType": "image/png", "data": "cGljdHVyZQ=="})
        );
        history.push(user("and then?"));
        for gateway in [&knack, &without_code_tools().await] {
            let again = ask(gateway, path, &asking(&history, tool), &mut Vec::new()).await;
            assert_eq!(again[0]["text"], "I remember.", "{path}");
            // The model read of the picture in the result of the run.
            assert!(!sent(gateway).contains("inlineData"), "{path}");
            assert_eq!(gateway.mock.handle.failures(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn runs_at_once_and_beside_a_call_of_the_client_come_in_order() {
    let knack = without_code_tools().await;
    for (path, tool) in ROWS {
        let mut history = vec![user("two at once")];
        let parts = ask(&knack, path, &asking(&history, tool), &mut history).await;
        let codes = of(&parts, "executableCode");
        assert_eq!(
            codes[0]["code"],
            "import shlex, subprocess\nsubprocess.run(shlex.split(\"python3 -c print(1)\"))"
        );
        assert_eq!(codes[1]["code"], "print(2)");
        let results = of(&parts, "codeExecutionResult");
        let outputs: Vec<&Value> = results.iter().map(|result| &result["output"]).collect();
        assert_eq!(outputs, ["1\n", "2\n"], "{path}");
        for (code, result) in codes.iter().zip(&results) {
            assert_eq!(code["id"], result["id"], "{path}");
        }
        let mut history = vec![user("mixed")];
        let mut body = asking(&history, tool);
        body["tools"][0]["functionDeclarations"] = json!([weather()]);
        let parts = ask(&knack, path, &body, &mut history).await;
        assert_eq!(of(&parts, "functionCall")[0]["name"], "get_weather", "{path}");
        assert_eq!(of(&parts, "codeExecutionResult")[0]["output"], "42\n", "{path}");
        let answer = json!({"functionResponse": {"name": "get_weather", "response": {"result": "-3 C"}}});
        history.push(json!({"role": "user", "parts": [answer]}));
        for gateway in [&knack, &without_code_tools().await] {
            body["contents"] = json!(history);
            let parts = ask(gateway, path, &body, &mut Vec::new()).await;
            let text: String = of(&parts, "text").iter().map(|text| text.as_str().unwrap()).collect();
            assert_eq!(text, "All.", "{path}");
            assert_eq!(gateway.mock.handle.failures(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn counts_and_requests_declare_the_same_tools() {
    let knack = without_code_tools().await;
    let contents = [user("hi, count me")];
    let whole = |tool: &str| {
        let mut inner = asking(&contents, tool);
        inner["model"] = json!("models/gemini-x");
        json!({"generateContentRequest": inner})
    };
    for (path, body, tool) in [
        (
            "/v1/models/gemini-x:countTokens",
            whole("codeExecution"),
            "codeExecution",
        ),
        (
            "/v1beta/models/gemini-x:countTokens",
            whole("code_execution"),
            "code_execution",
        ),
        (
            "/v1/projects/p/locations/l/publishers/google/models/gemini-x:countTokens",
            asking(&contents, "codeExecution"),
            "codeExecution",
        ),
    ] {
        let answer = post(&knack.url, path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let counted = knack.upstream();
        let counted = counted.get("generateContentRequest").unwrap_or(&counted)["tools"].clone();
        post(&knack.url, ROWS[0].0, &asking(&contents, tool)).await;
        assert_eq!(counted, knack.upstream()["tools"], "{path}");
        assert_eq!(
            counted[0]["functionDeclarations"][0]["name"], "run_code",
            "{path}: {counted}"
        );
    }
}

/// A tool choice without tools takes it out; a forced call is forced once; what cannot be served is refused in the API's
/// shape.
#[tokio::test]
async fn choices_are_kept_and_refusals_have_the_shape_of_the_api() {
    let knack = without_code_tools().await;
    for (path, tool) in ROWS {
        let mut body = asking(&[user("hi")], tool);
        let choose = |mode: &str| json!({"functionCallingConfig": {"mode": mode}});
        body["toolConfig"] = choose("NONE");
        let parts = ask(&knack, path, &body, &mut Vec::new()).await;
        assert_eq!(parts[0]["text"], "You said: hi", "{path}");
        assert_eq!(knack.upstream()["tools"], json!([]));
        let mut body = asking(&[user("compute")], tool);
        body["toolConfig"] = choose("ANY");
        ask(&knack, path, &body, &mut Vec::new()).await;
        let requests = knack.mock.handle.requests();
        let modes = requests
            .iter()
            .rev()
            .take(2)
            .map(|one| one.json()["toolConfig"].clone());
        assert_eq!(modes.collect::<Vec<_>>(), [choose("AUTO"), choose("ANY")], "{path}");
        body["generationConfig"] = json!({"candidateCount": 2});
        let refused = post(&knack.url, path, &body).await;
        assert_eq!(refused.status, 400, "{path}");
        let error = &refused.json()["error"];
        assert_eq!(
            (&error["code"], &error["status"]),
            (&json!(400), &json!("INVALID_ARGUMENT"))
        );
    }
    assert_eq!(knack.mock.handle.failures(), Vec::<String>::new());
    // A run that cannot start is one that failed.
    let none = start(Start {
        skills: Vec::new(),
        script: SCRIPT.replace("exit 3", "no-local-executor"),
        sandbox_code_tools: vec![CodeTools::Gemini],
        ..Start::default()
    })
    .await;
    for (path, tool) in ROWS {
        let parts = ask(&none, path, &asking(&[user("compute")], tool), &mut Vec::new()).await;
        let result = of(&parts, "codeExecutionResult")[0];
        assert_eq!(result["outcome"], "OUTCOME_FAILED", "{path}: {result}");
        assert!(
            result["output"].as_str().unwrap().contains("--no-local-executor"),
            "{result}"
        );
    }
}

/// What is the provider's is the same bytes upstream.
#[tokio::test]
async fn code_execution_of_the_provider_is_untouched() {
    let has_tools = |sandbox_code_tools| Start {
        skills: Vec::new(),
        script: SCRIPT.replace("provider: {code_tools: false}\n", ""),
        sandbox_code_tools,
        ..Start::default()
    };
    let others = start(has_tools(vec![CodeTools::OpenAi, CodeTools::Anthropic])).await;
    let with = start(has_tools(vec![CodeTools::Gemini])).await;
    let ran = json!({"role": "model", "parts": [
        {"executableCode": {"id": "a", "language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"id": "a", "outcome": "OUTCOME_OK", "output": "1\n"}}, {"text": "One."}]});
    let own = asking(&[user("one"), ran, user("hi")], "codeExecution");
    let mut searching = asking(&[user("hi")], "codeExecution");
    searching["tools"]
        .as_array_mut()
        .unwrap()
        .push(json!({"googleSearch": {}}));
    for (knack, body) in [(&others, &own), (&with, &searching)] {
        for (path, _) in ROWS {
            let answer = post(&knack.url, path, body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            let sent = knack.mock.handle.requests().pop().unwrap().body;
            assert_eq!(sent, body.to_string().as_bytes(), "{path}");
        }
    }
}
