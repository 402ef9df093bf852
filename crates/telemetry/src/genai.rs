//! From what happened to what a span says: OpenTelemetry's semantic conventions for GenAI, as of version 1.41, and for
//! HTTP servers. Everything here is a function of values.
//!
//! These attributes contain no message, prompt, argument or result, with any setting: `knack dev --record` shows what
//! skills do to messages, on the machine of a person who may read them.

use std::time::Duration;

use knack_wire::glance::{AnswerFacts, RequestFacts};
use knack_wire::{CallKind, Format};

use super::span::{Attribute, Description, SpanRole, Value};

/// Which names are used where the conventions have changed since 1.41.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conventions {
    /// The names of version 1.41.
    #[default]
    V1_41,
    /// The current ones: `OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`.
    Latest,
}

impl Conventions {
    /// Reads the value of `OTEL_SEMCONV_STABILITY_OPT_IN`: words separated by commas, of which one concerns GenAI.
    pub fn of_opt_in(value: Option<&str>) -> Self {
        let mut words = value.unwrap_or_default().split(',').map(str::trim);
        if words.any(|word| word == "gen_ai_latest_experimental") {
            Self::Latest
        } else {
            Self::V1_41
        }
    }
}

/// Why something failed: few different words, so that they can be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An HTTP status.
    Status(u16),
    /// The provider's own word in an answer with a good status.
    Reported(String),
    /// No connection, or no head.
    Connect,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Timeout,
    /// An answer that cannot be understood.
    Unreadable,
    /// The caller disconnected.
    Cancelled,
    /// The process stopped.
    Shutdown,
    /// A run that failed, by its status (`error`, `timeout`) or the executor's word.
    Run(&'static str),
    /// A call that got an error text without any run: no such tool, arguments that do not fit, a limit.
    Refused,
}

impl Failure {
    /// `error.type`.
    fn word(&self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Reported(word) => word.clone(),
            Self::Connect => "connect".to_owned(),
            Self::Broken => "broken".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Unreadable => "unreadable".to_owned(),
            Self::Cancelled => "cancelled".to_owned(),
            Self::Shutdown => "shutdown".to_owned(),
            Self::Run(word) => (*word).to_owned(),
            Self::Refused => "refused".to_owned(),
        }
    }
}

/// Attributes, each written once, absent ones left out.
#[derive(Default)]
struct Attributes(Vec<Attribute>);

impl Attributes {
    fn put(&mut self, name: &'static str, value: impl Into<Value>) -> &mut Self {
        self.0.push((name, value.into()));
        self
    }

    fn put_some(&mut self, name: &'static str, value: Option<impl Into<Value>>) -> &mut Self {
        if let Some(value) = value {
            self.put(name, value);
        }
        self
    }

    fn put_text(&mut self, name: &'static str, text: &str) -> &mut Self {
        self.put_some(name, (!text.is_empty()).then_some(text))
    }

    fn describe(self, name: String, kind: SpanRole, failure: Option<&Failure>) -> Description {
        let mut attributes = self;
        attributes.put_some("error.type", failure.map(Failure::word));
        Description {
            name,
            kind,
            attributes: attributes.0,
            failed: failure.is_some(),
        }
    }
}

/// `gen_ai.operation.name` of a call. Counting tokens and compaction have no name in the conventions, which allow others.
pub const fn operation(format: Format, kind: CallKind) -> &'static str {
    match (kind, format) {
        (CallKind::Count, _) => "count_tokens",
        (CallKind::Compact, _) => "compact",
        (_, Format::Gemini) => "generate_content",
        (_, Format::Chat | Format::Messages | Format::Responses) => "chat",
    }
}

/// `gen_ai.provider.name`: whose API is spoken, which is all that a gateway knows of who is behind an address.
pub const fn provider(format: Format) -> &'static str {
    match format {
        Format::Chat | Format::Responses => "openai",
        Format::Messages => "anthropic",
        Format::Gemini => "gcp.gemini",
    }
}

