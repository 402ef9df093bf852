//! Summaries of skills, and what they take of the process's memory.
//!
//! A summary cannot be refused as a request can: its skill would not be served. So they have a part of the memory budget: what
//! they take is missing to requests, which are refused instead. Beyond the part it is not counted, so that requests keep the
//! rest of the budget; a log line and the metric `knack_hub_skill_summary_bytes` tell it.

use std::collections::HashMap;
use std::sync::Arc;

use knack_api::shared::Resources;
use knack_api::skill_status::PackagesStatus;
use knack_hub_api::{ContentFile, Overrides};
use knack_memory::{MemoryBudget, MemoryShare};
use knack_skill::config::ConfigParam;
use knack_skill::model::SkillRef;
use serde::Serialize;

use super::served_revision::ServedRevision;

/// Superseded revisions of a skill whose summary is kept: requests in progress stay with the revision that they began
/// with.
const OLD_SUMMARIES: usize = 4;
/// Share of the process's memory budget for summaries: a quarter, 64 MiB under a limit of 512 MiB.
const PART_DIVISOR: usize = 4;
/// What the hub holds of a skill besides what its summary lists: the outline of its object, its line in the views of two
/// runtimes, and the entries of the maps. Measured with 5,000 Skills of one file.
const SKILL_BYTES: usize = 6 << 10;
/// What a file takes besides its path: its digest as text, its size, and two allocations.
const FILE_BYTES: usize = 160;
/// Bytes that values of JSON take for each byte of their text, in schemas of tools.
const JSON_TIMES: usize = 8;
/// The cost of the content of a file besides its bytes.
const CONTENT_FILE_BYTES: usize = 256;

/// The description of one revision of a skill.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The content of a status.
    pub in_service: ServedRevision,
    /// The spec's settings when this content was judged.
    pub overrides: Overrides,
    /// Resources that the spec asked for its pods.
    pub resources: Option<Resources>,
    /// Packages that it declares, if any. Read from its files: no status has them for a revision that
    /// is no longer served but that requests started with.
    pub packages: Option<PackagesStatus>,
    /// Tools whose functions have configuration, by name.
    pub config: Vec<(String, Vec<ConfigParam>)>,
    /// Every file.
    pub files: Vec<ContentFile>,
}

/// Summaries by skill; see the module.
pub(super) struct Summaries {
    /// Newest last.
    by_skill: HashMap<SkillRef, Vec<Arc<Summary>>>,
    bytes: usize,
    part: MemoryBudget,
    held: Option<MemoryShare>,
    /// They take more than their part.
    is_over: bool,
}

impl Summary {
    /// What its content takes in memory.
    pub fn bytes(&self) -> usize {
        let of = |file: &ContentFile| {
            let bytes = usize::try_from(file.size).unwrap_or(usize::MAX);
            bytes.saturating_add(file.path.len() + CONTENT_FILE_BYTES)
        };
        self.files.iter().map(of).fold(0, usize::saturating_add)
    }
}

impl Summaries {
    /// None yet.
    pub(super) fn within(memory: &MemoryBudget) -> Self {
        Self {
            by_skill: HashMap::new(),
            bytes: 0,
            part: memory.part(memory.total_bytes() / PART_DIVISOR),
            held: None,
            is_over: false,
        }
    }

    /// The summaries of a skill, newest last; `None`: none is known.
    pub(super) fn get(&self, id: &SkillRef) -> Option<&[Arc<Summary>]> {
        self.by_skill.get(id).map(Vec::as_slice)
    }

    /// Keeps a summary, and of those that are not in service any more the newest.
    pub(super) fn keep(&mut self, summary: &Arc<Summary>, in_service: &[ServedRevision]) {
        let list = self.by_skill.entry(summary.in_service.skill.clone()).or_default();
        if list.iter().any(|known| known.in_service == summary.in_service) {
            return;
        }
        let before = bytes_of(list);
        list.push(Arc::clone(summary));
        let is_old = |summary: &Arc<Summary>| !in_service.contains(&summary.in_service);
        let mut excess = list
            .iter()
            .filter(|summary| is_old(summary))
            .count()
            .saturating_sub(OLD_SUMMARIES);
        list.retain(|summary| {
            let goes = excess > 0 && is_old(summary);
            excess -= usize::from(goes);
            !goes
        });
        let bytes = self.bytes - before + bytes_of(list);
        self.count(bytes);
    }

    /// Forgets skills that are gone.
    pub(super) fn retain(&mut self, is_alive: impl Fn(&SkillRef) -> bool) {
        let mut bytes = self.bytes;
        self.by_skill.retain(|id, list| {
            let stays = is_alive(id);
            if !stays {
                bytes -= bytes_of(list);
            }
            stays
        });
        self.count(bytes);
    }

