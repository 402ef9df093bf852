//! A span as a value.

use std::time::SystemTime;

use super::context::TraceContext;

/// The role of a span in the process that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanRole {
    /// A request that came in.
    Server,
    /// A request that went out.
    Client,
    /// Work in between.
    Internal,
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// A name of the conventions, and its value.
pub type Attribute = (&'static str, Value);

/// The content of a span, apart from place and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Name: few different ones, no ids.
    pub name: String,
    /// Kind.
    pub kind: SpanRole,
    /// Attributes in order; each name once.
    pub attributes: Vec<Attribute>,
    /// True if the operation of the span failed; `error.type` says how.
    pub failed: bool,
}

/// A finished span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The span itself.
    pub context: TraceContext,
    /// The trace context that it is a part of.
    pub parent: Option<TraceContext>,
    /// True if another process made the parent.
    pub parent_is_remote: bool,
    /// Beginning.
    pub begun: SystemTime,
    /// End.
    pub ended: SystemTime,
    /// The span's content.
    pub description: Description,
}
