//! One output stream of the child: read, cut, coalesced.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::protocol::{Data, FromRunner, Output, OutputStream, StreamReport};

/// A frame goes out when this much is together ...
const COALESCE_BYTES: usize = 4096;
/// ... or this long after the first byte: a person still sees text flow, and a program that prints byte by byte makes
/// 20 frames a second and not 100,000.
const COALESCE_TIME: Duration = Duration::from_millis(50);
/// One read; the size of a pipe.
const READ_BYTES: usize = 64 << 10;

/// The reading end of a stream of the child.
#[derive(Debug)]
pub(super) struct Capture {
    /// `None` after its end.
    pub(super) pipe: Option<OwnedFd>,
    stream: OutputStream,
    pending: Vec<u8>,
    since: Option<Instant>,
    cap: u64,
    taken: u64,
    truncated: bool,
}

impl Capture {
    /// Takes the pipe and makes it non-blocking: the runner must never wait for its end.
    pub(super) fn new(pipe: Option<OwnedFd>, stream: OutputStream, cap: u64) -> Self {
        let pipe = pipe.filter(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_ok());
        Self {
            pipe,
            stream,
            pending: Vec::new(),
            since: None,
            cap,
            taken: 0,
            truncated: false,
        }
    }

    /// Lowers the cap, before anything of the program was read.
    pub(super) fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// Reads once. Returns whether there may be more.
    pub(super) fn read(&mut self, now: Instant) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(pipe, &mut buffer[..]) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(count) => {
                self.take(buffer.get(..count).unwrap_or_default(), now);
                !self.truncated
            }
            Err(rustix::io::Errno::INTR) => true,
            Err(rustix::io::Errno::AGAIN) => false,
            Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    fn take(&mut self, bytes: &[u8], now: Instant) {
        let left = usize::try_from(self.cap.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let kept = bytes.get(..left).unwrap_or(bytes);
        self.truncated |= kept.len() < bytes.len();
        self.taken += kept.len() as u64;
        if !kept.is_empty() {
            self.since.get_or_insert(now);
            self.pending.extend_from_slice(kept);
        }
    }

    /// Cuts what waits to what the log still holds.
    pub(super) fn fit(&mut self, room: u64) {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if self.pending.len() > room {
            self.taken -= (self.pending.len() - room) as u64;
            self.pending.truncate(room);
            self.truncated = true;
        }
    }

    /// Whether the child wrote more than it may.
    pub(super) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// When the waiting bytes are due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + COALESCE_TIME)
    }

    /// Returns the waiting bytes as a frame if they are due, or there is no more to wait for.
    pub(super) fn frame(&mut self, now: Instant, at_end: bool) -> Option<FromRunner> {
        let is_due = self.pending.len() >= COALESCE_BYTES || self.due().is_some_and(|due| due <= now) || at_end;
        if !is_due || self.pending.is_empty() {
            return None;
        }
        self.since = None;
        let data = Data(std::mem::take(&mut self.pending));
        Some(FromRunner::Output(Output {
            stream: self.stream,
            data,
        }))
    }

    /// Removes `prefix` from the beginning: `Some(true)` done, `Some(false)` something else is there, `None` too short.
    pub(super) fn strip(&mut self, prefix: &[u8]) -> Option<bool> {
        if !self.pending.starts_with(prefix) {
            return if prefix.starts_with(&self.pending) {
                None
            } else {
                Some(false)
            };
        }
        self.pending.drain(..prefix.len());
        self.taken = self.pending.len() as u64;
        self.since = self.since.filter(|_| !self.pending.is_empty());
        Some(true)
    }

    /// The last line that waits, for a message about a child that did not come up.
    pub(super) fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        text.lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default()
            .chars()
            .take(300)
            .collect()
    }

    pub(super) fn report(&self) -> StreamReport {
        StreamReport {
            bytes: self.taken,
            truncated: self.truncated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(cap: u64) -> Capture {
        Capture::new(None, OutputStream::Stdout, cap)
    }

    #[test]
    fn the_cut_is_exact() {
        let now = Instant::now();
        let mut stream = capture(10);
        stream.take(b"0123456789", now);
        assert!(!stream.is_truncated());
        stream.take(b"x", now);
        assert_eq!(
            stream.report(),
            StreamReport {
                bytes: 10,
                truncated: true
            }
        );
    }

    #[test]
    fn what_does_not_fit_the_log_is_cut_and_marked() {
        let now = Instant::now();
        let mut stream = capture(100);
        stream.take(b"0123456789", now);
        stream.fit(10);
        assert!(!stream.is_truncated());
        stream.fit(4);
        assert_eq!(
            stream.report(),
            StreamReport {
                bytes: 4,
                truncated: true
            }
        );
    }

    #[test]
    fn frames_wait_for_size_or_time() {
        let now = Instant::now();
        let mut stream = capture(100_000);
        stream.take(b"a", now);
        assert!(stream.frame(now, false).is_none());
        assert!(stream.frame(now + COALESCE_TIME, false).is_some());
        stream.take(&[b'a'; COALESCE_BYTES], now);
        assert!(stream.frame(now, false).is_some());
        stream.take(b"a", now);
        assert!(stream.frame(now, true).is_some());
        assert!(stream.frame(now, true).is_none());
    }

    #[test]
    fn the_handshake_is_not_output() {
        let now = Instant::now();
        let mut stream = capture(3);
        stream.take(b"r", now);
        assert_eq!(stream.strip(b"rea"), None);
        stream.take(b"ea", now);
        assert_eq!(stream.strip(b"rea"), Some(true));
        assert_eq!(stream.report().bytes, 0);
        stream.take(b"no", now);
        assert_eq!(stream.strip(b"rea"), Some(false));
    }
}
