//! A history on the disk: files of whole lines, each an execution as it was at a moment. Reading needs no lock: a file only
//! grows at its end, and is removed as a whole; what is still kept of it was copied to the last file by then.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::execution::Execution;
use crate::no_link;

/// The folder below that of the registry.
pub(super) const FOLDER: &str = "executions";
/// Held by the process that writes.
pub(super) const WRITER: &str = "writer";
/// Holds space, so that files can be removed when the volume is full.
pub(super) const RESERVE: &str = "reserve";

/// A line of a file.
pub(super) struct Line {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) execution: Execution,
}

/// The content of a file.
pub(super) struct Lines {
    pub(super) all: Vec<Line>,
    /// Bytes of whole lines; an incomplete line may follow.
    pub(super) whole: u64,
    /// Whole lines that are not executions.
    pub(super) broken: usize,
}

/// The numbers of the files, oldest first.
pub(super) fn numbers(folder: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for name in no_link::names(folder)? {
        let number = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}.jsonl"))
}

pub(super) fn parse(bytes: &[u8]) -> Lines {
    let mut found = Lines {
        all: Vec::new(),
        whole: 0,
        broken: 0,
    };
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(json) = line.strip_suffix(b"\n") else { break };
        let offset = found.whole;
        found.whole += line.len() as u64;
        match (serde_json::from_slice(json), u32::try_from(json.len())) {
            (Ok(execution), Ok(length)) => found.all.push(Line {
                offset,
                length,
                execution,
            }),
            _ => found.broken += 1,
        }
    }
    found
}

/// The executions of all callers.
#[derive(Debug, Default)]
pub struct StoredHistory {
    /// The oldest first, each in its last state.
    pub executions: Vec<Execution>,
    /// Lines that cannot be read.
    pub broken: usize,
}

/// Reads the history below the folder of a registry, also while a process writes it. An execution that a gone process has not
/// ended is an error, as it will be for that process's successor.
pub fn read_folder(root: &Path) -> io::Result<StoredHistory> {
    let folder = no_link::named(root)?.join(FOLDER);
    // Checked first: a process that ends while this reads has ended its executions, or they are shown as running.
    let is_written = is_written(&folder)?;
    let mut latest = BTreeMap::new();
    let (mut kept, mut last) = (StoredHistory::default(), None);
    loop {
        let mut is_gone = false;
        for number in numbers(&folder)? {
            if last.is_some_and(|last| number <= last) {
                continue;
            }
            last = Some(number);
            match no_link::read(&path(&folder, number)) {
                Ok(bytes) => kept.broken += take_lines(&bytes, &mut latest),
                Err(error) if error.kind() == io::ErrorKind::NotFound => is_gone = true,
                Err(error) => return Err(error),
            }
        }
        // It was removed meanwhile; its lines may be in a file that was not there before.
        if !is_gone {
            break;
        }
    }
    let ended = |execution: Execution| {
        if is_written || execution.status.has_ended() {
            execution
        } else {
            execution.lost()
        }
    };
    kept.executions = latest.into_values().map(ended).collect();
    kept.executions
        .sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
    Ok(kept)
}

/// Takes the lines of a file as later states. Returns how many cannot be read.
fn take_lines(bytes: &[u8], latest: &mut BTreeMap<String, Execution>) -> usize {
    let found = parse(bytes);
    for Line { execution, .. } in found.all {
        if execution.withdrawn {
            latest.remove(&execution.id);
        } else {
            latest.insert(execution.id.clone(), execution);
        }
    }
    found.broken
}

fn is_written(folder: &Path) -> io::Result<bool> {
    match no_link::open(&folder.join(WRITER), OFlags::RDONLY) {
        // Released when this returns; a writer that starts at this moment retries.
        Ok(lock) => Ok(flock(&lock, FlockOperation::NonBlockingLockShared).is_err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
