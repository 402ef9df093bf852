//! Packages of Node: the files of a lock, fetched from one index, checked and unpacked. No npm, and nothing of a package runs.

mod index;
mod install;
mod npm;
mod npmrc;
mod unpack;

pub use index::NpmIndex;
pub(crate) use index::{NPM_INDEX_VARIABLE, NPMRC_VARIABLE};
pub(super) use install::{Machine, install};
pub(super) use npm::{chosen_by_npm, package_json};
pub use npm::{find_npm, lock_of_npm};
