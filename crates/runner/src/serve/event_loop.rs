//! The poll loop.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::DumpableBehavior;

use super::ending::finish;
use super::run::{Process, Readiness};
use super::session::{START_BOUND, Session};
use super::stop::Stop;
use crate::locks::Kernel;
use crate::protocol::{Decoder, Exit, ToRunner};

/// One read of stdin; the size of a pipe.
const READ_BYTES: usize = 64 << 10;
/// While a child lives the loop runs at least this often: orphans are reaped, and children are checked on kernels whose
/// pidfds do not fire (gVisor).
const TICK: Duration = Duration::from_millis(100);
/// How often the loop runs at least while the run makes orphans without end: each is a zombie until it is reaped.
const BUSY_TICK: Duration = Duration::from_millis(5);
/// How long the runner waits for `ack` after the result.
const ACK_GRACE: Duration = Duration::from_secs(2);

/// Serves one execution on the two descriptors.
///
/// Returns after `ack`, its grace, or the end of `input`. Errors: the frames cannot be read or written; everything of
/// the run is dead by then too.
pub fn serve(input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> std::io::Result<()> {
    serve_on(Kernel::default(), input, output)
}

/// As [`serve`], with no more of the kernel than this.
#[doc(hidden)]
pub fn serve_on(kernel: Kernel, input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> std::io::Result<()> {
    protect_runner()?;
    let stop = Stop::listen()?;
    let mut session = Session::new(kernel);
    let mut decoder = Decoder::new();
    let outcome = converse(&mut session, &mut decoder, &RunnerStreams { input, output, stop });
    drop(session.standby.take());
    let main = session.process.take().as_ref().and_then(Process::unreaped);
    let killed = crate::process::kill_everything(main, &[], session.kill_scope());
    if killed.survivors > 0 {
        // The owner no longer reads; the exit code makes it end the remaining processes.
        return Err(std::io::Error::other("processes of the run are still running"));
    }
    outcome.map_err(Into::into)
}

/// The descriptors that the runner reads and writes.
struct RunnerStreams<'a> {
    input: BorrowedFd<'a>,
    output: BorrowedFd<'a>,
    stop: Stop,
}

fn protect_runner() -> std::io::Result<()> {
    // Closes /proc/<runner>/{environ,mem} to code of the same uid.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Whatever detaches from the run stays below the runner, also where it is not PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

fn converse(session: &mut Session, decoder: &mut Decoder, ends: &RunnerStreams<'_>) -> rustix::io::Result<()> {
    let mut is_open = true;
    loop {
        let events = wait(session, ends, is_open)?;
        let now = Instant::now();
        if events.output {
            session.out.write_some(ends.output)?;
        }
        if events.input {
            is_open = read_frames(session, decoder, ends.input, now)?;
            if !is_open && !session.has_run() {
                return Ok(());
            }
        }
        if events.stop && ends.stop.is_asked() && session.stop() {
            return Ok(());
        }
        if !is_open && session.orphaned.is_none() {
            let grace = session.setup.as_ref().map_or(0, |setup| setup.start.eof_grace_ms);
            session.orphaned = Some(now + Duration::from_millis(grace));
        }
        turn(session, now);
        if is_over(session) {
            break;
        }
    }
    finish(session, &mut |session| session.out.write_all(ends.output))?;
    if is_open {
        await_ack(session, decoder, ends.input)
    } else {
        Ok(())
    }
}

struct ReadyEvents {
    input: bool,
    output: bool,
    stop: bool,
}

/// Waits until there is something to do.
fn wait(session: &Session, ends: &RunnerStreams<'_>, is_open: bool) -> rustix::io::Result<ReadyEvents> {
    let mut fds = Vec::with_capacity(7);
    // Positions 0 to 2 are fixed: a closed stdin, and the signal where none is expected, are polled for no event.
    let asked = |fd, asks, flags| PollFd::from_borrowed_fd(fd, if asks { flags } else { PollFlags::empty() });
    let (input, output) = (if is_open { ends.input } else { ends.output }, ends.output);
    let stop = ends.stop.descriptor();
    fds.push(asked(input, is_open, PollFlags::IN));
    fds.push(asked(output, !session.out.is_empty(), PollFlags::OUT));
    fds.push(asked(stop.unwrap_or(output), stop.is_some(), PollFlags::IN));
    if let Some(process) = &session.process {
        let streams = [&process.stdout.pipe, &process.stderr.pipe];
        let readable = streams
            .into_iter()
            .filter(|_| !session.out.is_full())
            .chain([&process.pidfd]);
        fds.extend(
            readable
                .flatten()
                .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
        );
        if let Some(pipe) = process.payload.pipe.as_ref().filter(|_| process.payload.is_given) {
            fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT));
        }
    }
    let timeout = timeout(session, Instant::now());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    // The reader is gone: without this the poll would return at once every time.
    if fds.get(1).is_some_and(|fd| fd.revents().contains(PollFlags::ERR)) {
        return Err(rustix::io::Errno::PIPE);
    }
    let happened = |position: usize| fds.get(position).is_some_and(|fd| !fd.revents().is_empty());
    Ok(ReadyEvents {
        input: is_open && happened(0),
        output: !session.out.is_empty() && happened(1),
        stop: stop.is_some() && happened(2),
    })
}

