//! The key of an environment on this machine.

use std::fmt;

use knack_skill::digest::hex;
use sha2::{Digest as _, Sha256};

use crate::lock::Lock;
use crate::node::NodeLock;

/// Version of the layout of environments; a change rebuilds every environment.
pub const FORMAT: u32 = 1;

/// Where an environment runs. Two machines with equal values can use one environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// ABI of the interpreter, such as `cpython-311-x86_64-linux-gnu`.
    pub abi: String,
    /// `glibc 2.36`, `musl 1.2`.
    pub libc: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// The base interpreter: its path on a laptop, the image's digest on a cluster.
    pub base: String,
}

/// SHA-256 over locks, platform and format, in hex: two skills with equal locks share one environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a lock, and of one of Node if there is one, on a platform.
    pub fn of(lock: &Lock, node: Option<&NodeLock>, platform: &Platform) -> Self {
        let mut hash = Sha256::new();
        let format = FORMAT.to_string();
        let node = node.map(NodeLock::text);
        let parts = [
            &format,
            &platform.abi,
            &platform.libc,
            &platform.architecture,
            &platform.base,
            lock.text(),
        ];
        // Environments without packages of Node keep the keys of versions that had none.
        for part in parts.into_iter().chain(node.as_deref()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hex(&hash.finalize()))
    }

    /// 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts_and_the_writing_of_a_lock_does_not() {
        let platform = Platform {
            abi: "cpython-311".to_owned(),
            libc: "glibc 2.36".to_owned(),
            architecture: "x86_64".to_owned(),
            base: "/usr/bin/python3.11".to_owned(),
        };
        let lock = |text: &str| Lock::read("l", format!("{text} --hash=sha256:{}", "a".repeat(64)).as_bytes()).unwrap();
        let key = Key::of(&lock("pillow==1"), None, &platform);
        assert_eq!(key, Key::of(&lock("Pillow == 1"), None, &platform));
        assert_eq!(key.as_str().len(), 64);
        assert_ne!(key, Key::of(&lock("pillow==2"), None, &platform));
        let node = |version: &str| {
            let entry = format!(
                "\"version\": {version:?}, \"integrity\": \"sha512-{}==\"",
                "a".repeat(86)
            );
            let text = format!("{{\"lockfileVersion\": 3, \"packages\": {{\"node_modules/a\": {{{entry}}}}}}}");
            NodeLock::read(text.as_bytes()).unwrap()
        };
        let with = |version: &str| Key::of(&lock("pillow==1"), Some(&node(version)), &platform);
        assert_ne!(key, with("1.0.0"));
        assert_ne!(with("1.0.1"), with("1.0.0"));
        for change in [
            |platform: &mut Platform| platform.abi.push('x'),
            |platform: &mut Platform| platform.libc.push('x'),
            |platform: &mut Platform| platform.architecture.push('x'),
            |platform: &mut Platform| platform.base.push('x'),
        ] {
            let mut other = platform.clone();
            change(&mut other);
            assert_ne!(key, Key::of(&lock("pillow==1"), None, &other));
        }
    }
}
