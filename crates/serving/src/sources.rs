//! How much one source may cause: reviews of unknown tokens by an address, uploads by a namespace. Pure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The pace that is allowed to one source.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// At once.
    pub at_once: usize,
    /// In a row, after a while of nothing.
    pub burst: u32,
    /// One more every so often.
    pub refill: Duration,
}

/// Sources remembered, at about 100 bytes each. Those that have done nothing for a while are forgotten first.
const REMEMBERED: usize = 4096;

/// The sources; see the module.
#[derive(Debug)]
pub struct Sources {
    pace: Pace,
    known: Mutex<HashMap<String, SourceAllowance>>,
}

#[derive(Debug)]
struct SourceAllowance {
    under_way: usize,
    tokens: u32,
    at: Instant,
}

/// The right to one, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    sources: Arc<Sources>,
    source: String,
}

impl Sources {
    /// Sources that may cause so much each.
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            known: Mutex::default(),
        }
    }

    /// The right to one more for a source, unless it has had many lately.
    pub fn take(self: &Arc<Self>, source: &str, now: Instant) -> Option<Turn> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED && !known.contains_key(source) {
            known.retain(|_, other| {
                other.refill(now, self.pace);
                other.under_way > 0 || other.tokens < self.pace.burst
            });
            if known.len() >= REMEMBERED {
                return None;
            }
        }
        let entry = known.entry(source.to_owned()).or_insert(SourceAllowance {
            under_way: 0,
            tokens: self.pace.burst,
            at: now,
        });
        entry.refill(now, self.pace);
        if entry.under_way >= self.pace.at_once || entry.tokens == 0 {
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

impl SourceAllowance {
    fn refill(&mut self, now: Instant, pace: Pace) {
        let more = now.duration_since(self.at).as_millis() / pace.refill.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(more).min(pace.burst);
        self.at = if more >= pace.burst {
            now
        } else {
            self.at + pace.refill * more
        };
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

    const PACE: Pace = Pace {
        at_once: 4,
        burst: 100,
        refill: Duration::from_millis(50),
    };

    #[test]
    fn one_source_asks_a_few_times_a_second_and_the_others_as_ever() {
        let (sources, start) = (Arc::new(Sources::new(PACE)), Instant::now());
        let held: Vec<_> = (0..PACE.at_once)
            .map(|_| sources.take("flood", start).unwrap())
            .collect();
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
