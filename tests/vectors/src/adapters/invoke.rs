//! Calls of Python functions: the command of the declared tool, with `python3` of this machine and without a sandbox.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use knack_python_schema::read_functions;
use knack_skill::model::{CallForm, Skill, SkillFile, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides, argv, load_with};
use serde_json::{Value, json};

use crate::registry::{Failure, Op, Outcome};

/// The ops of this file.
pub(crate) const OPS: &[Op] = &[Op::new("pyschema", "invoke", invoke)];

const DOCUMENT: &str = "---\nname: f\ndescription: d\ntools: [{python: tools.py}]\n---\nB";
/// What the functions of the cases take for granted.
pub(super) const IMPORT: &str = "from tukuy.skills import skill\n";

/// One function and its arguments: what a model is told of the call.
fn invoke(input: &Value) -> Outcome {
    let source = format!("{IMPORT}{}", input["python"].as_str().unwrap_or_default());
    let skill = loaded(&source)?;
    let [tool] = skill.tools.as_slice() else {
        return Err(Failure::of_adapter("not one function"));
    };
    let command = argv::build(tool, &input["arguments"]).map_err(|error| Failure::new(error.to_string()))?;
    let ended = run(&source, &command)?;
    let text = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    if ended.status.success() {
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        return Ok(json!({"success": true, "value": value, "error": null, "retryable": false}));
    }
    let retryable = tool.call == CallForm::Function { retryable: true };
    Ok(json!({"success": false, "value": null, "error": text, "retryable": retryable}))
}

/// Runs the command of a call beside the file.
pub(super) fn run(source: &str, command: &[String]) -> Result<Output, Failure> {
    let folder = Folder::with(source).map_err(|error| Failure::of_adapter(error.to_string()))?;
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Failure::of_adapter("an empty command"))?;
    Command::new(program)
        .args(arguments)
        .current_dir(&folder.0)
        .env("KNACK_WORK_DIR", &folder.0)
        .output()
        .map_err(|error| Failure::of_adapter(format!("{program} does not start: {error}")))
}

pub(super) fn loaded(source: &str) -> Result<Skill, Failure> {
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    let input = LoadInput {
        id: SkillRef {
            namespace: "default".to_owned(),
            name: "f".to_owned(),
        },
        files: [
            ("SKILL.md".to_owned(), file(DOCUMENT)),
            ("tools.py".to_owned(), file(source)),
        ]
        .into(),
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    };
    let loaded = load_with(input, Some(read_functions));
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    loaded.skill.ok_or_else(|| Failure::new(problems.join("; ")))
}

/// A folder with the file, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn with(source: &str) -> std::io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knack-vectors-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0)?;
        std::fs::write(Path::new(&folder.0).join("tools.py"), source)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is a file of a few lines below the folder for such files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
