//! Frames on their way to the owner, and how much of them a log may hold.
//!
//! In a pod stdout is the container's log as well. Rotated, it would lose the line that says what has run, so
//! everything on it together stays below a cap, independent of what the run and other writers to stdin do:
//!
//! ```text
//! 0 ───────────────────────────────────────────────┬───────────────────────┬──────────── max_bytes
//!   ready, claimed, started, output, files          │ file_error, rejected  │ result
//!   what does not fit ends the run or is not sent    │ bounded in number     │ one, of bounded size
//! ```

use std::os::fd::BorrowedFd;

use crate::protocol::{FromRunner, Journal, PIECE_BYTES, RunnerLink, encode};

/// A pipe that polls as writable takes at least this much without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// Beyond this many waiting bytes the run's own pipes are not read: a slow owner slows the run, it does not fill the
/// runner's memory.
const HIGH_WATER_BYTES: usize = 1 << 20;

/// Container runtimes cut longer lines of a log.
const LOG_LINE_BYTES: usize = 16 << 10;
/// The prefix of a container runtime before each piece of a line: time, stream, tag.
const LOG_PREFIX_BYTES: usize = 48;
/// Kept free for the result, whose texts have 512 bytes at most.
const RESULT_BYTES: u64 = 8 << 10;
/// Kept free for 101 file errors of 255 bytes of path and 512 of message, sealed, and 16 rejections.
const ERRORS_BYTES: u64 = 184 << 10;
/// The smallest log that a run is started with: what is kept free, what comes before the run, and some output.
const MIN_LOG_BYTES: u64 = 256 << 10;

/// The size of a frame of output or of a file without its path and bytes, the seal and the mac included: 354 bytes with the
/// longest numbers.
const FRAME_BYTES: u64 = 384;

/// The queue of encoded frames.
#[derive(Debug, Default)]
pub(super) struct OutQueue {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes of the log so far, as the container runtime writes it.
    log_bytes: u64,
    /// The cap of the log, where stdout is kept.
    max_bytes: Option<u64>,
    /// The owner, once there is one.
    pub(super) link: Option<RunnerLink>,
}

impl OutQueue {
    /// Keeps to these rules from now on.
    ///
    /// Errors: the log is too small for anything; nothing may run then.
    pub(super) fn keep(&mut self, journal: Journal) -> Result<(), String> {
        if journal.max_bytes < MIN_LOG_BYTES {
            return Err(format!("journal: max_bytes must be at least {MIN_LOG_BYTES}"));
        }
        self.max_bytes = Some(journal.max_bytes);
        if let Some(link) = self.link.as_mut().filter(|_| journal.seal) {
            link.seal();
        }
        Ok(())
    }

    /// Appends a frame, if the log has room for it. Required frames are never refused: output and files are cut before,
    /// by [`OutQueue::output_room`] and [`OutQueue::fits_file`], and the rest has reserved room.
    pub(super) fn send(&mut self, frame: &FromRunner) -> bool {
        if self.start > HIGH_WATER_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let line = match &self.link {
            Some(link) => link.line(frame),
            None => encode(frame),
        };
        let cost = log_bytes(line.len() as u64);
        let kept_free = match frame {
            FromRunner::Result(_) => 0,
            FromRunner::FileError(_) | FromRunner::Rejected(_) => RESULT_BYTES,
            _ => RESULT_BYTES + ERRORS_BYTES,
        };
        if self.room(kept_free) < cost {
            return false;
        }
        if let Some(link) = &mut self.link {
            link.sent();
        }
        self.log_bytes += cost;
        self.bytes.extend_from_slice(&line);
        true
    }

    /// Bytes of the log that are left beside what is kept free.
    fn room(&self, kept_free: u64) -> u64 {
        self.max_bytes.map_or(u64::MAX, |max_bytes| {
            max_bytes.saturating_sub(kept_free).saturating_sub(self.log_bytes)
        })
    }

    /// Bytes that one frame of output may hold now.
    pub(super) fn output_room(&self) -> u64 {
        if self.max_bytes.is_none() {
            return u64::MAX;
        }
        let room = self.room(RESULT_BYTES + ERRORS_BYTES);
        // The inverse of `frame_cost`, rounded down.
        let line = room / (LOG_LINE_BYTES + LOG_PREFIX_BYTES) as u64 * LOG_LINE_BYTES as u64
            + (room % (LOG_LINE_BYTES + LOG_PREFIX_BYTES) as u64).saturating_sub(LOG_PREFIX_BYTES as u64);
        (line.saturating_sub(FRAME_BYTES) / 4 * 3).saturating_sub(3)
    }

    /// Whether a whole file still fits, with its path in each of its pieces. `path_bytes`: as JSON writes it.
    pub(super) fn fits_file(&self, path_bytes: u64, size: u64) -> bool {
        let piece = PIECE_BYTES as u64;
        let whole = (size / piece).saturating_mul(frame_cost(path_bytes, piece));
        let cost = whole.saturating_add(frame_cost(path_bytes, size % piece));
        cost <= self.room(RESULT_BYTES + ERRORS_BYTES)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.bytes.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() - self.start > HIGH_WATER_BYTES
    }

    /// Writes a part, after poll reported that writing does not block.
    ///
    /// Errors: the owner is gone.
    pub(super) fn write_some(&mut self, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let waiting = self.bytes.get(self.start..).unwrap_or_default();
        let part = waiting.get(..WRITE_BYTES).unwrap_or(waiting);
        match rustix::io::write(to, part) {
            Ok(count) => self.start += count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        Ok(())
    }

    /// Writes everything, waiting for the owner.
    ///
    /// Errors: the owner is gone.
    pub(super) fn write_all(&mut self, to: BorrowedFd<'_>) -> rustix::io::Result<()> {
        while !self.is_empty() {
            let waiting = self.bytes.get(self.start..).unwrap_or_default();
            match rustix::io::write(to, waiting) {
                Ok(count) => self.start += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                        to,
                        rustix::event::PollFlags::OUT,
                    )];
                    rustix::event::poll(&mut fds, None)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.start = 0;
        Ok(())
    }
}

/// The size of a line of this length in the log.
fn log_bytes(line: u64) -> u64 {
    line + line.div_ceil(LOG_LINE_BYTES as u64) * LOG_PREFIX_BYTES as u64
}

/// The most that a frame with this much text and these bytes costs: sealed, both are base64 once.
fn frame_cost(text: u64, bytes: u64) -> u64 {
    log_bytes(FRAME_BYTES + (text + bytes).div_ceil(3) * 4)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
