//! The runner as its owner sees it: every test starts the binary and speaks frames.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(missing_docs, reason = "tests")]

mod program;
mod support;
