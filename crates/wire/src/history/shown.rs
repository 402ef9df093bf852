//! Knack's native blocks in a Messages history (shown mode), which are recognised by their ids alone.
//!
//! In shown mode a client sees Knack's runs as the vendor's own server tools, with ids that begin with `srvtoolu_knack_`.
//! They are sent back with the history and can do without a saved turn: with active skills each run of calls and their
//! results becomes an assistant turn with calls of the run tool and a user turn with their results; without, they are
//! removed.

use super::read::Fields;
use super::result_texts::{ReplacedTurn, ResultTexts};
use super::turn_match::InjectionMode;
use crate::json::{self, Span};
use crate::shown_run::{ShownEnd, ShownRun};

/// Prefix of the ids of Knack's server tool blocks.
const OUR_USE: &str = "srvtoolu_knack_";
/// Prefix of the ids under which the upstream knew those calls.
const UPSTREAM_USE: &str = "toolu_";

/// True for the id of a server tool block that this gateway made.
pub fn is_our_use(id: &str) -> bool {
    id.starts_with(OUR_USE)
}

/// Expands or strips Knack's native blocks in one message. `None` if it has none.
pub(super) fn expand(
    src: &[u8],
    element: Span,
    mode: InjectionMode<'_>,
    words: &mut dyn ResultTexts,
) -> Option<ReplacedTurn> {
    let message = Fields::read(src, element);
    let blocks = message.elements("content");
    let ours: Vec<Option<ShownBlock>> = blocks.iter().map(|span| classify(src, *span)).collect();
    if ours.iter().all(Option::is_none) {
        return None;
    }
    Some(match mode {
        InjectionMode::Injecting { run_tool: Some(tool) } => expand_blocks(src, &blocks, ours, tool, words),
        InjectionMode::Injecting { run_tool: None } | InjectionMode::Off => strip_blocks(src, &blocks, &ours),
    })
}

/// Keeps the blocks that are not Knack's, as they are.
fn strip_blocks(src: &[u8], blocks: &[Span], ours: &[Option<ShownBlock>]) -> ReplacedTurn {
    let foreign = blocks.iter().zip(ours).filter(|(_, block)| block.is_none());
    let turn: Vec<Vec<u8>> = foreign.map(|(span, _)| span.of(src).to_vec()).collect();
    let mut change = ReplacedTurn::default();
    if !turn.is_empty() {
        change.messages.push(message_of("assistant", &turn));
    }
    change
}

/// Turns Knack's blocks into calls of the run tool and their results, in rounds.
fn expand_blocks(
    src: &[u8],
    blocks: &[Span],
    ours: Vec<Option<ShownBlock>>,
    tool: &str,
    words: &mut dyn ResultTexts,
) -> ReplacedTurn {
    let mut change = ReplacedTurn::default();
    let mut turn = Vec::new();
    let mut open: Vec<(String, String)> = Vec::new();
    for (span, block) in blocks.iter().zip(ours) {
        if let Some(ShownBlock::Result { id }) = block {
            let name = open
                .iter()
                .position(|(call, _)| *call == id)
                .map(|at| open.remove(at).1);
            // A result without its call has nothing to answer.
            if let Some(name) = name {
                let seen = seen(src, *span, name == tool);
                let run_text = words.run(&seen);
                let is_error = seen.end != ShownEnd::Exit(0);
                change.open_results.push(result_block(&id, &run_text.text, is_error));
                change.files.extend(run_text.files);
            }
            continue;
        }
        if !change.open_results.is_empty() {
            finish_round(&mut change, &mut turn);
        }
        if let Some(ShownBlock::Use { id }) = block {
            let call = call(src, *span, &id, tool);
            turn.push(call.block);
            open.push((id, call.name));
        } else {
            turn.push(span.of(src).to_vec());
        }
    }
    // A call without a result was asked for after the last allowed round and has not run.
    for (id, _) in open {
        change
            .open_results
            .push(result_block(&id, "result no longer available", true));
    }
    if !turn.is_empty() {
        change.messages.push(message_of("assistant", &turn));
    }
    change
}

/// Closes a round: the calls so far and their results become two messages.
fn finish_round(change: &mut ReplacedTurn, turn: &mut Vec<Vec<u8>>) {
    change.messages.push(message_of("assistant", &std::mem::take(turn)));
    let results = std::mem::take(&mut change.open_results);
    change.messages.push(message_of("user", &results));
}

