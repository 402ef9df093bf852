//! Hidden turns of one request: looked up in the record store, put back, remembered.

use bytes::Bytes;
use knack_skill::call::LoadRecord;
use knack_skill::plan::Plan;
use knack_wire::drive::GeneratedFile;
use knack_wire::history::{self, Caller, FileNote, Hit, Keys, Mode, Record};
use knack_wire::{In, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::records::Key;
use super::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES};
use super::state::Gateway;
use super::tools::entries;
use crate::catalog::Snapshot;

/// What the look-ups of one request need.
#[derive(Debug)]
pub struct Hidden {
    /// The caller.
    pub caller: Caller,
    /// The snapshot that load results are rendered from.
    pub snapshot: Arc<Snapshot>,
    /// The request's plan: tool names in load results are this request's.
    pub plan: Arc<Plan>,
    /// Whether skills take part.
    pub injecting: bool,
    /// Name of the tool that native blocks of ours become.
    pub run_tool: Option<String>,
}

/// A file of an earlier turn, staged again.
pub type StagedFile = (String, Bytes);

impl Hidden {
    /// The caller's identity in the stores.
    pub fn bucket(&self) -> Key {
        self.caller.bucket()
    }

    /// Whether this request may need any change: without a record, and with nothing of ours in the history, it does not.
    pub fn concerns(&self, gateway: &Gateway, request: &Request) -> bool {
        self.may_have_records(gateway, request)
            || memchr::memmem::find(request.raw(), b"knack_").is_some()
            || (self.injecting && history::may_need_repair(request))
    }

    /// Whether the store can hold a record of this conversation. Asked before the whole history is hashed: most requests
    /// of a busy caller belong to conversations without hidden turns.
    fn may_have_records(&self, gateway: &Gateway, request: &Request) -> bool {
        let (records, bucket) = (&gateway.records, self.bucket());
        let begins_so = |link| records.has_opening(&bucket, &self.caller.opening_key(&link));
        records.has_caller(&bucket)
            && (history::may_hold_calls(request) || history::opening(request).is_some_and(begins_so))
    }

    /// What the loop is told of the conversation, and the files that the found turns made and that are still kept.
    pub async fn expand(&self, gateway: &Gateway, request: &Request) -> (In, Vec<StagedFile>) {
        let scan = history::scan(request);
        let (bucket, format) = (self.bucket(), request.format());
        let mut hits = Vec::new();
        if self.injecting && gateway.records.has_caller(&bucket) {
            for lookup in scan.lookups(&self.caller) {
                let found = lookup.keys.iter().find_map(|key| gateway.records.get(&bucket, key));
                if let Some(record) = found.and_then(|bytes| Record::decode(&bytes, format)) {
                    hits.push(Hit {
                        turn: lookup.turn,
                        record,
                    });
                }
            }
        }
        let mode = if self.injecting {
            Mode::Injecting {
                run_tool: self.run_tool.as_deref(),
            }
        } else {
            Mode::Off
        };
        let mut render = |reference: &str| {
            self.render(reference)
                .unwrap_or_else(|| knack_skill::texts::SKILL_CHANGED.to_owned())
        };
        let expansion = history::expand(request, &scan, &hits, mode, &mut render);
        let files = self.kept_files(gateway, &expansion.files).await;
        let told = match expansion.open_calls {
            calls if calls.is_empty() => In::Expanded(expansion.edits),
            calls => In::Resumed {
                edits: expansion.edits,
                calls,
            },
        };
        (told, files)
    }

    /// The newest file of each name, as long as there is room: the notes come oldest first.
    async fn kept_files(&self, gateway: &Gateway, notes: &[FileNote]) -> Vec<StagedFile> {
        let mut files: BTreeMap<&str, Bytes> = BTreeMap::new();
        let mut held = 0;
        for note in notes.iter().rev() {
            if files.len() >= MADE_MAX_FILES || files.contains_key(&*note.name) {
                continue;
            }
            if let Some((entry, bytes)) = gateway.files.read(&self.bucket(), &note.response_id, &note.name).await
                && entry.sha256 == note.sha256
                && held + bytes.len() <= STAGED_MAX_BYTES
            {
                held += bytes.len();
                files.insert(&note.name, bytes);
            }
        }
        files
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect()
    }

    /// Stores a finished loop under its keys.
    pub fn remember(&self, gateway: &Gateway, request: &Request, answer: &knack_wire::Record, made: &[GeneratedFile]) {
        let scan = history::scan(request);
        let Keys { keys, opening } = history::keys(&self.caller, request.format(), &scan, answer);
        let notes = entries(made).into_iter().map(|(entry, _)| FileNote {
            name: entry.name,
            sha256: entry.sha256,
            response_id: answer.response_id.clone(),
        });
        let sealed = history::seal(request.format(), answer, notes.collect(), &mut |reference| {
            self.render(reference)
        });
        if let Some(record) = sealed {
            gateway.records.put(self.bucket(), opening, keys, Bytes::from(record));
        } else {
            tracing::info!("a hidden turn is too large to be remembered; the next request goes as the client sends it");
        }
    }

    fn render(&self, reference: &str) -> Option<String> {
        let record: LoadRecord = serde_json::from_str(reference).ok()?;
        Some(knack_skill::call::reload(&record, &self.plan, &self.snapshot.catalog))
    }
}
