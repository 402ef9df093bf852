//! Whether the sandbox's user can get to a path.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// The user that runs the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeUser {
    /// The same user as this process: what runs here runs there.
    SameUser,
    /// A uid and gid that own nothing: only the permissions of "others" count.
    Stranger,
}

/// Most symbolic links that are followed; the kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Returns the first directory or file on the way to `path` that `code_user` cannot pass or read; links are followed.
/// `None`: it can get there. A path that does not exist is its own unreachable part.
#[must_use]
pub fn unreachable_part(path: &Path, code_user: CodeUser) -> Option<PathBuf> {
    if code_user == CodeUser::SameUser {
        return None;
    }
    let mut rest: VecDeque<OsString> = names(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let Ok(metadata) = next.symlink_metadata() else {
            return Some(next);
        };
        if metadata.is_symlink() {
            links += 1;
            let Ok(target) = std::fs::read_link(&next) else {
                return Some(next);
            };
            if links > MAX_LINKS {
                return Some(next);
            }
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            for part in names(&target).into_iter().rev() {
                rest.push_front(part);
            }
            continue;
        }
        let mode = metadata.permissions().mode();
        // Passing a directory needs x. At the end, a directory needs r and x, a file r.
        let needed = match (metadata.is_dir(), rest.is_empty()) {
            (true, false) => 0o001,
            (true, true) => 0o005,
            (false, _) => 0o004,
        };
        if mode & needed != needed {
            return Some(next);
        }
        here = next;
    }
    None
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}
