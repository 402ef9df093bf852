//! Hidden turns of one request: looked up in the turn store, put back, remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use knack_skill::call::{LoadReference, OutputFile, ShownEnd, ShownResult, collide};
use knack_skill::plan::Plan;
use knack_wire::drive::RoundNote;
use knack_wire::history::{
    self, AnswerKeys, Caller, Chain, Expansion, FileNote, InjectionMode, Lookup, ResultTexts, RunText, SavedTurn,
    ShownRun, TurnMatch,
};
use knack_wire::{Format, HiddenTurns, Request, SentRun, StoredForm};
use tokio::time::Instant;

use super::turn_store::KeyedHash;
use crate::catalog::Snapshot;
use crate::files::FileEntry;
use crate::files::file_url::file_url;
use crate::files::request_files::{MADE_MAX_FILES, STAGED_MAX_BYTES};
use crate::replicas::STAGED_TIMEOUT;
use crate::state::Gateway;

/// The state for the look-ups of one request.
#[derive(Debug)]
pub(crate) struct HiddenTurnLookup {
    /// The caller.
    pub caller: Caller,
    /// The snapshot that load results are rendered from.
    pub snapshot: Arc<Snapshot>,
    /// The request's plan: tool names in load results are this request's.
    pub plan: Arc<Plan>,
    /// Whether skills are injected into this request.
    pub(crate) injecting: bool,
    /// Name of the tool that Knack's native blocks become.
    pub(crate) run_tool: Option<String>,
    /// The upstream has no tool that runs programs: runs in the history are Knack's.
    pub(crate) runs_here: bool,
    /// The chain of the history, if it was read.
    pub(crate) chain: Option<Chain>,
    /// What clients must not see of the earlier answers that the provider stores.
    pub(crate) earlier: StoredForm,
    /// Runs that the client sent as items, which go upstream as calls and results.
    pub runs: Vec<SentRun>,
}

/// A file of an earlier turn, staged again.
pub(crate) type StagedFile = (String, Bytes);

impl HiddenTurnLookup {
    /// The caller's identity in the stores.
    pub(crate) fn bucket(&self) -> KeyedHash {
        self.caller.bucket()
    }

    /// Whether this request may need any change: without a saved turn, and with nothing of Knack in the history, it does not.
    fn concerns(&self, gateway: &Gateway, request: &Request) -> bool {
        self.may_have_saved_turns(gateway, request)
            || memchr::memmem::find(request.raw(), b"knack_").is_some()
            || (self.injecting && history::may_need_repair(request))
            || (self.runs_here && request.format() == Format::Gemini && history::may_hold_runs(request))
    }

    /// Whether the store can hold a saved turn of this conversation. Asked before the whole history is hashed: most requests
    /// of a busy caller belong to conversations without hidden turns.
    fn may_have_saved_turns(&self, gateway: &Gateway, request: &Request) -> bool {
        let (saved_turns, bucket) = (&gateway.turn_store, self.bucket());
        let replicas = gateway.replicas.as_ref();
        let begins_so = |link| {
            let opening = self.caller.opening_key(&link);
            saved_turns.has_opening(&bucket, &opening)
                || replicas.is_some_and(|replicas| replicas.knows_opening(&bucket, &opening))
        };
        gateway.has_saved_turns(&bucket)
            && (history::may_hold_calls(request) || history::opening(request).is_some_and(begins_so))
    }

    /// The saved turns of a conversation: those that are here, and those that other replicas wrote.
    async fn hits(&self, gateway: &Gateway, lookups: Vec<Lookup>) -> Vec<TurnMatch> {
        let bucket = self.bucket();
        let (mut hits, mut missing) = (Vec::new(), Vec::new());
        for lookup in lookups {
            match lookup.keys.iter().find_map(|key| gateway.turn_store.get(&bucket, key)) {
                Some(saved) => hits.push(TurnMatch {
                    turn: lookup.turn,
                    saved,
                }),
                None => missing.push(lookup),
            }
        }
        if let Some(replicas) = &gateway.replicas
            && !missing.is_empty()
        {
            for found in replicas.saved_turns(&self.caller, &missing).await {
                hits.push(TurnMatch {
                    turn: found.turn,
                    saved: Arc::clone(&found.saved),
                });
                gateway.keep_found(bucket, found);
            }
            hits.sort_by_key(|hit| hit.turn);
        }
        hits
    }

