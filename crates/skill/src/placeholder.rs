//! Texts that look like placeholders and stay as they are: in commands of tools, where nothing is replaced, and in bodies, where
//! only `{{name}}` of a declared input is. Only what an author must have meant as one is reported: a shell script in a body has
//! `${NAME}` with good reason, and so has a template that a tool gets as an argument.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::finding::{Finding, MAX_ENTRIES};
use crate::model::Input;
use crate::problem::ProblemKind::PlaceholderLiteral;
use crate::tools::ToolDeclaration;

/// Programs that replace `${NAME}` in their arguments themselves.
const EXPANDING: [&str; 3] = ["envsubst", "make", "gmake"];
/// Options after which a program is given as text, which may have variables of its own. `-c` and `-e` also end groups: `-lc`.
const INLINE_LONG: [&str; 3] = ["--eval", "--command", "--print"];
const INLINE_SHORT: [char; 3] = ['c', 'e', 'r'];
/// What Claude Code replaces in the text of a skill, and what to write instead.
const CLAUDE_CODE: [(&str, &str); 3] = [
    ("${CLAUDE_SKILL_DIR}", FOLDER_HELP),
    ("${CLAUDE_PLUGIN_ROOT}", FOLDER_HELP),
    ("${CLAUDE_SESSION_ID}", "remove it; a run has no id of a session"),
];
const FOLDER_HELP: &str = "write the path of the file in a run: skills/NAME/ and its path in the skill's folder";
/// Claude Code's arguments of a skill.
const ARGUMENTS: &str = "$ARGUMENTS";

/// A placeholder in a text: what is between its braces, and how it is written.
struct Placeholder<'t> {
    name: &'t str,
    written: &'t str,
    braces: Braces,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Braces {
    /// `${NAME}`, or `$NAME` as a whole path or its first step.
    Variable,
    /// `{{name}}`, also with blanks.
    Template,
}

/// What looks like a placeholder in the command of a tool. There is no shell, and arguments are added at the end.
pub(crate) fn in_command(index: usize, tool: &ToolDeclaration) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, word) in tool.command.iter().enumerate() {
        let mut found = placeholders(word).into_iter().chain(path_variable(word));
        let reported = found.find_map(|found| Some((command_help(tool, &found)?, found)));
        if let Some((help, found)) = reported {
            let message = format!(
                "tool \"{}\" gets {} as it is written: nothing is replaced in a command",
                crate::inputs::shortened(&tool.name),
                crate::inputs::shortened(found.written)
            );
            let field = format!("tools[{index}].command[{at}]");
            findings.push(Finding::warned(PlaceholderLiteral, field, message, help));
        }
        if expands_the_rest(word) {
            break;
        }
    }
    findings
}

/// Whether a word of a command says that words after it may be expanded by the program itself.
fn expands_the_rest(word: &str) -> bool {
    let program = word.rsplit('/').next().unwrap_or(word);
    let short = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    EXPANDING.contains(&program)
        || INLINE_LONG.contains(&word)
        || short.is_some_and(|letters| letters.ends_with(INLINE_SHORT))
}

/// What to do instead; `None` if the author may mean it as it is written.
fn command_help(tool: &ToolDeclaration, found: &Placeholder<'_>) -> Option<String> {
    if is_parameter(tool, found.name) {
        let name = found.name;
        return Some(format!(
            "remove it: the argument {name} is added at the end of the command"
        ));
    }
    let is_variable = found.braces == Braces::Variable && is_upper(found.name);
    is_variable.then(|| {
        "request the variable under env, and read it in the program; paths are relative to the skill's folder"
            .to_owned()
    })
}

fn is_parameter(tool: &ToolDeclaration, name: &str) -> bool {
    let of_schema = || tool.input_schema.as_ref()?["properties"].get(name);
    tool.parameters.iter().any(|parameter| parameter.name == name) || of_schema().is_some()
}

fn is_upper(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(legal) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// `$NAME`, alone or as the first step of a path. `$ENV` is jq's.
fn path_variable(word: &str) -> Option<Placeholder<'_>> {
    let first = word.split('/').next()?;
    let name = first.strip_prefix('$').filter(|name| !name.is_empty())?;
    (is_upper(name) && name != "ENV").then_some(Placeholder {
        name,
        written: first,
        braces: Braces::Variable,
    })
}

