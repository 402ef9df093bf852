//! Settings that a skill offers to its user, from the keywords of `ConfigParam(...)` to the wire form.

use serde_json::{Map, Value};

/// Keywords besides `name`, `type` and `scope`: as Python has them, and as the wire form has them, in its order.
const MEMBERS: [(&str, &str); 16] = [
    ("display_name", "displayName"),
    ("description", "description"),
    ("default", "default"),
    ("min", "min"),
    ("max", "max"),
    ("step", "step"),
    ("options", "options"),
    ("unit", "unit"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("placeholder", "placeholder"),
    ("rows", "rows"),
    ("path_type", "pathType"),
    ("key_placeholder", "keyPlaceholder"),
    ("value_placeholder", "valuePlaceholder"),
    ("item_placeholder", "itemPlaceholder"),
];

/// Separate from the rest only to keep the wire order: the hint for a code editor is the last member.
const LANGUAGE: &str = "language";

/// Order of the fields when they are given without names.
const POSITIONS: [&str; 11] = [
    "name",
    "display_name",
    "description",
    "type",
    "default",
    "min",
    "max",
    "step",
    "options",
    "unit",
    "scope",
];

/// When a setting can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConfigScope {
    /// Once for all.
    Global,
    /// For every bot that has the skill.
    #[default]
    PerBot,
    /// For every call.
    PerInvocation,
}

impl ConfigScope {
    /// Reads a wire word or the name of the Python member, in any case.
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "global" => Some(Self::Global),
            "per_bot" => Some(Self::PerBot),
            "per_call" | "per_invocation" => Some(Self::PerInvocation),
            _ => None,
        }
    }

    /// The word of the wire form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::PerBot => "per_bot",
            Self::PerInvocation => "per_call",
        }
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigParam {
    name: String,
    kind: String,
    scope: ConfigScope,
    members: Map<String, Value>,
}

impl ConfigParam {
    /// Builds a setting from Python keywords. `None` values count as unset, an unknown `type` is kept; a missing name,
    /// an unknown keyword and an unknown scope are errors in words.
    pub fn from_keywords(keywords: &[(String, Value)]) -> Result<Self, String> {
        let mut param = Self {
            name: String::new(),
            kind: "string".to_owned(),
            scope: ConfigScope::default(),
            members: Map::new(),
        };
        for (keyword, value) in keywords {
            param.set(keyword, value)?;
        }
        if param.name.is_empty() {
            return Err("ConfigParam needs a name".to_owned());
        }
        Ok(param)
    }

    /// The keyword of an argument given by position.
    pub(super) fn keyword_at(position: usize) -> Option<&'static str> {
        POSITIONS.get(position).copied()
    }

    fn set(&mut self, keyword: &str, value: &Value) -> Result<(), String> {
        match (keyword, value) {
            ("name", Value::String(text)) => text.clone_into(&mut self.name),
            ("type", Value::String(text)) => text.clone_into(&mut self.kind),
            ("scope", Value::String(text)) => {
                self.scope = ConfigScope::parse(text)
                    .ok_or_else(|| format!("scope {text:?} is not one of global, per_bot, per_call"))?;
            }
            ("name" | "type" | "scope", _) => return Err(format!("{keyword} must be a text")),
            _ => {
                let member = MEMBERS
                    .iter()
                    .chain([&(LANGUAGE, LANGUAGE)])
                    .find(|(python, _)| *python == keyword)
                    .map(|(_, wire)| *wire)
                    .ok_or_else(|| format!("ConfigParam has no field {keyword}"))?;
                if !value.is_null() {
                    self.members.insert(member.to_owned(), value.clone());
                }
            }
        }
        Ok(())
    }

    /// The wire form: camelCase, unset members absent, the scope last.
    pub fn to_value(&self) -> Value {
        let mut wire = Map::new();
        wire.insert("name".to_owned(), self.name.clone().into());
        wire.insert("type".to_owned(), self.kind.clone().into());
        let order = MEMBERS.iter().map(|(_, wire)| *wire).chain([LANGUAGE]);
        for member in order {
            if let Some(value) = self.members.get(member) {
                wire.insert(member.to_owned(), value.clone());
            }
        }
        wire.insert("scope".to_owned(), self.scope.word().into());
        Value::Object(wire)
    }
}
