//! The table from (vector file, op) to the adapter that runs it.

use serde_json::{Map, Value};

use crate::adapters;

/// What an adapter gives: a value, or the failure that the call answered with.
pub(crate) type Outcome = Result<Value, Failure>;

/// Who failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The code under test: a case may expect that.
    Product,
    /// The adapter, which could not carry out the case: never what a case expects.
    Adapter,
}

/// A call that failed, as far as cases compare it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    /// Who failed.
    pub(crate) by: By,
    /// Kind such as `name-too-long`, where the product has one.
    pub(crate) kind: Option<String>,
    /// Wording, for the report only.
    pub(crate) message: Box<str>,
    /// `field`, `http`, `names`.
    pub(crate) members: Map<String, Value>,
}

impl Failure {
    /// A failure of the product that has only a text.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            by: By::Product,
            kind: None,
            message: message.into().into_boxed_str(),
            members: Map::new(),
        }
    }

    /// A case that the adapter could not carry out.
    pub(crate) fn of_adapter(message: impl Into<String>) -> Self {
        Self {
            by: By::Adapter,
            ..Self::new(message)
        }
    }

    /// Sets the kind, which must equal an expected kind.
    pub(crate) fn of_kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Adds a compared member: `field`, `http` or `names`.
    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Reads a failure that an adapter gave as a value with an `error` member.
    pub(crate) fn from_members(members: &Map<String, Value>) -> Self {
        let message = members.get("error").map(ToString::to_string).unwrap_or_default();
        Self {
            by: By::Product,
            kind: None,
            message: message.into_boxed_str(),
            members: members.clone(),
        }
    }
}

/// How an outcome is compared with what is expected.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Compare {
    /// Objects whole, arrays in order, texts exactly. HTTP answers (`http`) by named members.
    Whole,
    /// Only the members that the case names.
    Named,
    /// As `Whole`, but texts are trimmed at both ends: system prompts.
    Trimmed,
    /// A rule of its own: (expected, actual) to the first difference.
    Custom(fn(&Value, &Value) -> Result<(), String>),
}

/// One row of an adapter table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    /// Stem of the vector file: ops of different files may share a name.
    pub(crate) file: &'static str,
    /// The `op` of the case.
    pub(crate) name: &'static str,
    /// From the whole `input` (special values expanded) to the outcome.
    pub(crate) run: fn(&Value) -> Outcome,
    /// How to compare.
    pub(crate) compare: Compare,
}

impl Op {
    /// A row that is compared whole.
    pub(crate) const fn new(file: &'static str, name: &'static str, run: fn(&Value) -> Outcome) -> Self {
        Self {
            file,
            name,
            run,
            compare: Compare::Whole,
        }
    }

    /// This row with another comparison.
    pub(crate) const fn compared(mut self, compare: Compare) -> Self {
        self.compare = compare;
        self
    }
}

/// All adapters.
#[derive(Debug)]
pub(crate) struct Registry {
    ops: Vec<Op>,
}

impl Registry {
    /// Collects the tables of every adapter file; two rows for one op are an error.
    pub(crate) fn new() -> Result<Self, String> {
        let mut registry = Self { ops: Vec::new() };
        for op in adapters::TABLES.iter().flat_map(|table| table.iter()) {
            if registry.get(op.file, op.name).is_some() {
                return Err(format!("two adapters for {}/{}", op.file, op.name));
            }
            registry.ops.push(*op);
        }
        Ok(registry)
    }

    /// Whether an op of a file has an adapter.
    pub(crate) fn has_file(&self, file: &str) -> bool {
        self.ops.iter().any(|row| row.file == file)
    }

    /// The adapter of an op, if there is one.
    pub(crate) fn get(&self, file: &str, op: &str) -> Option<&Op> {
        self.ops.iter().find(|row| row.file == file && row.name == op)
    }
}
