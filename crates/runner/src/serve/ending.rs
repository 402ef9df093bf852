//! The end of a run: kill, drain, collect, tell.

use std::time::{Duration, Instant};

use rustix::process::WaitStatus;

use super::run::{Active, Process, Readiness};
use super::session::{Session, hex};
use crate::files::{Collected, collect};
use crate::process::{kill_everything, usage_of_children};
use crate::protocol::{Data, Exit, FileError, FilePiece, FromRunner, PIECE_BYTES, RunResult, StreamReport};

/// How many reads of the pipes follow the death of everybody: a pipe holds 1 MiB at most, in reads of 64 KiB. Nobody
/// writes any more, so there is an end; the bound says so to the reader.
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
    let (mut killed, mut survivors) = (0, 0);
    if let Some(process) = &mut process {
        process.reap();
        let told = kill_everything(process.unreaped(), session.reach());
        process.status = process.status.or(told.main);
        killed = told.others;
        survivors = told.survivors;
        for stream in [&mut process.stdout, &mut process.stderr] {
            for _ in 0..DRAIN_READS {
                if !stream.read(ended) {
                    break;
                }
            }
        }
        process.check_ready();
    }
    let usage = usage_of_children();
    let mut exit = exit_of(session, process.as_ref(), usage.cpu);
    if survivors > 0 {
        exit = Exit::Survivors { count: survivors };
    }
    let has_run = process.is_some() && session.has_run() && !matches!(exit, Exit::NotStarted { .. });
    let mut streams = [StreamReport::default(); 2];
    if let Some(process) = process.as_mut().filter(|_| has_run) {
        for (stream, report) in [&mut process.stdout, &mut process.stderr].into_iter().zip(&mut streams) {
            stream.fit(session.out.raw_room());
            if let Some(frame) = stream.frame(&session.nonce, ended, true) {
                session.out.send(&frame, &session.nonce);
            }
            *report = stream.report();
        }
    }
    let (files, file_errors) = if has_run && survivors == 0 {
        send_files(session, write)?
    } else {
        (0, 0)
    };
    let active = session.active.as_ref();
    session.tell(&FromRunner::Result(RunResult {
        nonce: session.nonce.clone(),
        id: active.map(|active| active.id.clone()).unwrap_or_default(),
        exit,
        stdout: streams[0],
        stderr: streams[1],
        wall_us: active.map_or(0, |active| micros(ended - active.began)),
        cpu_us: micros(usage.cpu),
        max_rss_bytes: usage.max_rss_bytes,
        killed,
        files,
        file_errors,
        locks: process.map(|process| process.locks),
    }));
    write(session)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Decides how it ended. The runner's own decision comes first: after it the main process dies of our signal.
fn exit_of(session: &mut Session, process: Option<&Process>, cpu: Duration) -> Exit {
    if let Some(reason) = session.failed.take() {
        return Exit::NotStarted { reason };
    }
    let (Some(process), Some(active)) = (process, session.active.as_mut()) else {
        let reason = match process {
            Some(process) => did_not_come_up(process),
            None => "there was nothing to run".to_owned(),
        };
        return Exit::NotStarted { reason };
    };
    if let Some(verdict) = active.verdict.take() {
        return verdict;
    }
    if process.readiness != Readiness::Ready {
        return Exit::NotStarted {
            reason: did_not_come_up(process),
        };
    }
    // A program may end by itself with more in its pipe than it may write.
    if process.stdout.is_truncated() || process.stderr.is_truncated() {
        return Exit::OutputLimit;
    }
    let exit = from_status(process.status, active, cpu);
    // A program may end by itself between two looks with more files than it may have.
    if let (Exit::Code { .. } | Exit::Signal { .. }, Some(setup)) = (&exit, &session.setup)
        && active.watcher.has_too_many_files(&setup.place)
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

fn from_status(status: Option<WaitStatus>, active: &Active, cpu: Duration) -> Exit {
    let Some(status) = status else {
        return Exit::NotStarted {
            reason: "the end of the main process was not seen".to_owned(),
        };
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
    let (mut files, mut errors) = (0, 0);
    let mut written = Ok(());
    collect(
        &setup.place,
        &setup.staged,
        limits.result_bytes.min(session.out.raw_room()),
        limits.result_files,
        &mut |collected| {
            if written.is_err() {
                return;
            }
            match collected {
                Collected::File {
                    path,
                    mode,
                    sha256,
                    bytes,
                } => {
                    files += 1;
                    send_file(session, &path, mode, &hex(&sha256), &bytes);
                }
                Collected::Error { path, kind, message } => {
                    errors += 1;
                    session.tell(&FromRunner::FileError(FileError {
                        nonce: session.nonce.clone(),
                        path,
                        kind,
                        message,
                    }));
                }
            }
            if session.out.is_full() {
                written = write(session);
            }
        },
    );
    session.setup = Some(setup);
    written.map(|()| (files, errors))
}

fn send_file(session: &mut Session, path: &str, mode: u32, sha256: &str, bytes: &[u8]) {
    let mut offset = 0;
    loop {
        let rest = bytes.get(offset..).unwrap_or_default();
        let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
        let last = piece.len() == rest.len();
        session.tell(&FromRunner::File(FilePiece {
            nonce: session.nonce.clone(),
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
