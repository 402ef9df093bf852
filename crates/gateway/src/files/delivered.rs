//! Files that runs made, put where clients and people read them.

use std::convert::Infallible;
use std::future;
use std::time::Duration;

use bytes::Bytes;
use knack_wire::CallOutcome;
use knack_wire::drive::{ContainerFile, GeneratedFile};
use knack_wire::history::Caller;

use super::user_files::{FilesCaller, FilesRefusal, MADE_TIMEOUT};
use crate::files::{FileEntry, write_folder};
use crate::state::Gateway;
use crate::telemetry::log::RequestLog;

/// How often a run says that it uses its container, which lives for a minute without use at least.
const USED_EVERY: Duration = Duration::from_secs(20);

/// Keeps the files of a response under its id, for its caller: here, where the other replicas find them, and in the folder
/// for people. A file that cannot be kept is logged; the answer is sent regardless. Returns the entries of the files.
pub(crate) async fn keep(
    gateway: &Gateway,
    caller: &Caller,
    response_id: &str,
    made: &[GeneratedFile],
    log: &mut RequestLog,
) -> Vec<FileEntry> {
    let files = entries(made);
    log.files.extend(files.iter().map(|(entry, _)| entry.name.clone()));
    if let Err(error) = gateway.files.put(caller.bucket(), response_id, files.clone()).await {
        tracing::warn!(request_id = %log.request_id, %error, "generated files could not be kept");
        log.notes.push("generated files could not be kept on disk".to_owned());
    }
    if let Some(replicas) = &gateway.replicas {
        replicas.keep_files(caller, response_id, &files);
    }
    if let Some(folder) = &gateway.files_folder {
        match write_folder(folder, response_id, &files).await {
            Ok(target) => log.notes.push(format!("files in {}", target.display())),
            Err(error) => log
                .notes
                .push(format!("files could not be written to {}: {error}", folder.display())),
        }
    }
    files.into_iter().map(|(entry, _)| entry).collect()
}

/// A run of a request that has a container, whose files are put there before its result goes on, so that the answer can cite them.
/// Returns also how many could not be.
pub(crate) async fn contained(
    gateway: &Gateway,
    caller: Caller,
    container: &str,
    run: impl Future<Output = CallOutcome>,
) -> (CallOutcome, usize) {
    let outcome = using(gateway, caller.clone(), container, run).await;
    let Some(store) = gateway.user_files.as_ref().filter(|_| !outcome.files.is_empty()) else {
        return (outcome, 0);
    };
    let counted = caller.bucket();
    let who = FilesCaller::new(caller, counted, None).waiting(MADE_TIMEOUT);
    let (kept, refused) = store.add_made(&who, container, &entries(&outcome.files)).await;
    let contained = kept.into_iter().map(|file| ContainerFile {
        id: file.id,
        path: file.path,
    });
    let outcome = CallOutcome {
        contained: contained.collect(),
        ..outcome
    };
    (outcome, refused)
}

/// Waits for a run. Its container is used for as long as it lasts, so it does not expire meanwhile.
async fn using<T>(gateway: &Gateway, caller: Caller, container: &str, run: impl Future<Output = T>) -> T {
    let counted = caller.bucket();
    let who = FilesCaller::new(caller, counted, None);
    let used = async {
        let Some(store) = &gateway.user_files else {
            return future::pending::<Infallible>().await;
        };
        loop {
            let used = store.use_container(&who, container).await;
            // The container of an answer is created with its first file. One that was deleted is not created again.
            if matches!(used, Err(FilesRefusal::Missing(..) | FilesRefusal::Expired(_))) {
                return future::pending().await;
            }
            tokio::time::sleep(USED_EVERY).await;
        }
    };
    tokio::select! {
        done = run => done,
        never = used => match never {},
    }
}

/// The entries under which generated files are kept.
fn entries(files: &[GeneratedFile]) -> Vec<(FileEntry, Bytes)> {
    files
        .iter()
        .map(|file| {
            let entry = FileEntry {
                name: file.name.clone(),
                mime_type: file.media_type.clone(),
                size_bytes: file.bytes.len() as u64,
                sha256: knack_skill::digest::sha256(&file.bytes),
            };
            (entry, file.bytes.clone())
        })
        .collect()
}
