//! Files into the run and out of it.
//!
//! Nothing here follows a link: every directory is opened from its parent with `O_NOFOLLOW`, every file too.

mod collect;
mod count;
mod folders;
mod stage;
mod walk;

pub(crate) use collect::{CollectedEntry, Sink, UncollectedFile, collect};
pub(crate) use count::{blocks, count};
pub(crate) use folders::{HOME, RunFolders, TEMPORARY};
pub(crate) use stage::{MAX_PATH_BYTES, Staged, stage};
