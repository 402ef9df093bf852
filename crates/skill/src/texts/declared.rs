//! Texts of a request: the Skills block, bodies, declarations of the generic tools.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::call::ATTACHED;
use crate::catalog::Node;
use crate::model::Input;
use crate::template::FilledTooLarge;

/// Wire name of the loader, unless the client has a tool of that name.
pub const LOAD_SKILL: &str = "load_skill";
/// Wire name of the caller of tools that were not injected by themselves.
pub const RUN_SKILL_TOOL: &str = "run_skill_tool";
/// Wire name of the code runner.
pub const RUN_CODE: &str = "run_code";
/// Wire name of LiteLLM's code tool (docs/design/dialects.md#litellm).
pub const LITELLM_CODE_TOOL: &str = "litellm_code_execution";

/// Files named in one line; a skill with more says how many are left (a folder of dependencies must not fill the context).
const MAX_FILES_NAMED: usize = 200;

/// Names that no declared tool may take, because they are, or become on a collision, those of generic tools.
pub fn generic_tools_reserved() -> [&'static str; 7] {
    [
        LOAD_SKILL,
        RUN_SKILL_TOOL,
        RUN_CODE,
        LITELLM_CODE_TOOL,
        "knack_load_skill",
        "knack_run_skill_tool",
        "knack_run_code",
    ]
}

/// Makes the Skills block around lines of [`listing_line`], each ending in a newline.
pub fn listing_block(lines: &str, load_skill: &str) -> String {
    format!(
        "# Skills\nSkills are prepared instructions and scripts. When a task matches one below, call {load_skill} with its name \
         before acting, and follow what it returns. If its instructions are not visible in this conversation, load it again. \
         Never claim a skill ran unless a tool result shows it.\n<available_skills>\n{lines}</available_skills>"
    )
}

/// Makes one line of the block; `description` is one line and already escaped.
pub fn listing_line(handle: &str, description: &str) -> String {
    format!("<skill name=\"{handle}\">{description}</skill>\n")
}

/// Ends a block that could not hold every skill.
pub fn listing_more(left_out: usize, load_skill: &str) -> String {
    format!("({left_out} more: call {load_skill} with a few words)\n")
}

/// Puts [`body_section`]s, already joined, under their heading.
pub fn bodies_block(sections: &[&str]) -> String {
    format!("---\n\n# Available Skills\n\n{}", sections.join("\n\n---\n\n"))
}

/// Makes the section of one active skill; `files` is a [`files_line`] or empty.
pub fn body_section(title: &str, body: &str, files: &str) -> String {
    let gap = if files.is_empty() { "" } else { "\n\n" };
    format!("## Skill: {title}\n\n{body}{gap}{files}")
}

/// Stands in place of a body that would be too long with the values of its inputs.
pub fn body_too_large(error: FilledTooLarge) -> String {
    format!("Its instructions are not shown: {error}.")
}

/// Makes the section of an active template without its required inputs. `call` says which call takes them:
/// [`load_with_inputs`] or [`call_with_inputs`]. `given` are values that the request gave already.
pub fn inputs_wanted<'a>(
    title: &str,
    description: &str,
    call: &str,
    inputs: impl Iterator<Item = &'a Input>,
    given: &BTreeMap<String, String>,
) -> String {
    let mut text = format!(
        "## Skill: {title}\n\n{description}\n\nIts instructions need inputs. Take the values from the conversation, ask the user for those \
         that it does not give, then {call}:"
    );
    for input in inputs {
        text.push_str(&input_line(input));
        if given.get(&input.name).is_some_and(|value| !value.is_empty()) {
            text.push_str(" (given: the text after the skill's name)");
        }
    }
    text
}

/// One input as models read it: name, whether it must be given, default, help.
pub(super) fn input_line(input: &Input) -> String {
    let mut line = format!("\n- {}", input.name);
    if input.required {
        line.push_str(" (required)");
    }
    if let Some(default) = &input.default {
        let _ = write!(line, " (default: {default})");
    }
    if let Some(description) = &input.description {
        let _ = write!(line, ": {description}");
    }
    line
}

/// How the loader takes inputs, for [`inputs_wanted`].
pub fn load_with_inputs(load_skill: &str, handle: &str) -> String {
    format!("call {load_skill} with skill \"{handle}\" and these inputs")
}

/// How the tool that represents a `litellm:` skill takes inputs, for [`inputs_wanted`].
pub fn call_with_inputs(tool: &str) -> String {
    format!("call {tool} with these arguments")
}

/// Makes the section of a `litellm:` skill, which is LiteLLM's own text (docs/design/dialects.md#litellm): no file line.
pub fn litellm_section(title: &str, body: &str) -> String {
    body_section(title, body, "")
}

/// Lists a skill's files and their folder. `paths` excludes SKILL.md; the text is empty without any.
pub fn files_line<'a>(handle: &str, paths: impl Iterator<Item = &'a str>) -> String {
    let list = more_files(paths);
    if list.is_empty() {
        list
    } else {
        format!("Files (read-only, skills/{handle}/): {list}")
    }
}

