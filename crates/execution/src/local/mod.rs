//! Runs executions on this machine, one locked-down process tree each.
//!
//! ```text
//! execute ─▶ records ─▶ queue ─▶ pool (warm sandbox, else a cold one) ─▶ stage skills ─▶ conversation ─▶ result
//!                                  ▲                                                        │
//!                                  └──────── refilled off the hot path ◀── retired ◀────────┘
//! ```
//!
//! A laptop is not a pod (docs/design/decisions.md#laptop-and-cluster): code runs only if seccomp and Landlock both hold; started as
//! root it runs under a uid that nothing else uses. Nothing here blocks the runtime: files are handled on blocking
//! threads, processes by the reactor.

mod conversation;
mod executor;
mod identity;
mod kind;
mod pool;
mod remove;
mod sandbox;
mod settings;
mod skills;
mod sweep;
mod workshop;

pub use executor::LocalExecutor;
pub use settings::{KernelView, LocalSettings, find_runner};
