//! Writing the one body of an answer that is not streamed.

use super::ChatCodec;
use crate::drive::GeneratedFile;
use crate::format::chat::layout::{Choice, blank};
use crate::format::{self, DecodedFrame, Ending, splice};
use crate::json::{self, Edits, Span};

impl ChatCodec {
    pub(super) fn finish_body(&mut self, ending: Ending, files: &[GeneratedFile], out: &mut Vec<u8>) {
        let Some(DecodedFrame {
            raw,
            layout: format::Layout::Chat(layout),
            ..
        }) = self.turn.body.take()
        else {
            return;
        };
        let mut edits = Edits::new();
        for (key, value) in self.first.iter().filter(|(key, _)| matches!(*key, "id" | "created")) {
            if let Some(span) = layout.value(&raw, key)
                && span.of(&raw) != value
            {
                edits.replace(span, value.clone());
            }
        }
        if let Some(choice) = &layout.choice {
            self.finish_message(&raw, choice, &mut edits);
            self.earlier
                .join_logprobs(&raw, choice, self.turn.drops_text(), &mut edits);
            let reason = match ending {
                Ending::AsCame => None,
                Ending::ClientCalls => Some("\"tool_calls\""),
                Ending::Limit => Some("\"length\""),
            };
            if let (Some(finish), Some(reason)) = (choice.finish, reason) {
                edits.replace(finish, reason);
            }
        }
        if !self.usage.single()
            && let Some(total) = self.usage.total()
        {
            for usage in layout.usage_within(&raw) {
                edits.replace(usage, total.clone());
            }
            match layout.value(&raw, "usage") {
                Some(span) => edits.replace(span, total),
                None => edits.insert(
                    json::space(&raw, 0) + 1,
                    [b"\"usage\":", total.as_slice(), b","].concat(),
                ),
            }
        }
        if self.options.litellm
            && !files.is_empty()
            && let Some(last) = layout.top.last()
        {
            edits.insert(
                last.value.end,
                [
                    b",\"_litellm_generated_files\":",
                    splice::litellm_files(files).as_slice(),
                ]
                .concat(),
            );
        }
        out.extend_from_slice(&edits.apply(&raw));
    }

    pub(super) fn finish_message(&self, raw: &[u8], choice: &Choice, edits: &mut Edits) {
        let joined = self.joined_text();
        let mut gone = Vec::new();
        for (at, member) in choice.members.iter().enumerate() {
            match member.key.of(raw) {
                b"content" => {
                    let same =
                        json::raw_text(raw, member.value).map_or(joined.is_empty(), |own| own == joined.as_slice());
                    let whole = self.turn.text_shown && self.shown_text.is_empty();
                    if !same && !whole {
                        edits.replace(
                            member.value,
                            if joined.is_empty() {
                                b"null".to_vec()
                            } else {
                                [b"\"", joined.as_slice(), b"\""].concat()
                            },
                        );
                    }
                }
                b"tool_calls" if !blank(raw, member.value) => {
                    let elements = json::elements(raw, member.value).unwrap_or_default();
                    let hidden: Vec<usize> = (0..elements.len())
                        .filter(|at| self.turn.calls.get(*at).is_some_and(|call| call.shown.is_none()))
                        .collect();
                    if hidden.len() == elements.len() {
                        gone.push(at);
                    } else {
                        edits.remove_items(&elements, &hidden);
                    }
                }
                _ => {}
            }
        }
        let spans: Vec<Span> = choice.members.iter().map(json::Member::whole).collect();
        edits.remove_items(&spans, &gone);
        let mut missing = self.earlier.join(raw, &choice.members, edits);
        if !joined.is_empty() && !choice.members.iter().any(|member| member.key.of(raw) == b"content") {
            missing.insert(0, [b"\"content\":\"", joined.as_slice(), b"\""].concat());
        }
        if let Some(message) = choice.message.filter(|_| !missing.is_empty()) {
            let mut members = missing.join(&b',');
            if choice.members.len() > gone.len() {
                members.push(b',');
            }
            edits.insert(message.start + 1, members);
        }
    }
}
