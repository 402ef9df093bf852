//! The script: what the model of the mock provider expects and says. YAML in, typed values out; no I/O.
//!
//! A script is a list of turns. A turn is chosen by the last text that a user wrote, a step of it by the number of
//! assistant messages since. Nothing is remembered between requests, as with a real model, so one mock serves many
//! conversations at once. `docs/mock-provider.md` is the reference for authors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::matcher::{Match, Matches};

/// A whole script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Number that goes into every id, so that two mocks of one test do not hand out the same ids.
    #[serde(default)]
    pub seed: u64,
    /// Model names listed by `GET /v1/models`; any model name is served.
    #[serde(default = "default_models")]
    pub models: Vec<String>,
    /// How strict the provider is where real ones differ.
    #[serde(default)]
    pub provider: Provider,
    /// The turns, first match first.
    pub turns: Vec<Turn>,
}

/// Settings in which real deployments differ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a script")]
pub struct Provider {
    /// Credential that every request must carry, in a header that clients of its API send it in; absent: none is required.
    pub api_key: Option<String>,
    /// Accepts a last message of role `assistant` in Messages. Newer models refuse it.
    pub prefill: bool,
    /// Accepts system messages after the first other message in Chat. Many compatible servers refuse them.
    pub late_system: bool,
    /// Accepts, in an open tool turn of Messages, thinking of an earlier answer apart from the call's own.
    pub foreign_thinking: bool,
    /// Has tools of its own that run programs: the shell of Responses, the code execution of Messages and
    /// Gemini. Compatible servers have none, and refuse them.
    pub code_tools: bool,
    /// Longest tool name in bytes in Messages: 128, or 64 in older deployments.
    pub messages_tool_name_bytes: usize,
}

impl Default for Provider {
    fn default() -> Self {
        Self {
            api_key: None,
            prefill: false,
            late_system: false,
            foreign_thinking: false,
            code_tools: true,
            messages_tool_name_bytes: 128,
        }
    }
}

/// One user turn: everything the model does after one text of the user.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Tests on the last real user text; absent: any.
    #[serde(default)]
    pub user: Matches,
    /// The steps, in the order of the rounds.
    pub rounds: Vec<Step>,
    /// The last step without `when` also answers every later round (a model that never stops).
    #[serde(default)]
    pub repeat_last: bool,
}

/// One answer of the model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Chooses this step for requests that meet all conditions, before any step is chosen by its place.
    pub when: Option<Conditions>,
    /// Conditions on the request; if it does not meet them, the answer is a 400 that starts with `script:`.
    pub expect: Conditions,
    /// Named pieces of the request, for `{{name}}` in texts and arguments.
    pub pick: BTreeMap<String, Pick>,
    /// The model's reply.
    pub reply: Reply,
    /// How the bytes are delivered.
    pub stream: Delivery,
    /// An error instead of the reply.
    pub fail: Option<Fail>,
}

/// Conditions on a request; every one that is present must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// The format spoken.
    pub format: Option<FormatName>,
    /// Whether a stream was asked for.
    pub stream: Option<bool>,
    /// Assistant messages since the last user text.
    pub round: Option<usize>,
    /// Tool results since the last user text.
    pub results: Option<usize>,
    /// Number of elements of `messages`, as sent.
    pub messages: Option<usize>,
    /// Tests on the last user text.
    pub user: Matches,
    /// Each must hold for at least one text of an earlier message (any role but system).
    pub history: Matches,
    /// Tests on the whole system text.
    pub system: Matches,
    /// None may hold for the system text.
    pub no_system: Matches,
    /// For each there must be a tool of a matching name.
    pub tool: Matches,
    /// No tool may have a matching name.
    pub no_tool: Matches,
    /// Each must hold for at least one tool result since the last user text.
    pub result: Matches,
    /// None may hold for any tool result since the last user text.
    pub no_result: Matches,
    /// Tests on the body's bytes, read as text.
    pub body: Matches,
    /// None may hold for the body's bytes.
    pub no_body: Matches,
    /// Tests on request headers, by lower-case name; an absent header is an empty text.
    pub header: BTreeMap<String, Matches>,
}

/// The formats that the mock serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatName {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// Gemini generateContent.
    Gemini,
}

/// A piece of the request: the first group of a pattern, or its whole match if it has no group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pick {
    /// The part of the request to search.
    pub from: PickFrom,
    /// The pattern.
    pub regex: String,
}

/// The text that a pick searches.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PickFrom {
    /// The system text.
    System,
    /// The last user text.
    User,
    /// The tool results since the last user text, joined by line ends.
    Results,
    /// The names of the tools, one per line.
    Tools,
}

