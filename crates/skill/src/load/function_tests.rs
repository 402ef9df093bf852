//! Functions of Python files as tools: read from the text where there is a reader, from the lock where there is none.

use serde_json::json;

use super::tests::files;
use super::{LoadInput, LoadResult, SpecOverrides, load, load_with};
use crate::functions::{Function, FunctionLock, FunctionProblem, FunctionsRead, LOCK_FILE};
use crate::model::{CallForm, SkillRef};
use crate::problem::{Problem, ProblemKind, Profile, Severity};
use crate::risk::Risk;
use crate::tools::ToolDeclaration;

const DOCUMENT: &str = "---\nname: demo\ndescription: d\ntools:\n  - name: plain\n    description: p\n    command: [x]\n  - python: ./tools.py\n    env: [TOKEN]\n---\nB";

/// Stands for a parser: a line `name` is a function, `name!` one that may be repeated, `?text` a warning, `!text` an error.
fn read(text: &str) -> FunctionsRead {
    let mut read = FunctionsRead::default();
    for (number, line) in (1..).zip(text.lines()) {
        let problem = |severity, message: &str| FunctionProblem {
            severity,
            line: number,
            message: message.to_owned(),
            help: "h".to_owned(),
        };
        if let Some(message) = line.strip_prefix('?') {
            read.problems.push(problem(Severity::Warning, message));
        } else if let Some(message) = line.strip_prefix('!') {
            read.problems.push(problem(Severity::Error, message));
        } else {
            let name = line.trim_end_matches('!');
            read.functions.push(Function {
                function: name.to_owned(),
                name: name.to_owned(),
                description: "d".to_owned(),
                input_schema: json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                risk: Risk::Moderate,
                retryable: line.ends_with('!'),
                hidden: false,
                config: Vec::new(),
            });
        }
    }
    read
}

fn input(entries: &[(&str, &str)]) -> LoadInput {
    let entries: Vec<(&str, &[u8])> = entries.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    LoadInput {
        id: SkillRef {
            namespace: "default".to_owned(),
            name: "demo".to_owned(),
        },
        files: files(&entries),
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    }
}

/// The lock of a skill with this file.
fn lock(python: &str) -> String {
    let input = input(&[("SKILL.md", DOCUMENT), ("tools.py", python)]);
    let files = input.files.clone();
    FunctionLock::of(&load_with(input, Some(read)).functions, &files).text()
}

fn tools(loaded: &LoadResult) -> Vec<String> {
    let skill = loaded.skill.as_ref().unwrap();
    skill.tools.iter().map(|tool| tool.name.clone()).collect()
}

#[test]
fn each_function_is_a_tool_whose_command_calls_it() {
    let loaded = load_with(input(&[("SKILL.md", DOCUMENT), ("tools.py", "one\ntwo!")]), Some(read));
    assert_eq!(loaded.problems, []);
    assert_eq!(tools(&loaded), ["plain", "one", "two"]);
    let skill = loaded.skill.unwrap();
    assert_eq!(skill.tools[0].call, CallForm::Words);
    let tool = &skill.tools[2];
    assert_eq!(tool.call, CallForm::Function { retryable: true });
    let command: Vec<&str> = tool.command.iter().map(String::as_str).collect();
    assert_eq!(
        (command[0], command[1], &command[3..]),
        ("python3", "-c", &["tools.py", "two"][..])
    );
    assert_eq!(tool.env, ["TOKEN"]);
    assert_eq!((skill.tools[0].risk, tool.risk), (Risk::Safe, Risk::Moderate));
    assert_eq!(tool.input_schema["properties"]["a"]["type"], "string");
}

#[test]
fn without_a_reader_the_lock_has_the_same_tools() {
    let (python, lock) = ("one\ntwo!", lock("one\ntwo!"));
    let files = [("SKILL.md", DOCUMENT), ("tools.py", python), (LOCK_FILE, lock.as_str())];
    let (here, there) = (load_with(input(&files), Some(read)), load(input(&files)));
    assert_eq!((here.problems.len(), there.problems.len()), (0, 0));
    assert_eq!(here.skill.unwrap().tools, there.skill.unwrap().tools);
    assert_eq!(here.functions, there.functions);
}