/// `http.route` of a model call: its path without a prefix and without a model's name.
pub const fn route(format: Format, kind: CallKind) -> &'static str {
    match (format, kind) {
        (Format::Chat, _) => "/v1/chat/completions",
        (Format::Messages, CallKind::Count) => "/v1/messages/count_tokens",
        (Format::Messages, _) => "/v1/messages",
        (Format::Responses, CallKind::Count) => "/v1/responses/input_tokens",
        (Format::Responses, CallKind::Compact) => "/v1/responses/compact",
        (Format::Responses, _) => "/v1/responses",
        (Format::Gemini, CallKind::Count) => "/v1beta/models/{model}:countTokens",
        (Format::Gemini, _) => "/v1beta/models/{model}:generateContent",
    }
}

/// A request of a client, answered.
#[derive(Debug, Clone, Default)]
pub struct ClientRequest {
    /// `http.route`.
    pub route: &'static str,
    /// Path as it came, without the query, which may carry a key.
    pub path: String,
    /// The gateway's own id.
    pub request_id: String,
    /// Status of the answer.
    pub status: u16,
    /// Why its answer is not whole, where the status does not say it: the client left, or it broke after its head.
    pub cut: Option<Failure>,
    /// Revision of the catalog.
    pub revision: String,
    /// Skills whose body was in the system text, with the reason for each.
    pub skills: Vec<String>,
    /// Tokens that the injection added.
    pub added_tokens: u64,
    /// Upstream rounds.
    pub rounds: u64,
}

/// The span of a client's request.
pub fn served(of: &ClientRequest) -> Description {
    let mut attributes = Attributes::default();
    attributes
        .put("http.request.method", "POST")
        .put("http.route", of.route)
        .put("url.path", of.path.clone())
        .put("url.scheme", "http")
        .put_some(
            "http.response.status_code",
            (of.status > 0).then(|| u64::from(of.status)),
        )
        .put("knack.request.id", of.request_id.clone())
        .put_text("knack.catalog.revision", &of.revision)
        .put_some("knack.skills", (!of.skills.is_empty()).then(|| of.skills.clone()))
        .put("knack.added_tokens", of.added_tokens)
        .put("knack.rounds", of.rounds);
    // A server is not to blame for what its client did wrong (HTTP conventions, status of a server span).
    let status = (of.status >= 500).then_some(Failure::Status(of.status));
    let failure = of.cut.clone().or(status);
    attributes.describe(format!("POST {}", of.route), SpanRole::Server, failure.as_ref())
}

/// The request to a provider in one round.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderRequest {
    /// Wire format.
    pub format: Format,
    /// Kind of call.
    pub kind: CallKind,
    /// Model asked for; empty if the request names none.
    pub model: String,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// Host and port of the provider.
    pub server: Option<(String, u16)>,
    /// Limits and temperature.
    pub request: RequestFacts,
    /// The round, from 1; a retry has its round's number.
    pub round: u32,
}

/// The outcome of a request to a provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderOutcome {
    /// HTTP status, if a head came.
    pub status: Option<u16>,
    /// From sending to the first bytes of a stream.
    pub first_chunk: Option<Duration>,
    /// Facts that the answer gives about itself.
    pub answer: AnswerFacts,
    /// Why the round failed, if it did.
    pub failure: Option<Failure>,
}

impl ProviderRequest {
    /// The span's name: `{operation} {model}`.
    pub fn name(&self) -> String {
        let operation = operation(self.format, self.kind);
        if self.model.is_empty() {
            operation.to_owned()
        } else {
            format!("{operation} {}", self.model)
        }
    }
}

