//! Calls of injected tools: resolved by knack-skill, run by the executor, rendered for the model.

mod convert;
mod loop_state;
mod open_run;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use knack_execution::records::RecordSettings;
use knack_execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, ExecutionStatus, Executor, Exit, Limits, Program,
    SkillMount, WorkingDirectory,
};
use knack_hub_api::SkillUseKind;
use knack_skill::call::{self, CallContext, Cwd, Decision, Outcome, RunSpec};
use knack_skill::catalog::ConfigValues;
use knack_skill::config::entries_for;
use knack_skill::plan::Plan;
use knack_telemetry::TraceContext;
use knack_tool_schema::validate;
use knack_wire::drive::{GeneratedFile, NativeRun};
use knack_wire::{CallOutcome, ToolCall};
use tokio_util::sync::CancellationToken;

use self::convert::{NOT_STARTED, answered, end_of, in_flight, limits, mount_name, native, not_started};
pub(crate) use self::loop_state::LoopState;
use self::open_run::OpenRun;
use super::grants::Grants;
use super::run_history::{self, EarlyEnd, NotedRun, RunHistory, RunNote, stderr_text};
use crate::catalog::Snapshot;
use crate::files::file_id;
use crate::files::file_url::file_url;
use crate::files::request_files::FileMemory;
use crate::http_server::budget::RequestMemory;
use crate::model_calls::turn_store::KeyedHash;
use crate::telemetry::execution_note::CallId;
use crate::telemetry::log::RequestLog;
use crate::telemetry::skill_metrics::SkillUse;
use crate::telemetry::trace::CallTrace;

/// The note for the person at the console; the result names each file with the reason.
const FILES_NOT_DELIVERED: &str = "files of runs are not delivered";

/// Everything the calls of one request share.
#[derive(Debug)]
pub(crate) struct ToolRunner {
    /// The snapshot that the request began with.
    pub snapshot: Arc<Snapshot>,
    /// Most memory that the request allows a run, where that is less than the runtime does.
    pub(crate) max_memory_bytes: Option<u64>,
    /// The request's plan.
    pub plan: Arc<Plan>,
    /// Runs programs.
    pub executor: Arc<dyn Executor>,
    /// Environment grants.
    pub grants: Arc<Grants>,
    /// The caller's identity, for execution records, and as a key of stores and budgets.
    pub(crate) caller_key: KeyedHash,
    /// The gateway request's own id.
    pub request_id: String,
    /// When the request began, since the Unix epoch.
    pub(crate) request_start: Duration,
    /// Base of file URLs written into tool texts, if the gateway's public URL is known.
    pub public_url: Option<String>,
    /// The memory budget of files and runs.
    pub requests: RequestMemory,
    /// Where runs are noted, if anywhere.
    pub history: Option<Arc<dyn RunHistory>>,
    /// The state that grows while the loop runs.
    pub state: Mutex<LoopState>,
}

impl ToolRunner {
    /// Answers one call. Never fails: an error becomes a text that the model can act on.
    pub(crate) async fn run(
        self: Arc<Self>,
        call: ToolCall,
        response_id: String,
        cancel: CancellationToken,
        trace: CallTrace,
    ) -> CallOutcome {
        match Arc::clone(&self).decide(&call).await {
            None => {
                trace.end(&answered(true));
                CallOutcome {
                    token: call.token,
                    text: knack_skill::texts::unknown_tool(&call.name),
                    is_error: true,
                    ..CallOutcome::default()
                }
            }
            Some(Decision::Text { text, is_error, loaded }) => {
                trace.end(&answered(is_error));
                let reference = loaded.as_ref().and_then(|record| serde_json::to_string(record).ok());
                if let Some(record) = loaded {
                    let mut state = self.lock();
                    state.uses.push(SkillUse {
                        skill: record.skill.clone(),
                        what: SkillUseKind::Loaded,
                        tokens: knack_skill::texts::tokens(text.len()),
                        call: Some(CallId::of(&call)),
                    });
                    state.loaded.push(record);
                }
                let native = if is_error {
                    native("", knack_skill::texts::CALL_NOT_RUN, NOT_STARTED)
                } else {
                    native(&text, "", 0)
                };
                CallOutcome {
                    token: call.token,
                    text,
                    is_error,
                    reference,
                    native: Some(native),
                    ..CallOutcome::default()
                }
            }
            Some(Decision::Run(spec)) => self.execute(&call, *spec, &response_id, cancel, trace).await,
        }
    }

