//! Bodies of Chat Completions providers.

use serde_json::Value;

use super::support::{Answer, sse};

/// A tool call of an assistant message.
pub(crate) fn call(id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{}}}}}"#,
        Value::from(arguments)
    )
}

/// A whole answer.
pub(crate) fn completion(id: &str, content: &str, calls: &[String], finish: &str, tokens: u32) -> String {
    let calls = if calls.is_empty() {
        String::new()
    } else {
        format!(r#","tool_calls":[{}]"#, calls.join(","))
    };
    format!(
        r#"{{"id":"{id}","object":"chat.completion","created":{tokens},"model":"gpt-x","choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"odd":1{calls}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens},"prompt_tokens_details":{{"cached_tokens":1}}}}}}"#
    )
}

/// One chunk of a streamed answer.
pub(crate) fn chunk(id: &str, delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}],"usage":null}}"#
    )
}

/// The chunk that carries the usage.
pub(crate) fn usage_chunk(id: &str, tokens: u32) -> String {
    format!(
        r#"{{"id":"{id}","object":"chat.completion.chunk","created":1,"model":"gpt-x","choices":[],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#
    )
}

/// A streamed answer of these chunks.
pub(crate) fn stream(chunks: &[String]) -> Answer {
    sse(chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect::<String>()
        + "data: [DONE]\n\n")
}
