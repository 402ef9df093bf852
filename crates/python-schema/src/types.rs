//! The type table: annotations of parameters and returns to JSON Schema.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::annotation::Annotation;
use super::limits::constrain;
use super::model::Models;
use super::source::{Module, text_of};

/// How many aliases are followed from one name to the next.
const MAX_ALIASES: usize = 8;

/// Types of a file that are read, parts of types included: the largest file of a person has a few hundred.
const MAX_STEPS: usize = 10_000;

/// Nesting of types: as much as of one annotation, and as much again behind aliases.
const MAX_DEPTH: usize = 48;

/// Names of the types of collections that the table of Tukuy does not have.
const COLLECTIONS: [&str; 13] = [
    "Sequence",
    "Iterable",
    "Collection",
    "set",
    "Set",
    "frozenset",
    "FrozenSet",
    "AbstractSet",
    "tuple",
    "Tuple",
    "Mapping",
    "MutableMapping",
    "MutableSequence",
];

/// Which types have a schema of their own; the others are strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// What Tukuy's decorator says of a type, so that a function under it has one schema in both systems.
    Tukuy,
    /// What JSON Schema can say.
    Full,
}

/// A type that a schema does not say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsaid {
    /// The type.
    pub(super) written: String,
    /// The member of a class that has it, `Point.x`; `None`: the parameter itself.
    pub(super) member: Option<String>,
    /// Whether the other table says it.
    pub(super) is_of_tukuy: bool,
}

/// Where a type stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    table: Table,
    member: Option<&'a str>,
}

/// The types of one file: the table, the file's models and its aliases.
#[derive(Debug)]
pub(super) struct Types<'t> {
    module: &'t Module<'t>,
    models: Models,
    /// Steps that are left, and those that have begun: an alias may name itself.
    steps: Cell<usize>,
    depth: Cell<usize>,
}

impl<'t> Types<'t> {
    /// Reads the models of a file.
    pub(super) fn of(module: &'t Module<'t>) -> Self {
        Self {
            module,
            models: Models::read(module),
            steps: Cell::new(MAX_STEPS),
            depth: Cell::new(0),
        }
    }

