//! Starting a child: fork, locks, wait, exec.
//!
//! The child applies its locks at once and then waits for its command, so all of that can happen before there is a
//! request. It is a fork and not a second exec of the runner: the runner has one thread, so the child may allocate and
//! call anything before its exec, and a fork of this small process costs 0.1 ms where another exec costs 0.76 ms
//! (measured).
//!
//! ```text
//! runner ── program, directory, environment ──▶ child     control: its end without a word ends the child
//! runner ◀── locks, then errno if exec fails ── child     report: closed by a successful exec
//! ```

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags};

use super::program;
use crate::locks::{Failure, LandlockReached, Recipe};
use crate::protocol::LandlockState;

/// The program to execute.
#[derive(Debug)]
pub(crate) struct Launch {
    /// The absolute path of the binary.
    pub(crate) program: PathBuf,
    /// The program's own name (`argv[0]`).
    pub(crate) name: OsString,
    /// The arguments after the name.
    pub(crate) arguments: Vec<OsString>,
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The working directory.
    pub(crate) cwd: PathBuf,
}

/// The child's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// A pipe, for a bootstrap that waits for its program.
    Pipe,
    /// Nothing.
    Null,
}

/// A child with all its locks applied, which waits for its command. Dropped, it exits by itself.
#[derive(Debug)]
pub(crate) struct WaitingChild {
    child: Child,
    control: File,
    report: BufReader<File>,
}

/// A running child with all its locks on.
#[derive(Debug)]
pub(crate) struct Child {
    /// The main process; reaped once, by its owner.
    pub(crate) pid: Pid,
    /// Readable when the main process has ended; absent where the kernel has no pidfds.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The locks that are on.
    pub(crate) landlock: LandlockReached,
}

/// Why there is no child. Nothing of a program has run then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoChild {
    /// The kernel does not give the locks that are demanded.
    LocksMissing(String),
    /// The program cannot be run in any sandbox, in one line: it does not exist, or is no program.
    OfProgram(String),
    /// Anything else, in one line.
    Failed(String),
}

impl NoChild {
    /// This reason, where the program is the sandbox's own.
    pub(crate) fn of_sandbox(self) -> Self {
        match self {
            Self::OfProgram(reason) => Self::Failed(reason),
            other => other,
        }
    }

    fn because(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Self::Failed(format!("{what}: {}", std::io::Error::from(error)))
    }
}

