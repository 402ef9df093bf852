//! A client of each format, as the SDKs behave: it keeps the messages that it saw and sends them all back.

use knack_wire::Format;
use knack_wire::frame::SseDecoder;
use serde_json::{Map, Value, json};

use super::{gemini, responses};

#[derive(Clone)]
pub(crate) struct Client {
    format: Format,
    stream: bool,
    /// Calls and results of Knack may be seen, in the native form.
    pub(crate) shows_native: bool,
    messages: Vec<Value>,
}

impl Client {
    pub(crate) fn new(format: Format, stream: bool) -> Self {
        Self {
            format,
            stream,
            shows_native: false,
            messages: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.messages.push(match self.format {
            Format::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            _ => json!({"role": "user", "content": text}),
        });
    }

    pub(crate) fn say_with_image(&mut self, text: &str, data: &str) {
        let url = format!("data:image/png;base64,{data}");
        let image = match self.format {
            Format::Gemini => {
                let image = json!({"inlineData": {"mimeType": "image/png", "data": data}});
                return self
                    .messages
                    .push(json!({"role": "user", "parts": [image, {"text": text}]}));
            }
            Format::Responses => {
                let image = json!({"type": "input_image", "image_url": url});
                let text = json!({"type": "input_text", "text": text});
                return self.messages.push(json!({"role": "user", "content": [image, text]}));
            }
            Format::Chat => json!({"type": "image_url", "image_url": {"url": url}}),
            Format::Messages => {
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
            }
        };
        self.messages
            .push(json!({"role": "user", "content": [image, {"type": "text", "text": text}]}));
    }

    /// The request body, compact, with the same bytes for the same messages every time.
    pub(crate) fn body(&self) -> String {
        self.body_of(&self.messages)
    }

    fn body_of(&self, messages: &[Value]) -> String {
        let tool = match self.format {
            Format::Chat => {
                json!({"type": "function", "function": {"name": "get_data", "parameters": {"type": "object"}}})
            }
            Format::Responses => json!({"type": "function", "name": "get_data", "parameters": {"type": "object"}}),
            Format::Gemini => json!({"functionDeclarations": [{"name": "get_data"}]}),
            Format::Messages => json!({"name": "get_data", "input_schema": {"type": "object"}}),
        };
        let stream = self.stream;
        match self.format {
            Format::Chat => json!({"model": "m", "stream": stream, "tools": [tool], "messages": messages}),
            Format::Responses => {
                json!({"model": "m", "stream": stream, "instructions": "Be brief.", "tools": [tool], "input": messages})
            }
            // The path says whether it is a stream; an unknown member passes through and tells the upstream of this test.
            Format::Gemini => {
                json!({"stream": stream, "systemInstruction": {"parts": [{"text": "Be brief."}]}, "tools": [tool], "contents": messages})
            }
            Format::Messages => json!({"model": "m", "max_tokens": 100, "stream": stream, "system": "Be brief.", "tools": [tool], "messages": messages}),
        }
        .to_string()
    }

    /// The conversation in other forms: strings as arrays and a cache marker at the newest message.
    pub(crate) fn reshaped(&self) -> String {
        match self.format {
            Format::Gemini => return self.body_of(&gemini::reshaped(&self.messages)),
            Format::Responses => return self.body_of(&responses::reshaped(&self.messages)),
            Format::Chat | Format::Messages => {}
        }
        let mut messages = self.messages.clone();
        let last = messages.len() - 1;
        for (index, message) in messages.iter_mut().enumerate() {
            if let Value::String(text) = message["content"].clone() {
                message["content"] = json!([{"type": "text", "text": text}]);
            }
            if index == last && self.format == Format::Messages {
                message["content"][0]["cache_control"] = json!({"type": "ephemeral"});
            }
        }
        self.body_of(&messages)
    }

    /// Takes in an answer: the assistant's message goes into the history.
    pub(crate) fn take(&mut self, answer: &str) {
        let message = match (self.format, self.stream) {
            (Format::Gemini | Format::Responses, _) => Value::Null,
            (Format::Chat, false) => parse(answer)["choices"][0]["message"].clone(),
            (Format::Chat, true) => chat_stream(answer),
            (_, false) => json!({"role": "assistant", "content": parse(answer)["content"]}),
            (_, true) => json!({"role": "assistant", "content": messages_stream(answer)}),
        };
        for hidden in ["load_skill", "run_code", "is loaded", "run result"] {
            assert!(
                self.shows_native || !answer.contains(hidden),
                "{hidden} is shown: {answer}"
            );
        }
        match self.format {
            Format::Gemini => return self.messages.extend(gemini::answer(answer, self.stream)),
            Format::Responses => return self.messages.extend(responses::answer(answer, self.stream)),
            Format::Chat | Format::Messages => {}
        }
        self.messages.push(message);
    }

    /// Ids of the calls that the last answer asks for.
    pub(crate) fn open_calls(&self) -> Vec<String> {
        let (list, key) = match self.format {
            Format::Gemini => (gemini::open_calls(&self.messages), "id"),
            Format::Responses => (responses::open_calls(&self.messages), "call_id"),
            Format::Chat | Format::Messages => (self.calls_of_last(), "id"),
        };
        list.iter().map(|call| call[key].as_str().unwrap().to_owned()).collect()
    }

    fn calls_of_last(&self) -> Vec<Value> {
        let message = self.messages.last().unwrap();
        match self.format {
            Format::Chat => message["tool_calls"].as_array().cloned().unwrap_or_default(),
            _ => message["content"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|block| block["type"] == "tool_use")
                .cloned()
                .collect(),
        }
    }

    pub(crate) fn answer_calls(&mut self, text: &str) {
        let calls = self.open_calls();
        match self.format {
            Format::Gemini => {
                // As the SDK's own loop answers: without ids.
                let answer = json!({"functionResponse": {"name": "get_data", "response": {"result": text}}});
                let parts = vec![answer; calls.len()];
                return self.messages.push(json!({"role": "user", "parts": parts}));
            }
            Format::Responses => {
                let output = |id: &String| json!({"type": "function_call_output", "call_id": id, "output": text});
                return self.messages.extend(calls.iter().map(output));
            }
            Format::Chat | Format::Messages => {}
        }
        if self.format == Format::Chat {
            self.messages.extend(
                calls
                    .iter()
                    .map(|id| json!({"role": "tool", "tool_call_id": id, "content": text})),
            );
        } else {
            let results = calls
                .iter()
                .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": text}));
            self.messages
                .push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
        }
    }
}

pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn events(stream: &str) -> Vec<Value> {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    decoder.push(stream.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    let data = events
        .iter()
        .map(|event| String::from_utf8(event.data.to_vec()).unwrap());
    data.filter(|data| data != "[DONE]").map(|data| parse(&data)).collect()
}

/// What an accumulating Chat client makes of a stream.
fn chat_stream(stream: &str) -> Value {
    let mut content = String::new();
    let mut calls: Vec<Value> = Vec::new();
    for event in events(stream) {
        let delta = &event["choices"][0]["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push(json!({"id": piece["id"], "type": "function", "function": {"name": piece["function"]["name"], "arguments": ""}}));
            }
            let arguments = &mut calls[index]["function"]["arguments"];
            *arguments = format!(
                "{}{}",
                arguments.as_str().unwrap(),
                piece["function"]["arguments"].as_str().unwrap_or_default()
            )
            .into();
        }
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    message.insert(
        "content".to_owned(),
        if content.is_empty() {
            Value::Null
        } else {
            content.into()
        },
    );
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

/// What an accumulating Messages client makes of a stream: the blocks.
fn messages_stream(stream: &str) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut input = String::new();
    for event in events(stream) {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
                input.clear();
            }
            "content_block_delta" => {
                let block = blocks.last_mut().unwrap();
                let delta = &event["delta"];
                match delta["type"].as_str().unwrap() {
                    "input_json_delta" => {
                        input.push_str(delta["partial_json"].as_str().unwrap());
                    }
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    kind => {
                        let key = kind.trim_end_matches("_delta");
                        block[key] = format!("{}{}", block[key].as_str().unwrap(), delta[key].as_str().unwrap()).into();
                    }
                }
            }
            "content_block_stop" => {
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" || block["type"] == "server_tool_use" {
                    block["input"] = parse(if input.is_empty() { "{}" } else { &input });
                }
            }
            _ => {}
        }
    }
    blocks
}