    /// What they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts them in the budget, as far as there is room for them.
    fn count(&mut self, bytes: usize) {
        self.bytes = bytes;
        let total = self.part.total_bytes();
        let counted = bytes.min(total);
        match &mut self.held {
            Some(held) => {
                held.shrink_to(counted);
                // Without room now they are counted at their next change.
                let _ = held.grow_to(counted);
            }
            None => self.held = self.part.try_take(counted).ok(),
        }
        let was_over = std::mem::replace(&mut self.is_over, bytes > total);
        if self.is_over && !was_over {
            let skills = self.by_skill.len();
            tracing::warn!(
                skills,
                bytes,
                part = total,
                "the lists of files and tools of all Skills take more than their part of the hub's memory budget; raise the memory limit of the hub, or serve fewer Skills or Skills of fewer files"
            );
        }
    }
}

fn bytes_of(list: &[Arc<Summary>]) -> usize {
    list.iter().map(|summary| size(summary)).sum()
}

/// What the hub holds of a skill for its summary, about.
fn size(summary: &Summary) -> usize {
    let file = |file: &ContentFile| file.path.len() + FILE_BYTES;
    let packages = summary.packages.as_ref().map_or(0, json_bytes);
    let declared = json_bytes(&summary.overrides) + json_bytes(&summary.config);
    SKILL_BYTES + summary.files.iter().map(file).sum::<usize>() + packages + JSON_TIMES * declared
}

fn json_bytes(value: &impl Serialize) -> usize {
    // It is plain data.
    serde_json::to_vec(value).map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A summary of a skill with so many files.
    fn summary(skill: usize, revision: usize, files: usize) -> Arc<Summary> {
        let file = |number| ContentFile {
            path: format!("references/{number:04}.md"),
            size: 1,
            sha256: "0".repeat(64),
            executable: false,
        };
        Arc::new(Summary {
            in_service: ServedRevision {
                skill: SkillRef {
                    namespace: "team".to_owned(),
                    name: format!("skill-{skill}"),
                },
                uid: "u".to_owned(),
                revision: revision.to_string(),
                digest: "d".to_owned(),
                config_maps: Vec::new(),
            },
            overrides: Overrides::default(),
            resources: None,
            packages: None,
            config: Vec::new(),
            files: (0..files).map(file).collect(),
        })
    }

    fn keep(summaries: &mut Summaries, summary: &Arc<Summary>) {
        summaries.keep(summary, std::slice::from_ref(&summary.in_service));
    }

    #[test]
    fn what_is_kept_is_counted_in_the_budget_until_its_skill_is_gone() {
        let memory = MemoryBudget::new(16 << 20);
        let mut summaries = Summaries::within(&memory);
        let many = summary(1, 0, 500);
        keep(&mut summaries, &many);
        keep(&mut summaries, &many);
        assert!(summaries.bytes() > 500 * FILE_BYTES && summaries.bytes() == size(&many));
        assert!(memory.held_bytes() >= summaries.bytes());
        for skill in 2..100 {
            keep(&mut summaries, &summary(skill, 0, 1));
        }
        let all = summaries.bytes();
        assert!(memory.held_bytes().abs_diff(all) <= 1 << 10);
        // Revisions that are superseded are let go, but for the latest.
        for revision in 0..20 {
            keep(&mut summaries, &summary(1, revision, 500));
        }
        let list = summaries.get(&many.in_service.skill).unwrap();
        assert_eq!(list.len(), OLD_SUMMARIES + 1);
        assert_eq!(summaries.bytes(), all + OLD_SUMMARIES * size(&many));
        summaries.retain(|id| id.name != "skill-1");
        assert_eq!(summaries.bytes(), 98 * size(&summary(2, 0, 1)));
        summaries.retain(|_| false);
        assert_eq!(summaries.bytes(), 0);
        assert!(memory.held_bytes() <= 1 << 10, "the smallest share");
    }

    #[test]
    fn requests_keep_the_rest_of_the_budget_and_summaries_are_kept_without_room() {
        let memory = MemoryBudget::new(1 << 20);
        let mut summaries = Summaries::within(&memory);
        for skill in 0..100 {
            keep(&mut summaries, &summary(skill, 0, 100));
        }
        assert!(summaries.is_over && summaries.bytes() > 1 << 20);
        assert_eq!(memory.held_bytes(), memory.total_bytes() / PART_DIVISOR);
        summaries.retain(|id| id.name == "skill-1");
        assert!(!summaries.is_over && memory.held_bytes() <= 32 << 10);
        // Requests hold all: it is counted once they have ended.
        let requests = memory.try_take(memory.free_bytes()).unwrap();
        keep(&mut summaries, &summary(2, 0, 100));
        let held = memory.held_bytes();
        drop(requests);
        keep(&mut summaries, &summary(3, 0, 100));
        assert!(held == memory.total_bytes() && memory.held_bytes() >= summaries.bytes());
    }
}
