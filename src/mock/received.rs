//! What a request holds, read the same way from both formats, so that conditions need not know them.

use serde_json::Value;

use super::script::FormatName;

/// A request as scripts see it. Built from a body that passed the rules; odd shapes read as empty.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) format: FormatName,
    pub(super) stream: bool,
    pub(super) model: String,
    /// All system texts, joined by an empty line.
    pub(super) system: String,
    /// The last text that a user wrote.
    pub(super) user: String,
    /// Texts of all messages but system ones, in order.
    pub(super) history: Vec<String>,
    /// Assistant messages since the last user text.
    pub(super) round: usize,
    /// Texts of the tool results since the last user text.
    pub(super) results: Vec<String>,
    pub(super) message_count: usize,
    pub(super) tools: Vec<String>,
    /// The body as text, for conditions on bytes.
    pub(super) body: String,
    /// Header names in lower case, with their values.
    pub(super) headers: Vec<(String, String)>,
}

impl Received {
    /// Reads a body; `bytes` is what `body` was parsed from.
    pub(super) fn read(format: FormatName, body: &Value, bytes: &[u8], headers: Vec<(String, String)>) -> Self {
        let empty = Vec::new();
        let messages = body["messages"].as_array().unwrap_or(&empty);
        let mut received = Self {
            format,
            stream: body["stream"].as_bool().unwrap_or(false),
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            system: String::new(),
            user: String::new(),
            history: Vec::new(),
            round: 0,
            results: Vec::new(),
            message_count: messages.len(),
            tools: tool_names(body),
            body: String::from_utf8_lossy(bytes).into_owned(),
            headers,
        };
        received.add_system(&body["system"]);
        for message in messages {
            received.add_message(message);
        }
        received
    }

    fn add_system(&mut self, content: &Value) {
        let text = text_of(content);
        if !text.is_empty() {
            if !self.system.is_empty() {
                self.system.push_str("\n\n");
            }
            self.system.push_str(&text);
        }
    }

    fn add_message(&mut self, message: &Value) {
        let content = &message["content"];
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" => self.add_system(content),
            "tool" | "function" => self.add_result(text_of(content)),
            "assistant" => {
                self.round += 1;
                self.history.push(text_of(content));
            }
            _ => {
                let results = blocks_of(content, "tool_result");
                for result in &results {
                    self.add_result(text_of(&result["content"]));
                }
                let text = text_of(content);
                if results.is_empty() {
                    text.clone_into(&mut self.user);
                    self.round = 0;
                    self.results.clear();
                }
                self.history.push(text);
            }
        }
    }

    fn add_result(&mut self, text: String) {
        self.history.push(text.clone());
        self.results.push(text);
    }

    /// The value of a header, or an empty text.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }
}

/// Names of the offered tools, in order: functions and custom tools of Chat, all tools of Messages.
fn tool_names(body: &Value) -> Vec<String> {
    let name_of = |tool: &Value| {
        [&tool["function"]["name"], &tool["custom"]["name"], &tool["name"]]
            .into_iter()
            .find_map(|name| name.as_str().map(str::to_owned))
    };
    body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(name_of)
        .collect()
}

/// The text of a content: a string, or the text parts joined by line ends.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// The blocks of a content that have a type.
pub(super) fn blocks_of<'a>(content: &'a Value, kind: &str) -> Vec<&'a Value> {
    content
        .as_array()
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == kind)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(format: FormatName, body: &Value) -> Received {
        Received::read(format, body, body.to_string().as_bytes(), Vec::new())
    }

    #[test]
    fn chat_rounds_and_results_are_counted_since_the_last_user_text() {
        let received = read(
            FormatName::Chat,
            &json!({"model": "m", "messages": [
                {"role": "system", "content": "a"}, {"role": "user", "content": "one"},
                {"role": "assistant", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "two"}]},
                {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": "r1"},
                {"role": "assistant", "tool_calls": []}, {"role": "tool", "content": [{"type": "text", "text": "r2"}]}
            ], "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "c"}}]}),
        );
        assert_eq!(
            (
                received.system.as_str(),
                received.user.as_str(),
                received.round,
                received.message_count
            ),
            ("a", "two", 2, 8)
        );
        assert_eq!(received.results, ["r1", "r2"]);
        assert_eq!(received.tools, ["f", "c"]);
        assert_eq!(received.history, ["one", "x", "two", "", "r1", "", "r2"]);
    }

    #[test]
    fn messages_results_do_not_start_a_turn_even_with_text_behind_them() {
        let received = read(
            FormatName::Messages,
            &json!({"model": "m", "system": [{"type": "text", "text": "s"}, {"type": "text", "text": "t"}], "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}, {"type": "text", "text": "more"}]}
            ], "tools": [{"name": "f"}]}),
        );
        assert_eq!(
            (received.system.as_str(), received.user.as_str(), received.round),
            ("s\nt", "go", 1)
        );
        assert_eq!(received.results, ["ok"]);
    }
}