/// What looks like a placeholder in a body that is given to models with these inputs.
pub(crate) fn in_body(body: &str, inputs: &[Input]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CLAUDE_CODE
        .into_iter()
        .filter(|(written, _)| body.contains(written))
        .map(|(written, help)| unreplaced(written, help))
        .collect();
    if has_arguments(body) {
        findings.push(unreplaced(ARGUMENTS, "declare inputs, and write {{name}} for each"));
    }
    if inputs.is_empty() {
        return findings;
    }
    // The body is searched once for each input: it may have hundreds of thousands of placeholders.
    let written = inputs.iter().map(|input| {
        let exact = format!("{{{{{}}}}}", input.name);
        let is_there = body.contains(&exact);
        (input.name.as_str(), (exact, is_there))
    });
    let written: BTreeMap<&str, (String, bool)> = written.collect();
    for found in placeholders(body) {
        if findings.len() == MAX_ENTRIES {
            break;
        }
        let Some((exact, is_there)) = written.get(found.name) else {
            continue;
        };
        // Beside `{{city}}`, a `${city}` is a variable of a script.
        let means_the_input = found.braces == Braces::Template || !is_there;
        if means_the_input && found.written != *exact {
            findings.push(unreplaced(found.written, &format!("write {exact}")));
        }
    }
    findings
}

fn unreplaced(written: &str, help: &str) -> Finding {
    let message = format!("{written} is not replaced; the model reads it as it is written");
    Finding::warned(PlaceholderLiteral, format!("body.{written}"), message, help)
}

/// Whether the arguments of Claude Code are used, and not only quoted as code.
fn has_arguments(body: &str) -> bool {
    body.match_indices(ARGUMENTS).any(|(at, _)| {
        let next = body[at + ARGUMENTS.len()..].chars().next();
        let is_longer = next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_');
        !is_longer && next != Some('`') && !body[..at].ends_with(['`', '\\', '$'])
    })
}

/// Every `${name}` and `{{name}}` of a text. Linear in the text.
fn placeholders(text: &str) -> Vec<Placeholder<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(['$', '{']).map(|at| from + at) {
        let braces = match text.as_bytes()[at..] {
            [b'$', b'{', ..] => Braces::Variable,
            [b'{', b'{', ..] => Braces::Template,
            _ => {
                from = at + 1;
                continue;
            }
        };
        from = at + 2;
        let Some((name, range)) = closed(text, at, braces) else {
            continue;
        };
        from = range.end;
        let written = &text[range];
        found.push(Placeholder { name, written, braces });
    }
    found
}

/// The name of a placeholder that begins at a place, and all of it.
fn closed(text: &str, at: usize, braces: Braces) -> Option<(&str, Range<usize>)> {
    let (end, blanks): (&str, &[char]) = match braces {
        Braces::Variable => ("}", &[]),
        Braces::Template => ("}}", &[' ', '\t']),
    };
    let inner = &text[at + 2..];
    let name = inner.trim_start_matches(blanks);
    let legal = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    let length = name.find(|character| !legal(character))?;
    let rest = name[length..].trim_start_matches(blanks).strip_prefix(end)?;
    (length > 0).then(|| (&name[..length], at..text.len() - rest.len()))
}

#[cfg(test)]
mod tests {
    use super::{in_body, in_command};
    use crate::finding::Finding;
    use crate::inputs;
    use crate::tools;

    fn reported(findings: &[Finding]) -> Vec<(&str, &str)> {
        assert!(findings.iter().all(|finding| !finding.is_refused()));
        let reported = findings.iter();
        reported
            .map(|finding| {
                (
                    finding.field.as_str(),
                    finding.help.split([' ', ':', ',']).next().unwrap(),
                )
            })
            .collect()
    }

