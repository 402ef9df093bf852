//! One run in a sandbox of the image's root: the frames that the hub sends to a pod, over a runner on this machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use knack_execution::interpreter::{PathPermissions, image_permissions};
use knack_execution::run_environment::base_environment;
use knack_runner::protocol::{
    Area, Cwd, Data, Decoder, Exit, Files, FromRunner, Incoming, Key, Landlock, Language, Limits, OutputStream,
    OwnerLink, PIECE_BYTES, Program, Run, StagedFile, Start, ToRunner, Watch,
};

/// No account of the image, as in a pod.
const UID: &str = "70001";
/// The longest that a run of these may take.
const TIMEOUT_MS: u64 = 60_000;

/// What a run gave.
#[derive(Default)]
pub(crate) struct RunResult {
    /// Its exit code; absent where it ended in another way.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) millis: u64,
    /// What it has left or changed, by path.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl RunResult {
    /// A file that the run has left.
    pub(crate) fn file(&self, name: &str) -> &[u8] {
        let there: Vec<_> = self.files.keys().collect();
        self.files
            .get(name)
            .unwrap_or_else(|| panic!("no {name} of {there:?}: {} {}", self.stdout, self.stderr))
    }
}

/// What a run has besides the image.
#[derive(Default)]
pub(crate) struct SandboxContent<'a> {
    /// Files below `skills/`.
    pub(crate) skills: Vec<(String, Vec<u8>)>,
    /// An environment of packages, at the path that it was built for.
    pub(crate) packages: Option<&'a str>,
}

/// Runs a program of the image with these files beside it.
pub(crate) fn command(argv: &[&str], inputs: &[(&str, &[u8])]) -> RunResult {
    command_in(&SandboxContent::default(), argv, inputs)
}

/// Runs a program of the image, or of its packages, with a skill and these files beside it.
pub(crate) fn command_in(around: &SandboxContent<'_>, argv: &[&str], inputs: &[(&str, &[u8])]) -> RunResult {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    run(around, Program::Command { argv }, inputs)
}

/// Runs a text as Python.
pub(crate) fn python(source: &str) -> RunResult {
    let source = source.to_owned();
    let program = Program::Code {
        language: Language::Python,
        source,
        arguments: Vec::new(),
    };
    run(&SandboxContent::default(), program, &[])
}

fn run(around: &SandboxContent<'_>, program: Program, inputs: &[(&str, &[u8])]) -> RunResult {
    let mut runner = Runner::boot(around.packages);
    runner.send(&ToRunner::Start(start(&program, around.packages)));
    for (path, bytes) in &around.skills {
        runner.stage(Area::Skills, path, bytes);
    }
    for (path, bytes) in inputs {
        runner.stage(Area::Work, path, bytes);
    }
    runner.send(&ToRunner::Run(Run {
        id: "office".to_owned(),
        context: String::new(),
        program,
        cwd: Cwd::Work,
        environment: BTreeMap::new(),
        limits: Limits::default(),
        require_landlock: 0,
    }));
    runner.finish()
}

/// The sandbox of a pod: `src/jobs/pods/start.rs` has the same paths and words.
fn start(program: &Program, packages: Option<&str>) -> Start {
    let PathPermissions {
        read,
        mut execute,
        write,
    } = image_permissions();
    execute.extend(packages.map(PathBuf::from));
    let path = packages.map(|home| format!("{home}/bin:")).unwrap_or_default() + "/usr/local/bin:/usr/bin:/bin";
    let texts = |paths: Vec<PathBuf>| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Start {
        directory: "/work/run".to_owned(),
        interpreter: matches!(program, Program::Code { .. }).then(|| knack_runner::protocol::Interpreter {
            language: Language::Python,
            path: "/usr/bin/python3".to_owned(),
        }),
        commands: true,
        read: texts(read),
        execute: texts(execute),
        write: texts(write),
        landlock: Landlock::Required,
        identity: None,
        environment: base_environment(&path),
        inherit: Vec::new(),
        limits: Limits {
            timeout_ms: Some(TIMEOUT_MS),
            processes: Some(128),
            address_space_bytes: Some(4 << 30),
            ..Limits::default()
        },
        watch: Watch {
            work_files: Some(10_000),
            ..Watch::default()
        },
        eof_grace_ms: 0,
        journal: None,
    }
}

struct Runner {
    child: Child,
    link: OwnerLink,
}

impl Runner {
    fn boot(packages: Option<&str>) -> Self {
        let root = std::env::var("KNACK_OFFICE_ROOT").expect("KNACK_OFFICE_ROOT: the image as a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/office/pod.sh");
        let child = Command::new(script)
            .args([&root, UID])
            .args(packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut runner = Self {
            child,
            link: OwnerLink::new(Key::new([7; 32])),
        };
        let bind = runner.link.bind();
        runner.write(&bind);
        runner
    }

    fn send(&mut self, frame: &ToRunner) {
        let line = self.link.encode(frame);
        self.write(&line);
    }

    /// One file, in pieces; an empty one is a piece too.
    fn stage(&mut self, area: Area, path: &str, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PIECE_BYTES));
            let file = StagedFile {
                path: path.to_owned(),
                data: Data::from(piece),
                append: rest.len() < bytes.len(),
                executable: false,
            };
            self.send(&ToRunner::Files(Files {
                area,
                files: vec![file],
            }));
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(line).unwrap();
    }

    /// Reads up to the result, and lets the runner end.
    fn finish(&mut self) -> RunResult {
        let mut stdout = self.child.stdout.take().unwrap();
        let (mut reported, mut decoder, mut buffer) = (RunResult::default(), Decoder::new(), vec![0; 1 << 16]);
        while reported.code.is_none() {
            let count = stdout.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "the runner has ended: {}", reported.stderr);
            decoder.push(&buffer[..count]);
            while let Some(line) = decoder.next_line() {
                match self.link.read(line.unwrap()) {
                    Incoming::Frame(frame) => take(frame, &mut reported),
                    Incoming::Unproven(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        self.send(&ToRunner::Ack);
        assert!(self.child.wait().unwrap().success());
        reported
    }
}

fn take(frame: FromRunner, reported: &mut RunResult) {
    match frame {
        FromRunner::Output(output) => {
            let text = String::from_utf8_lossy(&output.data.0).into_owned();
            match output.stream {
                OutputStream::Stdout => reported.stdout += &text,
                OutputStream::Stderr => reported.stderr += &text,
            }
        }
        FromRunner::File(piece) => reported.files.entry(piece.path).or_default().extend(&piece.data.0),
        FromRunner::Result(result) => {
            reported.millis = result.wall_us / 1000;
            match result.exit {
                Exit::Code { code } => reported.code = Some(code),
                other => panic!("{other:?}: {} {}", reported.stdout, reported.stderr),
            }
            let locks = result.locks.unwrap();
            assert!(locks.seccomp && locks.landlock_abi > 0, "{locks:?}");
        }
        FromRunner::Rejected(rejected) => panic!("{}", rejected.message),
        FromRunner::Ready(_)
        | FromRunner::Bound(_)
        | FromRunner::Started(_)
        | FromRunner::FileError(_)
        | FromRunner::Restarted {}
        | FromRunner::Sealed(_) => {}
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Its process namespace ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
