//! Values for tests, and what runs them.

use std::future::Future;

use crate::{Draft, Files, FolderHistory};

/// A valid upload of these files that states nothing else.
pub fn draft(name: &str, files: Files) -> Draft {
    Draft {
        name: name.to_owned(),
        description: "d".to_owned(),
        version: None,
        is_release: false,
        mode: None,
        catalog: None,
        litellm: None,
        digest: knack_skill::tree::digest(&files),
        bytes: files.values().map(|file| file.bytes.len() as u64).sum(),
        files,
    }
}

/// Unix time in microseconds.
///
/// # Panics
///
/// If the clock is before 1970.
#[expect(clippy::unwrap_used, reason = "a clock that is so wrong ends the test")]
pub fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_micros()).unwrap()
}

/// Runs a future to its end on this thread.
///
/// # Panics
///
/// If the runtime cannot be made.
#[expect(clippy::unwrap_used, reason = "a runtime that cannot be made ends the test")]
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work)
}

/// Waits until the disk has what was noted. One flush gives up after seconds, which the disk of a busy machine may take.
///
/// # Panics
///
/// If the disk does not have it within a minute.
pub async fn flushed(history: &FolderHistory) {
    for _ in 0..11 {
        if history.flush().await {
            return;
        }
    }
    assert!(history.flush().await, "the history is not on the disk");
}
