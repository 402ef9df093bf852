//! Changes to a text, written in one pass.

use bytes::Bytes;

use super::Span;

/// Changes to one text: spans of the source and what replaces them.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    list: Vec<(Span, Bytes)>,
}

impl Edits {
    /// No changes.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// True if there is nothing to change.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Replaces a span.
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) {
        self.list.push((span, with.into()));
    }

    /// Inserts before the byte at `offset`. Several inserts at one offset keep the order in which they were added.
    pub fn insert(&mut self, offset: usize, what: impl Into<Bytes>) {
        self.list.push((Span::at(offset), what.into()));
    }

    /// True if something is inserted at `offset`.
    pub fn inserts_at(&self, offset: usize) -> bool {
        self.list.iter().any(|(span, _)| *span == Span::at(offset))
    }

    /// Removes item `index` of a list of neighbours (members or elements), with one comma. Neighbours that are removed
    /// too must all be passed in one call of [`Edits::remove_items`].
    pub fn remove_item(&mut self, all: &[Span], index: usize) {
        self.remove_items(all, &[index]);
    }

    /// Removes items of a list of neighbours (members or elements) together with the commas that they leave. `gone`
    /// holds ascending indices.
    pub fn remove_items(&mut self, all: &[Span], gone: &[usize]) {
        // A removed item takes the comma before it, unless no kept item precedes it: then the one after it.
        let mut kept_before = false;
        for (index, span) in all.iter().enumerate() {
            if gone.binary_search(&index).is_err() {
                kept_before = true;
                continue;
            }
            let cut = if kept_before {
                Span::new(all[index - 1].end, span.end)
            } else if let Some(next) = all.get(index + 1) {
                Span::new(span.start, next.start)
            } else {
                *span
            };
            self.replace(cut, Bytes::new());
        }
    }

    /// Writes the source with all changes. An edit that overlaps an earlier one is left out.
    pub fn apply(mut self, src: &[u8]) -> Vec<u8> {
        self.list.sort_by_key(|(span, _)| (span.start, span.end));
        let added: usize = self.list.iter().map(|(_, with)| with.len()).sum();
        let mut out = Vec::with_capacity(src.len() + added);
        let mut done = 0;
        for (span, with) in &self.list {
            if span.start < done || span.end > src.len() {
                continue;
            }
            out.extend_from_slice(&src[done..span.start]);
            out.extend_from_slice(with);
            done = span.end.max(span.start);
        }
        out.extend_from_slice(&src[done..]);
        out
    }
}
