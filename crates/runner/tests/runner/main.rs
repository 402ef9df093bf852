//! The runner as its owner sees it: every test starts the binary and speaks frames.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod conversation;
mod disk;
#[path = "../../../../tests/support/hydra.rs"]
mod hydra;
mod kernels;
mod limits;
mod locks;
mod program;
mod results;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod stop;
mod support;