    /// Resolves a call. Arguments are checked against the schema of a skill's author: bounded work, but none for an async
    /// thread.
    async fn decide(self: Arc<Self>, call: &ToolCall) -> Option<Decision> {
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        let decided = tokio::task::spawn_blocking(move || {
            let loaded = self.lock().loaded.clone();
            let context = CallContext {
                plan: &self.plan,
                catalog: &self.snapshot.catalog,
                loaded: &loaded,
                validate: &validate,
            };
            call::resolve(&context, &name, &arguments)
        });
        decided.await.unwrap_or_else(|_| {
            // It panicked, or the process ends.
            Some(Decision::Text {
                text: knack_skill::texts::CALL_UNRESOLVED.to_owned(),
                is_error: true,
                loaded: None,
            })
        })
    }

    async fn execute(
        &self,
        call: &ToolCall,
        spec: RunSpec,
        response_id: &str,
        cancel: CancellationToken,
        trace: CallTrace,
    ) -> CallOutcome {
        let limits = limits(&self.snapshot.runtime, &spec.sandbox, self.max_memory_bytes);
        // The position in the round is part of the id: some servers give all calls of a turn one id, or none.
        let call_id = format!("{}#{}", call.token, call.id);
        let id_at = |start| ExecutionId::new(start, &self.request_id, call.round, &call_id);
        let mut id = id_at(self.request_start);
        let at = trace.context();
        let mut open = OpenRun::begin(&self.request_id, &self.state, id, call, &spec, trace);
        let mut result = self.run_as(id, call, &spec, &limits, cancel.clone(), at).await;
        if let Err(ExecutionError::Invalid(_)) = &result {
            // The answer showed the executor's clock: another replica's than the one that the request began with.
            let now = self.executor.now();
            if RecordSettings::is_ahead(id, now) {
                id = id_at(now);
                open.renamed(id);
                result = self.run_as(id, call, &spec, &limits, cancel, at).await;
            }
        }
        open.end(&result);
        let timeout_seconds = limits.timeout.as_secs();
        let (outcome, files) = match &result {
            Ok(result) => self.outcome(result, timeout_seconds, response_id),
            Err(error) => (not_started(&error.to_string()), Vec::new()),
        };
        let text = call::render(&spec, &outcome);
        let failed = call::is_error(&outcome);
        let ids = files.iter().map(|file| file_id(response_id, &file.name)).collect();
        let native = match &result {
            Err(error) => native("", &error.to_string(), NOT_STARTED),
            Ok(result) => NativeRun {
                timed_out: result.exit == Exit::Timeout,
                file_ids: ids,
                ..native(
                    &outcome.stdout,
                    &knack_skill::texts::shown_stderr(&outcome),
                    result.exit.code(),
                )
            },
        };
        CallOutcome {
            token: call.token,
            text,
            is_error: failed,
            reference: None,
            native: Some(native),
            files,
            contained: Vec::new(),
        }
    }

    /// Runs it under this id, with its note in the history.
    async fn run_as(
        &self,
        id: ExecutionId,
        call: &ToolCall,
        spec: &RunSpec,
        limits: &Limits,
        cancel: CancellationToken,
        trace: Option<TraceContext>,
    ) -> Result<Arc<ExecutionResult>, ExecutionError> {
        let request = self.request(id, spec, limits.clone());
        let mut noted = self.noted(id, call, spec, request.as_ref().ok());
        let result = match request {
            Ok(mut request) => {
                request.trace = trace;
                match self.requests.hold_run(in_flight(&request)).await {
                    Ok(_held) => run_history::execute(&*self.executor, request, cancel, noted.as_mut()).await,
                    Err(_) => Err(ExecutionError::QueueTimeout {
                        retry_after: Duration::from_secs(1),
                    }),
                }
            }
            Err(error) => Err(error),
        };
        if let Some(noted) = noted {
            noted.end(&result);
        }
        result
    }

    /// Notes a run that waits, if there is a history. What it is granted is never noted.
    fn noted(
        &self,
        id: ExecutionId,
        call: &ToolCall,
        spec: &RunSpec,
        request: Option<&ExecutionRequest>,
    ) -> Option<NotedRun> {
        let history = Arc::clone(self.history.as_ref()?);
        let entry = spec.skill.as_ref().and_then(|skill| self.snapshot.catalog.get(skill));
        let run = RunNote {
            id: id.to_string(),
            caller: self.caller_key,
            skill: entry.map(|entry| Arc::clone(&entry.skill)),
            tool: call.name.clone(),
            request_id: self.request_id.clone(),
            input: call.arguments.clone(),
            output: None,
            error: None,
            status: ExecutionStatus::Pending,
            duration: None,
            begun: jiff::Timestamp::now(),
        };
        let granted = request.map(|request| request.env.values().cloned().collect());
        let early = self.lock().early.clone();
        Some(NotedRun::begin(
            history,
            run,
            spec.render,
            granted.unwrap_or_default(),
            early,
        ))
    }