impl From<String> for NoChild {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Starts a child that executes a program at once.
pub(crate) fn spawn(launch: &Launch, stdin: Stdin, recipe: Recipe) -> Result<Child, NoChild> {
    WaitingChild::fork(recipe, stdin)?.exec(launch)
}

impl WaitingChild {
    /// Starts the child and waits until its locks are on.
    pub(crate) fn fork(recipe: Recipe, stdin: Stdin) -> Result<Self, NoChild> {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(NoChild::because("pipe"));
        let (control_reader, control) = pipe()?;
        let (report, report_writer) = pipe()?;
        let (stdout, stdout_writer) = pipe()?;
        let (stderr, stderr_writer) = pipe()?;
        let (stdin_reader, stdin) = match stdin {
            Stdin::Pipe => pipe().map(|(reader, writer)| (reader, Some(writer)))?,
            Stdin::Null => {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
                let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty());
                (null.map_err(NoChild::because("/dev/null"))?, None)
            }
        };
        let inside = Inside {
            standard: [stdin_reader.as_fd(), stdout_writer.as_fd(), stderr_writer.as_fd()],
            control: control_reader.as_fd(),
            report: report_writer.as_fd(),
        };
        let pid = fork(recipe, &inside).map_err(|error| format!("fork: {error}"))?;
        drop((
            control_reader,
            report_writer,
            stdout_writer,
            stderr_writer,
            stdin_reader,
        ));
        let mut report = BufReader::new(File::from(report));
        let mut line = String::new();
        let read = report.read_line(&mut line);
        let landlock = match (read, decode(line.trim_end())) {
            (Ok(_), Some(outcome)) => outcome?,
            // Fail closed: a child whose locks are unknown gets no command, so it executes nothing.
            _ => return Err(NoChild::Failed("the child ended before its locks were on".to_owned())),
        };
        Ok(Self {
            child: Child {
                pid,
                pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok(),
                stdin,
                stdout,
                stderr,
                landlock,
            },
            control: File::from(control),
            report,
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid
    }

    pub(crate) fn landlock(&self) -> LandlockReached {
        self.child.landlock
    }

    /// Lets the child execute the program. Errors: why it could not be executed; the child has ended then.
    pub(crate) fn exec(mut self, launch: &Launch) -> Result<Child, NoChild> {
        // Below the work directory nothing is executed, whatever the file is.
        if !launch.is_below_work()
            && let Some(why) = program::never_works(&launch.program, &launch.name)
        {
            return Err(NoChild::OfProgram(why));
        }
        let text = |why: &dyn std::fmt::Display| format!("cannot execute {}: {why}", launch.program.display());
        let cannot = |why: &dyn std::fmt::Display| NoChild::Failed(text(why));
        let sent = self.control.write_all(&launch.encode());
        drop(self.control);
        sent.map_err(|error| cannot(&error))?;
        let mut line = String::new();
        self.report.read_to_string(&mut line).map_err(|error| cannot(&error))?;
        match line.trim_end().parse() {
            Ok(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Err(if MACHINE_ERRNOS.contains(&errno) {
                    cannot(&error)
                } else if errno == libc::EACCES && launch.is_below_work() {
                    NoChild::OfProgram(format!("{}; {NOT_FROM_WORK}", text(&error)))
                } else {
                    NoChild::OfProgram(
                        program::explained(&launch.program, &launch.name, errno).unwrap_or_else(|| text(&error)),
                    )
                })
            }
            Err(_) if line.is_empty() => Ok(self.child),
            Err(_) => Err(cannot(&line.trim_end())),
        }
    }
}

/// Errors of an exec for which the program is not the reason: another sandbox may have what is missing here.
const MACHINE_ERRNOS: [i32; 7] = [
    libc::EAGAIN,
    libc::ENOMEM,
    libc::EMFILE,
    libc::ENFILE,
    libc::EIO,
    libc::EINTR,
    libc::ETXTBSY,
];

/// The sandbox gives no right to execute there, whatever the mode of a file.
const NOT_FROM_WORK: &str = "files of the working directory cannot be executed, give it to an interpreter";

impl Launch {
    fn is_below_work(&self) -> bool {
        let mut variables = self.environment.iter();
        variables.any(|(name, value)| name == "KNACK_WORK_DIR" && self.program.starts_with(value))
    }

