//! Lines that a process writes about its work, written by a thread of their own.
//!
//! A write to a terminal that is stopped (Ctrl-S), or to a pipe whose reader is slow, blocks for as long as that lasts. On a thread of
//! the async runtime it would stop requests that have nothing to do with it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Lines that wait for a reader: some thousands, which is how many a busy gateway writes in a second. What comes while they wait is
/// left out.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Most bytes of one write, if it is of several lines: what a pipe takes as a whole, so that no other writer comes in between.
const WRITE_BYTES_MAX: usize = 4096;
/// How long the thread lets lines come together after it wrote. A person does not notice it, and a busy process does not wake
/// the thread for each request.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the end of a process waits for a reader.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A stream of lines. Writing to it never blocks; clones write to the same stream.
#[derive(Debug, Clone)]
pub struct LineWriter {
    sender: Sender<Message>,
    state: Arc<State>,
}

/// Writes what still waits when it is dropped, for a second at most. The process holds it until its end.
#[derive(Debug)]
#[must_use = "lines that wait are lost without it"]
pub struct LineWriterGuard(Sender<Message>);

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Dropped once everything before it is written.
    End(SyncSender<()>),
}

#[derive(Debug, Default)]
struct State {
    waiting_bytes: AtomicUsize,
    left_out: AtomicU64,
}

impl LineWriter {
    /// Starts the thread that writes to `out`. `notice`: the line in the place of so many that were left out.
    ///
    /// Errors: the system gives no thread.
    pub fn start(
        out: impl Write + Send + 'static,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> std::io::Result<(Self, LineWriterGuard)> {
        let (sender, receiver) = channel();
        let state = Arc::<State>::default();
        let lines = Self {
            sender: sender.clone(),
            state: Arc::clone(&state),
        };
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write_all(&receiver, &state, out, notice))?;
        Ok((lines, LineWriterGuard(sender)))
    }

    /// Writes a line, with its line feed, or leaves it out if too much waits already.
    pub fn send(&self, line: Vec<u8>) {
        let bytes = line.len();
        let waiting = self.state.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > WAITING_BYTES_MAX {
            self.state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.state.left_out.fetch_add(1, Ordering::Relaxed);
        } else {
            // The thread ends after the last sender.
            let _ = self.sender.send(Message::Line(line));
        }
    }
}

/// Each write is one line, as the writers of logs do it.
impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.send(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriterGuard {
    fn drop(&mut self) {
        let (done, end) = sync_channel(0);
        if self.0.send(Message::End(done)).is_ok() {
            // It ends by being dropped.
            let _ = end.recv_timeout(END_WITHIN);
        }
    }
}

/// Lines that go out in one write.
struct Batch<'a, W> {
    out: W,
    state: &'a State,
    text: Vec<u8>,
    /// Bytes of it that count as waiting.
    waiting_bytes: usize,
}

impl<W: Write> Batch<'_, W> {
    /// Makes room for so many bytes.
    fn reserve(&mut self, bytes: usize) {
        if self.text.len() + bytes > WRITE_BYTES_MAX {
            self.write();
        }
    }

    fn add(&mut self, line: &[u8]) {
        self.reserve(line.len());
        self.text.extend_from_slice(line);
        self.waiting_bytes += line.len();
    }

    fn add_notice(&mut self, notice: &str) {
        self.reserve(notice.len() + 1);
        self.text.extend_from_slice(notice.as_bytes());
        self.text.push(b'\n');
    }

    fn write(&mut self) {
        if !self.text.is_empty() {
            // A stream that is closed takes nothing: what the lines are about goes on.
            let _ = self.out.write_all(&self.text);
            self.text.clear();
            // One long line does not keep its memory.
            self.text.shrink_to(WRITE_BYTES_MAX);
        }
        let written = std::mem::take(&mut self.waiting_bytes);
        self.state.waiting_bytes.fetch_sub(written, Ordering::Relaxed);
    }
}

