//! Reads what another replica wrote: on the path of a request only values that are in the index, within a short time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use jiff::Timestamp;
use knack_hub_api::client::HubError;
use knack_hub_api::{KEPT_MAX_BYTES, KeptKey, KeptValue, RefusalCode, kept_path};
use knack_wire::history::{Caller, FileNote, Lookup, MAX_SAVED_BYTES, SavedTurn};
use tokio::time::{Instant, timeout_at};

use super::Replicas;
use super::sealed::{self, FileDescription, FileList};
use crate::files::{FILES_KEPT, FileEntry};
use crate::model_calls::turn_store::KeyedHash;
use crate::telemetry::metrics::{KeptValueKind, ReadOutcome};

/// How long a request waits for its hidden turns: the hub answers from memory within a few milliseconds; a turn that
/// arrives later is missing, as without the hub.
const SAVED_TURNS_TIMEOUT: Duration = Duration::from_millis(500);
/// Saved turns of one request that are read at once.
const SAVED_TURNS_AT_ONCE: usize = 8;
/// Most saved turns of one request; the latest turns first. Each is kept here from then on.
const SAVED_TURNS_MAX: usize = 64;
/// Most bytes of them.
const SAVED_TURNS_MAX_BYTES: u64 = 4 << 20;
/// How long a request waits for the files of its earlier turns, all together.
pub(crate) const STAGED_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client that asks for a file waits for the hub.
const FILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest list of a response's files, sealed: 200 of them with long names.
const LIST_MAX_BYTES: usize = 256 << 10;

/// A saved turn that another replica has written.
#[derive(Debug)]
pub struct FoundTurn {
    /// [`Lookup::turn`].
    pub turn: usize,
    /// The beginning of its conversation.
    pub(crate) opening: KeyedHash,
    /// All of its keys.
    pub keys: Vec<KeyedHash>,
    /// The saved turn.
    pub(crate) saved: Arc<SavedTurn>,
}

impl Replicas {
    /// The saved turns of turns that have none here, as far as the hub keeps them and answers in time.
    pub async fn saved_turns(&self, caller: &Caller, missing: &[Lookup]) -> Vec<FoundTurn> {
        if !self.is_linked() {
            return Vec::new();
        }
        let client = KeptKey(caller.bucket());
        let wanted: Vec<(usize, Arc<KeptValue>)> = {
            let index = self.index();
            let find = |lookup: &Lookup| {
                let found = lookup.keys.iter().find_map(|key| index.find(&client, &KeptKey(*key)))?;
                Some((lookup.turn, found))
            };
            latest(missing.iter().filter_map(find).collect())
        };
        let bytes: u64 = wanted.iter().map(|(_, value)| value.bytes).sum();
        let Ok(_share) = self.reading.try_take(usize::try_from(bytes).unwrap_or(usize::MAX)) else {
            return Vec::new();
        };
        let until = Instant::now() + SAVED_TURNS_TIMEOUT;
        let mut reading = futures::stream::iter(wanted)
            .map(|(turn, value)| self.saved(caller, turn, value))
            .buffer_unordered(SAVED_TURNS_AT_ONCE);
        let mut found = Vec::new();
        loop {
            match timeout_at(until, reading.next()).await {
                Ok(Some(saved)) => found.extend(saved),
                Ok(None) => return found,
                Err(_) => {
                    self.metrics.read(KeptValueKind::Turn, ReadOutcome::Late);
                    return found;
                }
            }
        }
    }

    async fn saved(&self, caller: &Caller, turn: usize, value: Arc<KeptValue>) -> Option<FoundTurn> {
        let (name, opening) = (value.keys.first()?.0, value.opening?.0);
        let max_bytes = usize::try_from(value.bytes).unwrap_or(usize::MAX).min(KEPT_MAX_BYTES);
        let plain = self.read(caller, KeptValueKind::Turn, &name, max_bytes).await?;
        let saved: SavedTurn = serde_json::from_slice(&plain).ok()?;
        if saved.size() > MAX_SAVED_BYTES {
            return None;
        }
        Some(FoundTurn {
            turn,
            opening,
            keys: value.keys.iter().map(|key| key.0).collect(),
            saved: Arc::new(saved),
        })
    }

    /// A file of an earlier turn, for a run of this request: from what was read before, or from the hub if it is known there.
    pub(crate) async fn staged(&self, caller: &Caller, note: &FileNote, until: Instant) -> Option<(FileEntry, Bytes)> {
        let client = caller.bucket();
        if let Some(found) = self.borrowed.read(&client, &note.response_id, &note.name).await {
            return Some(found);
        }
        let key = sealed::named_key(caller, &note.response_id, &note.name);
        if !self.is_linked() || self.index().find(&KeptKey(client), &KeptKey(key)).is_none() {
            return None;
        }
        let (about, bytes) = timeout_at(until, self.file_at(caller, &key)).await.ok()??;
        let age = self.age(about.made)?;
        let file = vec![(about.entry.clone(), bytes.clone())];
        if let Err(error) = self.borrowed.put_aged(client, &note.response_id, file, age).await {
            tracing::warn!(%error, "a file of another replica could not be kept");
        }
        Some((about.entry, bytes))
    }

    /// A file by its id, with the time at which it was made.
    pub(crate) async fn file(&self, caller: &Caller, id: &str) -> Option<(FileEntry, Timestamp, Bytes)> {
        let (about, bytes) = self.asked_for(caller, &sealed::file_key(caller, id)).await?;
        let made = i64::try_from(about.made)
            .ok()
            .and_then(|made| Timestamp::from_second(made).ok());
        Some((about.entry, made?, bytes))
    }

