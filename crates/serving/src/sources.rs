//! How much one source may cause: reviews of unknown tokens by an address, uploads by a namespace. Pure.
//!
//! ```text
//! source ─▶ an allowance of its own ─── its group has GROUP_REMEMBERED of them, or all have REMEMBERED ──▶ one of the SHARED, by group
//! ```
//!
//! Where the name of a source is whatever its sender writes, a group is what the sender cannot choose: the address that it comes from.
//! Nobody is refused because others have many names: who has no allowance of its own shares one with those of its group.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
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

impl Pace {
    /// How many there are in each second in the long run, for texts; of a pace below one a second 0.
    #[must_use]
    pub fn per_second(&self) -> u128 {
        1000_u128.checked_div(self.refill.as_millis()).unwrap_or_default()
    }
}

/// Sources remembered, at about 200 bytes each. Those that have done nothing for a while are forgotten first.
const REMEMBERED: usize = 4096;
/// Sources remembered of one group: eight groups of made-up names leave nobody without a share, and a proxy has
/// hundreds of callers who are not idle at the same time.
const GROUP_REMEMBERED: usize = 512;
/// Allowances of those that are not remembered. Which of them is a group's is drawn by this process, so that nobody can aim at the one
/// of another group.
const SHARED: usize = 64;

/// The sources; see the module.
#[derive(Debug)]
pub struct Sources {
    pace: Pace,
    known: Mutex<KnownSources>,
    draw: RandomState,
}

#[derive(Debug)]
struct KnownSources {
    own: HashMap<String, OwnAllowance>,
    /// Members of `own` by their group.
    groups: HashMap<String, usize>,
    shared: Vec<Allowance>,
    /// When those that had done nothing were forgotten last.
    swept: Option<Instant>,
}

#[derive(Debug)]
struct OwnAllowance {
    group: String,
    allowance: Allowance,
}

#[derive(Debug, Clone)]
struct Allowance {
    under_way: usize,
    tokens: u32,
    at: Instant,
}

/// The allowance that a permit counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowanceKey {
    Own(String),
    Shared(usize),
}

/// A permit, released on drop.
#[derive(Debug)]
pub struct SourcePermit {
    sources: Arc<Sources>,
    allowance_key: AllowanceKey,
}

impl Sources {
    /// Sources that may cause so much each.
    pub fn new(pace: Pace) -> Self {
        let full = Allowance {
            under_way: 0,
            tokens: pace.burst,
            at: Instant::now(),
        };
        let known = KnownSources {
            own: HashMap::new(),
            groups: HashMap::new(),
            shared: vec![full; SHARED],
            swept: None,
        };
        Self {
            pace,
            known: Mutex::new(known),
            draw: RandomState::new(),
        }
    }

    /// The right to one more for a source that proved its name, unless it has had many lately.
    pub fn take(self: &Arc<Self>, source: &str, now: Instant) -> Option<SourcePermit> {
        self.take_of_group(source, source, now)
    }

    /// The right to one more for one of the sources of a group, whose names may be made up, unless they have had many lately.
    pub fn take_of_group(self: &Arc<Self>, group: &str, source: &str, now: Instant) -> Option<SourcePermit> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let allowance_key = self.allowance_key(&mut known, group, source, now);
        let allowance = known.allowance(&allowance_key)?;
        allowance.refill(now, self.pace);
        if allowance.under_way >= self.pace.at_once || allowance.tokens == 0 {
            return None;
        }
        allowance.under_way += 1;
        allowance.tokens -= 1;
        Some(SourcePermit {
            sources: Arc::clone(self),
            allowance_key,
        })
    }

    /// The allowance of a source; one of its own is made where there is room for it.
    fn allowance_key(&self, known: &mut KnownSources, group: &str, source: &str, now: Instant) -> AllowanceKey {
        if known.own.contains_key(source) {
            return AllowanceKey::Own(source.to_owned());
        }
        // Nothing becomes idle sooner than one is refilled: a flood pays for no more sweeps than that.
        let is_due = known
            .swept
            .is_none_or(|swept| now.saturating_duration_since(swept) >= self.pace.refill);
        if !known.has_room(group) && is_due {
            known.forget_idle(now, self.pace);
        }
        if !known.has_room(group) {
            let drawn = self.draw.hash_one(group) % SHARED as u64;
            return AllowanceKey::Shared(usize::try_from(drawn).unwrap_or_default());
        }
        *known.groups.entry(group.to_owned()).or_default() += 1;
        let full = Allowance {
            under_way: 0,
            tokens: self.pace.burst,
            at: now,
        };
        let own = OwnAllowance {
            group: group.to_owned(),
            allowance: full,
        };
        known.own.insert(source.to_owned(), own);
        AllowanceKey::Own(source.to_owned())
    }
}