/// The span of one upstream round.
pub fn round(asked: &ProviderRequest, answered: &ProviderOutcome, conventions: Conventions) -> Description {
    let ProviderOutcome { answer, .. } = answered;
    let usage = answer.usage;
    let mut attributes = Attributes::default();
    attributes
        .put("gen_ai.operation.name", operation(asked.format, asked.kind))
        .put("gen_ai.provider.name", provider(asked.format))
        .put_text("gen_ai.request.model", &asked.model)
        .put_some("gen_ai.request.stream", asked.stream.then_some(true))
        .put_some("gen_ai.request.max_tokens", asked.request.max_tokens)
        .put_some("gen_ai.request.temperature", asked.request.temperature)
        .put_some("server.address", asked.server.as_ref().map(|(host, _)| host.clone()))
        .put_some("server.port", asked.server.as_ref().map(|(_, port)| u64::from(*port)))
        .put("knack.round", u64::from(asked.round))
        .put_some("http.response.status_code", answered.status.map(u64::from))
        .put_some("gen_ai.response.id", answer.id.clone())
        .put_some("gen_ai.response.model", answer.model.clone())
        .put_some(
            "gen_ai.response.finish_reasons",
            (!answer.finish_reasons.is_empty()).then(|| answer.finish_reasons.clone()),
        )
        .put_some(
            "gen_ai.response.time_to_first_chunk",
            answered.first_chunk.map(|time| time.as_secs_f64()),
        )
        .put_some("gen_ai.usage.input_tokens", usage.input)
        .put_some("gen_ai.usage.output_tokens", usage.output)
        .put_some("gen_ai.usage.cache_read.input_tokens", usage.cache_read)
        .put_some(
            match conventions {
                Conventions::V1_41 => "gen_ai.usage.cache_creation.input_tokens",
                Conventions::Latest => "gen_ai.usage.cache_write.input_tokens",
            },
            usage.cache_write,
        )
        .put_some("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    attributes.describe(asked.name(), SpanRole::Client, failure_of(answered).as_ref())
}

/// Why a round failed, if it did. A bad status says more than what followed from it, and the provider's own word more than what
/// the gateway made of it.
pub fn failure_of(answered: &ProviderOutcome) -> Option<Failure> {
    let status = answered.status.filter(|status| *status >= 400).map(Failure::Status);
    let reported = answered.answer.error.clone().map(Failure::Reported);
    status.or(reported).or_else(|| answered.failure.clone())
}

/// A call of an injected tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InjectedCall {
    /// The name of the tool in the request.
    pub name: String,
    /// The provider's id of the call.
    pub call_id: String,
    /// Skill round, from 1.
    pub round: u32,
}

/// The outcome of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// Id, if something was to run.
    pub execution: Option<String>,
    /// `namespace/name` of the skill whose code it was.
    pub skill: Option<String>,
    /// `warm` or `cold`, if something started.
    pub start: Option<&'static str>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl InjectedCall {
    /// The span's name.
    pub fn name(&self) -> String {
        format!("execute_tool {}", self.name)
    }
}

/// The span of a call.
pub fn call(called: &InjectedCall, ran: &CallFacts) -> Description {
    let mut attributes = Attributes::default();
    attributes
        .put("gen_ai.operation.name", "execute_tool")
        .put("gen_ai.tool.name", called.name.clone())
        .put_text("gen_ai.tool.call.id", &called.call_id)
        .put("gen_ai.tool.type", "function")
        .put("knack.round", u64::from(called.round))
        .put_some("knack.execution.id", ran.execution.clone())
        .put_some("knack.execution.start", ran.start)
        .put_some("knack.skill", ran.skill.clone());
    attributes.describe(called.name(), SpanRole::Internal, ran.failure.as_ref())
}

/// Name of an execution's span at a hub.
pub const EXECUTED: &str = "POST /v1/executions";

/// A run as the hub sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionFacts {
    /// `namespace/name` of the SkillRuntime; empty if the request did not come so far.
    pub runtime: String,
    /// The run, and how it ended.
    pub ran: CallFacts,
}

/// The span of an execution at a hub.
pub fn executed(of: &ExecutionFacts) -> Description {
    let mut attributes = Attributes::default();
    attributes
        .put("http.request.method", "POST")
        .put("http.route", "/v1/executions")
        .put_text("knack.runtime", &of.runtime)
        .put_some("knack.execution.id", of.ran.execution.clone())
        .put_some("knack.execution.start", of.ran.start)
        .put_some("knack.skill", of.ran.skill.clone());
    attributes.describe(EXECUTED.to_owned(), SpanRole::Server, of.ran.failure.as_ref())
}

#[cfg(test)]
#[path = "genai_tests.rs"]
mod tests;
