//! How many reviews of unknown tokens one source may cause. Pure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Reviews of one source at once: a quarter of all for strangers.
const AT_ONCE: usize = 4;
/// Unknown tokens that one source may show at once: the gateways of a node behind one address, or a gateway's clients after
/// its start.
const BURST: u32 = 100;
/// One more every so often: 20 a second.
const REFILL: Duration = Duration::from_millis(50);
/// Sources remembered, at about 100 bytes each. Those that have done nothing for a while are forgotten first.
const REMEMBERED: usize = 4096;

/// The sources; see the module.
#[derive(Debug, Default)]
pub(super) struct Sources {
    known: Mutex<HashMap<String, Source>>,
}

#[derive(Debug)]
struct Source {
    under_way: usize,
    tokens: u32,
    at: Instant,
}

/// The right to one review, given back when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    sources: Arc<Sources>,
    source: String,
}

impl Sources {
    /// The right to a review for a source, unless it has asked for many lately.
    pub(super) fn take(self: &Arc<Self>, source: &str, now: Instant) -> Option<Turn> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED && !known.contains_key(source) {
            known.retain(|_, other| {
                other.refill(now);
                other.under_way > 0 || other.tokens < BURST
            });
            if known.len() >= REMEMBERED {
                return None;
            }
        }
        let entry = known.entry(source.to_owned()).or_insert(Source {
            under_way: 0,
            tokens: BURST,
            at: now,
        });
        entry.refill(now);
        if entry.under_way >= AT_ONCE || entry.tokens == 0 {
            return None;
        }
        entry.under_way += 1;
        entry.tokens -= 1;
        Some(Turn {
            sources: Arc::clone(self),
            source: source.to_owned(),
        })
    }
}

impl Source {
    fn refill(&mut self, now: Instant) {
        let more = now.duration_since(self.at).as_millis() / REFILL.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(more).min(BURST);
        self.at = if more >= BURST { now } else { self.at + REFILL * more };
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut known = self.sources.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get_mut(&self.source) {
            entry.under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_asks_a_few_times_a_second_and_the_others_as_ever() {
        let (sources, start) = (Arc::new(Sources::default()), Instant::now());
        let held: Vec<_> = (0..AT_ONCE).map(|_| sources.take("flood", start).unwrap()).collect();
        assert!(sources.take("flood", start).is_none(), "so many at once");
        assert!(sources.take("other", start).is_some());
        drop(held);
        let asked = (0..10_000_u32).filter(|call| {
            let now = start + Duration::from_millis(1) * *call;
            sources.take("flood", now).is_some()
        });
        let asked = asked.count();
        assert!(
            (290..=300).contains(&asked),
            "a burst of 100 and 20 a second for 10 s: {asked}"
        );
        for source in 0..2 * REMEMBERED {
            let _ = sources.take(&source.to_string(), start);
        }
        assert!(sources.known.lock().unwrap().len() <= REMEMBERED);
        assert!(sources.take("late", start + Duration::from_mins(1)).is_some());
    }
}
