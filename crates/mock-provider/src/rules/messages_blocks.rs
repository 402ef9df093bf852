//! Messages: roles, contents and the shape of blocks.

use serde_json::Value;

use super::messages_fields::NEW_VERSION;
use super::values::{block_type, is_given, is_id, is_tool_name, items, messages, role, runs};
use super::{ProviderRefusal, Rule, RuleInput};

/// Most cache markers of a request.
const MAX_CACHE_MARKERS: usize = 4;
/// Blocks that only a user may send.
const USER_BLOCKS: [&str; 5] = ["image", "search_result", "tool_result", "container_upload", "document"];
/// Blocks that only an assistant may say.
const ASSISTANT_BLOCKS: [&str; 4] = ["thinking", "redacted_thinking", "tool_use", "server_tool_use"];
/// Blocks of a tool result.
const RESULT_BLOCKS: [&str; 5] = ["text", "image", "search_result", "document", "tool_reference"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "messages_list",
        check: messages_list,
    },
    Rule {
        name: "roles",
        check: roles,
    },
    Rule {
        name: "user_first",
        check: user_first,
    },
    Rule {
        name: "content_shape",
        check: content_shape,
    },
    Rule {
        name: "empty_text",
        check: empty_text,
    },
    Rule {
        name: "blocks_of_role",
        check: blocks_of_role,
    },
    Rule {
        name: "call_shape",
        check: call_shape,
    },
    Rule {
        name: "result_content",
        check: result_content,
    },
    Rule {
        name: "version_blocks",
        check: version_blocks,
    },
    Rule {
        name: "cache_markers",
        check: cache_markers,
    },
    Rule {
        name: "prefill",
        check: prefill,
    },
];

fn messages_list(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match &rule_input.body["messages"] {
        Value::Null => Err(ProviderRefusal::invalid("messages: Field required")),
        Value::Array(list) if list.is_empty() => {
            Err(ProviderRefusal::invalid("messages: at least one message is required"))
        }
        Value::Array(list) => match list.iter().position(|message| !message.is_object()) {
            Some(index) => Err(ProviderRefusal::invalid(format!(
                "messages.{index}: Input should be an object"
            ))),
            None => Ok(()),
        },
        _ => Err(ProviderRefusal::invalid("messages: Input should be a valid list")),
    }
}

fn roles(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        if !["user", "assistant", "system"].contains(&role(message)) {
            return Err(ProviderRefusal::invalid(format!(
                "messages: Unexpected role {}. Allowed roles are \"user\", \"assistant\" and \"system\" (messages.{index})",
                message["role"]
            )));
        }
    }
    Ok(())
}

fn user_first(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    match messages(rule_input)
        .map(|(_, message)| role(message))
        .find(|role| *role != "system")
    {
        Some("user") => Ok(()),
        _ => Err(ProviderRefusal::invalid(
            "messages: first message must use the \"user\" role",
        )),
    }
}

/// A string or blocks that are objects with a type; empty only in a last assistant message.
fn content_shape(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let last = messages(rule_input).count().saturating_sub(1);
    for (index, message) in messages(rule_input) {
        let empty = match &message["content"] {
            Value::String(text) => text.is_empty(),
            Value::Array(blocks) => {
                if let Some(block) = blocks.iter().position(|block| !block["type"].is_string()) {
                    return Err(ProviderRefusal::invalid(format!(
                        "messages.{index}.content.{block}.type: Field required"
                    )));
                }
                blocks.is_empty()
            }
            _ => {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{index}.content: Input should be a valid string or list"
                )));
            }
        };
        if empty && !(index == last && role(message) == "assistant") {
            return Err(ProviderRefusal::invalid(format!(
                "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
            )));
        }
    }
    Ok(())
}

fn empty_text(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        let nested = items(&message["content"]).flat_map(|block| items(&block["content"]));
        for block in items(&message["content"])
            .chain(nested)
            .filter(|block| block["type"] == "text")
        {
            match block["text"].as_str() {
                None => {
                    return Err(ProviderRefusal::invalid(format!(
                        "messages.{index}: text: Input should be a valid string"
                    )));
                }
                Some("") => {
                    return Err(ProviderRefusal::invalid(
                        "messages: text content blocks must be non-empty",
                    ));
                }
                Some(text) if text.trim().is_empty() => {
                    return Err(ProviderRefusal::invalid(
                        "messages: text content blocks must contain non-whitespace text",
                    ));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Known blocks must be in messages of their role; unknown ones may be anywhere.
fn blocks_of_role(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        for (block_index, block) in items(&message["content"]).enumerate() {
            let kind = block_type(block);
            let server_result = kind.ends_with("_tool_result") && kind != "tool_result";
            let fits = match role(message) {
                "user" => !ASSISTANT_BLOCKS.contains(&kind) && !server_result,
                "assistant" => !USER_BLOCKS.contains(&kind) || kind == "document",
                _ => kind == "text",
            };
            if !fits {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{index}.content.{block_index}: `{kind}` blocks are not allowed in messages of role {}",
                    role(message)
                )));
            }
        }
    }
    Ok(())
}

