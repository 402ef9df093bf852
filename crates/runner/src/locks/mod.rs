//! The locks of a run and their order.

mod apply;
mod bpf;
mod limits;
mod mounts;
mod paths;
mod seccomp_allowlist;
mod seccomp_filters;

pub(crate) use apply::{Failure, Recipe, check_identity, drop_to};
pub(crate) use limits::{Effective, START_CPU, lower_limits};
pub(crate) use mounts::{NoMounts, Quota, enclose};
pub(crate) use paths::{LandlockReached, PathRules};

/// The Landlock ABI that brought the right to truncate by path (Linux 6.2).
const ABI_TRUNCATE: u32 = 3;
/// The Landlock ABI that brought the scopes of signals and abstract sockets (Linux 6.12); no later one brings a right
/// that the runner asks for.
const ABI_SCOPES: u32 = 6;

/// The newest kernel features that are used. Tests set older and stricter ones; the program uses all that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// The newest Landlock ABI that is used; 0: none.
    pub landlock_abi: u32,
    /// Whether mounts of the run's own are tried.
    pub mounts: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            landlock_abi: u32::MAX,
            mounts: true,
        }
    }
}