impl KnownSources {
    fn has_room(&self, group: &str) -> bool {
        let of_group = self.groups.get(group).copied().unwrap_or_default();
        self.own.len() < REMEMBERED && of_group < GROUP_REMEMBERED
    }

    fn forget_idle(&mut self, now: Instant, pace: Pace) {
        self.swept = Some(now);
        let Self { own, groups, .. } = self;
        own.retain(|_, known| {
            known.allowance.refill(now, pace);
            let stays = known.allowance.under_way > 0 || known.allowance.tokens < pace.burst;
            if !stays && let Some(members) = groups.get_mut(&known.group) {
                *members -= 1;
            }
            stays
        });
        groups.retain(|_, members| *members > 0);
    }

    fn allowance(&mut self, allowance_key: &AllowanceKey) -> Option<&mut Allowance> {
        match allowance_key {
            AllowanceKey::Own(source) => self.own.get_mut(source).map(|known| &mut known.allowance),
            AllowanceKey::Shared(allowance_key) => self.shared.get_mut(*allowance_key),
        }
    }
}

impl Allowance {
    fn refill(&mut self, now: Instant, pace: Pace) {
        let more = now.saturating_duration_since(self.at).as_millis() / pace.refill.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(more).min(pace.burst);
        self.at = if more >= pace.burst {
            now
        } else {
            self.at + pace.refill * more
        };
    }
}

impl SourcePermit {
    /// Releases it as if it had not been taken: nothing was done with it.
    pub fn give_back(self) {
        let mut known = self.sources.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allowance) = known.allowance(&self.allowance_key) {
            allowance.tokens = allowance.tokens.saturating_add(1).min(self.sources.pace.burst);
        }
    }
}

impl Drop for SourcePermit {
    fn drop(&mut self) {
        let mut known = self.sources.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allowance) = known.allowance(&self.allowance_key) {
            allowance.under_way -= 1;
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
    }

    /// As a stranger sends them: each of another name.
    fn flood(sources: &Arc<Sources>, address: &str, calls: usize, now: Instant) -> usize {
        let names = (0..calls).map(|call| format!("{address} {call}"));
        names
            .filter(|name| sources.take_of_group(address, name, now).is_some())
            .count()
    }

    #[test]
    fn made_up_names_of_one_address_cost_callers_of_others_nothing() {
        let (sources, start) = (Arc::new(Sources::new(PACE)), Instant::now());
        let known = sources.take_of_group("flood", "before it", start).unwrap();
        let served = flood(&sources, "flood", 100_000, start);
        let own = GROUP_REMEMBERED - 1;
        let burst = usize::try_from(PACE.burst).unwrap();
        assert_eq!(
            served,
            own + burst,
            "each once, and the shared allowance of the address"
        );
        for caller in 0..GROUP_REMEMBERED {
            let held: Vec<_> = (0..PACE.at_once)
                .map(|_| sources.take_of_group("other", &caller.to_string(), start))
                .collect();
            assert!(
                held.iter().all(Option::is_some),
                "{caller} has all that there is for one caller"
            );
        }
        drop(known);
        let known = sources.take_of_group("flood", "before it", start);
        assert!(known.is_some(), "who was there before has what it had");
        assert!(sources.known.lock().unwrap().own.len() <= REMEMBERED);
    }

    #[test]
    fn with_a_table_full_of_made_up_names_nobody_is_refused_for_that() {
        let (sources, start) = (Arc::new(Sources::new(PACE)), Instant::now());
        let addresses = REMEMBERED / GROUP_REMEMBERED;
        for address in 0..addresses {
            flood(&sources, &format!("flood {address}"), 10_000, start);
        }
        assert_eq!(sources.known.lock().unwrap().own.len(), REMEMBERED);
        // Each address of the flood has used up one shared allowance at most.
        let others = (0..1000).map(|other| format!("other {other}"));
        let allowance_key = |known: &mut KnownSources, name: &str| sources.allowance_key(known, name, name, start);
        let mut known = sources.known.lock().unwrap();
        let used: Vec<AllowanceKey> = (0..addresses)
            .map(|address| {
                let group = format!("flood {address}");
                sources.allowance_key(&mut known, &group, "one more", start)
            })
            .collect();
        let free: Vec<String> = others
            .filter(|other| !used.contains(&allowance_key(&mut known, other)))
            .collect();
        drop(known);
        assert!(free.len() > 700, "{} of 1000", free.len());
        assert!(sources.take(&free[0], start).is_some());
        // A second later what was asked once is idle: there is room, and nothing of those that left is counted.
        let later = start + Duration::from_secs(1);
        let held = sources.take("late", later).unwrap();
        assert_eq!(held.allowance_key, AllowanceKey::Own("late".to_owned()));
        let known = sources.known.lock().unwrap();
        assert_eq!((known.own.len(), known.groups.len()), (1, 1));
        drop(known);
    }
}
