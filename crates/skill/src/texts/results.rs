//! What answers a call: instructions, results of runs, errors.

use std::fmt::Write as _;

use super::declared::{input_line, packages_line};
use super::more_files;
use crate::call::{End, Outcome, OutputFile, ShownEnd, ShownResult, is_stageable};
use crate::model::{Input, Packages};
use crate::risk::Risk;
use crate::tool_result::{self, ToolOutcome};

/// A result longer than this is cut in the middle (docs/design/conversation.md#results-of-calls): about 8,000 tokens.
pub const MAX_RESULT_BYTES: usize = 32 * 1024;
/// How much of the end is kept, which has errors and file lists.
const TAIL_BYTES: usize = 8 * 1024;

/// Ends the result of the last allowed round.
pub const LAST_CALL: &str = "Last skill call available for this request; answer now.";
/// Answers a call beyond the last allowed round, where the client's own calls of that turn keep the loop alive.
pub const LIMIT_REACHED: &str = "Limit of skill calls for this request reached; answer without them.";
/// Replaces the text of a loaded skill that has another digest now.
pub const SKILL_CHANGED: &str = "This skill changed; load it again.";
/// Answers an open call of Knack whose turn was forgotten.
pub const NO_LONGER_AVAILABLE: &str = "result no longer available";

/// Answers a call beyond those of one turn that are run.
pub fn too_many_calls(run: usize) -> String {
    format!("Not run: of one turn only the first {run} skill calls are run. Call again with fewer at once.")
}

/// Answers `load_skill`. `files` is a comma-separated list or empty; each tool is (name, description, minified schema).
pub fn loaded(
    handle: &str,
    version: Option<&str>,
    body: &str,
    files: &str,
    run_skill_tool: &str,
    tools: &[(&str, &str, &str)],
) -> String {
    let mut text = format!("<skill name=\"{handle}\"");
    if let Some(version) = version {
        let _ = write!(text, " version=\"{version}\"");
    }
    let _ = write!(text, ">\n{body}\n</skill>");
    if !files.is_empty() {
        let _ = write!(text, "\nFiles: {files} (read-only, in skills/{handle}/)");
    }
    if !tools.is_empty() {
        let _ = write!(text, "\nTools ({run_skill_tool}):");
        for (name, description, schema) in tools {
            let _ = write!(text, "\n- {name}: {description} arguments: {schema}");
        }
        text.push_str("\nTools find the files of this conversation below inputs/.");
    }
    text
}

/// Answers a call by a name that no tool of the request has.
pub fn unknown_tool(name: &str) -> String {
    format!("No tool \"{}\".", shortened(name))
}

/// Answers a name that no skill has.
pub fn no_skill(name: &str, closest: &[&str]) -> String {
    let name = shortened(name);
    if closest.is_empty() {
        format!("No skill \"{name}\".")
    } else {
        format!("No skill \"{name}\". Closest: {}.", closest.join(", "))
    }
}

/// Answers a load of a template whose required inputs are not all given.
pub fn inputs_missing(handle: &str, inputs: &[Input]) -> String {
    let mut text = format!("Error: skill \"{handle}\" needs inputs. Load it again with inputs:");
    for input in inputs {
        text.push_str(&input_line(input));
    }
    text
}

/// Answers a load of a template that these inputs make too long.
pub fn inputs_too_long(handle: &str, bytes: usize, limit: usize) -> String {
    format!(
        "Error: with these inputs the instructions of skill \"{handle}\" would have {bytes} bytes, above the limit of {limit}. Load it again with shorter inputs."
    )
}

/// Answers a tool name that the skill does not have.
pub fn no_tool(handle: &str, tool: &str, tools: &[&str]) -> String {
    let tool = shortened(tool);
    if tools.is_empty() {
        format!("Error: skill \"{handle}\" has no tool \"{tool}\"; it declares none.")
    } else {
        format!(
            "Error: skill \"{handle}\" has no tool \"{tool}\". Its tools: {}.",
            tools.join(", ")
        )
    }
}

/// Answers arguments that are not a JSON object.
pub fn arguments_not_json(tool: &str, why: &str, schema: &str) -> String {
    format!("Error: the arguments of {tool} are not a JSON object ({why}); nothing ran. Schema: {schema}")
}

/// Answers arguments that the schema refuses.
pub fn arguments_mismatch(tool: &str, why: &str, schema: &str) -> String {
    format!("Error: the arguments of {tool} do not match its schema: {why}; nothing ran. Schema: {schema}")
}

/// Answers an argument that could be taken for a flag, or another refusal of the argv rules.
pub fn argument_refused(why: &str) -> String {
    format!("Error: {why}")
}

