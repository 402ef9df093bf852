//! Writing chunks: those that are shown, and the end of the stream.

use bytes::Bytes;

use super::ChatCodec;
use crate::format::chat::layout::{ChatLayout, PartSource, blank};
use crate::format::{self, DecodedFrame, Ending};
use crate::frame::push_data;
use crate::json::{self, Edits, Span, ValueKind};

impl ChatCodec {
    /// Edits that every shown chunk needs: identity of round 1, no finish reason, and usage in the one that ends the answer
    /// only (`total`, if there is any).
    fn common_edits(&self, raw: &[u8], layout: &ChatLayout, total: Option<&[u8]>, edits: &mut Edits) {
        for (key, value) in &self.first {
            if let Some(span) = layout.value(raw, key)
                && span.of(raw) != value
            {
                edits.replace(span, value.clone());
            }
        }
        let mut set = |usage: Span, value: &[u8]| {
            if usage.of(raw) != value {
                edits.replace(usage, value.to_vec());
            }
        };
        for usage in layout.usage_within(raw) {
            set(usage, total.unwrap_or(b"null"));
        }
        let Some(at) = layout.top.iter().position(|member| member.key.of(raw) == b"usage") else {
            return;
        };
        let usage = layout.top[at].value;
        match total.filter(|_| layout.usage(raw).is_some()) {
            // A client that asked gets a chunk of its own.
            _ if self.wants_usage => set(usage, b"null"),
            // Clients of a provider that has it beside the finish reason (Mistral, DeepSeek) read it there unasked.
            Some(total) => set(usage, total),
            None => {
                let spans: Vec<Span> = layout.top.iter().map(json::Member::whole).collect();
                edits.remove_item(&spans, at);
            }
        }
    }

    /// Writes the shown pieces of a chunk. `text` replaces its own text, as written in JSON.
    pub(super) fn show_chunk(
        &mut self,
        raw: &Bytes,
        layout: &ChatLayout,
        shown: &[bool],
        text: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let mut edits = Edits::new();
        self.common_edits(raw, layout, None, &mut edits);
        let visible = |piece: &PartSource| {
            layout
                .pieces
                .iter()
                .zip(shown)
                .any(|(own, shown)| *shown && own == piece)
        };
        if let Some(choice) = &layout.choice
            && !visible(&PartSource::Whole)
        {
            let head = visible(&PartSource::Head);
            let mut gone = Vec::new();
            for (at, member) in choice.members.iter().enumerate() {
                let key = member.key.of(raw);
                let keep = if key == b"tool_calls" && !blank(raw, member.value) {
                    self.show_call_elements(raw, member.value, layout, shown, &mut edits)
                } else if key == b"role" || blank(raw, member.value) {
                    head
                } else {
                    visible(&PartSource::Member(at))
                };
                if !keep {
                    gone.push(at);
                } else if key == b"content" && !blank(raw, member.value) {
                    self.show_content(raw, member.value, text, &mut edits);
                } else {
                    self.earlier.shift_annotations(raw, member, &mut edits);
                }
            }
            let spans: Vec<Span> = choice.members.iter().map(json::Member::whole).collect();
            edits.remove_items(&spans, &gone);
            // They go with the text, which waits or is not shown.
            if let Some(logprobs) = choice.logprobs
                && choice.texts(raw).next().is_some()
                && choice.texts(raw).all(|(at, _)| gone.contains(&at))
            {
                edits.replace(logprobs, "null");
            }
            if let Some(finish) = choice.finish
                && !json::is_null(raw, finish)
            {
                edits.replace(finish, "null");
            }
        }
        if edits.is_empty() {
            push_data(out, raw);
        } else {
            push_data(out, &edits.apply(raw));
        }
    }

    /// Puts a gap between the text of earlier rounds and the first one of this round. Thinking of Mistral's models comes as a
    /// list of parts in the same member.
    fn show_content(&mut self, raw: &[u8], content: Span, text: Option<&[u8]>, edits: &mut Edits) {
        let follows = !self.turn.text_shown && !self.shown_text.is_empty();
        let gap = if follows { "\\n\\n" } else { "" };
        if let Some(text) = text {
            edits.replace(content, [b"\"", gap.as_bytes(), text, b"\""].concat());
            self.turn.text_shown = true;
        } else if let Some(first) = first_text(raw, content) {
            edits.insert(first.start + 1, gap);
            self.turn.text_shown = true;
        }
    }

