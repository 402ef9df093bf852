//! The paths that an interpreter must be able to read.

use std::path::{Path, PathBuf};

use super::describe::InterpreterDescription;

/// Paths for the sandbox's rules. Ones that do not exist are passed over by the runner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathPermissions {
    /// Read only.
    pub read: Vec<PathBuf>,
    /// Read and execute.
    pub execute: Vec<PathBuf>,
    /// Read and write.
    pub write: Vec<PathBuf>,
}

impl PathPermissions {
    /// Both sets of paths, without repetition.
    #[must_use]
    #[cfg(all(target_os = "linux", feature = "local"))]
    pub(crate) fn merged(&self, other: &Self) -> Self {
        let merge = |first: &[PathBuf], second: &[PathBuf]| {
            let mut all: Vec<PathBuf> = first.iter().chain(second).cloned().collect();
            all.sort();
            all.dedup();
            all
        };
        Self {
            read: merge(&self.read, &other.read),
            execute: merge(&self.execute, &other.execute),
            write: merge(&self.write, &other.write),
        }
    }
}

/// The paths that every program needs to read besides programs and libraries: the loader's cache, the time zone, two harmless
/// devices. `/etc/ssl` is cut to what OpenSSL reads at its start: no private keys.
const READ: [&str; 7] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    // The standard library's `mimetypes` fails where the file is there and cannot be read; openpyxl imports it.
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/dev/zero",
    "/dev/urandom",
];

/// Files that programs read in an image, and not on a user's machine: libraries to load before others, and fonts.
const READ_IN_IMAGE: [&str; 2] = ["/etc/ld.so.preload", "/etc/fonts"];

/// The system's programs and libraries.
const EXECUTE: [&str; 4] = ["/usr", "/lib", "/lib64", "/bin"];

/// The versions of Python that an image may have, by their minor number.
const IMAGE_PYTHONS: std::ops::RangeInclusive<u8> = 8..=20;

fn paths(list: &[&str]) -> Vec<PathBuf> {
    list.iter().map(PathBuf::from).collect()
}

/// The paths that every program needs on this machine (docs/sandbox.md#what-a-run-may-read).
#[must_use]
pub(crate) fn base_permissions() -> PathPermissions {
    let mut read = paths(&READ);
    read.extend(distribution_python_directories());
    PathPermissions {
        read,
        execute: paths(&EXECUTE),
        write: paths(&["/dev/null"]),
    }
}

/// The paths that every program needs in a sandbox image, whose content is unknown here.
#[must_use]
pub fn image_permissions() -> PathPermissions {
    let mut read = paths(&READ);
    read.extend(paths(&READ_IN_IMAGE));
    read.extend(IMAGE_PYTHONS.map(|minor| PathBuf::from(format!("/etc/python3.{minor}"))));
    PathPermissions {
        read,
        execute: paths(&EXECUTE),
        write: paths(&["/dev/null"]),
    }
}

/// Debian's `sitecustomize` is a link into `/etc/python3.<minor>`.
fn distribution_python_directories() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/etc") else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Trees whose members link to each other, so one package alone does not run: Nix, Guix, Homebrew.
const STORES: [&str; 3] = ["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"];

/// The paths of one interpreter: each of its trees as a whole where the tree is its own, else only its parts.
pub(super) fn of_interpreter(answer: &InterpreterDescription, home: Option<&Path>) -> PathPermissions {
    let mut execute: Vec<PathBuf> = Vec::new();
    let real = answer
        .executable
        .canonicalize()
        .unwrap_or_else(|_| answer.executable.clone());
    let mut roots: Vec<PathBuf> = Vec::new();
    for prefix in &answer.prefixes {
        roots.push(prefix.clone());
        roots.extend(prefix.canonicalize());
    }
    for root in &roots {
        if let Some(store) = STORES.iter().find(|store| root.starts_with(store)) {
            execute.push(PathBuf::from(store));
        } else if !too_wide(root, home) {
            execute.push(root.clone());
        }
    }
    execute.push(answer.executable.clone());
    execute.push(real);
    execute.extend(answer.shared.iter().cloned());
    // A search path may name a project of the user's (an editable install): only what lies in a tree of the
    // interpreter is granted.
    let inside = |path: &&PathBuf| {
        roots
            .iter()
            .any(|root| root.parent().is_some() && path.starts_with(root))
    };
    execute.extend(answer.libraries.iter().filter(inside).cloned());
    execute.retain(|path| !covered(path));
    execute.sort();
    execute.dedup();
    let all = execute.clone();
    execute.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
    PathPermissions {
        read: Vec::new(),
        execute,
        write: Vec::new(),
    }
}

fn covered(path: &Path) -> bool {
    EXECUTE.iter().any(|root| path.starts_with(root))
}

/// A prefix such as `/`, `/opt`, `/home/user` or `~/.local` holds more than an interpreter.
fn too_wide(root: &Path, home: Option<&Path>) -> bool {
    let depth = root.components().count();
    let is_home = home.is_some_and(|home| home.starts_with(root) || root == home.join(".local"));
    depth <= 2 || is_home || (root.starts_with("/home") && depth <= 3) || !has_library(root)
}

/// An interpreter's own tree has its library in it, or is a virtual environment.
fn has_library(root: &Path) -> bool {
    root.join("lib").is_dir() || root.join("pyvenv.cfg").is_file()
}
