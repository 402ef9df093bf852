//! The JSON schema of a declared tool as text, as long as nobody reads it.
//!
//! A manifest may be a megabyte of `[0,0,…]`, and a [`Value`] takes 64 bytes and more for each `0`. Whoever may write a Skill decides
//! its schema, and the processes that watch the Skills of all namespaces keep it: as text, which is bounded, a schema costs what it has
//! cost its author.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of a schema as JSON without blanks: each request carries the schemas of all tools that it offers.
pub const SCHEMA_MAX_BYTES: usize = 64 << 10;
/// Most values of a schema, since each takes 64 bytes and more where it is read. A schema of 64 KiB has some 3,000.
pub const SCHEMA_MAX_VALUES: usize = 4_096;

/// The JSON schema of a tool, unread. It is a JSON value wherever it is written or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText(Box<str>);

impl SchemaText {
    /// The schema as a value.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl From<&Value> for SchemaText {
    fn from(schema: &Value) -> Self {
        Self(schema.to_string().into())
    }
}

impl Serialize for SchemaText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SchemaText {
    /// Errors: a schema beyond [`SCHEMA_MAX_BYTES`] or [`SCHEMA_MAX_VALUES`]; no more of it than that is read.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writer = Writer::default();
        Part(&mut writer).deserialize(deserializer)?;
        Ok(Self(writer.text.into()))
    }
}

/// The text of a schema that is being read.
#[derive(Default)]
struct Writer {
    text: String,
    values: usize,
}

impl Writer {
    /// Adds text of the schema.
    fn push<E: Error>(&mut self, text: &str) -> Result<(), E> {
        if self.text.len() + text.len() > SCHEMA_MAX_BYTES {
            let kib = SCHEMA_MAX_BYTES >> 10;
            return Err(E::custom(format!(
                "the schema is larger than {kib} KiB as JSON; shorten it, and describe the rest in the tool's description"
            )));
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Adds a value that has no parts.
    fn push_value<E: Error>(&mut self, value: &Value) -> Result<(), E> {
        self.count()?;
        self.push(&value.to_string())
    }

    fn count<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > SCHEMA_MAX_VALUES {
            return Err(E::custom(format!(
                "the schema has more than {SCHEMA_MAX_VALUES} values; shorten it, and describe the rest in the tool's description"
            )));
        }
        Ok(())
    }
}

/// The next value of a schema, which is added to its text.
struct Part<'w>(&'w mut Writer);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON schema")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.push_value(&value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.push_value(&value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.push_value(&value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.push_value(&value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        if value.len() > SCHEMA_MAX_BYTES {
            return self.0.push(value);
        }
        self.0.push_value(&value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.push_value(&Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        self.0.count()?;
        self.0.push("[")?;
        let mut count = 0_usize;
        loop {
            let before = self.0.text.len();
            if count > 0 {
                self.0.push(",")?;
            }
            if elements.next_element_seed(Part(&mut *self.0))?.is_none() {
                self.0.text.truncate(before);
                break;
            }
            count += 1;
        }
        self.0.push("]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.count()?;
        self.0.push("{")?;
        let mut is_first = true;
        while let Some(key) = members.next_key::<String>()? {
            if !is_first {
                self.0.push(",")?;
            }
            is_first = false;
            self.0.push(&Value::String(key).to_string())?;
            self.0.push(":")?;
            members.next_value_seed(Part(&mut *self.0))?;
        }
        self.0.push("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_the_same_value_when_it_is_read_again() {
        for schema in [
            json!({}),
            json!(null),
            json!([]),
            json!({"type": "object", "properties": {"a\"\n\u{e9}": {"default": null, "enum": [1, -2, 0.5, true, "x"]}}, "required": ["a"]}),
        ] {
            let text: SchemaText = serde_json::from_value(schema.clone()).unwrap();
            assert_eq!(text, SchemaText::from(&schema));
            assert_eq!(text.value(), schema);
            assert_eq!(serde_json::to_value(&text).unwrap(), schema);
            let read: SchemaText = serde_json::from_str(&schema.to_string()).unwrap();
            assert_eq!(read, text);
        }
    }

    /// Ten Skills with such schemas took the memory of every process that watches Skills.
    #[test]
    fn a_schema_beyond_its_bounds_is_an_error_that_says_what_to_do() {
        let many = format!("[{}0]", "0,".repeat(SCHEMA_MAX_VALUES - 2));
        assert!(serde_json::from_str::<SchemaText>(&many).is_ok());
        let long = "x".repeat(SCHEMA_MAX_BYTES - 2);
        assert!(serde_json::from_value::<SchemaText>(json!(long)).is_ok());
        for (schema, problem) in [
            (format!("[{}0]", "0,".repeat(700_000)), "more than 4096 values"),
            (
                format!("{{\"a\":[{}[]]}}", "[],".repeat(4_096)),
                "more than 4096 values",
            ),
            (format!("\"{}\"", "x".repeat(1_400_000)), "larger than 64 KiB"),
            (format!("{{\"{}\":1}}", "x".repeat(1_400_000)), "larger than 64 KiB"),
            (
                format!("[{}]", vec![format!("{:?}", "x".repeat(100)); 700].join(",")),
                "larger than 64 KiB",
            ),
        ] {
            let error = serde_json::from_str::<SchemaText>(&schema).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains("shorten it"), "{error}");
        }
    }
}
