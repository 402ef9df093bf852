//! What a client sees of Chat completions that the upstream keeps: one of them by its id, their list, and the messages that
//! one was asked with.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{ItemPage, StoredForm, list_of, listed, object_of};
use crate::json::{self, Edits, Span, ValueKind};

/// The members of a form that are of the first choice, and not of the completion.
pub(crate) const MESSAGE: &str = "message";
pub(crate) const FINISH: &str = "finish_reason";
pub(crate) const LOGPROBS: &str = "logprobs";

/// Most messages of both lists that are passed over to the next one that they share: the messages of the longest loops. The
/// work grows by its square.
const MAX_APART: usize = 512;

/// Where the messages of round 1 are not those that the client sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentMessages {
    /// Messages of round 1.
    pub count: usize,
    /// The differences, in order.
    pub changes: Vec<MessageChange>,
}

/// A place in the messages of round 1 that is not as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageChange {
    /// Index of the first message that is Knack's.
    pub at: usize,
    /// How many there are.
    pub sent: usize,
    /// The client's messages in their place, as JSON.
    pub own: Vec<String>,
}

impl SentMessages {
    /// The differences between what the client sent and what went upstream; `None`: there are none.
    pub(crate) fn of(own: &[&[u8]], sent: &[&[u8]]) -> Option<Self> {
        let (mut from, mut at) = (0, 0);
        let mut changes = Vec::new();
        while from < own.len() || at < sent.len() {
            if own.get(from) == sent.get(at) {
                (from, at) = (from + 1, at + 1);
                continue;
            }
            let (gone, ours) = meeting(&own[from..], &sent[at..]);
            let text = |message: &&[u8]| String::from_utf8_lossy(message).into_owned();
            changes.push(MessageChange {
                at,
                sent: ours,
                own: own[from..from + gone].iter().map(text).collect(),
            });
            (from, at) = (from + gone, at + ours);
        }
        (!changes.is_empty()).then_some(Self {
            count: sent.len(),
            changes,
        })
    }

    pub(super) fn size(&self) -> usize {
        let texts = |change: &MessageChange| {
            let own = change.own.iter().map(|own| size_of::<String>() + own.len());
            size_of::<MessageChange>() + own.sum::<usize>()
        };
        self.changes.iter().map(texts).sum()
    }

    /// Leaves out the client's messages that Knack's replace.
    pub(super) fn forget(&mut self) {
        for change in &mut self.changes {
            change.own.clear();
        }
    }

    /// The client's messages, from those of round 1 as the upstream lists them, oldest first. `None`: these are others.
    fn shown(&self, listed: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        if listed.len() != self.count {
            return None;
        }
        let (mut shown, mut at) = (Vec::new(), 0);
        for change in &self.changes {
            let end = change.at + change.sent;
            shown.extend_from_slice(listed.get(at..change.at)?);
            // The last of Knack's messages end what the client's message said.
            let ours = listed.get(change.at..end)?;
            let places = &ours[ours.len().saturating_sub(change.own.len())..];
            let own = change.own.iter().zip(places);
            shown.extend(own.map(|(own, place)| as_listed(own.as_bytes(), place)));
            at = end;
        }
        shown.extend_from_slice(listed.get(at..)?);
        Some(shown)
    }
}

/// How many messages of each list differ before both go on alike: up to the nearest such place. All that is left, if there is
/// none.
fn meeting(own: &[&[u8]], sent: &[&[u8]]) -> (usize, usize) {
    let apart = 1..=MAX_APART.min(own.len() + sent.len());
    let mut places = apart.flat_map(|apart| (0..=apart).map(move |gone| (gone, apart - gone)));
    let alike = |(gone, ours): &(usize, usize)| own.get(*gone).is_some_and(|message| sent.get(*ours) == Some(message));
    places.find(alike).unwrap_or((own.len(), sent.len()))
}

/// A message as it was sent, in the form of a list: under the id of the one in its place, a list of parts beside `content`.
fn as_listed(own: &[u8], place: &[u8]) -> Vec<u8> {
    let document = Span::new(0, own.len());
    let Some(first) = json::members(own, document).ok().and_then(|all| all.first().copied()) else {
        return own.to_vec();
    };
    let mut head = b"\"id\":".to_vec();
    let id = json::get(place, Span::new(0, place.len()), "id");
    head.extend_from_slice(id.map_or(&b"null"[..], |id| id.of(place)));
    let mut edits = Edits::new();
    if let Some(content) = json::get(own, document, "content")
        && json::kind(own, content) == Some(ValueKind::Array)
    {
        head.extend_from_slice(b",\"content_parts\":");
        head.extend_from_slice(content.of(own));
        edits.replace(content, "null");
    }
    head.push(b',');
    edits.insert(first.key.start - 1, head);
    edits.apply(own)
}

