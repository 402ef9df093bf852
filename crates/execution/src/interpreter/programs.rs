//! Whether runs can start a program of the host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::path_permissions::base_permissions;

/// The directories in which runs search for programs, after that of their interpreter.
pub(crate) const PROGRAM_DIRECTORIES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Where a program is, as runs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramLookup {
    /// Runs find it and may execute it.
    Here(PathBuf),
    /// It is at this path, outside of the directories that runs search, or where they may not execute.
    Closed(PathBuf),
    /// It is nowhere.
    Absent,
}

/// Searches for a program: in the directories of runs, then along a `PATH`. Blocks.
pub fn find_program(name: &str, path: &[PathBuf]) -> ProgramLookup {
    let seen = PROGRAM_DIRECTORIES.map(PathBuf::from);
    find_below(name, &seen, path, &base_permissions().execute)
}

fn find_below(name: &str, seen: &[PathBuf], path: &[PathBuf], allowed: &[PathBuf]) -> ProgramLookup {
    let at = |directory: &PathBuf| Some(directory.join(name)).filter(|file| is_program(file));
    let mut closed = None;
    for file in seen.iter().filter_map(at) {
        // A link may lead to where runs may not execute, such as /opt.
        let Ok(real) = file.canonicalize() else { continue };
        if allowed.iter().any(|root| real.starts_with(root)) {
            return ProgramLookup::Here(file);
        }
        closed.get_or_insert(real);
    }
    match closed.or_else(|| path.iter().find_map(at)) {
        Some(file) => ProgramLookup::Closed(file),
        None => ProgramLookup::Absent,
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_counts_where_runs_search_and_may_execute() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let make = |path: &str, mode: u32| {
            let file = root.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let here = make("usr/bin/here", 0o755);
        let vendor = make("opt/vendor/linked", 0o755);
        std::os::unix::fs::symlink(&vendor, root.join("usr/bin/linked")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("usr/bin/broken")).unwrap();
        make("usr/bin/text", 0o644);
        let elsewhere = make("home/elsewhere", 0o755);
        std::fs::create_dir_all(root.join("usr/bin/folder")).unwrap();
        let find = |name: &str| {
            let (seen, path) = ([root.join("usr/bin")], [root.join("gone"), root.join("home")]);
            find_below(name, &seen, &path, &[root.join("usr")])
        };
        for (name, expected) in [
            ("here", ProgramLookup::Here(here)),
            ("linked", ProgramLookup::Closed(vendor)),
            ("elsewhere", ProgramLookup::Closed(elsewhere)),
            ("broken", ProgramLookup::Absent),
            ("text", ProgramLookup::Absent),
            ("folder", ProgramLookup::Absent),
            ("absent", ProgramLookup::Absent),
        ] {
            assert_eq!(find(name), expected, "{name}");
        }
        assert!(matches!(find_program("sh", &[]), ProgramLookup::Here(_)));
    }
}
