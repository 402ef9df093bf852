//! Responses that the mock keeps, so that a client can go on from them by id, as with a real provider.

mod chat;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::rules::ProviderRefusal;

pub(super) use chat::Completions;

/// Most states that are kept; a mock that is asked for more forgets all of them.
const MAX_STATES: usize = 1_000;
/// Items of a page where the client names no limit, as the API has it.
const PAGE: usize = 20;

/// One state: all items up to the end of an answer, and the answer.
#[derive(Debug, Clone, Default)]
struct ConversationState {
    items: Vec<Value>,
    /// Items of the last request, without what was stored before.
    asked: Vec<Value>,
    response: Value,
    /// The events of a response in the background that was streamed; they can be read again.
    events: Vec<(String, Value)>,
}

/// States by the id of a response or of a conversation.
#[derive(Debug, Default)]
pub(super) struct ConversationStates {
    states: Mutex<HashMap<String, ConversationState>>,
}

/// The conversation that a request names.
fn conversation(body: &Value) -> Option<&str> {
    body["conversation"]
        .as_str()
        .or_else(|| body["conversation"]["id"].as_str())
}

/// The items of a request; a bare string is one message of the user.
fn own_items(body: &Value) -> Vec<Value> {
    match &body["input"] {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        other => other.as_array().cloned().unwrap_or_default(),
    }
}

/// The items of a request, with those that it names by their ids in the place of references to them. Errors: one is not known.
fn resolved(states: &HashMap<String, ConversationState>, body: &Value) -> Result<Vec<Value>, ProviderRefusal> {
    let items = || states.values().flat_map(|state| &state.items);
    let one = |item: Value| {
        if item["type"] != "item_reference" {
            return Ok(item);
        }
        let found = items().find(|kept| kept["id"] == item["id"] && kept["type"] != "item_reference");
        let unknown = || {
            let id = item["id"].as_str().unwrap_or_default();
            ProviderRefusal {
                status: 404,
                param: Some("input".to_owned()),
                ..ProviderRefusal::invalid(format!("Item with id '{id}' not found."))
            }
        };
        found.cloned().ok_or_else(unknown)
    };
    own_items(body).into_iter().map(one).collect()
}

/// The items of a request as they are listed: each has a type and an id, and a text is a part.
fn listed(response: &str, asked: &[Value]) -> Vec<Value> {
    let named = |(index, item): (usize, &Value)| {
        let mut item = item.clone();
        if let Some(members) = item.as_object_mut() {
            members.entry("type").or_insert_with(|| json!("message"));
            let kind = if members.get("role").is_some_and(|role| role == "assistant") {
                "output_text"
            } else {
                "input_text"
            };
            if let Some(content) = members.get_mut("content").filter(|content| content.is_string()) {
                *content = json!([{"type": kind, "text": content.take()}]);
            }
            members
                .entry("id")
                .or_insert_with(|| json!(format!("item_{response}_{index}")));
        }
        item
    };
    asked.iter().enumerate().map(named).collect()
}