    /// The hidden turns for the loop, and the files that these turns made and that are still kept.
    pub(crate) async fn expand(&mut self, gateway: &Gateway, request: &Request) -> (Expansion, Vec<StagedFile>) {
        if !self.concerns(gateway, request) {
            return (Expansion::default(), Vec::new());
        }
        // Boxed, so that requests which it does not concern do not carry its state.
        Box::pin(self.expand_known(gateway, request)).await
    }

    async fn expand_known(&mut self, gateway: &Gateway, request: &Request) -> (Expansion, Vec<StagedFile>) {
        let scan = history::scan(request);
        self.chain = Some(scan.chain());
        let hits = if self.injecting && gateway.has_saved_turns(&self.bucket()) {
            self.hits(gateway, scan.lookups(&self.caller)).await
        } else {
            Vec::new()
        };
        for saved in hits.iter().map(|hit| &hit.saved) {
            match &saved.stored {
                Some(form) => self.earlier.go_on_from(form),
                None if request.format() == Format::Responses => self.earlier.go_on_from(&saved.hides()),
                None => {}
            }
        }
        let mode = if self.injecting {
            InjectionMode::Injecting {
                run_tool: self.run_tool.as_deref(),
            }
        } else {
            InjectionMode::Off
        };
        let mut words = Texts { hidden: self, gateway };
        let mut expansion = history::expand(request, &scan, &hits, (mode, self.runs_here), &mut words);
        self.runs = std::mem::take(&mut expansion.runs);
        let files = self.kept_files(gateway, &expansion.files).await;
        (expansion, files)
    }

