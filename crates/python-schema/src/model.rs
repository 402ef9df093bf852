//! Classes with fields (Pydantic models) and enumerations to JSON Schema, in the form that Pydantic 2 writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::annotation::Annotation;
use super::class::{Class, Field, read_class};
use super::limits::{Constants, constrain};
use super::literal::Static;
use super::risk::title_case;
use super::source::Module;

/// Base class of models.
const MODEL_BASE: &str = "BaseModel";

/// Base classes of enumerations.
const ENUM_BASES: [&str; 4] = ["Enum", "IntEnum", "StrEnum", "Flag"];

/// Length of a chain of base classes; a longer one is a cycle.
const MAX_BASES: usize = 16;

/// Types besides the plain ones that have a format.
const FORMATS: [(&str, &str); 9] = [
    ("datetime", "date-time"),
    ("date", "date"),
    ("time", "time"),
    ("timedelta", "duration"),
    ("UUID", "uuid"),
    ("Path", "path"),
    ("bytes", "binary"),
    ("EmailStr", "email"),
    ("HttpUrl", "uri"),
];

/// The classes of one file.
#[derive(Debug, Default)]
pub(super) struct Models {
    constants: Constants,
    classes: BTreeMap<String, Class>,
}

impl Models {
    /// Reads every class of a file.
    pub(super) fn read(module: &Module<'_>) -> Self {
        let constants = Constants::of(module);
        let classes = module
            .classes
            .iter()
            .map(|(name, node)| ((*name).to_owned(), read_class(*node, module, &constants)))
            .collect();
        Self { constants, classes }
    }

    /// The constants of the file.
    pub(super) const fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The schema of a model; `None` if the name is no model of this file.
    pub(super) fn schema(&self, name: &str) -> Option<Value> {
        if let Some(own) = self.classes.get(name).and_then(|class| class.own_schema.clone()) {
            return Some(own);
        }
        if !self.derives(name, &[MODEL_BASE]) {
            return None;
        }
        let mut definitions = Definitions::default();
        definitions.open.insert(name.to_owned());
        let root = self.object(name, &mut definitions);
        let recursive = definitions.referenced.contains(name);
        if recursive {
            definitions.done.insert(name.to_owned(), root.clone());
        }
        let mut schema = if recursive { Map::new() } else { root };
        if !definitions.done.is_empty() {
            let done = definitions
                .done
                .into_iter()
                .map(|(name, schema)| (name, schema.into()))
                .collect();
            schema.insert("$defs".to_owned(), Value::Object(done));
        }
        if recursive {
            schema.insert("$ref".to_owned(), reference_to(name).into());
        }
        Some(Value::Object(schema))
    }

    fn derives(&self, name: &str, roots: &[&str]) -> bool {
        let (mut open, mut seen) = (vec![name.to_owned()], 0);
        while let Some(class) = open.pop().and_then(|name| self.classes.get(&name)) {
            if class.bases.iter().any(|base| roots.contains(&base.as_str())) {
                return true;
            }
            seen += 1;
            if seen > MAX_BASES {
                return false;
            }
            open.extend(
                class
                    .bases
                    .iter()
                    .filter(|base| self.classes.contains_key(*base))
                    .cloned(),
            );
        }
        false
    }

