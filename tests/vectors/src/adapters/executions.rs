//! Adapters of `toolcalls.json`: runs that a program asks for, as the API of executions answers and records them. What a
//! handler does is scripted; all else is the product.

use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use knack_registry::{
    AdHocRun, ApiRequest, FolderHistory, FolderStore, HistorySettings, OnProgress, Owner, Progress, Reader, Registry,
    RunRefusal, Runs, Status, route,
};
use serde_json::{Value, json};

use super::omniroute::text;
use super::skills_api::UNPACK;
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("toolcalls", "execution_record", execution_record).compared(Compare::Custom(begins)),
    Op::new("toolcalls", "execution_fence", execution_fence).compared(Compare::Named),
];

const EXECUTIONS: &str = "/api/skills/executions";
/// A skill with a tool, and one without.
const TOOL: &str = "def handler():\n    return {}\n";
const DOCUMENT: &str = "---\nname: echo\ndescription: d\n---\nEcho.\n";

/// What a handler does.
#[derive(Debug, Default)]
struct Scripted {
    closed: bool,
    hangs: bool,
    status: Option<Status>,
    output: Option<String>,
    error: Option<String>,
    runs: AtomicUsize,
    is_running: AtomicBool,
}

#[async_trait]
impl Runs for Scripted {
    fn closed(&self) -> Option<String> {
        self.closed.then(|| "Skills execution is disabled".to_owned())
    }

    async fn run(&self, _: AdHocRun, on_progress: OnProgress) -> Result<Progress, RunRefusal> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let progress = |status| Progress {
            status,
            output: None,
            error: None,
            duration_ms: None,
        };
        on_progress(progress(Status::Pending));
        on_progress(progress(Status::Running));
        self.is_running.store(true, Ordering::SeqCst);
        if self.hangs {
            pending::<()>().await;
        }
        let ended = Progress {
            output: self.output.clone(),
            error: self.error.clone(),
            duration_ms: Some(1),
            ..progress(self.status.unwrap_or(Status::Success))
        };
        on_progress(ended.clone());
        Ok(ended)
    }
}

struct Api {
    runtime: tokio::runtime::Runtime,
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Api {
    /// With a skill of a name.
    fn with(name: &str, code: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of_adapter(error.to_string());
        let folder = tempfile::tempdir().map_err(failed)?;
        let store = FolderStore::open(folder.path()).map_err(failed)?.store;
        let history = FolderHistory::open(folder.path(), HistorySettings::of_days(1), |_| ()).map_err(failed)?;
        let api = Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().map_err(failed)?,
            registry: Registry::new(Arc::new(store), &Arc::new(Reader::new(UNPACK)))
                .with_history(Arc::new(history.history)),
            _folder: folder,
        };
        let body = json!({
            "name": name, "version": "1.0.0", "schema": {"input": {}, "output": {}}, "handlerCode": code,
        });
        let (status, answer) = api.send(&Method::POST, "/api/skills/install", &body)?;
        if status == 200 {
            Ok(api)
        } else {
            Err(Failure::of_adapter(answer.to_string()))
        }
    }

    fn asked(method: &Method, path: &str, body: &Value) -> Result<ApiRequest, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("call-1"));
        let call = route(method, path, None, &headers);
        Ok(ApiRequest {
            call: call.ok_or_else(|| Failure::of_adapter(format!("{path} goes to a provider")))?,
            query: None,
            headers,
            body: Bytes::from(body.to_string()),
        })
    }

    fn send(&self, method: &Method, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let asked = Self::asked(method, path, body)?;
        let answer = self.runtime.block_on(self.registry.answer(Some(&owner()), asked, &[]));
        Ok(read(&answer))
    }

    fn run(&self, name: &str, runs: &Scripted) -> Result<(u16, Value), Failure> {
        let asked = Self::asked(&Method::POST, EXECUTIONS, &json!({"skillName": name}))?;
        let answer = self
            .runtime
            .block_on(self.registry.execute(Some(&owner()), asked, &[], runs));
        Ok(read(&answer))
    }

    /// The last record.
    fn record(&self) -> Result<Value, Failure> {
        let (_, list) = self.send(&Method::GET, EXECUTIONS, &Value::Null)?;
        Ok(list["data"][0].clone())
    }
}

fn read(answer: &http::Response<Bytes>) -> (u16, Value) {
    let body = serde_json::from_slice(answer.body()).unwrap_or_default();
    (answer.status().as_u16(), body)
}

