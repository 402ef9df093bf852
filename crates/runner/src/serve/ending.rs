//! The end of a run: kill, drain, collect, report.

use std::time::{Duration, Instant};

use rustix::process::WaitStatus;

use super::bounds::{MAX_PATH_BYTES, MAX_REASON_BYTES, MAX_TOLD_PATH_BYTES};
use super::run::{ActiveRun, Process, Readiness};
use super::session::{Session, not_started};
use crate::files::{CollectedEntry, Sink, UncollectedFile, collect};
use crate::process::{kill_everything, usage_of_children};
use crate::protocol::{
    Data, Exit, FileError, FileErrorKind, FilePiece, FromRunner, PIECE_BYTES, RunResult, StreamReport, hex, json_bytes,
    shorten,
};

/// How many reads of the pipes follow the death of all processes: a pipe holds 1 MiB at most, in reads of 64 KiB. No
/// process writes any more, so the reads end; the bound shows that to the reader of the code.
const DRAIN_READS: usize = 64;

/// Kills everything, then puts the last output, the files and the result into the queue.
///
/// `write` is called when the queue should go out before it grows on. Errors: the owner is gone.
pub(super) fn finish(
    session: &mut Session,
    write: &mut dyn FnMut(&mut Session) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let ended = Instant::now();
    let mut process = session.process.take();
    let mut dismissed = std::mem::take(&mut session.dismissed);
    dismissed.extend(session.standby.take().map(|standby| standby.pid()));
    if let Some(process) = &mut process {
        process.reap();
    }
    let main = process.as_ref().and_then(Process::unreaped);
    let killed = kill_everything(main, &dismissed, session.kill_scope());
    if let Some(process) = &mut process {
        process.status = process.status.or(killed.main);
        drain(process, ended);
        process.check_ready();
    }
    let usage = usage_of_children();
    let mut exit = exit_of(session, process.as_ref(), usage.cpu);
    if killed.survivors > 0 {
        exit = Exit::Survivors {
            count: killed.survivors,
        };
    }
    let never_ran = matches!(exit, Exit::NotStarted { .. } | Exit::LocksMissing { .. });
    let has_run = process.is_some() && session.has_run() && !never_ran;
    let streams = match process.as_mut().filter(|_| has_run) {
        Some(process) => send_last_output(session, process, ended),
        None => [StreamReport::default(); 2],
    };
    let (files, file_errors) = if has_run && killed.survivors == 0 {
        send_files(session, write)?
    } else {
        (0, 0)
    };
    let active = session.active.as_ref();
    session.send_frame(&FromRunner::Result(RunResult {
        id: active.map(|active| active.id.clone()).unwrap_or_default(),
        digest: active.map(|active| active.digest.clone()).unwrap_or_default(),
        exit,
        stdout: streams[0],
        stderr: streams[1],
        wall_us: active.map_or(0, |active| micros(ended - active.began)),
        cpu_us: micros(usage.cpu),
        max_rss_bytes: usage.max_rss_bytes,
        killed: killed.others,
        files,
        file_errors,
        locks: process.map(|process| process.locks),
    }));
    write(session)
}

/// Reads what is left in the pipes of a dead process.
fn drain(process: &mut Process, ended: Instant) {
    for stream in [&mut process.stdout, &mut process.stderr] {
        for _ in 0..DRAIN_READS {
            if !stream.read(ended) {
                break;
            }
        }
    }
}

