//! One run in a sandbox of the image's root: the frames that the hub sends to a pod, over a runner on this machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use knack_execution::conversation::base_environment;
use knack_execution::interpreter::{Grants, image_grants};
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
pub(crate) struct Told {
    /// Its exit code; absent where it ended in another way.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) millis: u64,
    files: BTreeMap<String, Vec<u8>>,
}

impl Told {
    /// A file that the run has left.
    pub(crate) fn file(&self, name: &str) -> &[u8] {
        let there: Vec<_> = self.files.keys().collect();
        self.files
            .get(name)
            .unwrap_or_else(|| panic!("no {name} of {there:?}: {} {}", self.stdout, self.stderr))
    }
}

/// Runs a program of the image with these files beside it.
pub(crate) fn command(argv: &[&str], inputs: &[(&str, &[u8])]) -> Told {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    run(Program::Command { argv }, inputs)
}

/// Runs a text as Python.
pub(crate) fn python(source: &str) -> Told {
    let source = source.to_owned();
    run(
        Program::Code {
            language: Language::Python,
            source,
            arguments: Vec::new(),
        },
        &[],
    )
}

fn run(program: Program, inputs: &[(&str, &[u8])]) -> Told {
    let mut runner = Runner::boot();
    runner.send(&ToRunner::Start(start(&program)));
    for (path, bytes) in inputs {
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let file = StagedFile {
                path: (*path).to_owned(),
                data: Data::from(piece),
                append: index > 0,
                executable: false,
            };
            runner.send(&ToRunner::Files(Files {
                area: Area::Work,
                files: vec![file],
            }));
        }
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

/// The sandbox of a pod: `src/jobs/start.rs` has the same paths and words.
fn start(program: &Program) -> Start {
    let Grants { read, execute, write } = image_grants();
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
        environment: base_environment("/usr/local/bin:/usr/bin:/bin"),
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
    fn boot() -> Self {
        let root = std::env::var("KNACK_OFFICE_ROOT").expect("KNACK_OFFICE_ROOT: the image as a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/office/pod.sh");
        let child = Command::new(script)
            .args([&root, UID])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut runner = Self {
            child,
            link: OwnerLink::new(Key::new([7; 32])),
        };
        let claim = runner.link.claim();
        runner.write(&claim);
        runner
    }

    fn send(&mut self, frame: &ToRunner) {
        let line = self.link.encode(frame);
        self.write(&line);
    }

    fn write(&mut self, line: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(line).unwrap();
    }

    /// Reads up to the result, and lets the runner end.
    fn finish(&mut self) -> Told {
        let mut stdout = self.child.stdout.take().unwrap();
        let (mut told, mut decoder, mut buffer) = (Told::default(), Decoder::new(), vec![0; 1 << 16]);
        while told.code.is_none() {
            let count = stdout.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "the runner has ended: {}", told.stderr);
            decoder.push(&buffer[..count]);
            while let Some(line) = decoder.next_line() {
                match self.link.read(line.unwrap()) {
                    Incoming::Frame(frame) => take(frame, &mut told),
                    Incoming::Unproven(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        self.send(&ToRunner::Ack);
        assert!(self.child.wait().unwrap().success());
        told
    }
}

fn take(frame: FromRunner, told: &mut Told) {
    match frame {
        FromRunner::Output(output) => {
            let text = String::from_utf8_lossy(&output.data.0).into_owned();
            match output.stream {
                OutputStream::Stdout => told.stdout += &text,
                OutputStream::Stderr => told.stderr += &text,
            }
        }
        FromRunner::File(piece) => told.files.entry(piece.path).or_default().extend(&piece.data.0),
        FromRunner::Result(result) => {
            told.millis = result.wall_us / 1000;
            match result.exit {
                Exit::Code { code } => told.code = Some(code),
                other => panic!("{other:?}: {} {}", told.stdout, told.stderr),
            }
            let locks = result.locks.unwrap();
            assert!(locks.seccomp && locks.landlock_abi > 0, "{locks:?}");
        }
        FromRunner::Rejected(rejected) => panic!("{}", rejected.message),
        FromRunner::Ready(_)
        | FromRunner::Claimed(_)
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