fn call_shape(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        for (block_index, block) in items(&message["content"]).enumerate() {
            let path = format!("messages.{index}.content.{block_index}.{}", block_type(block));
            let id = block["id"].as_str().unwrap_or_default();
            let id_fits = match block_type(block) {
                "tool_use" => is_id(id) && !id.starts_with("srvtoolu_"),
                "server_tool_use" => {
                    let own = id.strip_prefix("srvtoolu_");
                    own.is_some_and(|rest| is_id(rest) && !rest.contains('-') && !rest.starts_with("knack_"))
                }
                _ => continue,
            };
            if !id_fits {
                return Err(ProviderRefusal::invalid(format!(
                    "{path}.id: String should match the pattern of its ids, got {}",
                    block["id"]
                )));
            }
            let limit = rule_input.provider.messages_tool_name_bytes;
            if !block["name"].as_str().is_some_and(|name| is_tool_name(name, limit)) {
                return Err(ProviderRefusal::invalid(format!(
                    "{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{limit}}}$'"
                )));
            }
            if !block["input"].is_object() {
                return Err(ProviderRefusal::invalid(format!(
                    "{path}.input: Input should be a valid dictionary"
                )));
            }
        }
    }
    Ok(())
}

fn result_content(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    for (index, message) in messages(rule_input) {
        for (block_index, block) in items(&message["content"])
            .enumerate()
            .filter(|(_, block)| block["type"] == "tool_result")
        {
            let path = format!("messages.{index}.content.{block_index}.tool_result");
            match &block["content"] {
                Value::Null | Value::String(_) => {}
                Value::Array(parts) => {
                    if let Some(part) = parts
                        .iter()
                        .find(|part| !RESULT_BLOCKS.contains(&block_type(part)) || part.is_string())
                    {
                        return Err(ProviderRefusal::invalid(format!(
                            "{path}.content: Input tag {} does not match any of the expected tags: {}",
                            part["type"],
                            RESULT_BLOCKS.join(", ")
                        )));
                    }
                }
                _ => {
                    return Err(ProviderRefusal::invalid(format!(
                        "{path}.content: Input should be a valid string or list"
                    )));
                }
            }
            if is_given(&block["is_error"]) && !block["is_error"].is_boolean() {
                return Err(ProviderRefusal::invalid(format!(
                    "{path}.is_error: Input should be a valid boolean"
                )));
            }
        }
    }
    Ok(())
}

/// Refuses blocks that the new version of the API no longer takes.
fn version_blocks(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if rule_input.header("anthropic-version") != Some(NEW_VERSION) {
        return Ok(());
    }
    for (index, message) in messages(rule_input) {
        for block in items(&message["content"]) {
            if role(message) == "assistant" && block["type"] == "document" {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{index}: document blocks of the assistant ended with {NEW_VERSION}"
                )));
            }
            if role(message) == "user" && block["type"] == "text" && items(&block["citations"]).next().is_some() {
                return Err(ProviderRefusal::invalid(format!(
                    "messages.{index}: citations of user text ended with {NEW_VERSION}"
                )));
            }
        }
    }
    Ok(())
}

fn cache_markers(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    let body = rule_input.body;
    let blocks: Vec<&Value> = messages(rule_input)
        .flat_map(|(_, message)| items(&message["content"]))
        .collect();
    if let Some(block) = blocks
        .iter()
        .find(|block| is_given(&block["cache_control"]) && block_type(block).ends_with("thinking"))
    {
        return Err(ProviderRefusal::invalid(format!(
            "cache_control cannot be set for {} blocks",
            block_type(block)
        )));
    }
    let nested = blocks.iter().flat_map(|block| items(&block["content"]));
    let objects = std::iter::once(body)
        .chain(items(&body["system"]))
        .chain(items(&body["tools"]))
        .chain(blocks.iter().copied())
        .chain(nested);
    let markers: Vec<&Value> = objects
        .map(|object| &object["cache_control"])
        .filter(|marker| is_given(marker))
        .collect();
    if let Some(odd) = markers.iter().find(|marker| marker["type"] != "ephemeral") {
        return Err(ProviderRefusal::invalid(format!(
            "cache_control: type should be 'ephemeral', got {}",
            odd["type"]
        )));
    }
    if markers.len() > MAX_CACHE_MARKERS {
        return Err(ProviderRefusal::invalid(format!(
            "A maximum of {MAX_CACHE_MARKERS} blocks with cache_control may be provided. Found {}.",
            markers.len()
        )));
    }
    Ok(())
}

/// A last message of the assistant is refused, unless a server tool of the provider paused in it.
fn prefill(rule_input: &RuleInput<'_>) -> Result<(), ProviderRefusal> {
    if rule_input.provider.prefill {
        return Ok(());
    }
    let runs = runs(rule_input);
    let Some(last) = runs.last().filter(|run| run.role == "assistant") else {
        return Ok(());
    };
    let answered: Vec<&str> = last
        .blocks
        .iter()
        .filter_map(|block| block["tool_use_id"].as_str())
        .collect();
    let paused = last
        .of("server_tool_use")
        .any(|call| !answered.contains(&call["id"].as_str().unwrap_or_default()));
    if paused {
        return Ok(());
    }
    Err(ProviderRefusal::invalid(
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ))
}
