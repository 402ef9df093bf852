//! Processes: starting the locked child, its tree, its end.

mod rusage;
mod spawn;
mod tree;

pub(crate) use rusage::usage_of_children;
pub(crate) use spawn::{Child, Launch, Stdin, before_exec, spawn};
pub(crate) use tree::{kill_everything, sample};