/// Lists the files of a skill that the request attaches whole, and their folder. `paths` excludes SKILL.md; the text is empty without any.
pub fn attached_files_line<'a>(name: &str, paths: impl Iterator<Item = &'a str>) -> String {
    let list = more_files(paths);
    if list.is_empty() {
        list
    } else {
        format!("Files ({ATTACHED}/{name}/): {list}")
    }
}

/// Adds [`body_section`]s to a system text. `has_sections`: it ends in such sections.
pub fn with_sections(system: &str, has_sections: bool, sections: &[&str]) -> String {
    match (system.is_empty(), has_sections) {
        (true, _) => bodies_block(sections),
        (false, false) => format!("{system}\n\n{}", bodies_block(sections)),
        (false, true) => format!("{system}\n\n---\n\n{}", sections.join("\n\n---\n\n")),
    }
}

/// Joins file names by commas, up to a bound, and counts the rest.
pub fn more_files<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let mut list = String::new();
    let mut count = 0;
    for path in paths {
        if count < MAX_FILES_NAMED {
            if count > 0 {
                list.push_str(", ");
            }
            list.push_str(path);
        }
        count += 1;
    }
    if count > MAX_FILES_NAMED {
        let _ = write!(list, " and {} more", count - MAX_FILES_NAMED);
    }
    list
}

/// Describes the loader.
pub fn load_skill_description() -> String {
    "Returns the instructions, file list and tools of a skill, or one of its files.".to_owned()
}

/// Declares the loader's arguments.
pub fn load_skill_schema() -> Value {
    json!({"type": "object", "properties": {
        "skill": {"type": "string", "description": "Name from the list of skills."},
        "path": {"type": "string", "description": "File of the skill to read instead of its instructions."},
        "inputs": {"type": "object", "description": "Values for the inputs the skill asks for."}},
        "required": ["skill"]})
}

/// Describes the caller of undeclared tools.
pub fn run_skill_tool_description(load_skill: &str) -> String {
    format!("Runs a tool that {load_skill} described.")
}

/// Declares its arguments.
pub fn run_skill_tool_schema() -> Value {
    json!({"type": "object", "properties": {
        "skill": {"type": "string"},
        "tool": {"type": "string"},
        "arguments": {"type": "object", "description": "As the tool's schema says."}},
        "required": ["skill", "tool"]})
}

/// Describes the code runner. `packages`: handles of skills whose runs have Python packages, with their names.
pub fn run_code_description(packages: &[(&str, &[String])]) -> String {
    let mut text = "Runs a program once in a sealed sandbox without network; give either code or command. The working directory holds \
     files saved by earlier runs of this conversation, where still kept, and inputs/ from the user; skills/<skill>/ is \
     read-only. Files written to the working directory are delivered to the user."
        .to_owned();
    if !packages.is_empty() {
        text.push_str(" Python packages besides the standard library, for runs that name the skill:");
        let listed = packages.iter().take(MAX_SKILLS_WITH_PACKAGES);
        let lists: Vec<String> = listed
            .map(|(handle, names)| format!(" {handle}: {}", packages_line(names)))
            .collect();
        text.push_str(&lists.join(";"));
        if packages.len() > MAX_SKILLS_WITH_PACKAGES {
            let _ = write!(
                text,
                "; and of {} more skills",
                packages.len() - MAX_SKILLS_WITH_PACKAGES
            );
        }
        text.push('.');
    }
    text
}

/// Most skills whose packages are named in one description; the list of skills itself has a budget of its own.
const MAX_SKILLS_WITH_PACKAGES: usize = 20;

/// Packages named of one skill: as many as the standard environment has by name, and some.
const MAX_PACKAGES_NAMED: usize = 40;

/// Joins names of packages by commas, up to a bound, and counts the rest.
pub(super) fn packages_line(names: &[String]) -> String {
    let mut list = names
        .iter()
        .take(MAX_PACKAGES_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MAX_PACKAGES_NAMED {
        let _ = write!(list, " and {} more", names.len() - MAX_PACKAGES_NAMED);
    }
    list
}

/// Declares its arguments; `node` is in the enum where the runtime has it.
pub fn run_code_schema(node: Node) -> Value {
    let languages = match node {
        Node::Present => json!(["python", "node"]),
        Node::Absent => json!(["python"]),
    };
    json!({"type": "object", "properties": {
        "skill": {"type": "string", "description": "Skill whose files the program uses."},
        "code": {"type": "string"},
        "language": {"type": "string", "enum": languages},
        "command": {"type": "string", "description": "Program and arguments, e.g. python3 skills/csv-chart/scripts/chart.py in.csv. No shell."}}})
}

/// Describes LiteLLM's code tool.
pub fn litellm_code_description() -> String {
    "Execute Python code in a sandboxed environment without network. Files of the skills are in the working directory; \
     generated files are returned to the user."
        .to_owned()
}

/// Declares its one argument.
pub fn litellm_code_schema() -> Value {
    json!({"type": "object", "properties": {
        "code": {"type": "string", "description": "Python code to execute"}},
        "required": ["code"]})
}
