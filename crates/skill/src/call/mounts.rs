//! Which skills' files a run sees.

use std::collections::HashSet;
use std::sync::Arc;

use super::types::{CallContext, Mount};
use crate::catalog::CatalogEntry;
use crate::model::SkillRef;

/// Folder of all mounts, relative to the work directory.
const SKILLS: &str = "skills/";

/// Mounts one skill.
pub(super) fn of(entry: &CatalogEntry) -> Mount {
    Mount {
        path: format!("{SKILLS}{}", entry.handle),
        skill: Arc::clone(&entry.skill),
    }
}

/// Mounts for model-written code: every active and loaded skill with files, the one that the call names, and listed
/// ones whose folder the program names. Each has its own folder, so equal file paths of two skills never collide.
pub(super) fn for_code(context: &CallContext<'_>, named: Option<&CatalogEntry>, program: &str) -> Vec<Mount> {
    let active = context
        .plan
        .active
        .iter()
        .filter_map(|active| context.catalog.get(&active.skill.id));
    let loaded = context
        .loaded
        .iter()
        .filter_map(|record| super::visible::entry_of(record, context.catalog));
    let mentioned = mentioned(program).filter_map(|folder| super::visible::visible(context, folder));
    let mut seen: HashSet<&SkillRef> = HashSet::new();
    let all = named.into_iter().chain(active).chain(loaded).chain(mentioned);
    let mut mounts: Vec<Mount> = all
        .filter(|entry| entry.has_files() && seen.insert(&entry.skill.id))
        .map(of)
        .collect();
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    mounts
}

/// Folder names after `skills/` in a program, both as `name` and as `namespace/name`.
fn mentioned(program: &str) -> impl Iterator<Item = &str> {
    program.match_indices(SKILLS).flat_map(move |(at, found)| {
        let rest = &program[at + found.len()..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')))
            .unwrap_or(rest.len());
        let path = &rest[..end];
        let first = path.find('/').unwrap_or(path.len());
        let second = path[first..]
            .get(1..)
            .and_then(|rest| rest.find('/'))
            .map_or(path.len(), |at| first + 1 + at);
        [&path[..first], &path[..second]]
    })
}

#[cfg(test)]
mod tests {
    use super::mentioned;

    #[test]
    fn finds_folders_in_code_and_commands() {
        let found: Vec<&str> = mentioned("open('skills/a-b/x/y.csv'); skills/ns/c/z").collect();
        assert_eq!(found, ["a-b", "a-b/x", "ns", "ns/c"]);
        assert_eq!(mentioned("skills/").collect::<Vec<_>>(), ["", ""]);
    }
}