    /// Fields of a class after those of its bases; a repeated field replaces the older one.
    fn fields(&self, name: &str, depth: usize) -> Vec<Field> {
        let Some(class) = self.classes.get(name).filter(|_| depth < MAX_BASES) else {
            return Vec::new();
        };
        let mut fields: Vec<Field> = Vec::new();
        let inherited = class.bases.iter().rev().flat_map(|base| self.fields(base, depth + 1));
        for field in inherited.chain(class.fields.iter().cloned()) {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => *known = field,
                None => fields.push(field),
            }
        }
        fields
    }

    fn object(&self, name: &str, definitions: &mut Definitions) -> Map<String, Value> {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in self.fields(name, 0) {
            if field.required {
                required.push(Value::from(field.name.as_str()));
            }
            let schema = self.field(&field, definitions);
            properties.insert(field.name, schema.into());
        }
        let mut object = Map::new();
        if let Some(description) = self.classes.get(name).and_then(|class| class.description.clone()) {
            object.insert("description".to_owned(), description.into());
        }
        object.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            object.insert("required".to_owned(), required.into());
        }
        object.insert("title".to_owned(), name.into());
        object.insert("type".to_owned(), "object".into());
        object
    }

    fn field(&self, field: &Field, definitions: &mut Definitions) -> Map<String, Value> {
        let mut schema = self.value_schema(&field.annotation, definitions);
        if let Some(default) = field.default.as_ref().and_then(|default| self.known(default)) {
            schema.insert("default".to_owned(), default);
        }
        // One that stands beside the type stays. A model or an enumeration has its own, also where it may be missing.
        if !is_reference(&schema) && !schema.contains_key("title") {
            schema.insert("title".to_owned(), title_case(&field.name.replace('_', " ")).into());
        }
        constrain(&mut schema, &field.constraints);
        schema
    }

    /// A default as JSON; a member of an enumeration is its value.
    fn known(&self, default: &Static) -> Option<Value> {
        match default {
            Static::Value(value) => Some(value.clone()),
            Static::List(elements) => elements.iter().map(|element| self.known(element)).collect(),
            Static::Name(name) => {
                let (class, member) = name.strip_suffix(".value").unwrap_or(name).rsplit_once('.')?;
                let class = class.rsplit('.').next()?;
                let enumeration = self.classes.get(class).filter(|_| self.derives(class, &ENUM_BASES))?;
                let found = enumeration.values.iter().find(|(own, _)| own == member);
                found.map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// The schema of a field's type; unlike that of a parameter it keeps alternatives and `None`.
    fn value_schema(&self, annotation: &Annotation, definitions: &mut Definitions) -> Map<String, Value> {
        let schema = match annotation {
            Annotation::Name(name) => return self.named_schema(name, definitions),
            Annotation::None => json!({"type": "null"}),
            Annotation::Annotated(kind, said) => {
                let mut schema = self.value_schema(kind, definitions);
                constrain(&mut schema, &self.constants.limits(said));
                return schema;
            }
            Annotation::Union(alternatives) => {
                let any: Vec<Value> = alternatives
                    .iter()
                    .map(|part| self.value_schema(part, definitions).into())
                    .collect();
                json!({"anyOf": any})
            }
            Annotation::Literal(texts) => literal_schema(texts),
            Annotation::Generic(name, parameters) => {
                let parameter = |index: usize, definitions: &mut Definitions| -> Value {
                    parameters
                        .get(index)
                        .map(|part| self.value_schema(part, definitions))
                        .unwrap_or_default()
                        .into()
                };
                match name.as_str() {
                    "list" | "List" | "Sequence" | "Iterable" => {
                        json!({"type": "array", "items": parameter(0, definitions)})
                    }
                    "set" | "Set" | "frozenset" | "FrozenSet" => {
                        json!({"type": "array", "items": parameter(0, definitions), "uniqueItems": true})
                    }
                    "tuple" | "Tuple" if parameters.get(1) == Some(&Annotation::Ellipsis) => {
                        json!({"type": "array", "items": parameter(0, definitions)})
                    }
                    "tuple" | "Tuple" => {
                        let items: Vec<Value> = (0..parameters.len()).map(|at| parameter(at, definitions)).collect();
                        json!({"type": "array", "prefixItems": items,
                               "minItems": parameters.len(), "maxItems": parameters.len()})
                    }
                    "dict" | "Dict" | "Mapping" => {
                        let values = parameter(1, definitions);
                        let any = values.as_object().is_some_and(Map::is_empty);
                        json!({"type": "object", "additionalProperties": if any { true.into() } else { values }})
                    }
                    _ => json!({}),
                }
            }
            Annotation::Ellipsis | Annotation::Unknown => json!({}),
        };
        schema.as_object().cloned().unwrap_or_default()
    }

    fn named_schema(&self, name: &str, definitions: &mut Definitions) -> Map<String, Value> {
        let schema = match name {
            "str" => json!({"type": "string"}),
            "int" => json!({"type": "integer"}),
            "float" => json!({"type": "number"}),
            "bool" => json!({"type": "boolean"}),
            "list" | "List" | "tuple" | "Tuple" => json!({"type": "array", "items": {}}),
            "set" | "Set" | "frozenset" => json!({"type": "array", "items": {}, "uniqueItems": true}),
            "dict" | "Dict" => json!({"type": "object", "additionalProperties": true}),
            _ => match FORMATS.iter().find(|(known, _)| *known == name) {
                Some((_, format)) => json!({"type": "string", "format": format}),
                None if self.derives(name, &[MODEL_BASE]) || self.derives(name, &ENUM_BASES) => {
                    self.define(name, definitions);
                    json!({"$ref": reference_to(name)})
                }
                None => json!({}),
            },
        };
        schema.as_object().cloned().unwrap_or_default()
    }

    /// Puts a class under the definitions, once; a class that is being written is only referred to.
    fn define(&self, name: &str, definitions: &mut Definitions) {
        definitions.referenced.insert(name.to_owned());
        if !definitions.open.insert(name.to_owned()) {
            return;
        }
        let schema = if self.derives(name, &[MODEL_BASE]) {
            self.object(name, definitions)
        } else {
            self.enumeration(name)
        };
        definitions.done.insert(name.to_owned(), schema);
    }

    fn enumeration(&self, name: &str) -> Map<String, Value> {
        let members = self.classes.get(name).map(|class| class.values.iter());
        let values: Vec<Value> = members.into_iter().flatten().map(|(_, value)| value.clone()).collect();
        let mut schema = Map::new();
        schema.insert("enum".to_owned(), values.clone().into());
        schema.insert("title".to_owned(), name.into());
        if let Some(kind) = common_type(&values) {
            schema.insert("type".to_owned(), kind.into());
        }
        schema
    }
}

/// Classes that a schema refers to.
#[derive(Debug, Default)]
struct Definitions {
    open: BTreeSet<String>,
    referenced: BTreeSet<String>,
    done: BTreeMap<String, Map<String, Value>>,
}

fn reference_to(name: &str) -> String {
    format!("#/$defs/{name}")
}

/// True for a reference, and for one that may be null in its place.
fn is_reference(schema: &Map<String, Value>) -> bool {
    let is_nullable = |any: &Vec<Value>| {
        any.len() == 2 && any.iter().any(|one| one.get("$ref").is_some()) && any.iter().any(|one| one["type"] == "null")
    };
    schema.contains_key("$ref") || schema.get("anyOf").and_then(Value::as_array).is_some_and(is_nullable)
}

fn literal_schema(texts: &[String]) -> Value {
    let values: Vec<Value> = texts
        .iter()
        .map(|text| match super::literal::unquote(text) {
            Some(words) => Value::String(words),
            None if text == "None" => Value::Null,
            None => serde_json::from_str(&text.to_ascii_lowercase()).unwrap_or_else(|_| Value::from(text.as_str())),
        })
        .collect();
    let mut schema = Map::new();
    if let Some(kind) = common_type(&values) {
        schema.insert("type".to_owned(), kind.into());
    }
    match <[Value; 1]>::try_from(values) {
        Ok([only]) => schema.insert("const".to_owned(), only),
        Err(several) => schema.insert("enum".to_owned(), several.into()),
    };
    Value::Object(schema)
}

fn common_type(values: &[Value]) -> Option<&'static str> {
    let kind = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        _ => None,
    };
    let first = kind(values.first()?)?;
    values.iter().all(|value| kind(value) == Some(first)).then_some(first)
}
