//! Writes after the answers: a bounded queue in lanes, and a count of what is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use knack_hub_api::client::HubError;
use knack_hub_api::{KEPT_MAX_BYTES, KEPT_MAX_KEYS, KeptKey, KeptValue};
use knack_memory::MemoryShare;
use knack_wire::history::{Caller, SavedTurn};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sealed::{self, FileDescription, FileList};
use super::{LANES, Replicas};
use crate::files::FileEntry;
use crate::model_calls::turn_store::KeyedHash;
use crate::telemetry::metrics::WriteOutcome;

/// Time for one value: 4 MiB to a hub in the same cluster take far less.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often one value is tried: over a hub that was just replaced, not over an outage.
const TRIES: u32 = 3;
/// Wait between two tries: a new owner serves within about this long.
const RETRY_WAIT: Duration = Duration::from_millis(300);
/// How long a gateway that ends waits for its queue.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A value in the queue.
#[derive(Debug)]
pub(super) struct WriteJob {
    caller: Caller,
    value: KeptValue,
    plain: PlainValue,
    _share: MemoryShare,
}

#[derive(Debug)]
enum PlainValue {
    Turn(Bytes),
    File(FileDescription, Bytes),
    FileList(FileList),
}

impl PlainValue {
    fn len(&self) -> usize {
        match self {
            Self::Turn(bytes) | Self::File(_, bytes) => bytes.len(),
            Self::FileList(list) => list.files.iter().map(|entry| entry.name.len() + 256).sum(),
        }
    }

    fn bytes(self) -> Bytes {
        match self {
            Self::Turn(bytes) => bytes,
            Self::File(about, bytes) => sealed::pack(&about, &bytes).into(),
            // Plain data: writing it cannot fail.
            Self::FileList(list) => serde_json::to_vec(&list).unwrap_or_default().into(),
        }
    }
}

impl Replicas {
    /// Lets other replicas find a saved turn.
    pub(crate) fn keep_saved(&self, caller: &Caller, opening: KeyedHash, keys: &[KeyedHash], saved: &SavedTurn) {
        // Plain data: writing it cannot fail.
        let json = Bytes::from(serde_json::to_vec(saved).unwrap_or_default());
        // An answer that the provider stores may have more rounds than a value has keys.
        for keys in keys.chunks(KEPT_MAX_KEYS) {
            self.enqueue(caller, keys, Some(opening), PlainValue::Turn(json.clone()));
        }
    }

    /// Lets other replicas find the files of a response; of several with one name the last.
    pub(crate) fn keep_files(&self, caller: &Caller, response: &str, files: &[(FileEntry, Bytes)]) {
        let made = self.hub.now().as_secs();
        let mut names = BTreeSet::new();
        let mut list = Vec::with_capacity(files.len());
        for (entry, bytes) in files.iter().rev() {
            if !names.insert(entry.name.as_str()) {
                continue;
            }
            let about = FileDescription {
                made,
                entry: entry.clone(),
            };
            let key = sealed::named_key(caller, response, &entry.name);
            self.enqueue(caller, &[key], None, PlainValue::File(about, bytes.clone()));
            list.push(entry.clone());
        }
        if !list.is_empty() {
            list.reverse();
            let key = sealed::list_key(caller, response);
            self.enqueue(
                caller,
                &[key],
                None,
                PlainValue::FileList(FileList { made, files: list }),
            );
        }
    }

    fn enqueue(&self, caller: &Caller, keys: &[KeyedHash], opening: Option<KeyedHash>, plain: PlainValue) {
        if !self.is_linked() {
            self.metrics.wrote(WriteOutcome::Away);
            return;
        }
        let Ok(share) = self.waiting.try_take(plain.len()) else {
            return self.drop_full();
        };
        let client = caller.bucket();
        let job = WriteJob {
            caller: caller.clone(),
            value: KeptValue {
                client: KeptKey(client),
                keys: keys.iter().map(|key| KeptKey(*key)).collect(),
                opening: opening.map(KeptKey),
                bytes: 0,
            },
            plain,
            _share: share,
        };
        if self.lanes[usize::from(client[0]) % LANES].try_send(job).is_err() {
            self.drop_full();
        }
    }

    fn drop_full(&self) {
        self.metrics.wrote(WriteOutcome::Dropped);
        tracing::info!("the queue of writes to the hub is full: other replicas will not have a hidden turn or a file");
    }

    async fn write(&self, job: WriteJob) {
        let path = job.value.path(&self.runtime);
        // Sealing 4 MiB takes some milliseconds: none for an async thread.
        let sealing = tokio::task::spawn_blocking(move || {
            let name = job.value.keys.first().map_or([0; 32], |key| key.0);
            sealed::seal(&job.caller, &name, &job.plain.bytes())
        });
        let Ok(sealed) = sealing.await else { return };
        let outcome = if sealed.len() > KEPT_MAX_BYTES {
            WriteOutcome::TooLarge
        } else {
            self.put(&path, sealed).await
        };
        self.metrics.wrote(outcome);
    }

    async fn put(&self, path: &str, sealed: Bytes) -> WriteOutcome {
        let mut tries = 0;
        loop {
            tries += 1;
            let put = self.at_owner(|at| {
                let sealed = sealed.clone();
                async move {
                    self.hub
                        .at(at.as_ref().map(|at| at.as_str()))
                        .put_bytes(path, sealed)
                        .await
                }
            });
            let error = match tokio::time::timeout(WRITE_TIMEOUT, put).await {
                Ok(Ok(())) => return WriteOutcome::Written,
                Ok(Err(error)) => error,
                Err(_) => HubError::Broken("no answer in time".to_owned()),
            };
            if tries >= TRIES || !(error.is_transient() || is_redirect(&error)) {
                tracing::info!(%error, "a hidden turn or a file was not written to the hub; other replicas will not have it");
                return WriteOutcome::Refused;
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
    }
}

fn is_redirect(error: &HubError) -> bool {
    matches!(error, HubError::Refused(refusal) if refusal.code == knack_hub_api::RefusalCode::NotOwner)
}

/// Writes one lane until the gateway ends, and then what waits in it.
pub(super) async fn write_all(
    replicas: Arc<Replicas>,
    mut waiting: mpsc::Receiver<WriteJob>,
    closing: CancellationToken,
) {
    loop {
        let job = tokio::select! {
            // Waiting values are written before the end.
            biased;
            job = waiting.recv() => job,
            () = closing.cancelled() => None,
        };
        match job {
            Some(job) => replicas.write(job).await,
            None => return,
        }
    }
}
