//! The events of an execution in progress.

use bytes::Bytes;
use knack_execution::StartKind;

/// One step of an execution, in order. The result is not among them: it is what `execute_streaming` returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It may run now; how it gets a pod.
    Placed {
        /// Warm: a pod was ready. Cold: one is being made.
        start: StartKind,
        /// Why it is cold, if a warm pod was to be had for other settings.
        note: Option<String>,
    },
    /// The start of a cold pod has reached another step, in a few words: `created`, `bound`, `running`.
    Progress(String),
    /// The program has started: from here on it counts as run.
    Started,
    /// The program wrote something.
    Output {
        /// Which stream.
        stream: OutputStream,
        /// The bytes; a character may be cut between two events.
        data: Bytes,
    },
}

/// A stream of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}
