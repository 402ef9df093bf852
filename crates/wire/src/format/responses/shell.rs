//! The tool `shell` where it is served here: its declaration, and runs in the API's own items.
//!
//! A shell in a container that is to be made (`container_auto`) may be Knack's, and one in a container of this gateway
//! (`container_reference`) is; one in the client's own environment (`local`) and one in a container of the provider's never
//! are. A `code_interpreter` is Knack's if its container or all of its files are, and its runs are shown as those of a shell.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::drive::CallResult;
use crate::format::run_ids;
use crate::json::{self, Edits, Span, ValueKind};
use crate::own_files;
use crate::request::{CodeTool, ContainerSkill, Injection, InlineSkill, Request, SkillVersion};
use crate::shown_run::{OWN_CALL, ShownEnd, ShownRun};

/// The tool's type, which is its name.
const SHELL: &str = "shell";

/// The environment of a tool that may be Knack's.
fn environment(src: &[u8], tool: Span) -> Option<Span> {
    let environment = own_files::code_environment(src, tool)?;
    let is_ours = is_own(src, environment) || {
        json::get_text(src, tool, "type").as_deref() == Some(SHELL)
            && json::get_text(src, environment, "type").as_deref() == Some("container_auto")
    };
    is_ours.then_some(environment)
}

/// Whether an environment is one of this gateway, or has files of it alone.
fn is_own(src: &[u8], environment: Span) -> bool {
    let files = own_files::file_ids(src, environment);
    own_files::container(src, environment).is_some_and(|id| own_files::is_own_container(&id))
        || (!files.is_empty() && files.iter().all(|id| own_files::is_own_file(id)))
}

/// Tools that may be Knack's, with their environments.
fn environments(request: &Request) -> Vec<(Span, Span)> {
    let src = request.raw();
    let tools = request.present("tools").and_then(|span| json::elements(src, span).ok());
    let tools = tools.unwrap_or_default().into_iter();
    tools.filter_map(|tool| Some((tool, environment(src, tool)?))).collect()
}

fn list(src: &[u8], environment: Span, key: &str) -> Vec<Span> {
    let list = json::get(src, environment, key).and_then(|span| json::elements(src, span).ok());
    list.unwrap_or_default()
}

/// The skills that are attached by reference, in order.
pub(super) fn skills(request: &Request) -> Vec<ContainerSkill> {
    let src = request.raw();
    let attached = environments(request)
        .into_iter()
        .flat_map(|(_, one)| list(src, one, "skills"));
    let reference = |span: Span| {
        let text = |key| json::get_text(src, span, key).map(Cow::into_owned);
        Some(ContainerSkill {
            kind: text("type")?,
            id: text("skill_id")?,
            version: SkillVersion::read(src, span, true),
        })
    };
    attached.filter_map(reference).collect()
}

/// The skills that are attached whole, in order.
pub(super) fn inline_skills(request: &Request) -> Vec<InlineSkill<'_>> {
    let src = request.raw();
    let environments = environments(request).into_iter();
    let attached = environments.flat_map(|(_, one)| list(src, one, "skills"));
    attached
        .filter(|entry| is_inline(src, *entry))
        .map(|entry| InlineSkill::read(src, entry))
        .collect()
}

/// Whether an entry of `skills` is a whole skill.
fn is_inline(src: &[u8], entry: Span) -> bool {
    json::get_text(src, entry, "type").as_deref() == Some("inline")
}

/// The shell of a request.
pub(super) fn tool(request: &Request) -> Option<CodeTool> {
    let src = request.raw();
    let environments = environments(request);
    let (tool, first) = *environments.first()?;
    Some(CodeTool {
        name: json::get_text(src, tool, "type").map_or_else(|| SHELL.to_owned(), Cow::into_owned),
        forced: forces(request).is_some(),
        only_there: only_there(src, first),
        own: is_own(src, first),
        inline_skills: environments
            .iter()
            .any(|(_, one)| list(src, *one, "skills").iter().any(|entry| is_inline(src, *entry))),
        memory_bytes: json::get_text(src, first, "memory_limit").and_then(|limit| gibibytes(&limit)),
        closes: false,
    })
}

