//! One declared tool and its forms as JSON.

use serde_json::{Map, Value, json};

use super::config::ConfigParam;
use super::risk::{RiskLevel, SafetyFlags};

/// The description of a tool without one, since providers refuse an empty one.
const NO_DESCRIPTION: &str = "No description.";

/// The declaration of a function as a tool.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one function")]
pub struct ToolDeclaration {
    /// Name for the model; the function's name unless the decorator gives one.
    pub name: String,
    /// Text for the model; the docstring unless the decorator gives one, possibly empty.
    pub description: String,
    /// Version, `0.1.0` by default.
    pub version: String,
    /// Category, `general` by default.
    pub category: String,
    /// Tags in lower case.
    pub tags: Vec<String>,
    /// Examples as written.
    pub examples: Vec<Value>,
    /// JSON Schema of the arguments; `None` without parameters.
    pub input_schema: Option<Value>,
    /// JSON Schema of the result; `None` if there is no annotation of it.
    pub output_schema: Option<Value>,
    /// Name of the first parameter, under which a schema that is no object of properties is put.
    pub first_parameter: Option<String>,
    /// Whether the function is a coroutine.
    pub is_async: bool,
    /// The safety flags.
    pub flags: SafetyFlags,
    /// The level after resolving `auto`.
    pub risk_level: RiskLevel,
    /// Shown name.
    pub display_name: String,
    /// Members that are in the JSON only if set: `icon`, `group`, `deprecated`, `estimated_latency_ms`,
    /// `required_imports`.
    pub extra: Map<String, Value>,
    /// Whether it is left out of lists of tools; it can be called all the same.
    pub hidden: bool,
    /// Settings for the user.
    pub config_params: Vec<ConfigParam>,
    /// Whether it takes a context, which has their values.
    pub takes_context: bool,
    /// Name of the function.
    pub function: String,
    /// Whether it is inside of another function or a class, so nothing outside can call it.
    pub is_nested: bool,
    /// Line of the function, counted from 1.
    pub line: usize,
}

impl ToolDeclaration {
    /// The whole declaration; what is not set is absent, except for the two schemas, which are then null.
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "description": self.description,
            "version": self.version,
            "category": self.category,
            "tags": self.tags,
            "examples": self.examples,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "is_async": self.is_async,
            "side_effects": self.flags.side_effects,
            "idempotent": self.flags.idempotent,
            "requires_network": self.flags.requires_network,
            "requires_filesystem": self.flags.requires_filesystem,
            "display_name": self.display_name,
            "risk_level": self.risk_level.word(),
        });
        if let Some(members) = value.as_object_mut() {
            members.extend(self.extra.clone());
            if self.hidden {
                members.insert("hidden".to_owned(), true.into());
            }
            if !self.config_params.is_empty() {
                let params: Vec<Value> = self.config_params.iter().map(ConfigParam::to_value).collect();
                members.insert("config_params".to_owned(), params.into());
            }
        }
        value
    }

    /// The arguments' schema as providers accept it: an object with properties. No schema is an object without any;
    /// one of another form is put under the first parameter's name and required.
    pub fn parameters(&self) -> Value {
        match &self.input_schema {
            None => json!({"type": "object", "properties": {}}),
            Some(schema) if schema.get("properties").is_some() || schema.get("$ref").is_some() => schema.clone(),
            Some(schema) => {
                let name = self.first_parameter.as_deref().unwrap_or("input");
                json!({"type": "object", "properties": {name: schema}, "required": [name]})
            }
        }
    }

    /// The tool in the form of OpenAI's Chat Completions.
    pub fn openai_tool(&self) -> Value {
        json!({"type": "function", "function": {
            "name": self.name, "description": self.description_or_default(), "parameters": self.parameters()}})
    }

    /// The tool in the form of Anthropic's Messages.
    pub fn anthropic_tool(&self) -> Value {
        json!({"name": self.name, "description": self.description_or_default(), "input_schema": self.parameters()})
    }

    /// The description; of a tool without one, a text that providers accept.
    pub fn description_or_default(&self) -> &str {
        if self.description.is_empty() {
            NO_DESCRIPTION
        } else {
            &self.description
        }
    }
}
