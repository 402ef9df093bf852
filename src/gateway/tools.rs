//! Calls of injected tools: resolved by knack-skill, run by the executor, told to the model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use knack_skill::call::{self, CallContext, Cwd, Decision, End, LoadRecord, Outcome, RunSpec};
use knack_skill::plan::Plan;
use knack_wire::drive::{GeneratedFile, NativeRun};
use knack_wire::request::Attachment;
use knack_wire::{Call, CallOutcome};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::files::{FileEntry, file_id};
use super::grants::Grants;
use super::trace::CallTrace;
use crate::catalog::Snapshot;
use crate::execution::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, ExecutionStatus, Executor, Exit, InputFile,
    Language, Limits, Program, SkillMount, StartKind, WorkingDirectory,
};
use crate::telemetry::genai::{Failure, Ran};

/// Everything the calls of one request share.
#[derive(Debug)]
pub struct ToolRunner {
    /// The snapshot that the request began with.
    pub snapshot: Arc<Snapshot>,
    /// The request's plan.
    pub plan: Arc<Plan>,
    /// Runs programs.
    pub executor: Arc<dyn Executor>,
    /// Environment grants.
    pub grants: Arc<Grants>,
    /// The caller's identity, for execution records.
    pub caller: String,
    /// The gateway request's own id.
    pub request_id: String,
    /// When the request began, since the Unix epoch.
    pub request_start: Duration,
    /// Base of file URLs written into tool texts, if the gateway's public URL is known.
    pub public_url: Option<String>,
    /// What grows while the loop runs.
    pub state: Mutex<LoopState>,
}

/// What grows while the loop runs.
#[derive(Debug, Default)]
pub struct LoopState {
    /// Skills loaded so far, by earlier rounds and expanded turns.
    pub loaded: Vec<LoadRecord>,
    /// Files of earlier runs and of the user, by path; a later one of the same path wins.
    pub files: BTreeMap<String, bytes::Bytes>,
    /// The request whose attachments are not staged yet.
    pub request: Option<knack_wire::Request>,
    /// Executions for the log.
    pub executions: Vec<ExecutionNote>,
}

/// One execution, for logs and metrics.
#[derive(Debug, Clone)]
pub struct ExecutionNote {
    /// Execution id.
    pub id: String,
    /// `namespace/name`, or empty.
    pub skill: String,
    /// `success`, `error`, `timeout`, or the error's label.
    pub status: &'static str,
    /// `warm`, `cold`, or empty if nothing started.
    pub start: &'static str,
    /// From asking to the result.
    pub duration: Duration,
}

/// Lines of a schema mismatch that a model is told; more would bury the schema that follows.
const SCHEMA_ERRORS_TOLD: usize = 5;

impl ToolRunner {
    /// Answers one call. Never fails: what goes wrong becomes a text that the model can act on.
    pub async fn run(
        self: Arc<Self>,
        call: Call,
        response_id: String,
        cancel: CancellationToken,
        trace: CallTrace,
    ) -> CallOutcome {
        match self.decide(&call) {
            None => {
                trace.end(&told(true));
                CallOutcome {
                    token: call.token,
                    text: format!("No tool \"{}\".", call.name),
                    is_error: true,
                    ..CallOutcome::default()
                }
            }
            Some(Decision::Text { text, is_error, loaded }) => {
                trace.end(&told(is_error));
                let reference = loaded.as_ref().and_then(|record| serde_json::to_string(record).ok());
                self.lock().loaded.extend(loaded);
                let native = native(&text, "", i32::from(is_error), Vec::new());
                CallOutcome {
                    token: call.token,
                    text,
                    is_error,
                    reference,
                    native: Some(native),
                    files: Vec::new(),
                }
            }
            Some(Decision::Run(spec)) => self.execute(&call, *spec, &response_id, cancel, trace).await,
        }
    }

    fn decide(&self, call: &Call) -> Option<Decision> {
        let loaded = self.lock().loaded.clone();
        let context = CallContext {
            plan: &self.plan,
            catalog: &self.snapshot.catalog,
            loaded: &loaded,
            validate: &validate,
        };
        call::resolve(&context, &call.name, &call.arguments)
    }

