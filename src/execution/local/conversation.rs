//! The frames of one run: program and inputs out; output, files and the result back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knack_runner::protocol::{
    Ack, Area, Cancel, Cwd, Data, Exit as WireExit, FilePiece, Files, FromRunner, KILL_BOUND_MS, Limits as WireLimits,
    OutputStream, PIECE_BYTES, Program as WireProgram, Run as RunFrame, RunResult, StagedFile, ToRunner, encode,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{
    ExecutionError, ExecutionRequest, ExecutionResult, Exit, FileError, Language, LockReport, OutputFile, Program,
    StartKind, Stream, Timings, WorkingDirectory, mime_type,
};
use super::sandbox::{Sandbox, address_space, lock_report, millis, wire_language};

/// How much later than the runner the executor ends a run: after the runner has given up killing, and collecting files
/// takes up to a second. Only a runner that hangs meets it.
const DEADLINE_MARGIN: Duration = Duration::from_millis(KILL_BOUND_MS + 3000);

/// How long a cancelled runner may take to kill its run before it is killed itself.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

/// How a run went.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It has a result.
    Ended(ExecutionResult),
    /// It has none, and the program was not started: it may be started in another sandbox.
    NotStarted(ExecutionError),
    /// It has none, and the program may have been started.
    Failed(ExecutionError),
}

/// What came so far.
#[derive(Debug, Default)]
struct Collected {
    started: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<OutputFile>,
    partial: BTreeMap<String, Vec<u8>>,
    file_errors: Vec<FileError>,
}

/// Runs the request in a sandbox, once. `argv` is the command with its interpreter resolved, for commands.
pub(super) async fn run(
    mut sandbox: Sandbox,
    request: &ExecutionRequest,
    program: WireProgram,
    language: Option<Language>,
    start: StartKind,
    cancel: &CancellationToken,
) -> Verdict {
    let began = Instant::now();
    let mut collected = Collected::default();
    let deadline = began + request.limits.timeout + DEADLINE_MARGIN;
    let talk = talk(&mut sandbox, request, program, language, &mut collected);
    tokio::select! {
        biased;
        () = cancel.cancelled() => {
            end_cancelled(sandbox).await;
            Verdict::Failed(ExecutionError::Cancelled)
        }
        result = tokio::time::timeout_at(deadline, talk) => match result {
            Ok(Ok(RunResult { exit: WireExit::Survivors { count }, .. })) => {
                // The uid is swept again and, if that does not help either, never used again.
                sandbox.kill().await;
                Verdict::Failed(left(&format!("{count} of them")))
            }
            Ok(Ok(result)) => {
                // Later: the answer does not wait for the runner's exit.
                tokio::spawn(acknowledge(sandbox));
                verdict(request, &result, collected, start)
            }
            Ok(Err(error)) if collected.started => Verdict::Failed(error),
            Ok(Err(error)) => Verdict::NotStarted(error),
            Err(_) => {
                let locks = sandbox.locks.clone().unwrap_or_default();
                if !sandbox.kill().await {
                    return Verdict::Failed(left("the runner did not answer"));
                }
                let timings = timings(began.elapsed(), start);
                Verdict::Ended(collected.into_result(request, Exit::Timeout, [false; 2], timings, locks))
            }
        }
    }
}

async fn talk(
    sandbox: &mut Sandbox,
    request: &ExecutionRequest,
    program: WireProgram,
    language: Option<Language>,
    collected: &mut Collected,
) -> Result<RunResult, ExecutionError> {
    let nonce = sandbox.nonce();
    send_inputs(sandbox, request, &nonce).await?;
    let frame = RunFrame {
        nonce: nonce.clone(),
        id: request.id.to_string(),
        program,
        cwd: match &request.working_directory {
            WorkingDirectory::Work => Cwd::Work,
            WorkingDirectory::Skill(name) => Cwd::Skill(name.clone()),
        },
        environment: request.env.clone(),
        limits: WireLimits {
            timeout_ms: Some(millis(request.limits.timeout)),
            address_space_bytes: address_space(language, request.limits.memory_bytes),
            processes: request.limits.max_processes.map(u64::from),
            output_bytes: Some(request.limits.max_output_bytes),
            result_bytes: Some(request.limits.max_files_bytes),
            result_files: Some(u64::from(request.limits.max_files)),
            ..WireLimits::default()
        },
    };
    sandbox.send(&encode(&ToRunner::Run(frame))).await?;
    loop {
        match sandbox.next().await? {
            FromRunner::Result(result) if result.nonce == nonce => return Ok(result),
            FromRunner::Rejected(rejected) => return Err(ExecutionError::Internal(rejected.message)),
            frame => collected.take(frame, &nonce),
        }
    }
}

async fn send_inputs(sandbox: &mut Sandbox, request: &ExecutionRequest, nonce: &str) -> Result<(), ExecutionError> {
    for input in &request.inputs {
        // `chunks` of nothing is no chunk at all, but an empty file is a file.
        let pieces = input
            .bytes
            .chunks(PIECE_BYTES)
            .chain(input.bytes.is_empty().then_some(&[][..]));
        for (index, piece) in pieces.enumerate() {
            let file = StagedFile {
                path: input.path.clone(),
                data: Data::from(piece),
                append: index > 0,
                executable: false,
            };
            let frame = Files {
                nonce: nonce.to_owned(),
                area: Area::Work,
                files: vec![file],
            };
            sandbox.send(&encode(&ToRunner::Files(frame))).await?;
        }
    }
    Ok(())
}

/// The answer is complete, so a runner that is gone already is no failure.
async fn acknowledge(mut sandbox: Sandbox) {
    let nonce = sandbox.nonce();
    let _ = sandbox.send(&encode(&ToRunner::Ack(Ack { nonce }))).await;
}

