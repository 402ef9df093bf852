//! Locks that are not read: those of other tools, and a second one of the standard format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

use crate::finding::{Finding, FindingKind};
use crate::pylock::PYTHON_LOCK_FILE;

/// What to write instead where a tool cannot export.
const LIST: &str =
    "list the packages in packages.python of SKILL.md, and write requirements.lock with knack skill lock";

/// Locks of other tools, and how their content becomes one that is read. A format of a tool's own changes with its releases.
const OF_TOOLS: [(&str, &str); 7] = [
    (
        "uv.lock",
        "write pylock.toml with: uv export --format pylock.toml --no-emit-project --no-dev --output-file pylock.toml",
    ),
    (
        "pdm.lock",
        "write pylock.toml with: pdm export -f pylock -o pylock.toml",
    ),
    (
        "poetry.lock",
        "write requirements.lock with poetry-plugin-export: poetry export -o requirements.lock",
    ),
    (
        "Pipfile.lock",
        "write requirements.lock with: pipenv requirements --hash --exclude-index > requirements.lock",
    ),
    ("pixi.lock", LIST),
    ("conda-lock.yml", LIST),
    ("conda-lock.yaml", LIST),
];

/// The end of the name of a script's lock, which `uv lock --script` writes beside the script.
const OF_SCRIPT: &str = ".py.lock";

/// A finding for each lock that is not read. Where nothing else says what to install (`is_alone`), that of a tool is an error:
/// what its author locked would be missing in every run, or be the standard environment's with other versions.
/// `has_other`: `pylock.toml` is the second of two locks that are read. `read`: locks of scripts that are read.
pub(crate) fn findings(
    files: &BTreeMap<String, SkillFile>,
    is_alone: bool,
    has_other: bool,
    read: &[String],
) -> Vec<Finding> {
    let finding = |file: &String| {
        if let Some(help) = of_tool(file) {
            return Some(if is_alone {
                let text = "this lock is not read, and nothing else declares packages";
                let help = format!("{help}; a skill that needs none says packages: {{python: []}} in SKILL.md");
                Finding::new(FindingKind::Lock, file, 0, text, help)
            } else {
                let text = "this lock is not used: its versions do not count";
                Finding::new(FindingKind::NotInstalled, file, 0, text, help)
            });
        }
        (is_named(file) || (file == PYTHON_LOCK_FILE && has_other)).then(|| {
            let text = "this lock file is not used";
            let help = "requirements.lock counts, else pylock.toml; knack skill lock writes the former";
            Finding::new(FindingKind::NotInstalled, file, 0, text, help)
        })
    };
    files
        .keys()
        .filter(|file| !read.contains(file))
        .filter_map(finding)
        .collect()
}

/// `pylock.<name>.toml`.
fn is_named(file: &str) -> bool {
    let name = file.strip_prefix("pylock.");
    name.and_then(|rest| rest.strip_suffix(".toml")).is_some()
}

fn of_tool(file: &str) -> Option<Cow<'static, str>> {
    if let Some((_, help)) = OF_TOOLS.iter().find(|(name, _)| *name == file) {
        return Some(Cow::Borrowed(help));
    }
    let script = file.strip_suffix(".lock").filter(|_| file.ends_with(OF_SCRIPT))?;
    let help =
        format!("write pylock.toml with: uv export --script {script} --format pylock.toml --output-file pylock.toml");
    Some(Cow::Owned(help))
}