fn timeout(session: &Session, now: Instant) -> Option<Timespec> {
    let mut due = Vec::new();
    if let Some(process) = &session.process {
        due.extend([process.stdout.due(), process.stderr.due()].into_iter().flatten());
        if session.has_run() || process.pidfd.is_none() {
            due.push(now + if process.makes_orphans { BUSY_TICK } else { TICK });
        }
        if let Readiness::Starting(since) = process.readiness {
            due.push(since + START_BOUND);
        }
    }
    if let Some(active) = &session.active {
        due.push(active.deadline());
        // Nothing is watched before there is a process.
        due.extend(session.process.as_ref().and(active.watcher.due()));
        due.extend(session.orphaned);
    }
    let left = due.into_iter().min()?.saturating_duration_since(now);
    // A microsecond more, so that the moment has passed when the loop turns.
    let left = left + Duration::from_micros(1);
    Some(Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    })
}

/// Reads once and acts on every whole frame. Returns whether there may be more.
fn read_frames(
    session: &mut Session,
    decoder: &mut Decoder,
    input: BorrowedFd<'_>,
    now: Instant,
) -> rustix::io::Result<bool> {
    let mut buffer = vec![0; READ_BYTES];
    let count = match rustix::io::read(input, &mut buffer[..]) {
        Ok(count) => count,
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(true),
        Err(error) => return Err(error),
    };
    decoder.push(buffer.get(..count).unwrap_or_default());
    while session.failed.is_none()
        && let Some(line) = decoder.next_line()
    {
        session.take(line, now);
    }
    Ok(count > 0)
}

/// Moves the bytes of the child and checks every limit.
fn turn(session: &mut Session, now: Instant) {
    let is_full = session.out.is_full();
    if let Some(process) = &mut session.process {
        if !is_full {
            process.stdout.read(now);
            process.stderr.read(now);
        }
        process.reap();
        if process.payload.is_given {
            process.payload.write();
        }
    }
    session.advance();
    send_output(session, now);
    judge(session, now);
}

/// Sends what the run has written.
fn send_output(session: &mut Session, now: Instant) {
    let has_run = session.has_run();
    let Some(process) = session.process.as_mut().filter(|_| has_run) else {
        return;
    };
    if process.readiness == Readiness::Ready {
        for stream in [&mut process.stdout, &mut process.stderr] {
            stream.fit(session.out.output_room());
            if let Some(frame) = stream.frame(now, false) {
                session.out.send(&frame);
            }
        }
    }
}

/// Decides whether the run must end. The deadline comes before the check of what is watched, which takes longest.
fn judge(session: &mut Session, now: Instant) {
    let Some(active) = &mut session.active else {
        return;
    };
    let process = session.process.as_ref();
    if process.is_some_and(|process| process.stdout.is_truncated() || process.stderr.is_truncated()) {
        active.early_end.get_or_insert(Exit::OutputLimit);
    }
    let deadline = active.deadline();
    let has_ended = process.is_some_and(|process| process.status.is_some());
    if now >= deadline && !has_ended {
        active.early_end.get_or_insert(Exit::Timeout);
    }
    if session.orphaned.is_some_and(|moment| moment <= now) {
        active.early_end.get_or_insert(Exit::Cancelled);
    }
    if let (Some(setup), Some(_), None, false) = (&session.setup, process, &active.early_end, has_ended) {
        active.early_end = active.watcher.check(&setup.folders, now, deadline);
    }
}

/// Whether the result is due: something failed, the runner has decided, or the main process has ended.
fn is_over(session: &Session) -> bool {
    session.failed.is_some()
        || session.active.as_ref().is_some_and(|active| active.early_end.is_some())
        || session
            .process
            .as_ref()
            .is_some_and(|process| process.status.is_some() || has_hung(process))
}

/// An interpreter that never came up.
fn has_hung(process: &Process) -> bool {
    matches!(process.readiness, Readiness::Starting(since) if since.elapsed() >= START_BOUND)
}

fn await_ack(session: &mut Session, decoder: &mut Decoder, input: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let deadline = Instant::now() + ACK_GRACE;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        while let Some(line) = decoder.next_line() {
            if let (Ok(line), Some(link)) = (line, session.out.link.as_mut())
                && link.read(line) == Ok(ToRunner::Ack)
            {
                return Ok(());
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let timeout = if left.as_secs() > 0 {
            Timespec { tv_sec: 1, tv_nsec: 0 }
        } else {
            timeout
        };
        let mut fds = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        poll(&mut fds, Some(&timeout))?;
        if !fds[0].revents().is_empty() {
            match rustix::io::read(input, &mut buffer[..]) {
                Ok(0) => return Ok(()),
                Ok(count) => decoder.push(buffer.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
