//! From a step to what the model says: names picked from the offered tools, texts filled in, ids and numbers set. Pure.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::received::Received;
use super::script::{Block, Call, FormatName, PickFrom, Reply, Step};
use super::signature;

/// Bytes per token in estimates, as everywhere in Knack.
const BYTES_PER_TOKEN: usize = 4;
/// Longest usable call id in bytes: some deployments refuse more than 40.
#[cfg(test)]
const MAX_CALL_ID_BYTES: usize = 40;

/// One block of an answer, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Thinking {
        text: String,
        signature: String,
    },
    Redacted {
        data: String,
    },
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Raw(Value),
}

/// Token numbers of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) thinking: u64,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    pub(super) id: String,
    pub(super) model: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) pieces: Vec<Piece>,
    /// The format's own stop word.
    pub(super) stop: String,
    pub(super) usage: Usage,
    pub(super) extra: Map<String, Value>,
}

/// Values of an answer that neither script nor request gives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    /// The script's number.
    pub(super) seed: u64,
    /// Number of this answer, unique within the mock.
    pub(super) number: u64,
    /// Seconds since 1970.
    pub(super) created: u64,
}

/// Says what the step says.
///
/// Errors: a text, if a call's tool is not offered or a `pick` finds nothing.
pub(super) fn complete(step: &Step, received: &Received, stamp: Stamp) -> Result<Completion, String> {
    let words = picked_words(step, received)?;
    let mut speaker = Speaker {
        received,
        words,
        stamp,
        pieces: Vec::new(),
        signatures: Vec::new(),
        calls: 0,
    };
    for block in &step.reply.blocks {
        speaker.say(block)?;
    }
    if let Some(thinking) = &step.reply.thinking {
        speaker.think(thinking);
    }
    if let Some(text) = &step.reply.text {
        speaker.say(&Block::Text(text.clone()))?;
    }
    for call in &step.reply.calls {
        speaker.call(call)?;
    }
    let Speaker { pieces, calls, .. } = speaker;
    let id = match received.format {
        FormatName::Chat => format!("chatcmpl-mock{}x{}", stamp.seed, stamp.number),
        FormatName::Messages => format!("msg_01mock{}x{}", stamp.seed, stamp.number),
        FormatName::Responses => format!("resp_mock{}x{}", stamp.seed, stamp.number),
        FormatName::Gemini => format!("mock{}x{}", stamp.seed, stamp.number),
    };
    Ok(Completion {
        id,
        model: received.model.clone(),
        created: stamp.created,
        stop: stop_word(received.format, step.reply.stop.as_deref(), calls > 0),
        usage: usage(&step.reply, received, &pieces),
        pieces,
        extra: step.reply.extra.clone(),
    })
}

/// The input tokens of a request by its size; the count route answers the same number.
pub(super) fn input_tokens(received: &Received) -> u64 {
    u64::try_from(received.body.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

struct Speaker<'a> {
    received: &'a Received,
    words: BTreeMap<String, String>,
    stamp: Stamp,
    pieces: Vec<Piece>,
    /// Signatures and sealed data of the thinking blocks so far.
    signatures: Vec<String>,
    calls: usize,
}

impl Speaker<'_> {
    fn say(&mut self, block: &Block) -> Result<(), String> {
        match block {
            Block::Thinking(text) => self.think(text),
            Block::RedactedThinking(text) => {
                let data = signature::seal(text);
                self.signatures.push(data.clone());
                self.pieces.push(Piece::Redacted { data });
            }
            Block::Text(text) => self.pieces.push(Piece::Text(filled(text, &self.words))),
            Block::Call(call) => self.call(call)?,
            Block::Raw(value) => self.pieces.push(Piece::Raw(value.clone())),
        }
        Ok(())
    }

    fn think(&mut self, text: &str) {
        let text = filled(text, &self.words);
        let signature = signature::sign(&text);
        self.signatures.push(signature.clone());
        self.pieces.push(Piece::Thinking { text, signature });
    }

    fn call(&mut self, call: &Call) -> Result<(), String> {
        let name = match (&call.unlisted, &call.tool) {
            (Some(name), _) => name.clone(),
            (None, Some(matcher)) => {
                let found = self.received.tools.iter().find(|name| matcher.holds_for_name(name));
                found.cloned().ok_or_else(|| {
                    let offered = self.received.tools.join(", ");
                    format!("the reply calls a tool named {matcher}, but the request offers: {offered}")
                })?
            }
            (None, None) => return Err("a call without a tool".to_owned()),
        };
        let arguments = match (&call.raw_arguments, &call.arguments) {
            (Some(raw), _) => filled(raw, &self.words),
            (None, Some(value)) => filled_value(value, &self.words).to_string(),
            (None, None) => "{}".to_owned(),
        };
        let id = call.id.clone().unwrap_or_else(|| self.call_id());
        self.calls += 1;
        self.pieces.push(Piece::Call { id, name, arguments });
        Ok(())
    }

    fn call_id(&self) -> String {
        let Stamp { seed, number, .. } = self.stamp;
        let index = self.calls;
        match self.received.format {
            FormatName::Chat | FormatName::Responses => format!("call_mock{seed}x{number}x{index}"),
            FormatName::Gemini => format!("fc_mock{seed}x{number}x{index}"),
            FormatName::Messages => format!("toolu_mock{seed}x{number}x{index}{}", signature::mark(&self.signatures)),
        }
    }
}

