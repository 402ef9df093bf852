//! A small owner of the runner: starts the binary, speaks frames, keeps what comes back.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use knack_runner::protocol::{
    Area, Cwd, Data, Decoder, Exit, FileErrorKind, Files, FromRunner, Identity, Incoming, Interpreter, Key, Landlock,
    Language, Limits, OwnerLink, Program, Ready, Run, RunResult, StagedFile, Start, ToRunner, Watch,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::skip::skip;

pub(crate) const KEY: Key = Key::new([5; 32]);
/// The time limit of a run whose test sets none.
pub(crate) const TIMEOUT_MS: u64 = 60_000;
/// A uid that no account of a Debian-like machine has.
const UNUSED: Identity = Identity {
    uid: 64_123,
    gid: 64_123,
    // The tests run side by side.
    exclusive: false,
};

/// An identity for one test alone.
pub(crate) fn own(uid: u32) -> Identity {
    Identity {
        uid,
        gid: uid,
        exclusive: true,
    }
}

/// A runner with its directory.
pub(crate) struct Runner {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    decoder: Decoder,
    /// Our end of the conversation.
    pub(crate) link: OwnerLink,
    /// Bytes of stdout so far, as a container runtime writes them into a log.
    pub(crate) logged: u64,
    pub(crate) directory: tempfile::TempDir,
}

/// Whether a test cannot be run here; it is then counted as skipped (`tools/summary.sh`), not as passed.
pub(crate) fn is_skipped(test: &str) -> bool {
    if !is_root() {
        skip(test, "it needs root");
    }
    !is_root()
}

/// Everything that one run reported.
#[derive(Debug, Default)]
pub(crate) struct RunReport {
    pub(crate) ready: Vec<Ready>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) errors: BTreeMap<String, FileErrorKind>,
    pub(crate) frames: Vec<FromRunner>,
    /// Frames of the runner before it has an owner.
    pub(crate) unproven: Vec<FromRunner>,
    pub(crate) result: Option<RunResult>,
}

impl RunReport {
    pub(crate) fn result(&self) -> &RunResult {
        self.result
            .as_ref()
            .unwrap_or_else(|| panic!("no result; frames: {:?}", self.frames))
    }

    pub(crate) fn exit(&self) -> &Exit {
        &self.result().exit
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Runner {
    pub(crate) fn boot() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knack-runner"));
        command.env("KNACK_TEST_SECRET", "must not be inherited");
        Self::boot_with(command)
    }

    /// Boots with its directory in the first of these places that takes one.
    pub(crate) fn boot_in(places: &[&str]) -> Self {
        let mut runner = Self::boot();
        let directory = places
            .iter()
            .find_map(|place| tempfile::tempdir_in(place).ok())
            .unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        runner.directory = directory;
        runner
    }

    /// Boots under a seccomp filter that fails one syscall, as an older or stricter kernel does.
    pub(crate) fn boot_without(syscall: i64, errno: i32) -> Self {
        let rules = BTreeMap::from([(syscall, Vec::new())]);
        let fails = SeccompAction::Errno(errno.unsigned_abs());
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, architecture).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_knack-runner"));
        before_exec(&mut command, program);
        Self::boot_with(command)
    }

    /// Boots a runner that takes no more of the kernel than its name says (`examples/older_kernel.rs`), as root or as a user
    /// without rights.
    pub(crate) fn boot_on(kernel: &str, uid: Option<u32>) -> Self {
        let tests = std::env::current_exe().unwrap();
        let built = tests.parent().unwrap().parent().unwrap().join("examples/older_kernel");
        Self::boot_copy(&built, kernel, uid, &[])
    }

    /// Boots such a runner as process 1 of a PID namespace, as root.
    pub(crate) fn boot_as_init_on(kernel: &str) -> Self {
        let tests = std::env::current_exe().unwrap();
        let built = tests.parent().unwrap().parent().unwrap().join("examples/older_kernel");
        Self::boot_copy(&built, kernel, None, &["unshare", "--pid", "--fork", "--kill-child"])
    }

    /// Boots as a user without rights, with a copy of the binary that this user can reach.
    pub(crate) fn boot_as(uid: u32) -> Self {
        Self::boot_copy(
            env!("CARGO_BIN_EXE_knack-runner").as_ref(),
            "knack-runner",
            Some(uid),
            &[],
        )
    }

    /// `before`: the program, with its arguments, that starts the runner.
    fn boot_copy(program: &std::path::Path, name: &str, uid: Option<u32>, before: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let binary = directory.path().join(name);
        // By another process: a file that this one writes may be open in a child that another test has just forked, and the
        // kernel refuses to run what somebody writes (ETXTBSY).
        let copied = Command::new("cp").arg(program).arg(&binary).status().unwrap();
        assert!(copied.success(), "cp {}: {copied}", program.display());
        let mut command = match before {
            [] => Command::new(&binary),
            [first, others @ ..] => {
                let mut command = Command::new(first);
                command.args(others).arg(&binary);
                command
            }
        };
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let mut runner = Self::boot_with(command);
        if !before.is_empty() {
            // The other program executes it later.
            runner.read_until(&mut RunReport::default(), |frame| matches!(frame, FromRunner::Bound(_)));
        }
        if let Some(uid) = uid {
            std::os::unix::fs::chown(runner.directory.path(), Some(uid), Some(uid)).unwrap();
        }
        // `claim` is answered by now or later, but the exec is over: `spawn` waits for it.
        drop(directory);
        runner
    }