/// What a model reads in the place of a file that the user uploaded to the gateway. `name`: below `inputs/`.
pub fn uploaded_input(name: &str) -> String {
    format!("[The user attached a file. Programs that you run find it at inputs/{name}]")
}

/// Answers a call that could not be resolved, by no fault of the model's.
pub const CALL_UNRESOLVED: &str = "Error: the call could not be read; nothing ran.";

/// What a client is shown of a call that did not become a run. The answer for the model names tools, schemas and skills, which the
/// client did not send.
pub const CALL_NOT_RUN: &str = "Nothing was started: the call was refused.\n";

/// Answers a call of model-written code where the runtime denies it.
pub const MODEL_CODE_DENIED: &str = "Error: this runtime runs declared tools only; nothing ran.";

/// Why a tool whose arguments choose the program is refused environment values.
pub fn open_command_with_grants(skill: &str, tool: &str) -> String {
    format!(
        "tool \"{tool}\" of skill \"{skill}\" gets no environment values: its command leaves to the arguments which \
         program runs. The skill's author can name a file of the skill in the command; nothing ran."
    )
}

/// Why such a tool is refused where the runtime denies model-written code.
pub fn open_command_denied(skill: &str, tool: &str) -> String {
    format!(
        "tool \"{tool}\" of skill \"{skill}\" is not run here: its command leaves to the arguments which program runs, \
         and this runtime runs declared programs only. The skill's author can name a file of the skill in the command; \
         nothing ran."
    )
}

/// Why a tool is refused whose risk is above the runtime's limit.
pub fn above_max_risk(skill: &str, tool: &str, risk: Risk, max_risk: Risk) -> String {
    format!(
        "tool \"{tool}\" of skill \"{skill}\" is not run here: its risk is {}, and this runtime runs tools up to {}. \
         Whoever operates the runtime can raise that limit (spec.maxRisk of the SkillRuntime); nothing ran.",
        risk.as_str(),
        max_risk.as_str()
    )
}

/// Why a tool is refused whose configuration has no values, or wrong ones, here.
pub fn not_configured(skill: &str, tool: &str) -> String {
    format!(
        "tool \"{tool}\" of skill \"{skill}\" is not run here: values of its configuration are missing or do not fit. \
         Whoever operates the runtime can give them (config of the skill's pin in the SkillRuntime); nothing ran."
    )
}

/// Answers `run_code` without, or with more than, one program.
pub fn one_program(run_code: &str) -> String {
    format!("Error: give {run_code} either code or command, not both and not neither; nothing ran.")
}

/// Answers a command line that is no argv, or a language that the runtime does not have.
pub fn not_executable(why: &str) -> String {
    format!("Error: {why}; nothing ran.")
}

/// Answers a path that the skill does not have.
pub fn file_unknown(handle: &str, path: &str, files: &str) -> String {
    let path = shortened(path);
    if files.is_empty() {
        format!("Error: skill \"{handle}\" has no file \"{path}\"; it has no files.")
    } else {
        format!("Error: skill \"{handle}\" has no file \"{path}\". Files: {files}.")
    }
}

/// Answers a path whose file is not text.
pub fn file_binary(handle: &str, path: &str, bytes: usize) -> String {
    format!(
        "{path} of skill \"{handle}\" is a binary file ({}); a program can read it at skills/{handle}/{path}.",
        size(bytes as u64)
    )
}

/// Answers a path whose file is too large: its beginning, and where the rest is.
pub fn file_too_large(handle: &str, path: &str, bytes: usize, head: &str) -> String {
    format!(
        "{head}\n[cut: {path} has {}; a program can read all of it at skills/{handle}/{path}]",
        size(bytes as u64)
    )
}

/// Reports the outcome of `run_code`.
pub fn code_result(outcome: &Outcome) -> String {
    let seconds = seconds(outcome.duration_ms);
    let mut text = match &outcome.end {
        End::Exit(code) => format!("exit {code}, {seconds}"),
        End::Signal(signal) => format!("killed by signal {signal}, {seconds}"),
        End::Timeout { seconds } => format!("stopped at the time limit of {seconds} s"),
        End::OutOfMemory => format!("out of memory, {seconds}"),
        End::NotStarted(why) => return format!("Error: {why}"),
    };
    push_block(&mut text, "", &outcome.stdout);
    push_block(&mut text, "stderr:\n", &outcome.stderr);
    if outcome.truncated {
        text.push('\n');
        text.push_str(OUTPUT_DROPPED);
    }
    push_files(&mut text, &outcome.files, 0);
    push_file_errors(&mut text, outcome);
    push_dotted(&mut text, &outcome.files);
    cut(&text)
}

const OUTPUT_DROPPED: &str = "(output over the limit was dropped)";

