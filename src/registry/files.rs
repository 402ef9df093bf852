//! Uploads and containers of a cluster: what gateways keep here for their clients, each as the ServiceAccount that it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use knack_gateway::files::user_files::{
    Bounds, FileOwner, LocalFiles, Op, Refusal, Reply, StoreUsage, answered, read_asked,
};
use knack_memory::{MemoryBudget, MemoryShare};
use knack_serving::sources::Pace;
use knack_serving::until_sent;
use knack_skill::digest::hex;
use sha2::{Digest as _, Sha256};

use super::metrics::Metrics;
use super::shares::Shares;
use crate::hub::auth::ServiceAccountCaller;

/// Calls of the gateways of one namespace: 50 a second, 500 of them in a row, 32 at once, and three quarters of that of one client. A request that names a container with
/// 200 files is some 200 of them.
const CALLS: Pace = Pace {
    at_once: 32,
    burst: 500,
    refill: Duration::from_millis(20),
};
/// How long a content that is read waits for memory.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// How much is kept, and where.
#[derive(Debug, Clone)]
pub struct FilesOptions {
    /// The folder; this process alone uses it.
    pub folder: std::path::PathBuf,
    /// How long an upload is kept, hours.
    pub hours: u32,
    /// Bytes of all contents.
    pub most_bytes: u64,
}

/// The files of this registry.
#[derive(Debug)]
pub(super) struct ClusterFiles {
    kept: Arc<LocalFiles>,
    calls: Shares,
    /// Where contents that are read take their memory.
    reading: MemoryBudget,
}

impl ClusterFiles {
    /// Opens the folder, which is made if it is not there. Must be called inside a tokio runtime. Errors: the disk fails, or
    /// another process has it.
    pub(super) fn open(options: &FilesOptions, reading: MemoryBudget) -> anyhow::Result<Self> {
        let folder: &Path = &options.folder;
        let bounds = Bounds::of_cluster(options.most_bytes, SignedDuration::from_hours(i64::from(options.hours)));
        let parent = folder.parent().unwrap_or(folder);
        let opened = std::fs::create_dir_all(parent)
            .and_then(|()| LocalFiles::open(folder, bounds, Arc::new(jiff::Timestamp::now)));
        let kept = Arc::new(opened.with_context(|| format!("--files-dir {}", folder.display()))?);
        kept.sweep_in_background();
        Ok(Self {
            kept,
            calls: Shares::of(CALLS),
            reading,
        })
    }

    /// How much there is.
    pub(super) fn held(&self) -> StoreUsage {
        self.kept.held()
    }

