//! The frame protocol between an owner (an executor) and `knack-runner`: NDJSON, one frame per line.
//!
//! ```text
//! owner ── claim, start, files*, run, cancel?, ack ──▶ runner stdin
//! owner ◀── ready, claimed, ready, started, output*, file*, file_error*, result ── runner stdout
//! ```
//!
//! The first `ready` is sent unasked when the runner boots, the second answers `start` when the locked interpreter
//! stands. `result` is always the last frame. Each frame of the owner carries the nonce of its `claim`; a frame with
//! another nonce is ignored. Unknown members of a frame are ignored, unknown frame types are `rejected`.

mod data;
mod decode;
mod inbound;
mod outbound;
mod probe;
mod seal;
#[cfg(test)]
mod tests;

pub use data::Data;
pub use decode::{DecodeError, Decoder, encode};
pub use inbound::{
    Ack, Area, Cancel, Claim, Cwd, Files, Identity, Interpreter, Journal, Landlock, Language, Limits, Program, Run,
    StagedFile, Start, ToRunner, Watch,
};
pub use outbound::{
    Claimed, Exit, FileError, FileErrorKind, FilePiece, FromRunner, KILL_BOUND_MS, LandlockState, Locks, Output,
    OutputStream, Ready, Rejected, RunResult, Sealed, Started, StreamReport,
};
pub use probe::{Probe, ProbeOutcome};
pub(crate) use seal::is_secret;
pub use seal::{KEY_BYTES, Sealer, open};

/// The protocol number; it opens every conversation in `ready`. It grows when an old peer would misread a frame.
///
/// 2: `start.journal` seals what a run tells, `run.context` is echoed in `started`.
pub const PROTOCOL: u32 = 2;

/// The longest line either side accepts, in bytes without the newline.
///
/// A frame is held whole in memory on both sides, so this bounds both. 4 MiB holds the longest program that a model
/// writes in one answer many times over; larger files travel in pieces ([`PIECE_BYTES`]).
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// The largest piece of a file in one frame, in raw bytes; an owner should not send longer ones.
///
/// 256 KiB keep a frame (350 KB as base64) far under [`MAX_LINE_BYTES`] while the per-frame cost stays negligible.
pub const PIECE_BYTES: usize = 256 << 10;
