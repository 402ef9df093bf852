//! Reads members of a HUSK frontmatter and reports their problems.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::inputs::whole;
use crate::problem::ProblemKind;
use crate::tools::{clean, clean_lines};

/// The members and what was found so far.
pub(super) struct Reader<'a> {
    pub(super) members: &'a Map<String, Value>,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(members: &'a Map<String, Value>) -> Self {
        Self {
            members,
            findings: Vec::new(),
        }
    }

    pub(super) fn refuse(&mut self, field: &str, message: String) {
        let kind = match field {
            "name" => ProblemKind::NameMissing,
            "description" => ProblemKind::DescriptionMissing,
            _ => ProblemKind::FieldInvalid,
        };
        self.findings
            .push(Finding::refused(kind, field, message, format!("correct `{field}`")));
    }

    /// Whether a member has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.member(key).is_some()
    }

    fn member(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// Text without control characters; empty if absent, which is reported.
    pub(super) fn required_text(&mut self, key: &str) -> String {
        let strip = if key == "name" { clean } else { clean_lines };
        let text = self.member(key).and_then(Value::as_str).map(strip).unwrap_or_default();
        if text.is_empty() {
            self.refuse(key, format!("`{key}` is required and must be a non-empty string"));
        }
        text
    }

    /// Text of one line that is not blank: routes, addresses and MIME types have no control characters.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let Value::String(text) = self.member(key)? else {
            self.refuse(key, format!("`{key}` must be a string"));
            return None;
        };
        Some(clean(text)).filter(|text| !text.is_empty())
    }

    pub(super) fn choice(&mut self, key: &str, words: &[&str], default: &str) -> String {
        match self.member(key) {
            None => default.to_owned(),
            Some(Value::String(word)) if words.contains(&word.as_str()) => word.clone(),
            Some(_) => {
                self.refuse(key, format!("`{key}` must be one of {}", words.join(", ")));
                default.to_owned()
            }
        }
    }

    pub(super) fn positive(&mut self, key: &str) -> Option<u64> {
        let number = self.member(key)?;
        let whole = whole(number).filter(|number| *number > 0);
        if whole.is_none() {
            self.refuse(key, format!("`{key}` must be a positive integer"));
        }
        whole
    }

    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let items = match self.member(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.refuse(key, format!("`{key}` must be a list of strings"));
                return Vec::new();
            }
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.refuse(&format!("{key}[{index}]"), format!("{key}[{index}] must be a string")),
            }
        }
        texts
    }

    pub(super) fn text_map(&mut self, key: &str) -> Map<String, Value> {
        let members = match self.member(key) {
            None => return Map::new(),
            Some(Value::Object(members)) => members,
            Some(_) => {
                self.refuse(key, format!("`{key}` must be a mapping of strings"));
                return Map::new();
            }
        };
        if let Some((name, _)) = members.iter().find(|(_, value)| !value.is_string()) {
            self.refuse(&format!("{key}.{name}"), format!("`{key}.{name}` must be a string"));
        }
        members.clone()
    }
}