fn owner() -> Owner {
    Owner::from([1; 32])
}

/// A case in words.
fn execution_record(input: &Value) -> Outcome {
    let case = text(input, "case");
    let quoted = case.split('"').nth(1);
    let mut runs = Scripted::default();
    let (name, code) = if case.contains("not registered") {
        ("echo-handler", DOCUMENT)
    } else {
        ("echo", TOOL)
    };
    let api = Api::with(name, code)?;
    let mut asked = name;
    if let Some(thrown) = quoted.filter(|_| case.contains("throws")) {
        (runs.status, runs.error) = (Some(Status::Error), Some(thrown.to_owned()));
    } else if case.contains("time") {
        (runs.status, runs.error) = (Some(Status::Timeout), Some("it reached its time limit".to_owned()));
    } else if case.contains("disabled") && case.contains("skill ") {
        let (_, list) = api.send(&Method::GET, "/api/skills", &Value::Null)?;
        let row = format!("/api/skills/{}", text(&list["data"][0], "id"));
        api.send(&Method::PUT, &row, &json!({"mode": "off"}))?;
    } else if case.contains("disabled") || case.contains("skillsEnabled") {
        runs.closed = true;
    } else if case.contains("not found") || case.contains("missing") {
        asked = "another";
    } else if !case.contains("not registered") {
        return Err(Failure::of_adapter(
            "a case of executions that this adapter does not know",
        ));
    }
    let (status, answer) = api.run(asked, &runs)?;
    let record = api.record()?;
    if status >= 400 {
        return Ok(json!({"thrown": answer["error"], "record": record}));
    }
    let execution = &answer["execution"];
    if *execution != record {
        return Err(Failure::of_adapter(format!(
            "returned is {execution}, recorded is {record}"
        )));
    }
    let mut returned = execution.clone();
    returned["returned"] = true.into();
    Ok(returned)
}

/// Named members only; what is thrown begins as expected.
fn begins(expected: &Value, actual: &Value) -> Result<(), String> {
    for (name, expected) in expected.as_object().into_iter().flatten() {
        let actual = &actual[name];
        let holds = match (name.as_str(), expected.as_object()) {
            // The product puts the member before its message, and what to do behind.
            ("thrown", _) => actual
                .as_str()
                .zip(expected.as_str())
                .is_some_and(|(said, text)| said.contains(text)),
            ("record", Some(_)) => begins(expected, actual).is_ok(),
            _ => actual == expected,
        };
        if !holds {
            return Err(format!("{name}: expected {expected}, is {actual}"));
        }
    }
    Ok(())
}

fn execution_fence(input: &Value) -> Outcome {
    let outcome = &input["outcome"];
    let api = Api::with("echo", TOOL)?;
    let mut runs = Scripted {
        status: outcome["status"].as_str().and_then(Status::of_word),
        output: outcome.get("value").map(Value::to_string),
        error: ["error", "errorMessage", "message"]
            .iter()
            .find_map(|member| outcome[*member].as_str())
            .map(str::to_owned),
        ..Scripted::default()
    };
    let (status, answer) = match text(outcome, "kind") {
        "executed" => api.run("echo", &runs)?,
        "replayed" => {
            api.run("echo", &runs)?;
            api.run("echo", &runs)?
        }
        "in_progress" => {
            runs.hangs = true;
            let owner = owner();
            let asked = Api::asked(&Method::POST, EXECUTIONS, &json!({"skillName": "echo"}))?;
            let mut first = pin!(api.registry.execute(Some(&owner), asked, &[], &runs));
            api.runtime.block_on(poll_fn(|context| {
                let _ = first.as_mut().poll(context);
                if runs.is_running.load(Ordering::SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
            api.run("echo", &runs)?
        }
        other => {
            return Err(Failure::of_adapter(format!(
                "an outcome {other} that this adapter does not know"
            )));
        }
    };
    if runs.runs.load(Ordering::SeqCst) != 1 {
        return Err(Failure::of_adapter("it ran more than once"));
    }
    if status >= 400 {
        return Ok(json!({"http": status, "code": answer["code"]}));
    }
    let execution = &answer["execution"];
    let result = if execution["status"] == "success" {
        execution["output"].clone()
    } else {
        json!({"error": execution["errorMessage"]})
    };
    Ok(json!({"result": result, "replayed": answer["replayed"]}))
}
