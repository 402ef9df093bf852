//! The index of a history: its executions without their input and output.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use knack_skill::names;

use super::ExecutionQuery;
use super::execution::{Execution, Status};
use crate::owner::Owner;

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskLine {
    pub(super) file: u32,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Where an execution is stored.
#[derive(Debug, Clone)]
pub(super) enum Location {
    /// Not on the disk yet, or dropped.
    Memory(Arc<Execution>),
    /// On the disk.
    Disk(DiskLine),
}

#[derive(Debug)]
struct Head {
    skill: Option<(String, String)>,
    status: Status,
    /// The last note.
    note: u64,
    /// Its execution while that is not on the disk.
    memory: Option<Arc<Execution>>,
    /// The last line of the execution on the disk: of the last note, or of one before it.
    written: Option<DiskLine>,
}

impl Head {
    fn location(&self) -> Option<Location> {
        let memory = self.memory.clone().map(Location::Memory);
        memory.or_else(|| self.written.map(Location::Disk))
    }
}

/// Sorted by time.
type Key = (i64, String);

/// The executions of one caller.
#[derive(Debug, Default)]
struct Records {
    heads: BTreeMap<Key, Head>,
    /// Bytes of their last lines.
    bytes: u64,
}

impl Records {
    fn write(&mut self, key: &Key, line: Option<DiskLine>) {
        let length = |line: Option<DiskLine>| line.map_or(0, |line| u64::from(line.length) + 1);
        if let Some(head) = self.heads.get_mut(key) {
            self.bytes = self.bytes.saturating_sub(length(head.written)) + length(line);
            head.written = line;
        }
    }

    fn remove(&mut self, key: &Key) {
        self.write(key, None);
        self.heads.remove(key);
    }

    /// Removes the oldest while `is_surplus`, but for those that are held. Returns the ids.
    fn evict(&mut self, is_held: &dyn Fn(&str) -> bool, is_surplus: impl Fn(&Self, &Key) -> bool) -> Vec<String> {
        let (mut gone, mut from) = (Vec::new(), Bound::Unbounded);
        loop {
            let mut rest = self.heads.range((from, Bound::Unbounded));
            let Some(key) = rest.find(|((_, id), _)| !is_held(id)).map(|(key, _)| key.clone()) else {
                return gone;
            };
            if !is_surplus(self, &key) {
                return gone;
            }
            self.remove(&key);
            gone.push(key.1.clone());
            from = Bound::Excluded(key);
        }
    }
}

/// The part of a namespace, or of a credential of one machine, and in it those of its callers. A caller of which all is held is
/// left out.
#[derive(Debug, Default)]
struct Share {
    size: u64,
    callers: BinaryHeap<(u64, Arc<Owner>)>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    callers: BTreeMap<Arc<Owner>, Records>,
    /// By id: the caller, and the time.
    keys: HashMap<String, (Arc<Owner>, i64)>,
    notes: u64,
}

impl Index {
    /// Adds an execution or replaces its earlier state. Returns the number of the note.
    pub(super) fn set(&mut self, execution: &Arc<Execution>) -> u64 {
        let note = self.put(execution);
        self.with_head(&execution.id, |records, key| {
            if let Some(head) = records.heads.get_mut(key) {
                head.memory = Some(Arc::clone(execution));
            }
        });
        note
    }

    /// Adds an execution that is on the disk, or replaces its earlier state.
    pub(super) fn set_written(&mut self, execution: &Execution, line: DiskLine) {
        self.put(execution);
        self.with_head(&execution.id, |records, key| records.write(key, Some(line)));
    }

    fn put(&mut self, execution: &Execution) -> u64 {
        self.notes += 1;
        let id = &execution.id;
        let (mut time, mut written) = (execution.created, None);
        // A gateway may have learned meanwhile by which hash its client is known.
        if let Some((owner, known)) = self.keys.get(id) {
            time = *known;
            if let Some(records) = self.callers.get_mut(owner) {
                let key = (time, id.clone());
                written = records.heads.get(&key).and_then(|head| head.written);
                records.remove(&key);
            }
        }
        let caller = self
            .callers
            .get_key_value(&execution.caller)
            .map(|(caller, _)| Arc::clone(caller));
        let caller = caller.unwrap_or_else(|| Arc::new(execution.caller.clone()));
        let skill = execution.skill.as_ref();
        let head = Head {
            skill: skill.map(|skill| (skill.id.clone(), skill.name.clone())),
            status: execution.status,
            note: self.notes,
            memory: None,
            written: None,
        };
        let records = self.callers.entry(Arc::clone(&caller)).or_default();
        records.heads.insert((time, id.clone()), head);
        records.write(&(time, id.clone()), written);
        self.keys.insert(id.clone(), (caller, time));
        self.notes
    }

    fn with_head(&mut self, id: &str, change: impl FnOnce(&mut Records, &Key)) {
        if let Some((caller, time)) = self.keys.get(id)
            && let Some(records) = self.callers.get_mut(caller)
        {
            change(records, &(*time, id.to_owned()));
        }
    }

    /// Sets the line of a note, which is now the last of its execution on the disk.
    pub(super) fn written(&mut self, id: &str, note: u64, line: DiskLine) {
        self.with_head(id, |records, key| {
            records.write(key, Some(line));
            if let Some(head) = records.heads.get_mut(key).filter(|head| head.note == note) {
                head.memory = None;
            }
        });
    }

    /// A line says that all before it are withdrawn: nothing of this id is on the disk.
    pub(super) fn withdrawn(&mut self, id: &str) {
        self.with_head(id, |records, key| records.write(key, None));
    }

    /// Replaces what is kept in memory of a note that the disk does not have, unless a later one has replaced it.
    pub(super) fn dropped(&mut self, id: &str, note: u64, execution: Arc<Execution>) {
        self.with_head(id, |records, key| {
            if let Some(head) = records.heads.get_mut(key).filter(|head| head.note == note) {
                head.memory = Some(execution);
            }
        });
    }

    /// Removes an execution.
    pub(super) fn remove(&mut self, id: &str) {
        self.with_head(id, Records::remove);
        self.keys.remove(id);
    }

    /// The last lines of executions that are in a file, with the times of these.
    pub(super) fn lines_of(&self, file: u32) -> Vec<(String, i64, DiskLine)> {
        let heads = self.callers.values().flat_map(|records| &records.heads);
        let found = heads.filter_map(|((time, id), head)| {
            let line = head.written.filter(|line| line.file == file)?;
            Some((id.clone(), *time, line))
        });
        found.collect()
    }

    /// A line was copied, or is gone.
    pub(super) fn relocate(&mut self, id: &str, from: DiskLine, to: Option<DiskLine>) {
        let mut is_gone = false;
        self.with_head(id, |records, key| {
            if records.heads.get(key).is_some_and(|head| head.written == Some(from)) {
                records.write(key, to);
                is_gone = records.heads.get(key).is_some_and(|head| head.location().is_none());
            }
        });
        if is_gone {
            self.remove(id);
        }
    }

    /// Removes what is from before `since`, then, until the rest is within the bounds, the oldest of the caller that has the most in
    /// the namespace that has the most. What is held stays.
    pub(super) fn bound(&mut self, (most, most_bytes): (usize, u64), since: i64, is_held: &dyn Fn(&str) -> bool) {
        let is_old = |records: &&mut Records| records.heads.keys().next().is_some_and(|(time, _)| *time < since);
        for records in self.callers.values_mut().filter(is_old) {
            for id in records.evict(is_held, |_, (time, _)| *time < since) {
                self.keys.remove(&id);
            }
        }
        self.bound_fairly(most as u64, is_held, |records| records.heads.len() as u64);
        self.bound_fairly(most_bytes, is_held, |records| records.bytes);
        self.callers.retain(|_, records| !records.heads.is_empty());
    }

    fn bound_fairly(&mut self, most: u64, is_held: &dyn Fn(&str) -> bool, size: fn(&Records) -> u64) {
        let total: u64 = self.callers.values().map(size).sum();
        let mut surplus = total.saturating_sub(most);
        if surplus == 0 {
            return;
        }
        let mut shares = self.shares(size);
        while surplus > 0 {
            shares.retain(|share| !share.callers.is_empty());
            // Almost sorted since the last round.
            shares.sort_by_key(|share| Reverse(share.size));
            let Some((share, others)) = shares.split_first_mut() else {
                return;
            };
            let Some((largest, caller)) = share.callers.pop() else {
                return;
            };
            // Down to the next one, which is then as large.
            let beyond_others = share.size - others.first().map_or(0, |other| other.size);
            let beyond_next = largest - share.callers.peek().map_or(0, |(next, _)| *next);
            let less = surplus.min(beyond_others).min(beyond_next).max(1);
            let target = largest.saturating_sub(less);
            let Some(records) = self.callers.get_mut(&caller) else {
                return;
            };
            let gone = records.evict(is_held, |records, _| size(records) > target);
            let left = size(records);
            share.size -= largest - left;
            surplus = surplus.saturating_sub(largest - left);
            if !gone.is_empty() {
                share.callers.push((left, caller));
            }
            for id in gone {
                self.keys.remove(&id);
            }
        }
    }

    fn shares(&self, size: fn(&Records) -> u64) -> Vec<Share> {
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        for (caller, records) in &self.callers {
            let share = shares.entry(caller.group()).or_default();
            share.size += size(records);
            share.callers.push((size(records), Arc::clone(caller)));
        }
        shares.into_values().collect()
    }

    pub(super) fn get(&self, caller: &Owner, id: &str) -> Option<Location> {
        let is_seen = self.owner(id).is_some_and(|owner| caller.covers(owner));
        self.head(id).filter(|_| is_seen)?.location()
    }

    /// The owner of an execution.
    pub(super) fn owner(&self, id: &str) -> Option<&Owner> {
        self.keys.get(id).map(|(owner, _)| &**owner)
    }

    /// The status and the location of an execution.
    pub(super) fn state(&self, id: &str) -> Option<(Status, Location)> {
        let head = self.head(id)?;
        Some((head.status, head.location()?))
    }

    fn head(&self, id: &str) -> Option<&Head> {
        let (caller, time) = self.keys.get(id)?;
        self.callers.get(caller)?.heads.get(&(*time, id.to_owned()))
    }

    /// The executions that a caller sees, the newest first: its own, and those of its clients.
    fn seen(&self, caller: &Owner) -> Vec<(&Key, &Head)> {
        // Its clients follow it.
        let from = self
            .callers
            .range::<Owner, _>((Bound::Included(caller), Bound::Unbounded));
        let own = from.take_while(|(owner, _)| caller.covers(owner));
        let mut seen: Vec<_> = own.flat_map(|(_, records)| records.heads.iter().rev()).collect();
        // One after the other is sorted already.
        seen.sort_by(|(one, _), (other, _)| other.cmp(one));
        seen
    }

    /// The number of matches, and the ids and locations of the wanted page, the newest first.
    pub(super) fn find(&self, caller: &Owner, sought: &ExecutionQuery) -> (usize, Vec<(String, Location)>) {
        // A skill may be named as its install wrote it; executions have the name that is made of that.
        let slug = sought.skill.as_deref().and_then(names::as_installed);
        let meant = |head: &Head| {
            let skill = || {
                sought.skill.as_ref().is_none_or(|wanted| {
                    let skill = head.skill.as_ref();
                    skill.is_some_and(|(id, name)| id == wanted || name == wanted || Some(name) == slug.as_ref())
                })
            };
            sought.status.is_none_or(|status| status == head.status) && skill()
        };
        let (mut total, mut locations) = (0, Vec::new());
        let seen = self.seen(caller);
        for ((_, id), head) in seen.into_iter().filter(|(_, head)| meant(head)) {
            if total >= sought.skip && locations.len() < sought.limit {
                locations.extend(head.location().map(|location| (id.clone(), location)));
            }
            total += 1;
        }
        (total, locations)
    }
}
