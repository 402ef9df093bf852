//! The frames of one run, over any transport: program and inputs out; output, files and the result back.
//!
//! A local child process and a pod's attach stream are two transports of this one conversation.

use std::future::Future;
use std::time::Duration;

use knack_memory::MemoryBudget;
use knack_runner::protocol::{
    Area, Cwd, Data, Exit as WireExit, Files, FromRunner, KILL_BOUND_MS, LandlockState, Language as WireLanguage,
    Limits as WireLimits, Locks, OutputStream, PIECE_BYTES, Program as WireProgram, Run as RunFrame, RunResult,
    StagedFile, ToRunner,
};

use super::caps::{RunUsage, hold};
use super::incoming_files::IncomingFiles;
use super::run_limits::address_space;
use super::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Exit, FileError, Language, Limits, LockReport,
    Missing, OutputFile, Program, SkillMount, StartKind, Stream, Timings, WorkingDirectory,
};

/// How much later than the runner the executor ends a run: after the runner has given up killing, and collecting files
/// takes up to a second. Only a runner that hangs meets it.
pub const DEADLINE_MARGIN: Duration = Duration::from_millis(KILL_BOUND_MS + 3000);

/// Something that carries frames to a runner and back.
pub trait Transport: Send {
    /// Makes the line of a frame. Lines are sent in the order in which they were made.
    fn encode(&mut self, frame: &ToRunner) -> Vec<u8>;

    /// The digest of everything that was asked so far; see [`knack_runner::protocol::OwnerLink::asked`].
    fn request_digest(&self) -> String;

    /// Writes bytes to the runner.
    fn send(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), ExecutionError>> + Send;

    /// Reads the next frame that the runner itself has made. Cancel-safe. Errors: there will be none.
    fn next(&mut self) -> impl Future<Output = Result<FromRunner, ExecutionError>> + Send;
}

/// How a run went.
#[derive(Debug)]
pub enum RunEnd {
    /// It has a result.
    Ended(ExecutionResult),
    /// It has none, and the program was not started: it may be started in another sandbox.
    NotStarted(ExecutionError),
    /// It has none, and the program may have been started.
    Failed(ExecutionError),
}

/// The execution that the result belongs to.
#[derive(Debug, Clone, Copy)]
pub struct ExecutionRef {
    /// The execution.
    pub id: ExecutionId,
    /// Whether its program is a command.
    pub is_command: bool,
}

impl ExecutionRef {
    /// The reference of a request.
    pub const fn of(request: &ExecutionRequest) -> Self {
        Self {
            id: request.id,
            is_command: matches!(request.program, Program::Command { .. }),
        }
    }
}

/// The frames that were received so far.
#[derive(Debug, Default)]
pub struct CollectedFrames {
    /// Whether the runner reported the start of the program.
    pub started: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: IncomingFiles,
    file_errors: Vec<FileError>,
    usage: RunUsage,
}

/// The frame that runs the program; `context` is the owner's own.
pub fn run_frame(
    request: &ExecutionRequest,
    program: WireProgram,
    language: Option<Language>,
    context: String,
) -> ToRunner {
    ToRunner::Run(RunFrame {
        id: request.id.to_string(),
        context,
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
        require_landlock: 0,
    })
}

