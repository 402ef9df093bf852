//! What is to be known of an answer that the upstream keeps, so that its client reads it by its id as it was shown.

use std::collections::BTreeMap;

use super::turn::ChatTurn;
use crate::format::chat::request::is_stored;
use crate::format::splice;
use crate::json;
use crate::request::Request;
use crate::stored::{SentMessages, StoredForm};

/// The notes on one answer.
#[derive(Debug, Default)]
pub(super) struct KeptAnswer {
    /// Members of the request that a stored completion repeats, as the client sent them.
    own: BTreeMap<String, String>,
    /// Ids of the rounds before the running one.
    rounds: Vec<String>,
    /// The id of the running round.
    pub(super) id: String,
    /// Ids of Knack's calls of round 1, once it is over. What can be read of an answer is this round, or the last one.
    hidden: Vec<String>,
    messages: Option<SentMessages>,
}

impl KeptAnswer {
    /// `None`: the upstream keeps nothing of this request.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let own = |key: &str| {
            let own = request.present(key).map_or(&b"null"[..], |span| request.bytes(span));
            (key.to_owned(), String::from_utf8_lossy(own).into_owned())
        };
        is_stored(request).then(|| Self {
            own: ["tools", "tool_choice"].map(own).into(),
            ..Self::default()
        })
    }

    /// Notes what the body of round 1 has in place of the client's messages.
    pub(super) fn sent(&mut self, request: &Request, body: &[u8]) {
        let of_client = request.conversation();
        let own: Vec<&[u8]> = of_client.iter().map(|span| request.bytes(*span)).collect();
        let list = splice::top_value(body, "messages").and_then(|list| json::elements(body, list).ok());
        let sent: Vec<&[u8]> = list.iter().flatten().map(|span| span.of(body)).collect();
        self.messages = SentMessages::of(&own, &sent);
    }

    /// The form of an answer that is at this turn, as far as its request says it.
    pub(super) fn begun(&self, turn: &ChatTurn) -> StoredForm {
        StoredForm {
            members: self.own.clone(),
            hidden: self.hidden.iter().cloned().chain(unseen(turn)).collect(),
            rounds: self.rounds.clone(),
            messages: self.messages.clone(),
            ..StoredForm::default()
        }
    }

    pub(super) fn begin_round(&mut self, turn: &ChatTurn) {
        if self.rounds.is_empty() {
            self.hidden.extend(unseen(turn));
        }
        self.rounds.push(std::mem::take(&mut self.id));
    }
}

/// Ids of calls that are not shown.
fn unseen(turn: &ChatTurn) -> impl Iterator<Item = String> {
    let calls = turn.calls.iter().filter(|call| call.shown.is_none());
    calls.map(|call| call.id().to_owned())
}