async fn end_cancelled(mut sandbox: Sandbox) {
    let nonce = sandbox.nonce();
    let end = async {
        sandbox
            .send(&encode(&ToRunner::Cancel(Cancel { nonce: nonce.clone() })))
            .await?;
        while !matches!(sandbox.next().await?, FromRunner::Result(_)) {}
        sandbox.send(&encode(&ToRunner::Ack(Ack { nonce }))).await
    };
    // Without an own uid the runner alone can find the run: with its stdin closed it goes on killing.
    if !matches!(tokio::time::timeout(CANCEL_GRACE, end).await, Ok(Ok(()))) && sandbox.has_own_uid() {
        sandbox.kill().await;
    }
}

/// The run is over but not gone: no result, whatever the program said.
fn left(how: &str) -> ExecutionError {
    ExecutionError::Internal(format!("processes of the run could not be ended ({how})"))
}

fn verdict(request: &ExecutionRequest, result: &RunResult, collected: Collected, start: StartKind) -> Verdict {
    let exit = match &result.exit {
        WireExit::Code { code } => Exit::Code(*code),
        WireExit::Signal { signal } => Exit::Signal(*signal),
        WireExit::Timeout | WireExit::CpuLimit => Exit::Timeout,
        WireExit::OutOfMemory => Exit::OutOfMemory,
        WireExit::OutputLimit => Exit::OutputLimit,
        WireExit::ProcessLimit => Exit::ProcessLimit,
        WireExit::FileLimit => Exit::DiskLimit,
        WireExit::Survivors { count } => return Verdict::Failed(left(&format!("{count} of them"))),
        WireExit::Cancelled => return Verdict::Failed(ExecutionError::Cancelled),
        WireExit::NotStarted { reason } => {
            let error = match request.program {
                // A command that does not exist is the model's mistake, and no other sandbox would have it.
                Program::Command { .. } => ExecutionError::Invalid(reason.clone()),
                Program::Code { .. } => ExecutionError::Internal(reason.clone()),
            };
            return Verdict::NotStarted(error);
        }
    };
    let truncated = [result.stdout.truncated, result.stderr.truncated];
    let timings = timings(Duration::from_micros(result.wall_us), start);
    let locks = result.locks.map(lock_report).unwrap_or_default();
    Verdict::Ended(collected.into_result(request, exit, truncated, timings, locks))
}

/// Queue wait and total are filled in by the executor.
const fn timings(run: Duration, start: StartKind) -> Timings {
    Timings {
        queue_wait: Duration::ZERO,
        total: Duration::ZERO,
        run,
        start,
    }
}

impl Collected {
    fn take(&mut self, frame: FromRunner, nonce: &str) {
        match frame {
            FromRunner::Started(started) if started.nonce == nonce => self.started = true,
            FromRunner::Output(output) if output.nonce == nonce => match output.stream {
                OutputStream::Stdout => self.stdout.extend(output.data.0),
                OutputStream::Stderr => self.stderr.extend(output.data.0),
            },
            FromRunner::File(piece) if piece.nonce == nonce => self.take_piece(piece),
            FromRunner::FileError(error) if error.nonce == nonce => {
                self.file_errors.push(FileError {
                    path: error.path,
                    reason: error.message,
                });
            }
            _ => {}
        }
    }

    fn take_piece(&mut self, piece: FilePiece) {
        let last = piece.last;
        let bytes = self.partial.entry(piece.path.clone()).or_default();
        bytes.extend(piece.data.0);
        if last && let Some(bytes) = self.partial.remove(&piece.path) {
            let mime_type = mime_type(&piece.path);
            self.files.push(OutputFile {
                path: piece.path,
                bytes: Bytes::from(bytes),
                sha256: piece.sha256,
                mime_type,
            });
        }
    }

    fn into_result(
        self,
        request: &ExecutionRequest,
        exit: Exit,
        truncated: [bool; 2],
        timings: Timings,
        locks: LockReport,
    ) -> ExecutionResult {
        let [stdout_truncated, stderr_truncated] = truncated;
        ExecutionResult {
            id: request.id,
            exit,
            stdout: Stream {
                bytes: self.stdout.into(),
                truncated: stdout_truncated,
            },
            stderr: Stream {
                bytes: self.stderr.into(),
                truncated: stderr_truncated,
            },
            files: self.files,
            file_errors: self.file_errors,
            timings,
            locks,
        }
    }
}

/// The wire's program: an interpreter named by its usual name becomes the resolved one.
pub(super) fn wire_program(
    program: &Program,
    resolve: impl Fn(Language) -> Option<String>,
) -> Result<(WireProgram, Option<Language>), ExecutionError> {
    let lacks =
        |language: Language| ExecutionError::Invalid(format!("{} is not available in this sandbox", language.as_str()));
    match program {
        Program::Code { language, source } => {
            resolve(*language).ok_or_else(|| lacks(*language))?;
            let program = WireProgram::Code {
                language: wire_language(*language),
                source: source.clone(),
                arguments: Vec::new(),
            };
            Ok((program, Some(*language)))
        }
        Program::Command { argv } => {
            let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
                return Err(ExecutionError::Invalid("the command is empty".into()));
            };
            let language = match name.as_str() {
                "python" | "python3" => Some(Language::Python),
                "node" => Some(Language::Node),
                _ => None,
            };
            let mut argv = argv.clone();
            if let Some(language) = language {
                argv[0] = resolve(language).ok_or_else(|| lacks(language))?;
            }
            Ok((WireProgram::Command { argv }, language))
        }
    }
}

/// A request's cancellation as seen by a run: shared by clone.
pub(super) type SharedRequest = Arc<ExecutionRequest>;
