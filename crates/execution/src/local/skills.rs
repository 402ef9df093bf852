//! Skill folders for runs, written once per digest.
//!
//! As root a run gets hard links: another user's code can neither write nor chmod them. As the same user it gets copies,
//! because Landlock does not stop `chmod` on a file of one's own, and the cached file must stay as it is.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use knack_skill::model::Skill;

use super::remove::remove_tree;
use super::workshop::Workshop;
use crate::interpreter::CodeUser;
use crate::{ExecutionError, SkillMount};

/// Bytes of skill files kept: 64 times the largest skill (8 MiB).
const MAX_CACHE_BYTES: u64 = 512 << 20;

/// The cache; one per executor.
#[derive(Debug)]
pub(super) struct SkillCache {
    directory: PathBuf,
    code_user: CodeUser,
    state: Mutex<CacheIndex>,
}

#[derive(Debug, Default)]
struct CacheIndex {
    known: HashMap<String, Arc<Mutex<CachedSkill>>>,
    order: VecDeque<String>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct CachedSkill {
    written: bool,
}

impl SkillCache {
    pub(super) fn new(workshop: &Workshop) -> io::Result<Self> {
        Ok(Self {
            directory: workshop.directory("cache")?,
            code_user: workshop.code_user(),
            state: Mutex::default(),
        })
    }

    /// Puts a skill's files at `<skills>/<name of the mount>/`. Blocks on file I/O.
    pub(super) fn stage(&self, mount: &SkillMount, skills: &Path) -> Result<(), ExecutionError> {
        let entry = self.entry(&mount.skill);
        let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = self.directory.join(&mount.skill.digest);
        if !entry.written {
            remove_tree(&cached);
            write_files(&mount.skill, &cached).map_err(|error| failed(&error))?;
            entry.written = true;
        }
        let place = skills.join(&mount.name);
        if let Some((namespace, _)) = mount.name.split_once('/') {
            make_readable_directory(&skills.join(namespace)).map_err(|error| failed(&error))?;
        }
        make_tree(&mount.skill, &place, |path, target| match self.code_user {
            CodeUser::Stranger => fs::hard_link(cached.join(path), target),
            CodeUser::SameUser => fs::copy(cached.join(path), target).map(|_| ()),
        })
        .map_err(|error| failed(&error))
    }

    fn entry(&self, skill: &Skill) -> Arc<Mutex<CachedSkill>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.known.get(&skill.digest) {
            return Arc::clone(entry);
        }
        let entry = Arc::<Mutex<CachedSkill>>::default();
        state.known.insert(skill.digest.clone(), Arc::clone(&entry));
        state.order.push_back(skill.digest.clone());
        state.bytes += size(skill);
        while state.bytes > MAX_CACHE_BYTES && state.order.len() > 1 {
            self.evict_oldest(&mut state);
        }
        entry
    }

    fn evict_oldest(&self, state: &mut CacheIndex) {
        let Some(digest) = state.order.pop_front() else { return };
        if let Some(entry) = state.known.remove(&digest) {
            let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
            entry.written = false;
            let path = self.directory.join(&digest);
            state.bytes = state.bytes.saturating_sub(tree_size(&path));
            remove_tree(&path);
        }
    }
}

fn size(skill: &Skill) -> u64 {
    skill.files.values().map(|file| file.bytes.len() as u64).sum()
}

fn tree_size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => tree_size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn write_files(skill: &Skill, root: &Path) -> io::Result<()> {
    make_tree(skill, root, |path, target| {
        let Some(file) = skill.files.get(path) else {
            return Ok(());
        };
        fs::write(target, &file.bytes)?;
        let mode = if file.executable { 0o555 } else { 0o444 };
        fs::set_permissions(target, Permissions::from_mode(mode))
    })
}

fn make_tree(skill: &Skill, root: &Path, put: impl Fn(&str, &Path) -> io::Result<()>) -> io::Result<()> {
    make_readable_directory(root)?;
    for path in skill.files.keys() {
        let mut parent = root.to_path_buf();
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            parent.push(part);
            if parts.peek().is_some() {
                make_readable_directory(&parent)?;
            }
        }
        put(path, &parent)?;
    }
    Ok(())
}

/// The mode is set, not left to the umask: the run's uid reads it as "others".
fn make_readable_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn failed(error: &io::Error) -> ExecutionError {
    ExecutionError::Internal(format!("skill files could not be staged ({})", error.kind()))
}
