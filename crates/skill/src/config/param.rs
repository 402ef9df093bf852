//! What a function declares.

use serde_json::{Number, Value};

/// Most parameters of one function: a status lists them for each tool.
pub const MAX_PARAMS: usize = 32;
/// Longest name, in bytes: it becomes a part of the name of a variable.
const NAME_MAX: usize = 64;

/// One parameter, in the form that a lock has.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigParam {
    /// Its key.
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
    /// The value where nobody gives one; `None`: somebody has to.
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
pub(super) enum Kind {
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
const KINDS: [(&str, Kind); 8] = [
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
    ("select", Kind::Select),
    ("multiselect", Kind::MultiSelect),
    ("string[]", Kind::Texts),
    ("number[]", Kind::Numbers),
    ("list", Kind::List),
    ("map", Kind::Map),
];
/// The words of types whose values are texts.
const TEXTS: [&str; 6] = ["string", "text", "path", "url", "code", SECRET];
/// The type of a value that nobody may read.
const SECRET: &str = "secret";

impl ConfigParam {
    /// What its value is. A type that is not known holds texts.
    pub(super) fn value_kind(&self) -> Kind {
        let known = KINDS.iter().find(|(word, _)| *word == self.kind);
        known.map_or(Kind::Text, |(_, kind)| *kind)
    }

    /// Whether its value is never shown: its type says so.
    pub fn is_secret(&self) -> bool {
        self.kind == SECRET
    }

    /// What of the declaration is not honoured or not known; each one clause, without the name.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let is_known = TEXTS.contains(&self.kind.as_str()) || KINDS.iter().any(|(word, _)| *word == self.kind);
        if !is_known {
            notes.push(format!("its type {:?} is not known, so its value is a text", self.kind));
        }
        if self.scope.as_deref() == Some("per_call") {
            notes.push("its scope is per_call, and the value that a runtime gives holds for every call".to_owned());
        }
        if matches!(self.value_kind(), Kind::Select | Kind::MultiSelect) && self.options.is_none() {
            notes.push(format!(
                "its type is {}, and it has no options, so no value fits",
                self.kind
            ));
        }
        // What a declaration gives by itself is the author's word: it holds, and only the author can mend it.
        if let Some(default) = &self.default
            && let Err(rule) = super::value::check(self, default)
        {
            notes.push(format!("its default {rule}"));
        }
        notes
    }
}

/// Why the parameters of a function cannot be given values, if they cannot: one clause.
pub(crate) fn refusal(params: &[ConfigParam]) -> Option<String> {
    if params.len() > MAX_PARAMS {
        return Some(format!(
            "declares {} config parameters; at most {MAX_PARAMS} are possible",
            params.len()
        ));
    }
    params.iter().enumerate().find_map(|(at, param)| {
        let name = crate::inputs::shortened(&param.name);
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if param.name.is_empty() || param.name.len() > NAME_MAX || !param.name.bytes().all(is_legal) {
            return Some(format!(
                "has a config parameter {name:?}; a name has 1 to {NAME_MAX} letters, digits, \"_\", \"-\" and \".\""
            ));
        }
        let is_second = params[..at].iter().any(|before| before.name == param.name);
        is_second.then(|| format!("declares the config parameter {name:?} twice"))
    })
}
