//! Chat completions that the mock keeps for requests with `store: true`, as a real provider lists them.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::page;
use crate::rules::ProviderRefusal;

/// Most completions that are kept; a mock that is asked for more forgets the oldest.
const MAX_COMPLETIONS: usize = 1_000;
/// Most elements of a page, as the API has it.
const MAX_PAGE: usize = 100;

/// A completion, and what it was asked with.
#[derive(Debug)]
struct Completion {
    body: Value,
    messages: Vec<Value>,
}

/// All that are kept, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    all: Mutex<Vec<Completion>>,
}

/// The messages of a request as they are listed: each has an id, and a list of parts is beside `content`.
fn listed(id: &str, messages: &Value) -> Vec<Value> {
    let one = |(index, message): (usize, &Value)| {
        let mut message = message.clone();
        message["id"] = json!(format!("{id}-{index}"));
        message["content_parts"] = Value::Null;
        if message["content"].is_array() {
            message["content_parts"] = message["content"].take();
        }
        message
    };
    let all = messages.as_array().into_iter().flatten();
    all.enumerate().map(one).collect()
}

impl Completions {
    /// Keeps an answer if the request says so, with the members of the request that a stored one repeats.
    pub(crate) fn keep(&self, asked: &Value, answer: &Value) {
        if asked["store"] != true {
            return;
        }
        let mut body = answer.clone();
        for key in [
            "tools",
            "tool_choice",
            "response_format",
            "metadata",
            "temperature",
            "seed",
        ] {
            body[key] = asked.get(key).cloned().unwrap_or_default();
        }
        let messages = listed(body["id"].as_str().unwrap_or_default(), &asked["messages"]);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_COMPLETIONS {
            all.remove(0);
        }
        all.push(Completion { body, messages });
    }

    /// Answers a request about stored completions.
    ///
    /// Errors: the completion is not known, the call is none of the API's, or its metadata or page is not.
    pub(crate) fn serve(&self, method: &str, path: &str, query: &str, body: &[u8]) -> Result<Value, ProviderRefusal> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, rest)) = path.trim_end_matches('/').rsplit_once("/chat/completions/") else {
            let bodies: Vec<Value> = all.iter().map(|one| one.body.clone()).collect();
            return checked(&bodies, query);
        };
        let (id, verb) = rest.split_once('/').unwrap_or((rest, ""));
        let at = all
            .iter()
            .position(|one| one.body["id"] == id)
            .ok_or_else(|| ProviderRefusal {
                status: 404,
                ..ProviderRefusal::invalid(format!("Completion {id} not found"))
            })?;
        match (method, verb) {
            ("GET", "") => Ok(all[at].body.clone()),
            ("GET", "messages") => checked(&all[at].messages, query),
            ("POST", "") => {
                all[at].body["metadata"] = metadata(body)?;
                Ok(all[at].body.clone())
            }
            ("DELETE", "") => {
                all.remove(at);
                Ok(json!({"id": id, "object": "chat.completion.deleted", "deleted": true}))
            }
            _ => Err(ProviderRefusal {
                status: 405,
                ..ProviderRefusal::invalid("Method not allowed")
            }),
        }
    }
}

/// A page of a list, oldest first unless asked otherwise.
fn checked(all: &[Value], query: &str) -> Result<Value, ProviderRefusal> {
    let limit = super::asked(query, "limit");
    if limit.is_some_and(|limit| {
        !limit
            .parse::<usize>()
            .is_ok_and(|limit| (1..=MAX_PAGE).contains(&limit))
    }) {
        return Err(ProviderRefusal::at(
            "limit",
            "invalid_value",
            format!("Invalid 'limit': expected 1 to {MAX_PAGE}."),
        ));
    }
    if let Some(after) = super::asked(query, "after").filter(|after| all.iter().all(|one| one["id"] != **after)) {
        return Err(ProviderRefusal::at(
            "after",
            "invalid_value",
            format!("No element with id '{after}'."),
        ));
    }
    Ok(page(all, query, "asc"))
}

/// The metadata of an update: texts, and nothing beside it.
fn metadata(body: &[u8]) -> Result<Value, ProviderRefusal> {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let only = asked.as_object().is_some_and(|members| members.keys().eq(["metadata"]));
    let texts = asked["metadata"]
        .as_object()
        .is_some_and(|all| all.values().all(Value::is_string));
    if only && texts {
        Ok(asked["metadata"].clone())
    } else {
        Err(ProviderRefusal::at(
            "metadata",
            "invalid_type",
            "Expected metadata: an object of strings.",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(page: &Value) -> Vec<&str> {
        let data = page["data"].as_array().into_iter().flatten();
        data.filter_map(|one| one["id"].as_str()).collect()
    }

    #[test]
    fn completions_are_kept_on_demand_and_listed_oldest_first() {
        let completions = Completions::default();
        let asked = json!({"store": true, "metadata": {"a": "1"}, "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "x"}]},
        ]});
        for id in ["c-1", "c-2", "c-3"] {
            completions.keep(&asked, &json!({"id": id, "object": "chat.completion"}));
        }
        completions.keep(&json!({"messages": []}), &json!({"id": "c-4"}));
        let serve = |method, path: &str, query, body: &str| {
            completions.serve(method, &format!("/v1/chat/completions{path}"), query, body.as_bytes())
        };
        let get = |path, query| serve("GET", path, query, "").unwrap();
        assert_eq!(ids(&get("", "")), ["c-1", "c-2", "c-3"]);
        let page = get("", "order=desc&after=c-3&limit=1");
        assert_eq!((ids(&page), &page["has_more"]), (vec!["c-2"], &json!(true)));
        let messages = get("/c-1/messages", "");
        assert_eq!(ids(&messages), ["c-1-0", "c-1-1"]);
        let parts = &messages["data"][1];
        assert_eq!(
            (&parts["content"], &parts["content_parts"][0]["text"]),
            (&Value::Null, &json!("x"))
        );

        let updated = serve("POST", "/c-1", "", r#"{"metadata":{"a":"2"}}"#).unwrap();
        assert_eq!(
            (&updated["metadata"]["a"], &get("/c-1", "")["metadata"]["a"]),
            (&json!("2"), &json!("2"))
        );
        assert_eq!(serve("DELETE", "/c-2", "", "").unwrap()["deleted"], true);
        assert_eq!(ids(&get("", "")), ["c-1", "c-3"]);
        for (method, path, query, body, status) in [
            ("GET", "/c-2", "", "", 404),
            ("PUT", "/c-1", "", "", 405),
            ("GET", "", "limit=101", "", 400),
            ("GET", "", "after=c-2", "", 400),
            ("POST", "/c-1", "", r#"{"metadata":{"a":2}}"#, 400),
            ("POST", "/c-1", "", r#"{"metadata":{},"model":"m"}"#, 400),
        ] {
            let refused = serve(method, path, query, body).unwrap_err();
            assert_eq!(refused.status, status, "{method} {path}?{query} {body}");
        }
    }
}
