//! The bounds on what an owner accepts from a runner. A sandbox image may contain another runner, so the limits of the run are
//! enforced here as well: a runner that sends more ends its run, and its bytes are counted in the owner's memory.

use std::sync::Arc;

use bytes::Bytes;
use knack_memory::{MemoryBudget, MemoryShare};

use super::{ExecutionError, Limits};

/// Longest reported path, and longest reason: a path of Linux as JSON escapes.
const TEXT_MAX_BYTES: usize = 32 << 10;
/// Errors about single files: the runner reports 100 and sums up the rest.
const FILE_ERRORS_MAX: usize = 128;
/// The cost of an entry besides its bytes.
const ENTRY_BYTES: usize = 256;
/// The bounds where the limits of a run are no longer known: the highest that a request can have.
const OUTPUT_MAX_BYTES: u64 = 4 << 20;

/// The part of its limits that a run has used so far.
#[derive(Debug)]
pub(crate) struct RunUsage {
    limits: Limits,
    output: [u64; 2],
    files_bytes: u64,
    files: u32,
    errors: usize,
    held: usize,
    memory: Option<MemoryBudget>,
    share: Option<MemoryShare>,
    /// The runner has sent more than it may, or than there is room for.
    is_over: bool,
}

impl Default for RunUsage {
    /// For a run whose limits are unknown, uncounted.
    fn default() -> Self {
        Self::of_unknown(None)
    }
}

impl RunUsage {
    /// For a run with these limits; what comes is counted in `memory`.
    pub(crate) fn within(limits: &Limits, memory: Option<&MemoryBudget>) -> Self {
        Self {
            limits: limits.clone(),
            output: [0; 2],
            files_bytes: 0,
            files: 0,
            errors: 0,
            held: 0,
            memory: memory.cloned(),
            share: None,
            is_over: false,
        }
    }

    /// For a run whose limits are no longer known; what comes is counted in `memory`.
    pub(crate) fn of_unknown(memory: Option<&MemoryBudget>) -> Self {
        let limits = Limits {
            max_output_bytes: OUTPUT_MAX_BYTES,
            ..Limits::default()
        };
        Self::within(&limits, memory)
    }

    /// Whether the run must end for what its runner sent.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Output of a stream, 0 or 1.
    pub(crate) fn output(&mut self, stream: usize, bytes: usize) -> Result<(), ExecutionError> {
        self.output[stream] += bytes as u64;
        let fits = self.output[stream] <= self.limits.max_output_bytes;
        self.take(fits, bytes, "output")
    }

    /// A part of a file: the first one, or one that follows.
    pub(crate) fn piece(&mut self, path: &str, bytes: usize, is_new: bool) -> Result<(), ExecutionError> {
        self.files += u32::from(is_new);
        self.files_bytes += bytes as u64;
        let fits = self.files <= self.limits.max_files
            && self.files_bytes <= self.limits.max_files_bytes
            && path.len() <= TEXT_MAX_BYTES;
        // A path is kept with the file, and to notice the same one again.
        let entry = if is_new { 2 * path.len() + ENTRY_BYTES } else { 0 };
        self.take(fits, bytes + entry, "files")
    }

    /// An error about a file.
    pub(crate) fn file_error(&mut self, path: &str, reason: &str) -> Result<(), ExecutionError> {
        self.errors += 1;
        let bytes = path.len() + reason.len();
        let fits = self.errors <= FILE_ERRORS_MAX && bytes <= 2 * TEXT_MAX_BYTES;
        self.take(fits, bytes + ENTRY_BYTES, "file errors")
    }

    /// The error for a frame that a correct runner never sends.
    pub(crate) fn lied(&mut self, what: &str) -> ExecutionError {
        self.is_over = true;
        ExecutionError::Internal(format!("the sandbox sent {what}; the run was ended"))
    }