    async fn execute(
        &self,
        call: &Call,
        spec: RunSpec,
        response_id: &str,
        cancel: CancellationToken,
        trace: CallTrace,
    ) -> CallOutcome {
        let id = ExecutionId::new(self.request_start, &self.request_id, call.round, &call.id);
        let begun = tokio::time::Instant::now();
        let limits = self.limits(&spec);
        let result = match self.request(id, &spec, limits.clone()) {
            Ok(mut request) => {
                request.trace = trace.context();
                self.executor.execute(request, cancel).await
            }
            Err(error) => Err(error),
        };
        trace.end(&self.note(id, &spec, &result, begun.elapsed()));
        let timeout_seconds = limits.timeout.as_secs();
        let (outcome, files) = match &result {
            Ok(result) => self.outcome(result, timeout_seconds, response_id),
            Err(error) => (not_started(&error.to_string()), Vec::new()),
        };
        let text = call::render(&spec, &outcome);
        let failed = call::is_error(&outcome);
        let ids = files.iter().map(|file| file_id(response_id, &file.name)).collect();
        let code = match outcome.end {
            End::Exit(code) => code,
            End::Signal(signal) => 128 + signal,
            End::Timeout { .. } => 124,
            End::OutOfMemory => 137,
            End::NotStarted(_) => 126,
        };
        let native = match &outcome.end {
            End::NotStarted(reason) => native("", reason, code, Vec::new()),
            _ => native(&outcome.stdout, &outcome.stderr, code, ids),
        };
        CallOutcome {
            token: call.token,
            text,
            is_error: failed,
            reference: None,
            native: Some(native),
            files,
        }
    }

    fn request(&self, id: ExecutionId, spec: &RunSpec, limits: Limits) -> Result<ExecutionRequest, ExecutionError> {
        if self.snapshot.runtime.suspend {
            return Err(ExecutionError::Invalid(
                "skills are suspended by their runtime (spec.suspend)".to_owned(),
            ));
        }
        self.stage_attachments();
        let granted = self.grants.for_run(spec.skill.as_ref(), &spec.env);
        let mut inputs: HashMap<String, bytes::Bytes> = spec
            .staged
            .iter()
            .map(|(path, bytes)| (path.clone(), bytes::Bytes::copy_from_slice(bytes)))
            .collect();
        inputs.extend(
            self.lock()
                .files
                .iter()
                .map(|(path, bytes)| (path.clone(), bytes.clone())),
        );
        let mut inputs: Vec<InputFile> = inputs
            .into_iter()
            .map(|(path, bytes)| InputFile { path, bytes })
            .collect();
        inputs.sort_by(|a, b| a.path.cmp(&b.path));
        let mount = |mount: &knack_skill::call::Mount| SkillMount {
            name: mount_name(&mount.path),
            skill: Arc::clone(&mount.skill),
        };
        Ok(ExecutionRequest {
            id,
            caller: self.caller.clone(),
            skill: spec
                .skill
                .as_ref()
                .map(|skill| format!("{}/{}", skill.namespace, skill.name)),
            program: match &spec.program {
                call::Program::Code { language, source } => Program::Code {
                    language: language_of(*language),
                    source: source.clone(),
                },
                call::Program::Argv(argv) => Program::Command { argv: argv.clone() },
            },
            mounts: spec.mounts.iter().map(mount).collect(),
            inputs,
            working_directory: match &spec.cwd {
                Cwd::Work => WorkingDirectory::Work,
                Cwd::Mount(path) => WorkingDirectory::Skill(mount_name(path)),
            },
            env: granted.env,
            limits,
            trace: None,
        })
    }

    /// The skill's wishes within the runtime's ceilings.
    fn limits(&self, spec: &RunSpec) -> Limits {
        let runtime = &self.snapshot.runtime;
        let asked = spec
            .sandbox
            .timeout_seconds
            .map_or(runtime.timeout, Duration::from_secs);
        let base = Limits::default();
        Limits {
            timeout: asked.min(runtime.max_timeout),
            max_output_bytes: spec
                .sandbox
                .max_output_bytes
                .map_or(base.max_output_bytes, |asked| asked.min(base.max_output_bytes)),
            memory_bytes: match (spec.sandbox.memory_bytes, runtime.memory_bytes) {
                (Some(asked), Some(ceiling)) => Some(asked.min(ceiling)),
                (asked, ceiling) => asked.or(ceiling),
            },
            ..base
        }
    }

