//! The wire formats of the rows: where a request goes, what it looks like, and how the upstream answers it.

use serde_json::{Value, json};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Messages,
    Responses,
    Gemini,
}

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Responses, Self::Gemini];

    /// What the names of its rows end with.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Chat => "",
            Self::Messages => "_messages",
            Self::Responses => "_responses",
            Self::Gemini => "_gemini",
        }
    }

    /// Where a request goes.
    pub(crate) const fn path(self, streams: bool) -> &'static str {
        match (self, streams) {
            (Self::Chat, _) => "/v1/chat/completions",
            (Self::Messages, _) => "/v1/messages",
            (Self::Responses, _) => "/v1/responses",
            (Self::Gemini, false) => "/v1beta/models/bench:generateContent",
            (Self::Gemini, true) => "/v1beta/models/bench:streamGenerateContent?alt=sse",
        }
    }

    /// The format of a request at this path.
    pub(crate) fn of_path(path: &str) -> Self {
        match path {
            path if path.ends_with("/messages") => Self::Messages,
            path if path.ends_with("/responses") => Self::Responses,
            path if path.contains("enerateContent") => Self::Gemini,
            _ => Self::Chat,
        }
    }

    /// A Chat Completions request with a first system message in this format.
    pub(crate) fn request(self, chat: &Value, streams: bool) -> Value {
        let messages = chat["messages"].as_array().expect("messages");
        let (system, rest) = messages.split_first().expect("a system text");
        let mut body = match self {
            Self::Chat => chat.clone(),
            Self::Messages => {
                json!({"model": "bench", "max_tokens": 4096, "system": system["content"], "messages": rest, "temperature": 0.7})
            }
            Self::Responses => {
                json!({"model": "bench", "instructions": system["content"], "input": rest, "temperature": 0.7})
            }
            Self::Gemini => {
                let content = |message: &Value| {
                    let role = if message["role"] == "user" { "user" } else { "model" };
                    json!({"role": role, "parts": [{"text": message["content"]}]})
                };
                json!({"systemInstruction": {"parts": [{"text": system["content"]}]}, "generationConfig": {"temperature": 0.7},
                    "contents": rest.iter().map(content).collect::<Vec<_>>()})
            }
        };
        if let Some(tools) = chat["tools"].as_array() {
            body["tools"] = self.tools(tools);
        }
        if streams && self != Self::Gemini {
            body["stream"] = json!(true);
        }
        body
    }

    fn tools(self, chat: &[Value]) -> Value {
        let functions = chat.iter().map(|tool| &tool["function"]);
        match self {
            Self::Chat => chat.iter().cloned().collect(),
            Self::Messages => functions
                .map(|one| json!({"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}))
                .collect(),
            Self::Responses => functions
                .map(|one| {
                    json!({"type": "function", "name": one["name"], "description": one["description"],
                        "parameters": one["parameters"], "strict": false})
                })
                .collect(),
            Self::Gemini => {
                let declarations: Vec<Value> = functions
                    .map(|one| {
                        json!({"name": one["name"], "description": one["description"], "parametersJsonSchema": one["parameters"]})
                    })
                    .collect();
                json!([{"functionDeclarations": declarations}])
            }
        }
    }

    /// A whole answer with this text.
    pub(crate) fn answer(self, text: &str) -> Value {
        match self {
            Self::Chat => {
                json!({"id": "chatcmpl-bench", "object": "chat.completion", "created": 1_763_760_000, "model": "bench",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 900, "completion_tokens": 16, "total_tokens": 916}})
            }
            Self::Messages => json!({"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": 900, "output_tokens": 16}}),
            Self::Responses => response("completed", &[message(text)]),
            Self::Gemini => candidate(text, Some("STOP")),
        }
    }

    /// The events of a stream of these words.
    pub(crate) fn stream(self, words: &[String]) -> Vec<String> {
        let named = |value: Value| {
            format!(
                "event: {}\ndata: {value}\n\n",
                value["type"].as_str().unwrap_or_default()
            )
        };
        match self {
            Self::Chat => {
                let chunk = |delta: Value, finish: Value| {
                    let event = json!({"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_763_760_000, "model": "bench",
                        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]});
                    format!("data: {event}\n\n")
                };
                let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
                events.extend(words.iter().map(|word| chunk(json!({"content": word}), Value::Null)));
                events.push(chunk(json!({}), json!("stop")));
                events.push("data: [DONE]\n\n".to_owned());
                events
            }
            Self::Messages => {
                let start = json!({"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench", "content": [],
                    "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 900, "output_tokens": 1}});
                let mut events = vec![
                    json!({"type": "message_start", "message": start}),
                    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                ];
                events.extend(words.iter().map(
                    |word| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}),
                ));
                events.extend([
                    json!({"type": "content_block_stop", "index": 0}),
                    json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 16}}),
                    json!({"type": "message_stop"}),
                ]);
                events.into_iter().map(named).collect()
            }
            Self::Responses => {
                let whole = message(&words.concat());
                let mut events = vec![
                    json!({"type": "response.created", "response": response("in_progress", &[])}),
                    json!({"type": "response.output_item.added", "output_index": 0,
                        "item": {"id": "msg_bench", "type": "message", "status": "in_progress", "role": "assistant", "content": []}}),
                ];
                events.extend(words.iter().map(|word| {
                    json!({"type": "response.output_text.delta", "item_id": "msg_bench", "output_index": 0, "content_index": 0, "delta": word})
                }));
                events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": whole}));
                events.push(json!({"type": "response.completed", "response": response("completed", &[whole])}));
                let numbered = events.into_iter().enumerate().map(|(number, mut event)| {
                    event["sequence_number"] = json!(number);
                    named(event)
                });
                numbered.collect()
            }
            Self::Gemini => {
                let last = words.len().saturating_sub(1);
                let frame = |(at, word): (usize, &String)| {
                    format!("data: {}\r\n\r\n", candidate(word, (at == last).then_some("STOP")))
                };
                words.iter().enumerate().map(frame).collect()
            }
        }
    }
}

fn message(text: &str) -> Value {
    json!({"id": "msg_bench", "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn response(status: &str, output: &[Value]) -> Value {
    json!({"id": "resp_bench", "object": "response", "created_at": 1_763_760_000, "status": status, "error": null,
        "incomplete_details": null, "instructions": null, "model": "bench", "output": output, "parallel_tool_calls": true,
        "temperature": 0.7, "tool_choice": "auto", "tools": [], "top_p": 1.0, "metadata": {},
        "usage": {"input_tokens": 900, "output_tokens": 16, "total_tokens": 916}})
}

fn candidate(text: &str, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({"candidates": [candidate], "modelVersion": "bench", "responseId": "bench",
        "usageMetadata": {"promptTokenCount": 900, "candidatesTokenCount": 16, "totalTokenCount": 916}})
}
