//! Checks of single members of a HUSK frontmatter.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::inputs::whole;
use crate::problem::ProblemKind;
use crate::tools::clean;

/// The members, and the problems of those that were checked.
pub(super) struct Checks<'a> {
    pub(super) members: &'a Map<String, Value>,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Checks<'a> {
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

    fn member(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// The member is a text that does not consist of blanks and control characters alone.
    pub(super) fn demand_text(&mut self, key: &str) {
        let text = self.member(key).and_then(Value::as_str).map(clean).unwrap_or_default();
        if text.is_empty() {
            self.refuse(key, format!("`{key}` is required and must be a non-empty string"));
        }
    }

    /// Text of one line that is not blank: routes, addresses and MIME types have no control characters. A value of another type is a
    /// problem.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let Value::String(text) = self.member(key)? else {
            self.refuse(key, format!("`{key}` must be a string"));
            return None;
        };
        Some(clean(text)).filter(|text| !text.is_empty())
    }

    pub(super) fn check_choice(&mut self, key: &str, words: &[&str]) {
        let Some(value) = self.member(key) else { return };
        if !value.as_str().is_some_and(|word| words.contains(&word)) {
            self.refuse(key, format!("`{key}` must be one of {}", words.join(", ")));
        }
    }

    pub(super) fn check_positive(&mut self, key: &str) {
        let Some(number) = self.member(key) else { return };
        if whole(number).is_none_or(|number| number == 0) {
            self.refuse(key, format!("`{key}` must be a positive integer"));
        }
    }

    pub(super) fn check_texts(&mut self, key: &str) {
        let items = match self.member(key) {
            None => return,
            Some(Value::Array(items)) => items,
            Some(_) => return self.refuse(key, format!("`{key}` must be a list of strings")),
        };
        for (index, _) in items.iter().enumerate().filter(|(_, item)| !item.is_string()) {
            self.refuse(&format!("{key}[{index}]"), format!("{key}[{index}] must be a string"));
        }
    }

    pub(super) fn check_text_map(&mut self, key: &str) {
        let members = match self.member(key) {
            None => return,
            Some(Value::Object(members)) => members,
            Some(_) => return self.refuse(key, format!("`{key}` must be a mapping of strings")),
        };
        if let Some((name, _)) = members.iter().find(|(_, value)| !value.is_string()) {
            self.refuse(&format!("{key}.{name}"), format!("`{key}.{name}` must be a string"));
        }
    }
}
