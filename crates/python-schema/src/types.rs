//! The type table: annotations of parameters and returns to JSON Schema.

use serde_json::{Map, Value, json};

use super::annotation::Annotation;
use super::limits::constrain;
use super::model::Models;
use super::source::{Module, text_of};

/// How many aliases are followed from one name to the next.
const MAX_ALIASES: usize = 8;

/// The types of one file: the table, the file's models and its aliases.
#[derive(Debug)]
pub(super) struct Types<'t> {
    module: &'t Module<'t>,
    models: Models,
}

impl<'t> Types<'t> {
    /// Reads the models of a file.
    pub(super) fn of(module: &'t Module<'t>) -> Self {
        Self {
            module,
            models: Models::read(module),
        }
    }

    /// The schema of a parameter. Optional types are their inner type, several alternatives and everything unknown are
    /// a string, since every value can be written as one.
    pub(super) fn parameter(&self, annotation: &Annotation) -> Value {
        let annotation = self.resolved(annotation);
        match &annotation {
            Annotation::Annotated(kind, said) => self.limited(kind, said),
            Annotation::Union(_) => annotation
                .optional()
                .map_or_else(string_schema, |inner| self.parameter(inner)),
            Annotation::Generic(name, parameters) => match (name.as_str(), parameters.first()) {
                ("list" | "List", Some(item)) => json!({"type": "array", "items": self.parameter(item)}),
                ("list" | "List", None) => json!({"type": "array"}),
                ("dict" | "Dict", _) => json!({"type": "object"}),
                _ => string_schema(),
            },
            Annotation::Name(name) => self
                .named(name)
                .or_else(|| typing_name(name))
                .unwrap_or_else(string_schema),
            _ => string_schema(),
        }
    }

    /// Whether a description stands beside the type of a parameter.
    pub(super) fn describes(&self, annotation: &Annotation) -> bool {
        let annotation = self.resolved(annotation);
        let ((Annotation::Annotated(_, said), _) | (_, Some(Annotation::Annotated(_, said)))) =
            (&annotation, annotation.optional())
        else {
            return false;
        };
        let constants = self.models.constants();
        let limits = constants.limits(said);
        constants.description(said).is_some() || limits.iter().any(|(member, _)| member == "description")
    }

    /// The schema of a type with what is said about it.
    fn limited(&self, kind: &Annotation, said: &[String]) -> Value {
        let constants = self.models.constants();
        let mut schema = self.parameter(kind);
        if let Some(members) = schema.as_object_mut() {
            members.extend(constants.description(said).map(|text| ("description".to_owned(), text)));
            constrain(members, &constants.limits(said));
        }
        schema
    }

    /// The schema of a return annotation: plain types and models only, everything else has none.
    pub(super) fn returned(&self, annotation: &Annotation) -> Option<Value> {
        match self.resolved(annotation).bare() {
            Annotation::Name(name) => self.named(name),
            _ => None,
        }
    }

    /// The schema of a class with fields, if the annotation is one.
    pub(super) fn model(&self, annotation: &Annotation) -> Option<Value> {
        match self.resolved(annotation).bare() {
            Annotation::Name(name) => self.models.schema(name),
            _ => None,
        }
    }

    fn named(&self, name: &str) -> Option<Value> {
        plain(name).or_else(|| self.models.schema(name))
    }

    /// Follows `Tags = list[str]` at the top of the file.
    fn resolved(&self, annotation: &Annotation) -> Annotation {
        let mut current = annotation.clone();
        for _ in 0..MAX_ALIASES {
            let Annotation::Name(name) = &current else { break };
            let Some(node) = self.module.constants.get(name.as_str()) else {
                break;
            };
            if !matches!(
                node.kind(),
                "identifier" | "attribute" | "subscript" | "binary_operator"
            ) {
                break;
            }
            current = Annotation::parse(text_of(*node, self.module.text));
        }
        current
    }
}

/// Python's own types.
fn plain(name: &str) -> Option<Value> {
    match name {
        "str" => Some(string_schema()),
        "int" => Some(json!({"type": "integer"})),
        "float" => Some(json!({"type": "number"})),
        "bool" => Some(json!({"type": "boolean"})),
        "list" => Some(json!({"type": "array"})),
        "dict" => Some(json!({"type": "object"})),
        "bytes" => Some(json!({"type": "string", "contentEncoding": "base64"})),
        _ => None,
    }
}

/// The older names of `list` and `dict`, for parameters only.
fn typing_name(name: &str) -> Option<Value> {
    match name {
        "List" => plain("list"),
        "Dict" => plain("dict"),
        _ => None,
    }
}

fn string_schema() -> Value {
    json!({"type": "string"})
}

/// Moves `$defs` of nested schemas to the root of the whole, where `#/$defs/...` looks for them.
pub(super) fn hoist_definitions(root: &mut Map<String, Value>) {
    let mut definitions = Map::new();
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            take_definitions(property, &mut definitions);
        }
    }
    if !definitions.is_empty() {
        root.insert("$defs".to_owned(), Value::Object(definitions));
    }
}

fn take_definitions(schema: &mut Value, definitions: &mut Map<String, Value>) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(Value::Object(own)) = members.shift_remove("$defs") {
        definitions.extend(own);
    }
    if let Some(items) = members.get_mut("items") {
        take_definitions(items, definitions);
    }
}
