//! The frames of one run, whatever carries them: program and inputs out; output, files and the result back.
//!
//! A local child process and a pod's attach stream are two transports of this one conversation.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use knack_runner::protocol::{
    Area, Cwd, Data, Exit as WireExit, FilePiece, Files, FromRunner, KILL_BOUND_MS, LandlockState,
    Language as WireLanguage, Limits as WireLimits, Locks, OutputStream, PIECE_BYTES, Program as WireProgram,
    Run as RunFrame, RunResult, StagedFile, Started, ToRunner,
};

use super::caps::{Takings, hold};
use super::{
    ExecutionError, ExecutionId, ExecutionRequest, ExecutionResult, Exit, FileError, Language, Limits, LockReport,
    Missing, OutputFile, Program, SkillMount, StartKind, Stream, Timings, WorkingDirectory, mime_type,
};
use crate::memory::MemoryBudget;

/// How much later than the runner the executor ends a run: after the runner has given up killing, and collecting files
/// takes up to a second. Only a runner that hangs meets it.
pub(super) const DEADLINE_MARGIN: Duration = Duration::from_millis(KILL_BOUND_MS + 3000);

/// Address space of runs other than node's, bytes: a stop for allocations between two looks of the runner's memory
/// watch; thread stacks and arenas of CPython reserve far less.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;

