//! What the author of a document is told to do.

use super::tests::load_text;
use crate::problem::{ProblemKind, Profile};

/// Quotes mend none of these.
#[test]
fn indentation_that_cannot_be_read_is_named() {
    let (tabs, indentation) = ("indent with spaces", "check the indentation of this line");
    for (yaml, line, help) in [
        ("metadata:\n\tversion: 1.0.0\n", 3, tabs),
        ("tools:\n  - name: t\n\tcommand: x\n", 3, tabs),
        ("metadata:\n \tversion: 1.0.0\n", 3, tabs),
        ("tools:\n-\tname: t\n", 3, tabs),
        ("metadata:\n    a: b\n  c: d\n", 4, indentation),
        ("license: MIT\n  compatibility: d\n", 3, indentation),
        ("tools:\n  - name: t\n   command: x\n", 4, indentation),
        ("license: a: b\n", 2, "put texts that hold a colon"),
        ("metadata:\n  a: b: c\n", 3, "put texts that hold a colon"),
        ("license: [a\n", 3, "put texts that hold a colon"),
    ] {
        let loaded = load_text(&format!("---\n{yaml}name: demo\ndescription: d\n---\nx"), Profile::Load);
        let problem = &loaded.problems[0];
        let actual = (problem.kind, problem.line);
        assert_eq!(actual, (ProblemKind::YamlInvalid, Some(line)), "{yaml:?}: {problem}");
        assert!(problem.help.starts_with(help), "{yaml:?}: {problem}");
    }
}

/// A person searches in the wrong place for a tool that is missing without a message.
#[test]
fn a_tool_that_cannot_be_called_is_said_to_be_left_out() {
    let tool = |more: &str| format!("  - {{name: t, description: d, {more}}}\n");
    let good = tool("command: [x]");
    for (tools, said) in [
        (tool("command: [x], risk: dangerus"), "`risk` is not a level"),
        (tool("env: []"), "(add `command:` with program and arguments"),
        (tool("command: 5"), "(write program and arguments as a list"),
        (
            format!("{good}{good}"),
            "tool \"t\" is declared twice (rename one of the two",
        ),
    ] {
        let text = format!("---\nname: demo\ndescription: d\ntools:\n{tools}---\nx");
        let loaded = load_text(&text, Profile::Load);
        let problem = loaded
            .problems
            .iter()
            .map(ToString::to_string)
            .find(|text| text.contains(said));
        let problem = problem.unwrap_or_else(|| panic!("{said}: {:?}", loaded.problems));
        assert!(problem.ends_with("; until then the tool is left out)"), "{problem}");
        let served = loaded.skill.unwrap().tools.len();
        assert_eq!(served, tools.matches("name: t").count() - 1, "{tools}");
        // Nothing is served there.
        let strict = load_text(&text, Profile::Strict);
        assert!(!strict.problems.iter().any(|problem| problem.help.contains("left out")));
    }
}