/// The value of a pair of a query.
fn asked<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.rev().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A page of a list: from the latest on, unless the order is `asc`; from behind the item `after`, at most `limit`.
fn page(items: &[Value], query: &str, order: &str) -> Value {
    let asked = |name: &str| asked(query, name);
    let mut items = items.to_vec();
    if asked("order").unwrap_or(order) != "asc" {
        items.reverse();
    }
    let after = asked("after").and_then(|id| items.iter().position(|item| item["id"] == id));
    let rest = items.split_off(after.map_or(0, |at| at + 1));
    let limit = asked("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE);
    let data = &rest[..rest.len().min(limit)];
    json!({
        "object": "list", "data": data, "has_more": data.len() < rest.len(),
        "first_id": data.first().map(|item| &item["id"]), "last_id": data.last().map(|item| &item["id"]),
    })
}

impl ConversationStates {
    /// The request with the items that it goes on from before its own.
    ///
    /// Errors: the response is not known, or an item that is named by its id. A conversation that is not known begins.
    pub(super) fn whole(&self, body: &Value) -> Result<Value, ProviderRefusal> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match (body["previous_response_id"].as_str(), conversation(body)) {
            (Some(id), _) => states
                .get(id)
                .map(|state| state.items.clone())
                .ok_or_else(|| ProviderRefusal {
                    ..ProviderRefusal::at(
                        "previous_response_id",
                        "previous_response_not_found",
                        format!("Previous response with id '{id}' not found."),
                    )
                })?,
            (None, Some(id)) => states.get(id).map(|state| state.items.clone()).unwrap_or_default(),
            (None, None) if !body["input"].is_array() => return Ok(body.clone()),
            (None, None) => Vec::new(),
        };
        let mut whole = body.clone();
        whole["input"] = before.into_iter().chain(resolved(&states, body)?).collect();
        Ok(whole)
    }

    /// Keeps an answer, unless the request says otherwise. `whole` is what [`ConversationStates::whole`] gave.
    pub(super) fn keep(&self, body: &Value, whole: &Value, response: &Value, events: Vec<(String, Value)>) {
        if body["store"] == false {
            return;
        }
        let output = response["output"].as_array().cloned().unwrap_or_default();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = ConversationState {
            items: own_items(whole).into_iter().chain(output).collect(),
            // `whole` was made of it, so every item is known.
            asked: resolved(&states, body).unwrap_or_default(),
            response: response.clone(),
            events,
        };
        if states.len() >= MAX_STATES {
            states.clear();
        }
        if let Some(id) = conversation(body) {
            states.insert(id.to_owned(), state.clone());
        }
        if let Some(id) = response["id"].as_str() {
            states.insert(id.to_owned(), state);
        }
    }

    /// A conversation made shorter: the messages of the user, and an item that stands for all that was read. Providers
    /// encrypt what is in it; here it is the items.
    ///
    /// Errors: not JSON, or the response to go on from is not known.
    pub(super) fn compact(&self, body: &[u8], number: u64) -> Result<Value, ProviderRefusal> {
        let body = serde_json::from_slice(body).map_err(|error| ProviderRefusal::invalid(error.to_string()))?;
        let items = own_items(&self.whole(&body)?);
        let content = Value::from(items.clone()).to_string();
        let compaction = json!({"type": "compaction", "id": format!("cmp_{number}"), "encrypted_content": content});
        let said = items.into_iter().filter(|item| item["role"] == "user");
        let output: Vec<Value> = said.chain([compaction]).collect();
        Ok(json!({
            "id": format!("resp_compact_{number}"), "object": "response.compaction", "created_at": 1, "output": output,
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        }))
    }

    /// The events of a stored response that are asked for (`stream=true`), behind the one that `starting_after` names; `None`:
    /// something else is asked for.
    ///
    /// Errors: it was not streamed in the background.
    pub(super) fn events(
        &self,
        method: &str,
        path: &str,
        query: &str,
    ) -> Result<Option<Vec<(String, Value)>>, ProviderRefusal> {
        let id = path.rsplit_once("/responses/").map_or("", |(_, id)| id);
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = states
            .get(id)
            .filter(|_| method == "GET" && asked(query, "stream") == Some("true"))
        else {
            return Ok(None);
        };
        if state.events.is_empty() {
            return Err(ProviderRefusal::invalid(
                "This response cannot be streamed: it was not created with background and stream.",
            ));
        }
        let after = asked(query, "starting_after").and_then(|number| number.parse::<i64>().ok());
        let is_behind = |event: &Value| event["sequence_number"].as_i64() > after;
        Ok(Some(
            state
                .events
                .iter()
                .filter(|(_, event)| is_behind(event))
                .cloned()
                .collect(),
        ))
    }

    /// A page of the items of a conversation. Errors: it is not known.
    pub(super) fn items(&self, path: &str, query: &str) -> Result<Value, ProviderRefusal> {
        let rest = path.rsplit_once("/conversations/").map_or("", |(_, rest)| rest);
        let id = rest.split_once('/').map_or(rest, |(id, _)| id);
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.get(id).ok_or_else(|| ProviderRefusal {
            status: 404,
            ..ProviderRefusal::invalid(format!("Conversation with id '{id}' not found."))
        })?;
        Ok(page(&listed(id, &state.items), query, "desc"))
    }

    /// Answers `GET`, `DELETE` and `POST …/cancel` of a stored response.
    ///
    /// Errors: the response is not known, or the call is not one of these.
    pub(super) fn serve(&self, method: &str, path: &str, query: &str) -> Result<Value, ProviderRefusal> {
        let rest = path.rsplit_once("/responses/").map_or("", |(_, rest)| rest);
        let (id, verb) = rest.split_once('/').unwrap_or((rest, ""));
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = states.get(id) else {
            return Err(ProviderRefusal {
                status: 404,
                ..ProviderRefusal::invalid(format!("Response with id '{id}' not found."))
            });
        };
        match (method, verb) {
            ("GET", "") => Ok(state.response.clone()),
            ("GET", "input_items") => Ok(page(&listed(id, &state.asked), query, "desc")),
            ("POST", "cancel") if state.response["background"] == true => {
                let mut cancelled = state.response.clone();
                cancelled["status"] = json!("cancelled");
                Ok(cancelled)
            }
            ("POST", "cancel") => Err(ProviderRefusal::invalid("Cannot cancel a synchronous response.")),
            ("DELETE", "") => {
                states.remove(id);
                Ok(json!({"id": id, "object": "response", "deleted": true}))
            }
            _ => Err(ProviderRefusal {
                status: 405,
                ..ProviderRefusal::invalid("Method not allowed")
            }),
        }
    }
}