    /// The text of a chunk, as written in JSON. `None` if it has anything beside it that is shown with it: parts of a
    /// content, log probabilities.
    fn text_of<'r>(raw: &'r [u8], layout: &ChatLayout) -> Option<&'r [u8]> {
        let choice = layout.choice.as_ref().filter(|choice| choice.logprobs.is_none())?;
        let content = choice.members.iter().find(|member| member.key.of(raw) == b"content");
        content.map_or(Some(b""), |content| json::raw_text(raw, content.value))
    }

    /// The first chunk with the text of all, if they hold nothing else that is shown; else each as it came.
    pub(super) fn show_joined(&mut self, frames: &[(DecodedFrame, Vec<bool>)], out: &mut Vec<u8>) {
        let layouts = frames.iter().filter_map(|(frame, shown)| match &frame.layout {
            format::Layout::Chat(layout) => Some((&frame.raw, &**layout, shown)),
            _ => None,
        });
        let texts = layouts.clone().map(|(raw, layout, _)| Self::text_of(raw, layout));
        let Some(texts) = texts.collect::<Option<Vec<_>>>() else {
            for (raw, layout, shown) in layouts {
                self.show_chunk(raw, layout, shown, None, out);
            }
            return;
        };
        if let Some((raw, layout, shown)) = layouts.clone().next() {
            self.show_chunk(raw, layout, shown, Some(&texts.concat()), out);
        }
    }

    /// Keeps the shown elements of `tool_calls` and renumbers them; false if none is left.
    pub(super) fn show_call_elements(
        &mut self,
        raw: &[u8],
        list: Span,
        layout: &ChatLayout,
        shown: &[bool],
        edits: &mut Edits,
    ) -> bool {
        let elements = json::elements(raw, list).unwrap_or_default();
        let mut gone = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            let piece = layout
                .pieces
                .iter()
                .zip(shown)
                .find(|(piece, shown)| **shown && matches!(piece, PartSource::Call(_, span) if span == element));
            let Some((PartSource::Call(number, _), _)) = piece else {
                gone.push(at);
                continue;
            };
            let index = self.shown_index(*number);
            match json::get(raw, *element, "index") {
                Some(span) if json::uint(raw, span) == Some(index) => {}
                Some(span) => edits.replace(span, index.to_string()),
                None => edits.insert(element.start + 1, format!("\"index\":{index},")),
            }
        }
        edits.remove_items(&elements, &gone);
        gone.len() < elements.len()
    }

    pub(super) fn shown_index(&mut self, number: usize) -> u64 {
        let Some(call) = self.turn.calls.get_mut(number) else {
            return self.next_index;
        };
        if let Some(index) = call.shown {
            return index;
        }
        let index = self.next_index;
        self.next_index += 1;
        call.shown = Some(index);
        self.shown_ids.push(call.id().to_owned());
        index
    }

    /// A chunk modelled on round 1 with these choices.
    pub(super) fn made_up(&self, choices: &str) -> Vec<u8> {
        let mut out = vec![b'{'];
        let find = |key: &str| {
            self.first
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.as_slice())
        };
        for (key, value) in [
            ("id", find("id")),
            ("object", Some(&b"\"chat.completion.chunk\""[..])),
            ("created", find("created")),
            ("model", find("model")),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(format!("\"{key}\":").as_bytes());
                out.extend_from_slice(value);
                out.push(b',');
            }
        }
        out.extend_from_slice(format!("\"choices\":{choices}").as_bytes());
        out
    }

    pub(super) fn finish_stream(&mut self, ending: Ending, out: &mut Vec<u8>) {
        let reason = match ending {
            Ending::AsCame => None,
            Ending::ClientCalls => Some("\"tool_calls\""),
            Ending::Limit => Some("\"length\""),
        };
        if let Some(DecodedFrame {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.stop.take()
        {
            let mut edits = Edits::new();
            self.common_edits(&raw, &layout, self.usage.total().as_deref(), &mut edits);
            if let Some(choice) = &layout.choice {
                if let Some(delta) = choice.message.filter(|_| !choice.members.is_empty()) {
                    edits.replace(delta, "{}");
                }
                if let Some(logprobs) = choice.logprobs.filter(|_| choice.texts(&raw).next().is_some()) {
                    edits.replace(logprobs, "null");
                }
                if let (Some(finish), Some(reason)) = (choice.finish, reason)
                    && finish.of(&raw) != reason.as_bytes()
                {
                    edits.replace(finish, reason);
                }
            }
            if edits.is_empty() {
                push_data(out, &raw);
            } else {
                push_data(out, &edits.apply(&raw));
            }
        } else {
            let reason = reason.unwrap_or(if self.turn.calls.is_empty() {
                "\"stop\""
            } else {
                "\"tool_calls\""
            });
            let mut chunk = self.made_up(&format!("[{{\"index\":0,\"delta\":{{}},\"finish_reason\":{reason}}}]"));
            chunk.extend_from_slice(if self.wants_usage { b",\"usage\":null}" } else { b"}" });
            push_data(out, &chunk);
        }
        if self.wants_usage
            && let Some(total) = self.usage.total()
        {
            self.write_usage(&total, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    pub(super) fn write_usage(&mut self, total: &[u8], out: &mut Vec<u8>) {
        if let Some(DecodedFrame {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.usage.take()
            && layout.choice.is_none()
            && let Some(usage) = layout.usage(&raw)
        {
            let mut edits = Edits::new();
            for (key, value) in &self.first {
                if let Some(span) = layout.value(&raw, key)
                    && span.of(&raw) != value
                {
                    edits.replace(span, value.clone());
                }
            }
            for usage in layout.usage_within(&raw).chain([usage]) {
                if usage.of(&raw) != total {
                    edits.replace(usage, total.to_vec());
                }
            }
            return push_data(out, &edits.apply(&raw));
        }
        let mut chunk = self.made_up("[]");
        chunk.extend_from_slice(b",\"usage\":");
        chunk.extend_from_slice(total);
        chunk.push(b'}');
        push_data(out, &chunk);
    }
}

/// The string that is the first text of a content: the content itself, or a part's `text`.
fn first_text(raw: &[u8], content: Span) -> Option<Span> {
    if json::kind(raw, content) == Some(ValueKind::String) {
        return Some(content);
    }
    let parts = json::elements(raw, content).unwrap_or_default();
    let mut texts = parts.iter().filter_map(|part| json::get(raw, *part, "text"));
    texts.find(|text| json::raw_text(raw, *text).is_some_and(|text| !text.is_empty()))
}
