//! How a client is to see an answer that the upstream keeps.

use super::ChatCodec;
use super::earlier::{push_elements, written_logprobs};
use super::kept::KeptAnswer;
use super::turn::ChatTurn;
use crate::format::chat::layout::Choice;
use crate::format::{self, DecodedFrame, Ending};
use crate::json::{self, Edits};
use crate::stored::{FINISH, LOGPROBS, MESSAGE, StoredForm};
use crate::turn::DeltaValue;

impl ChatCodec {
    pub(super) fn form(&self, kept: &KeptAnswer, ending: Option<Ending>) -> StoredForm {
        let mut form = kept.begun(&self.turn);
        match ending {
            // What can be read is round 1.
            None => {
                form.rounds.push(kept.id.clone());
                form.rounds.retain(|id| !id.is_empty() && *id != self.id);
            }
            Some(ending) if !form.hidden.is_empty() || !form.rounds.is_empty() => self.answer(ending, &mut form),
            Some(_) => {}
        }
        form
    }

    /// Members of which a loop has others than its last round.
    fn answer(&self, ending: Ending, form: &mut StoredForm) {
        let mut set = |key: &str, value: Vec<u8>| {
            let value = String::from_utf8_lossy(&value).into_owned();
            form.members.insert(key.to_owned(), value);
        };
        set(MESSAGE, self.shown_message());
        if let Some(logprobs) = self.shown_logprobs() {
            set(LOGPROBS, logprobs);
        }
        let reason = match ending {
            Ending::AsCame => self.turn.reason().map(|reason| json::quoted(&reason)),
            Ending::ClientCalls => Some(b"\"tool_calls\"".to_vec()),
            Ending::Limit => Some(b"\"length\"".to_vec()),
        };
        let created = self.first.iter().find(|(key, _)| *key == "created");
        let created = created.map(|(_, value)| value.clone());
        for (key, value) in [(FINISH, reason), ("usage", self.usage.total()), ("created", created)] {
            if let Some(value) = value {
                set(key, value);
            }
        }
    }

    /// The log probabilities of the text of all rounds, or null if they are too many to be kept, as the API has it where it
    /// gives none. `None`: those of the last round are all.
    fn shown_logprobs(&self) -> Option<Vec<u8>> {
        let streamed = &self.turn.logprobs;
        let (own, refusal, too_many) = match self.turn.body.as_ref().and_then(message_of) {
            Some((raw, choice)) => {
                let of = |key| choice.logprobs_of(raw, key);
                (of("content"), of("refusal"), false)
            }
            None => (&*streamed.content, &*streamed.refusal, streamed.too_many),
        };
        let is_hidden = self.turn.drops_text() && !own.is_empty();
        let earlier = self.earlier.logprobs();
        if earlier.is_some_and(<[u8]>::is_empty) && !is_hidden {
            return None;
        }
        let Some(earlier) = earlier.filter(|_| !too_many) else {
            return Some(b"null".to_vec());
        };
        let mut content = earlier.to_vec();
        push_elements(&mut content, if is_hidden { b"" } else { own });
        Some(written_logprobs(&content, refusal))
    }

    /// The message of the whole answer: members of the last turn, the text and the reasoning of all.
    fn shown_message(&self) -> Vec<u8> {
        let mut message = match self.turn.body.as_ref().and_then(message_of) {
            Some((raw, choice)) => {
                let mut own = DeltaValue::default();
                let members = choice.members.iter().map(|member| (member.key.of(raw), member.value));
                for (key, value) in members.filter(|(key, _)| *key != b"tool_calls") {
                    own.set(&String::from_utf8_lossy(key), DeltaValue::new(raw, value));
                }
                own
            }
            None => self.turn.message.clone(),
        };
        let text = self.joined_text();
        let text = if text.is_empty() {
            DeltaValue::Raw(b"null".to_vec())
        } else {
            DeltaValue::Text(text)
        };
        message.set("content", text);
        let message = self.message(&message, |call| call.shown.is_some());
        let Ok(members) = json::object(&message) else {
            return message;
        };
        let mut edits = Edits::new();
        for missing in self.earlier.join(&message, &members, &mut edits) {
            edits.insert(message.len() - 1, [b",", missing.as_slice()].concat());
        }
        edits.apply(&message)
    }
}

impl ChatTurn {
    /// Why it ended, in the upstream's word.
    fn reason(&self) -> Option<String> {
        let last = self.body.as_ref().or(self.stop.as_ref())?;
        let format::Layout::Chat(layout) = &last.layout else {
            return None;
        };
        layout.reason(&last.raw).map(std::borrow::Cow::into_owned)
    }
}

/// The message of a body that has one in its choices.
fn message_of(body: &DecodedFrame) -> Option<(&[u8], &Choice)> {
    let format::Layout::Chat(layout) = &body.layout else {
        return None;
    };
    let choice = layout.choice.as_ref().filter(|choice| !choice.at_root)?;
    Some((&body.raw[..], choice))
}
