//! Processes: starting the locked child, its tree, its end.

mod kill;
mod nap;
mod priority;
mod program;
mod rusage;
mod spawn;
mod tree;
mod uid;

pub(crate) use kill::{KillScope, kill_everything};
pub(crate) use priority::go_ahead;
pub(crate) use rusage::usage_of_children;
pub(crate) use spawn::{Child, Launch, NoChild, Stdin, WaitingChild, spawn};
pub(crate) use tree::{holds_more_deleted, sample};
pub use uid::end_uid;
