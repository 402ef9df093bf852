//! What happens to an execution while it is under way.

use bytes::Bytes;

use crate::execution::StartKind;

/// One step of an execution, in order. The result is not among them: it is what `execute_streaming` returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It has a place to run in; how it comes to a pod.
    Placed {
        /// Warm: a pod stood ready. Cold: one is being made.
        start: StartKind,
        /// Why it is cold, if a warm pod was to be had for other settings.
        note: Option<String>,
    },
    /// A cold pod has come one step nearer, in a few words: `created`, `bound`, `running`.
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