    /// The result in the model's terms; its files are staged for later runs and handed on.
    fn outcome(
        &self,
        result: &ExecutionResult,
        timeout_seconds: u64,
        response_id: &str,
    ) -> (Outcome, Vec<GeneratedFile>) {
        let mut state = self.lock();
        for file in &result.files {
            state.files.insert(file.path.clone(), file.bytes.clone());
        }
        let url = |name: &str| {
            self.public_url
                .as_ref()
                .filter(|_| !response_id.is_empty())
                .map(|base| format!("{base}/knack/v1/responses/{response_id}/files/{}", encode_path(name)))
        };
        let files = result.files.iter().map(|file| call::OutputFile {
            path: file.path.clone(),
            mime: file.mime_type.to_owned(),
            size: file.bytes.len() as u64,
            url: url(&file.path),
        });
        let outcome = Outcome {
            end: end_of(result.exit, timeout_seconds),
            duration_ms: u64::try_from(result.timings.run.as_millis()).unwrap_or(u64::MAX),
            stdout: result.stdout.text().into_owned(),
            stderr: stderr_text(result),
            truncated: result.stdout.truncated || result.stderr.truncated,
            files: files.collect(),
            file_errors: result
                .file_errors
                .iter()
                .map(|error| format!("{}: {}", error.path, error.reason))
                .collect(),
        };
        let generated = result.files.iter().map(|file| GeneratedFile {
            name: file.path.clone(),
            media_type: file.mime_type.to_owned(),
            bytes: file.bytes.clone(),
        });
        (outcome, generated.collect())
    }

    fn note(
        &self,
        id: ExecutionId,
        spec: &RunSpec,
        result: &Result<Arc<ExecutionResult>, ExecutionError>,
        duration: Duration,
    ) -> Ran {
        let note = ExecutionNote {
            id: id.to_string(),
            skill: spec
                .skill
                .as_ref()
                .map(|skill| format!("{}/{}", skill.namespace, skill.name))
                .unwrap_or_default(),
            status: result
                .as_ref()
                .map_or_else(ExecutionError::metric_label, |result| result.status().as_str()),
            start: result
                .as_ref()
                .map_or("", |result| StartKind::as_str(result.timings.start)),
            duration,
        };
        tracing::info!(request_id = %self.request_id, execution_id = %note.id, skill = %note.skill, status = note.status, start = note.start, "execution ended");
        let ran = ran(&note);
        self.lock().executions.push(note);
        ran
    }

    /// Files of earlier turns: they stand in the work directory again.
    pub fn stage_files(&self, files: Vec<(String, bytes::Bytes)>) {
        self.lock().files.extend(files);
    }

    /// The executions so far, handed over to the log.
    pub fn take_notes(&self) -> Vec<ExecutionNote> {
        std::mem::take(&mut self.lock().executions)
    }

    /// Attachments are decoded only if something runs: most requests with images run nothing.
    pub fn stage_attachments_later(&self, request: knack_wire::Request) {
        self.lock().request = Some(request);
    }

