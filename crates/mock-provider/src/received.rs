//! The content of a request, read in the same way from all formats, so that conditions are independent of them.

use serde_json::{Value, json};

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
        let key = match format {
            FormatName::Chat | FormatName::Messages => "messages",
            FormatName::Responses => "input",
            FormatName::Gemini => "contents",
        };
        let messages = body[key].as_array().unwrap_or(&empty);
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
        match format {
            FormatName::Chat | FormatName::Messages => {
                received.add_system(&body["system"]);
                for message in messages {
                    received.add_message(message);
                }
            }
            FormatName::Responses => received.add_items(&body["instructions"], &body["input"]),
            FormatName::Gemini => received.add_contents(body, messages),
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

    /// Items of Responses: output of the model between two other items is one answer.
    fn add_items(&mut self, instructions: &Value, input: &Value) {
        self.add_system(instructions);
        if input.is_string() {
            self.add_message(&json!({"role": "user", "content": input}));
        }
        let mut answering = false;
        for item in input.as_array().into_iter().flatten() {
            let kind = item["type"].as_str().unwrap_or("message");
            let own = item["role"] != "assistant" && (kind == "message" || kind.ends_with("_output"));
            if own && kind == "message" {
                self.add_message(item);
            } else if own {
                self.add_result(text_of(&item["output"]));
            } else {
                self.round += usize::from(!answering);
                self.history.push(text_of(&item["content"]));
            }
            answering = !own;
        }
    }

    /// Contents of Gemini: neighbours of one role are one message.
    fn add_contents(&mut self, body: &Value, contents: &[Value]) {
        self.add_system(&field(body, "systemInstruction")["parts"]);
        let mut answering = false;
        for content in contents {
            let model = content["role"] == "model";
            let answers: Vec<&Value> = parts_with(content, "functionResponse");
            let text = text_of(&content["parts"]);
            if model {
                self.round += usize::from(!answering);
            } else if answers.is_empty() {
                text.clone_into(&mut self.user);
                self.round = 0;
                self.results.clear();
            }
            answering = model;
            for answer in answers {
                let response = &answer["response"];
                let output = [&response["output"], &response["error"], response];
                let output = output.into_iter().find(|value| !value.is_null()).unwrap_or(response);
                self.add_result(output.as_str().map_or_else(|| output.to_string(), str::to_owned));
            }
            self.history.push(text);
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

/// A member in either of its spellings.
pub(super) fn field<'a>(value: &'a Value, camel: &str) -> &'a Value {
    match &value[camel] {
        Value::Null => &value[snake(camel)],
        own => own,
    }
}

/// The other spelling of a member.
pub(super) fn snake(camel: &str) -> String {
    let mut out = String::with_capacity(camel.len() + 4);
    for char in camel.chars() {
        if char.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(char.to_ascii_lowercase());
    }
    out
}

/// A Gemini request with lists in place of single objects, which the JSON form of protocol buffers takes for lists of one.
pub(super) fn with_lists(mut body: Value) -> Value {
    for_each(&mut body, "contents", &|content| for_each(content, "parts", &|_| {}));
    for_each(&mut body, "tools", &|tool| {
        for_each(tool, "functionDeclarations", &|_| {});
        for_each(tool, "function_declarations", &|_| {});
    });
    for system in ["systemInstruction", "system_instruction"] {
        if let Some(content) = body.get_mut(system) {
            for_each(content, "parts", &|_| {});
        }
    }
    body
}

/// Makes a list of a member that is an object, and does this with each element.
fn for_each(value: &mut Value, key: &str, one: &dyn Fn(&mut Value)) {
    let Some(list) = value.get_mut(key) else { return };
    if list.is_object() {
        *list = Value::Array(vec![list.take()]);
    }
    list.as_array_mut().into_iter().flatten().for_each(one);
}

/// The members of this name in the parts of a content.
pub(super) fn parts_with<'a>(content: &'a Value, camel: &str) -> Vec<&'a Value> {
    let parts = content["parts"].as_array().into_iter().flatten();
    parts
        .map(|part| field(part, camel))
        .filter(|value| !value.is_null())
        .collect()
}

/// Names of the offered tools, in order: functions and custom tools of Chat, all tools of Messages and Responses, declared
/// functions of Gemini.
fn tool_names(body: &Value) -> Vec<String> {
    let name_of = |tool: &Value| {
        [&tool["function"]["name"], &tool["custom"]["name"], &tool["name"]]
            .into_iter()
            .find_map(|name| name.as_str().map(str::to_owned))
    };
    let tools = body["tools"].as_array().into_iter().flatten();
    tools
        .flat_map(|tool| match field(tool, "functionDeclarations").as_array() {
            Some(functions) => functions.iter().filter_map(name_of).collect(),
            None => name_of(tool).into_iter().collect::<Vec<_>>(),
        })
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
