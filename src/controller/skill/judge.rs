//! Files to a valid skill, or to the reason why not. Pure: the same judgement as everywhere.

use knack_skill::LoadInput;
use knack_skill::model::{Skill as LoadedSkill, SkillRef};
use knack_skill::problem::{Problem, Profile};

use super::super::conditions::{State, Verdict};
use super::super::reason::Reason;
use crate::api::SkillOverrides;
use crate::artifact::{self, Artifact};
use crate::sources::Files;

/// Most problems that a condition lists.
const TOLD_MAX: usize = 5;

/// Who judges: another version may see more in the same files, so what an earlier one judged is looked at again.
pub(super) const JUDGE: &str = env!("CARGO_PKG_VERSION");

/// A skill that was judged valid, with its content packed.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) skill: LoadedSkill,
    pub(super) artifact: Artifact,
    /// What its author may want to know, one line each.
    pub(super) warnings: Vec<String>,
}

/// Judges by the load profile and packs what is valid.
pub(super) fn judge(id: &SkillRef, files: Files, overrides: &SkillOverrides) -> Result<Judged, Verdict> {
    let loaded = knack_skill::load(LoadInput {
        id: id.clone(),
        files,
        overrides: overrides.to_load(),
        profile: Profile::Load,
    });
    let Some(skill) = loaded.skill else {
        let errors = loaded.problems.iter().filter(|problem| problem.is_error());
        return Err(Verdict::new(State::Stalled, Reason::InvalidSkill, list(errors)));
    };
    let artifact = artifact::build(id, &skill.files, overrides);
    Ok(Judged {
        artifact,
        warnings: loaded.problems.iter().map(ToString::to_string).collect(),
        skill,
    })
}

fn list<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let all: Vec<String> = problems.map(ToString::to_string).collect();
    let mut text = all.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > TOLD_MAX {
        text.push_str(&format!(
            "; and {} more: `knack skill validate` lists them",
            all.len() - TOLD_MAX
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use knack_skill::model::SkillFile;

    fn judged(text: &str) -> Result<Judged, Verdict> {
        let id = SkillRef {
            namespace: "n".to_owned(),
            name: "demo".to_owned(),
        };
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        judge(&id, [("SKILL.md".to_owned(), file)].into(), &SkillOverrides::default())
    }

    #[test]
    fn errors_are_told_with_place_and_help() {
        for (text, part) in [
            ("---\nname: [\n---\nbody", "SKILL.md"),
            ("---\nname: demo\ndescription: d\ntools: 3\n---\n", "tools"),
        ] {
            match judged(text) {
                Err(verdict) => {
                    assert_eq!((verdict.state, verdict.reason), (State::Stalled, Reason::InvalidSkill));
                    assert!(verdict.message.contains(part), "{}", verdict.message);
                }
                Ok(judged) => assert!(
                    judged.warnings.iter().any(|line| line.contains(part)),
                    "{:?}",
                    judged.warnings
                ),
            }
        }
    }

    #[test]
    fn a_valid_skill_comes_packed() {
        let judged = judged("---\nname: demo\ndescription: d\n---\nbody").unwrap();
        assert_eq!(judged.artifact.shards.len(), 1);
        assert_eq!(judged.artifact.digest, judged.skill.digest);
    }
}