    /// The newest file of each path, as long as there is room: the notes come oldest first.
    async fn kept_files(&self, gateway: &Gateway, notes: &[FileNote]) -> Vec<StagedFile> {
        let mut files: BTreeMap<&str, Bytes> = BTreeMap::new();
        let mut held = 0;
        let until = Instant::now() + STAGED_TIMEOUT;
        for note in notes.iter().rev() {
            let is_replaced = files.keys().any(|newer| collide(newer, &note.name));
            if files.len() >= MADE_MAX_FILES || is_replaced {
                continue;
            }
            if let Some((entry, bytes)) = self.kept_file(gateway, note, until).await
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

    /// A file of an earlier turn, made here or by another replica.
    async fn kept_file(&self, gateway: &Gateway, note: &FileNote, until: Instant) -> Option<(FileEntry, Bytes)> {
        let here = gateway.files.read(&self.bucket(), &note.response_id, &note.name).await;
        match (here, &gateway.replicas) {
            (None, Some(replicas)) => replicas.staged(&self.caller, note, until).await,
            (here, _) => here,
        }
    }

    /// Stores a finished loop under its keys. `files` are those that its runs made.
    pub(crate) fn remember(&self, gateway: &Gateway, request: &Request, mut answer: HiddenTurns, files: &[FileEntry]) {
        // Only Responses lists what earlier answers hide with what a later one was asked.
        if let Some(form) = answer.stored.as_mut().filter(|_| request.format() == Format::Responses) {
            form.go_on_from(&self.earlier);
        }
        let AnswerKeys { turn, id, opening } = if answer.entries.is_empty() {
            history::response_keys(&self.caller, &answer)
        } else {
            let chain = self.chain.unwrap_or_else(|| history::scan(request).chain());
            history::keys(&self.caller, &chain, &answer)
        };
        let notes = files.iter().map(|entry| FileNote {
            name: entry.name.clone(),
            sha256: entry.sha256.clone(),
            response_id: answer.response_id.clone(),
        });
        let saved_turns = history::seal(request.format(), &answer, notes.collect(), &mut |reference| {
            self.render(reference)
        });
        if let (Some(key), Some(mut saved)) = (id, saved_turns.id) {
            // Only Chat has a list of what the provider keeps.
            if request.format() == Format::Chat
                && let Some((rounds, note)) = history::round_note(&self.caller, &answer.response_id, &saved)
            {
                self.keep(gateway, opening, rounds, note);
            }
            saved.list_runs(&self.runs);
            self.keep(gateway, opening, vec![key], saved);
        }
        if turn.is_empty() {
            return;
        }
        let Some(saved) = saved_turns.turn else {
            return tracing::info!(
                "a hidden turn is too large to be stored; the next request is sent to the provider without it"
            );
        };
        self.keep(gateway, opening, turn, saved);
    }

    /// Notes a round of a loop that still runs. It is published to other replicas once it is over: until then providers
    /// list it nowhere, and most answers have no further round.
    pub(crate) fn note(&self, gateway: &Gateway, format: Format, mut note: RoundNote) {
        let is_over = note.is_over;
        if format == Format::Responses {
            note.form.go_on_from(&self.earlier);
        }
        let (key, mut saved) = history::running(&self.caller, format, note);
        saved.list_runs(&self.runs);
        // No conversation begins with this key: nothing of the answer is put back.
        if is_over {
            self.keep(gateway, key, vec![key], saved);
        } else {
            gateway.turn_store.put(self.bucket(), key, vec![key], Arc::new(saved));
        }
    }

    fn keep(&self, gateway: &Gateway, opening: KeyedHash, keys: Vec<KeyedHash>, saved: SavedTurn) {
        let saved = Arc::new(saved);
        if let Some(replicas) = &gateway.replicas {
            replicas.keep_saved(&self.caller, opening, &keys, &saved);
        }
        gateway.turn_store.put(self.bucket(), opening, keys, saved);
    }

    fn render(&self, reference: &str) -> Option<String> {
        let saved: LoadReference = serde_json::from_str(reference).ok()?;
        Some(knack_skill::call::reload(&saved, &self.plan, &self.snapshot.catalog))
    }
}

/// The texts of what is put back.
struct Texts<'a> {
    hidden: &'a HiddenTurnLookup,
    gateway: &'a Gateway,
}

impl ResultTexts for Texts<'_> {
    fn load(&mut self, reference: &str) -> String {
        let text = self.hidden.render(reference);
        text.unwrap_or_else(|| knack_skill::texts::SKILL_CHANGED.to_owned())
    }

    fn run(&mut self, run: &ShownRun) -> RunText {
        let mut run_text = RunText::default();
        let (bucket, mut files) = (self.hidden.bucket(), Vec::new());
        for id in &run.file_ids {
            let Some(made) = self.gateway.files.find(&bucket, id) else {
                continue;
            };
            let (response, entry) = (made.response, made.entry);
            files.push(OutputFile {
                path: entry.name.clone(),
                mime: entry.mime_type.clone(),
                size: entry.size_bytes,
                url: file_url(self.gateway.public_url.as_deref(), &response, &entry.name),
            });
            run_text.files.push(FileNote {
                name: entry.name,
                sha256: entry.sha256,
                response_id: response,
            });
        }
        run_text.text = knack_skill::texts::seen_result(&ShownResult {
            is_code: run.is_code,
            end: match run.end {
                history::ShownEnd::Exit(code) => ShownEnd::Exit(code),
                history::ShownEnd::Failed => ShownEnd::Failed,
                history::ShownEnd::Timeout => ShownEnd::Timeout,
            },
            stdout: &run.stdout,
            stderr: &run.stderr,
            other_files: run.file_ids.len() - files.len() + run.unnamed_files,
            files,
        });
        run_text
    }
}