    pub(crate) fn boot_with(command: Command) -> Self {
        let mut runner = Self::unbound(command);
        runner.bind();
        runner
    }

    fn unbound(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("runner starts");
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
            decoder: Decoder::new(),
            link: OwnerLink::new(KEY),
            logged: 0,
            directory,
        }
    }

    /// Boots and does not say whose it is.
    pub(crate) fn boot_unbound() -> Self {
        Self::unbound(Command::new(env!("CARGO_BIN_EXE_knack-runner")))
    }

    /// Fills the pipe behind the runner's stdout: it writes nothing more until somebody reads.
    pub(crate) fn fill_stdout(&mut self) {
        // One page, which counts as full as soon as it holds anything.
        rustix::pipe::fcntl_setpipe_size(&self.stdout, 4096).unwrap();
        self.start_again();
        while rustix::io::ioctl_fionread(&self.stdout).unwrap() == 0 {
            std::thread::yield_now();
        }
    }

    /// Waits until the runner has read all that was sent.
    pub(crate) fn until_read(&self) {
        while rustix::io::ioctl_fionread(self.stdin.as_ref().unwrap()).unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    /// Ends a program that waits for it (see [`WAITS`]).
    pub(crate) fn let_go(&self) {
        std::fs::write(self.work().join(".tmp/go"), "").unwrap();
    }

    pub(crate) fn bind(&mut self) {
        self.send_raw(&self.link.bind());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The runner may have ended by itself; then its stdin has no reader.
    pub(crate) fn send(&mut self, frame: &ToRunner) {
        let line = self.link.encode(frame);
        self.send_raw(&line);
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(bytes);
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The `start` of most tests: an own uid where the test is root.
    pub(crate) fn start_frame(&self, interpreter: Option<Interpreter>) -> Start {
        Start {
            directory: self.directory.path().to_str().unwrap().to_owned(),
            interpreter,
            commands: false,
            read: [
                "/etc/ld.so.cache",
                "/etc/localtime",
                "/etc/ssl",
                "/dev/urandom",
                "/dev/zero",
                "/etc/python3.11",
            ]
            .map(str::to_owned)
            .to_vec(),
            execute: ["/usr", "/lib", "/lib64", "/bin"].map(str::to_owned).to_vec(),
            write: vec!["/dev/null".to_owned()],
            landlock: Landlock::Required,
            identity: is_root().then_some(UNUSED),
            environment: [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            inherit: Vec::new(),
            limits: Limits {
                // Long enough for a machine that is busy with other things: no run of these tests is to end by it,
                // unless it says so.
                timeout_ms: Some(TIMEOUT_MS),
                ..Limits::default()
            },
            watch: Watch::default(),
            eof_grace_ms: 0,
            journal: None,
        }
    }

    pub(crate) fn start(&mut self, frame: Start) {
        self.send(&ToRunner::Start(frame));
    }

    pub(crate) fn stage(&mut self, area: Area, path: &str, bytes: &[u8], executable: bool) {
        let file = StagedFile {
            path: path.to_owned(),
            data: Data(bytes.to_vec()),
            append: false,
            executable,
        };
        self.send(&ToRunner::Files(Files {
            area,
            files: vec![file],
        }));
    }

    pub(crate) fn run(&mut self, program: Program) {
        self.run_frame(run(program));
    }

    /// A frame that is answered, and changes nothing.
    pub(crate) fn start_again(&mut self) {
        let start = self.start_frame(None);
        self.start(start);
    }

    pub(crate) fn run_frame(&mut self, run: Run) {
        self.send(&ToRunner::Run(run));
    }

    /// Reads frames until `until` says so or the output ends.
    pub(crate) fn read_until(&mut self, report: &mut RunReport, until: impl Fn(&FromRunner) -> bool) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            while let Some(line) = self.decoder.next_line() {
                let line = line.expect("a line of the runner");
                let length = line.len() as u64 + 1;
                self.logged += length + length.div_ceil(16 << 10) * 48;
                let frame = match self.link.read(line) {
                    Incoming::Frame(frame) => frame,
                    Incoming::Unproven(frame) => {
                        report.unproven.push(frame);
                        continue;
                    }
                    other => panic!("{other:?}: {}", String::from_utf8_lossy(line)),
                };
                let stop = until(&frame);
                match &frame {
                    FromRunner::Ready(ready) => report.ready.push(ready.clone()),
                    FromRunner::Output(output) => match output.stream {
                        knack_runner::protocol::OutputStream::Stdout => {
                            report.stdout.extend(&output.data.0);
                        }
                        knack_runner::protocol::OutputStream::Stderr => {
                            report.stderr.extend(&output.data.0);
                        }
                    },
                    FromRunner::File(piece) => {
                        let file = report.files.entry(piece.path.clone()).or_default();
                        assert_eq!(file.len() as u64, piece.offset);
                        file.extend(&piece.data.0);
                        assert_eq!(piece.last, file.len() as u64 == piece.size);
                    }
                    FromRunner::FileError(error) => {
                        report.errors.insert(error.path.clone(), error.kind);
                    }
                    FromRunner::Result(result) => report.result = Some(result.clone()),
                    FromRunner::Bound(_)
                    | FromRunner::Started(_)
                    | FromRunner::Rejected(_)
                    | FromRunner::Restarted {}
                    | FromRunner::Sealed(_) => {}
                }
                if !matches!(frame, FromRunner::Output(_) | FromRunner::File(_)) {
                    report.frames.push(frame);
                }
                if stop {
                    return;
                }
            }
            match self.stdout.read(&mut buffer).unwrap() {
                0 => return,
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    /// The next lines as they are.
    pub(crate) fn read_lines(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while lines.len() < count {
            if let Some(line) = self.decoder.next_line() {
                lines.push(line.unwrap().to_vec());
            } else {
                let count = self.stdout.read(&mut buffer).unwrap();
                assert_ne!(count, 0, "the runner has ended: {lines:?}");
                self.decoder.push(&buffer[..count]);
            }
        }
        lines
    }

    /// Reads up to the result, acknowledges it, and expects the runner to exit by itself.
    pub(crate) fn finish(&mut self) -> RunReport {
        let mut report = RunReport::default();
        self.finish_into(&mut report);
        report
    }

    pub(crate) fn finish_into(&mut self, report: &mut RunReport) {
        self.read_until(report, |frame| matches!(frame, FromRunner::Result(_)));
        self.send(&ToRunner::Ack);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "runner ended with {status}");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends the runner as nobody should.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn wait_ready(&mut self) -> RunReport {
        let mut report = RunReport::default();
        self.read_until(&mut report, |frame| matches!(frame, FromRunner::Ready(_)));
        report
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The runner kills its run when its stdin ends; waiting here leaves nothing behind.
        self.stdin = None;
        let _ = self.child.wait();
    }
}

#[expect(unsafe_code, reason = "a test plays an older kernel")]
fn before_exec(command: &mut Command, program: BpfProgram) {
    // SAFETY: the closure calls prctl and seccomp on its own memory and nothing else.
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&program).map_err(std::io::Error::other));
    }
}

/// The kernel's name for processes of this test run: two checkouts may be tested at once. It keeps 15 bytes, of which
/// the pid takes 7.
pub(crate) fn comm(name: &str) -> String {
    assert!(name.len() <= 8, "{name}");
    format!("{name}{}", std::process::id())
}

/// How many processes carry this name (at most 15 bytes).
pub(crate) fn processes_named(name: &str) -> usize {
    let name = comm(name);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .count()
}

/// How many processes carry this name, without zombies, which only their parent can end.
pub(crate) fn living_named(name: &str) -> usize {
    let name = comm(name);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| stat.contains(&format!("({name})")) && !stat.contains(&format!("({name}) Z")))
        .count()
}