    /// A file of a response by its name.
    pub(crate) async fn named_file(&self, caller: &Caller, response: &str, name: &str) -> Option<(FileEntry, Bytes)> {
        let (about, bytes) = self
            .asked_for(caller, &sealed::named_key(caller, response, name))
            .await?;
        Some((about.entry, bytes))
    }

    /// The files of a response.
    pub async fn list(&self, caller: &Caller, response: &str) -> Option<Vec<FileEntry>> {
        if !self.is_linked() {
            return None;
        }
        let _share = self.reading.try_take(LIST_MAX_BYTES).ok()?;
        let key = sealed::list_key(caller, response);
        let reading = self.read(caller, KeptValueKind::File, &key, LIST_MAX_BYTES);
        let plain = tokio::time::timeout(FILE_TIMEOUT, reading).await.ok()??;
        let list: FileList = serde_json::from_slice(&plain).ok()?;
        self.age(list.made)?;
        Some(list.files)
    }

    /// [`age`] now, by the hub's clock: what another replica made carries it, too.
    fn age(&self, made: u64) -> Option<Duration> {
        age(made, self.hub.now().as_secs())
    }

    async fn asked_for(&self, caller: &Caller, key: &KeyedHash) -> Option<(FileDescription, Bytes)> {
        if !self.is_linked() {
            return None;
        }
        let (about, bytes) = tokio::time::timeout(FILE_TIMEOUT, self.file_at(caller, key))
            .await
            .ok()??;
        self.age(about.made)?;
        Some((about, bytes))
    }

    async fn file_at(&self, caller: &Caller, key: &KeyedHash) -> Option<(FileDescription, Bytes)> {
        let _share = self.reading.try_take(KEPT_MAX_BYTES).ok()?;
        let plain = self.read(caller, KeptValueKind::File, key, KEPT_MAX_BYTES).await?;
        // A digest over 4 MiB takes some milliseconds: none for an async thread.
        tokio::task::spawn_blocking(move || sealed::unpack(plain)).await.ok()?
    }

    async fn read(&self, caller: &Caller, what: KeptValueKind, name: &KeyedHash, max_bytes: usize) -> Option<Vec<u8>> {
        let client = KeptKey(caller.bucket());
        let path = kept_path(client, KeptKey(*name), &self.runtime);
        let path = &path;
        let got = self.at_owner(|at| async move {
            let at = at.as_ref().map(|at| at.as_str());
            self.hub.at(at).get_bytes(path, max_bytes).await
        });
        let (outcome, plain) = match got.await {
            Ok(sealed) => match sealed::open(caller, name, &sealed) {
                Some(plain) => (ReadOutcome::Found, Some(plain)),
                None => (ReadOutcome::Failed, None),
            },
            Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {
                self.update(|index| index.forget(&client, &KeptKey(*name)));
                (ReadOutcome::Gone, None)
            }
            Err(error) => {
                tracing::info!(%error, "a value of another replica could not be read");
                (ReadOutcome::Failed, None)
            }
        };
        self.metrics.read(what, outcome);
        plain
    }
}

/// The latest turns that are read of one request, within the bounds; the latest first.
fn latest(mut wanted: Vec<(usize, Arc<KeptValue>)>) -> Vec<(usize, Arc<KeptValue>)> {
    wanted.sort_by_key(|(turn, _)| std::cmp::Reverse(*turn));
    wanted.truncate(SAVED_TURNS_MAX);
    let mut bytes = 0;
    wanted.retain(|(_, value)| {
        bytes += value.bytes;
        bytes <= SAVED_TURNS_MAX_BYTES
    });
    wanted
}

/// The age of what was made at a time, both in seconds since the Unix epoch; `None`: it is kept no longer.
fn age(made: u64, now: u64) -> Option<Duration> {
    let age = Duration::from_secs(now.saturating_sub(made));
    (age <= FILES_KEPT).then_some(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(sizes: &[(usize, u64)]) -> Vec<usize> {
        let value = |bytes| {
            Arc::new(KeptValue {
                client: KeptKey([0; 32]),
                keys: Vec::new(),
                opening: None,
                bytes,
            })
        };
        let wanted = sizes.iter().map(|(turn, bytes)| (*turn, value(*bytes))).collect();
        latest(wanted).iter().map(|(turn, _)| *turn).collect()
    }

    #[test]
    fn the_latest_turns_are_read_within_the_bounds() {
        assert_eq!(turns(&[]), [0; 0]);
        assert_eq!(turns(&[(1, 10), (5, 10), (3, 10)]), [5, 3, 1]);
        assert_eq!(
            turns(&[(1, 1), (2, SAVED_TURNS_MAX_BYTES), (3, 1)]),
            [3],
            "what is older than a gap is of no use"
        );
        let many: Vec<(usize, u64)> = (0..100).map(|turn| (turn, 1)).collect();
        let read = turns(&many);
        assert_eq!(
            (read.len(), read[0], read[SAVED_TURNS_MAX - 1]),
            (SAVED_TURNS_MAX, 99, 36)
        );
    }

    #[test]
    fn files_are_kept_for_an_hour_wherever_they_are() {
        let now = 1_800_000_000;
        assert!(age(now, now).is_some_and(|age| age < Duration::from_mins(1)));
        assert!(age(now + 100, now).is_some(), "a clock that is ahead");
        assert!(age(now - FILES_KEPT.as_secs() + 60, now).is_some());
        assert_eq!(age(now - FILES_KEPT.as_secs() - 60, now), None);
        assert_eq!(age(0, now), None);
    }
}