    fn request(&self, id: ExecutionId, spec: &RunSpec, limits: Limits) -> Result<ExecutionRequest, ExecutionError> {
        self.lock().files.attach(self.room()).map_err(ExecutionError::Invalid)?;
        let tool = match &spec.program {
            call::Program::Tool(tool) => Some(tool),
            call::Program::Code { .. } | call::Program::Argv(_) => None,
        };
        let settings = self.snapshot.catalog.settings();
        let mut tool = tool.map(|tool| (**tool).clone());
        let mut env = tool
            .as_ref()
            .map_or_else(BTreeMap::new, |tool| self.grants.for_tool(tool).env);
        if let Some(tool) = &mut tool {
            if let ConfigValues::Here(values) = &settings.config {
                let entries = entries_for(values, &tool.skill);
                env.extend(tool.configure(&entries).map_err(ExecutionError::Invalid)?);
            }
            tool.admit(!env.is_empty(), settings.model_code, settings.max_risk)
                .map_err(ExecutionError::Invalid)?;
        }
        let inputs = self.lock().files.inputs(spec);
        let mount = |mount: &knack_skill::call::Mount| SkillMount {
            name: mount_name(&mount.path),
            skill: Arc::clone(&mount.skill),
        };
        Ok(ExecutionRequest {
            id,
            caller: knack_skill::digest::hex(&self.caller_key),
            skill: spec.skill.clone(),
            program: match &spec.program {
                call::Program::Code { language, source } => Program::Code {
                    language: *language,
                    source: source.clone(),
                },
                call::Program::Argv(argv) => Program::Command { argv: argv.clone() },
                call::Program::Tool(tool) => Program::Command {
                    argv: tool.argv.clone(),
                },
            },
            tool: tool.map(Arc::new),
            mounts: spec.mounts.iter().map(mount).collect(),
            inputs,
            working_directory: match &spec.cwd {
                Cwd::Work => WorkingDirectory::Work,
                Cwd::Mount(path) => WorkingDirectory::Skill(mount_name(path)),
            },
            env,
            limits,
            trace: None,
        })
    }

    /// The result in the model's terms; its files are staged for later runs and handed on.
    fn outcome(
        &self,
        result: &ExecutionResult,
        timeout_seconds: u64,
        response_id: &str,
    ) -> (Outcome, Vec<GeneratedFile>) {
        let (kept, refused) = self.lock().files.keep(&result.files, self.room());
        let url = |name: &str| file_url(self.public_url.as_deref(), response_id, name);
        let files = kept.iter().map(|file| call::OutputFile {
            path: file.path.clone(),
            mime: file.mime_type.to_owned(),
            size: file.bytes.len() as u64,
            url: url(&file.path),
        });
        let file_errors: Vec<String> = result
            .file_errors
            .iter()
            .map(ToString::to_string)
            .chain(refused)
            .collect();
        self.lock().has_undelivered_files |= !file_errors.is_empty();
        let outcome = Outcome {
            end: end_of(result.exit, timeout_seconds),
            duration_ms: u64::try_from(result.timings.run.as_millis()).unwrap_or(u64::MAX),
            stdout: result.stdout.text().into_owned(),
            stderr: stderr_text(result),
            truncated: result.stdout.truncated || result.stderr.truncated,
            files: files.collect(),
            file_errors,
        };
        let generated = kept.iter().map(|file| GeneratedFile {
            name: file.path.clone(),
            media_type: file.mime_type.to_owned(),
            bytes: file.bytes.clone(),
        });
        (outcome, generated.collect())
    }

    /// Whether a run has ended that the log does not have yet, also one that did not start.
    pub(crate) fn has_run(&self) -> bool {
        !self.lock().executions.is_empty()
    }

    /// Says why the runs that are dropped from now on end.
    pub(crate) fn end_early(&self, why: EarlyEnd) {
        self.lock().early.set(why);
    }

    /// Files of earlier turns, put into the work directory again. False: there was no room for all of them.
    pub(crate) fn stage_files(&self, files: Vec<(String, bytes::Bytes)>) -> bool {
        self.lock().files.stage(files, self.room())
    }

    /// Hands the executions, the uses of skills and what became of files so far over to the log.
    pub(crate) fn take_notes(&self, log: &mut RequestLog) {
        let mut state = self.lock();
        log.executions.append(&mut state.executions);
        log.uses.append(&mut state.uses);
        if std::mem::take(&mut state.has_undelivered_files) {
            log.notes.push(FILES_NOT_DELIVERED.to_owned());
        }
    }

    /// Attachments are decoded only if something runs: most requests with images run nothing.
    pub(crate) fn stage_attachments_later(&self, request: knack_wire::Request) {
        self.lock().files.attach_later(request);
    }

    fn room(&self) -> FileMemory<'_> {
        FileMemory {
            requests: &self.requests,
            caller: &self.caller_key,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LoopState> {
        loop_state::lock(&self.state)
    }
}