    /// Answers a gateway, as the account that it proved to be. Its permit and what it holds are given back when the answer is sent.
    pub(super) async fn answer(
        &self,
        caller: &ServiceAccountCaller,
        body: &Bytes,
        metrics: &Metrics,
    ) -> (StatusCode, Bytes) {
        let Some((client, op, content)) = read_asked(body) else {
            return (StatusCode::BAD_REQUEST, "unknown file operation".into());
        };
        let Some(permit) = self.calls.take(caller, &hex(&client)) else {
            metrics.files_refused("busy");
            return (
                StatusCode::TOO_MANY_REQUESTS,
                "too many calls of this client, or of this namespace; try again".into(),
            );
        };
        let owner = FileOwner {
            account: account_key(&caller.namespace, &caller.service_account),
            caller: client,
        };
        let mut share = None;
        let outcome: Result<Reply, Refusal> = match self.room(owner, &op).await {
            Ok(room) => {
                share = Some(room);
                let kept = Arc::clone(&self.kept);
                let done = tokio::task::spawn_blocking(move || kept.execute(&owner, op, &content)).await;
                done.unwrap_or(Err(Refusal::Failed))
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = &outcome
            && let Some(reason) = counted(refusal)
        {
            metrics.files_refused(reason);
        }
        // This refusal alone is the registry's fault, and counts as such (KnackRegistryFails).
        let status = match outcome {
            Err(Refusal::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        let body = answered(outcome);
        if let Some(share) = &mut share {
            share.shrink_to(body.len());
        }
        (status, until_sent(body, (permit, share)))
    }

    /// Memory for what an answer reads from the disk, and for the copy of it that is sent.
    async fn room(&self, owner: FileOwner, op: &Op) -> Result<MemoryShare, Refusal> {
        let mut reads = 0;
        if op.reads() {
            let (kept, op) = (Arc::clone(&self.kept), op.clone());
            let size = tokio::task::spawn_blocking(move || kept.reads(&owner, &op)).await;
            let size = size.map_err(|_| Refusal::Failed)?;
            reads = usize::try_from(size).unwrap_or(usize::MAX);
        }
        let room = self.reading.take(reads.saturating_mul(2), READ_PATIENCE).await;
        room.map_err(|_| Refusal::Busy)
    }
}

/// The key of an account. A namespace has no `/` in its name.
fn account_key(namespace: &str, service_account: &str) -> [u8; 32] {
    Sha256::digest(format!("{namespace}/{service_account}")).into()
}

/// The word of a refusal in metrics; `None`: it is the client's affair alone.
const fn counted(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Full(_) => Some("full"),
        Refusal::Failed => Some("disk"),
        Refusal::Busy => Some("busy"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(op: &serde_json::Value, content: &[u8]) -> Bytes {
        asked_by("0", op, content)
    }

    fn asked_by(digit: &str, op: &serde_json::Value, content: &[u8]) -> Bytes {
        let line = serde_json::json!({"caller": digit.repeat(64), "op": op}).to_string();
        [line.as_bytes(), b"\n", content].concat().into()
    }

    #[tokio::test]
    async fn a_content_counts_and_has_its_turn_until_it_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let options = FilesOptions {
            folder: folder.path().join("files"),
            hours: 24,
            most_bytes: 1 << 30,
        };
        let memory = MemoryBudget::new(64 << 20);
        let files = ClusterFiles::open(&options, memory.clone()).unwrap();
        let metrics = Metrics::default();
        let caller = ServiceAccountCaller {
            namespace: "team".to_owned(),
            service_account: "app".to_owned(),
            uid: "1".to_owned(),
            username: "system:serviceaccount:team:app".to_owned(),
            groups: Vec::new(),
            extra: std::collections::BTreeMap::new(),
            expires: u64::MAX,
            acting_for: None,
        };
        let new = serde_json::json!({"add_file": {"name": "a", "mime": "b/c", "purpose": "user_data", "lasts": null}});
        let size = 4 << 20;
        let (status, answer) = files.answer(&caller, &asked(&new, &vec![b'x'; size]), &metrics).await;
        assert_eq!(status, StatusCode::OK);
        let stored: serde_json::Value = serde_json::from_slice(answer.trim_ascii()).unwrap();
        drop(answer);
        let content = serde_json::json!({"file_content": stored["done"]["file"]["id"]});
        let body = asked(&content, b"");
        let mut stopped = Vec::new();
        for _ in 0..12 {
            let (status, answer) = files.answer(&caller, &body, &metrics).await;
            assert_eq!((status, answer.len() > size), (StatusCode::OK, true));
            stopped.push(answer);
        }
        assert!(memory.held_bytes() >= stopped.len() * size);
        // One client has three quarters of them, and another one the rest.
        let list = |client: &str| asked_by(client, &serde_json::json!({"files": []}), b"");
        for (client, taken) in [("0", CALLS.at_once * 3 / 4), ("1", CALLS.at_once)] {
            while stopped.len() < taken {
                let (status, answer) = files.answer(&caller, &list(client), &metrics).await;
                assert_eq!(status, StatusCode::OK, "{client}");
                stopped.push(answer);
            }
            let (status, _) = files.answer(&caller, &list(client), &metrics).await;
            assert_eq!(
                status,
                StatusCode::TOO_MANY_REQUESTS,
                "permits are held until the answers are sent"
            );
        }
        let (status, _) = files.answer(&caller, &list("2"), &metrics).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "the namespace has all of them");
        let elsewhere = ServiceAccountCaller {
            namespace: "other".to_owned(),
            ..caller.clone()
        };
        assert_eq!(files.answer(&elsewhere, &list("0"), &metrics).await.0, StatusCode::OK);
        drop(stopped);
        assert_eq!(memory.held_bytes(), 0);
        assert_eq!(files.answer(&caller, &list("0"), &metrics).await.0, StatusCode::OK);
    }
}
