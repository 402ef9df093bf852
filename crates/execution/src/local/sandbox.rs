//! One runner process, started and locked, that waits for its only run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use knack_runner::protocol::{
    Decoder, Exit, FromRunner, Incoming, Interpreter as StartInterpreter, KILL_BOUND_MS, Key, Landlock,
    Limits as WireLimits, OwnerLink, Start, ToRunner, Watch, WorkBound,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::kind::SandboxKind;
use super::settings::LocalSettings;
use super::workshop::{RunDirectory, Workshop};
use crate::conversation::{Transport, lock_report, locks_missing, millis, wire_language};
use crate::environments::Environment;
use crate::interpreter::{Interpreter, PROGRAM_DIRECTORIES, PathPermissions, base_permissions};
use crate::run_environment::base_environment;
use crate::run_limits::{address_space, address_space_for_sandbox};
use crate::{ExecutionError, Language, Limits, LockReport};

/// Longest start: 12 to 40 ms are usual, a machine that starts 300 at once needs seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a runner may take to exit by itself: at once on `ack`, or after it has killed its run.
const EXIT_GRACE: Duration = Duration::from_millis(KILL_BOUND_MS + 1000);

/// How much longer a runner may take whose run has no uid of its own: only it finds all processes of the run, so it is
/// killed only if it hangs. On a machine with many busy processes its turns come late.
const SUPERVISOR_GRACE: Duration = Duration::from_mins(1);

/// One read of the runner's output: a few output frames.
const READ_BYTES: usize = 32 << 10;

/// The settings of all sandboxes of an executor.
#[derive(Debug)]
pub(super) struct Blueprint {
    pub(super) workshop: Arc<Workshop>,
    runner: PathBuf,
    interpreters: BTreeMap<Language, Interpreter>,
    permissions: PathPermissions,
    environment: BTreeMap<String, String>,
    limits: WireLimits,
    watch: Watch,
}

/// A started sandbox. Dropping it closes the runner's stdin, at which the runner kills its run and exits.
#[derive(Debug)]
pub(super) struct Sandbox {
    process: Option<Process>,
    /// The locks as reported.
    pub(super) locks: LockReport,
    /// How the files of the run are bounded.
    pub(super) work: WorkBound,
    /// When it became ready.
    pub(super) since: Instant,
}

/// The parts that live until the runner has exited.
#[derive(Debug)]
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    decoder: Decoder,
    scratch: Box<[u8]>,
    link: OwnerLink,
    directory: RunDirectory,
}

impl Blueprint {
    /// `python` is searched last in the folder `names`, which has it as another name of the interpreter.
    pub(super) fn new(
        settings: &LocalSettings,
        workshop: Arc<Workshop>,
        interpreters: Vec<Interpreter>,
        names: &Path,
    ) -> Self {
        let mut permissions = base_permissions();
        let mut path: Vec<String> = Vec::new();
        for interpreter in &interpreters {
            permissions = permissions.merged(&interpreter.permissions);
            path.extend(interpreter.path.parent().map(text));
        }
        path.extend(PROGRAM_DIRECTORIES.map(str::to_owned));
        path.push(text(names));
        let mut seen = Vec::new();
        path.retain(|directory| {
            !seen.contains(directory) && {
                seen.push(directory.clone());
                true
            }
        });
        let environment = base_environment(&path.join(":"));
        let own_uid = workshop.code_user() == crate::interpreter::CodeUser::Stranger;
        let limits = WireLimits {
            timeout_ms: Some(millis(settings.max_timeout)),
            file_bytes: Some(settings.max_work_bytes),
            // RLIMIT_NPROC counts every process of the uid, so it needs a uid that only this run has.
            processes: own_uid.then_some(u64::from(settings.max_processes)),
            output_bytes: Some(Limits::DEFAULT_OUTPUT_BYTES * MAX_OVER_DEFAULT),
            result_bytes: Some(Limits::DEFAULT_FILES_BYTES * MAX_OVER_DEFAULT),
            result_files: Some(u64::from(Limits::DEFAULT_FILES) * MAX_OVER_DEFAULT),
            ..WireLimits::default()
        };
        let watch = Watch {
            memory_bytes: Some(settings.memory_bytes),
            processes: Some(u64::from(settings.max_processes)),
            work_files: Some(settings.max_work_files),
            work_bytes: Some(settings.max_work_bytes),
        };
        let interpreters = interpreters.into_iter().map(|found| (found.language, found)).collect();
        Self {
            workshop,
            runner: settings.runner.clone(),
            interpreters,
            permissions,
            environment,
            limits,
            watch,
        }
    }

    /// The path of a language's interpreter, if it was found: with packages that of their environment.
    pub(super) fn interpreter(&self, language: Language, packages: Option<&Environment>) -> Option<String> {
        let found = self.interpreters.get(&language)?;
        Some(interpreter_path(found, packages))
    }