/// Standard error of a run as it is shown to a client in the form of its API, which has no member for these notes: the
/// client should know too, and the model has them again when only the client remembers the run ([`seen_result`]).
pub fn shown_stderr(outcome: &Outcome) -> String {
    let mut text = outcome.stderr.clone();
    let mut notes = String::new();
    if outcome.end == End::OutOfMemory {
        notes.push_str("\nended by the sandbox: out of memory");
    }
    if outcome.truncated {
        notes.push('\n');
        notes.push_str(OUTPUT_DROPPED);
    }
    push_file_errors(&mut notes, outcome);
    if let Some(notes) = notes.strip_prefix('\n') {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(notes);
        text.push('\n');
    }
    text
}

/// Reports a run of an earlier turn that only the client remembers: what [`code_result`] and [`declared_result`] say of
/// it, without its duration and what else the client was not shown.
pub fn seen_result(seen: &ShownResult<'_>) -> String {
    let mut text = if seen.is_code {
        let mut text = match seen.end {
            ShownEnd::Exit(code) => format!("exit {code}"),
            ShownEnd::Failed => "failed".to_owned(),
            ShownEnd::Timeout => "stopped at the time limit".to_owned(),
        };
        push_block(&mut text, "", seen.stdout);
        push_block(&mut text, "stderr:\n", seen.stderr);
        text
    } else {
        match seen.end {
            // Not every call of these runs something: errors, too, are output.
            ShownEnd::Exit(code) if code != 0 && !seen.stderr.is_empty() => tool_result::text(ToolOutcome::Exit {
                code,
                stdout: seen.stdout,
                stderr: seen.stderr,
            }),
            ShownEnd::Exit(_) => seen.stdout.trim_end().to_owned(),
            ShownEnd::Failed => NO_LONGER_AVAILABLE.to_owned(),
            ShownEnd::Timeout => tool_result::text(ToolOutcome::TimedOut { seconds: None }),
        }
    };
    push_files(&mut text, &seen.files, seen.other_files);
    push_dotted(&mut text, &seen.files);
    cut(text.trim_start_matches('\n'))
}

fn push_block(text: &mut String, label: &str, output: &str) {
    let output = output.trim_end();
    if !output.is_empty() {
        let _ = write!(text, "\n{label}{output}");
    }
}

/// `others`: files whose names are not known.
fn push_files(text: &mut String, files: &[OutputFile], others: usize) {
    let mut list: Vec<String> = files.iter().map(file).collect();
    if others > 0 {
        list.push(format!("{others} of unknown name"));
    }
    if !list.is_empty() {
        let _ = write!(text, "\nFiles for the user: {}", list.join(", "));
    }
}

fn push_file_errors(text: &mut String, outcome: &Outcome) {
    for error in &outcome.file_errors {
        let _ = write!(text, "\nFile not delivered: {error}");
    }
}

/// Files that no later run finds.
fn push_dotted(text: &mut String, files: &[OutputFile]) {
    let left: Vec<&str> = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| !is_stageable(path))
        .collect();
    if !left.is_empty() {
        let list = more_files(left.into_iter());
        let _ = write!(text, "\nNot kept for later runs, since names begin with a dot: {list}");
    }
}

fn file(file: &OutputFile) -> String {
    match &file.url {
        Some(url) => format!("{} ({}, {}, {url})", file.path, file.mime, size(file.size)),
        None => format!("{} ({}, {})", file.path, file.mime, size(file.size)),
    }
}

/// Reports the outcome of a declared tool, in HUSK's form (docs/design/dialects.md#results-of-tools,
/// [`tool_result::text`]). Files, which HUSK does not have, follow as for `run_code`.
pub fn declared_result(outcome: &Outcome) -> String {
    let (stdout, stderr) = (outcome.stdout.as_str(), outcome.stderr.as_str());
    let signal;
    let ending = match &outcome.end {
        End::Exit(code) => ToolOutcome::Exit {
            code: *code,
            stdout,
            stderr,
        },
        End::Signal(number) => {
            signal = number.to_string();
            ToolOutcome::Signal {
                name: &signal,
                stdout,
                stderr,
            }
        }
        End::Timeout { seconds } => ToolOutcome::TimedOut {
            seconds: Some(*seconds),
        },
        End::OutOfMemory => ToolOutcome::NotStarted {
            reason: "the tool ran out of memory",
        },
        End::NotStarted(why) => ToolOutcome::NotStarted { reason: why },
    };
    let mut text = tool_result::text(ending);
    push_files(&mut text, &outcome.files, 0);
    push_file_errors(&mut text, outcome);
    push_dotted(&mut text, &outcome.files);
    cut(text.trim_start_matches('\n'))
}