/// Reads frames up to the result of the run, which must be the one that was asked for.
///
/// Errors: those of the transport, what the runner rejects, and a runner that has run something else.
pub async fn read_result(
    transport: &mut impl Transport,
    id: ExecutionId,
    collected: &mut CollectedFrames,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> Result<RunResult, ExecutionError> {
    let asked = SentRun {
        id: id.to_string(),
        digest: transport.request_digest(),
    };
    loop {
        match transport.next().await? {
            FromRunner::Result(result) => {
                asked.check_result(&result)?;
                collected.take(FromRunner::Result(result.clone()))?;
                return Ok(result);
            }
            FromRunner::Rejected(rejected) => return Err(ExecutionError::Internal(rejected.message)),
            frame => {
                if let FromRunner::Started(started) = &frame {
                    asked.check(&started.id, &started.digest)?;
                }
                observe(&frame);
                collected.take(frame)?;
            }
        }
    }
}

/// The request to a runner.
struct SentRun {
    id: String,
    digest: String,
}

impl SentRun {
    fn check_result(&self, result: &RunResult) -> Result<(), ExecutionError> {
        if failed_before_run(result) {
            return Ok(());
        }
        self.check(&result.id, &result.digest)
    }

    fn check(&self, id: &str, digest: &str) -> Result<(), ExecutionError> {
        if self.id == id && self.digest == digest {
            return Ok(());
        }
        Err(something_else())
    }
}

/// Whether the sandbox failed before it read what it was asked: such a result names no execution.
fn failed_before_run(result: &RunResult) -> bool {
    result.id.is_empty() && matches!(result.exit, WireExit::NotStarted { .. } | WireExit::LocksMissing { .. })
}

fn something_else() -> ExecutionError {
    ExecutionError::Internal("the sandbox ran something other than it was asked to".into())
}

/// The frames that stage the input files.
pub fn input_frames(request: &ExecutionRequest) -> impl Iterator<Item = ToRunner> {
    request
        .inputs
        .iter()
        .flat_map(|input| file_frames(Area::Work, input.path.clone(), &input.bytes, false))
}

/// The frames that stage the files of a skill, for sandboxes on another machine.
pub fn skill_frames(mount: &SkillMount) -> impl Iterator<Item = ToRunner> {
    mount.skill.files.iter().flat_map(|(path, file)| {
        let path = format!("{}/{path}", mount.name);
        file_frames(Area::Skills, path, &file.bytes, file.executable)
    })
}

/// One frame at a time: a file is larger than what may wait to be sent.
fn file_frames(area: Area, path: String, bytes: &[u8], executable: bool) -> impl Iterator<Item = ToRunner> {
    // `chunks` of an empty file yields nothing, but the file must be staged.
    let pieces = bytes.chunks(PIECE_BYTES).chain(bytes.is_empty().then_some(&[][..]));
    pieces.enumerate().map(move |(index, piece)| {
        ToRunner::Files(Files {
            area,
            files: vec![StagedFile {
                path: path.clone(),
                data: Data::from(piece),
                append: index > 0,
                executable,
            }],
        })
    })
}

/// The run is over but some of its processes are left: it has no result, whatever the program printed.
pub fn processes_left(how: &str) -> ExecutionError {
    ExecutionError::Internal(format!("processes of the run could not be ended ({how})"))
}

/// The outcome of a result and all frames before it, read from the stream, or from the log afterwards.
pub fn run_end(reference: ExecutionRef, result: &RunResult, collected: CollectedFrames, start: StartKind) -> RunEnd {
    if !failed_before_run(result) && result.id != reference.id.to_string() {
        return RunEnd::Failed(something_else());
    }
    let exit = match &result.exit {
        WireExit::Code { code } => Exit::Code(*code),
        WireExit::Signal { signal } => Exit::Signal(*signal),
        WireExit::Timeout | WireExit::CpuLimit => Exit::Timeout,
        WireExit::OutOfMemory => Exit::OutOfMemory,
        WireExit::OutputLimit => Exit::OutputLimit,
        WireExit::ProcessLimit => Exit::ProcessLimit,
        WireExit::FileLimit => Exit::DiskLimit,
        WireExit::Survivors { count } => return RunEnd::Failed(processes_left(&format!("{count} of them"))),
        WireExit::Cancelled => return RunEnd::Failed(ExecutionError::Cancelled),
        WireExit::LocksMissing { reason } => {
            return RunEnd::NotStarted(ExecutionError::Unavailable(locks_missing(reason)));
        }
        WireExit::NotStarted { reason, of_program } => {
            // A command that does not exist is the model's mistake, and no other sandbox would have it. An older runner
            // does not say what the reason is: of a command it is taken to be the command.
            return RunEnd::NotStarted(if of_program.unwrap_or(reference.is_command) {
                ExecutionError::Invalid(reason.clone())
            } else {
                ExecutionError::Internal(reason.clone())
            });
        }
    };
    let truncated = [result.stdout.truncated, result.stderr.truncated];
    let timings = timings(Duration::from_micros(result.wall_us), start);
    let locks = result.locks.map(lock_report).unwrap_or_default();
    RunEnd::Ended(collected.into_result(reference.id, exit, truncated, timings, locks))
}

/// The kernel of the sandbox does not give a lock that is demanded.
pub(crate) fn locks_missing(reason: &str) -> Missing {
    Missing::new(
        reason,
        "use a kernel with Landlock (Linux 5.13 or later, kernel parameter lsm=landlock,...)",
    )
}

/// Queue wait and total are filled in by the executor.
pub const fn timings(run: Duration, start: StartKind) -> Timings {
    Timings {
        queue_wait: Duration::ZERO,
        total: Duration::ZERO,
        run,
        start,
    }
}

impl CollectedFrames {
    /// Nothing yet, of a run with limits; what comes is counted in `memory`.
    pub fn within(limits: &Limits, memory: Option<&MemoryBudget>) -> Self {
        Self {
            usage: RunUsage::within(limits, memory),
            ..Self::default()
        }
    }

    /// Nothing yet, of a run whose limits are no longer known; what comes is counted in `memory`.
    pub fn of_unknown(memory: Option<&MemoryBudget>) -> Self {
        Self {
            usage: RunUsage::of_unknown(memory),
            ..Self::default()
        }
    }

    /// Whether the run must end for what its runner sent: more than its limits allow, or than there is room for.
    pub const fn is_over(&self) -> bool {
        self.usage.is_over()
    }

    /// Takes one frame in. Errors: the run must end, see [`CollectedFrames::is_over`].
    pub fn take(&mut self, frame: FromRunner) -> Result<(), ExecutionError> {
        match frame {
            FromRunner::Started(_) => self.started = true,
            FromRunner::Output(output) => {
                let (index, stream) = match output.stream {
                    OutputStream::Stdout => (0, &mut self.stdout),
                    OutputStream::Stderr => (1, &mut self.stderr),
                };
                self.usage.output(index, output.data.0.len())?;
                stream.extend(output.data.0);
            }
            FromRunner::File(piece) => {
                let is_new = self.files.is_between();
                self.usage.piece(&piece.path, piece.data.0.len(), is_new)?;
                self.files.take(piece).map_err(|what| self.usage.lied(what))?;
            }
            FromRunner::Result(_) if !self.files.is_between() => {
                return Err(self.usage.lied("a file that is incomplete"));
            }
            FromRunner::FileError(error) => {
                self.usage.file_error(&error.path, &error.message)?;
                self.file_errors.push(FileError {
                    path: error.path,
                    reason: error.message,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// All of it as a result.
    pub fn into_result(
        self,
        id: ExecutionId,
        exit: Exit,
        truncated: [bool; 2],
        timings: Timings,
        locks: LockReport,
    ) -> ExecutionResult {
        let [stdout_truncated, stderr_truncated] = truncated;
        let share = self.usage.into_share();
        let share = share.as_ref();
        // Their share of the memory comes with the result.
        let files = self.files.into_whole().into_iter().map(|file| OutputFile {
            bytes: hold(file.bytes.into(), share),
            ..file
        });
        ExecutionResult {
            id,
            exit,
            stdout: Stream {
                bytes: hold(self.stdout, share),
                truncated: stdout_truncated,
            },
            stderr: Stream {
                bytes: hold(self.stderr, share),
                truncated: stderr_truncated,
            },
            files: files.collect(),
            file_errors: self.file_errors,
            timings,
            locks,
        }
    }
}

/// The wire's program: an interpreter named by its usual name becomes the resolved one.
pub fn wire_program(
    program: &Program,
    resolve: impl Fn(Language) -> Option<String>,
) -> Result<(WireProgram, Option<Language>), ExecutionError> {
    let missing = |language: Language| {
        ExecutionError::Invalid(format!(
            "program.language: this sandbox image has no {}; name an image that has it (spec.sandbox.imageName)",
            language.as_str()
        ))
    };
    match program {
        Program::Code { language, source } => {
            resolve(*language).ok_or_else(|| missing(*language))?;
            let program = WireProgram::Code {
                language: wire_language(*language),
                source: source.clone(),
                arguments: Vec::new(),
            };
            Ok((program, Some(*language)))
        }
        Program::Command { argv } => {
            let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
                return Err(ExecutionError::Invalid("program.argv: empty; name a program".into()));
            };
            let language = match name.as_str() {
                "python" | "python3" => Some(Language::Python),
                "node" => Some(Language::Node),
                _ => None,
            };
            let mut argv = argv.clone();
            if let Some(language) = language {
                argv[0] = resolve(language).ok_or_else(|| missing(language))?;
            }
            Ok((WireProgram::Command { argv }, language))
        }
    }
}

/// The wire's word for a language.
pub const fn wire_language(language: Language) -> WireLanguage {
    match language {
        Language::Python => WireLanguage::Python,
        Language::Node => WireLanguage::Node,
    }
}

/// The word of a report for a kernel without Landlock.
pub const NO_LANDLOCK: &str = "NotEnforced";

/// The report of the wire's locks.
pub fn lock_report(locks: Locks) -> LockReport {
    let landlock = match locks.landlock {
        LandlockState::FullyEnforced => "FullyEnforced",
        LandlockState::PartiallyEnforced => "PartiallyEnforced",
        LandlockState::NotEnforced => NO_LANDLOCK,
    };
    LockReport {
        seccomp: locks.seccomp,
        landlock: landlock.to_owned(),
        landlock_abi: locks.landlock_abi,
    }
}

/// Whole milliseconds, rounded up: a limit is never shortened to 0.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use knack_runner::fixture::mk_result;

    use super::*;

    /// Only what the program itself is the reason for is a mistake of the caller, which no other sandbox is tried for.
    #[test]
    fn a_program_that_cannot_start_is_a_mistake_and_a_sandbox_that_cannot_is_none() {
        let request = ExecutionRequest::new(
            ExecutionId::new(Duration::from_secs(1), "c", 0, "1"),
            "c",
            Program::Command { argv: Vec::new() },
        );
        let of_command = ExecutionRef::of(&request);
        let of_code = ExecutionRef {
            is_command: false,
            ..of_command
        };
        for (reference, of_program, is_mistake) in [
            (of_command, Some(true), true),
            (of_command, Some(false), false),
            (of_command, None, true),
            (of_code, Some(true), true),
            (of_code, Some(false), false),
            (of_code, None, false),
        ] {
            let exit = WireExit::NotStarted {
                reason: "why".to_owned(),
                of_program,
            };
            let result = mk_result(&request.id.to_string(), exit);
            let end = run_end(reference, &result, CollectedFrames::default(), StartKind::Cold);
            let RunEnd::NotStarted(error) = end else {
                panic!("{end:?}")
            };
            assert_eq!(
                matches!(error, ExecutionError::Invalid(_)),
                is_mistake,
                "{of_program:?}: {error}"
            );
        }
    }
}
