//! The index of a history: its executions without their input and output.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::ExecutionQuery;
use super::execution::{Execution, Status};
use crate::model::Owner;

/// Where an execution is stored.
#[derive(Debug, Clone)]
pub(super) enum Location {
    /// Not on the disk yet, or dropped.
    Memory(Arc<Execution>),
    /// A line of a file.
    Disk { file: u32, offset: u64, length: u32 },
}

#[derive(Debug)]
struct Head {
    caller: Owner,
    skill: Option<(String, String)>,
    status: Status,
    place: Location,
    /// The note that is at `place`.
    note: u64,
}

/// Sorted by time.
type Key = (i64, String);

#[derive(Debug, Default)]
pub(super) struct Index {
    heads: BTreeMap<Key, Head>,
    times: HashMap<String, i64>,
    notes: u64,
}

impl Index {
    /// Adds an execution or replaces its earlier state. Returns the number of the note.
    pub(super) fn set(&mut self, execution: &Execution, place: Location) -> u64 {
        self.notes += 1;
        let time = *self.times.entry(execution.id.clone()).or_insert(execution.created);
        let head = Head {
            caller: execution.caller.clone(),
            skill: execution
                .skill
                .as_ref()
                .map(|skill| (skill.id.clone(), skill.name.clone())),
            status: execution.status,
            place,
            note: self.notes,
        };
        self.heads.insert((time, execution.id.clone()), head);
        self.notes
    }

    /// Sets the location of a note, unless a later one has replaced it.
    pub(super) fn moved(&mut self, id: &str, note: u64, place: Location) {
        let time = self.times.get(id);
        let head = time.and_then(|time| self.heads.get_mut(&(*time, id.to_owned())));
        if let Some(head) = head.filter(|head| head.note == note) {
            head.place = place;
        }
    }

    /// Removes an execution.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some(time) = self.times.remove(id) {
            self.heads.remove(&(time, id.to_owned()));
        }
    }

    /// Removes the executions of a file.
    pub(super) fn without_file(&mut self, gone: u32) {
        let times = &mut self.times;
        self.heads.retain(|(_, id), head| {
            let stays = !matches!(head.place, Location::Disk { file, .. } if file == gone);
            if !stays {
                times.remove(id);
            }
            stays
        });
    }

    /// Removes the oldest beyond `most`, and those from before `since`.
    pub(super) fn bound(&mut self, most: usize, since: i64) {
        while let Some(((created, _), _)) = self.heads.first_key_value()
            && (self.heads.len() > most || *created < since)
        {
            if let Some(((_, id), _)) = self.heads.pop_first() {
                self.times.remove(&id);
            }
        }
    }

    pub(super) fn get(&self, caller: &Owner, id: &str) -> Option<Location> {
        let key = (*self.times.get(id)?, id.to_owned());
        let head = self.heads.get(&key).filter(|head| caller.covers(&head.caller))?;
        Some(head.place.clone())
    }

    /// The owner of an execution.
    pub(super) fn owner(&self, id: &str) -> Option<&Owner> {
        Some(&self.head(id)?.caller)
    }

    /// The status and the location of an execution.
    pub(super) fn state(&self, id: &str) -> Option<(Status, Location)> {
        let head = self.head(id)?;
        Some((head.status, head.place.clone()))
    }

    fn head(&self, id: &str) -> Option<&Head> {
        self.heads.get(&(*self.times.get(id)?, id.to_owned()))
    }

    /// The number of matches, and the locations of the wanted page, the newest first.
    pub(super) fn find(&self, caller: &Owner, sought: &ExecutionQuery) -> (usize, Vec<Location>) {
        let meant = |head: &&Head| {
            let skill = || {
                sought.skill.as_ref().is_none_or(|wanted| {
                    let skill = head.skill.as_ref();
                    skill.is_some_and(|(id, name)| id == wanted || name == wanted)
                })
            };
            caller.covers(&head.caller) && sought.status.is_none_or(|status| status == head.status) && skill()
        };
        let (mut total, mut places) = (0, Vec::new());
        for head in self.heads.values().rev().filter(meant) {
            if total >= sought.skip && places.len() < sought.limit {
                places.push(head.place.clone());
            }
            total += 1;
        }
        (total, places)
    }
}
