//! A runner that uses no more of the kernel than an older kernel has; for tests of machines that are not available.
//!
//! Its file name says which: `…abi-<n>` is the newest Landlock ABI, `…no-mounts` a kernel that refuses mounts. Not a switch
//! of the program itself, which takes what there is.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![expect(clippy::unwrap_used, reason = "a program for tests")]

use std::os::fd::AsFd as _;

use knack_runner::{Kernel, serve_on};

fn main() {
    let path = std::env::current_exe().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut kernel = Kernel {
        mounts: !name.contains("no-mounts"),
        ..Kernel::default()
    };
    if let Some((_, abi)) = name.split_once("abi-") {
        kernel.landlock_abi = abi.chars().next().unwrap().to_digit(10).unwrap();
    }
    serve_on(kernel, std::io::stdin().as_fd(), std::io::stdout().as_fd()).unwrap();
}
