//! The events of an execution so far, for any number of readers at any pace.
//!
//! The owner of the pod writes and never waits, so an execution without readers is not delayed. Output is kept here up
//! to a bound and while there is memory for it; output that is left out is still in the result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use knack_memory::{MemoryBudget, MemoryShare};
use knack_runner::protocol::{FromRunner, OutputStream as WireStream};
use tokio::sync::{mpsc, watch};

use super::event::{Event, OutputStream};

/// Events kept: a runner sends 4 KiB or what came in 50 ms, so 4 MiB of each stream are 2,000 and two minutes of drops 2,400.
const EVENTS_MAX: usize = 8192;
/// The cost of an event besides its bytes.
const EVENT_BYTES: usize = 96;

/// The events of one execution.
#[derive(Debug)]
pub(in crate::jobs) struct Spool {
    events: Mutex<Buffer>,
    /// Length, and whether it is complete.
    seen: watch::Sender<(usize, bool)>,
}

#[derive(Debug, Default)]
struct Buffer {
    list: Vec<Event>,
    bytes: usize,
    memory: Option<MemoryBudget>,
    share: Option<MemoryShare>,
}

impl Buffer {
    /// Whether there is room for one more event with this many bytes.
    fn makes_room(&mut self, bytes: usize) -> bool {
        if self.list.len() >= EVENTS_MAX {
            return false;
        }
        let held = self.bytes + bytes + EVENT_BYTES;
        let fits = match (&self.memory, &mut self.share) {
            (None, _) => true,
            (Some(_), Some(share)) => share.grow_to(held).is_ok(),
            (Some(memory), share) => memory.try_take(held).map(|taken| *share = Some(taken)).is_ok(),
        };
        if fits {
            self.bytes = held;
        }
        fits
    }
}

impl Spool {
    /// An empty one that counts its output in `memory`.
    pub(in crate::jobs) fn new(memory: Option<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self {
            events: Mutex::new(Buffer {
                memory,
                ..Buffer::default()
            }),
            seen: watch::Sender::new((0, false)),
        })
    }

    /// Adds an event.
    pub(in crate::jobs) fn push(&self, event: Event) {
        let length = {
            let mut events = self.lock();
            // Steps are few and a reader waits for them; output is much, and not lost.
            if let Event::Output { data, .. } = &event
                && !events.makes_room(data.len())
            {
                return;
            }
            events.list.push(event);
            events.list.len()
        };
        self.seen.send_modify(|seen| seen.0 = length);
    }

    /// No event follows.
    pub(in crate::jobs) fn close(&self) {
        self.seen.send_modify(|seen| seen.1 = true);
    }

    /// Passes on every event, from the first one, until the spool is complete or the receiver is gone.
    pub(in crate::jobs) async fn forward(&self, to: &mpsc::Sender<Event>) {
        let mut seen = self.seen.subscribe();
        let mut next = 0;
        loop {
            let (length, is_complete) = *seen.borrow_and_update();
            while next < length {
                let event = self.lock().list.get(next).cloned();
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

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // The list is valid between any two statements.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns frames into events. When replaying the journal, it skips output that was already sent from the stream.
#[derive(Debug)]
pub(in crate::jobs) struct EventWriter {
    spool: Arc<Spool>,
    has_started: bool,
    /// Bytes sent, by stream.
    sent: [u64; 2],
    /// Bytes seen since the last restart, by stream.
    seen: [u64; 2],
}

impl EventWriter {
    /// Writes into a spool.
    pub(in crate::jobs) const fn new(spool: Arc<Spool>) -> Self {
        Self {
            spool,
            has_started: false,
            sent: [0; 2],
            seen: [0; 2],
        }
    }

    /// The frames come again from the beginning.
    pub(in crate::jobs) fn restart(&mut self) {
        self.seen = [0; 2];
    }

    /// Takes a frame.
    pub(in crate::jobs) fn frame(&mut self, frame: &FromRunner) {
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
                let known = self.sent[index].saturating_sub(self.seen[index]);
                let known = usize::try_from(known).unwrap_or(usize::MAX).min(output.data.0.len());
                self.seen[index] += output.data.0.len() as u64;
                self.sent[index] = self.sent[index].max(self.seen[index]);
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
            stream: WireStream::Stdout,
            data: Data(text.as_bytes().to_vec()),
        })
    }

    fn text(spool: &Spool) -> String {
        let events = spool.lock();
        let texts = events.list.iter().filter_map(|event| match event {
            Event::Output { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn a_journal_read_again_adds_only_what_is_new() {
        let spool = Spool::new(None);
        let mut events = EventWriter::new(Arc::clone(&spool));
        events.frame(&output("abc"));
        events.restart();
        for piece in ["a", "bcd", "e"] {
            events.frame(&output(piece));
        }
        assert_eq!(text(&spool), "abcde");
    }

    #[test]
    fn a_flood_of_output_is_left_out_of_the_spool_at_its_bound() {
        let memory = MemoryBudget::new(1 << 20);
        let spool = Spool::new(Some(memory.clone()));
        let mut events = EventWriter::new(Arc::clone(&spool));
        for _ in 0..64 {
            events.frame(&output(&"x".repeat(32 << 10)));
        }
        assert!(text(&spool).len() < 1 << 20 && memory.free_bytes() < 33 << 10);
        for _ in 0..2 * EVENTS_MAX {
            events.frame(&output(""));
            spool.push(Event::Output {
                stream: OutputStream::Stderr,
                data: Bytes::new(),
            });
        }
        spool.push(Event::Started);
        assert!(spool.lock().list.len() <= EVENTS_MAX + 1);
        assert_eq!(
            spool.lock().list.last(),
            Some(&Event::Started),
            "steps are reported all the same"
        );
        drop((events, spool));
        assert_eq!(memory.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_late_reader_sees_everything_and_a_slow_one_delays_no_other() {
        let spool = Spool::new(None);
        let mut events = EventWriter::new(Arc::clone(&spool));
        // There is no reader: the writer continues.
        let (stuck, _unread) = mpsc::channel(1);
        let stuck_reader = {
            let spool = Arc::clone(&spool);
            tokio::spawn(async move { spool.forward(&stuck).await })
        };
        for _ in 0..1000 {
            events.frame(&output("x"));
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