/// The model's answer. The short form (`thinking`, `text`, `calls`) follows `blocks` in this order.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Blocks in their exact order.
    pub blocks: Vec<Block>,
    /// A thinking block; the signature is made by the mock. In Chat it is `reasoning_content`.
    pub thinking: Option<String>,
    /// Text; may hold `{{user}}`, `{{tools}}`, `{{results}}` and the names of `pick`.
    pub text: Option<String>,
    /// Tool calls.
    pub calls: Vec<Call>,
    /// `end`, `tool`, `length`, or the format's own word; absent: `tool` with calls, else `end`.
    pub stop: Option<String>,
    /// Usage numbers; absent ones are estimated from sizes.
    pub usage: UsageNumbers,
    /// Members added to the message (Chat) or to the response (Messages), for instance an unknown field.
    pub extra: Map<String, Value>,
}

/// One block of a reply.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// A signed thinking block.
    Thinking(String),
    /// A redacted thinking block; the text is its plain content before sealing.
    RedactedThinking(String),
    /// A text block.
    Text(String),
    /// A tool call.
    Call(Call),
    /// A block as written, for server tools and unknown types. Messages only.
    Raw(Value),
}

/// One tool call. The name is picked from the list that the request offers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Call {
    /// The first offered tool of a matching name.
    pub tool: Option<Match>,
    /// A name that is called although it was not offered.
    pub unlisted: Option<String>,
    /// The arguments; strings may hold `{{…}}`.
    pub arguments: Option<Value>,
    /// Arguments as they go out, valid JSON or not. In Messages without a stream they must be JSON.
    pub raw_arguments: Option<String>,
    /// The call id; absent: made by the mock.
    pub id: Option<String>,
}

/// Usage numbers in tokens.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageNumbers {
    /// Input tokens (Messages: those neither read from nor written to the cache).
    pub input: Option<u64>,
    /// Output tokens, thinking included.
    pub output: Option<u64>,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
    /// Output tokens spent on thinking.
    pub thinking: Option<u64>,
}

/// How the bytes of an answer are delivered, streamed or not.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delivery {
    /// Cuts the bytes into chunks of this size, anywhere; absent: one chunk per event, or the body at once.
    pub chunk_bytes: Option<usize>,
    /// Pause between two chunks, in milliseconds.
    pub delay_ms: u64,
    /// Pause before the response's head, in milliseconds.
    pub head_ms: u64,
    /// Pause between the head and the first byte of the body, in milliseconds.
    pub first_byte_ms: u64,
    /// Breaks the connection after this many bytes.
    pub die_after_bytes: Option<usize>,
    /// Ends the body cleanly, but too early, after this many bytes.
    pub end_after_bytes: Option<usize>,
    /// Puts `garbage` after this many bytes.
    pub garbage_after_bytes: Option<usize>,
    /// The garbage; absent: bytes that are neither UTF-8 nor an event.
    pub garbage: Option<String>,
    /// Says nothing more after this many bytes, for `silence_ms`.
    pub silence_after_bytes: Option<usize>,
    /// Length of the silence in milliseconds; absent: until the caller leaves.
    pub silence_ms: Option<u64>,
    /// Characters per text, thinking or argument delta.
    pub piece_chars: usize,
    /// Line ends of the events.
    pub line_end: LineEnd,
    /// Sends a ping (Messages) or a comment (Chat) after every n-th event; absent: Messages pings once.
    pub ping_every: Option<usize>,
    /// Ways in which compatible Chat servers differ.
    pub chat: ChatQuirks,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            chunk_bytes: None,
            delay_ms: 0,
            head_ms: 0,
            first_byte_ms: 0,
            die_after_bytes: None,
            end_after_bytes: None,
            garbage_after_bytes: None,
            garbage: None,
            silence_after_bytes: None,
            silence_ms: None,
            piece_chars: 12,
            line_end: LineEnd::Lf,
            ping_every: None,
            chat: ChatQuirks::default(),
        }
    }
}

/// Line ends of events on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// `\n`.
    Lf,
    /// `\r\n`.
    Crlf,
    /// `\r`.
    Cr,
}

/// Ways in which compatible Chat servers stream differently.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a script, each a YAML flag"
)]
pub struct ChatQuirks {
    /// Every call arrives whole in one delta.
    pub whole_calls: bool,
    /// All calls of the turn arrive in one chunk, whole.
    pub calls_in_one_chunk: bool,
    /// Deltas of calls have no `index`; a new id starts a new call. Implies `whole_calls`.
    pub no_index: bool,
    /// `finish_reason` is `stop` although there are calls.
    pub stop_with_calls: bool,
    /// Every chunk has an `obfuscation` member unless the request switched it off.
    pub obfuscation: bool,
}