/// The values of `{{…}}`: the built-in names and those of `pick`.
fn picked_words(step: &Step, received: &Received) -> Result<BTreeMap<String, String>, String> {
    let tools = received.tools.join(", ");
    let mut words = BTreeMap::from([
        ("user".to_owned(), received.user.clone()),
        (
            "tools".to_owned(),
            if tools.is_empty() { "none".to_owned() } else { tools },
        ),
        ("results".to_owned(), received.results.join("\n")),
    ]);
    for (name, pick) in &step.pick {
        let text = match pick.from {
            PickFrom::System => received.system.clone(),
            PickFrom::User => received.user.clone(),
            PickFrom::Results => received.results.join("\n"),
            PickFrom::Tools => received.tools.join("\n"),
        };
        let pattern = Regex::new(&pick.regex).map_err(|error| error.to_string())?;
        let captures = pattern.captures(&text).ok_or_else(|| {
            format!(
                "pick {name}: the pattern {:?} is not found in {:?}",
                pick.regex, pick.from
            )
        })?;
        let found = captures
            .get(1)
            .or_else(|| captures.get(0))
            .map_or("", |group| group.as_str());
        words.insert(name.clone(), found.to_owned());
    }
    Ok(words)
}

/// Replaces `{{name}}` once, left to right; unknown names stay, values are not expanded again.
fn filled(text: &str, words: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, after) = rest.split_at(start);
        out.push_str(before);
        let word = after[2..]
            .find("}}")
            .and_then(|end| Some((words.get(after[2..2 + end].trim())?, end + 4)));
        let (text, taken) = word.map_or(("{{", 2), |(word, taken)| (word.as_str(), taken));
        out.push_str(text);
        rest = &after[taken..];
    }
    out.push_str(rest);
    out
}

