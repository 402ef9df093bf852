//! Classes of a Python file, read from their syntax: bases, fields, values, a schema of their own.

use serde_json::Value;
use tree_sitter::Node;

use super::annotation::Annotation;
use super::docstring::dedent;
use super::limits::{Constants, limit};
use super::literal::{Static, evaluate, string};
use super::source::{Module, parts, text_of};

/// A field of a model.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) annotation: Annotation,
    pub(super) required: bool,
    /// The default, if it is known: a value, or the name of one.
    pub(super) default: Option<Static>,
    pub(super) constraints: Vec<(String, Value)>,
}

/// A class of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Class {
    pub(super) bases: Vec<String>,
    pub(super) description: Option<String>,
    pub(super) fields: Vec<Field>,
    /// Names and values of `NAME = value`, for enumerations; `None`: the value is not in the text.
    pub(super) values: Vec<(String, Option<Value>)>,
    /// Under `@dataclass`.
    pub(super) is_dataclass: bool,
    /// `total=False` of a TypedDict.
    is_partial: bool,
    /// A schema that the class states itself.
    pub(super) own_schema: Option<Value>,
}

/// Reads a class from its syntax.
pub(super) fn read_class(node: Node<'_>, module: &Module<'_>, constants: &Constants) -> Class {
    let mut class = Class {
        is_dataclass: is_dataclass(node, module),
        ..Class::default()
    };
    if let Some(bases) = node.child_by_field_name("superclasses") {
        class.is_partial = parts(bases).into_iter().any(|part| is_not_total(part, module));
        class.bases = parts(bases)
            .into_iter()
            .filter(|base| matches!(base.kind(), "identifier" | "attribute"))
            .filter_map(|base| {
                text_of(base, module.text)
                    .rsplit('.')
                    .next()
                    .map(|name| name.trim().to_owned())
            })
            .collect();
    }
    let statements = node.child_by_field_name("body").map(parts).unwrap_or_default();
    for (place, statement) in statements.into_iter().enumerate() {
        match statement.kind() {
            "expression_statement" => {
                for part in parts(statement) {
                    if part.kind() == "assignment" {
                        read_assignment(part, (module, constants), &mut class);
                    } else if place == 0 {
                        class.description = string(part, module.text).map(|text| dedent(&text));
                    }
                }
            }
            "function_definition" | "decorated_definition" => {
                if let Some(schema) = stated_schema(statement, module) {
                    class.own_schema = Some(schema);
                }
            }
            _ => {}
        }
    }
    class
}

/// `@dataclass`, `@dataclasses.dataclass(frozen=True)`.
fn is_dataclass(class: Node<'_>, module: &Module<'_>) -> bool {
    let decorated = class.parent().filter(|parent| parent.kind() == "decorated_definition");
    let decorators = decorated.map(parts).unwrap_or_default();
    decorators
        .into_iter()
        .filter(|part| part.kind() == "decorator")
        .any(|part| {
            let words = text_of(part, module.text).trim_start_matches('@');
            let name = words.split('(').next().unwrap_or_default().trim();
            name.rsplit('.').next() == Some("dataclass")
        })
}

/// `total=False` among the bases of a class.
fn is_not_total(base: Node<'_>, module: &Module<'_>) -> bool {
    let text = |field: &str| base.child_by_field_name(field).map(|part| text_of(part, module.text));
    base.kind() == "keyword_argument" && text("name") == Some("total") && text("value") == Some("False")
}