    /// The message on the control pipe: each item with its length before it.
    fn encode(&self) -> Vec<u8> {
        let pairs = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let mut message = Vec::new();
        let mut put = |bytes: &[u8]| {
            message.extend_from_slice(&bytes.len().to_le_bytes());
            message.extend_from_slice(bytes);
        };
        put(self.program.as_os_str().as_bytes());
        put(self.cwd.as_os_str().as_bytes());
        put(self.name.as_bytes());
        put(&self.arguments.len().to_le_bytes());
        self.arguments.iter().for_each(|argument| put(argument.as_bytes()));
        pairs.for_each(|pair| put(pair.as_bytes()));
        // Whole or nothing: a runner that dies while it writes must not start a part of the command.
        let length = message.len().to_le_bytes();
        message.splice(..0, length);
        message
    }
}

/// The program in the form that system calls take.
struct Order {
    program: CString,
    cwd: PathBuf,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Order {
    /// `None`: the message is not whole, or an item holds a NUL.
    fn decode(message: &[u8]) -> Option<Self> {
        let (length, mut rest) = message.split_first_chunk()?;
        if rest.len() != usize::from_le_bytes(*length) {
            return None;
        }
        let mut items = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (item, after) = after.split_at_checked(usize::from_le_bytes(*length))?;
            items.push(item);
            rest = after;
        }
        let text = |item: &&[u8]| CString::new(*item).ok();
        let count = usize::from_le_bytes((*items.get(3)?).try_into().ok()?);
        let (arguments, environment) = items.get(4..)?.split_at_checked(count)?;
        let name = items.get(2..3)?;
        Some(Self {
            program: items.first().and_then(text)?,
            cwd: OsString::from_vec(items.get(1)?.to_vec()).into(),
            arguments: name.iter().chain(arguments).map(text).collect::<Option<_>>()?,
            environment: environment.iter().map(text).collect::<Option<_>>()?,
        })
    }
}

/// The child's ends of its pipes.
struct Inside<'a> {
    standard: [BorrowedFd<'a>; 3],
    control: BorrowedFd<'a>,
    report: BorrowedFd<'a>,
}

/// Exit code of a child that could not execute its program; the report distinguishes it from the program's.
const NOT_EXECUTED: i32 = 127;

#[expect(unsafe_code, reason = "neither std nor rustix has fork")]
fn fork(recipe: Recipe, inside: &Inside<'_>) -> std::io::Result<Pid> {
    // SAFETY: the runner has one thread, so no lock of another thread can be held at the fork and the child may call
    // anything; it ends by exec or _exit and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let child = std::panic::AssertUnwindSafe(move || become_program(recipe, inside));
        // Unwinding into the runner's own loop would make two of it.
        let _ = std::panic::catch_unwind(child);
        // SAFETY: ends the process without touching what it shares with the runner.
        unsafe { libc::_exit(NOT_EXECUTED) }
    }
    Pid::from_raw(pid.max(0)).ok_or_else(std::io::Error::last_os_error)
}

/// The child's life up to its exec. Returns only if there is nothing to execute.
fn become_program(mut recipe: Recipe, inside: &Inside<'_>) {
    // A copy, since the runner's own may not stay where it is: over the standard streams, which are replaced next.
    let report = match rustix::io::fcntl_dupfd_cloexec(inside.report, 3) {
        Ok(report) => report,
        Err(error) => {
            let line = format!("-pipe of the report: {}\n", std::io::Error::from(error));
            let _ = rustix::io::write(inside.report, line.as_bytes());
            return;
        }
    };
    let write = |line: &str| rustix::io::write(&report, line.as_bytes()).is_ok();
    if let Err(error) = default_signals().and_then(|()| take_standard(inside.standard)) {
        write(&format!("-standard streams: {}\n", std::io::Error::from(error)));
        return;
    }
    let mut reached = None;
    if let Err(failure) = recipe.apply(|landlock| reached = Some(landlock)) {
        write(&encode_failure(&failure));
        return;
    }
    // The runner's descriptors, including other children's pipes, whose end those would otherwise never see.
    if let Err(error) = close_all_but(inside.control.as_raw_fd(), report.as_raw_fd()) {
        write(&format!("-close_range: {error}\n"));
        return;
    }
    if !reached.is_some_and(|landlock| write(&encode(landlock))) {
        return;
    }
    let mut message = Vec::new();
    if read_all(inside.control, &mut message).is_err() || message.is_empty() {
        return;
    }
    let errno = Order::decode(&message).map_or(libc::EINVAL, |order| execute(&order));
    write(&format!("{errno}\n"));
}

/// SIGPIPE as everybody else has it, and no signal blocked: both outlive an exec.
#[expect(unsafe_code, reason = "neither std nor rustix sets signal actions")]
fn default_signals() -> rustix::io::Result<()> {
    // SAFETY: the set is a valid sigset_t for both calls, and no handler of Rust code is replaced.
    let outcome = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(rustix::io::Errno::INVAL)
    }
}

