//! Environments of packages on this machine, never made as a part of a run: those of Python are locked and installed by `uv`,
//! those of Node by `node`, from their lock.
//!
//! ```text
//! Declaration ─▶ lock (the skill's own, or chosen once) ─▶ key ─▶ in the store? ─ yes ─▶ Environment
//!                                                                      └─ no ─▶ uv install, node ─▶ layout ─▶ rename ─▶ Environment
//! ```
//!
//! Of Python only wheels are installed, and no scripts of Node packages are run, so nothing of a package runs while its environment is made. An environment is a virtual
//! environment that nobody can write to; see docs/packages.md.

mod build;
mod build_error;
mod bytecode;
mod child;
mod layout;
mod limits;
mod lock;
mod node;
mod python;
mod service;
mod store;
mod uv;
mod work_folder;

pub use build::{Builder, BuiltEnvironment};
pub use build_error::BuildError;
pub use limits::BuildLimits;
pub use lock::lock_for_all_platforms;
pub(crate) use node::{NPM_INDEX_VARIABLE, NPMRC_VARIABLE};
pub use node::{NpmIndex, find_npm, lock_of_npm};
pub use python::BaseInterpreter;
pub(crate) use service::open_builder;
pub use service::{LogLine, MissingPackages, Packages};
pub use store::{EnvironmentInfo, Pruned, Store, default_store, usable_store};
pub use uv::Uv;
