//! What a client sees of an answer that the upstream keeps, when it reads it by its id (Responses, Chat).
//!
//! The upstream keeps what it was sent and what it said: texts and tools of skills, Knack's calls, and several responses
//! where the client has one. A [`StoredForm`] is remembered with the answer and puts what is read later into the client's
//! terms.

mod chat;
mod events;
mod items;

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::json::{self, Edits, Span};
use crate::route::Format;
use crate::shown_run::OWN_CALL;

pub(crate) use chat::{FINISH, LOGPROBS, MESSAGE};
pub use chat::{ListedCompletion, MessageChange, SentMessages, completions_page, list, list_elements, list_ids};
pub use events::StoredEvents;
pub(crate) use items::SentRuns;
pub use items::{ItemsAsked, SentRun};

/// Most bytes of the members of a form: what an application sends as its instructions and tools, and a long answer, fit.
/// It is half of a saved turn, whose ids and open results must have room beside it.
pub(crate) const MAX_MEMBERS_BYTES: usize = 128 << 10;
/// Most hidden ids of a form: the calls and the reasoning of ten full rounds fit, or of a conversation of a hundred turns
/// with a few calls each.
const MAX_HIDDEN_IDS: usize = 512;

/// How a response that the upstream keeps is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredForm {
    /// Members of the response in the client's terms, as JSON: what it sent, and what it was shown of the answer where
    /// that is not what the upstream keeps.
    pub members: BTreeMap<String, String>,
    /// Calls that were not shown, by their call ids, and other items by their own: of this answer, and of the earlier ones
    /// that its request goes on from.
    pub hidden: Vec<String>,
    /// There are more hidden items than ids: no call is listed.
    pub crowded: bool,
    /// The answer broke off in the middle of what is read: which of its calls are not the client's is not known, and none is
    /// shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The other responses of the same answer, by the ids under which the upstream keeps them.
    pub rounds: Vec<String>,
    /// Where the messages of round 1 are not the client's (Chat). Views of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<SentMessages>,
    /// Runs that the client sent with its request, in order: what is listed in place of the calls and results that they went
    /// upstream as (Responses).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<SentRun>,
    /// The upstream has the events of the response, and none of them is of a call of ours: it is in the background
    /// (Responses).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
    /// This is the note of rounds that the client was not shown: the id of the answer that they are parts of (Chat).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part_of: String,
}

/// A page of a response's input items, or of completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPage {
    /// The list in the client's terms.
    pub body: Vec<u8>,
    /// Nothing of this page is the client's, and there is another one: the last item of this one, which it begins behind.
    pub next: Option<String>,
}