    /// Languages found, python first.
    pub(super) fn languages(&self) -> impl Iterator<Item = Language> + '_ {
        self.interpreters.keys().copied()
    }

    /// Starts a sandbox of a kind: with its interpreter ready, or none for commands, and its packages.
    ///
    /// Errors: [`ExecutionError::Internal`] with the message of the runner.
    pub(super) async fn start(&self, kind: &SandboxKind) -> Result<Sandbox, ExecutionError> {
        let modules = kind
            .environment
            .as_ref()
            .and_then(|packages| packages.node_modules.clone());
        let directory = self.directory(modules).await?;
        let start = self.start_frame(&directory, kind);
        let mut command = Command::new(&self.runner);
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| ExecutionError::Internal(format!("the runner does not start ({error})")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ExecutionError::Internal("the runner has no pipes".into()));
        };
        let process = Process {
            child,
            stdin: Some(stdin),
            stdout,
            decoder: Decoder::new(),
            scratch: vec![0; READ_BYTES].into(),
            link: OwnerLink::new(key()),
            directory,
        };
        let mut sandbox = Sandbox {
            process: Some(process),
            locks: LockReport::default(),
            work: WorkBound::Outside,
            since: Instant::now(),
        };
        let ready = tokio::time::timeout(START_TIMEOUT, sandbox.bind_and_start(start)).await;
        match ready {
            Ok(Ok(())) => {
                sandbox.since = Instant::now();
                Ok(sandbox)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ExecutionError::Internal(format!(
                "the runner was not ready within {} s",
                START_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn directory(&self, modules: Option<PathBuf>) -> Result<RunDirectory, ExecutionError> {
        let workshop = Arc::clone(&self.workshop);
        let made = tokio::task::spawn_blocking(move || workshop.run_directory(modules.as_deref())).await;
        match made {
            Ok(Ok(Some(directory))) => Ok(directory),
            Ok(Ok(None)) => Err(ExecutionError::Internal("every uid of the sandbox is in use".into())),
            Ok(Err(error)) => Err(ExecutionError::Internal(format!("no run directory ({})", error.kind()))),
            Err(_) => Err(ExecutionError::Internal("shutting down".into())),
        }
    }

    fn start_frame(&self, directory: &RunDirectory, kind: &SandboxKind) -> Start {
        let interpreter = kind.language.and_then(|language| self.interpreters.get(&language));
        let mut limits = self.limits.clone();
        if kind.language == Some(Language::Python) {
            limits.address_space_bytes = address_space(
                kind.language,
                self.watch.memory_bytes.and_then(address_space_for_sandbox),
            );
        }
        let (mut execute, mut environment) = (texts(&self.permissions.execute), self.environment.clone());
        if let Some(packages) = &kind.environment {
            // Read access to that folder alone: its parent is not listable.
            execute.push(text(&packages.root));
            let path = environment.entry("PATH".to_owned()).or_default();
            *path = format!("{}:{path}", packages.bin.display());
        }
        let packages = kind.environment.as_deref();
        Start {
            directory: text(&directory.path),
            interpreter: interpreter.map(|found| StartInterpreter {
                language: wire_language(found.language),
                path: interpreter_path(found, packages),
            }),
            // A sandbox of the pool is for one kind of program.
            commands: false,
            read: texts(&self.permissions.read),
            execute,
            write: texts(&self.permissions.write),
            landlock: Landlock::Required,
            identity: directory.identity,
            environment,
            inherit: Vec::new(),
            limits,
            watch: self.watch,
            // The gateway is this process: without it there is no waiter for the run.
            eof_grace_ms: 0,
            // Its stdout is read by this process alone.
            journal: None,
        }
    }
}

fn interpreter_path(found: &Interpreter, packages: Option<&Environment>) -> String {
    match packages {
        Some(packages) if found.language == Language::Python => text(&packages.python),
        _ => text(&found.path),
    }
}

/// A request may ask for this many times the default output and files; beyond, it is lowered to that.
const MAX_OVER_DEFAULT: u64 = 16;

impl Sandbox {
    async fn bind_and_start(&mut self, start: Start) -> Result<(), ExecutionError> {
        let mut bytes = self
            .process
            .as_ref()
            .map(|process| process.link.bind())
            .unwrap_or_default();
        bytes.extend(self.encode(&ToRunner::Start(start)));
        self.send(&bytes).await?;
        loop {
            match self.next().await? {
                FromRunner::Ready(ready) => {
                    let locks = ready
                        .locks
                        .ok_or_else(|| ExecutionError::Internal("the runner reports no locks".into()))?;
                    self.work = locks.work;
                    self.locks = lock_report(locks);
                    return Ok(());
                }
                FromRunner::Result(result) => {
                    return Err(match result.exit {
                        Exit::NotStarted { reason, .. } => ExecutionError::Internal(reason),
                        Exit::LocksMissing { reason } => ExecutionError::Unavailable(locks_missing(&reason)),
                        other => ExecutionError::Internal(format!("the start ended with {other:?}")),
                    });
                }
                FromRunner::Rejected(rejected) => return Err(ExecutionError::Internal(rejected.message)),
                _ => {}
            }
        }
    }

    /// Sends a frame.
    pub(super) async fn send_frame(&mut self, frame: &ToRunner) -> Result<(), ExecutionError> {
        let line = self.encode(frame);
        self.send(&line).await
    }

    /// Whether the runner still lives.
    pub(super) fn is_alive(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| matches!(process.child.try_wait(), Ok(None)))
    }

    /// Where skill folders go.
    pub(super) fn skills_directory(&self) -> PathBuf {
        self.process
            .as_ref()
            .map(|process| process.directory.path.join("skills"))
            .unwrap_or_default()
    }

    /// Whether the run has its own uid, so that it can be ended without its runner.
    pub(super) fn has_own_uid(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.directory.identity.is_some())
    }

    /// Ends the runner and its run; continues if the caller does not wait. Returns whether no process of the run is
    /// left. Where the run has a uid of its own the runner is ended at once; else its stdin is closed, at which it ends
    /// the run.
    pub(super) async fn kill(mut self) -> bool {
        let has_own_uid = self.has_own_uid();
        let Some(mut process) = self.process.take() else {
            return true;
        };
        if has_own_uid {
            // The result of the kill does not matter: it is dead or dying, and `retire` waits for it.
            let _ = process.child.start_kill();
            process.directory.sweep = true;
        }
        match retire(process) {
            Some(retired) => retired.await.unwrap_or(false),
            None => false,
        }
    }
}

impl Transport for Sandbox {
    fn encode(&mut self, frame: &ToRunner) -> Vec<u8> {
        self.process
            .as_mut()
            .map(|process| process.link.encode(frame))
            .unwrap_or_default()
    }

    fn request_digest(&self) -> String {
        self.process
            .as_ref()
            .map(|process| process.link.request_digest())
            .unwrap_or_default()
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ExecutionError> {
        let stdin = self
            .process
            .as_mut()
            .and_then(|process| process.stdin.as_mut())
            .ok_or_else(ended)?;
        stdin.write_all(bytes).await.map_err(|_| ended())
    }

    async fn next(&mut self) -> Result<FromRunner, ExecutionError> {
        let process = self.process.as_mut().ok_or_else(ended)?;
        loop {
            match process.decoder.next_line() {
                Some(Ok(line)) => match process.link.read(line) {
                    Incoming::Frame(frame) => return Ok(frame),
                    // At boot.
                    Incoming::Unproven(FromRunner::Ready(_)) => continue,
                    Incoming::Unproven(FromRunner::Rejected(rejected)) => {
                        return Err(ExecutionError::Internal(rejected.message));
                    }
                    _ => {
                        return Err(ExecutionError::Internal(
                            "the runner sent a frame without its authentication".into(),
                        ));
                    }
                },
                Some(Err(error)) => return Err(ExecutionError::Internal(error.to_string())),
                None => {}
            }
            match process.stdout.read(&mut process.scratch).await {
                Ok(0) | Err(_) => return Err(ended()),
                Ok(count) => process.decoder.push(&process.scratch[..count]),
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            retire(process);
        }
    }
}

/// Waits for the runner's exit, then removes directory and uid, all in the background. Returns whether no process is
/// left.
fn retire(mut process: Process) -> Option<JoinHandle<bool>> {
    drop(process.stdin.take());
    // No runtime: the process is going down. The runner ends by itself, the next start removes the directory.
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(runtime.spawn(async move {
        let Process {
            mut child,
            stdout,
            mut directory,
            ..
        } = process;
        // Dropped only after the exit, so that the runner never writes to a closed pipe.
        let mut exited = tokio::time::timeout(EXIT_GRACE, child.wait()).await;
        drop(stdout);
        if exited.is_err() && directory.identity.is_none() {
            exited = tokio::time::timeout(SUPERVISOR_GRACE, child.wait()).await;
        }
        if !matches!(exited, Ok(Ok(status)) if status.success()) {
            directory.sweep = true;
            // It may have exited between the two.
            let _ = child.kill().await;
        }
        tokio::task::spawn_blocking(move || directory.remove())
            .await
            .unwrap_or(false)
    }))
}

/// A key for one conversation.
fn key() -> Key {
    let (first, second) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(first.as_bytes());
    bytes[16..].copy_from_slice(second.as_bytes());
    Key::new(bytes)
}

fn ended() -> ExecutionError {
    ExecutionError::Internal("the runner ended without a result".into())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| text(path)).collect()
}
