//! The files of a skill that its tools start: whether they are there, and whether Linux starts them.

use knack_vocabulary::program_file::NoProgram;

use super::reading::Fields;
use super::types::LoadInput;
use crate::finding::Finding;
use crate::open_command;
use crate::problem::ProblemKind;
use crate::tools::ToolDeclaration;

/// Shells, for which a CR at the end of a line is a part of its last word. Other interpreters read such lines.
const SHELLS: [&str; 7] = ["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// A file that a command names.
struct Named<'a> {
    tool: &'a ToolDeclaration,
    /// As the skill's files are named.
    path: &'a str,
}

impl Named<'_> {
    fn finding(&self, kind: ProblemKind, what: &str, help: impl Into<String>) -> Finding {
        let Self { tool, path } = self;
        let message = format!("tool \"{}\" runs {path}, {what}", tool.name);
        Finding::warned(kind, format!("tools.{}", tool.name), message, help)
    }
}

impl Fields<'_> {
    /// A program given as a path, and the script of an interpreter, must be a file of the skill. The former is started by Linux.
    pub(super) fn check_programs(&mut self, tools: &[ToolDeclaration], input: &LoadInput) {
        for tool in tools {
            let program = tool.command[0].as_str();
            let finding = if program.contains('/') {
                (!program.starts_with('/'))
                    .then(|| of_program(tool, program, input))
                    .flatten()
            } else if input.files.contains_key(program) {
                let help = format!("write ./{program}");
                let named = Named { tool, path: program };
                let what = "which is looked for among the programs of the machine, and not in the skill's folder";
                Some(named.finding(ProblemKind::ToolFileMissing, what, help))
            } else {
                open_command::script(&tool.command).and_then(|script| of_script(tool, program, script, input))
            };
            if let Some(finding) = finding {
                self.report(finding);
            }
        }
    }
}

fn of_program(tool: &ToolDeclaration, program: &str, input: &LoadInput) -> Option<Finding> {
    let path = program.trim_start_matches("./");
    let named = Named { tool, path };
    let Some(file) = input.files.get(path) else {
        return Some(missing(&named));
    };
    let reasons = NoProgram::of(&file.bytes, file.executable);
    if reasons.is_empty() {
        return None;
    }
    let why: Vec<String> = reasons.iter().map(NoProgram::to_string).collect();
    let mut cures: Vec<&str> = reasons.iter().map(NoProgram::cure).collect();
    cures.dedup();
    let what = format!("which cannot be started: {}", why.join("; "));
    Some(named.finding(ProblemKind::ToolFileNotProgram, &what, cures.join("; ")))
}

fn of_script(tool: &ToolDeclaration, program: &str, script: &str, input: &LoadInput) -> Option<Finding> {
    let path = script.trim_start_matches("./");
    let named = Named { tool, path };
    let Some(file) = input.files.get(path) else {
        return Some(missing(&named));
    };
    let has_carriage_returns = file.bytes.windows(2).any(|pair| pair == b"\r\n");
    if !SHELLS.contains(&program) || !has_carriage_returns {
        return None;
    }
    let what = format!("whose lines end with CR LF; {program} takes the CR as a part of each line's last word");
    let help = "save it with the line ends of Unix (LF)";
    Some(named.finding(ProblemKind::ToolFileNotProgram, &what, help))
}

fn missing(named: &Named<'_>) -> Finding {
    let help = "add the file or correct the path";
    named.finding(ProblemKind::ToolFileMissing, "which is not a file of the skill", help)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::load::{LoadInput, SpecOverrides, load};
    use crate::model::{SkillFile, SkillRef};
    use crate::problem::Profile;

    /// What is said of a tool with a command, in a skill with one other file.
    fn told(command: &str, path: &str, text: &str, executable: bool) -> Vec<String> {
        let document = format!(
            "---\nname: demo\ndescription: d\ntools:\n  - {{name: t, description: d, command: [{command}]}}\n---\nB"
        );
        let file = |text: &str, executable| SkillFile {
            bytes: text.as_bytes().into(),
            executable,
        };
        let files: BTreeMap<String, SkillFile> = [
            ("SKILL.md".to_owned(), file(&document, false)),
            (path.to_owned(), file(text, executable)),
        ]
        .into();
        let loaded = load(LoadInput {
            id: SkillRef {
                namespace: "default".to_owned(),
                name: "demo".to_owned(),
            },
            files,
            overrides: SpecOverrides::default(),
            profile: Profile::Load,
        });
        assert_eq!(loaded.skill.unwrap().tools.len(), 1, "it is served");
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_that_linux_does_not_start_is_reported_with_what_to_do() {
        let mode = "set its execute bit (chmod +x), or name its interpreter before it in the command";
        let line =
            "begin it with a line such as #!/usr/bin/env python3, or name its interpreter before it in the command";
        let unix = "save it with the line ends of Unix (LF)";
        let no_line = "it has no line #! with an interpreter, and is no program for Linux";
        let end = "its first line ends with CR LF, so that \"python3\\r\" is looked for";
        for (command, text, executable, expected) in [
            ("scripts/run.py", "#!/usr/bin/env python3\n", true, None),
            (
                "./scripts/run.py",
                "#!/usr/bin/env python3\n",
                false,
                Some(format!("it is not executable ({mode})")),
            ),
            (
                "scripts/run.py",
                "print(1)\n",
                true,
                Some(format!("{no_line} ({line})")),
            ),
            (
                "scripts/run.py",
                "#!/usr/bin/env python3\r\nprint(1)\r\n",
                true,
                Some(format!("{end} ({unix})")),
            ),
            (
                "scripts/run.py",
                "#!/usr/bin/env python3\r\n",
                false,
                Some(format!("it is not executable; {end} ({mode}; {unix})")),
            ),
        ] {
            let expected = expected.map(|why| {
                format!("SKILL.md:5: tools.t: tool \"t\" runs scripts/run.py, which cannot be started: {why}")
            });
            let found = told(command, "scripts/run.py", text, executable);
            assert_eq!(found, Vec::from_iter(expected), "{command} {text:?} {executable}");
        }
    }

    #[test]
    fn a_script_that_its_interpreter_reads_needs_no_bit_and_no_first_line() {
        for (command, text, is_told) in [
            ("python3, a.x", "print(1)\r\n", false),
            ("bash, a.x", "echo a\n", false),
            ("bash, a.x", "echo a\r\n", true),
            ("./missing", "", true),
        ] {
            assert_eq!(
                !told(command, "a.x", text, false).is_empty(),
                is_told,
                "{command} {text:?}"
            );
        }
        assert_eq!(
            told("run.sh", "run.sh", "#!/bin/sh\n", true),
            [
                "SKILL.md:5: tools.t: tool \"t\" runs run.sh, which is looked for among the programs of the machine, and not in the \
                 skill's folder (write ./run.sh)"
            ]
        );
    }
}