impl StoredForm {
    /// A form that hides nothing.
    pub const fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            hidden: Vec::new(),
            crowded: false,
            cut: false,
            rounds: Vec::new(),
            messages: None,
            runs: Vec::new(),
            streams: false,
            part_of: String::new(),
        }
    }

    /// The form of a stream in the background that goes on from other answers; `previous`: the client's own id of the last one,
    /// as JSON.
    pub(crate) fn in_background(previous: Option<String>) -> Self {
        let member = previous.map(|id| ("previous_response_id".to_owned(), id));
        Self {
            members: member.into_iter().collect(),
            streams: true,
            ..Self::new()
        }
    }

    /// The note of rounds that are parts of an answer.
    pub(crate) fn part(answer: String, rounds: Vec<String>) -> Self {
        Self {
            rounds,
            part_of: answer,
            ..Self::new()
        }
    }

    /// What of it answers that go on from this one hide, too.
    pub(crate) fn hiding(&self) -> Self {
        Self {
            hidden: self.hidden.clone(),
            crowded: self.crowded,
            ..Self::new()
        }
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        let ids = self.hidden.iter().chain(&self.rounds).chain([&self.part_of]);
        let ids: usize = ids.map(|id| size_of::<String>() + id.len()).sum();
        self.members_size() + self.runs_size() + ids
    }

    fn members_size(&self) -> usize {
        let members = self.members.iter();
        let members = members.map(|(key, value)| 2 * size_of::<String>() + key.len() + value.len());
        members.sum::<usize>() + self.messages.as_ref().map_or(0, SentMessages::size)
    }

    /// Hides what the answers before hide, too: an upstream may list their items with those of this request.
    pub fn go_on_from(&mut self, earlier: &Self) {
        let known: HashSet<&String> = self.hidden.iter().collect();
        let more = earlier.hidden.iter().filter(|id| !known.contains(id));
        let more: Vec<String> = more.cloned().collect();
        self.hidden.extend(more);
        self.crowded |= earlier.crowded;
    }

    /// Brings a form within its bounds. Of members that do not fit, the answer goes first: it is shown without its hidden
    /// items all the same. Without the client's own texts none are shown, since the upstream's hold Knack's.
    pub(crate) fn bound(&mut self) {
        // They are many times as long as their text.
        if self.members_size() > MAX_MEMBERS_BYTES
            && let Some(logprobs) = self.members.get_mut(LOGPROBS)
        {
            "null".clone_into(logprobs);
        }
        if self.members_size() > MAX_MEMBERS_BYTES {
            for key in ["output", MESSAGE, LOGPROBS] {
                self.members.remove(key);
            }
        }
        if self.members_size() > MAX_MEMBERS_BYTES {
            if let Some(messages) = &mut self.messages {
                messages.forget();
            }
            self.members.retain(|_, value| value.len() < SHORT);
            for (key, nothing) in [("instructions", "null"), ("tools", "[]")] {
                self.members.entry(key.to_owned()).or_insert_with(|| nothing.to_owned());
            }
        }
        if self.hidden.len() > MAX_HIDDEN_IDS {
            self.hidden.truncate(MAX_HIDDEN_IDS);
            self.crowded = true;
        }
    }

    /// Shows nothing of an answer that is not there yet.
    pub(crate) fn show_no_answer(&mut self, format: Format) {
        let members: &[(&str, &str)] = match format {
            Format::Chat => &[
                (MESSAGE, r#"{"role":"assistant","content":null}"#),
                (FINISH, "null"),
                (LOGPROBS, "null"),
            ],
            _ => &[
                ("output", "[]"),
                ("status", "\"in_progress\""),
                ("completed_at", "null"),
            ],
        };
        for (key, value) in members.iter().chain(&[("usage", "null")]) {
            self.members.insert((*key).to_owned(), (*value).to_owned());
        }
    }

    /// A response object under the id that the client knows, in its terms; anything else as it is.
    pub fn response(&self, body: &[u8], id: &str) -> Vec<u8> {
        let Some(top) = object_of(body, "response") else {
            return body.to_vec();
        };
        let mut edits = self.named(body, top, id);
        if !self.members.contains_key("output")
            && let Some(output) = json::get(body, top, "output")
            && let Ok(items) = json::elements(body, output)
        {
            edits.remove_items(&items, &self.hidden_of(body, &items, self.crowded || self.cut));
        }
        edits.apply(body)
    }

    /// What puts the id that the client knows, and the members that it is to see, in place of an object's own.
    fn named(&self, body: &[u8], top: Span, id: &str) -> Edits {
        let mut edits = Edits::new();
        if let Some(own) = json::get(body, top, "id") {
            edits.replace(own, json::quoted(id));
        }
        // Members of a choice are not members of the object.
        let members = self
            .members
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), MESSAGE | FINISH | LOGPROBS));
        for (key, value) in members {
            if let Some(own) = json::get(body, top, key) {
                edits.replace(own, value.clone());
            }
        }
        edits
    }

    /// Places of the items that are not the client's; where that is not known of `all_calls`, none of them is.
    fn hidden_of(&self, src: &[u8], items: &[Span], all_calls: bool) -> Vec<usize> {
        let hidden: HashSet<&str> = self.hidden.iter().map(String::as_str).collect();
        let runs: HashSet<&str> = self.runs.iter().map(|run| &*run.call_id).collect();
        let is_hidden = |item: Span| {
            let text = |key| json::get_text(src, item, key).unwrap_or_default();
            let (kind, call_id) = (text("type"), text("call_id"));
            // Runs that a client sent, whose saved turn was lost, went as calls with Knack's ids.
            let is_call = matches!(&*kind, "function_call" | "function_call_output");
            hidden.contains(&*call_id)
                || hidden.contains(&*text("id"))
                || (is_call && (call_id.starts_with(OWN_CALL) || runs.contains(&*call_id)))
                || (all_calls && (is_call || kind == "reasoning"))
        };
        (0..items.len()).filter(|at| is_hidden(items[*at])).collect()
    }
}

/// A list and its elements; `None`: it is no list.
fn listed(body: &[u8]) -> Option<(Span, Vec<Span>)> {
    let top = object_of(body, "list")?;
    let items = json::elements(body, json::get(body, top, "data")?).ok()?;
    Some((top, items))
}

/// A list with these elements in place of its own, which are `items`; `is_cut`: there are more behind them.
fn list_of(body: &[u8], top: Span, items: &[Span], kept: &[Vec<u8>], is_cut: bool) -> ItemPage {
    let id_of = |item: Option<&Vec<u8>>| {
        let id = item.and_then(|item| Some((item, json::get(item, Span::new(0, item.len()), "id")?)));
        id.map_or(&b"null"[..], |(item, id)| id.of(item)).to_vec()
    };
    let mut members = vec![
        ("data", [b"[", kept.join(&b","[..]).as_slice(), b"]"].concat()),
        ("first_id", id_of(kept.first())),
        ("last_id", id_of(kept.last())),
    ];
    if is_cut {
        members.push(("has_more", b"true".to_vec()));
    }
    let mut edits = Edits::new();
    for (key, value) in members {
        if let Some(own) = json::get(body, top, key) {
            edits.replace(own, value);
        }
    }
    ItemPage {
        body: edits.apply(body),
        next: next_of(body, top, items).filter(|_| kept.is_empty()),
    }
}

