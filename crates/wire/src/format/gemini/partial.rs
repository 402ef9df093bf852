//! Function calls whose arguments are streamed in pieces (docs/design/wire-formats.md#calls-in-pieces).
//!
//! A part with the call's name and `willContinue` opens a call; parts with `partialArgs` fill it; the first part whose
//! `functionCall` has no `willContinue` closes it. The assembled part has the opening part's members and whole `args`.

use serde_json::{Map, Value};

use crate::json::{self, Span};

/// Most steps of one path into the arguments; deeper paths are ignored.
const MAX_STEPS: usize = 32;
/// Largest array index of a path; a bigger one would make room for nothing but nulls.
const MAX_INDEX: usize = 1_000;

/// Puts the pieces of one call together.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    open: Option<StreamedCall>,
}

#[derive(Debug)]
struct StreamedCall {
    /// The part that opened the call.
    part: Map<String, Value>,
    args: Value,
    /// Path of a string that the next piece continues.
    growing: Option<String>,
}

impl Assembler {
    /// Takes in one part: gives it back, or the call that it closes, or nothing while a call is open.
    pub(super) fn push(&mut self, src: &[u8], span: Span) -> Option<Vec<u8>> {
        let raw = span.of(src);
        let Some(call) = json::get(src, span, "functionCall") else {
            return Some(raw.to_vec());
        };
        let continues = json::get(src, call, "willContinue").is_some_and(|value| value.of(src) == b"true");
        if self.open.is_none() {
            if !continues {
                return Some(raw.to_vec());
            }
            let part = serde_json::from_slice(raw).ok()?;
            self.open = Some(StreamedCall {
                part,
                args: Value::Object(Map::new()),
                growing: None,
            });
        }
        let open = self.open.as_mut()?;
        if let Ok(Value::Array(pieces)) =
            serde_json::from_slice(json::get(src, call, "partialArgs").unwrap_or_default().of(src))
        {
            for piece in &pieces {
                open.take(piece);
            }
        }
        if continues {
            return None;
        }
        self.open.take().map(StreamedCall::close)
    }
}

impl StreamedCall {
    fn take(&mut self, piece: &Value) {
        let Some(path) = piece.get("jsonPath").and_then(Value::as_str) else {
            return;
        };
        let Some(slot) = steps(path).and_then(|steps| slot(&mut self.args, &steps)) else {
            return;
        };
        if let Some(text) = piece.get("stringValue").and_then(Value::as_str) {
            match slot {
                Value::String(old) if self.growing.as_deref() == Some(path) => old.push_str(text),
                _ => *slot = Value::from(text),
            }
        } else if let Some(value) = piece.get("numberValue").or_else(|| piece.get("boolValue")) {
            *slot = value.clone();
        } else {
            *slot = Value::Null;
        }
        self.growing = piece
            .get("willContinue")
            .and_then(Value::as_bool)
            .unwrap_or(false)
            .then(|| path.to_owned());
    }

    fn close(mut self) -> Vec<u8> {
        if let Some(Value::Object(call)) = self.part.get_mut("functionCall") {
            call.shift_remove("willContinue");
            call.shift_remove("partialArgs");
            call.insert("args".to_owned(), self.args);
        }
        Value::Object(self.part).to_string().into_bytes()
    }
}

enum PathStep {
    Key(String),
    Index(usize),
}

/// The steps of a normalised path: `$.a.b[0]['c d']`.
fn steps(path: &str) -> Option<Vec<PathStep>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= MAX_STEPS {
            return None;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            steps.push(PathStep::Key(after[..end].to_owned()));
            rest = &after[end..];
        } else {
            let (inner, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = inner
                .strip_prefix(['\'', '"'])
                .and_then(|inner| inner.strip_suffix(['\'', '"']));
            steps.push(match quoted {
                Some(key) => PathStep::Key(key.to_owned()),
                None => PathStep::Index(inner.parse().ok().filter(|index| *index <= MAX_INDEX)?),
            });
            rest = after;
        }
    }
    Some(steps)
}

/// The place at the end of a path, made where it is missing.
fn slot<'v>(root: &'v mut Value, steps: &[PathStep]) -> Option<&'v mut Value> {
    let mut value = root;
    for step in steps {
        value = match step {
            PathStep::Key(key) => {
                if !value.is_object() {
                    *value = Value::Object(Map::new());
                }
                value.as_object_mut()?.entry(key.as_str()).or_insert(Value::Null)
            }
            PathStep::Index(index) => {
                if !value.is_array() {
                    *value = Value::Array(Vec::new());
                }
                let list = value.as_array_mut()?;
                while list.len() <= *index {
                    list.push(Value::Null);
                }
                list.get_mut(*index)?
            }
        };
    }
    Some(value)
}
