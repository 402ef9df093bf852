//! What an answer says of its sources, beside its parts: places in its text, which have others in the one answer that the
//! client sees.
//!
//! A place is a part and bytes in it (`groundingMetadata`), or bytes of the whole text (`citationMetadata`). A stream's parts
//! are pieces of one text, so there it is always that text. Zeros are left out, as the JSON of protocol buffers does.

use serde_json::{Map, Value};

use crate::json::{self, Edits, Span};

/// The members of a candidate.
const MEMBERS: [&str; 3] = ["groundingMetadata", "citationMetadata", "urlContextMetadata"];
/// Lists of places in the whole text.
const SOURCES: [&str; 2] = ["citationSources", "citations"];

/// Where the parts of a round are in the answer.
pub(super) struct Places<'a> {
    /// Bytes of text before the round's own.
    pub(super) text_bytes: u64,
    /// The place in the answer of a part of the round, and the bytes that were put before its text; without a number it is
    /// the first that has text. `None` in a stream.
    pub(super) part: Option<&'a dyn Fn(Option<u64>) -> (u64, u64)>,
}

fn is_one(src: &[u8], member: &json::Member) -> bool {
    MEMBERS.iter().any(|key| json::key_is(src, member, key))
}

/// Whether a candidate has any of the members.
pub(super) fn has_any(src: &[u8], candidate: Span) -> bool {
    let members = json::members(src, candidate).unwrap_or_default();
    members
        .iter()
        .any(|member| is_one(src, member) && !json::is_null(src, member.value))
}

/// Takes the members out of a candidate.
pub(super) fn remove(src: &[u8], candidate: Span, edits: &mut Edits) {
    let members = json::members(src, candidate).unwrap_or_default();
    let gone: Vec<usize> = (0..members.len()).filter(|at| is_one(src, &members[*at])).collect();
    let spans: Vec<Span> = members.iter().map(json::Member::whole).collect();
    edits.remove_items(&spans, &gone);
}

/// What a candidate says, by its places in the answer.
pub(super) fn read(src: &[u8], candidate: Span, places: &Places<'_>) -> Map<String, Value> {
    let mut said = Map::new();
    for key in MEMBERS {
        let value = json::get(src, candidate, key).and_then(|span| serde_json::from_slice(span.of(src)).ok());
        if let Some(Value::Object(mut value)) = value {
            shift(&mut value, places);
            said.insert(key.to_owned(), Value::Object(value));
        }
    }
    said
}

fn shift(value: &mut Map<String, Value>, places: &Places<'_>) {
    for support in objects(value.get_mut("groundingSupports")) {
        let Some(Value::Object(segment)) = support.get_mut("segment") else {
            continue;
        };
        let Some(part) = places.part else {
            add(segment, places.text_bytes);
            continue;
        };
        let (index, bytes) = part(segment.get("partIndex").and_then(Value::as_u64));
        if index > 0 {
            segment.insert("partIndex".to_owned(), index.into());
        }
        add(segment, bytes);
    }
    for key in SOURCES {
        for source in objects(value.get_mut(key)) {
            add(source, places.text_bytes);
        }
    }
}

/// The objects in a list.
fn objects(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = list.and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Moves a place on. One without an end names none.
fn add(place: &mut Map<String, Value>, bytes: u64) {
    let Some(end) = place.get("endIndex").and_then(Value::as_u64).filter(|_| bytes > 0) else {
        return;
    };
    let start = place.get("startIndex").and_then(Value::as_u64).unwrap_or_default();
    place.insert("startIndex".to_owned(), start.saturating_add(bytes).into());
    place.insert("endIndex".to_owned(), end.saturating_add(bytes).into());
}

/// Adds what a later round says: its lists go on, of anything else the last one counts.
pub(super) fn merge(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (earlier.shift_remove(&key), value) {
            (Some(Value::Object(own)), Value::Object(more)) => earlier.insert(key, Value::Object(joined(own, more))),
            (_, value) => earlier.insert(key, value),
        };
    }
}

fn joined(mut own: Map<String, Value>, mut more: Map<String, Value>) -> Map<String, Value> {
    // Supports name their chunks by the place in the list.
    let chunks = own.get("groundingChunks").and_then(Value::as_array).map_or(0, Vec::len);
    for support in objects(more.get_mut("groundingSupports")) {
        let indices = support.get_mut("groundingChunkIndices").and_then(Value::as_array_mut);
        for index in indices.into_iter().flatten() {
            if let Some(place) = index.as_u64() {
                *index = place.saturating_add(chunks as u64).into();
            }
        }
    }
    for (key, value) in more {
        if let (Some(Value::Array(list)), Value::Array(more)) = (own.get_mut(&key), &value) {
            list.extend(more.iter().cloned());
        } else {
            own.insert(key, value);
        }
    }
    own
}
