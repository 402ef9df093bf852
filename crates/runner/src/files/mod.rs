//! Files into the run and out of it.
//!
//! Nothing here follows a link: every directory is opened from its parent with `O_NOFOLLOW`, every file too.

mod collect;
mod count;
mod place;
mod stage;
mod walk;

pub(crate) use collect::{Collected, collect};
pub(crate) use count::count;
pub(crate) use place::{Place, TEMPORARY};
pub(crate) use stage::{Staged, stage};