/// An error answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// HTTP status.
    pub status: u16,
    /// `error.type`; absent: the format's own for the status.
    #[serde(default)]
    pub kind: Option<String>,
    /// `error.message`.
    #[serde(default)]
    pub message: Option<String>,
    /// The whole body, instead of the format's error object.
    #[serde(default)]
    pub body: Option<Value>,
    /// The whole body as text, for instance a proxy's HTML page.
    #[serde(default)]
    pub raw_body: Option<String>,
    /// `retry-after` header: seconds or a date.
    #[serde(default)]
    pub retry_after: Option<Value>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Fails only the first n requests with the same body; absent: every one.
    #[serde(default)]
    pub times: Option<usize>,
}

fn default_models() -> Vec<String> {
    vec!["mock".to_owned(), "gpt-x".to_owned(), "claude-x".to_owned()]
}

/// Why a script cannot be used. The text names line, field and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The YAML does not parse or has a wrong shape.
    #[error("mock script, line {line}, column {column}: {message}; docs/mock-provider.md lists the fields")]
    Shape {
        /// Line, from 1; 0 if unknown.
        line: u64,
        /// Column, from 1; 0 if unknown.
        column: u64,
        /// The error.
        message: String,
    },
    /// The YAML has the right shape but says something impossible.
    #[error("mock script, {path}: {message}")]
    Meaning {
        /// The object, for instance `turns[0].rounds[2].reply.calls[0]`.
        path: String,
        /// The error and its remedy.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(yaml: &str) -> String {
        Script::parse(yaml).unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_script_parses() {
        assert!(!Script::built_in().turns.is_empty());
    }

    #[test]
    fn a_step_has_every_part_that_the_reference_names() {
        let script = Script::parse(
            "seed: 3\nprovider: {prefill: true, api_key: k}\nturns:\n- user: gif\n  repeat_last: true\n  rounds:\n  - when: {format: chat, round: 0}\n    expect:\n      tool: [load_skill, {suffix: __x}]\n      system: {line: '# Skills'}\n      messages: 2\n    pick: {skill: {from: system, regex: 'name=\"([^\"]+)\"'}}\n    reply:\n      thinking: hm\n      text: Let me see.\n      calls:\n      - tool: load_skill\n        arguments: {skill: '{{skill}}', n: 1.5}\n      stop: tool\n      usage: {input: 10, output: 5}\n      extra: {mood: good}\n    stream: {chunk_bytes: 7, delay_ms: 1, die_after_bytes: 9, line_end: crlf, chat: {whole_calls: true}}\n  - fail: {status: 429, retry_after: 1, times: 2}\n",
        )
        .unwrap();
        let step = &script.turns[0].rounds[0];
        assert_eq!(
            step.reply.calls[0].arguments,
            Some(serde_json::json!({"skill": "{{skill}}", "n": 1.5}))
        );
        assert_eq!(step.stream.line_end, LineEnd::Crlf);
        assert_eq!(script.turns[0].rounds[1].fail.as_ref().unwrap().times, Some(2));
    }

    #[test]
    fn blocks_keep_their_order() {
        let script = Script::parse(
            "turns:\n- rounds:\n  - reply:\n      blocks:\n      - text: a\n      - call: {unlisted: f}\n      - thinking: t\n      - raw: {type: odd}\n",
        )
        .unwrap();
        let blocks = &script.turns[0].rounds[0].reply.blocks;
        assert!(matches!(blocks[0], Block::Text(_)) && matches!(blocks[1], Block::Call(_)));
        assert!(matches!(blocks[2], Block::Thinking(_)) && matches!(blocks[3], Block::Raw(_)));
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let error = error_of("turns:\n- rounds:\n  - reply: {txt: a}\n");
        assert!(error.contains("line 3") && error.contains("txt"), "{error}");
    }

    #[test]
    fn broken_yaml_and_wrong_types_have_a_line() {
        for (yaml, line) in [
            ("turns:\n- rounds: [\n", "line "),
            ("turns:\n- rounds:\n  - stream:\n      chunk_bytes: many\n", "line 4"),
            ("seed: 1\n", "line "),
        ] {
            let error = error_of(yaml);
            assert!(error.contains(line), "{yaml:?}: {error}");
        }
    }
}