    /// Stages what the user attached as `inputs/<name>`; names are made safe and distinct.
    fn stage_attachments(&self) {
        let mut state = self.lock();
        let Some(request) = state.request.take() else { return };
        let attachments: Vec<Attachment> = request.attachments();
        for (index, attachment) in attachments.into_iter().enumerate() {
            let name = input_name(&attachment, index, |name| {
                state.files.contains_key(&format!("inputs/{name}"))
            });
            state.files.insert(format!("inputs/{name}"), attachment.bytes.into());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a trace tells of a call that ran nothing.
fn told(is_error: bool) -> Ran {
    Ran {
        failure: is_error.then_some(Failure::Refused),
        ..Ran::default()
    }
}

/// What a trace tells of an execution.
fn ran(note: &ExecutionNote) -> Ran {
    Ran {
        execution: Some(note.id.clone()),
        skill: (!note.skill.is_empty()).then(|| note.skill.clone()),
        start: (!note.start.is_empty()).then_some(note.start),
        failure: (note.status != ExecutionStatus::Success.as_str()).then_some(Failure::Run(note.status)),
    }
}

fn validate(schema: &Value, arguments: &Value) -> Result<(), String> {
    // A schema that does not compile was reported when the skill was loaded; it binds nothing here.
    let Ok(validator) = jsonschema::validator_for(schema) else {
        return Ok(());
    };
    let errors: Vec<String> = validator
        .iter_errors(arguments)
        .take(SCHEMA_ERRORS_TOLD)
        .map(|error| {
            let path = error.instance_path().to_string();
            if path.is_empty() {
                error.to_string()
            } else {
                format!("{path}: {error}")
            }
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.join("; "))
    }
}

fn not_started(reason: &str) -> Outcome {
    Outcome {
        end: End::NotStarted(reason.to_owned()),
        duration_ms: 0,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        files: Vec::new(),
        file_errors: Vec::new(),
    }
}

/// Ends that have no word of their own for the model are told as what they are: a kill with the reason on stderr.
fn end_of(exit: Exit, timeout_seconds: u64) -> End {
    match exit {
        Exit::Code(code) => End::Exit(code),
        Exit::Signal(signal) => End::Signal(signal),
        Exit::Timeout => End::Timeout {
            seconds: timeout_seconds,
        },
        Exit::OutOfMemory => End::OutOfMemory,
        Exit::OutputLimit | Exit::DiskLimit | Exit::ProcessLimit => End::Signal(9),
    }
}

fn stderr_text(result: &ExecutionResult) -> String {
    let mut text = result.stderr.text().into_owned();
    let reason = match result.exit {
        Exit::OutputLimit => "ended by the sandbox: too much output",
        Exit::DiskLimit => "ended by the sandbox: too many files or bytes written",
        Exit::ProcessLimit => "ended by the sandbox: too many processes",
        Exit::Code(_) | Exit::Signal(_) | Exit::Timeout | Exit::OutOfMemory => return text,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(reason);
    text
}

const fn language_of(language: call::Language) -> Language {
    match language {
        call::Language::Python => Language::Python,
        call::Language::Node => Language::Node,
    }
}

fn mount_name(path: &str) -> String {
    path.strip_prefix("skills/").unwrap_or(path).to_owned()
}

fn native(stdout: &str, stderr: &str, return_code: i32, file_ids: Vec<String>) -> NativeRun {
    NativeRun {
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
        return_code,
        file_ids,
    }
}

/// Attachments of one name that are told apart; the last one of more replaces the one before.
const MAX_SAME_NAMES: usize = 200;
/// Longest staged input name, bytes; file systems take 255.
const INPUT_NAME_MAX: usize = 120;

fn input_name(attachment: &Attachment, index: usize, taken: impl Fn(&str) -> bool) -> String {
    let given = attachment.name.as_deref().unwrap_or_default();
    let base = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut clean: String = base
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ') {
                c
            } else {
                '_'
            }
        })
        .collect();
    while clean.len() > INPUT_NAME_MAX {
        clean.pop();
    }
    let clean = clean.trim().trim_start_matches('.');
    let name = if clean.is_empty() {
        format!("file-{}{}", index + 1, extension(attachment.media_type.as_deref()))
    } else {
        clean.to_owned()
    };
    if !taken(&name) {
        return name;
    }
    (2..=MAX_SAME_NAMES)
        .map(|n| format!("{n}-{name}"))
        .find(|name| !taken(name))
        .unwrap_or(name)
}

fn extension(media_type: Option<&str>) -> &'static str {
    match media_type.unwrap_or_default() {
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "application/pdf" => ".pdf",
        "text/plain" => ".txt",
        "text/csv" => ".csv",
        "application/json" => ".json",
        _ => ".bin",
    }
}

/// Percent-encodes a file path for a URL; slashes stay.
fn encode_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The entries under which generated files are kept.
pub fn entries(files: &[GeneratedFile]) -> Vec<(FileEntry, bytes::Bytes)> {
    files
        .iter()
        .map(|file| {
            let entry = FileEntry {
                name: file.name.clone(),
                mime_type: file.media_type.clone(),
                size_bytes: file.bytes.len() as u64,
                sha256: crate::digest::sha256(&file.bytes),
            };
            (entry, file.bytes.clone())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(name: Option<&str>, media_type: Option<&str>) -> Attachment {
        Attachment {
            name: name.map(ToOwned::to_owned),
            media_type: media_type.map(ToOwned::to_owned),
            bytes: Vec::new(),
        }
    }

    #[test]
    fn attachment_names_are_safe_and_distinct() {
        for (name, media_type, expected) in [
            (Some("data.csv"), None, "data.csv"),
            (Some("../../etc/passwd"), None, "passwd"),
            (Some("a\\b\\c.txt"), None, "c.txt"),
            (Some(".bashrc"), None, "bashrc"),
            (Some("x\0y"), None, "x_y"),
            (None, Some("image/png"), "file-1.png"),
            (Some("//"), None, "file-1.bin"),
        ] {
            assert_eq!(input_name(&attachment(name, media_type), 0, |_| false), expected);
        }
        assert_eq!(input_name(&attachment(Some("a"), None), 0, |name| name == "a"), "2-a");
    }

    #[test]
    fn schema_mismatches_name_the_member() {
        let schema = serde_json::json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert!(validate(&schema, &serde_json::json!({"n": 1})).is_ok());
        assert!(
            validate(&schema, &serde_json::json!({"n": "x"}))
                .unwrap_err()
                .starts_with("/n: ")
        );
        assert!(validate(&schema, &serde_json::json!({})).unwrap_err().contains("\"n\""));
        assert!(
            validate(
                &serde_json::json!({"$ref": "http://127.0.0.1:9/x"}),
                &serde_json::json!({})
            )
            .is_ok()
        );
    }
}
