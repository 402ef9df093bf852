//! One request being answered: rules, the step of the script, the answer in the format's shape.

use std::sync::PoisonError;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::completion::{self, Stamp};
use super::delivery;
use super::frames::{array, chat_frames, gemini_frames, messages_frames};
use super::intake::{authorized, parse};
use super::received::{Received, with_lists};
use super::render;
use super::render::chat::StreamOptions;
use super::route::{self, GeminiCall};
use super::rules::{self, ProviderRefusal, RuleInput};
use super::script::{Delivery, Fail, FormatName, Step};
use super::select;
use super::state::{Inner, MAX_COUNTED_FAILURES};

/// One request being answered.
pub(super) struct Exchange<'a> {
    pub(super) mock: &'a Inner,
    pub(super) number: u64,
    pub(super) format: FormatName,
    pub(super) asked: GeminiCall,
    pub(super) query: String,
}

impl Exchange<'_> {
    pub(super) fn count(&self, bytes: &Bytes, headers: Vec<(String, String)>) -> Result<Response, ProviderRefusal> {
        let (_, _, received) = self.receive(bytes, headers, true)?;
        let tokens = completion::input_tokens(&received);
        Ok(self.json(&match self.format {
            FormatName::Gemini => json!({"totalTokens": tokens}),
            FormatName::Responses => json!({"object": "response.input_tokens", "input_tokens": tokens}),
            FormatName::Chat | FormatName::Messages => json!({"input_tokens": tokens}),
        }))
    }

    pub(super) async fn complete(
        &self,
        bytes: &Bytes,
        headers: Vec<(String, String)>,
    ) -> Result<Response, ProviderRefusal> {
        let (body, whole, received) = self.receive(bytes, headers, false)?;
        let (step, key) =
            select::select(&self.mock.script, &received).map_err(|text| self.script_failure("", &text))?;
        if let Some(unmet) = select::unmet(&step.expect, &received) {
            return Err(self.script_failure(&key, &unmet));
        }
        if step.stream.head_ms > 0 {
            tokio::time::sleep(Duration::from_millis(step.stream.head_ms)).await;
        }
        if let Some(fail) = step.fail.as_ref().filter(|fail| self.still_fails(fail, &key, bytes)) {
            return Ok(self.failure(fail));
        }
        self.say(step, &received, (&body, &whole))
            .map_err(|text| self.script_failure(&key, &text))
    }

    /// Parses a body and applies the rules. Gives the body, and the request as the model sees it: with what is stored, and
    /// without the members around it in a token count.
    fn receive(
        &self,
        bytes: &Bytes,
        headers: Vec<(String, String)>,
        counting: bool,
    ) -> Result<(Value, Value, Received), ProviderRefusal> {
        // A gateway marks requests to an upstream on its own machine, as this one.
        let own = |name: &str| name.starts_with("x-knack") && name != "x-knack-hop";
        if let Some((name, _)) = headers.iter().find(|(name, _)| own(name)) {
            return Err(self.script_failure("", &format!("expected no header of the gateway's own, came {name}")));
        }
        let provider = &self.mock.script.provider;
        authorized(provider.api_key.as_deref(), &headers, &self.query, self.format)?;
        let body = parse(bytes)?;
        let whole = match self.format {
            FormatName::Responses => self.mock.stored.whole(&body)?,
            FormatName::Gemini if counting && !self.asked.vertex => with_lists(rules::gemini_fields::counted(&body)?),
            FormatName::Gemini => with_lists(body.clone()),
            _ => body.clone(),
        };
        let rule_input = RuleInput {
            headers: &headers,
            body: &whole,
            model: &self.asked.model,
            provider,
            counting,
            vertex: self.asked.vertex,
        };
        rules::check(self.format, &rule_input).inspect_err(|refusal| {
            self.mock
                .handle
                .refuse(refusal.rule.unwrap_or_default(), refusal.message.clone());
        })?;
        let mut received = Received::read(self.format, &whole, bytes, headers);
        if self.format == FormatName::Gemini {
            received.model.clone_from(&self.asked.model);
            received.stream = self.asked.stream;
        }
        Ok((body, whole, received))
    }

    fn say(&self, step: &Step, received: &Received, (body, whole): (&Value, &Value)) -> Result<Response, String> {
        let stamp = Stamp {
            seed: self.mock.script.seed,
            number: self.number,
            created: (self.mock.clock)(),
        };
        let mut completion = completion::complete(step, received, stamp)?;
        if self.format == FormatName::Messages && !completion.extra.contains_key("container") {
            completion
                .extra
                .extend(container_of(body).map(|container| ("container".to_owned(), container)));
        }
        let delivery = &step.stream;
        let in_background = self.format == FormatName::Responses && body["background"] == true;
        if self.format == FormatName::Responses {
            let is_read_again = in_background && received.stream;
            let events = is_read_again.then(|| render::responses::events(&completion, body, delivery));
            let response = render::responses::body(&completion, body);
            self.mock
                .stored
                .keep(body, whole, &response, events.unwrap_or_default());
        }
        if self.format == FormatName::Chat {
            self.mock.completions.keep(body, &render::chat::body(&completion));
        }
        if !received.stream {
            let body = match self.format {
                FormatName::Chat => render::chat::body(&completion),
                FormatName::Messages => render::messages::body(&completion)?,
                FormatName::Responses if in_background => render::responses::queued(&completion, body),
                FormatName::Responses => render::responses::body(&completion, body),
                FormatName::Gemini => render::gemini::body(&completion)?,
            };
            return Ok(self.deliver("application/json", &[body.to_string().into_bytes()], delivery));
        }
        let frames = match self.format {
            FormatName::Chat => chat_frames(&completion, delivery, StreamOptions::of(body)),
            FormatName::Messages => messages_frames(&completion, delivery),
            FormatName::Responses => render::responses::events(&completion, body, delivery)
                .iter()
                .map(|(kind, event)| delivery::frame(Some(kind), &event.to_string(), delivery.line_end))
                .collect(),
            FormatName::Gemini => {
                let frames = render::gemini::frames(&completion, delivery)?;
                if self.asked.array {
                    return Ok(self.deliver("application/json", &array(&frames), delivery));
                }
                gemini_frames(&frames, delivery)
            }
        };
        Ok(self.deliver("text/event-stream; charset=utf-8", &frames, delivery))
    }

    /// Answers a request about a stored response: the events of one in the background, or JSON.
    pub(super) fn stored(&self, method: &str, path: &str) -> Result<Response, ProviderRefusal> {
        let stored = &self.mock.stored;
        let Some(events) = stored.events(method, path, &self.query)? else {
            return stored.serve(method, path, &self.query).map(|body| self.json(&body));
        };
        let delivery = Delivery::default();
        let frames: Vec<Vec<u8>> = events
            .iter()
            .map(|(kind, event)| delivery::frame(Some(kind), &event.to_string(), delivery.line_end))
            .collect();
        Ok(self.deliver("text/event-stream; charset=utf-8", &frames, &delivery))
    }

    fn deliver(&self, content_type: &'static str, frames: &[Vec<u8>], delivery: &Delivery) -> Response {
        let mut response = Response::new(delivery::body_of(delivery::plan(frames, delivery)));
        self.set_headers(&mut response, content_type);
        response
    }

    /// Counts failures that end after some tries; the same body on the same step is the same try.
    fn still_fails(&self, fail: &Fail, key: &str, bytes: &Bytes) -> bool {
        let Some(times) = fail.times else { return true };
        let mut failed = self.mock.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= MAX_COUNTED_FAILURES {
            failed.clear();
        }
        let tries = failed.entry((key.to_owned(), bytes.clone())).or_insert(0);
        *tries += 1;
        *tries <= times
    }

    fn failure(&self, fail: &Fail) -> Response {
        let (body, content_type) = match (&fail.raw_body, &fail.body) {
            (Some(raw), _) => (raw.clone(), "text/html; charset=utf-8"),
            (None, Some(body)) => (body.to_string(), "application/json"),
            (None, None) => {
                let kind = route::kind_of(self.format, fail.status);
                let message = fail
                    .message
                    .clone()
                    .unwrap_or_else(|| format!("The script answers {}.", fail.status));
                let refusal = ProviderRefusal {
                    status: fail.status,
                    ..ProviderRefusal::invalid(message)
                };
                let mut body = route::error_body(self.format, &refusal, &self.request_id());
                let word = if self.format == FormatName::Gemini {
                    "status"
                } else {
                    "type"
                };
                body["error"][word] = json!(fail.kind.as_deref().unwrap_or(kind));
                (body.to_string(), "application/json")
            }
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(fail.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.set_headers(&mut response, content_type);
        let seconds = fail
            .retry_after
            .as_ref()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let retry_after = seconds.as_ref().map(|value| ("retry-after", value.as_str()));
        let more = fail.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in retry_after.into_iter().chain(more) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    /// Records a failure of the script's expectations and makes the 400 of it.
    fn script_failure(&self, key: &str, text: &str) -> ProviderRefusal {
        let message = if key.is_empty() {
            format!("script: {text}")
        } else {
            format!("script: {key}: {text}")
        };
        self.mock.handle.fail(message.clone());
        ProviderRefusal::invalid(message)
    }

    pub(super) fn refuse(&self, refusal: &ProviderRefusal) -> Response {
        let body = route::error_body(self.format, refusal, &self.request_id());
        let mut response = self.json(&body);
        *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        if let Some(rule) = refusal.rule {
            response
                .headers_mut()
                .insert(HeaderName::from_static("x-mock-rule"), HeaderValue::from_static(rule));
        }
        response
    }

    pub(super) fn json(&self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string()));
        self.set_headers(&mut response, "application/json");
        response
    }

    fn set_headers(&self, response: &mut Response, content_type: &'static str) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if content_type.starts_with("text/event-stream") {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        let name = match self.format {
            FormatName::Chat | FormatName::Responses | FormatName::Gemini => HeaderName::from_static("x-request-id"),
            FormatName::Messages => HeaderName::from_static("request-id"),
        };
        if let Ok(id) = HeaderValue::try_from(self.request_id()) {
            headers.insert(name, id);
        }
    }

    fn request_id(&self) -> String {
        format!("req_mock{}x{}", self.mock.script.seed, self.number)
    }
}

/// The container that an answer names: the requested one, with its skills.
fn container_of(body: &Value) -> Option<Value> {
    let expires = "2026-12-31T00:00:00Z";
    match &body["container"] {
        Value::String(id) => Some(json!({"id": id, "expires_at": expires, "skills": null})),
        Value::Object(container) => {
            let id = container
                .get("id")
                .and_then(Value::as_str)
                .unwrap_or("container_01mock");
            Some(json!({"id": id, "expires_at": expires, "skills": container.get("skills")}))
        }
        _ => None,
    }
}