fn is_of_assistant(message: &[u8]) -> bool {
    json::get_text(message, Span::new(0, message.len()), "role").as_deref() == Some("assistant")
}

/// What is known of a completion in a list.
#[derive(Debug, Clone, Copy)]
pub enum ListedCompletion<'v> {
    /// A round that the client was not shown as an answer.
    Round,
    /// The client knows it by this id.
    Answer(&'v str, &'v StoredForm),
}

/// A page of completions in the client's terms, and at most `most` of them; one that `find` does not know is shown as it is.
/// `None`: it is no list.
pub fn completions_page<'v>(
    body: &[u8],
    most: usize,
    find: impl Fn(&str) -> Option<ListedCompletion<'v>>,
) -> Option<ItemPage> {
    let (top, items) = listed(body)?;
    let show = |item: &Span| {
        let src = item.of(body);
        match find(&json::get_text(body, *item, "id").unwrap_or_default()) {
            Some(ListedCompletion::Round) => None,
            Some(ListedCompletion::Answer(id, form)) => Some(form.completion(src, id)),
            None => Some(src.to_vec()),
        }
    };
    let mut shown: Vec<Vec<u8>> = items.iter().filter_map(show).collect();
    let is_cut = shown.len() > most;
    shown.truncate(most);
    Some(list_of(body, top, &items, &shown, is_cut))
}

/// The elements of a list, and the last one's id if there are more behind it. `None`: it is no list.
pub fn list_elements(body: &[u8]) -> Option<(Vec<Vec<u8>>, Option<String>)> {
    let (top, items) = listed(body)?;
    let next = super::next_of(body, top, &items);
    Some((items.iter().map(|item| item.of(body).to_vec()).collect(), next))
}

/// The ids of the elements of a list.
pub fn list_ids(body: &[u8]) -> Vec<String> {
    let items = listed(body).map(|(_, items)| items).unwrap_or_default();
    let id = |item: &Span| json::get_text(body, *item, "id").map(std::borrow::Cow::into_owned);
    items.iter().filter_map(id).collect()
}

