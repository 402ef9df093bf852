//! One content block of a turn, gathered from its deltas.

use bytes::Bytes;

use crate::json::{self, Edits, Span, ValueKind};

/// The member of a call that names the client's toolset, as in `browser`.
pub(super) const TOOLSET: &str = "toolset_name";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ContentBlock {
    /// Upstream's number.
    pub(super) index: u64,
    /// The number that the client sees.
    pub(super) shown: Option<u64>,
    /// Already among the blocks of [`super::codec::MessagesCodec`] that were shown.
    pub(super) folded: bool,
    pub(super) closed: bool,
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) name: String,
    /// The block as it started; the whole block in a body.
    start: Bytes,
    /// Strings that grow: member and text as written, the start's included.
    texts: Vec<(Vec<u8>, Vec<u8>)>,
    /// `partial_json` pieces, as written.
    input: Option<Vec<u8>>,
    citations: Vec<Vec<u8>>,
}

impl ContentBlock {
    /// A block as it starts, or whole.
    pub(super) fn new(index: u64, start: Bytes) -> Self {
        let span = Span::new(0, start.len());
        let text = |key| json::get_text(&start, span, key).unwrap_or_default().into_owned();
        let (kind, id) = (text("type"), text("id"));
        // A tool of a toolset is the client's, whatever it is called.
        let name = match text(TOOLSET) {
            set if set.is_empty() => text("name"),
            set => format!("{set}.{}", text("name")),
        };
        Self {
            index,
            kind,
            id,
            name,
            start,
            ..Self::default()
        }
    }

    /// Takes in a delta; unknown kinds grow the string members that they name.
    pub(super) fn merge(&mut self, src: &[u8], delta: Span) {
        let members = json::members(src, delta).unwrap_or_default();
        let kind = json::member(src, &members, "type")
            .and_then(|member| json::raw_text(src, member.value))
            .unwrap_or_default();
        for member in &members {
            let key = member.key.of(src);
            match key {
                b"type" => {}
                b"partial_json" => {
                    let piece = json::raw_text(src, member.value).unwrap_or_default();
                    self.input.get_or_insert_default().extend_from_slice(piece);
                }
                b"citation" => self.citations.push(member.value.of(src).to_vec()),
                _ => {
                    let Some(piece) = json::raw_text(src, member.value) else {
                        continue;
                    };
                    let text = self.text_of(key);
                    // The signature is sent once, whole.
                    if kind == b"signature_delta" {
                        text.clear();
                    }
                    text.extend_from_slice(piece);
                }
            }
        }
    }

    fn text_of(&mut self, key: &[u8]) -> &mut Vec<u8> {
        let at = self.texts.iter().position(|(own, _)| own == key).unwrap_or_else(|| {
            let name = String::from_utf8_lossy(key);
            let begun = json::get(&self.start, Span::new(0, self.start.len()), &name);
            let begun = begun
                .and_then(|span| json::raw_text(&self.start, span))
                .unwrap_or_default()
                .to_vec();
            self.texts.push((key.to_vec(), begun));
            self.texts.len() - 1
        });
        &mut self.texts[at].1
    }

    /// The arguments of a call, as far as they have come.
    pub(super) fn arguments(&self) -> String {
        match &self.input {
            Some(pieces) => json::unescape(pieces).into_owned(),
            None => self
                .start_input()
                .map(|span| String::from_utf8_lossy(span.of(&self.start)).into_owned())
                .unwrap_or_default(),
        }
    }

    fn start_input(&self) -> Option<Span> {
        json::get(&self.start, Span::new(0, self.start.len()), "input")
    }

    /// The whole block. Arguments that are not an object become `{}`: nothing else may be sent back.
    pub(super) fn json(&self) -> Bytes {
        let mut edits = Edits::new();
        let span = Span::new(0, self.start.len());
        let mut set = |key: &str, value: Vec<u8>| {
            if let Some(old) = json::get(&self.start, span, key) {
                edits.replace(old, value);
            } else {
                let mut member = b",".to_vec();
                json::push_string(&mut member, key);
                member.push(b':');
                member.extend_from_slice(&value);
                edits.insert(self.start.len() - 1, member);
            }
        };
        for (key, text) in &self.texts {
            set(&String::from_utf8_lossy(key), [b"\"", text.as_slice(), b"\""].concat());
        }
        if self.input.is_some() {
            let written = self.arguments();
            let object = json::document(written.as_bytes())
                .ok()
                .filter(|span| json::kind(written.as_bytes(), *span) == Some(ValueKind::Object));
            set(
                "input",
                object.map_or_else(|| b"{}".to_vec(), |span| span.of(written.as_bytes()).to_vec()),
            );
        }
        if !self.citations.is_empty() {
            set(
                "citations",
                [b"[", self.citations.join(&b","[..]).as_slice(), b"]"].concat(),
            );
        }
        if edits.is_empty() {
            self.start.clone()
        } else {
            edits.apply(&self.start).into()
        }
    }

    /// True for thinking, sealed or not.
    pub(super) fn is_thinking(&self) -> bool {
        matches!(self.kind.as_str(), "thinking" | "redacted_thinking")
    }

    /// True for a text block without text or of white space, which is refused as input.
    pub(super) fn is_blank(&self) -> bool {
        if self.kind != "text" {
            return false;
        }
        let start = || {
            let text = json::get(&self.start, Span::new(0, self.start.len()), "text");
            text.and_then(|span| json::raw_text(&self.start, span))
        };
        let grown = self.texts.iter().find(|(key, _)| key == b"text");
        let text = grown.map(|(_, text)| text.as_slice()).or_else(start);
        text.is_none_or(|text| json::unescape(text).trim().is_empty())
    }
}