    /// Goes one step deeper. `None`: there were too many, and a type is unknown.
    fn step<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let (steps, depth) = (self.steps.get(), self.depth.get());
        if steps == 0 || depth >= MAX_DEPTH {
            return None;
        }
        self.steps.set(steps - 1);
        self.depth.set(depth + 1);
        let done = work();
        self.depth.set(depth);
        Some(done)
    }

    /// The schema of a parameter. Optional types are their inner type; what a table does not say is a string, since every value can
    /// be written as one.
    pub(super) fn parameter(&self, annotation: &Annotation, table: Table) -> Value {
        let schema = self.step(|| self.schema_of(annotation, table));
        schema.unwrap_or_else(string_schema)
    }

    fn schema_of(&self, annotation: &Annotation, table: Table) -> Value {
        let annotation = self.resolved(annotation);
        let full = || (table == Table::Full).then(|| self.full(&annotation)).flatten();
        match &annotation {
            Annotation::Annotated(kind, said) => self.limited(kind, said, table),
            Annotation::Union(_) => match annotation.optional() {
                Some(inner) => self.parameter(inner, table),
                None => full().unwrap_or_else(string_schema),
            },
            Annotation::Generic(name, parameters) => match (name.as_str(), parameters.first()) {
                ("list" | "List", Some(item)) => json!({"type": "array", "items": self.parameter(item, table)}),
                ("list" | "List", None) => json!({"type": "array"}),
                ("dict" | "Dict", _) => self.mapping(parameters),
                _ => full().unwrap_or_else(string_schema),
            },
            Annotation::Name(name) => self
                .named(name)
                .or_else(|| typing_name(name))
                .or_else(full)
                .unwrap_or_else(string_schema),
            _ => full().unwrap_or_else(string_schema),
        }
    }

    /// What the table of Tukuy writes as a string, and JSON Schema can say. `None`: a string is right.
    fn full(&self, annotation: &Annotation) -> Option<Value> {
        match annotation {
            Annotation::Quoted(kind) => Some(self.parameter(kind, Table::Full)),
            Annotation::Union(alternatives) => {
                let real = alternatives.iter().filter(|one| **one != Annotation::None);
                let any: Vec<Value> = real.map(|one| self.parameter(one, Table::Full)).collect();
                Some(json!({"anyOf": any}))
            }
            Annotation::Literal(texts) => {
                let mut schema = self.models.literal(texts);
                // Not every provider takes `const`.
                if let Some(members) = schema.as_object_mut()
                    && let Some(only) = members.shift_remove("const")
                {
                    members.insert("enum".to_owned(), json!([only]));
                }
                Some(schema)
            }
            Annotation::Name(name) | Annotation::Generic(name, _) if COLLECTIONS.contains(&name.as_str()) => {
                Some(self.models.value(annotation))
            }
            _ => None,
        }
    }

    /// A dictionary. What its values are is said where a class of the file says it: Tukuy says it of none.
    fn mapping(&self, parameters: &[Annotation]) -> Value {
        match parameters.get(1).map(Annotation::bare) {
            Some(Annotation::Name(name)) if self.models.schema(name).is_some() => self
                .models
                .value(&Annotation::Generic("dict".to_owned(), parameters.to_vec())),
            _ => json!({"type": "object"}),
        }
    }

    /// The first type in the annotation of a parameter that its schema does not say, and where it stands.
    pub(super) fn unsaid(&self, annotation: &Annotation, table: Table) -> Option<Unsaid> {
        let mut seen = BTreeSet::new();
        self.unsaid_in(annotation, Place { table, member: None }, &mut seen)
    }

    fn unsaid_in(&self, annotation: &Annotation, place: Place<'_>, seen: &mut BTreeSet<String>) -> Option<Unsaid> {
        self.step(|| self.unsaid_of(annotation, place, seen)).flatten()
    }

    fn unsaid_of(&self, annotation: &Annotation, place: Place<'_>, seen: &mut BTreeSet<String>) -> Option<Unsaid> {
        let annotation = self.resolved(annotation);
        let unsaid = |is_of_tukuy| {
            Some(Unsaid {
                written: annotation.to_string(),
                member: place.member.map(str::to_owned),
                is_of_tukuy,
            })
        };
        if place.table == Table::Tukuy && place.member.is_none() && is_text_in_tukuy(&annotation) {
            return unsaid(true);
        }
        match &annotation {
            Annotation::None | Annotation::Ellipsis | Annotation::Literal(_) => None,
            Annotation::Annotated(kind, _) | Annotation::Quoted(kind) => self.unsaid_in(kind, place, seen),
            Annotation::Union(parts) => parts.iter().find_map(|part| self.unsaid_in(part, place, seen)),
            Annotation::Generic(name, parameters) if is_collection(name) => {
                parameters.iter().find_map(|part| self.unsaid_in(part, place, seen))
            }
            Annotation::Name(name) if self.models.has(name) => {
                if !seen.insert(name.clone()) {
                    return None;
                }
                self.models.members(name).iter().find_map(|(member, kind)| {
                    let member = format!("{name}.{member}");
                    let place = Place {
                        member: Some(&member),
                        ..place
                    };
                    self.unsaid_in(kind, place, seen)
                })
            }
            Annotation::Name(name) if is_known(name) => None,
            _ => unsaid(false),
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
    fn limited(&self, kind: &Annotation, said: &[String], table: Table) -> Value {
        let constants = self.models.constants();
        let mut schema = self.parameter(kind, table);
        if let Some(members) = schema.as_object_mut() {
            members.extend(constants.description(said).map(|text| ("description".to_owned(), text)));
            constrain(members, &constants.limits(said));
        }
        schema
    }

    /// The schema of a return annotation: plain types and models only, everything else has none.
    pub(super) fn returned(&self, annotation: &Annotation) -> Option<Value> {
        match self.resolved(annotation).bare() {
            Annotation::Name(name) => plain(name).or_else(|| self.models.model(name)),
            _ => None,
        }
    }

    /// The schema of a model, if the annotation is one.
    pub(super) fn model(&self, annotation: &Annotation) -> Option<Value> {
        match self.resolved(annotation).bare() {
            Annotation::Name(name) => self.models.model(name),
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

/// Whether the table of Tukuy writes a type as a string that the other one has.
fn is_text_in_tukuy(annotation: &Annotation) -> bool {
    match annotation {
        Annotation::Union(_) => annotation.optional().is_none(),
        Annotation::Quoted(_) | Annotation::Literal(_) => true,
        Annotation::Name(name) | Annotation::Generic(name, _) => COLLECTIONS.contains(&name.as_str()),
        _ => false,
    }
}

fn is_collection(name: &str) -> bool {
    COLLECTIONS.contains(&name) || ["list", "List", "dict", "Dict"].contains(&name)
}

/// Types of which a text or any value is one, or that the program that calls functions makes of a text.
fn is_known(name: &str) -> bool {
    const OF_TEXT: [&str; 7] = ["datetime", "date", "time", "Decimal", "UUID", "Path", "PurePath"];
    const ANY: [&str; 7] = ["Any", "object", "AnyStr", "LiteralString", "EmailStr", "List", "Dict"];
    let is_listed = OF_TEXT.contains(&name) || ANY.contains(&name) || COLLECTIONS.contains(&name);
    is_listed || plain(name).is_some()
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
    for member in ["items", "additionalProperties"] {
        members
            .get_mut(member)
            .into_iter()
            .for_each(|below| take_definitions(below, definitions));
    }
    let below = members.get_mut("anyOf").and_then(Value::as_array_mut);
    below
        .into_iter()
        .flatten()
        .for_each(|below| take_definitions(below, definitions));
}
