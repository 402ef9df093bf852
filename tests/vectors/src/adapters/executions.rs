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
use knack_gateway::catalog::{RuntimeSettings, Snapshot};
use knack_gateway::runs::ad_hoc::AdHocRuns;
use knack_registry::{
    AdHocRun, ApiCall, ApiRequest, FolderHistory, FolderStore, HistorySettings, IDEMPOTENCY_KEY, OnProgress, Owner,
    Progress, Reader, Registry, RunRefusal, Runs, Status, route,
};
use knack_skill::texts::function_error;
use serde_json::{Value, json};

use super::omniroute::{items, text};
use super::skills_api::UNPACK;
use crate::matching;
use crate::registry::{Compare, Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[
    Op::new("toolcalls", "execution_record", execution_record).compared(Compare::Custom(same_execution)),
    Op::new("toolcalls", "execution_fence", execution_fence).compared(Compare::Named),
];

const EXECUTIONS: &str = "/api/skills/executions";
/// The key of most requests.
const KEY: &str = "call-1";
/// A skill with a tool, and one without.
const TOOL: &str = "def handler():\n    return {}\n";
const DOCUMENT: &str = "---\nname: echo\ndescription: d\n---\nEcho.\n";
/// Words for what is not there.
const ABSENT: [&str; 9] = [
    "not registered",
    "unregistered",
    "not found",
    "missing",
    "unknown",
    "no such",
    "nonexist",
    "non-exist",
    "not exist",
];
/// Words for a handler that does not end by itself.
const ENDLESS: [&str; 2] = [" hang", "never"];
/// Words for a handler that takes too long.
const TOO_LONG: [&str; 4] = ["time", "slow", "longer", "exceed"];
/// Words for the switch of all runs.
const SWITCH: [&str; 3] = ["skillsEnabled", "settings", "switch"];

/// What a handler does.
#[derive(Debug, Default)]
struct Scripted {
    closed: Option<String>,
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
        self.closed.clone()
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
    folder: tempfile::TempDir,
}

impl Scripted {
    /// The function raises an error: what its program says then, as the gateway reads it.
    fn fails(&mut self, error: &str) {
        self.status = Some(Status::Error);
        self.error = function_error(Some(1), &format!("{error}\n")).map(str::to_owned);
    }
}

impl Api {
    /// Over a folder.
    fn open(folder: tempfile::TempDir) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::of_adapter(error.to_string());
        let store = FolderStore::open(folder.path()).map_err(failed)?.store;
        let history = FolderHistory::open(folder.path(), HistorySettings::of_days(1), |_| ()).map_err(failed)?;
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .map_err(failed)?,
            registry: Registry::new(Arc::new(store), &Arc::new(Reader::new(UNPACK)))
                .with_history(Arc::new(history.history)),
            folder,
        })
    }

    /// After the process has ended and begun again.
    fn restarted(self) -> Result<Self, Failure> {
        // Whoever writes the history ends first.
        drop(self.registry);
        Self::open(self.folder)
    }

    /// With a skill of a name.
    fn with(name: &str, code: &str) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::of_adapter(error.to_string()))?;
        let api = Self::open(folder)?;
        let body = json!({
            "name": name, "version": "1.0.0", "description": "d", "schema": {"input": {}, "output": {}},
            "handlerCode": code,
        });
        let (status, answer) = api.send(&Method::POST, "/api/skills/install", &body)?;
        if status == 200 {
            Ok(api)
        } else {
            Err(Failure::of_adapter(answer.to_string()))
        }
    }

    fn asked(key: &str, (method, path): (&Method, &str), body: &Value) -> Result<(ApiCall, ApiRequest), Failure> {
        let mut headers = HeaderMap::new();
        let key = HeaderValue::from_str(key).map_err(|error| Failure::of_adapter(error.to_string()))?;
        headers.insert(IDEMPOTENCY_KEY, key);
        let call = route(method, path, None, &headers);
        let call = call.ok_or_else(|| Failure::of_adapter(format!("{path} goes to a provider")))?;
        let asked = ApiRequest {
            query: None,
            headers,
            body: Bytes::from(body.to_string()),
            request_id: "req_1".to_owned(),
        };
        Ok((call, asked))
    }

    fn send(&self, method: &Method, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        self.send_as(&owner(), (method, path), body)
    }

    fn send_as(&self, owner: &Owner, to: (&Method, &str), body: &Value) -> Result<(u16, Value), Failure> {
        let (call, asked) = Self::asked(KEY, to, body)?;
        let answer = self
            .runtime
            .block_on(self.registry.answer(Some(owner), call, &asked, &[]));
        Ok(read(&answer))
    }

    fn run(&self, name: &str, runs: &Scripted) -> Result<(u16, Value), Failure> {
        self.run_under(KEY, &json!({"skillName": name}), runs)
    }

    fn run_under(&self, key: &str, body: &Value, runs: &Scripted) -> Result<(u16, Value), Failure> {
        let (_, asked) = Self::asked(key, (&Method::POST, EXECUTIONS), body)?;
        let answer = self
            .runtime
            .block_on(self.registry.execute(Some(&owner()), &asked, &[], runs));
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
    // What is quoted is no description of the case, and what a handler returns is none either.
    let told: String = case.split('"').step_by(2).collect();
    let told = told.split_once("returns ").map_or(told.as_str(), |(told, _)| told);
    let says = |words: &[&str]| words.iter().any(|word| told.contains(word));
    if input.get("limit_default").is_some() || says(&["list", "history"]) {
        return listed();
    }
    // A skill without a tool, or no skill by the name that is asked for.
    let has_no_handler = says(&ABSENT) && told.contains("handler");
    let mut runs = Scripted::default();
    let (name, code) = if has_no_handler {
        ("echo-handler", DOCUMENT)
    } else {
        ("echo", TOOL)
    };
    let api = Api::with(name, code)?;
    let mut asked = name;
    if let Some(thrown) = quoted.filter(|_| case.contains("throws")) {
        runs.fails(thrown);
    } else if case.contains("maxRetries") {
        runs.fails("handler exploded");
    } else if let Some((_, value)) = case.split_once("returns ").filter(|_| !says(&ENDLESS)) {
        runs.output = Some(value.to_owned());
    } else if told.contains("succe") {
        runs.output = Some("{}".to_owned());
    } else if says(&ENDLESS) || says(&TOO_LONG) {
        (runs.status, runs.error) = (Some(Status::Timeout), Some("it reached its time limit".to_owned()));
    } else if !says(&SWITCH) && (says(&["mode off"]) || (says(&["disabled"]) && says(&["skill "]))) {
        let (_, list) = api.send(&Method::GET, "/api/skills", &Value::Null)?;
        let row = format!("/api/skills/{}", text(&list["data"][0], "id"));
        api.send(&Method::PUT, &row, &json!({"mode": "off"}))?;
    } else if says(&SWITCH) || says(&["disabled"]) {
        runs.closed = Some(suspended()?);
    } else if says(&ABSENT) && !has_no_handler {
        asked = quoted.unwrap_or("another");
    } else if !has_no_handler {
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
    returned["attempts"] = runs.runs.load(Ordering::SeqCst).into();
    Ok(returned)
}

/// A list that says no limit, of more runs than one page has.
fn listed() -> Outcome {
    const RUNS: usize = 60;
    let api = Api::with("echo", TOOL)?;
    for number in 0..RUNS {
        let runs = Scripted {
            output: Some(number.to_string()),
            ..Scripted::default()
        };
        let body = json!({"skillName": "echo", "input": {"number": number}});
        let (status, answer) = api.run_under(&format!("call-{number}"), &body, &runs)?;
        if status != 200 {
            return Err(Failure::of_adapter(answer.to_string()));
        }
    }
    let (_, list) = api.send(&Method::GET, EXECUTIONS, &Value::Null)?;
    let shown: Vec<u64> = items(&list, "data")
        .iter()
        .filter_map(|row| row["output"].as_u64())
        .collect();
    if list["total"] != RUNS || list["limit"] != shown.len() {
        return Err(Failure::of_adapter(format!("the list is {list}")));
    }
    let newest_first = shown.first() == Some(&(RUNS as u64 - 1)) && shown.is_sorted_by(|a, b| a > b);
    let another = Owner::from([2; 32]);
    let (_, others) = api.send_as(&another, (&Method::GET, EXECUTIONS), &Value::Null)?;
    Ok(json!({
        "limit": list["limit"], "limit_default": list["limit"], "returned": shown.len(),
        "order": if newest_first { "newest first" } else { "another" }, "of_another_key": others["total"],
    }))
}

/// What a gateway says whose runtime is switched off.
fn suspended() -> Result<String, Failure> {
    let settings = RuntimeSettings {
        suspend: true,
        ..RuntimeSettings::default()
    };
    let (parts, ()) = http::Request::new(()).into_parts();
    let runs = AdHocRuns {
        gateway: None,
        parts: &parts,
        base: &Arc::new(Snapshot::without_catalog(settings, "")),
    };
    runs.closed().ok_or_else(|| Failure::new("it is not switched off"))
}

/// Named members only; what is thrown has the expected text.
fn same_execution(expected: &Value, actual: &Value) -> Result<(), String> {
    for (name, expected) in expected.as_object().ok_or("expected must be an object")? {
        let actual = &actual[name];
        match (name.as_str(), expected) {
            // The product puts the member before its message, and what to do behind.
            ("thrown", Value::String(text)) if actual.as_str().is_some_and(|said| said.contains(text)) => {}
            ("record", Value::Object(_)) if actual.is_object() => {
                same_execution(expected, actual).map_err(|why| format!("{name}.{why}"))?;
            }
            _ => {
                let compared = matching::check(Compare::Whole, expected, &Ok(actual.clone()));
                compared.map_err(|why| format!("{name}{why}"))?;
            }
        }
    }
    Ok(())
}

/// Does something while a first run of the skill hangs, which ends then without a word.
fn while_running<T>(api: &Api, runs: &Scripted, then: impl FnOnce() -> T) -> Result<T, Failure> {
    let owner = owner();
    let (_, asked) = Api::asked(KEY, (&Method::POST, EXECUTIONS), &json!({"skillName": "echo"}))?;
    let mut first = pin!(api.registry.execute(Some(&owner), &asked, &[], runs));
    api.runtime.block_on(poll_fn(|context| {
        let _ = first.as_mut().poll(context);
        if runs.is_running.load(Ordering::SeqCst) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }));
    Ok(then())
}

fn execution_fence(input: &Value) -> Outcome {
    let outcome = &input["outcome"];
    let mut api = Api::with("echo", TOOL)?;
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
            while_running(&api, &runs, || api.run("echo", &runs))??
        }
        "unknown" => {
            // The process ends while it runs.
            runs.hangs = true;
            while_running(&api, &runs, || ())?;
            runs.hangs = false;
            api = api.restarted()?;
            api.run("echo", &runs)?
        }
        "identity_conflict" => {
            api.run_under(KEY, &json!({"skillName": "echo", "input": {"other": 1}}), &runs)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_that_a_case_of_an_execution_names_is_compared() {
        let actual = |case: &str| execution_record(&json!({"case": case})).unwrap();
        let thrown = actual("the switch skillsEnabled is off");
        let returned = actual("handler returns [1]");
        for (actual, expected, holds) in [
            (&thrown, json!({"thrown": "Skills execution is disabled"}), true),
            (
                &thrown,
                json!({"thrown": {"$regex": "execution is disabled: the SkillRuntime"}, "record": null}),
                true,
            ),
            (&thrown, json!({"thrown": "is on"}), false),
            (
                &thrown,
                json!({"thrown": "Skills execution is disabled", "record": {"status": "error"}}),
                false,
            ),
            (&thrown, json!({"returned": true}), false),
            (
                &returned,
                json!({"returned": true, "output": [1], "status": {"$regex": "succ"}}),
                true,
            ),
            (&returned, json!({"returned": true, "output": {"$regex": "1"}}), false),
            (&returned, json!({"thrown": ""}), false),
            (&returned, json!(true), false),
        ] {
            let compared = same_execution(&expected, actual);
            assert_eq!(compared.is_ok(), holds, "{expected}: {compared:?} {actual}");
        }
    }
}
