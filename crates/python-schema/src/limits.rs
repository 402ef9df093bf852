//! What `Annotated[...]` says about a type besides the type: limits and a description, in the words of Pydantic
//! (`Field`, `StringConstraints`) and of annotated-types (`Ge`, `Len`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::literal::{Static, evaluate};
use super::source::{Module, parse, parts};

/// Keywords of `Field(...)` and their members in the schema. The type decides which kind of length is meant.
const MEMBERS: [(&str, &str); 11] = [
    ("description", "description"),
    ("title", "title"),
    ("examples", "examples"),
    ("ge", "minimum"),
    ("gt", "exclusiveMinimum"),
    ("le", "maximum"),
    ("lt", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
    ("pattern", "pattern"),
    ("min_length", "min_length"),
    ("max_length", "max_length"),
];

/// Calls besides `Field(...)`, and the keywords of their positional arguments.
const CALLS: [(&str, &[&str]); 11] = [
    ("StringConstraints", &[]),
    ("Interval", &[]),
    ("Len", &["min_length", "max_length"]),
    ("MinLen", &["min_length"]),
    ("MaxLen", &["max_length"]),
    ("Ge", &["ge"]),
    ("Gt", &["gt"]),
    ("Le", &["le"]),
    ("Lt", &["lt"]),
    ("MultipleOf", &["multiple_of"]),
    ("Doc", &["description"]),
];

/// Values of the constants at the top of a file.
#[derive(Debug, Default)]
pub(super) struct Constants(BTreeMap<String, Value>);

impl Constants {
    pub(super) fn of(module: &Module<'_>) -> Self {
        let values = module.constants.iter();
        let values = values.filter_map(|(name, node)| Some(((*name).to_owned(), evaluate(*node, module).value()?)));
        Self(values.collect())
    }

    /// Evaluates the text of one expression.
    pub(super) fn evaluate(&self, text: &str) -> Static {
        let Some(tree) = parse(text) else {
            return Static::Unknown;
        };
        let module = Module::collect(&tree, text);
        let statement = parts(module.root).into_iter().next();
        let expression = statement.and_then(|statement| parts(statement).into_iter().next());
        expression.map_or(Static::Unknown, |expression| {
            self.resolved(evaluate(expression, &module))
        })
    }

    /// With the values of names, in the arguments of a call too.
    fn resolved(&self, value: Static) -> Static {
        match value {
            Static::Name(name) => match self.0.get(&name) {
                Some(value) => Static::Value(value.clone()),
                None => Static::Name(name),
            },
            Static::Call {
                function,
                positional,
                keywords,
            } => Static::Call {
                function,
                positional: positional.into_iter().map(|value| self.resolved(value)).collect(),
                keywords: keywords
                    .into_iter()
                    .map(|(name, value)| (name, self.resolved(value)))
                    .collect(),
            },
            other => other,
        }
    }

    /// The limits that the texts behind a type state.
    pub(super) fn limits(&self, texts: &[String]) -> Vec<(String, Value)> {
        let stated = texts.iter().map(|text| self.evaluate(text));
        stated.flat_map(limits_of).collect()
    }

    /// The description that is one of these texts by itself, as some frameworks take it of a parameter.
    pub(super) fn description(&self, texts: &[String]) -> Option<Value> {
        let mut values = texts.iter().filter_map(|text| self.evaluate(text).value());
        values.find(Value::is_string)
    }
}

fn limits_of(stated: Static) -> Vec<(String, Value)> {
    let Static::Call {
        function,
        positional,
        keywords,
    } = stated
    else {
        return Vec::new();
    };
    let name = function.rsplit('.').next().unwrap_or_default();
    let places: &[&str] = match CALLS.iter().find(|(known, _)| *known == name) {
        Some((_, places)) => places,
        None if name == "Field" => &[],
        None => return Vec::new(),
    };
    let placed = places.iter().map(|keyword| (*keyword).to_owned()).zip(positional);
    placed
        .chain(keywords)
        .filter_map(|(keyword, value)| limit(&keyword, value))
        .collect()
}

/// The member of a schema that a keyword stands for.
pub(super) fn limit(keyword: &str, value: Static) -> Option<(String, Value)> {
    let value = value.value().filter(|value| !value.is_null())?;
    let (_, member) = MEMBERS.iter().find(|(known, _)| *known == keyword)?;
    Some(((*member).to_owned(), value))
}

/// Puts limits into the schema of their type.
pub(super) fn constrain(schema: &mut Map<String, Value>, limits: &[(String, Value)]) {
    let of_array = |schema: &Value| schema["type"] == "array";
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    // A length of an optional list is that of the list.
    let is_array = alternatives.map_or_else(
        || schema.get("type").is_some_and(|kind| kind == "array"),
        |alternatives| alternatives.iter().any(of_array),
    );
    for (keyword, value) in limits {
        let member = match keyword.as_str() {
            "min_length" if is_array => "minItems",
            "max_length" if is_array => "maxItems",
            "min_length" => "minLength",
            "max_length" => "maxLength",
            other => other,
        };
        schema.insert(member.to_owned(), value.clone());
    }
}