/// Python that goes on once [`Runner::let_go`] was called: what a test does before that comes while the program runs, however slow the
/// machine is.
pub(crate) const WAITS: &str = "import os, time\nwhile not os.path.exists('.tmp/go'): time.sleep(0.01)\n";

/// Gives the calling Python process and its forks a name.
pub(crate) fn named(name: &str) -> String {
    let name = comm(name);
    format!("import ctypes; ctypes.CDLL(None).prctl(15, b'{name}')\n")
}

#[expect(clippy::unnecessary_wraps, reason = "as `start_frame` takes it")]
pub(crate) fn python() -> Option<Interpreter> {
    Some(Interpreter {
        language: Language::Python,
        path: "/usr/bin/python3".to_owned(),
    })
}

/// A run as most tests have it.
pub(crate) fn run(program: Program) -> Run {
    Run {
        id: "run-1".to_owned(),
        context: String::new(),
        program,
        cwd: Cwd::Work,
        environment: BTreeMap::new(),
        limits: Limits::default(),
        require_landlock: 0,
    }
}

pub(crate) fn code(source: &str) -> Program {
    Program::Code {
        language: Language::Python,
        source: source.to_owned(),
        arguments: Vec::new(),
    }
}

/// Runs Python source in a sandbox of the usual kind.
pub(crate) fn run_python(source: &str) -> RunReport {
    run_python_with(source, |_| {})
}

pub(crate) fn run_python_with(source: &str, change: impl FnOnce(&mut Start)) -> RunReport {
    let mut runner = Runner::boot();
    let mut start = runner.start_frame(python());
    change(&mut start);
    runner.start(start);
    runner.run(code(source));
    runner.finish()
}

pub(crate) fn run_command(argv: &[&str]) -> RunReport {
    let mut runner = Runner::boot();
    let start = runner.start_frame(None);
    runner.start(start);
    runner.run(Program::Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
    });
    runner.finish()
}