fn message_of(role: &str, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!(r#"{{"role":"{role}","content":["#).into_bytes();
    out.extend_from_slice(&blocks.join(&b','));
    out.extend_from_slice(b"]}");
    out
}

enum ShownBlock {
    Use { id: String },
    Result { id: String },
}

fn classify(src: &[u8], span: Span) -> Option<ShownBlock> {
    let block = Fields::read(src, span);
    let kind = block.text("type");
    if kind == "server_tool_use" {
        let id = block.text("id");
        return is_our_use(&id).then(|| ShownBlock::Use { id: id.into_owned() });
    }
    let id = block.text("tool_use_id");
    (kind.ends_with("_tool_result") && is_our_use(&id)).then(|| ShownBlock::Result { id: id.into_owned() })
}

/// The id under which the upstream knew a call of Knack: `srvtoolu_knack_X` was `toolu_X`.
fn upstream_id(id: &str) -> String {
    format!("{UPSTREAM_USE}{}", id.strip_prefix(OUR_USE).unwrap_or(id))
}

/// A call of Knack as the model made it.
struct ShownCall {
    name: String,
    block: Vec<u8>,
}

fn call(src: &[u8], span: Span, id: &str, run_tool: &str) -> ShownCall {
    let (name, input) = original(src, Fields::read(src, span).span("input"), run_tool);
    let mut block = br#"{"type":"tool_use","id":"#.to_vec();
    json::push_string(&mut block, &upstream_id(id));
    block.extend_from_slice(br#","name":"#);
    json::push_string(&mut block, &name);
    block.extend_from_slice(br#","input":"#);
    block.extend_from_slice(&input);
    block.push(b'}');
    ShownCall { name, block }
}

/// Tool and input of a call from its native input, which begins with a `command` for clients that show it: it repeats
/// the code of the run tool, and has calls of other tools as `<name> <arguments>`.
fn original(src: &[u8], input: Option<Span>, run_tool: &str) -> (String, Vec<u8>) {
    let raw = input.map(|span| span.of(src)).unwrap_or_default();
    let members = json::object(raw).unwrap_or_default();
    let run = |input: &[u8]| {
        (
            run_tool.to_owned(),
            if input.is_empty() {
                b"{}".to_vec()
            } else {
                input.to_vec()
            },
        )
    };
    let Some((first, rest)) = members
        .split_first()
        .filter(|(first, _)| first.key.of(raw) == b"command")
    else {
        return run(raw);
    };
    let command = json::text(raw, first.value).unwrap_or_default();
    let code = json::member(raw, rest, "code").and_then(|code| json::text(raw, code.value));
    if code.is_some_and(|code| code.trim() == command) {
        let rest: Vec<&[u8]> = rest.iter().map(|member| member.whole().of(raw)).collect();
        return run(&[b"{", rest.join(&b","[..]).as_slice(), b"}"].concat());
    }
    if let Some((name, arguments)) = command.split_once(' ')
        && is_tool_name(name)
        && json::object(arguments.as_bytes()).is_ok_and(|own| own.len() == rest.len())
    {
        return (name.to_owned(), arguments.as_bytes().to_vec());
    }
    run(raw)
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A native result. `is_code`: of the tool that runs programs.
fn seen(src: &[u8], span: Span, is_code: bool) -> ShownRun {
    let content = Fields::read(src, span).object("content");
    let code = std::str::from_utf8(content.raw("return_code"))
        .ok()
        .and_then(|code| code.parse().ok());
    let end = match (code, &*content.text("error_code")) {
        (Some(code), _) => ShownEnd::Exit(code),
        (None, "execution_time_exceeded") => ShownEnd::Timeout,
        (None, _) => ShownEnd::Failed,
    };
    let files = content.elements("content").into_iter();
    let file_ids = files.map(|file| Fields::read(src, file).text("file_id").into_owned());
    ShownRun {
        is_code,
        stdout: content.text("stdout").into_owned(),
        stderr: content.text("stderr").into_owned(),
        file_ids: file_ids.filter(|id| !id.is_empty()).collect(),
        ..ShownRun::new(end)
    }
}

fn result_block(id: &str, text: &str, is_error: bool) -> Vec<u8> {
    let mut out = br#"{"type":"tool_result","tool_use_id":"#.to_vec();
    json::push_string(&mut out, &upstream_id(id));
    out.extend_from_slice(br#","content":"#);
    json::push_string(&mut out, text);
    if is_error {
        out.extend_from_slice(br#","is_error":true"#);
    }
    out.push(b'}');
    out
}