/// The member that Knack's sandbox cannot serve: it has no network, and none of the provider's files.
fn only_there(src: &[u8], environment: Span) -> Option<&'static str> {
    let kind = |span: Span| json::get_text(src, span, "type");
    let network = json::get(src, environment, "network_policy").and_then(kind);
    if own_files::file_ids(src, environment)
        .iter()
        .any(|id| !own_files::is_own_file(id))
    {
        Some("file_ids")
    } else {
        network
            .is_some_and(|kind| kind != "disabled")
            .then_some("network_policy")
    }
}

/// A memory limit as the API spells it (`4g`), in bytes.
fn gibibytes(limit: &str) -> Option<u64> {
    limit.strip_suffix('g')?.parse::<u64>().ok()?.checked_mul(1 << 30)
}

/// The tool choice that forces the first tool that may be Knack's.
fn forces(request: &Request) -> Option<Span> {
    let (src, choice) = (request.raw(), request.present("tool_choice")?);
    let (tool, _) = *environments(request).first()?;
    let kind = json::get_text(src, tool, "type")?;
    (json::get_text(src, choice, "type")? == kind).then_some(choice)
}

/// Whether an injection changes the declaration of a shell.
pub(super) const fn changes(injection: &Injection) -> bool {
    injection.code_tool.is_some() || !injection.own_skills.is_empty() || injection.own_inline_skills
}

/// The rest of a tool: nothing of a shell that is Knack's, and another one without its foreign skills.
pub(super) fn kept(src: &[u8], tool: Span, injection: &Injection) -> Option<Vec<u8>> {
    let Some(environment) = environment(src, tool) else {
        return Some(tool.of(src).to_vec());
    };
    if injection.code_tool.is_some() {
        return None;
    }
    let skills = list(src, environment, "skills");
    let is_own = |span: &Span| {
        if is_inline(src, *span) {
            return injection.own_inline_skills;
        }
        json::get_text(src, *span, "skill_id").is_some_and(|id| injection.own_skills.iter().any(|own| *own == id))
    };
    let gone: Vec<usize> = (0..skills.len()).filter(|at| is_own(&skills[*at])).collect();
    let mut edits = Edits::new();
    edits.remove_items(&skills, &gone);
    let changed = edits.apply(src);
    let end = changed.len() - (src.len() - tool.end);
    Some(changed[tool.start..end].to_vec())
}

/// A forced shell that is Knack's is the forced tool that replaces it.
pub(super) fn choose(request: &Request, injection: &Injection, edits: &mut Edits) {
    if let (Some(name), Some(choice)) = (&injection.code_tool, forces(request)) {
        let mut value = br#"{"type":"function","name":"#.to_vec();
        json::push_string(&mut value, name);
        value.push(b'}');
        edits.replace(choice, value);
    }
}

/// The ids of Knack's two items, from that of their call.
fn item_ids(call_id: &str) -> [String; 2] {
    let rest = call_id.strip_prefix(OWN_CALL).unwrap_or(call_id);
    ITEMS.map(|prefix| format!("{prefix}{rest}"))
}

/// How the ids of Knack's two items begin.
const ITEMS: [&str; 2] = ["sh_knack_", "sho_knack_"];

/// The languages of code, by what gives it to their program in a shell: a here-document, whose delimiter follows.
const HEREDOCS: [(&str, &str); 2] = [("python", "python3 - <<'"), ("node", "node - <<'")];
/// The delimiter of a here-document, with a number behind it where a line of the code is the same.
const DELIMITER: &str = "CODE";

/// A delimiter that no line of the code is.
fn delimiter(code: &str) -> String {
    let lines: HashSet<&str> = code.split('\n').filter(|line| line.starts_with(DELIMITER)).collect();
    let numbered = (2..).map(|number| format!("{DELIMITER}_{number}"));
    let mut all = std::iter::once(DELIMITER.to_owned()).chain(numbered);
    all.find(|one| !lines.contains(&**one)).unwrap_or_default()
}

/// The code of a here-document, from its delimiter on.
fn heredoc(rest: &str) -> Option<&str> {
    let (delimiter, code) = rest.split_once("'\n")?;
    let number = delimiter.strip_prefix(DELIMITER)?;
    let is_ours = number.is_empty() || number.strip_prefix('_')?.bytes().all(|byte| byte.is_ascii_digit());
    is_ours.then_some(())?;
    code.strip_suffix(delimiter)?.strip_suffix('\n')
}