    fn take(&mut self, fits: bool, bytes: usize, what: &str) -> Result<(), ExecutionError> {
        if !fits {
            self.is_over = true;
            let text = format!("the sandbox sent more {what} than the limits of the run allow; the run was ended");
            return Err(ExecutionError::Internal(text));
        }
        self.held += bytes;
        let Some(memory) = &self.memory else { return Ok(()) };
        let grown = match &mut self.share {
            Some(share) => share.grow_to(self.held),
            None => memory.try_take(self.held).map(|share| self.share = Some(share)),
        };
        grown.map_err(|error| {
            self.is_over = true;
            tracing::warn!(%error, "the memory reserved for results of runs is full");
            ExecutionError::Internal(
                "there is no memory left for the results of this run, so they are lost: return less, or try again when fewer runs \
                 end at once; the operator can raise the hub's memory limit"
                    .into(),
            )
        })
    }

    /// The share of what came, for [`hold`].
    pub(crate) fn into_share(self) -> Option<Arc<MemoryShare>> {
        self.share.map(Arc::new)
    }
}

/// Bytes that keep their share of the memory budget for as long as anybody has them.
pub(crate) fn hold(bytes: Vec<u8>, share: Option<&Arc<MemoryShare>>) -> Bytes {
    struct HeldBytes(
        Vec<u8>,
        #[expect(dead_code, reason = "held until the bytes are gone")] Arc<MemoryShare>,
    );
    impl AsRef<[u8]> for HeldBytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    match share {
        Some(share) if !bytes.is_empty() => Bytes::from_owner(HeldBytes(bytes, Arc::clone(share))),
        _ => bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    type Lie = fn(&mut RunUsage) -> Result<(), ExecutionError>;

    #[test]
    fn a_runner_that_lies_about_every_cap_is_ended_at_the_cap() {
        let limits = Limits {
            max_output_bytes: 1000,
            max_files_bytes: 1000,
            max_files: 2,
            ..Limits::default()
        };
        let lies: [(&str, Lie); 7] = [
            ("output", |usage| usage.output(0, 501)),
            ("output", |usage| usage.output(1, 501)),
            ("files", |usage| usage.piece("a", 501, false)),
            ("files", |usage| {
                usage.piece("a", 0, true).and_then(|()| usage.piece("b", 0, true))
            }),
            ("files", |usage| usage.piece(&"p".repeat(TEXT_MAX_BYTES + 1), 0, true)),
            ("file errors", |usage| {
                (0..FILE_ERRORS_MAX).try_for_each(|_| usage.file_error("a", "b"))
            }),
            ("file errors", |usage| {
                usage.file_error(&"p".repeat(2 * TEXT_MAX_BYTES), "r")
            }),
        ];
        for (word, lie) in lies {
            let mut usage = RunUsage::within(&limits, None);
            // One such frame may be an accident, two are not.
            let first = lie(&mut usage);
            let error = first.and_then(|()| lie(&mut usage)).unwrap_err();
            assert!(error.to_string().contains(word) && usage.is_over(), "{error}");
        }
    }

    #[test]
    fn results_are_counted_until_the_last_reader_lets_go() {
        let memory = MemoryBudget::new(8 * MIB);
        let limits = Limits {
            max_output_bytes: 64 << 20,
            ..Limits::default()
        };
        let mut usage = RunUsage::within(&limits, Some(&memory));
        usage.output(0, 3 * MIB).unwrap();
        usage.output(1, 2 * MIB).unwrap();
        assert_eq!(memory.held_bytes(), 5 * MIB);
        let mut other = RunUsage::within(&limits, Some(&memory));
        assert!(other.output(0, 4 * MIB).is_err() && other.is_over());
        let share = usage.into_share();
        let stdout = hold(vec![1; 3 * MIB], share.as_ref());
        drop(share);
        let reader = stdout.clone();
        drop(stdout);
        assert_eq!((reader.len(), memory.held_bytes()), (3 * MIB, 5 * MIB));
        drop(reader);
        assert_eq!(memory.held_bytes(), 0);
    }
}
