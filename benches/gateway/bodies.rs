//! The request bodies: 2 KB; 64 KB with 40 messages and 20 tools; 1 MB with 300 messages and 200 tools.

use bytes::Bytes;
use serde_json::{Value, json};

use super::wire::Wire;

/// One body and its name in the report.
#[derive(Debug, Clone)]
pub(crate) struct RequestBody {
    /// For the row's name.
    pub name: &'static str,
    /// Its format.
    pub wire: Wire,
    /// Not streamed.
    pub plain: Bytes,
    /// Streamed.
    pub streamed: Bytes,
    /// Requests of one sample: enough to outlast the clock's and the scheduler's grain.
    pub requests: usize,
}

/// All three.
pub(crate) fn all(wire: Wire) -> Vec<RequestBody> {
    vec![small(wire), medium(wire), large(wire)]
}

/// 2 KB.
pub(crate) fn small(wire: Wire) -> RequestBody {
    make(wire, ("2k", 400), (2, 0), 900)
}

/// 64 KB with 40 messages and 20 tools.
pub(crate) fn medium(wire: Wire) -> RequestBody {
    make(wire, ("64k", 150), (40, 20), 1_200)
}

fn large(wire: Wire) -> RequestBody {
    make(wire, ("1m", 30), (300, 200), 3_050)
}

fn make(
    wire: Wire,
    (name, requests): (&'static str, usize),
    (messages, tools): (usize, usize),
    text: usize,
) -> RequestBody {
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
    RequestBody {
        name,
        wire,
        plain: Bytes::from(wire.request(&body, false).to_string()),
        streamed: Bytes::from(wire.request(&body, true).to_string()),
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
