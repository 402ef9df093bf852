//! Tools that manage uploaded skills, under the names that OmniRoute gives them: each is a request to the API of the
//! registry, with the credential of the MCP request. Offered where there is a registry, to requests that have a credential.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use knack_gateway::Gateway;
use knack_gateway::callers::caller;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// OmniRoute's names.
const LIST: &str = "omniroute_skills_list";
const ENABLE: &str = "omniroute_skills_enable";
const EXECUTE: &str = "omniroute_skills_execute";
const EXECUTIONS: &str = "omniroute_skills_executions";

/// The API of the registry that the tools ask.
const ROWS: &str = "/api/skills";

/// An answer: a page of 100 executions, each with 52 KiB of input, output and error.
const ANSWER_MAX_BYTES: usize = 8 << 20;

/// The tools for a request.
pub(crate) fn tools(gateway: &Gateway, parts: &Parts) -> Vec<Tool> {
    let Some(uploads) = &gateway.uploads else {
        return Vec::new();
    };
    if uploads.is_by_credential() && !caller::has_credential(&parts.headers, &parts.uri) {
        return Vec::new();
    }
    vec![list_tool(), enable_tool(), execute_tool(), executions_tool()]
}

fn list_tool() -> Tool {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "apiKeyId": text(), "name": text(), "enabled": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["on", "off", "auto"]},
            "page": page(), "limit": limit(),
        },
    });
    let description = "Lists the skills of this credential and those from files, with version and mode.";
    tool(LIST, description, &schema, reads())
}

fn enable_tool() -> Tool {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["skillId"],
        "properties": {
            "skillId": {"type": "string", "description": "An id or a name"}, "enabled": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["on", "off", "auto"]},
        },
    });
    let description =
        "Sets when an uploaded skill reaches models: mode on, off or auto, or enabled (true is on, false is off).";
    tool(ENABLE, description, &schema, changes())
}

fn execute_tool() -> Tool {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "skillName": {"type": "string", "description": "A name, name@1.0.0 or name@^1"}, "skillId": text(),
            "tool": text(), "input": {"type": "object", "description": "The arguments of the tool"}, "sessionId": text(),
        },
    });
    let description = "Runs the declared tool of a skill once, in the sandbox, and returns its execution.";
    tool(EXECUTE, description, &schema, changes())
}

fn executions_tool() -> Tool {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "apiKeyId": text(), "skillId": text(), "page": page(), "limit": limit(),
            "status": {"type": "string", "enum": ["pending", "running", "success", "error", "timeout"]},
        },
    });
    let description = "Lists past executions of this credential, the newest first (50, at most 100).";
    tool(EXECUTIONS, description, &schema, reads())
}

fn tool(name: &'static str, description: &'static str, schema: &Value, annotations: ToolAnnotations) -> Tool {
    let schema = schema.as_object().cloned().unwrap_or_default();
    let mut tool = Tool::new(name, description, Arc::new(schema));
    tool.annotations = Some(annotations);
    tool
}

fn reads() -> ToolAnnotations {
    ToolAnnotations::new().read_only(true).open_world(false)
}

fn changes() -> ToolAnnotations {
    ToolAnnotations::new().read_only(false).open_world(false)
}

fn text() -> Value {
    json!({"type": "string"})
}

fn page() -> Value {
    json!({"type": "integer", "minimum": 1})
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 100})
}

/// Answers a call of one of these tools. `None`: it is none of them.
pub(crate) async fn call(
    gateway: &Gateway,
    parts: &Parts,
    name: &str,
    arguments: Option<&JsonObject>,
) -> Option<CallToolResult> {
    if !tools(gateway, parts).iter().any(|tool| tool.name == name) {
        return None;
    }
    let uploads = gateway.uploads.as_ref()?;
    let empty = JsonObject::new();
    let (method, address, body) = match request(name, &given(arguments.unwrap_or(&empty))) {
        Ok(request) => request,
        Err(text) => return Some(CallToolResult::error(vec![ContentBlock::text(text)])),
    };
    let address = with_credentials(address, &parts.uri);
    let asked = Request::builder().method(method).uri(address).body(()).ok()?;
    let (mut asked, ()) = asked.into_parts();
    asked.headers = credentials(&parts.headers);
    // The extensions name the account, where a check of clients has found it out.
    asked.extensions = parts.extensions.clone();
    let base = gateway.served().catalog.snapshot().await;
    let answer = uploads.answer(&asked, Bytes::from(body), base).await;
    let is_success = answer.status().is_success();
    let Ok(answer) = axum::body::to_bytes(answer.into_body(), ANSWER_MAX_BYTES).await else {
        let text = "the answer of the registry is too long; ask for fewer by limit";
        return Some(CallToolResult::error(vec![ContentBlock::text(text)]));
    };
    let content = vec![ContentBlock::text(String::from_utf8_lossy(&answer).into_owned())];
    Some(if is_success {
        CallToolResult::success(content)
    } else {
        CallToolResult::error(content)
    })
}

