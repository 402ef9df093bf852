//! Environments of Python packages on this machine: locked, built and kept by `uv`, never as a part of a run.
//!
//! ```text
//! Declaration ─▶ lock (the skill's own, or chosen once) ─▶ key ─▶ in the store? ─ yes ─▶ Environment
//!                                                                      └─ no ─▶ uv install ─▶ layout ─▶ rename ─▶ Environment
//! ```
//!
//! Only wheels are installed, so nothing of a package runs while its environment is made. An environment is a virtual
//! environment that nobody can write to; see docs/packages.md.

mod build;
mod build_error;
mod bytecode;
mod child;
mod layout;
mod limits;
mod lock;
mod python;
mod service;
mod store;
mod uv;

pub use build::{Builder, Built};
pub use build_error::BuildError;
pub use limits::BuildLimits;
pub use lock::lock_for_all_platforms;
pub use python::Base;
pub(crate) use service::open_builder;
pub use service::{Packages, Tell};
pub use store::{Kept, Pruned, Store, default_store};
pub use uv::Uv;
