//! Files to a valid skill, or to the reason why not. Pure: the same judgement as everywhere.

use std::sync::Arc;

use knack_api::skill_status::PackagesStatus;
use knack_packages::stated;
use knack_skill::LoadInput;
use knack_skill::model::{Skill as LoadedSkill, SkillRef};
use knack_skill::problem::{Problem, Profile};

use super::outline::Outline;
use crate::artifact::{self, Artifact, INDEX_MAX_BYTES};
use crate::controller::conditions::{Verdict, VerdictState};
use crate::controller::reason::ConditionReason;
use crate::counted::counted;
use crate::selection::declared_packages;
use crate::sources::Files;

/// Most problems that a condition lists.
const TOLD_MAX: usize = 5;

pub(super) use crate::selection::JUDGE;

/// A skill that was judged valid, with its content packed. Only [`judge`] makes one, and the steps after it take this in place
/// of the object.
#[derive(Debug)]
pub(super) struct ValidatedSkill {
    outline: Arc<Outline>,
    skill: LoadedSkill,
    artifact: Artifact,
    warnings: Vec<String>,
    packages: Option<PackagesStatus>,
}

impl ValidatedSkill {
    /// The outline of the Skill whose content this is.
    pub(super) fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The content, read.
    pub(super) fn skill(&self) -> &LoadedSkill {
        &self.skill
    }

    /// The content, packed.
    pub(super) fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// Warnings for the author, one line each.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Its declaration of packages.
    pub(super) fn packages(&self) -> Option<&PackagesStatus> {
        self.packages.as_ref()
    }
}