fn write_all(messages: &Receiver<Message>, state: &State, out: impl Write, notice: impl Fn(u64) -> String) {
    let mut batch = Batch {
        out,
        state,
        text: Vec::with_capacity(WRITE_BYTES_MAX),
        waiting_bytes: 0,
    };
    while let Ok(first) = messages.recv() {
        for message in std::iter::once(first).chain(messages.try_iter()) {
            let left_out = state.left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                batch.add_notice(&notice(left_out));
            }
            match message {
                Message::Line(line) => batch.add(&line),
                Message::End(done) => {
                    batch.write();
                    let _ = batch.out.flush();
                    drop(done);
                }
            }
        }
        batch.write();
        #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A stream whose reader reads when it is let.
    #[derive(Clone, Default)]
    struct Stopped {
        written: Arc<Mutex<Vec<u8>>>,
        /// Bytes of each write.
        writes: Arc<Mutex<Vec<usize>>>,
        reader: Arc<Mutex<()>>,
    }

    impl Stopped {
        fn text(&self) -> String {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&written).into_owned()
        }
    }

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _reads = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.extend_from_slice(bytes);
            let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reader_that_stops_blocks_nobody_and_learns_what_it_missed() {
        let out = Stopped::default();
        let stopped = out.reader.lock().unwrap();
        let (mut lines, guard) = LineWriter::start(out.clone(), |count| format!("({count} left out)")).unwrap();
        let line = format!("{}\n", "x".repeat(1023));
        let sent = 3 * WAITING_BYTES_MAX / line.len();
        for _ in 0..sent {
            lines.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(lines.state.waiting_bytes.load(Ordering::Relaxed), WAITING_BYTES_MAX);
        drop(stopped);
        drop(guard);
        let missed = sent - WAITING_BYTES_MAX / line.len();
        // One notice, or several if the thread started only while lines were left out.
        eventually(|| missed_in(&out.text()) == missed);
        assert_eq!(out.text().matches(&line).count(), sent - missed);
        eventually(|| lines.state.waiting_bytes.load(Ordering::Relaxed) == 0);
    }

    /// How many lines the notices name.
    fn missed_in(written: &str) -> usize {
        let counts = written.lines().filter_map(|line| {
            line.strip_prefix('(')?
                .strip_suffix(" left out)")?
                .parse::<usize>()
                .ok()
        });
        counts.sum()
    }

    /// Waits for what the thread does later.
    fn eventually(is_so: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it is written");
            std::thread::yield_now();
        }
    }

    #[test]
    fn lines_are_written_in_order_before_the_process_ends() {
        let out = Stopped::default();
        let (lines, guard) = LineWriter::start(out.clone(), |_| String::new()).unwrap();
        for number in 0..100 {
            lines.send(format!("{number}\n").into_bytes());
        }
        let ending = std::time::Instant::now();
        drop(guard);
        // The guard waits for a second, which the thread may not have had.
        let has_waited = ending.elapsed() >= END_WITHIN;
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert!(has_waited || out.text() == expected);
        eventually(|| out.text() == expected);
    }

    #[test]
    fn lines_that_wait_go_out_together_and_whole() {
        let out = Stopped::default();
        let stopped = out.reader.lock().unwrap();
        let (lines, guard) = LineWriter::start(out.clone(), |_| String::new()).unwrap();
        let long = format!("{}\n", "y".repeat(2 * WRITE_BYTES_MAX));
        let short = format!("{}\n", "x".repeat(99));
        lines.send(long.clone().into_bytes());
        for _ in 0..80 {
            lines.send(short.clone().into_bytes());
        }
        lines.send(long.clone().into_bytes());
        drop(stopped);
        eventually(|| lines.state.waiting_bytes.load(Ordering::Relaxed) == 0);
        drop(guard);
        let each = WRITE_BYTES_MAX / short.len();
        let expected = [long.len(), each * short.len(), (80 - each) * short.len(), long.len()];
        assert_eq!(*out.writes.lock().unwrap(), expected);
        assert_eq!(lines.state.waiting_bytes.load(Ordering::Relaxed), 0);
    }
}
