//! Frames on their way to the owner.

use std::os::fd::BorrowedFd;

use crate::protocol::{FromRunner, encode};

/// A pipe that polls as writable takes at least this much without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// Beyond this many waiting bytes the run's own pipes are not read: a slow owner slows the run, it does not fill the
/// runner's memory.
const HIGH_WATER_BYTES: usize = 1 << 20;

/// The queue of encoded frames.
#[derive(Debug, Default)]
pub(super) struct OutQueue {
    bytes: Vec<u8>,
    start: usize,
}

impl OutQueue {
    /// Appends a frame.
    pub(super) fn send(&mut self, frame: &FromRunner) {
        if self.start > HIGH_WATER_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(&encode(frame));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.bytes.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() - self.start > HIGH_WATER_BYTES
    }

    /// Writes a little, after poll said that it does not block.
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