/// The environment of every run, besides what the runner sets (`HOME`, `TMPDIR`, `KNACK_WORK_DIR`) and granted values.
pub(super) fn base_environment(path: &str) -> BTreeMap<String, String> {
    [
        ("PATH", path),
        ("LANG", "C.UTF-8"),
        // Skill folders are read-only.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        // Commands are started without `-I`: no module of a home directory, not even of an empty one.
        ("PYTHONNOUSERSITE", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Something that carries frames to a runner and back.
pub(super) trait Transport: Send {
    /// Makes the line of a frame. Lines are sent in the order in which they were made.
    fn encode(&mut self, frame: &ToRunner) -> Vec<u8>;

    /// The digest of everything that was asked so far; see [`knack_runner::protocol::OwnerLink::asked`].
    fn asked(&self) -> String;

    /// Writes bytes to the runner.
    fn send(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), ExecutionError>> + Send;

    /// Reads the next frame that the runner itself has made. Cancel-safe. Errors: there will be none.
    fn next(&mut self) -> impl Future<Output = Result<FromRunner, ExecutionError>> + Send;
}

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

/// Whose result it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    /// The execution.
    pub(super) id: ExecutionId,
    /// Whether its program is a command.
    pub(super) is_command: bool,
}

impl Subject {
    /// That of a request.
    pub(super) const fn of(request: &ExecutionRequest) -> Self {
        Self {
            id: request.id,
            is_command: matches!(request.program, Program::Command { .. }),
        }
    }
}

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The runner said so.
    pub(super) started: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<OutputFile>,
    partial: BTreeMap<String, Vec<u8>>,
    file_errors: Vec<FileError>,
    takings: Takings,
}

/// The frame that runs the program; `context` is the owner's own.
pub(super) fn run_frame(
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
pub(super) async fn read_result(
    transport: &mut impl Transport,
    id: ExecutionId,
    collected: &mut Collected,
    observe: &mut (dyn FnMut(&FromRunner) + Send),
) -> Result<RunResult, ExecutionError> {
    let asked = Asked {
        id: id.to_string(),
        digest: transport.asked(),
    };
    loop {
        match transport.next().await? {
            FromRunner::Result(result) => return asked.check_result(&result).map(|()| result),
            FromRunner::Rejected(rejected) => return Err(ExecutionError::Internal(rejected.message)),
            frame => {
                if let FromRunner::Started(started) = &frame {
                    asked.check_started(started)?;
                }
                observe(&frame);
                collected.take(frame)?;
            }
        }
    }
}

/// What a runner was asked to run.
struct Asked {
    id: String,
    digest: String,
}

impl Asked {
    fn check_started(&self, started: &Started) -> Result<(), ExecutionError> {
        self.check(&started.id, &started.digest)
    }

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
    ExecutionError::Internal("the sandbox has run something else than it was asked".into())
}

/// The frames that stage the input files.
pub(super) fn input_frames(request: &ExecutionRequest) -> impl Iterator<Item = ToRunner> {
    request
        .inputs
        .iter()
        .flat_map(|input| file_frames(Area::Work, &input.path, &input.bytes, false))
}

/// The frames that stage the files of a skill, for sandboxes on another machine.
pub(super) fn skill_frames(mount: &SkillMount) -> impl Iterator<Item = ToRunner> {
    mount.skill.files.iter().flat_map(|(path, file)| {
        let path = format!("{}/{path}", mount.name);
        file_frames(Area::Skills, &path, &file.bytes, file.executable).collect::<Vec<_>>()
    })
}

fn file_frames(area: Area, path: &str, bytes: &[u8], executable: bool) -> impl Iterator<Item = ToRunner> {
    // `chunks` of nothing is no chunk at all, but an empty file is a file.
    let pieces = bytes.chunks(PIECE_BYTES).chain(bytes.is_empty().then_some(&[][..]));
    pieces.enumerate().map(move |(index, piece)| {
        ToRunner::Files(Files {
            area,
            files: vec![StagedFile {
                path: path.to_owned(),
                data: Data::from(piece),
                append: index > 0,
                executable,
            }],
        })
    })
}

/// The run is over but not gone: no result, whatever the program said.
pub(super) fn left(how: &str) -> ExecutionError {
    ExecutionError::Internal(format!("processes of the run could not be ended ({how})"))
}

/// What a result and all that came before it mean, wherever it was read: from the stream, or from the log afterwards.
pub(super) fn verdict(subject: Subject, result: &RunResult, collected: Collected, start: StartKind) -> Verdict {
    if !failed_before_run(result) && result.id != subject.id.to_string() {
        return Verdict::Failed(something_else());
    }
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
        WireExit::LocksMissing { reason } => {
            return Verdict::NotStarted(ExecutionError::Unavailable(locks_missing(reason)));
        }
        WireExit::NotStarted { reason } => {
            return Verdict::NotStarted(if subject.is_command {
                // A command that does not exist is the model's mistake, and no other sandbox would have it.
                ExecutionError::Invalid(reason.clone())
            } else {
                ExecutionError::Internal(reason.clone())
            });
        }
    };
    let truncated = [result.stdout.truncated, result.stderr.truncated];
    let timings = timings(Duration::from_micros(result.wall_us), start);
    let locks = result.locks.map(lock_report).unwrap_or_default();
    Verdict::Ended(collected.into_result(subject.id, exit, truncated, timings, locks))
}

/// The kernel of the sandbox does not give a lock that is demanded.
pub(super) fn locks_missing(reason: &str) -> Missing {
    Missing::new(
        reason,
        "use a kernel with Landlock (Linux 5.13 or later, kernel parameter lsm=landlock,...)",
    )
}

/// Queue wait and total are filled in by the executor.
pub(super) const fn timings(run: Duration, start: StartKind) -> Timings {
    Timings {
        queue_wait: Duration::ZERO,
        total: Duration::ZERO,
        run,
        start,
    }
}

impl Collected {
    /// Nothing yet, of a run with limits; what comes is counted in `memory`.
    pub(super) fn within(limits: &Limits, memory: Option<&MemoryBudget>) -> Self {
        Self {
            takings: Takings::within(limits, memory),
            ..Self::default()
        }
    }

    /// Whether the run must end for what its runner sent: more than its limits allow, or than there is room for.
    pub(super) const fn is_over(&self) -> bool {
        self.takings.is_over()
    }

    /// Takes one frame in. Errors: the run must end, see [`Collected::is_over`].
    pub(super) fn take(&mut self, frame: FromRunner) -> Result<(), ExecutionError> {
        match frame {
            FromRunner::Started(_) => self.started = true,
            FromRunner::Output(output) => {
                let (index, stream) = match output.stream {
                    OutputStream::Stdout => (0, &mut self.stdout),
                    OutputStream::Stderr => (1, &mut self.stderr),
                };
                self.takings.output(index, output.data.0.len())?;
                stream.extend(output.data.0);
            }
            FromRunner::File(piece) => self.take_piece(piece)?,
            FromRunner::FileError(error) => {
                self.takings.file_error(&error.path, &error.message)?;
                self.file_errors.push(FileError {
                    path: error.path,
                    reason: error.message,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn take_piece(&mut self, piece: FilePiece) -> Result<(), ExecutionError> {
        let is_new = !self.partial.contains_key(&piece.path);
        self.takings.piece(&piece.path, piece.data.0.len(), is_new)?;
        let last = piece.last;
        let bytes = self.partial.entry(piece.path.clone()).or_default();
        bytes.extend(piece.data.0);
        if last && let Some(bytes) = self.partial.remove(&piece.path) {
            let mime_type = mime_type(&piece.path);
            self.files.push(OutputFile {
                path: piece.path,
                // Its share of the memory comes with the result.
                bytes: Bytes::from(bytes),
                sha256: piece.sha256,
                mime_type,
            });
        }
        Ok(())
    }

    /// All of it as a result.
    pub(super) fn into_result(
        self,
        id: ExecutionId,
        exit: Exit,
        truncated: [bool; 2],
        timings: Timings,
        locks: LockReport,
    ) -> ExecutionResult {
        let [stdout_truncated, stderr_truncated] = truncated;
        let share = self.takings.into_share();
        let share = share.as_ref();
        let files = self.files.into_iter().map(|file| OutputFile {
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

/// The wire's word for a language.
pub(super) const fn wire_language(language: Language) -> WireLanguage {
    match language {
        Language::Python => WireLanguage::Python,
        Language::Node => WireLanguage::Node,
    }
}

/// The word of a report for a kernel without Landlock.
pub(super) const NO_LANDLOCK: &str = "NotEnforced";

/// The report of the wire's locks.
pub(super) fn lock_report(locks: Locks) -> LockReport {
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
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Address space of a run whose program is not node, bytes.
pub(super) const fn address_space(language: Option<Language>, asked: Option<u64>) -> Option<u64> {
    match (language, asked) {
        (Some(Language::Node), _) => None,
        (_, Some(asked)) if asked < ADDRESS_SPACE_BYTES => Some(asked),
        _ => Some(ADDRESS_SPACE_BYTES),
    }
}
