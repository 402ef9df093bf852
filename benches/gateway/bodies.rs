//! The request bodies: 2 KB; 64 KB with 40 messages and 20 tools; 1 MB.

use bytes::Bytes;
use serde_json::{Value, json};

/// One body and its name in the report.
#[derive(Debug, Clone)]
pub(crate) struct RequestBody {
    /// For the row's name.
    pub name: &'static str,
    /// Not streamed.
    pub plain: Bytes,
    /// The same, streamed.
    pub streamed: Bytes,
    /// Requests of one sample: enough to outlast the clock's and the scheduler's grain.
    pub requests: usize,
}

/// All three.
pub(crate) fn all() -> Vec<RequestBody> {
    vec![small(), medium(), large()]
}

fn small() -> RequestBody {
    make("2k", 2, 0, 900, 400)
}

/// 64 KB with 40 messages and 20 tools.
pub(crate) fn medium() -> RequestBody {
    make("64k", 40, 20, 1_200, 150)
}

fn large() -> RequestBody {
    make("1m", 40, 20, 25_500, 30)
}

fn make(name: &'static str, messages: usize, tools: usize, text: usize, requests: usize) -> RequestBody {
    let messages: Vec<Value> = std::iter::once(json!({"role": "system", "content": "Be brief."}))
        .chain(
            (0..messages)
                .map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": prose(n, text)})),
        )
        .chain(std::iter::once(json!({"role": "user", "content": "And now?"})))
        .collect();
    let tools: Vec<Value> = (0..tools)
        .map(|n| {
            let properties = json!({"city": {"type": "string", "description": "Name of a city"}, "unit": {"type": "string", "enum": ["c", "f"]}});
            json!({"type": "function", "function": {"name": format!("tool_{n}"), "description": "Looks something up in a table of the application and returns it.",
                "parameters": {"type": "object", "properties": properties, "required": ["city"]}}})
        })
        .collect();
    let mut body = json!({"model": "bench", "messages": messages, "temperature": 0.7});
    if !tools.is_empty() {
        body["tools"] = Value::Array(tools);
    }
    let plain = Bytes::from(body.to_string());
    body["stream"] = Value::Bool(true);
    RequestBody {
        name,
        plain,
        streamed: Bytes::from(body.to_string()),
        requests,
    }
}

/// Text as chats have it: words, line breaks, quotes to escape.
fn prose(seed: usize, length: usize) -> String {
    const WORDS: [&str; 12] = [
        "the",
        "report",
        "of",
        "last",
        "quarter",
        "\"shows\"",
        "a",
        "rise\n",
        "in",
        "sales",
        "überall",
        "again.",
    ];
    let mut text = String::with_capacity(length + 16);
    let mut n = seed;
    while text.len() < length {
        text.push_str(WORDS[n % WORDS.len()]);
        text.push(' ');
        n = n * 7 + 3;
        n %= 1_000_003;
    }
    text
}
