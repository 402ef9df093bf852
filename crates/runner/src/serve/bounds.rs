//! How long the texts of frames may be, in bytes as JSON writes them.

/// The id of a run; a UUID has 36.
pub(super) const MAX_ID_BYTES: usize = 128;
/// The context of a run; it goes into the log.
pub(super) const MAX_CONTEXT_BYTES: usize = 4096;
/// A reason, a message, a rejection: some lines.
pub(super) const MAX_REASON_BYTES: usize = 512;
/// Longest path of a file that was not collected, as reported to the owner.
pub(super) const MAX_TOLD_PATH_BYTES: usize = 255;
/// The path of a file that is collected, as it is: that of a staged file, so that a result can be the input of another
/// run.
pub(super) const MAX_PATH_BYTES: usize = crate::files::MAX_PATH_BYTES;
/// Lines of strangers that are answered before there is an owner; the rest is passed over, or they would fill the log.
pub(super) const MAX_STRANGERS: u32 = 8;
/// Frames `claim` that are answered in the life of a runner: an owner sends one, up to four more while none is answered, and one if its stream
/// breaks.
pub(super) const MAX_BINDS: u32 = 8;
/// Frames of the owner that are rejected with an answer; an owner that sends more does not read the answers.
pub(super) const MAX_REJECTED: u32 = 16;