/// The id of the last element of a list, if there are more behind it.
fn next_of(body: &[u8], top: Span, items: &[Span]) -> Option<String> {
    let has_more = json::get(body, top, "has_more").is_some_and(|more| more.of(body) == b"true");
    let last = items.last().filter(|_| has_more)?;
    json::get_text(body, *last, "id").map(std::borrow::Cow::into_owned)
}

/// Bytes below which a member stays beside ones that are too large: ids, times and usage.
const SHORT: usize = 2 << 10;

/// The whole of a document that is an object of this kind, as the API names it in its member `object`.
fn object_of(body: &[u8], kind: &str) -> Option<Span> {
    let top = json::document(body).ok()?;
    let is_kind = |name: &str| name.split('.').next() == Some(kind);
    json::get_text(body, top, "object")
        .is_none_or(|name| is_kind(&name))
        .then_some(top)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(super) fn form(members: &[(&str, &str)], hidden: &[&str]) -> StoredForm {
        let owned = |text: &&str| (*text).to_owned();
        StoredForm {
            members: members.iter().map(|(key, value)| (owned(key), owned(value))).collect(),
            hidden: hidden.iter().map(owned).collect(),
            ..StoredForm::default()
        }
    }

    pub(super) fn call(id: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "n", "arguments": "{}"})
    }

    #[test]
    fn only_a_response_object_is_put_into_the_clients_terms() {
        let form = form(&[("instructions", "null"), ("absent", "1")], &["call_1", "rs_1"]);
        let stored = json!({
            "id": "resp_2", "object": "response", "instructions": "# Skills", "text": "resp_2",
            "output": [{"type": "reasoning", "id": "rs_1"}, call("call_1"), call("call_2")],
        });
        let shown: Value = serde_json::from_slice(&form.response(stored.to_string().as_bytes(), "resp_1")).unwrap();
        assert_eq!(
            shown,
            json!({"id": "resp_1", "object": "response", "instructions": null, "text": "resp_2", "output": [call("call_2")]})
        );
        let deleted = form.response(br#"{"id":"resp_2","object":"response.deleted"}"#, "resp_1");
        assert_eq!(deleted, br#"{"id":"resp_1","object":"response.deleted"}"#);
        for other in [&b"[1]"[..], br#"{"id":"resp_2","object":"responses"}"#, b"{"] {
            assert_eq!(form.response(other, "resp_1"), other);
        }
    }

    #[test]
    fn a_view_is_bounded_and_shows_less_beyond() {
        let large = "x".repeat(MAX_MEMBERS_BYTES);
        let own = [
            ("instructions", "\"mine\""),
            ("output", large.as_str()),
            ("usage", "{}"),
        ];
        let mut one = form(&own, &[]);
        one.bound();
        assert_eq!(one, form(&[own[0], own[2]], &[]));
        // Log probabilities go before the message that they belong to.
        let mut likely = form(&[("message", "{}"), ("logprobs", &large)], &[]);
        likely.bound();
        assert_eq!(likely, form(&[("message", "{}"), ("logprobs", "null")], &[]));
        let mut long = form(&[("message", &large), ("logprobs", &large)], &[]);
        long.bound();
        assert_eq!(long, form(&[], &[]));
        let mut two = form(&[("instructions", &large), ("tools", "[1]"), ("usage", "{}")], &[]);
        two.bound();
        assert_eq!(
            two,
            form(&[("instructions", "null"), ("tools", "[1]"), ("usage", "{}")], &[])
        );
        // Ids of a long conversation: the latest are known, and no call is listed.
        let ids = |from: usize| (from..from + MAX_HIDDEN_IDS).map(|at| format!("call_{at}")).collect();
        let earlier = StoredForm {
            hidden: ids(0),
            ..StoredForm::default()
        };
        let mut later = StoredForm {
            hidden: ids(10),
            ..StoredForm::default()
        };
        later.go_on_from(&earlier);
        assert_eq!((later.hidden.len(), later.crowded), (MAX_HIDDEN_IDS + 10, false));
        later.bound();
        assert_eq!((later.hidden.len(), later.crowded), (MAX_HIDDEN_IDS, true));
        let list = json!({"data": [call("call_of_client"), {"id": "msg_1"}]}).to_string();
        let items = json::elements(
            list.as_bytes(),
            json::get(list.as_bytes(), Span::new(0, list.len()), "data").unwrap(),
        );
        assert_eq!(later.hidden_of(list.as_bytes(), &items.unwrap(), true), [0]);
        let mut last = StoredForm::default();
        last.go_on_from(&later);
        assert!(last.crowded && last.size() < MAX_MEMBERS_BYTES);
    }
}
