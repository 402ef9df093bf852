//! A client of any of the four formats that keeps what it saw and sends it all back, as an application does.

use std::collections::BTreeMap;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::support::{Answer, Running, client};

/// The wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    Chat,
    Messages,
    Responses,
    Gemini,
}

/// Every format, whole and streaming: the rows of every test of the tool loop.
pub(crate) const ROWS: [(Format, bool); 8] = [
    (Format::Chat, false),
    (Format::Chat, true),
    (Format::Messages, false),
    (Format::Messages, true),
    (Format::Responses, false),
    (Format::Responses, true),
    (Format::Gemini, false),
    (Format::Gemini, true),
];

/// What nobody but the model may read. Scripts of tests that echo results avoid [`Talk::ask`].
pub(crate) const HIDDEN: [&str; 5] = ["load_skill", "run_code", "plover", "available_skills", "skills/listed"];

/// One answer, read as its format says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The id that the answer goes by.
    pub id: String,
    /// The texts that the model wrote, joined.
    pub text: String,
    /// Names of the calls that the client got.
    pub calls: Vec<String>,
    /// Why it ended, in the format's word.
    pub stop: String,
    /// The answer as a client keeps it.
    pub kept: Vec<Value>,
}

/// One conversation of one client.
pub(crate) struct Talk {
    pub format: Format,
    pub stream: bool,
    pub history: Vec<Value>,
    /// The credential.
    pub key: &'static str,
    /// Whether the client declares `get_weather`.
    pub tools: bool,
}

impl Talk {
    /// An empty conversation of a client with a tool of its own.
    pub(crate) fn new((format, stream): (Format, bool)) -> Self {
        Self {
            format,
            stream,
            history: Vec::new(),
            key: "key-a",
            tools: true,
        }
    }

    /// A conversation that begins with this text.
    pub(crate) fn saying(row: (Format, bool), text: &str) -> Self {
        let mut talk = Self::new(row);
        talk.say(text);
        talk
    }

    /// A conversation that begins with this text, of a client without tools.
    pub(crate) fn plain(row: (Format, bool), text: &str) -> Self {
        Self {
            tools: false,
            ..Self::saying(row, text)
        }
    }

    /// The row, for messages of failures.
    pub(crate) fn row(&self) -> String {
        format!("{:?}, stream {}", self.format, self.stream)
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.history.push(match self.format {
            Format::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            _ => json!({"role": "user", "content": text}),
        });
    }

    /// The request as it stands.
    pub(crate) fn body(&self) -> Value {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let (mut body, tool) = match self.format {
            Format::Chat => (
                json!({"model": "gpt-x", "stream": self.stream, "messages": self.history}),
                json!({"type": "function", "function": {"name": "get_weather", "parameters": schema}}),
            ),
            Format::Messages => (
                json!({"model": "claude-x", "max_tokens": 1000, "stream": self.stream, "messages": self.history}),
                json!({"name": "get_weather", "input_schema": schema}),
            ),
            Format::Responses => (
                json!({"model": "gpt-x", "stream": self.stream, "store": false, "include": ["reasoning.encrypted_content"],
                    "input": self.history}),
                json!({"type": "function", "name": "get_weather", "parameters": schema}),
            ),
            Format::Gemini => (
                json!({"contents": self.history}),
                json!({"functionDeclarations": [{"name": "get_weather", "parameters_json_schema": schema}]}),
            ),
        };
        if self.tools {
            body["tools"] = json!([tool]);
        }
        body
    }