fn read_assignment(node: Node<'_>, (module, constants): (&Module<'_>, &Constants), class: &mut Class) {
    let Some(left) = node
        .child_by_field_name("left")
        .filter(|left| left.kind() == "identifier")
    else {
        return;
    };
    let name = text_of(left, module.text);
    let right = node.child_by_field_name("right");
    if let Some(right) = right.filter(|_| !name.starts_with('_')) {
        class.values.push((name.to_owned(), evaluate(right, module).value()));
    }
    let Some(kind) = node.child_by_field_name("type") else {
        return;
    };
    let written = text_of(kind, module.text);
    let annotation = Annotation::parse(written);
    let is_class_variable =
        matches!(annotation.bare(), Annotation::Generic(name, _) | Annotation::Name(name) if name == "ClassVar");
    let is_private = name.starts_with('_') && !class.is_dataclass;
    if is_private || name == "model_config" || is_class_variable || annotation.is_named("KW_ONLY") {
        return;
    }
    let mut field = Field {
        name: name.to_owned(),
        annotation,
        required: right.is_none() && is_required(class, written),
        default: None,
        constraints: Vec::new(),
    };
    if let Annotation::Annotated(_, said) = field.annotation.clone() {
        for one in said.iter().map(|text| constants.evaluate(text)) {
            read_field(&mut field, one, right.is_some());
        }
    }
    match right.map(|right| evaluate(right, module)) {
        Some(Static::Ellipsis) => field.required = true,
        Some(known @ (Static::Value(_) | Static::Name(_) | Static::List(_))) => field.default = Some(known),
        Some(Static::Call {
            function,
            positional,
            keywords,
        }) => match function.rsplit('.').next() {
            // Of dataclasses: it is no argument of the class.
            Some("field") if says(&keywords, "init", false) => return,
            Some("Field" | "field") => read_field_call(&mut field, positional, keywords),
            _ => {}
        },
        _ => {}
    }
    class.fields.push(field);
}

/// What a TypedDict says of a member, as a whole or of the one.
fn is_required(class: &Class, written: &str) -> bool {
    match Annotation::wrapper(written).as_deref() {
        Some("Required") => true,
        Some("NotRequired") => false,
        _ => !class.is_partial,
    }
}

fn says(keywords: &[(String, Static)], keyword: &str, value: bool) -> bool {
    keywords
        .iter()
        .any(|(name, known)| name == keyword && *known == Static::Value(Value::Bool(value)))
}

/// `Field(...)` beside a type: what it says of the member. Its limits are those of the type.
fn read_field(field: &mut Field, said: Static, has_value: bool) {
    if let Static::Call {
        function,
        positional,
        keywords,
    } = said
        && function.rsplit('.').next() == Some("Field")
    {
        let limits = std::mem::take(&mut field.constraints);
        read_field_call(field, positional, keywords);
        field.constraints = limits;
        field.required &= !has_value;
    }
}

/// `Field(default, ge=1, description="...")`.
fn read_field_call(field: &mut Field, positional: Vec<Static>, keywords: Vec<(String, Static)>) {
    field.required = true;
    let named_default = |(name, value): (String, Static)| (name == "default").then_some(value);
    let default = positional
        .into_iter()
        .next()
        .or_else(|| keywords.iter().cloned().find_map(named_default));
    match default {
        Some(Static::Ellipsis) | None => {}
        Some(known @ (Static::Value(_) | Static::Name(_) | Static::List(_))) => {
            (field.required, field.default) = (false, Some(known));
        }
        Some(_) => field.required = false,
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("default_factory", _) => field.required = false,
            ("alias", Static::Value(Value::String(alias))) => field.name = alias,
            (_, value) => field.constraints.extend(limit(&keyword, value)),
        }
    }
}

/// The literal that a method `model_json_schema` or `schema` returns, if that is all it does.
fn stated_schema(statement: Node<'_>, module: &Module<'_>) -> Option<Value> {
    let function = statement.child_by_field_name("definition").unwrap_or(statement);
    let name = text_of(function.child_by_field_name("name")?, module.text);
    if function.kind() != "function_definition" || !matches!(name, "model_json_schema" | "schema") {
        return None;
    }
    let body = parts(function.child_by_field_name("body")?);
    let returned = body.last().filter(|last| last.kind() == "return_statement")?;
    evaluate(*parts(*returned).first()?, module)
        .value()
        .filter(Value::is_object)
}
