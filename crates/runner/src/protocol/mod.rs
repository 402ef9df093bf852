//! The frame protocol between an owner (an executor) and `knack-runner`: NDJSON, one frame per line.
//!
//! ```text
//! owner ── claim, start, files*, run, cancel?, ack ──▶ runner stdin
//! owner ◀── ready, claimed, ready, started, output*, file*, file_error*, result ── runner stdout
//! ```
//!
//! The first `ready` is sent unasked when the runner boots, the second answers `start` once the locked child waits.
//! `result` is always the last frame. `claim` gives the runner a key; every later frame, in both directions, is
//! authenticated with it and numbered ([`OwnerLink`], [`RunnerLink`]), so neither a second writer on stdin nor a reader
//! of the log can take part. Unknown members of a frame are ignored, unknown frame types are `rejected`.

use std::ops::RangeInclusive;

mod data;
mod decode;
mod inbound;
mod key;
mod link;
mod outbound;
mod probe;
#[cfg(test)]
mod tests;
mod text;

pub use data::Data;
pub use decode::{DecodeError, Decoder, encode};
pub use inbound::{
    Area, Bind, Cwd, Files, Identity, Interpreter, Journal, Landlock, Language, Limits, Program, Run, StagedFile,
    Start, ToRunner, Watch,
};
pub use key::{KEY_BYTES, Key};
pub(crate) use link::hex;
pub use link::{Incoming, LineRefusal, OwnerLink, Reader, RunnerLink};
pub use outbound::{
    Bound, Exit, FileError, FileErrorKind, FilePiece, FromRunner, KILL_BOUND_MS, LandlockState, Locks, Output,
    OutputStream, Ready, Rejected, RunResult, Sealed, Started, StreamReport, WorkBound,
};
pub use probe::{Dial, DialOutcome, Probe};
pub(crate) use text::{json_bytes, shorten};

/// The newest protocol that this release speaks. It grows when an old peer would misread a frame.
///
/// 3: `claim` gives a key instead of a nonce, frames are authenticated and numbered, both sides announce a range of
/// protocols, `result` names what was requested.
pub const PROTOCOL: u32 = 3;

/// The oldest protocol that this release still speaks.
pub const PROTOCOL_MIN: u32 = 3;

/// The newest protocol that two ranges share.
pub fn common_protocol(ours: &RangeInclusive<u32>, theirs: &RangeInclusive<u32>) -> Option<u32> {
    let newest = *ours.end().min(theirs.end());
    (newest >= *ours.start().max(theirs.start())).then_some(newest)
}

/// Where a pod keeps its work volume: its owner mounts it there, and the first runner marks it.
pub const WORK_PATH: &str = "/work";

/// The longest line either side accepts, in bytes without the newline.
///
/// A frame is held whole in memory on both sides, so this bounds both. 4 MiB holds the longest program that a model
/// writes in one answer many times over; larger files travel in pieces ([`PIECE_BYTES`]).
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// The largest piece of a file in one frame, in raw bytes; an owner should not send longer ones.
///
/// 256 KiB keep a frame (350 KB as base64) far under [`MAX_LINE_BYTES`] while the per-frame cost stays negligible.
pub const PIECE_BYTES: usize = 256 << 10;