fn take_standard([stdin, stdout, stderr]: [BorrowedFd<'_>; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)
}

/// Closes every descriptor from 3 on but two.
#[expect(unsafe_code, reason = "neither std nor rustix has close_range")]
fn close_all_but(one: RawFd, other: RawFd) -> std::io::Result<()> {
    let (low, high) = (one.min(other), one.max(other));
    for (first, last) in [(3, low - 1), (low + 1, high - 1), (high + 1, RawFd::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: what is closed belongs to values of the runner that this process, which never returns, never drops.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

fn read_all(from: BorrowedFd<'_>, message: &mut Vec<u8>) -> rustix::io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(from, &mut buffer[..]) {
            Ok(0) => return Ok(()),
            Ok(count) => message.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Executes; returns the errno if it cannot.
#[expect(unsafe_code, reason = "neither std nor rustix executes with an argument list alone")]
fn execute(order: &Order) -> i32 {
    if let Err(error) = rustix::process::chdir(&order.cwd) {
        return error.raw_os_error();
    }
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        let pointers = list.iter().map(|text| text.as_ptr());
        pointers.chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(&order.arguments), pointers(&order.environment));
    // SAFETY: both lists end with a null pointer, and the texts they point to live as long as `order`.
    unsafe { libc::execve(order.program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// One line for the report: state and ABI.
fn encode(landlock: LandlockReached) -> String {
    let state = match landlock.state {
        LandlockState::FullyEnforced => 'f',
        LandlockState::PartiallyEnforced => 'p',
        LandlockState::NotEnforced => 'n',
    };
    format!("{state}{}\n", landlock.abi)
}

fn encode_failure(failure: &Failure) -> String {
    let mark = if failure.is_missing { '?' } else { '-' };
    format!("{mark}{failure}\n").replace('\n', " ") + "\n"
}

/// The content of the report's first line; `None`: unknown.
fn decode(line: &str) -> Option<Result<LandlockReached, NoChild>> {
    let mut characters = line.chars();
    let first = characters.next()?;
    let rest = characters.as_str();
    let state = match first {
        '?' => return Some(Err(NoChild::LocksMissing(rest.trim_end().to_owned()))),
        '-' => {
            let what = format!("a lock does not hold: {}", rest.trim_end());
            return Some(Err(NoChild::Failed(what)));
        }
        'f' => LandlockState::FullyEnforced,
        'p' => LandlockState::PartiallyEnforced,
        'n' => LandlockState::NotEnforced,
        _ => return None,
    };
    let abi = rest.parse().ok()?;
    Some(Ok(LandlockReached { state, abi }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_its_message() {
        let launch = Launch {
            program: "/bin/echo".into(),
            name: "echo".into(),
            arguments: vec!["a b".into(), "".into(), "ä=\n".into()],
            environment: vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())],
            cwd: "/tmp".into(),
        };
        let message = launch.encode();
        let order = Order::decode(&message).unwrap();
        let texts =
            |list: &[CString]| -> Vec<String> { list.iter().map(|text| text.to_str().unwrap().to_owned()).collect() };
        assert_eq!(order.program.to_str(), Ok("/bin/echo"));
        assert_eq!(order.cwd, PathBuf::from("/tmp"));
        assert_eq!(texts(&order.arguments), ["echo", "a b", "", "ä=\n"]);
        assert_eq!(texts(&order.environment), ["A=1", "B="]);
        // A message that was cut is no order.
        for length in 0..message.len() {
            assert!(Order::decode(&message[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn a_report_has_locks_or_why_there_are_none() {
        let reached = LandlockReached {
            state: LandlockState::PartiallyEnforced,
            abi: 3,
        };
        assert_eq!(decode(encode(reached).trim_end()), Some(Ok(reached)));
        let missing = Failure::missing("this kernel has no\nLandlock".to_owned());
        assert_eq!(
            decode(encode_failure(&missing).trim_end()),
            Some(Err(NoChild::LocksMissing(
                "landlock: this kernel has no Landlock".to_owned()
            )))
        );
        assert_eq!(decode(""), None);
        assert_eq!(decode("x"), None);
    }
}
