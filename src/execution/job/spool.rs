//! What an execution has told so far, for any number of readers at any pace.
//!
//! The owner of the pod writes and never waits: a run that nobody reads is as fast as any. What the run may write is
//! bounded by its limits, and so is this.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use knack_runner::protocol::{FromRunner, OutputStream as WireStream};
use tokio::sync::{mpsc, watch};

use super::event::{Event, OutputStream};

/// The events of one execution.
#[derive(Debug)]
pub(super) struct Spool {
    events: Mutex<Vec<Event>>,
    /// Length, and whether it is complete.
    seen: watch::Sender<(usize, bool)>,
}

impl Spool {
    /// An empty one.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            events: Mutex::default(),
            seen: watch::Sender::new((0, false)),
        })
    }

    /// Adds an event.
    pub(super) fn push(&self, event: Event) {
        let length = {
            let mut events = self.lock();
            events.push(event);
            events.len()
        };
        self.seen.send_modify(|seen| seen.0 = length);
    }

    /// No event follows.
    pub(super) fn close(&self) {
        self.seen.send_modify(|seen| seen.1 = true);
    }

    /// Hands every event on, from the first one, until it is complete or nobody receives.
    pub(super) async fn forward(&self, to: &mpsc::Sender<Event>) {
        let mut seen = self.seen.subscribe();
        let mut next = 0;
        loop {
            let (length, is_complete) = *seen.borrow_and_update();
            while next < length {
                let event = self.lock().get(next).cloned();
                let Some(event) = event else { break };
                if to.send(event).await.is_err() {
                    return;
                }
                next += 1;
            }
            if is_complete || to.is_closed() {
                return;
            }
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { return },
                () = to.closed() => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        // The list is valid between any two statements.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns frames into events. Begun again on a journal, it passes over what was told from the stream.
#[derive(Debug)]
pub(super) struct Telling {
    spool: Arc<Spool>,
    has_started: bool,
    /// Bytes told, by stream.
    told: [u64; 2],
    /// Bytes seen since the last restart, by stream.
    seen: [u64; 2],
}

impl Telling {
    /// Tells into a spool.
    pub(super) const fn new(spool: Arc<Spool>) -> Self {
        Self {
            spool,
            has_started: false,
            told: [0; 2],
            seen: [0; 2],
        }
    }

    /// The frames come again from the beginning.
    pub(super) fn restart(&mut self) {
        self.seen = [0; 2];
    }

    /// Takes a frame.
    pub(super) fn frame(&mut self, frame: &FromRunner) {
        match frame {
            FromRunner::Started(_) if !self.has_started => {
                self.has_started = true;
                self.spool.push(Event::Started);
            }
            FromRunner::Output(output) => {
                let (index, stream) = match output.stream {
                    WireStream::Stdout => (0, OutputStream::Stdout),
                    WireStream::Stderr => (1, OutputStream::Stderr),
                };
                let known = self.told[index].saturating_sub(self.seen[index]);
                let known = usize::try_from(known).unwrap_or(usize::MAX).min(output.data.0.len());
                self.seen[index] += output.data.0.len() as u64;
                self.told[index] = self.told[index].max(self.seen[index]);
                if let Some(news) = output.data.0.get(known..).filter(|news| !news.is_empty()) {
                    self.spool.push(Event::Output {
                        stream,
                        data: Bytes::copy_from_slice(news),
                    });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use knack_runner::protocol::{Data, Output};

    use super::*;

    fn output(text: &str) -> FromRunner {
        FromRunner::Output(Output {
            nonce: String::new(),
            stream: WireStream::Stdout,
            data: Data(text.as_bytes().to_vec()),
        })
    }

    fn text(spool: &Spool) -> String {
        let events = spool.lock();
        let texts = events.iter().filter_map(|event| match event {
            Event::Output { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn a_journal_read_again_adds_only_what_is_new() {
        let spool = Spool::new();
        let mut telling = Telling::new(Arc::clone(&spool));
        telling.frame(&output("abc"));
        telling.restart();
        for piece in ["a", "bcd", "e"] {
            telling.frame(&output(piece));
        }
        assert_eq!(text(&spool), "abcde");
    }

    #[tokio::test]
    async fn a_reader_that_comes_late_sees_everything_and_a_slow_one_holds_nobody() {
        let spool = Spool::new();
        let mut telling = Telling::new(Arc::clone(&spool));
        // Nobody reads: the writer goes on all the same.
        let (stuck, _unread) = mpsc::channel(1);
        let stuck_reader = {
            let spool = Arc::clone(&spool);
            tokio::spawn(async move { spool.forward(&stuck).await })
        };
        for _ in 0..1000 {
            telling.frame(&output("x"));
        }
        spool.close();
        let (sender, mut receiver) = mpsc::channel(2000);
        spool.forward(&sender).await;
        drop(sender);
        let mut count = 0;
        while receiver.recv().await.is_some() {
            count += 1;
        }
        assert_eq!(count, 1000);
        assert!(!stuck_reader.is_finished());
        stuck_reader.abort();
    }
}