/// The shell command that a call of the tool that runs programs asks for.
pub(super) fn command(arguments: &str) -> String {
    let src = arguments.as_bytes();
    let members = json::object(src).unwrap_or_default();
    let text = |key| json::member(src, &members, key).and_then(|member| json::text(src, member.value));
    let Some(code) = text("code").filter(|code| !code.is_empty()) else {
        return text("command").map_or_else(|| arguments.to_owned(), Cow::into_owned);
    };
    let language = text("language").unwrap_or(Cow::Borrowed("python"));
    let begin = HEREDOCS.iter().find(|(name, _)| *name == language);
    let (_, begin) = begin.unwrap_or(&HEREDOCS[0]);
    let end = delimiter(&code);
    format!("{begin}{end}'\n{code}\n{end}")
}

/// The arguments whose [`command`] this is.
fn arguments(command: &str) -> Vec<u8> {
    let code = |(language, begin): &(&'static str, &str)| {
        let code = heredoc(command.strip_prefix(begin)?)?;
        Some((*language, code))
    };
    let mut out = Vec::new();
    if let Some((language, code)) = HEREDOCS.iter().find_map(code) {
        out.extend_from_slice(br#"{"code":"#);
        json::push_string(&mut out, code);
        if language != "python" {
            out.extend_from_slice(br#","language":"#);
            json::push_string(&mut out, language);
        }
    } else {
        out.extend_from_slice(br#"{"command":"#);
        json::push_string(&mut out, command);
    }
    out.push(b'}');
    out
}

/// A call as an item, before (`in_progress`) and after its command is known. `container`: where it runs, if that has an id.
pub(super) fn call_item(call_id: &str, commands: &[&str], status: &str, container: Option<&str>) -> Vec<u8> {
    let [id, _] = item_ids(call_id);
    let mut out = format!(
        r#"{{"type":"shell_call","id":"{id}","call_id":"{call_id}","status":"{status}","action":{{"commands":["#
    )
    .into_bytes();
    for (at, command) in commands.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        json::push_string(&mut out, command);
    }
    out.extend_from_slice(br#"],"timeout_ms":null,"max_output_length":null},"environment":"#);
    match container {
        Some(id) => {
            out.extend_from_slice(br#"{"type":"container_reference","container_id":"#);
            json::push_string(&mut out, id);
            out.extend_from_slice(b"}}");
        }
        None => out.extend_from_slice(b"null}"),
    }
    out
}

/// A result as an item; without output while it is `in_progress`.
pub(super) fn output_item(call_id: &str, output: &[u8], status: &str) -> Vec<u8> {
    let [_, id] = item_ids(call_id);
    let head = format!(
        r#"{{"type":"shell_call_output","id":"{id}","call_id":"{call_id}","status":"{status}","max_output_length":null,"output":["#
    );
    [head.as_bytes(), output, b"]}"].concat()
}

/// The id of the item of a result.
pub(super) fn output_id(call_id: &str) -> String {
    let [_, id] = item_ids(call_id);
    id
}

/// The output of the one command of a call.
pub(super) fn output(result: &CallResult) -> Vec<u8> {
    let run = result.native_run();
    let mut out = br#"{"stdout":"#.to_vec();
    json::push_string(&mut out, &run.stdout);
    out.extend_from_slice(br#","stderr":"#);
    json::push_string(&mut out, &run.stderr);
    if run.timed_out {
        out.extend_from_slice(br#","outcome":{"type":"timeout"}}"#);
    } else {
        let outcome = format!(r#","outcome":{{"type":"exit","exit_code":{}}}}}"#, run.return_code);
        out.extend_from_slice(outcome.as_bytes());
    }
    out
}

/// True for the items of a run of Knack.
pub(crate) fn is_own_item(kind: &str, call_id: &str) -> bool {
    matches!(kind, "shell_call" | "shell_call_output") && call_id.starts_with(OWN_CALL)
}

/// Whether a run of the upstream's call is what a client was shown as an item with the call id `own`.
pub(crate) fn is_run_of(own: &str, call_id: &str) -> bool {
    run_ids::is_of_call(own, OWN_CALL, call_id)
}

/// An item of Knack that a client sent, as the API lists items: with the members that are optional in a request.
pub(crate) fn as_listed(src: &[u8], item: Span) -> Vec<u8> {
    let text = |key| json::get_text(src, item, key).unwrap_or_default();
    let [call, output] = item_ids(&text("call_id"));
    let (id, other) = if text("type") == "shell_call" {
        (call, "environment")
    } else {
        (output, "max_output_length")
    };
    let own = item.of(src);
    let document = Span::new(0, own.len());
    let mut edits = Edits::new();
    for (key, value) in [
        ("id", json::quoted(&id)),
        ("status", json::quoted("completed")),
        (other, b"null".to_vec()),
    ] {
        match json::get(own, document, key) {
            Some(given) if json::is_null(own, given) => edits.replace(given, value),
            Some(_) => {}
            // It has other members: its type is one.
            None => edits.insert(1, [json::quoted(key), b":".to_vec(), value, b",".to_vec()].concat()),
        }
    }
    edits.apply(own)
}

/// An item of Knack as the provider knew it: a call of the tool `run_tool`, or its result, whose text `run_text` returns.
pub(crate) fn upstream(
    src: &[u8],
    item: Span,
    run_tool: &str,
    run_text: &mut dyn FnMut(&ShownRun) -> String,
) -> Option<Vec<u8>> {
    let text = |key| json::get_text(src, item, key).unwrap_or_default();
    let (kind, call_id) = (text("type"), text("call_id"));
    if kind == "item_reference" {
        return unsent(&text("id"), run_tool);
    }
    if !is_own_item(&kind, &call_id) {
        return None;
    }
    let mut out = Vec::new();
    if kind == "shell_call" {
        let commands = json::path(src, item, &["action", "commands"]).and_then(|span| json::elements(src, span).ok());
        let command = commands
            .unwrap_or_default()
            .first()
            .and_then(|span| json::text(src, *span));
        let command = command.unwrap_or_default();
        out.extend_from_slice(br#"{"type":"function_call","call_id":"#);
        json::push_string(&mut out, &call_id);
        out.extend_from_slice(br#","name":"#);
        json::push_string(&mut out, run_tool);
        out.extend_from_slice(br#","arguments":"#);
        json::push_string(&mut out, &String::from_utf8_lossy(&arguments(&command)));
    } else {
        let outputs = json::get(src, item, "output").filter(|span| json::kind(src, *span) == Some(ValueKind::Array));
        let outputs = outputs
            .and_then(|span| json::elements(src, span).ok())
            .unwrap_or_default();
        out.extend_from_slice(br#"{"type":"function_call_output","call_id":"#);
        json::push_string(&mut out, &call_id);
        out.extend_from_slice(br#","output":"#);
        json::push_string(
            &mut out,
            &outputs
                .iter()
                .map(|span| run_text(&seen(src, *span)))
                .collect::<Vec<_>>()
                .join("\n"),
        );
    }
    out.push(b'}');
    Some(out)
}

/// An item of Knack that a client names by its id: no provider has it. What it says is not known here.
fn unsent(id: &str, run_tool: &str) -> Option<Vec<u8>> {
    let [call, output] = ITEMS.map(|prefix| id.strip_prefix(prefix));
    let call_id = |rest: &str| json::quoted(&format!("{OWN_CALL}{rest}"));
    if let Some(rest) = call {
        let mut out = [
            br#"{"type":"function_call","call_id":"#,
            call_id(rest).as_slice(),
            br#","name":"#,
        ]
        .concat();
        json::push_string(&mut out, run_tool);
        out.extend_from_slice(br#","arguments":"{}"}"#);
        return Some(out);
    }
    let mut out = [
        br#"{"type":"function_call_output","call_id":"#,
        call_id(output?).as_slice(),
    ]
    .concat();
    out.extend_from_slice(br#","output":"result no longer available"}"#);
    Some(out)
}

/// An output of Knack.
fn seen(src: &[u8], output: Span) -> ShownRun {
    let text = |key| json::get_text(src, output, key).unwrap_or_default().into_owned();
    let code = json::path(src, output, &["outcome", "exit_code"]);
    let code = code.and_then(|span| std::str::from_utf8(span.of(src)).ok()?.parse().ok());
    ShownRun {
        stdout: text("stdout"),
        stderr: text("stderr"),
        ..ShownRun::new(code.map_or(ShownEnd::Timeout, ShownEnd::Exit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_what_runs_and_leads_back_to_the_call() {
        for (called, shown) in [
            (r#"{"command":"python3 a.py 2 3"}"#, "python3 a.py 2 3"),
            (r#"{"code":"print(1)"}"#, "python3 - <<'CODE'\nprint(1)\nCODE"),
            (r#"{"code":"a\nCODE\nb"}"#, "python3 - <<'CODE_2'\na\nCODE\nb\nCODE_2"),
            (
                r#"{"code":"CODE\nCODE_2\nCODE_4\n'"}"#,
                "python3 - <<'CODE_3'\nCODE\nCODE_2\nCODE_4\n'\nCODE_3",
            ),
            (
                r#"{"code":"console.log(1)","language":"node"}"#,
                "node - <<'CODE'\nconsole.log(1)\nCODE",
            ),
        ] {
            assert_eq!(command(called), shown);
            assert_eq!(String::from_utf8(arguments(shown)).unwrap(), called);
        }
        // As earlier versions showed it, and a command of the model's own.
        for (shown, called) in [
            ("python3 - <<'CODE'\na\nCODE\nb\nCODE", r#"{"code":"a\nCODE\nb"}"#),
            (
                "python3 - <<'EOF'\na\nEOF",
                r#"{"command":"python3 - <<'EOF'\na\nEOF"}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(arguments(shown)).unwrap(), called);
        }
        // What is shown of broken arguments is what came.
        assert_eq!(command("{\"code\": "), "{\"code\": ");
    }

    #[test]
    fn an_item_is_listed_with_all_that_an_output_has() {
        let listed = |item: &str| String::from_utf8(as_listed(item.as_bytes(), Span::new(0, item.len()))).unwrap();
        assert_eq!(
            listed(r#"{ "type":"shell_call","id":null,"call_id":"call_knack_1","action":{"commands":["ls"]}}"#),
            r#"{"status":"completed","environment":null, "type":"shell_call","id":"sh_knack_1","call_id":"call_knack_1","action":{"commands":["ls"]}}"#
        );
        assert_eq!(
            listed(r#"{"type":"shell_call_output","call_id":"call_knack_1","output":[]}"#),
            r#"{"id":"sho_knack_1","status":"completed","max_output_length":null,"type":"shell_call_output","call_id":"call_knack_1","output":[]}"#
        );
        let whole = String::from_utf8(output_item("call_knack_1", b"", "incomplete")).unwrap();
        assert_eq!(listed(&whole), whole);
    }

    #[test]
    fn an_item_that_is_only_named_is_a_call_or_a_result_without_what_it_said() {
        let named = |id: &str| {
            let item = format!(r#"{{"type":"item_reference","id":"{id}"}}"#);
            let sent = upstream(item.as_bytes(), Span::new(0, item.len()), "run_code", &mut |_| {
                String::new()
            })?;
            Some(String::from_utf8(sent).unwrap())
        };
        assert_eq!(
            named("sh_knack_r_0_c").as_deref(),
            Some(r#"{"type":"function_call","call_id":"call_knack_r_0_c","name":"run_code","arguments":"{}"}"#)
        );
        assert_eq!(
            named("sho_knack_r_0_c").as_deref(),
            Some(
                r#"{"type":"function_call_output","call_id":"call_knack_r_0_c","output":"result no longer available"}"#
            )
        );
        assert_eq!(named("msg_1"), None);
    }

    #[test]
    fn items_of_ours_are_known_by_the_id_of_their_call() {
        assert_eq!(item_ids("call_knack_r_0_c"), ["sh_knack_r_0_c", "sho_knack_r_0_c"]);
        assert!(is_own_item("shell_call", "call_knack_abc") && is_own_item("shell_call_output", "call_knack_abc"));
        assert!(!is_own_item("shell_call", "call_abc") && !is_own_item("function_call", "call_knack_abc"));
    }
}