/// Reports the outcome of `litellm_code_execution`, in LiteLLM's form (docs/design/dialects.md#litellm): a blank line is before
/// each part that follows standard output, also where that is empty.
pub fn litellm_result(outcome: &Outcome) -> String {
    let files = outcome.files.iter();
    let mut parts: Vec<String> = files.map(|file| format!("Generated file: {}", file.path)).collect();
    parts.extend(outcome.file_errors.iter().map(|error| format!("Error: {error}")));
    match &outcome.end {
        // Also of a program that succeeds: LiteLLM shows what one has written there as its error.
        End::Exit(_) if !outcome.stderr.is_empty() => parts.push(format!("Error: {}", outcome.stderr)),
        End::Exit(0) => {}
        End::Exit(code) => parts.push(format!("Error: exit {code}")),
        End::Signal(signal) => parts.push(format!("Error: killed by signal {signal}")),
        End::Timeout { seconds } => parts.push(format!("Error: timed out after {seconds} s")),
        End::OutOfMemory => parts.push("Error: out of memory".to_owned()),
        End::NotStarted(why) => parts.push(format!("Error: {why}")),
    }
    let mut text = outcome.stdout.clone();
    for part in parts {
        let _ = write!(text, "\n\n{part}");
    }
    if text.is_empty() {
        return "Code executed successfully".to_owned();
    }
    cut(&text)
}

/// Follows the result of a run that lacked a module of Python or a package of Node; `None` for every other run.
///
/// `named`: the skill that the run named, with its packages. `others`: mounted skills with theirs, where it named none.
pub fn missing_module(stderr: &str, named: Option<(&str, &Packages)>, others: &[(&str, &Packages)]) -> Option<String> {
    let (module, word, names): (_, _, fn(&Packages) -> &[String]) = match missing_in_python(stderr) {
        Some(module) => (module, "Python", |packages| &packages.python),
        None => (missing_in_node(stderr)?, "Node", |packages| &packages.node),
    };
    let module = shortened(module);
    let with_packages = others.iter().find(|(_, packages)| !names(packages).is_empty());
    let here = match (named, with_packages) {
        (Some((skill, packages)), _) if !names(packages).is_empty() => {
            format!(
                "Runs of skill \"{skill}\" have these {word} packages: {}.",
                packages_line(names(packages))
            )
        }
        (None, Some((skill, _))) => {
            format!("Packages come with a skill: name it in the call, for example \"{skill}\".")
        }
        _ => String::new(),
    };
    let gap = if here.is_empty() { "" } else { " " };
    Some(format!(
        "Module \"{module}\" is not here, and nothing can be installed at run time.{gap}{here}"
    ))
}

/// The module that a program of Python ended for.
fn missing_in_python(stderr: &str) -> Option<&str> {
    let last = stderr.trim_end().lines().last()?;
    last.strip_prefix("ModuleNotFoundError: No module named '")?
        .split('\'')
        .next()
}

/// The package that a program of Node ended for, by `require` or by `import`. A file that is missing is the program's own matter.
fn missing_in_node(stderr: &str) -> Option<&str> {
    /// Lines of the error that node shows last: the stack, of ten frames, and the files that led there.
    const LINES: usize = 60;
    const KNOWN: [&str; 2] = [
        "Error: Cannot find module '",
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '",
    ];
    let mut lines = stderr.trim_end().lines().rev();
    // Node's word for an error that nothing has caught.
    lines.next()?.strip_prefix("Node.js v")?;
    let name = |line: &str| {
        let rest = KNOWN.iter().find_map(|prefix| line.strip_prefix(prefix))?;
        Some(line.len() - rest.len())
    };
    let (line, at) = lines.take(LINES).find_map(|line| Some((line, name(line)?)))?;
    let module = line[at..].split('\'').next()?;
    (!module.starts_with(['.', '/'])).then_some(module)
}

/// Cuts a text to [`MAX_RESULT_BYTES`]: about 24 KiB of its head, 8 KiB of its tail, and a line between them with the
/// number of bytes that are left out.
pub fn cut(text: &str) -> String {
    if text.len() <= MAX_RESULT_BYTES {
        return text.to_owned();
    }
    // 64 bytes hold the line for any length of text.
    let head = text.floor_char_boundary(MAX_RESULT_BYTES - TAIL_BYTES - 64);
    let tail = text.ceil_char_boundary(text.len() - TAIL_BYTES);
    format!("{}\n[{} bytes cut here]\n{}", &text[..head], tail - head, &text[tail..])
}

/// Keeps an answer short that repeats what the model wrote.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(120)]
}

fn seconds(milliseconds: u64) -> String {
    let tenths = milliseconds.saturating_add(50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", (bytes + 500) / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}
