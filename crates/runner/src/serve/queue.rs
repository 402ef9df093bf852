//! Frames on their way to the owner.

use std::os::fd::BorrowedFd;

use crate::protocol::{FromRunner, Journal, Sealer, encode, is_secret};

/// A pipe that polls as writable takes at least this much without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// Beyond this many waiting bytes the run's own pipes are not read: a slow owner slows the run, it does not fill the
/// runner's memory.
const HIGH_WATER_BYTES: usize = 1 << 20;

/// Container runtimes cut longer lines of a log.
const LOG_LINE_BYTES: usize = 16 << 10;
/// What a container runtime writes before each piece of a line: time, stream, tag.
const LOG_PREFIX_BYTES: usize = 48;
/// Kept free of output and files: 100 file errors with the longest names, and the result.
const LOG_RESERVE_BYTES: u64 = 256 << 10;

/// The queue of encoded frames.
#[derive(Debug, Default)]
pub(super) struct OutQueue {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes of the log so far, as the container runtime writes it.
    log_bytes: u64,
    journal: Option<KeptLog>,
}

/// The rules of a stdout that is kept.
#[derive(Debug)]
struct KeptLog {
    max_bytes: u64,
    sealer: Option<Sealer>,
}

impl OutQueue {
    /// Keeps to these rules from now on.
    ///
    /// Errors: the key has a wrong length; nothing may run then.
    pub(super) fn keep(&mut self, journal: &Journal) -> Result<(), String> {
        let sealer = match &journal.key {
            Some(key) => Some(Sealer::new(&key.0).ok_or("journal: the key has a wrong length")?),
            None => None,
        };
        self.journal = Some(KeptLog {
            max_bytes: journal.max_bytes,
            sealer,
        });
        Ok(())
    }

    /// Appends a frame, sealed if it has to be.
    pub(super) fn send(&mut self, frame: &FromRunner, nonce: &str) {
        if self.start > HIGH_WATER_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let sealer = self.journal.as_mut().and_then(|journal| journal.sealer.as_mut());
        let line = match sealer.filter(|_| is_secret(frame)) {
            Some(sealer) => match sealer.seal(frame, nonce) {
                Some(closed) => encode(&closed),
                // It would have to go out plain: rather not at all.
                None => return,
            },
            None => encode(frame),
        };
        self.log_bytes += log_bytes(line.len());
        self.bytes.extend_from_slice(&line);
    }

    /// Bytes of output or files that still fit the log.
    pub(super) fn raw_room(&self) -> u64 {
        let Some(journal) = &self.journal else {
            return u64::MAX;
        };
        let room = journal.max_bytes.saturating_sub(self.log_bytes + LOG_RESERVE_BYTES);
        // Base64 makes 4 bytes of 3; prefixes, names and seals are below 1 in 40 of a frame of 4 KiB and more.
        room / 4 * 3 / 40 * 39
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

/// What a line of this length costs in the log.
fn log_bytes(line: usize) -> u64 {
    (line + line.div_ceil(LOG_LINE_BYTES) * LOG_PREFIX_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Data, Output, OutputStream};

    fn output(bytes: usize) -> FromRunner {
        FromRunner::Output(Output {
            nonce: "n".to_owned(),
            stream: OutputStream::Stdout,
            data: Data(vec![b'x'; bytes]),
        })
    }

    #[test]
    fn a_log_stays_under_its_cap_whatever_the_run_writes() {
        for (key, piece) in [
            (None, 4096),
            (Some(Data(vec![1; 32])), 4096),
            (Some(Data(vec![1; 32])), 200_000),
        ] {
            let mut queue = OutQueue::default();
            queue
                .keep(&Journal {
                    key,
                    max_bytes: 6 << 20,
                })
                .unwrap();
            while queue.raw_room() >= piece as u64 {
                queue.send(&output(piece), "n");
            }
            let used = queue.log_bytes;
            assert!(used <= (6 << 20) - LOG_RESERVE_BYTES, "{used}");
            assert!(used > 4 << 20, "{used}");
        }
    }

    #[test]
    fn without_a_journal_there_is_no_cap() {
        let mut queue = OutQueue::default();
        queue.send(&output(1 << 20), "n");
        assert_eq!(queue.raw_room(), u64::MAX);
    }

    #[test]
    fn a_key_of_a_wrong_length_is_refused() {
        let journal = Journal {
            key: Some(Data(vec![1; 31])),
            max_bytes: 1,
        };
        assert!(OutQueue::default().keep(&journal).is_err());
    }

    #[test]
    fn a_sealed_log_shows_nothing_of_the_output() {
        let mut queue = OutQueue::default();
        queue
            .keep(&Journal {
                key: Some(Data(vec![1; 32])),
                max_bytes: 6 << 20,
            })
            .unwrap();
        queue.send(&output(100), "n");
        let text = String::from_utf8(queue.bytes).unwrap();
        assert!(
            text.starts_with(r#"{"type":"sealed","nonce":"n","sequence":0,"data":""#),
            "{text}"
        );
        assert!(!text.contains("stdout"), "{text}");
    }
}