fn filled_value(value: &Value, words: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => Value::String(filled(text, words)),
        Value::Array(items) => Value::Array(items.iter().map(|item| filled_value(item, words)).collect()),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(key, item)| (key.clone(), filled_value(item, words)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn stop_word(format: FormatName, stop: Option<&str>, has_calls: bool) -> String {
    let stop = stop.unwrap_or(if has_calls { "tool" } else { "end" });
    let word = match (format, stop) {
        (FormatName::Chat, "end") => "stop",
        (FormatName::Chat, "tool") => "tool_calls",
        (FormatName::Messages, "end") => "end_turn",
        (FormatName::Messages, "tool") => "tool_use",
        (FormatName::Messages, "length") => "max_tokens",
        (FormatName::Responses, "end" | "tool") => "completed",
        (FormatName::Gemini, "end" | "tool") => "STOP",
        (FormatName::Gemini, "length") => "MAX_TOKENS",
        (_, own) => own,
    };
    word.to_owned()
}

fn usage(reply: &Reply, received: &Received, pieces: &[Piece]) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
    let (mut output, mut thinking) = (0, 0);
    for piece in pieces {
        output += match piece {
            Piece::Thinking { text, .. } => {
                thinking += text.len();
                text.len()
            }
            Piece::Redacted { data } => data.len(),
            Piece::Text(text) => text.len(),
            Piece::Call { name, arguments, .. } => name.len() + arguments.len(),
            Piece::Raw(value) => value.to_string().len(),
        };
    }
    let numbers = &reply.usage;
    Usage {
        input: numbers.input.unwrap_or_else(|| input_tokens(received)),
        output: numbers.output.unwrap_or_else(|| tokens(output).max(1)),
        cache_read: numbers.cache_read,
        cache_write: numbers.cache_write,
        thinking: numbers.thinking.unwrap_or_else(|| tokens(thinking)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::script::Script;

    const STAMP: Stamp = Stamp {
        seed: 7,
        number: 2,
        created: 1_763_760_000,
    };

    fn completed(format: FormatName, reply_yaml: &str) -> Result<Completion, String> {
        let script =
            Script::parse(&format!("turns:\n- rounds:\n  - {reply_yaml}\n")).map_err(|error| error.to_string())?;
        let body = json!({"model": "m", "system": "Use <skill name=\"csv\">.", "messages": [{"role": "user", "content": "hi {{x}}"}],
            "tools": [{"name": "load_skill"}, {"name": "ball__draw"}]});
        let received = Received::read(format, &body, body.to_string().as_bytes(), Vec::new());
        complete(&script.turns[0].rounds[0], &received, STAMP)
    }

    #[test]
    fn names_are_picked_from_the_offered_tools() {
        let completion = completed(
            FormatName::Chat,
            "reply: {calls: [{tool: {suffix: __draw}, arguments: {n: 1}}, {unlisted: ghost}]}",
        )
        .unwrap();
        assert_eq!(completion.stop, "tool_calls");
        assert_eq!(
            completion.pieces,
            [
                Piece::Call {
                    id: "call_mock7x2x0".into(),
                    name: "ball__draw".into(),
                    arguments: "{\"n\":1}".into()
                },
                Piece::Call {
                    id: "call_mock7x2x1".into(),
                    name: "ghost".into(),
                    arguments: "{}".into()
                },
            ]
        );
        let error = completed(FormatName::Chat, "reply: {calls: [{tool: nothing}]}").unwrap_err();
        assert!(
            error.contains("\"nothing\"") && error.contains("load_skill, ball__draw"),
            "{error}"
        );
    }

    #[test]
    fn words_are_filled_in_once_and_unknown_ones_stay() {
        let completion = completed(
            FormatName::Messages,
            "pick: {skill: {from: system, regex: 'name=\"([^\"]+)\"'}}\n    reply: {text: '{{user}}|{{ skill }}|{{nope}}|{{', calls: [{unlisted: f, arguments: {a: ['{{skill}}']}}]}",
        )
        .unwrap();
        assert_eq!(completion.pieces[0], Piece::Text("hi {{x}}|csv|{{nope}}|{{".into()));
        assert!(matches!(&completion.pieces[1], Piece::Call { arguments, .. } if arguments == "{\"a\":[\"csv\"]}"));
        let error = completed(FormatName::Chat, "pick: {a: {from: user, regex: zebra}}").unwrap_err();
        assert!(error.contains("zebra"), "{error}");
    }

    #[test]
    fn calls_behind_thinking_carry_its_mark_within_the_id_limit() {
        let completion = completed(
            FormatName::Messages,
            "reply: {blocks: [{call: {unlisted: a}}, {thinking: T}, {redacted_thinking: R}], calls: [{unlisted: b}]}",
        )
        .unwrap();
        let ids: Vec<&String> = completion
            .pieces
            .iter()
            .filter_map(|piece| {
                if let Piece::Call { id, .. } = piece {
                    Some(id)
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(signature::mark_of(ids[0]), None);
        assert!(signature::mark_of(ids[1]).is_some());
        assert!(ids.iter().all(|id| id.len() <= MAX_CALL_ID_BYTES));
    }

    #[test]
    fn numbers_are_deterministic_and_can_be_set() {
        let estimated = completed(FormatName::Messages, "reply: {thinking: 12345678, text: abcdef}")
            .unwrap()
            .usage;
        assert_eq!((estimated.output, estimated.thinking), (4, 2));
        assert!(estimated.input > 10);
        let set = completed(
            FormatName::Messages,
            "reply: {text: a, usage: {input: 5, output: 6, cache_read: 7, cache_write: 8, thinking: 1}}",
        );
        assert_eq!(
            set.unwrap().usage,
            Usage {
                input: 5,
                output: 6,
                cache_read: 7,
                cache_write: 8,
                thinking: 1
            }
        );
    }

    #[test]
    fn stop_words_are_the_formats_own() {
        for (format, stop, word) in [
            (FormatName::Chat, "length", "length"),
            (FormatName::Messages, "length", "max_tokens"),
            (FormatName::Messages, "pause_turn", "pause_turn"),
            (FormatName::Messages, "tool", "tool_use"),
        ] {
            assert_eq!(
                completed(format, &format!("reply: {{text: a, stop: {stop}}}"))
                    .unwrap()
                    .stop,
                word
            );
        }
    }
}
