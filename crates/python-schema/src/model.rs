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
const ENUM_BASES: [&str; 5] = ["Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"];

/// Base classes outside of the file that add no member.
const PLAIN_BASES: [&str; 6] = ["object", "ABC", "Generic", "Protocol", "TypedDict", "NamedTuple"];

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

/// What a class of the file is, as far as its values have a form in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A Pydantic model.
    Model,
    /// A dataclass, a NamedTuple or a TypedDict: its members are all that is in the text.
    Record,
    /// An enumeration.
    Enumeration,
}

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

    fn shape(&self, name: &str) -> Option<Shape> {
        let class = self.classes.get(name)?;
        if self.derives(name, &[MODEL_BASE]) {
            return Some(Shape::Model);
        }
        if self.derives(name, &ENUM_BASES) {
            return Some(Shape::Enumeration);
        }
        let is_record = class.is_dataclass || self.derives(name, &["TypedDict", "NamedTuple"]);
        (is_record && self.is_whole(name)).then_some(Shape::Record)
    }

    /// Whether all bases are in the file, or add no member.
    fn is_whole(&self, name: &str) -> bool {
        let is_known = |base: &String| PLAIN_BASES.contains(&base.as_str()) || self.classes.contains_key(base);
        let lineage = self.lineage(name);
        lineage.iter().all(|(_, class)| class.bases.iter().all(is_known))
    }

    /// A class after its bases in this file, each once.
    fn lineage(&self, name: &str) -> Vec<(&str, &Class)> {
        let (mut seen, mut lineage) = (BTreeSet::new(), Vec::new());
        self.visit(name, 0, &mut seen, &mut lineage);
        lineage
    }

    fn visit<'m>(
        &'m self,
        name: &str,
        depth: usize,
        seen: &mut BTreeSet<&'m str>,
        lineage: &mut Vec<(&'m str, &'m Class)>,
    ) {
        let Some((name, class)) = self.classes.get_key_value(name).filter(|_| depth < MAX_BASES) else {
            return;
        };
        if seen.insert(name) {
            for base in class.bases.iter().rev() {
                self.visit(base, depth + 1, seen, lineage);
            }
            lineage.push((name, class));
        }
    }

    /// Whether a class of this file has a schema.
    pub(super) fn has(&self, name: &str) -> bool {
        let class = self.classes.get(name);
        class.is_some_and(|class| class.own_schema.is_some()) || self.shape(name).is_some()
    }

    /// The schema of a class that states its own, or of a Pydantic model; `None` for any other name.
    pub(super) fn model(&self, name: &str) -> Option<Value> {
        let own = self.classes.get(name).and_then(|class| class.own_schema.clone());
        let is_model = || self.shape(name) == Some(Shape::Model);
        own.or_else(|| is_model().then(|| self.whole_object(name)))
    }

    /// The schema of a class of this file whose values have a form in JSON.
    pub(super) fn schema(&self, name: &str) -> Option<Value> {
        self.model(name).or_else(|| match self.shape(name)? {
            Shape::Model | Shape::Record => Some(self.whole_object(name)),
            Shape::Enumeration => {
                let mut schema = self.enumeration(name, true);
                schema.shift_remove("title");
                Some(Value::Object(schema))
            }
        })
    }

    /// The types of a record's members, each with the member's name.
    pub(super) fn members(&self, name: &str) -> Vec<(String, Annotation)> {
        if self.shape(name) != Some(Shape::Record) {
            return Vec::new();
        }
        let fields = self.fields(name).into_iter();
        fields.map(|field| (field.name, field.annotation)).collect()
    }

    /// The schema of a type as a member of a class has it.
    pub(super) fn value(&self, annotation: &Annotation) -> Value {
        let mut definitions = Definitions {
            by_name: true,
            ..Definitions::default()
        };
        let mut schema = self.value_schema(annotation, &mut definitions);
        definitions.put_into(&mut schema);
        Value::Object(schema)
    }

    /// An object with the classes that it refers to.
    fn whole_object(&self, name: &str) -> Value {
        let mut definitions = Definitions {
            by_name: self.shape(name) == Some(Shape::Record),
            ..Definitions::default()
        };
        definitions.open.insert(name.to_owned());
        let root = self.object(name, &mut definitions);
        let recursive = definitions.referenced.contains(name);
        if recursive {
            definitions.done.insert(name.to_owned(), root.clone());
        }
        let mut schema = if recursive { Map::new() } else { root };
        definitions.put_into(&mut schema);
        if recursive {
            schema.insert("$ref".to_owned(), reference_to(name).into());
        }
        Value::Object(schema)
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
    fn fields(&self, name: &str) -> Vec<Field> {
        let is_dataclass = self.classes.get(name).is_some_and(|class| class.is_dataclass);
        // Types in another class are no arguments of a dataclass.
        let lineage = self.lineage(name).into_iter();
        let lineage = lineage.filter(|(_, class)| class.is_dataclass || !is_dataclass);
        let mut fields: Vec<Field> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for field in lineage.flat_map(|(_, class)| &class.fields) {
            if let Some(place) = places.get(field.name.as_str()) {
                fields[*place] = field.clone();
            } else {
                places.insert(&field.name, fields.len());
                fields.push(field.clone());
            }
        }
        fields
    }

    fn object(&self, name: &str, definitions: &mut Definitions) -> Map<String, Value> {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in self.fields(name) {
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
        // What a model does with other members is its own affair; a record has no place for them.
        if self.shape(name) == Some(Shape::Record) {
            object.insert("additionalProperties".to_owned(), false.into());
        }
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
                found.and_then(|(_, value)| value.clone())
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
            Annotation::Literal(texts) => self.literal(texts),
            Annotation::Quoted(kind) => return self.value_schema(kind, definitions),
            Annotation::Generic(name, parameters) => {
                let parameter = |index: usize, definitions: &mut Definitions| -> Value {
                    parameters
                        .get(index)
                        .map(|part| self.value_schema(part, definitions))
                        .unwrap_or_default()
                        .into()
                };
                match name.as_str() {
                    "list" | "List" | "Sequence" | "Iterable" | "Collection" => {
                        json!({"type": "array", "items": parameter(0, definitions)})
                    }
                    "set" | "Set" | "frozenset" | "FrozenSet" | "AbstractSet" => {
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
            "str" | "Decimal" | "PurePath" => json!({"type": "string"}),
            "int" => json!({"type": "integer"}),
            "float" => json!({"type": "number"}),
            "bool" => json!({"type": "boolean"}),
            "list" | "List" | "Sequence" | "Iterable" | "Collection" | "tuple" | "Tuple" => {
                json!({"type": "array", "items": {}})
            }
            "set" | "Set" | "frozenset" | "FrozenSet" | "AbstractSet" => {
                json!({"type": "array", "items": {}, "uniqueItems": true})
            }
            "dict" | "Dict" | "Mapping" => json!({"type": "object", "additionalProperties": true}),
            _ => match FORMATS.iter().find(|(known, _)| *known == name) {
                Some((_, format)) => json!({"type": "string", "format": format}),
                None if self.shape(name).is_some() => {
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
        let schema = match self.shape(name) {
            Some(Shape::Enumeration) => self.enumeration(name, definitions.by_name),
            _ => self.object(name, definitions),
        };
        definitions.done.insert(name.to_owned(), schema);
    }

    /// An enumeration by its values. Where one is not in the text, or none that JSON compares, by the names of its members,
    /// which the program that calls functions reads; a model does not, and takes what its own check takes.
    fn enumeration(&self, name: &str, by_name: bool) -> Map<String, Value> {
        let members = self.classes.get(name).map(|class| class.values.as_slice());
        let members = members.unwrap_or_default();
        let is_plain = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let plain = |(_, value): &(String, Option<Value>)| value.clone().filter(is_plain);
        let names = || members.iter().map(|(name, _)| Value::from(name.as_str())).collect();
        let values: Option<Vec<Value>> = members.iter().map(plain).collect();
        let values = values.or_else(|| by_name.then(names));
        let mut schema = Map::new();
        if let Some(values) = &values {
            schema.insert("enum".to_owned(), values.clone().into());
        }
        schema.insert("title".to_owned(), name.into());
        if let Some(kind) = common_type(&values.unwrap_or_default()) {
            schema.insert("type".to_owned(), kind.into());
        }
        schema
    }

    /// The values of a literal; one of an enumeration is its value.
    pub(super) fn literal(&self, texts: &[String]) -> Value {
        let value = |text: &String| match super::literal::unquote(text) {
            Some(words) => Value::String(words),
            None if text == "None" => Value::Null,
            None => serde_json::from_str(&text.to_ascii_lowercase())
                .ok()
                .or_else(|| self.known(&Static::Name(text.clone())))
                .unwrap_or_else(|| Value::from(text.as_str())),
        };
        let values: Vec<Value> = texts.iter().map(value).collect();
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
}

/// Classes that a schema refers to.
#[derive(Debug, Default)]
struct Definitions {
    /// Whether a member of an enumeration may be named.
    by_name: bool,
    open: BTreeSet<String>,
    referenced: BTreeSet<String>,
    done: BTreeMap<String, Map<String, Value>>,
}

impl Definitions {
    fn put_into(self, schema: &mut Map<String, Value>) {
        if self.done.is_empty() {
            return;
        }
        let done = self.done.into_iter();
        let done = done.map(|(name, schema)| (name, schema.into())).collect();
        schema.insert("$defs".to_owned(), Value::Object(done));
    }
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