/// A list of these elements.
pub fn list(elements: &[Vec<u8>], has_more: bool) -> Vec<u8> {
    let frame = format!(r#"{{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":{has_more}}}"#);
    let src = frame.as_bytes();
    list_of(src, Span::new(0, src.len()), &[], elements, false).body
}

impl StoredForm {
    /// The client's messages, from all that the upstream lists, oldest first. Where it lists the answer behind them, as OGX
    /// does, that is the one that was shown. `None`: it lists others than were sent, or they were sent as the client has them.
    pub fn sent_messages(&self, listed: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let sent = self.messages.as_ref()?;
        let (of_round, behind) = listed.split_at_checked(sent.count)?;
        let mut shown = sent.shown(of_round)?;
        match behind {
            [] => {}
            [answer] if is_of_assistant(answer) => shown.extend(self.listed_answer(answer)),
            _ => return None,
        }
        Some(shown)
    }

    /// The answer in a list of messages, in place of the one of round 1. `None`: it is not known, and that one is not all of it.
    fn listed_answer(&self, of_round: &[u8]) -> Option<Vec<u8>> {
        match self.members.get(MESSAGE) {
            Some(own) => Some(as_listed(own.as_bytes(), of_round)),
            None => (self.hidden.is_empty() && self.rounds.is_empty()).then(|| of_round.to_vec()),
        }
    }

    /// A completion under the id that the client knows, in its terms; anything else as it is.
    pub fn completion(&self, body: &[u8], id: &str) -> Vec<u8> {
        let Some(top) = object_of(body, "chat") else {
            return body.to_vec();
        };
        let mut edits = self.named(body, top, id);
        let choice = json::get(body, top, "choices").and_then(|choices| json::first_element(body, choices));
        if let Some(choice) = choice {
            self.choice(body, choice, &mut edits);
        }
        // OGX repeats all messages that the last round was asked with.
        if let Some(messages) = json::get(body, top, "input_messages")
            && (self.messages.is_some() || !self.rounds.is_empty())
        {
            edits.replace(messages, "[]");
        }
        edits.apply(body)
    }

    /// The first choice, which is the only one.
    fn choice(&self, src: &[u8], choice: Span, edits: &mut Edits) {
        let message = json::get(src, choice, MESSAGE);
        let is_cut = match (message, self.members.get(MESSAGE)) {
            (Some(message), Some(own)) => {
                edits.replace(message, own.clone());
                false
            }
            (Some(message), None) => self.take_calls(src, message, edits),
            (None, _) => false,
        };
        if let (Some(own), Some(place)) = (self.members.get(LOGPROBS), json::get(src, choice, LOGPROBS)) {
            edits.replace(place, own.clone());
        }
        // An answer that ended in calls of which none is left is not complete.
        let cut = is_cut.then(|| "\"length\"".to_owned());
        let finish = self.members.get(FINISH).cloned().or(cut);
        if let (Some(finish), Some(place)) = (finish, json::get(src, choice, FINISH)) {
            edits.replace(place, finish);
        }
    }

    /// Takes calls that were not shown out of a message. True: none is left.
    fn take_calls(&self, src: &[u8], message: Span, edits: &mut Edits) -> bool {
        let Some(list) = json::get(src, message, "tool_calls") else {
            return false;
        };
        let calls = json::elements(src, list).unwrap_or_default();
        let hidden: HashSet<&str> = self.hidden.iter().map(String::as_str).collect();
        let is_hidden =
            |at: &usize| self.cut || hidden.contains(&*json::get_text(src, calls[*at], "id").unwrap_or_default());
        let gone: Vec<usize> = (0..calls.len()).filter(is_hidden).collect();
        let is_cut = !gone.is_empty() && gone.len() == calls.len();
        if is_cut {
            edits.replace(list, "null");
        } else {
            edits.remove_items(&calls, &gone);
        }
        is_cut
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::{Value, json};

    use super::*;
    use crate::stored::tests::form;

    fn sent(own: &[Value], sent: &[Value]) -> Option<SentMessages> {
        let bytes = |all: &[Value]| all.iter().map(|one| one.to_string().into_bytes()).collect::<Vec<_>>();
        let (own, sent) = (bytes(own), bytes(sent));
        let slices = |all: &'static [Vec<u8>]| all.iter().map(Vec::as_slice).collect::<Vec<_>>();
        SentMessages::of(&slices(own.leak()), &slices(sent.leak()))
    }

    fn message(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    /// What a client reads of messages that went upstream.
    fn shown(form: &SentMessages, went: &[Value]) -> Option<Vec<Value>> {
        let listed = |(at, message): (usize, &Value)| {
            let mut message = message.clone();
            message["id"] = json!(format!("c-{at}"));
            message.to_string().into_bytes()
        };
        let listed: Vec<Vec<u8>> = went.iter().enumerate().map(listed).collect();
        let shown = form.shown(&listed)?;
        Some(shown.iter().map(|one| serde_json::from_slice(one).unwrap()).collect())
    }

    #[test]
    fn messages_are_shown_as_they_were_sent_under_ids_of_the_upstream() {
        let (user, more) = (message("user", "add"), message("user", "again"));
        let said = json!({"role": "assistant", "content": "I look.\n\n5"});
        let parts = json!({"role": "system", "content": [{"type": "text", "text": "Be brief."}]});
        let extended = json!({"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "# Skills"}]});
        let ours = [
            json!({"role": "assistant", "content": "I look.", "tool_calls": [{"id": "call_1"}]}),
            json!({"role": "tool", "tool_call_id": "call_1", "content": "text"}),
            json!({"role": "assistant", "content": "5"}),
        ];
        let own = [parts, user.clone(), said, more.clone()];
        let mut went = vec![extended, user.clone()];
        went.extend(ours);
        went.push(more.clone());
        let form = sent(&own, &went).unwrap();
        assert_eq!((form.count, form.changes.len()), (6, 2));
        assert_eq!(
            shown(&form, &went).unwrap(),
            [
                json!({"id": "c-0", "role": "system", "content": null, "content_parts": [{"type": "text", "text": "Be brief."}]}),
                json!({"id": "c-1", "role": "user", "content": "add"}),
                json!({"id": "c-4", "role": "assistant", "content": "I look.\n\n5"}),
                json!({"id": "c-5", "role": "user", "content": "again"}),
            ]
        );
        // The upstream lists others than it was sent: which of them are Knack's is not known.
        assert_eq!(shown(&form, &went[1..]), None);
        // Texts that did not fit are left out, and Knack's with them.
        let mut bare = form;
        bare.forget();
        assert_eq!(
            shown(&bare, &went).unwrap(),
            [
                json!({"id": "c-1", "role": "user", "content": "add"}),
                json!({"id": "c-5", "role": "user", "content": "again"})
            ]
        );
    }

    /// OGX has the answer behind the messages, and all messages of the last round in a completion.
    #[test]
    fn an_answer_behind_the_messages_is_the_one_that_was_shown() {
        let user = message("user", "add");
        let answer = json!({"id": "c-2", "role": "assistant", "content": null, "tool_calls": [{"id": "call_1"}]});
        let listed = [message("system", "# Skills"), user.clone(), answer.clone()];
        let bytes = |all: &[Value]| all.iter().map(|one| one.to_string().into_bytes()).collect::<Vec<_>>();
        let read = |form: &StoredForm, listed: &[Value]| {
            let shown = form.sent_messages(&bytes(listed))?;
            Some(
                shown
                    .iter()
                    .map(|one| serde_json::from_slice(one).unwrap())
                    .collect::<Vec<Value>>(),
            )
        };
        let mut form = StoredForm {
            messages: sent(from_ref(&user), &listed[..2]),
            ..form(&[(MESSAGE, r#"{"role":"assistant","content":"5"}"#)], &["call_1"])
        };
        let shown = json!({"id": "c-2", "role": "assistant", "content": "5"});
        assert_eq!(read(&form, &listed), Some(vec![user.clone(), shown]));
        assert_eq!(read(&form, &listed[..2]), Some(vec![user.clone()]));
        let other = [listed.as_slice(), from_ref(&answer)].concat();
        assert_eq!(read(&form, &other), None);
        let other = [&listed[..2], from_ref(&user)].concat();
        assert_eq!(read(&form, &other), None);
        let body = json!({"id": "c-9", "object": "chat.completion", "choices": [], "input_messages": listed});
        let whole: Value = serde_json::from_slice(&form.completion(body.to_string().as_bytes(), "c-1")).unwrap();
        assert_eq!(whole["input_messages"], json!([]));
        // The message did not fit: that of round 1 has a call of Knack.
        form.members.clear();
        assert_eq!(read(&form, &listed), Some(vec![user.clone()]));
        form.hidden.clear();
        assert_eq!(read(&form, &listed), Some(vec![user, answer]));
        let nothing = StoredForm::default().completion(body.to_string().as_bytes(), "c-9");
        assert_eq!(nothing, body.to_string().into_bytes());
    }

    #[test]
    fn an_inserted_message_is_left_out_and_nothing_is_noted_without_a_change() {
        let (system, user) = (message("system", "# Skills"), message("user", "go on"));
        let own = [user.clone(), message("assistant", "yes"), user.clone()];
        let went = [system, user.clone(), message("assistant", "yes"), user.clone()];
        let form = sent(&own, &went).unwrap();
        assert_eq!(
            form.changes,
            [MessageChange {
                at: 0,
                sent: 1,
                own: Vec::new()
            }]
        );
        assert_eq!(shown(&form, &went).unwrap().len(), 3);
        assert_eq!(sent(&own, &own), None);
    }

    /// A message that says what another one says does not take its place.
    #[test]
    fn messages_that_are_repeated_stay_in_order() {
        let (go, ok) = (message("user", "go on"), message("assistant", "ok"));
        let said = message("assistant", "I look.\n\nok");
        let call = json!({"role": "assistant", "content": "I look.", "tool_calls": [{"id": "call_1"}]});
        let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "text"});
        let own = [
            go.clone(),
            said,
            go.clone(),
            ok.clone(),
            go.clone(),
            ok.clone(),
            go.clone(),
        ];
        let went = [
            go.clone(),
            call,
            result,
            ok.clone(),
            go.clone(),
            ok.clone(),
            go.clone(),
            ok,
            go,
        ];
        let listed = shown(&sent(&own, &went).unwrap(), &went).unwrap();
        let bare = |mut message: Value| {
            message.as_object_mut().unwrap().remove("id");
            message
        };
        assert_eq!(listed.into_iter().map(bare).collect::<Vec<_>>(), own);
        // Nothing is alike within reach: all of the client's stand for all of what went.
        let many: Vec<Value> = (0..=MAX_APART).map(|at| message("tool", &at.to_string())).collect();
        let far = [many, vec![message("user", "last")]].concat();
        let form = sent(&[message("user", "first"), message("user", "last")], &far).unwrap();
        assert_eq!((form.changes.len(), form.changes[0].own.len()), (1, 2));
    }

    fn stored(id: &str, calls: &[&str]) -> Value {
        let calls: Vec<Value> = calls.iter().map(|id| json!({"id": id, "type": "function"})).collect();
        let message = json!({"role": "assistant", "content": "5", "tool_calls": calls});
        json!({
            "id": id, "object": "chat.completion", "tools": [{"name": "ours"}], "usage": {"total_tokens": 1},
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        })
    }

    fn read(form: &StoredForm, body: &Value) -> Value {
        serde_json::from_slice(&form.completion(body.to_string().as_bytes(), "c-1")).unwrap()
    }

    #[test]
    fn a_completion_is_put_into_the_clients_terms() {
        let own = form(
            &[
                ("tools", "null"),
                (MESSAGE, r#"{"content":"I look.\n\n5"}"#),
                (FINISH, "\"stop\""),
            ],
            &["call_1"],
        );
        let whole = read(&own, &stored("c-2", &["call_1"]));
        assert_eq!((&whole["id"], &whole["tools"]), (&json!("c-1"), &json!(null)));
        assert_eq!(
            whole["choices"][0],
            json!({"index": 0, "message": {"content": "I look.\n\n5"}, "finish_reason": "stop"})
        );
        // Without the message, which did not fit, that of the last round without Knack's calls.
        let bare = form(&[], &["call_1"]);
        let mixed = read(&bare, &stored("c-2", &["call_1", "call_2"]))["choices"][0].clone();
        assert_eq!(
            mixed["message"]["tool_calls"],
            json!([{"id": "call_2", "type": "function"}])
        );
        assert_eq!(mixed["finish_reason"], "tool_calls");
        let begun = read(&bare, &stored("c-2", &["call_1"]))["choices"][0].clone();
        assert_eq!(
            (&begun["message"]["tool_calls"], &begun["finish_reason"]),
            (&json!(null), &json!("length"))
        );
        let deleted = bare.completion(br#"{"id":"c-2","object":"chat.completion.deleted"}"#, "c-1");
        assert_eq!(deleted, br#"{"id":"c-1","object":"chat.completion.deleted"}"#);
        for other in [&b"[1]"[..], br#"{"id":"c-2","object":"list"}"#, b"{"] {
            assert_eq!(bare.completion(other, "c-1"), other);
        }
    }

    #[test]
    fn a_list_has_answers_and_no_other_rounds() {
        let all = [stored("c-1", &[]), stored("c-2", &[]), stored("c-3", &[])];
        let page = json!({"object": "list", "data": all, "first_id": "c-1", "last_id": "c-3", "has_more": true});
        let body = page.to_string();
        let own = form(&[("tools", "null")], &[]);
        let find = |id: &str| match id {
            "c-1" => Some(ListedCompletion::Round),
            "c-2" => Some(ListedCompletion::Answer("c-1", &own)),
            _ => None,
        };
        let shown = completions_page(body.as_bytes(), 100, find).unwrap();
        assert_eq!(shown.next, None);
        let shown: Value = serde_json::from_slice(&shown.body).unwrap();
        assert_eq!((&shown["first_id"], &shown["last_id"]), (&json!("c-1"), &json!("c-3")));
        assert_eq!(
            shown["data"],
            json!([read(&own, &stored("c-2", &[])), stored("c-3", &[])])
        );
        // A page that was read in larger pieces than the client asked for.
        let cut = completions_page(body.as_bytes(), 1, find).unwrap();
        let cut: Value = serde_json::from_slice(&cut.body).unwrap();
        assert_eq!((&cut["last_id"], &cut["has_more"]), (&json!("c-1"), &json!(true)));
        // Nothing of the page is an answer: the next one is asked for.
        let rounds = completions_page(body.as_bytes(), 100, |_| Some(ListedCompletion::Round)).unwrap();
        assert_eq!(rounds.next.as_deref(), Some("c-3"));
    }
}
