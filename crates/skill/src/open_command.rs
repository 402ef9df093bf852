//! Open commands: tools whose arguments, and not their declaration, choose which program runs.
//!
//! `["python3"]` with a path as its first parameter executes whatever file the model names, and `["sh", "-c"]` whatever
//! text it writes. Such a tool is `run_code` by another name: it gets no environment grants and does not run where
//! model-written code is denied.
//!
//! This finds an author's mistake. It cannot find a script that executes its own arguments: a skill that is granted a
//! value is trusted with it.

use crate::argv;
use crate::model::Tool;

/// Programs that execute a file or a text that their arguments name.
const INTERPRETERS: [&str; 26] = [
    "Rscript", "ash", "bash", "bun", "dash", "deno", "fish", "guile", "java", "julia", "ksh", "lua", "luajit", "mksh",
    "node", "nodejs", "perl", "php", "pwsh", "pypy", "python", "ruby", "sh", "tclsh", "tsx", "zsh",
];
/// Programs whose first operand is a program text in their own language.
const TEXT_FIRST: [&str; 5] = ["awk", "gawk", "mawk", "nawk", "sed"];
/// Interpreters whose first operand is a verb: `deno run FILE`.
const SUBCOMMANDS: [&str; 2] = ["bun", "deno"];
/// Programs that start another program, which is their first operand.
const LAUNCHERS: [&str; 15] = [
    "busybox", "chroot", "env", "ionice", "nice", "nohup", "npx", "setarch", "setsid", "stdbuf", "taskset", "time",
    "timeout", "toybox", "xargs",
];
/// Last letters of the options that take a program text or a module: `-c`, `-e`, `-m`, `-p`, `-r`, alone or at the end of
/// a group (`-Im`).
const TEXT_OPTIONS: [char; 5] = ['c', 'e', 'm', 'p', 'r'];
/// Options in words that take a program text or a module.
const LONG_TEXT_OPTIONS: [&str; 3] = ["--command", "--eval", "--print"];

/// Whether a model can say which program a tool runs. A tool without parameters takes nothing from a model.
pub fn is_open_tool(tool: &Tool, is_file: impl Fn(&str) -> bool) -> bool {
    !argv::parameters(tool).is_empty() && is_open(&tool.command, is_file)
}

/// Whether the arguments choose the program that a command runs. `is_file` says which paths are files of the skill.
pub fn is_open(command: &[String], is_file: impl Fn(&str) -> bool) -> bool {
    let is_fixed_file = |word: &str| word.starts_with('/') || is_file(word.trim_start_matches("./"));
    let mut words = command;
    while let Some((program, rest)) = words.split_first() {
        let name = base_name(program);
        if LAUNCHERS.contains(&name) {
            words = &rest[rest.iter().take_while(|word| is_setting(word)).count()..];
            if words.is_empty() {
                return true;
            }
            continue;
        }
        if TEXT_FIRST.contains(&name) {
            return !rest.iter().any(|word| !word.starts_with('-') || is_fixed_file(word));
        }
        if !is_interpreter(name) {
            return false;
        }
        let names_text = rest
            .windows(2)
            .any(|pair| takes_text(&pair[0]) && !pair[1].starts_with('-'));
        // The first operand of an interpreter is its program, unless it is a subcommand.
        let begins_with_operand =
            !SUBCOMMANDS.contains(&name) && rest.first().is_some_and(|word| !word.starts_with('-'));
        return !names_text && !begins_with_operand && !rest.iter().any(|word| is_fixed_file(word));
    }
    true
}

/// The file that an interpreter is given to run, as a relative path: its first operand, where that looks like a file.
pub fn script(command: &[String]) -> Option<&str> {
    let [program, operand, ..] = command else {
        return None;
    };
    let name = base_name(program);
    let is_file = operand.contains('/') || operand.rsplit_once('.').is_some_and(|(stem, _)| !stem.is_empty());
    let is_relative = !operand.starts_with(['-', '/', '$', '{']);
    (is_interpreter(name) && !SUBCOMMANDS.contains(&name) && is_file && is_relative).then_some(operand)
}

/// `python3.11` is `python`; `lua5.4` is `lua`.
fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&plain)
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// A word of a launcher that is not the program: an option, `NAME=value`, a number or a duration.
fn is_setting(word: &str) -> bool {
    word.starts_with('-') || word.contains('=') || word.starts_with(|c: char| c.is_ascii_digit())
}

fn takes_text(option: &str) -> bool {
    let is_group = option.starts_with('-') && !option.starts_with("--");
    LONG_TEXT_OPTIONS.contains(&option) || (is_group && option.ends_with(TEXT_OPTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(line: &str) -> bool {
        let command: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        is_open(&command, |path| matches!(path, "x.py" | "bin/x" | "x.sh" | "x.awk"))
    }

    #[test]
    fn the_script_of_an_interpreter_is_its_first_operand() {
        for (line, expected) in [
            ("python3 check.py", Some("check.py")),
            ("/usr/bin/python3.11 scripts/check --fast", Some("scripts/check")),
            ("node ./a.mjs", Some("./a.mjs")),
            ("python3 /opt/a.py", None),
            ("python3 -m json.tool", None),
            ("python3 -u check.py", None),
            ("python3 check", None),
            ("bash ${SCRIPT}.sh", None),
            ("deno run.ts", None),
            ("own-program check.py", None),
            ("python3", None),
        ] {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(script(&command), expected, "{line}");
        }
    }

    #[test]
    fn a_command_that_names_its_program_is_closed() {
        for line in [
            "python3 x.py",
            "python3 ./x.py",
            "/usr/bin/python3.11 -I x.py",
            "python3 -W ignore x.py",
            "python3 -m json.tool",
            "python3 -Im json.tool",
            "python3 /opt/app/main.py",
            "python3 missing.py",
            "deno run x.py",
            "node -e console.log(process.argv)",
            "node --eval console.log(1)",
            "bash -c echo_\"$1\" --",
            "sh -ec exec_bin/x",
            "bin/x",
            "./bin/x",
            "own-program",
            "own-program --flag",
            "env python3 x.py",
            "env A=b python3 -u x.py",
            "timeout 5 bin/x",
            "nice -n 5 python3 x.py",
            "busybox sh x.sh",
            "awk {print_$1}",
            "awk -f x.awk",
            "sed -n 1p",
        ] {
            assert!(!judged(line), "{line}");
        }
    }

    #[test]
    fn a_command_that_leaves_its_program_to_the_arguments_is_open() {
        for line in [
            "python3",
            "/usr/bin/python3",
            "python3.11 -u",
            "python3 -c",
            "python3 -Ic",
            "python3 -m",
            "python3 -W ignore",
            "deno run",
            "node",
            "node -e",
            "node --eval",
            "node --require",
            "sh",
            "sh -c",
            "bash -lc",
            "bash -c -x",
            "perl -e",
            "ruby",
            "lua5.4",
            "env",
            "env A=b",
            "env -i python3",
            "timeout 5",
            "timeout 5 sh -c",
            "xargs -0",
            "busybox",
            "busybox sh -c",
            "awk",
            "sed -n",
        ] {
            assert!(judged(line), "{line}");
        }
        assert!(is_open(&[], |_| true));
    }
}