    /// A request to a base URL: the gateway's, or the provider's own.
    pub(crate) fn request(&self, base: &str, body: &Value) -> RequestBuilder {
        let path = match (self.format, self.stream) {
            (Format::Chat, _) => "/v1/chat/completions",
            (Format::Messages, _) => "/v1/messages",
            (Format::Responses, _) => "/v1/responses",
            (Format::Gemini, false) => "/v1/models/gemini-x:generateContent",
            (Format::Gemini, true) => "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        };
        let post = client()
            .post(format!("{base}{path}"))
            .header("content-type", "application/json");
        self.sign(post).body(body.to_string())
    }

    /// Adds the credential in the format's header.
    pub(crate) fn sign(&self, request: RequestBuilder) -> RequestBuilder {
        match self.format {
            Format::Chat | Format::Responses => request.bearer_auth(self.key),
            Format::Messages => request
                .header("x-api-key", self.key)
                .header("anthropic-version", "2023-06-01"),
            Format::Gemini => request.header("x-goog-api-key", self.key),
        }
    }

    /// Sends the conversation as it stands.
    pub(crate) async fn send(&self, knack: &Running) -> Answer {
        knack.send(self.request(&knack.url, &self.body())).await
    }

    /// Sends the conversation, keeps the answer and tells it. Nothing of the skills may be in it.
    pub(crate) async fn ask(&mut self, knack: &Running) -> Said {
        let answer = self.send(knack).await;
        for hidden in HIDDEN {
            assert!(
                !answer.text.contains(hidden),
                "{}: {hidden}: {}",
                self.row(),
                answer.text
            );
        }
        self.take(&answer)
    }

    /// Sends the conversation, keeps the answer and tells it, of scripts that repeat what the model was told.
    pub(crate) async fn hear(&mut self, knack: &Running) -> Said {
        let answer = self.send(knack).await;
        self.take(&answer)
    }

    /// Reads an answer and keeps it in the history.
    pub(crate) fn take(&mut self, answer: &Answer) -> Said {
        assert_eq!(answer.status, 200, "{}: {}", self.row(), answer.text);
        let values = self.values(answer);
        let said = match self.format {
            Format::Chat => chat(&values, self.stream),
            Format::Messages => messages(&values, self.stream),
            Format::Responses => responses(values.last().unwrap(), self.stream),
            Format::Gemini => gemini(&values),
        };
        self.history.extend(said.kept.iter().cloned());
        said
    }

    /// The JSON values of an answer: its body, or the data of its events.
    pub(crate) fn values(&self, answer: &Answer) -> Vec<Value> {
        if self.stream {
            events(&answer.text)
        } else {
            vec![answer.json()]
        }
    }

    /// Answers the one call that is open.
    pub(crate) fn answer_weather(&mut self) {
        let call = self.history.iter().rev().find_map(|item| open_call(self.format, item));
        let (id, name) = call.expect("the client's call is shown");
        assert_eq!(name, "get_weather");
        self.history.push(match self.format {
            Format::Chat => json!({"role": "tool", "tool_call_id": id, "content": "-3 C"}),
            Format::Messages => {
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "-3 C"}]})
            }
            Format::Responses => json!({"type": "function_call_output", "call_id": id, "output": "-3 C"}),
            Format::Gemini => {
                json!({"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"result": "-3 C"}}}]})
            }
        });
    }
}

/// Id and name of the client's call in an item of the history.
fn open_call(format: Format, item: &Value) -> Option<(Value, Value)> {
    let within = |list: &Value, test: &dyn Fn(&Value) -> Option<(Value, Value)>| list.as_array()?.iter().find_map(test);
    match format {
        Format::Chat => within(&item["tool_calls"], &|call| {
            Some((call["id"].clone(), call["function"]["name"].clone()))
        }),
        Format::Messages => within(&item["content"], &|block| {
            (block["type"] == "tool_use").then(|| (block["id"].clone(), block["name"].clone()))
        }),
        Format::Responses => (item["type"] == "function_call").then(|| (item["call_id"].clone(), item["name"].clone())),
        Format::Gemini => within(&item["parts"], &|part| {
            let call = part.get("functionCall")?;
            Some((call["id"].clone(), call["name"].clone()))
        }),
    }
}