/// The address with the credentials in the address of the MCP request: a client may have no other place for its key.
fn with_credentials(address: String, uri: &Uri) -> String {
    let credentials = caller::credential_query(uri);
    let mark = if address.contains('?') { '&' } else { '?' };
    if credentials.is_empty() {
        address
    } else {
        format!("{address}{mark}{credentials}")
    }
}

/// The headers that name the sender: all but those that describe the body.
fn credentials(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

/// The arguments that say something: a null is none.
fn given(arguments: &JsonObject) -> JsonObject {
    let mut given = arguments.clone();
    given.retain(|_, value| !value.is_null());
    given
}

/// The request that a call means. Errors: an argument that the tool does not have.
fn request(name: &str, arguments: &JsonObject) -> Result<(Method, String, String), String> {
    let has = |known: &[&str]| match arguments.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!(
            "{key}: {name} has no such argument; it has {}",
            known.join(", ")
        )),
    };
    match name {
        LIST => {
            has(&["apiKeyId", "name", "enabled", "mode", "page", "limit"])?;
            let mut query = query(
                arguments,
                &[
                    ("apiKeyId", "apiKeyId"),
                    ("name", "q"),
                    ("mode", "mode"),
                    ("page", "page"),
                    ("limit", "limit"),
                ],
            );
            match (arguments.get("enabled"), arguments.contains_key("mode")) {
                (None, _) | (_, true) => {}
                (Some(Value::Bool(enabled)), false) => query.push(("enabled", enabled.to_string())),
                (Some(_), false) => return Err("enabled: must be true or false".to_owned()),
            }
            Ok((Method::GET, address(ROWS, &query), String::new()))
        }
        ENABLE => {
            has(&["skillId", "enabled", "mode"])?;
            let id = arguments.get("skillId").and_then(Value::as_str);
            let id = id.filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| "skillId: required, an id or a name; the list of skills has both".to_owned())?;
            let mut body = arguments.clone();
            body.remove("skillId");
            let path = format!("{ROWS}/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
            Ok((Method::PUT, path, Value::Object(body).to_string()))
        }
        EXECUTE => {
            let body = Value::Object(arguments.clone()).to_string();
            Ok((Method::POST, format!("{ROWS}/executions"), body))
        }
        _ => {
            let known = ["apiKeyId", "skillId", "status", "page", "limit"];
            has(&known)?;
            let query = query(arguments, &known.map(|name| (name, name)));
            Ok((
                Method::GET,
                address(&format!("{ROWS}/executions"), &query),
                String::new(),
            ))
        }
    }
}

/// The named arguments as parameters.
fn query<'a>(arguments: &JsonObject, names: &[(&str, &'a str)]) -> Vec<(&'a str, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let one = |(argument, parameter): &(&str, &'a str)| Some((*parameter, text(arguments.get(*argument)?)));
    names.iter().filter_map(one).collect()
}

fn address(path: &str, query: &[(&str, String)]) -> String {
    let pairs = query
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_a_request_to_the_api() {
        let of = |name: &str, arguments: Value| request(name, arguments.as_object().unwrap());
        for (name, arguments, method, address, body) in [
            (LIST, json!({}), Method::GET, "/api/skills?", ""),
            (
                LIST,
                json!({"name": "a b&", "limit": 5}),
                Method::GET,
                "/api/skills?q=a%20b%26&limit=5",
                "",
            ),
            (
                LIST,
                json!({"enabled": false, "apiKeyId": "system"}),
                Method::GET,
                "/api/skills?apiKeyId=system&enabled=false",
                "",
            ),
            (
                LIST,
                json!({"enabled": true, "name": null, "mode": null, "limit": null}),
                Method::GET,
                "/api/skills?enabled=true",
                "",
            ),
            (
                ENABLE,
                json!({"skillId": "a", "enabled": true, "mode": null}),
                Method::PUT,
                "/api/skills/a",
                r#"{"enabled":true}"#,
            ),
            (
                ENABLE,
                json!({"skillId": "a/../b", "mode": "auto"}),
                Method::PUT,
                "/api/skills/a%2F%2E%2E%2Fb",
                r#"{"mode":"auto"}"#,
            ),
            (
                EXECUTE,
                json!({"skillName": "a"}),
                Method::POST,
                "/api/skills/executions",
                r#"{"skillName":"a"}"#,
            ),
            (
                EXECUTIONS,
                json!({"status": "error", "page": 2}),
                Method::GET,
                "/api/skills/executions?status=error&page=2",
                "",
            ),
        ] {
            let found = of(name, Value::Object(given(arguments.as_object().unwrap()))).unwrap();
            assert_eq!(found, (method, address.to_owned(), body.to_owned()));
        }
        for (name, arguments) in [
            (LIST, json!({"owner": "x"})),
            (LIST, json!({"enabled": "no"})),
            (ENABLE, json!({"mode": "on"})),
            (EXECUTIONS, json!({"id": "x"})),
        ] {
            assert!(of(name, arguments).is_err());
        }
    }
}