/// Judges the files of a skill by the load profile, and packs what is valid.
pub(super) fn judge(outline: Arc<Outline>, files: Files) -> Result<ValidatedSkill, Verdict> {
    let id = SkillRef {
        namespace: outline.namespace().to_owned(),
        name: outline.name().to_owned(),
    };
    let overrides = outline.overrides();
    let loaded = knack_skill::load(LoadInput {
        id: id.clone(),
        files,
        overrides: overrides.to_load(),
        profile: Profile::Load,
    });
    let Some(skill) = loaded.skill else {
        let errors = loaded.problems.iter().filter(|problem| problem.is_error());
        return Err(Verdict::new(
            VerdictState::Stalled,
            ConditionReason::InvalidSkill,
            list(errors),
        ));
    };
    // The imports of scripts are not read: no Python is parsed here.
    let declared = stated(&skill.files, skill.requirements.as_ref());
    let findings = declared.findings.iter().map(ToString::to_string);
    let warnings = loaded
        .problems
        .iter()
        .map(ToString::to_string)
        .chain(findings)
        .collect();
    let artifact = artifact::build(&id, &skill.files, &overrides);
    if artifact.index_bytes > INDEX_MAX_BYTES {
        let text = format!(
            "the list of its {} and the settings of spec have {} bytes, more than {INDEX_MAX_BYTES} (1 MiB), which one ConfigMap holds; \
             use fewer files or shorter paths, or move tools from spec.tools to SKILL.md",
            counted(artifact.file_count, "file"),
            artifact.index_bytes
        );
        return Err(Verdict::new(VerdictState::Stalled, ConditionReason::TooLarge, text));
    }
    Ok(ValidatedSkill {
        outline,
        artifact,
        warnings,
        packages: declared_packages(&declared),
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

    fn outline() -> Outline {
        let object = serde_json::json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"name": "demo", "namespace": "n"}, "spec": {"source": {}},
        });
        Outline::of(&serde_json::from_value(object).unwrap())
    }

    fn judged(text: &str) -> Result<ValidatedSkill, Verdict> {
        judged_files(&[("SKILL.md", text)])
    }

    fn judged_files(files: &[(&str, &str)]) -> Result<ValidatedSkill, Verdict> {
        let files = files.iter().map(|(path, text)| {
            let file = SkillFile {
                bytes: text.as_bytes().into(),
                executable: false,
            };
            ((*path).to_owned(), file)
        });
        judge(Arc::new(outline()), files.collect())
    }

    /// Nothing here reads Python: the lock that `knack skill lock` wrote says what the functions of a file are.
    #[test]
    fn functions_come_from_their_lock_and_a_skill_without_a_fresh_one_stalls() {
        let document = "---\nname: demo\ndescription: d\ntools: [{python: tools.py}]\n---\nbody";
        let python = "def f(a: int): pass\n";
        let lock = serde_json::json!({
            "about": "", "format": 1,
            "files": {"tools.py": {"sha256": knack_skill::digest::sha256(python), "functions": [
                {"function": "f", "name": "f", "description": "d", "risk": "Safe", "inputSchema": {"type": "object", "properties": {}}}]}},
        });
        let lock = lock.to_string();
        let lock_file = knack_skill::functions::LOCK_FILE;
        let with = |python: &str, lock: Option<&str>| {
            let mut files = vec![("SKILL.md", document), ("tools.py", python)];
            files.extend(lock.map(|lock| (lock_file, lock)));
            judged_files(&files)
        };
        let judged = with(python, Some(&lock)).unwrap();
        assert_eq!(judged.warnings, [""; 0]);
        assert_eq!(judged.skill.tools[0].name, "f");
        for (python, lock, text) in [
            (python, None, "no python-tools.lock"),
            ("def f(): pass\n", Some(lock.as_str()), "tools.py has changed"),
        ] {
            let verdict = with(python, lock).unwrap_err();
            assert_eq!(
                (verdict.state, verdict.reason),
                (VerdictState::Stalled, ConditionReason::InvalidSkill)
            );
            for part in [text, "run `knack skill lock`"] {
                assert!(verdict.message.contains(part), "{part}: {}", verdict.message);
            }
        }
    }

    #[test]
    fn an_error_stalls_the_skill_and_names_its_place_and_what_to_do() {
        let verdict = judged("---\nname: [\n---\nbody").unwrap_err();
        assert_eq!(
            (verdict.state, verdict.reason),
            (VerdictState::Stalled, ConditionReason::InvalidSkill)
        );
        for part in ["SKILL.md", "not valid YAML", "quotes"] {
            assert!(verdict.message.contains(part), "{part}: {}", verdict.message);
        }
    }

    #[test]
    fn packages_are_reported_as_they_are_declared() {
        let with = |lines: &str| judged(&format!("---\nname: demo\ndescription: d\n{lines}\n---\nbody")).unwrap();
        assert_eq!(with("license: MIT").packages, None);
        let judged = with("packages: {python: [\"Pillow >=10\"]}");
        assert_eq!(judged.warnings, [""; 0]);
        let packages = judged.packages.unwrap();
        assert_eq!(
            (packages.python, packages.locked),
            (vec!["pillow>=10".to_owned()], false)
        );
        assert_eq!(
            (packages.source.as_str(), packages.refused),
            ("packages in SKILL.md", None)
        );
        let refused = with("packages: {python: [\"git+https://u:secret@x/y\"]}");
        let why = refused.packages.unwrap().refused.unwrap();
        assert!(why.contains("is a URL") && !why.contains("secret"), "{why}");
        assert_eq!(refused.warnings, [why]);
        let standard = with("packages: {standard: true}").packages.unwrap();
        assert_eq!(
            (standard.source.as_str(), standard.locked),
            ("standard environment", true)
        );
        assert!(
            standard.python.iter().any(|line| line.starts_with("numpy==")),
            "{standard:?}"
        );
    }

    #[test]
    fn packages_of_node_are_those_of_their_lock_and_without_one_a_warning_says_what_to_do() {
        let document = "---\nname: demo\ndescription: d\npackages: {node: [\"@s/docx@^9\"]}\n---\nbody";
        let without = judged(document).unwrap();
        let packages = without.packages.unwrap();
        assert_eq!(
            (packages.python, packages.node, packages.refused),
            (vec![], vec!["@s/docx@^9".to_owned()], None)
        );
        assert!(
            without.warnings[0].contains("declared without package-lock.json")
                && without.warnings[0].contains("generate it with knack skill lock"),
            "{:?}",
            without.warnings
        );
        let lock = |entry: serde_json::Value| {
            let root = serde_json::json!({"dependencies": {"@s/docx": "^9"}});
            serde_json::json!({"lockfileVersion": 3, "packages": {"": root, "node_modules/@s/docx": entry}}).to_string()
        };
        let integrity = format!("sha512-{}==", "a".repeat(86));
        let whole = lock(serde_json::json!({"version": "9.5.1", "integrity": integrity}));
        let judged = judged_files(&[("SKILL.md", document), ("package-lock.json", &whole)]).unwrap();
        assert_eq!(judged.warnings, [""; 0]);
        let packages = judged.packages.unwrap();
        assert_eq!((packages.python.len(), packages.locked), (0, true));
        assert_eq!(packages.node, ["@s/docx@9.5.1"]);
        let scripted = lock(serde_json::json!({"version": "9.5.1", "integrity": integrity, "hasInstallScript": true}));
        let refused = judged_files(&[("SKILL.md", document), ("package-lock.json", &scripted)]).unwrap();
        let why = refused.packages.unwrap().refused.unwrap();
        assert!(why.contains("@s/docx needs an install script"), "{why}");
        assert_eq!(refused.warnings, [why]);
    }

    /// Each path is legal, and so is their number.
    #[test]
    fn more_paths_than_a_config_map_lists_stall_the_skill() {
        let paths: Vec<String> = (0..1_900)
            .map(|number| format!("{}/{}/{number}", "d".repeat(250), "e".repeat(250)))
            .collect();
        let document = ("SKILL.md", "---\nname: demo\ndescription: d\n---\nbody");
        let files: Vec<(&str, &str)> = paths
            .iter()
            .map(|path| (path.as_str(), "x"))
            .chain([document])
            .collect();
        let verdict = judged_files(&files).unwrap_err();
        assert_eq!(
            (verdict.state, verdict.reason),
            (VerdictState::Stalled, ConditionReason::TooLarge)
        );
        assert!(
            verdict.message.contains("1901 files") && verdict.message.contains("shorter paths"),
            "{}",
            verdict.message
        );
    }

    #[test]
    fn a_warning_names_its_field_and_leaves_the_skill_valid() {
        let judged = judged("---\nname: demo\ndescription: d\ntools: 3\n---\nbody").unwrap();
        let [warning] = &judged.warnings[..] else {
            panic!("{:?}", judged.warnings)
        };
        assert!(warning.contains("tools") && warning.contains("list"), "{warning}");
    }

    #[test]
    fn a_valid_skill_comes_packed() {
        let judged = judged("---\nname: demo\ndescription: d\n---\nbody").unwrap();
        assert_eq!(judged.artifact.shards.len(), 1);
        assert_eq!(judged.artifact.digest, judged.skill.digest);
    }
}