    /// A tool with a parameter, one with a schema: commands of which a word is reported, by its index and what to do.
    #[test]
    fn words_of_commands_that_stay_as_they_are_are_named() {
        for (command, expected) in [
            (r#"["python3", "t.py", "${API_KEY}"]"#, Some((2, "request"))),
            (r#"["python3", "t.py", "--key=${API_KEY}"]"#, Some((2, "request"))),
            (r#"["python3", "$SKILL_DIR/t.py"]"#, Some((1, "request"))),
            (r#"["python3", "t.py", "$API_KEY"]"#, Some((2, "request"))),
            (r#"["bash", "t.sh", "${HOME}"]"#, Some((2, "request"))),
            (r#""python3 t.py ${city}""#, Some((2, "remove"))),
            (r#"["python3", "t.py", "--in", "{{city}}"]"#, Some((3, "remove"))),
            (r#"["python3", "t.py", "{{ city }}"]"#, Some((2, "remove"))),
            (r#"["${PYTHON}", "-c", "print(1)"]"#, Some((0, "request"))),
            (r#"["sh", "-c", "echo ${API_KEY}"]"#, None),
            (r#"["bash", "-euc", "echo ${API_KEY} $HOME"]"#, None),
            (r#"["node", "--eval", "`${A}`"]"#, None),
            (r#"["perl", "-ne", "print ${A}"]"#, None),
            (r#"["/usr/bin/envsubst", "${HOME}"]"#, None),
            (r#"["make", "OUT=${CURDIR}/out"]"#, None),
            (r#"["python3", "t.py", "Hello ${name}, {{name}}"]"#, None),
            (
                r#"["python3", "t.py", "$x", "^a$", "$1", "${", "${}", "$.items", "$"]"#,
                None,
            ),
            (r#"["jq", "$ENV.HOME", "$ENV"]"#, None),
            (r#"["python3", "t.py", "{city}", "{{city}", "${city", "city"]"#, None),
        ] {
            for parameters in [
                r#""parameters":[{"name":"city"}]"#,
                r#""inputSchema":{"properties":{"city":{}}}"#,
            ] {
                let text = format!(r#"[{{"name":"t","description":"d","command":{command},{parameters}}}]"#);
                let (tools, findings) = tools::read(&serde_json::from_str(&text).unwrap());
                assert_eq!(findings, [], "{command}");
                let findings = in_command(3, &tools[0]);
                let expected: Vec<(String, &str)> = expected
                    .into_iter()
                    .map(|(at, help)| (format!("tools[3].command[{at}]"), help))
                    .collect();
                let expected: Vec<(&str, &str)> =
                    expected.iter().map(|(field, help)| (field.as_str(), *help)).collect();
                assert_eq!(reported(&findings), expected, "{command}");
            }
        }
    }

    #[test]
    fn texts_of_bodies_that_stay_as_they_are_are_named() {
        let declared = inputs::read(&serde_json::json!([{"name": "city", "label": "City"}])).0;
        for (body, expected) in [
            ("Weather in ${city}.", vec![("body.${city}", "write")]),
            ("{{city}}: curl ${city}", vec![]),
            ("{{city}} and {{ city }}", vec![("body.{{ city }}", "write")]),
            ("{{city}}", vec![]),
            ("${other} {{ other }} $city {city}", vec![]),
            ("export A=${HOME}; echo ${A}", vec![]),
        ] {
            assert_eq!(reported(&in_body(body, &declared)), expected, "{body}");
            assert_eq!(reported(&in_body(body, &[])), [], "{body}");
        }
        for (body, expected) in [
            (
                "python3 ${CLAUDE_SKILL_DIR}/t.py",
                vec![("body.${CLAUDE_SKILL_DIR}", "write")],
            ),
            (
                "`${CLAUDE_PLUGIN_ROOT}/t.py`",
                vec![("body.${CLAUDE_PLUGIN_ROOT}", "write")],
            ),
            ("id ${CLAUDE_SESSION_ID}", vec![("body.${CLAUDE_SESSION_ID}", "remove")]),
            ("Fix $ARGUMENTS.", vec![("body.$ARGUMENTS", "declare")]),
            ("Commands may use `$ARGUMENTS` or $ARGUMENTS_LIST, \\$ARGUMENTS", vec![]),
        ] {
            for inputs in [&declared[..], &[]] {
                assert_eq!(reported(&in_body(body, inputs)), expected, "{body}");
            }
        }
    }
}