/// Sends the rest of the output, as far as the queue has room. Returns the reports of stdout and stderr.
fn send_last_output(session: &mut Session, process: &mut Process, ended: Instant) -> [StreamReport; 2] {
    [&mut process.stdout, &mut process.stderr].map(|stream| {
        stream.fit(session.out.output_room());
        if let Some(frame) = stream.frame(ended, true) {
            session.send_frame(&frame);
        }
        stream.report()
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Decides how it ended. The runner's own decision comes first: after it the main process dies of the runner's signal.
fn exit_of(session: &mut Session, process: Option<&Process>, cpu: Duration) -> Exit {
    if let Some(exit) = session.failed.take() {
        return exit;
    }
    if let Some(early_end) = session.active.as_mut().and_then(|active| active.early_end.take()) {
        return early_end;
    }
    let (Some(process), Some(active)) = (process, session.active.as_mut()) else {
        return not_started(&process.map_or_else(|| "there was nothing to run".to_owned(), did_not_come_up));
    };
    if process.readiness != Readiness::Ready {
        return not_started(&did_not_come_up(process));
    }
    // A program may end by itself with more in its pipe than it may write.
    if process.stdout.is_truncated() || process.stderr.is_truncated() {
        return Exit::OutputLimit;
    }
    let exit = from_status(process.status, active, cpu);
    // A program may end by itself between two checks with more files than it may have.
    if let (Exit::Code { .. } | Exit::Signal { .. }, Some(setup)) = (&exit, &session.setup)
        && active.watcher.has_too_many_files(&setup.folders, active.deadline())
    {
        return Exit::FileLimit;
    }
    exit
}

fn did_not_come_up(process: &Process) -> String {
    let line = process.stderr.last_line();
    if line.is_empty() {
        "the interpreter ended before it was ready".to_owned()
    } else {
        format!("the interpreter ended before it was ready: {line}")
    }
}

fn from_status(status: Option<WaitStatus>, active: &ActiveRun, cpu: Duration) -> Exit {
    let Some(status) = status else {
        // Its end was not observed. It may have run, and everything is killed by now.
        return Exit::Signal { signal: libc::SIGKILL };
    };
    if let Some(code) = status.exit_status() {
        return Exit::Code { code };
    }
    let signal = status.terminating_signal().unwrap_or(0);
    if signal == libc::SIGKILL && active.kills.has_killed() {
        return Exit::OutOfMemory;
    }
    // The kernel kills at the hard limit, which equals the soft one.
    if matches!(signal, libc::SIGKILL | libc::SIGXCPU) && cpu >= Duration::from_secs(active.limits.cpu_seconds) {
        return Exit::CpuLimit;
    }
    Exit::Signal { signal }
}

/// Sends the results. Returns the numbers of files and of errors.
fn send_files(
    session: &mut Session,
    write: &mut dyn FnMut(&mut Session) -> rustix::io::Result<()>,
) -> rustix::io::Result<(u64, u64)> {
    let Some(setup) = session.setup.take() else {
        return Ok((0, 0));
    };
    let limits = session.active.as_ref().map_or(setup.limits, |active| active.limits);
    let mut outlet = Outlet {
        session,
        write,
        files: 0,
        errors: 0,
        written: Ok(()),
    };
    collect(
        &setup.folders,
        &setup.staged,
        limits.result_bytes,
        limits.result_files,
        &mut outlet,
    );
    let (sent, written) = ((outlet.files, outlet.errors), outlet.written);
    session.setup = Some(setup);
    written.map(|()| sent)
}

/// Where what is collected goes.
struct Outlet<'a> {
    session: &'a mut Session,
    write: &'a mut dyn FnMut(&mut Session) -> rustix::io::Result<()>,
    files: u64,
    errors: u64,
    /// Nothing more is sent once the owner is gone.
    written: rustix::io::Result<()>,
}

impl Sink for Outlet<'_> {
    fn judge(&self, path: &str, size: u64) -> Result<(), UncollectedFile> {
        let length = json_bytes(path);
        if path.len() > MAX_PATH_BYTES {
            return Err(UncollectedFile::new(
                FileErrorKind::Name,
                format!("the path has more than {MAX_PATH_BYTES} bytes"),
            ));
        }
        if !self.session.out.fits_file(length, size) {
            return Err(UncollectedFile::new(
                FileErrorKind::TooLarge,
                format!("{size} bytes; there is no room left beside the output and the other files of this run"),
            ));
        }
        Ok(())
    }

    fn take(&mut self, found: CollectedEntry<'_>) {
        if self.written.is_err() {
            return;
        }
        match found {
            CollectedEntry::File {
                path,
                mode,
                sha256,
                bytes,
            } => {
                self.files += 1;
                send_file(self.session, path, mode, &hex(&sha256), &bytes);
            }
            CollectedEntry::Error { path, kind, message } => {
                self.errors += 1;
                self.session.send_frame(&FromRunner::FileError(FileError {
                    path: shorten(&path, MAX_TOLD_PATH_BYTES),
                    kind,
                    message: shorten(&message, MAX_REASON_BYTES),
                }));
            }
        }
        if self.session.out.is_full() {
            self.written = (self.write)(self.session);
        }
    }
}

fn send_file(session: &mut Session, path: &str, mode: u32, sha256: &str, bytes: &[u8]) {
    let mut offset = 0;
    loop {
        let rest = bytes.get(offset..).unwrap_or_default();
        let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
        let last = piece.len() == rest.len();
        session.send_frame(&FromRunner::File(FilePiece {
            path: path.to_owned(),
            mode,
            size: bytes.len() as u64,
            sha256: sha256.to_owned(),
            offset: offset as u64,
            data: Data(piece.to_vec()),
            last,
        }));
        offset += piece.len();
        if last {
            return;
        }
    }
}