/// The data of server-sent events, without the end mark of Chat.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let data = lines.filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
        .collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn chat(values: &[Value], stream: bool) -> Said {
    let mut said = Said {
        id: text_of(&values[0]["id"]),
        ..Said::default()
    };
    let mut calls: BTreeMap<u64, Value> = BTreeMap::new();
    for value in values {
        assert_eq!(value["id"], said.id.as_str(), "one id");
        let choice = &value["choices"][0];
        let message = &choice[if stream { "delta" } else { "message" }];
        said.text.push_str(message["content"].as_str().unwrap_or_default());
        for (place, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let call_index = call["index"].as_u64().unwrap_or(place as u64);
            let kept = calls.entry(call_index).or_insert_with(
                || json!({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}),
            );
            let arguments = text_of(&kept["function"]["arguments"]) + &text_of(&call["function"]["arguments"]);
            kept["function"]["arguments"] = json!(arguments);
        }
        said.stop.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    said.calls = calls.values().map(|call| text_of(&call["function"]["name"])).collect();
    let mut message = json!({"role": "assistant", "content": said.text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into_values().collect();
    }
    said.kept = vec![message];
    said
}

fn messages(values: &[Value], stream: bool) -> Said {
    let mut said = Said::default();
    let mut blocks: Vec<Value> = Vec::new();
    if stream {
        for event in values {
            match event["type"].as_str().unwrap() {
                "message_start" => said.id = text_of(&event["message"]["id"]),
                "content_block_start" => {
                    assert_eq!(event["index"], blocks.len(), "blocks are numbered without gaps");
                    blocks.push(event["content_block"].clone());
                }
                "content_block_delta" => add_delta(blocks.last_mut().unwrap(), &event["delta"]),
                "content_block_stop" => close(blocks.last_mut().unwrap()),
                "message_delta" => said.stop = text_of(&event["delta"]["stop_reason"]),
                _ => {}
            }
        }
    } else {
        said.id = text_of(&values[0]["id"]);
        said.stop = text_of(&values[0]["stop_reason"]);
        blocks.clone_from(values[0]["content"].as_array().unwrap());
    }
    said.text = blocks.iter().map(|block| text_of(&block["text"])).collect();
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
    said.calls = calls.map(|block| text_of(&block["name"])).collect();
    said.kept = vec![json!({"role": "assistant", "content": blocks})];
    said
}

fn add_delta(block: &mut Value, delta: &Value) {
    for member in ["text", "thinking", "signature"] {
        if let Some(more) = delta[member].as_str() {
            block[member] = json!(text_of(&block[member]) + more);
        }
    }
    if let Some(more) = delta["partial_json"].as_str() {
        let before = block["input"].as_str().unwrap_or_default().to_owned();
        block["input"] = json!(before + more);
    }
}

fn close(block: &mut Value) {
    if let Some(input) = block["input"].as_str() {
        block["input"] = serde_json::from_str(input).unwrap();
    }
}

fn responses(last: &Value, stream: bool) -> Said {
    let response = if stream { &last["response"] } else { last };
    let kept = response["output"].as_array().unwrap().clone();
    let parts = kept
        .iter()
        .flat_map(|item| item["content"].as_array().into_iter().flatten());
    let calls = kept.iter().filter(|item| item["type"] == "function_call");
    Said {
        id: text_of(&response["id"]),
        text: parts
            .filter(|part| part["type"] == "output_text")
            .map(|part| text_of(&part["text"]))
            .collect(),
        calls: calls.map(|item| text_of(&item["name"])).collect(),
        stop: match response["incomplete_details"]["reason"].as_str() {
            Some(reason) => reason.to_owned(),
            None => text_of(&response["status"]),
        },
        kept,
    }
}

/// The SDK keeps one content for each frame.
fn gemini(values: &[Value]) -> Said {
    let contents = values.iter().map(|frame| frame["candidates"][0]["content"].clone());
    let kept: Vec<Value> = contents.filter(|content| !content.is_null()).collect();
    let parts: Vec<&Value> = kept
        .iter()
        .flat_map(|item| item["parts"].as_array().into_iter().flatten())
        .collect();
    let texts = parts.iter().filter(|part| part["thought"] != true);
    let calls = parts.iter().filter_map(|part| part.get("functionCall"));
    Said {
        id: text_of(&values[0]["responseId"]),
        text: texts.map(|part| text_of(&part["text"])).collect(),
        calls: calls.map(|call| text_of(&call["name"])).collect(),
        stop: values
            .iter()
            .map(|frame| text_of(&frame["candidates"][0]["finishReason"]))
            .collect(),
        kept,
    }
}
