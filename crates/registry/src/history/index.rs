//! The index of a history: its executions without their input and output.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use knack_skill::names;

use super::ExecutionQuery;
use super::execution::{Execution, Status};
use super::settings::HistorySettings;
use crate::model::Owner;

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
    caller: Owner,
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

/// The executions of a namespace, or of a caller of one machine.
#[derive(Debug, Default)]
struct Group {
    heads: BTreeMap<Key, Head>,
    /// Bytes of their last lines.
    bytes: u64,
}

impl Group {
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

#[derive(Debug, Default)]
pub(super) struct Index {
    groups: BTreeMap<Arc<str>, Group>,
    /// By id: the group, and the time.
    keys: HashMap<String, (Arc<str>, i64)>,
    notes: u64,
}

impl Index {
    /// Adds an execution or replaces its earlier state. Returns the number of the note.
    pub(super) fn set(&mut self, execution: &Arc<Execution>) -> u64 {
        let note = self.put(execution);
        self.with_head(&execution.id, |group, key| {
            if let Some(head) = group.heads.get_mut(key) {
                head.memory = Some(Arc::clone(execution));
            }
        });
        note
    }

    /// The same for one that is on the disk.
    pub(super) fn set_written(&mut self, execution: &Execution, line: DiskLine) {
        self.put(execution);
        self.with_head(&execution.id, |group, key| group.write(key, Some(line)));
    }

    fn put(&mut self, execution: &Execution) -> u64 {
        self.notes += 1;
        let (group, time) = self
            .keys
            .entry(execution.id.clone())
            .or_insert_with(|| (execution.caller.group().into(), execution.created));
        let group = self.groups.entry(Arc::clone(group)).or_default();
        let key = (*time, execution.id.clone());
        let written = group.heads.get(&key).and_then(|head| head.written);
        let head = Head {
            caller: execution.caller.clone(),
            skill: execution
                .skill
                .as_ref()
                .map(|skill| (skill.id.clone(), skill.name.clone())),
            status: execution.status,
            note: self.notes,
            memory: None,
            written,
        };
        group.heads.insert(key, head);
        self.notes
    }

    fn with_head(&mut self, id: &str, change: impl FnOnce(&mut Group, &Key)) {
        if let Some((group, time)) = self.keys.get(id)
            && let Some(group) = self.groups.get_mut(group)
        {
            change(group, &(*time, id.to_owned()));
        }
    }

    /// Sets the line of a note, which is now the last of its execution on the disk.
    pub(super) fn written(&mut self, id: &str, note: u64, line: DiskLine) {
        self.with_head(id, |group, key| {
            group.write(key, Some(line));
            if let Some(head) = group.heads.get_mut(key).filter(|head| head.note == note) {
                head.memory = None;
            }
        });
    }

    /// A line says that all before it are withdrawn: nothing of this id is on the disk.
    pub(super) fn withdrawn(&mut self, id: &str) {
        self.with_head(id, |group, key| group.write(key, None));
    }

    /// Replaces what is kept in memory of a note that the disk does not have, unless a later one has replaced it.
    pub(super) fn dropped(&mut self, id: &str, note: u64, execution: Arc<Execution>) {
        self.with_head(id, |group, key| {
            if let Some(head) = group.heads.get_mut(key).filter(|head| head.note == note) {
                head.memory = Some(execution);
            }
        });
    }

    /// Removes an execution.
    pub(super) fn remove(&mut self, id: &str) {
        self.with_head(id, Group::remove);
        self.keys.remove(id);
    }

    /// The last lines of executions that are in a file, with the times of these.
    pub(super) fn lines_of(&self, file: u32) -> Vec<(String, i64, DiskLine)> {
        let heads = self.groups.values().flat_map(|group| &group.heads);
        let found = heads.filter_map(|((time, id), head)| {
            let line = head.written.filter(|line| line.file == file)?;
            Some((id.clone(), *time, line))
        });
        found.collect()
    }

    /// A line was copied, or is gone.
    pub(super) fn relocate(&mut self, id: &str, from: DiskLine, to: Option<DiskLine>) {
        let mut is_gone = false;
        self.with_head(id, |group, key| {
            if group.heads.get(key).is_some_and(|head| head.written == Some(from)) {
                group.write(key, to);
                is_gone = group.heads.get(key).is_some_and(|head| head.location().is_none());
            }
        });
        if is_gone {
            self.remove(id);
        }
    }

    /// Removes what is from before `since`, then the oldest of whoever has the most, until the rest is within the bounds. What is
    /// held stays.
    pub(super) fn bound(&mut self, settings: HistorySettings, since: i64, is_held: &dyn Fn(&str) -> bool) {
        for group in self.groups.values_mut() {
            for id in group.evict(is_held, |_, (time, _)| *time < since) {
                self.keys.remove(&id);
            }
        }
        self.bound_fairly(settings.most as u64, is_held, |group| group.heads.len() as u64);
        self.bound_fairly(settings.most_kept_bytes(), is_held, |group| group.bytes);
        self.groups.retain(|_, group| !group.heads.is_empty());
    }

    fn bound_fairly(&mut self, most: u64, is_held: &dyn Fn(&str) -> bool, size: fn(&Group) -> u64) {
        let mut held: HashSet<Arc<str>> = HashSet::new();
        loop {
            let total: u64 = self.groups.values().map(size).sum();
            let surplus = total.saturating_sub(most);
            if surplus == 0 {
                return;
            }
            let mut sizes: Vec<(u64, &Arc<str>)> =
                self.groups.iter().map(|(name, group)| (size(group), name)).collect();
            sizes.retain(|(_, name)| !held.contains(*name));
            sizes.sort_unstable();
            let Some((largest, name)) = sizes.pop() else { return };
            let name = Arc::clone(name);
            // Down to the next one, which is then as large.
            let next = sizes.last().map_or(0, |(next, _)| *next).min(largest.saturating_sub(1));
            let target = next.max(largest.saturating_sub(surplus));
            let group = self.groups.get_mut(&name);
            let gone = group.map(|group| group.evict(is_held, |group, _| size(group) > target));
            let gone = gone.unwrap_or_default();
            if gone.is_empty() {
                held.insert(name);
            }
            for id in gone {
                self.keys.remove(&id);
            }
        }
    }

    pub(super) fn get(&self, caller: &Owner, id: &str) -> Option<Location> {
        self.head(id).filter(|head| caller.covers(&head.caller))?.location()
    }

    /// The owner of an execution.
    pub(super) fn owner(&self, id: &str) -> Option<&Owner> {
        Some(&self.head(id)?.caller)
    }

    /// The status and the location of an execution.
    pub(super) fn state(&self, id: &str) -> Option<(Status, Location)> {
        let head = self.head(id)?;
        Some((head.status, head.location()?))
    }

    fn head(&self, id: &str) -> Option<&Head> {
        let (group, time) = self.keys.get(id)?;
        self.groups.get(group)?.heads.get(&(*time, id.to_owned()))
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
            caller.covers(&head.caller) && sought.status.is_none_or(|status| status == head.status) && skill()
        };
        let (mut total, mut locations) = (0, Vec::new());
        let group = self.groups.get(caller.group());
        let heads = group.into_iter().flat_map(|group| group.heads.iter().rev());
        for ((_, id), head) in heads.filter(|(_, head)| meant(head)) {
            if total >= sought.skip && locations.len() < sought.limit {
                locations.extend(head.location().map(|location| (id.clone(), location)));
            }
            total += 1;
        }
        (total, locations)
    }
}
