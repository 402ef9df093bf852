//! The turns of a Gemini history.
//!
//! A client that streams keeps one content per frame and sends them all back, so neighbours of one role are one turn.
//! Signatures, thinking, ids of calls, what a model says in parts of a kind that is not known here (an SDK makes parts without any
//! member of those that it does not know), and the spelling of keys (`fileUri`, `file_uri`) are no part of what makes a message
//! the same message.

use std::borrow::Cow;

use serde_json::Value;

use super::canon::Canon;
use super::read::Fields;
use super::runs;
use super::turn::Speaker;
use super::turn::Turn;
use crate::json::{self, Span};

/// One turn for each run of contents of one role.
pub(crate) fn turns(src: &[u8], elements: &[Span]) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut open: Option<OpenTurn> = None;
    for (index, span) in elements.iter().enumerate() {
        let content = Fields::read(src, *span);
        let speaker = match &*content.text("role") {
            "model" => Speaker::Assistant,
            _ => Speaker::User,
        };
        if open.as_ref().is_some_and(|open| open.speaker != speaker) {
            turns.extend(open.take().map(|open| open.close(index)));
        }
        let open = open.get_or_insert_with(|| OpenTurn {
            start: index,
            speaker,
            canon: Canon::new(speaker),
            calls: Vec::new(),
        });
        for part in content.one_or_more("parts") {
            open.part(src, part);
        }
    }
    turns.extend(open.map(|open| open.close(elements.len())));
    turns
}

/// Kinds of parts of a model beside texts, calls, runs and inline data: those that clients keep.
const KINDS: [[&str; 2]; 4] = [
    ["fileData", "file_data"],
    ["toolCall", "tool_call"],
    ["toolResponse", "tool_response"],
    ["functionResponse", "function_response"],
];
const SIGNATURE: [&str; 2] = ["thoughtSignature", "thought_signature"];

/// JSON with every key as the API writes it. The Python SDK sends members of a part back in the other spelling.
fn camel_case(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'_') {
        return raw.into();
    }
    serde_json::from_slice(raw).map_or(raw.into(), |value| camel_value(value).to_string().into_bytes().into())
}

fn camel_value(value: Value) -> Value {
    match value {
        Value::Array(elements) => elements.into_iter().map(camel_value).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(key, value)| (camel_key(&key), camel_value(value)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

fn camel_key(key: &str) -> String {
    let mut words = key.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// A turn that may go on with the next content.
struct OpenTurn {
    start: usize,
    speaker: Speaker,
    canon: Canon,
    calls: Vec<String>,
}

impl OpenTurn {
    fn part(&mut self, src: &[u8], span: Span) {
        let part = Fields::read(src, span);
        if part.flag("thought") {
            return;
        }
        if let Some(text) = part.span("text").and_then(|span| json::text(src, span)) {
            return self.canon.text(&text);
        }
        for key in ["functionCall", "function_call"] {
            let call = part.object(key);
            if call.span("name").is_some() {
                let id = call.text("id").into_owned();
                // Ids are optional here, and clients leave them out of what they send back (LangChain does).
                self.canon.call("", &call.text("name"), call.raw("args"));
                return self.calls.push(id);
            }
        }
        // Ids of runs are optional too, and a client may leave an empty output out.
        if let Some((what, text)) = runs::canonical(&part) {
            return self.canon.other(&json::quoted(&format!("{what} {text}")));
        }
        for key in ["inlineData", "inline_data"] {
            let data = part.text_of(key, "data");
            if !data.is_empty() {
                // Both alphabets of base64 are one content: the Python SDK writes the one for URLs.
                let data = data.replace('-', "+").replace('_', "/");
                return self.canon.other(&json::quoted(&data));
            }
        }
        for member in json::members(src, span).unwrap_or_default() {
            let is_one_of = |keys: &[[&str; 2]]| keys.iter().flatten().any(|key| json::key_is(src, &member, key));
            let counts = match self.speaker {
                Speaker::Assistant => is_one_of(&KINDS),
                // What a client sends, it sends again, and other attachments are another conversation.
                _ => !is_one_of(&[SIGNATURE]),
            };
            if counts && !json::is_null(src, member.value) {
                self.canon.other(&camel_case(member.value.of(src)));
            }
        }
    }

    fn close(self, end: usize) -> Turn {
        Turn {
            elements: self.start..end,
            speaker: self.speaker,
            canon: Some(self.canon.finish()),
            calls: self.calls,
            reference: None,
            kept: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::turn::Link;

    fn canon(role: &str, part: &str) -> Link {
        let src = format!(r#"[{{"role":"{role}","parts":[{{"text":"Hi"}},{part}]}}]"#);
        let elements = json::elements(src.as_bytes(), json::document(src.as_bytes()).unwrap()).unwrap();
        turns(src.as_bytes(), &elements)[0].canon.unwrap()
    }

    #[test]
    fn what_sdks_make_of_a_part_is_the_same_part() {
        for (came, sent) in [
            (
                r#"{"fileData":{"mimeType":"image/png","fileUri":"gs://x"}}"#,
                r#"{"fileData":{"mime_type":"image/png","file_uri":"gs://x"}}"#,
            ),
            (
                r#"{"toolCall":{"id":"t","toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["x"]}},"thoughtSignature":"c2ln"}"#,
                r#"{"tool_call":{"id":"t","tool_type":"GOOGLE_SEARCH_WEB","args":{"queries":["x"]}}}"#,
            ),
            (
                r#"{"toolResponse":{"id":"t","toolType":"X","response":{"search_suggestions":"s","hits":[{"web_page":1}]}}}"#,
                r#"{"toolResponse":{"id":"t","tool_type":"X","response":{"search_suggestions":"s","hits":[{"web_page":1.0}]}}}"#,
            ),
            (r#"{"newThing":{"a":1}}"#, "{}"),
            (
                r#"{"fileData":{"fileUri":"a"},"newThing":{"a":1},"videoMetadata":{"fps":1}}"#,
                r#"{"fileData":{"fileUri":"a"}}"#,
            ),
        ] {
            assert_eq!(canon("model", came), canon("model", sent), "{came}");
        }
        for (one, other) in [
            (r#"{"fileData":{"fileUri":"a"}}"#, r#"{"fileData":{"fileUri":"b"}}"#),
            (r#"{"fileData":{"fileUri":"a"}}"#, "{}"),
            (
                r#"{"toolCall":{"args":{"a_b":1}}}"#,
                r#"{"toolCall":{"args":{"a_c":1}}}"#,
            ),
        ] {
            assert_ne!(canon("model", one), canon("model", other), "{one}");
        }
        // What users attach counts, whatever it is.
        assert_ne!(
            canon("user", r#"{"newThing":{"a":1}}"#),
            canon("user", r#"{"newThing":{"a":2}}"#)
        );
        assert_ne!(canon("user", r#"{"newThing":{"a":1}}"#), canon("user", "{}"));
    }
}
