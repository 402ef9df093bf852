//! What a function declares.

use serde_json::{Number, Value};

/// One parameter, in the form that a lock has.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigParam {
    /// The parameter's key.
    pub name: String,
    /// The word of its type, as declared.
    #[serde(rename = "type")]
    pub kind: String,
    /// Shown name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Help text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The value where none is given; `None`: a value is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Lowest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Number>,
    /// Highest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Number>,
    /// What can be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// Fewest entries of a list or map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// Most entries of a list or map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// Unit of a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// For what a value holds: `global`, `per_bot` or `per_call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// What the value of a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamKind {
    /// Any text, also of a type that is not known.
    Text,
    /// One of the options.
    Select,
    /// Some of the options.
    MultiSelect,
    Number,
    Boolean,
    Texts,
    Numbers,
    /// Any JSON values.
    List,
    /// Texts by name.
    Map,
}

/// The words of types, besides those of texts.
const KINDS: [(&str, ParamKind); 8] = [
    ("number", ParamKind::Number),
    ("boolean", ParamKind::Boolean),
    ("select", ParamKind::Select),
    ("multiselect", ParamKind::MultiSelect),
    ("string[]", ParamKind::Texts),
    ("number[]", ParamKind::Numbers),
    ("list", ParamKind::List),
    ("map", ParamKind::Map),
];
/// The words of types whose values are texts.
const TEXTS: [&str; 6] = ["string", "text", "path", "url", "code", SECRET];
/// The type of a value that must not be shown.
const SECRET: &str = "secret";

impl ConfigParam {
    /// What its value is. A type that is not known holds texts.
    pub(super) fn value_kind(&self) -> ParamKind {
        let known = KINDS.iter().find(|(word, _)| *word == self.kind);
        known.map_or(ParamKind::Text, |(_, kind)| *kind)
    }

    /// Whether its value is never shown: its type says so.
    pub fn is_secret(&self) -> bool {
        self.kind == SECRET
    }

    /// Whether its type is one of the known ones.
    pub(super) fn has_known_kind(&self) -> bool {
        TEXTS.contains(&self.kind.as_str()) || KINDS.iter().any(|(word, _)| *word == self.kind)
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use serde_json::json;

    use super::*;

    /// A parameter `p` of texts with these members, or in place of its own.
    pub(in crate::config) fn param(declared: &Value) -> ConfigParam {
        let mut whole = json!({"name": "p", "type": "string"});
        whole
            .as_object_mut()
            .unwrap()
            .extend(declared.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }
}