#[test]
fn without_a_reader_a_missing_stale_or_broken_lock_refuses_the_skill_and_says_what_to_run() {
    let good = lock("one");
    for (python, lock, said) in [
        (
            "one",
            None,
            "the skill has no python-tools.lock, which declares the functions of tools.py",
        ),
        (
            "one\n",
            Some(good.as_str()),
            "tools.py has changed since it was written",
        ),
        ("one", Some("{}"), "it is not valid"),
        (
            "one",
            Some(&*good.replace("\"risk\"", "\"more\"")),
            "missing field `risk`",
        ),
        (
            "one",
            Some(&*good.replace("tools.py", "other.py")),
            "it has no functions of tools.py",
        ),
        (
            "one",
            Some(&*good.replace("\"format\": 1", "\"format\": 2")),
            "it has format 2",
        ),
    ] {
        let mut files = vec![("SKILL.md", DOCUMENT), ("tools.py", python)];
        files.extend(lock.map(|lock| (LOCK_FILE, lock)));
        let loaded = load(input(&files));
        assert!(loaded.skill.is_none(), "{said}");
        let reported = loaded.problems[0].to_string();
        assert!(
            reported.contains(said) && reported.contains("run `knack skill lock`"),
            "{reported}"
        );
    }
}

#[test]
fn where_the_text_is_read_a_stale_lock_is_a_warning() {
    let lock = lock("one");
    let files = [
        ("SKILL.md", DOCUMENT),
        ("tools.py", "one\ntwo"),
        (LOCK_FILE, lock.as_str()),
    ];
    let loaded = load_with(input(&files), Some(read));
    assert_eq!(tools(&loaded), ["plain", "one", "two"]);
    let [problem] = loaded.problems.as_slice() else {
        panic!("{:?}", loaded.problems)
    };
    assert!(
        !problem.is_error() && problem.help.contains("knack skill lock"),
        "{problem}"
    );
}

#[test]
fn what_is_wrong_with_a_file_refuses_the_skill_with_its_place() {
    let entry = |entry: &str| DOCUMENT.replace("python: ./tools.py\n    env: [TOKEN]", entry);
    for (document, python, (kind, file, line), said) in [
        (
            DOCUMENT,
            "one\n!no syntax",
            (ProblemKind::ToolInvalid, "tools.py", Some(2)),
            "no syntax",
        ),
        (
            DOCUMENT,
            "",
            (ProblemKind::ToolInvalid, "SKILL.md", Some(8)),
            "declares no function",
        ),
        (
            DOCUMENT,
            "plain",
            (ProblemKind::ToolRepeated, "tools.py", None),
            "\"plain\"",
        ),
        (
            &entry("python: gone.py"),
            "one",
            (ProblemKind::ToolFileMissing, "SKILL.md", Some(8)),
            "gone.py",
        ),
    ] {
        let loaded = load_with(input(&[("SKILL.md", document), ("tools.py", python)]), Some(read));
        assert!(loaded.skill.is_none(), "{said}");
        let Problem {
            kind: seen,
            file: of,
            line: at,
            ..
        } = &loaded.problems[0];
        assert_eq!((*seen, of.as_str(), *at), (kind, file, line), "{said}");
        assert!(loaded.problems[0].message.contains(said), "{}", loaded.problems[0]);
    }
    let warned = load_with(
        input(&[("SKILL.md", DOCUMENT), ("tools.py", "?beware\none")]),
        Some(read),
    );
    assert_eq!(tools(&warned), ["plain", "one"]);
    assert_eq!(
        (warned.problems[0].message.as_str(), warned.problems[0].line),
        ("beware", Some(1))
    );
}

#[test]
fn an_entry_with_a_python_file_declares_nothing_itself() {
    for (entry, field) in [
        ("python: tools.py\n    name: x", "tools[1].name"),
        ("python: tools.py\n    command: [x]", "tools[1].command"),
        ("python: tools.txt", "tools[1].python"),
    ] {
        let document = DOCUMENT.replace("python: ./tools.py\n    env: [TOKEN]", entry);
        let loaded = load_with(input(&[("SKILL.md", &document), ("tools.py", "one")]), Some(read));
        assert!(
            loaded.problems.iter().any(|problem| problem.field == field),
            "{:?}",
            loaded.problems
        );
    }
}

#[test]
fn a_manifest_names_a_file_too() {
    let entry = |path: &str| ToolDeclaration {
        python: Some(path.to_owned()),
        ..ToolDeclaration::default()
    };
    let with = |tools: Vec<ToolDeclaration>| {
        let mut input = input(&[
            ("SKILL.md", "---\nname: demo\ndescription: d\n---\nB"),
            ("tools.py", "one"),
        ]);
        input.overrides.tools = Some(tools);
        load_with(input, Some(read))
    };
    assert_eq!(tools(&with(vec![entry("tools.py")])), ["one"]);
    let command = ToolDeclaration {
        command: vec!["x".to_owned()],
        ..entry("tools.py")
    };
    for (declared, field) in [
        (entry("gone.py"), "spec.tools[0].python"),
        (entry("tools.txt"), "spec.tools[0].python"),
        (command, "spec.tools[0].command"),
    ] {
        let loaded = with(vec![declared]);
        assert!(loaded.skill.is_none(), "{field}");
        assert_eq!(
            (loaded.problems[0].field.as_str(), loaded.problems[0].file.as_str()),
            (field, "")
        );
    }
}
