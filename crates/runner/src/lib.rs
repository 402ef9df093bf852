//! The sandbox runner: it locks itself down, runs one execution, reports frames, exits.
//!
//! The library has two halves. [`protocol`] is the frame protocol: the types, the line encoder and the incremental
//! decoder. It is plain data, compiles everywhere and is what executors use to talk to the binary. The other half is
//! Linux only: the locks, the supervision of the child and the collection of files, used by the binary and its tests.
//!
//! It opens no socket, reads no configuration file, resolves no names, and communicates only through its own stdin and
//! stdout. `docs/runner-protocol.md` is the one page about the frames and the command line.

#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod protocol;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[doc(hidden)]
pub mod bench;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod bootstrap;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod files;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod locks;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod process;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod serve;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[doc(hidden)]
pub use locks::Kernel;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use process::end_uid;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use serve::{is_first_of_pod, serve, serve_on};
