//! A catalog on the disk, from which a restarted gateway serves until a hub answers.
//!
//! ```text
//! head      one line of JSON: format, protocol, version of the writer, what the catalog is for, length of the index
//! index     JSON: settings, skills, removed skills; the files of every tree with their hashes
//! contents  of those files, each once, in the order in which the index names them
//! digest    hex SHA-256 of everything before, and a line feed
//! ```
//!
//! The time of the file is when the hub last sent or confirmed it, so that a restart makes no catalog younger. A file that is not
//! whole, not for this gateway or not readable by this version is never used in part.
//!
//! A change is a new file that is renamed over the old one: a process that is killed leaves the old one. Nothing is flushed
//! to the device: the volume is a pod's own and dies with it, and the digest detects a file that a node crash truncated.

mod format;
mod read;
mod saver;
#[cfg(test)]
mod tests;
mod write;

pub(super) use format::{Identity, SavedLocation};
pub(super) use saver::Saver;
pub(super) use write::Unsaved;
