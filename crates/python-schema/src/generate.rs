//! From a file's text to its declarations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tree_sitter::Node;

use super::annotation::Annotation;
use super::config::ConfigParam;
use super::declaration::ToolDeclaration;
use super::docstring::{dedent, parameter_descriptions};
use super::literal::{Static, evaluate, string};
use super::parameter::{Parameter, named_parameters};
use super::problem::{SchemaProblem, Severity};
use super::risk::{RiskLevel, SafetyFlags, display_name};
use super::source::{
    DecoratedFunction, MAX_SOURCE_BYTES, Module, is_at_the_top, parse, parts, syntax_problems, text_of,
};
use super::types::{Table, Types, Unsaid, hoist_definitions};

/// Keywords that are copied as they are, if set.
const COPIED: [&str; 5] = [
    "icon",
    "group",
    "deprecated",
    "estimated_latency_ms",
    "required_imports",
];

/// Keywords that a level of risk follows from.
const RISK_KEYWORDS: [&str; 4] = ["risk_level", "side_effects", "requires_network", "requires_filesystem"];
/// Help for a value that is an expression.
const LITERALS_ONLY: &str = "The file is read, not run: write the value itself, or a constant at the top of the file";

/// Declarations in the order of the file, and every problem.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaReport {
    /// One per decorated function that could be read.
    pub tools: Vec<ToolDeclaration>,
    /// The problems, in no particular order.
    pub problems: Vec<SchemaProblem>,
}

/// Declares every decorated function of a Python file, or, where none is decorated, every public function at its top whose
/// parameters all have types; the text is never run.
pub fn generate(text: &str) -> SchemaReport {
    let text = text.trim_start_matches('\u{feff}');
    let Some(tree) = parse(text) else {
        return SchemaReport {
            tools: Vec::new(),
            problems: vec![SchemaProblem {
                severity: Severity::Error,
                line: 1,
                column: 1,
                function: None,
                message: format!("the file has {} bytes, at most {MAX_SOURCE_BYTES} are read", text.len()),
                help: "Split it into files with fewer functions".to_owned(),
            }],
        };
    };
    let mut problems = syntax_problems(&tree, text);
    let module = Module::collect(&tree, text);
    let types = Types::of(&module);
    let (mut tools, mut names) = (Vec::new(), BTreeSet::new());
    let typed;
    let (declaring, table) = if module.functions.is_empty() {
        typed = module.typed_functions();
        (&typed, Table::Full)
    } else {
        (&module.functions, Table::Tukuy)
    };
    for decorated in declaring {
        let mut reader = Reader {
            module: &module,
            types: &types,
            table,
            function: decorated.function,
            problems: Vec::new(),
        };
        let tool = reader.declare(decorated);
        let name = reader.function_name().to_owned();
        if let Some(tool) = tool {
            if !names.insert(tool.name.clone()) {
                reader.report(
                    Severity::Warning,
                    decorated.function,
                    format!("a second tool has the name {:?}", tool.name),
                    "Give one of them another name; a model cannot distinguish them",
                );
            }
            tools.push(tool);
        }
        problems.extend(reader.problems.into_iter().map(|problem| problem.in_function(&name)));
    }
    SchemaReport { tools, problems }
}

/// Reads one function.
struct Reader<'t> {
    module: &'t Module<'t>,
    types: &'t Types<'t>,
    table: Table,
    function: Node<'t>,
    problems: Vec<SchemaProblem>,
}

impl Reader<'_> {
    fn function_name(&self) -> &str {
        self.function
            .child_by_field_name("name")
            .map_or("?", |name| text_of(name, self.module.text))
    }

    fn declare(&mut self, decorated: &DecoratedFunction<'_>) -> Option<ToolDeclaration> {
        let broken = self
            .function
            .child_by_field_name("parameters")
            .is_none_or(|parameters| parameters.has_error())
            || decorated.arguments.is_some_and(|arguments| arguments.has_error());
        if broken {
            // The syntax error itself is already listed.
            return None;
        }
        let keywords = self.keywords(decorated.arguments)?;
        let docstring = self.docstring();
        let parameters: Vec<Parameter> = self.named_parameters().filter(Parameter::is_given).collect();
        let descriptions = parameter_descriptions(&docstring.as_deref().map(dedent).unwrap_or_default());
        let text = |name: &str| keywords.texts.get(name).cloned();
        let flags = SafetyFlags {
            side_effects: keywords.is_set("side_effects"),
            idempotent: keywords.is_set("idempotent"),
            requires_network: keywords.is_set("requires_network"),
            requires_filesystem: keywords.is_set("requires_filesystem"),
        };
        let name = text("name").unwrap_or_else(|| self.function_name().to_owned());
        Some(ToolDeclaration {
            description: text("description")
                .unwrap_or_else(|| docstring.as_deref().unwrap_or_default().trim().to_owned()),
            version: text("version").unwrap_or_else(|| "0.1.0".to_owned()),
            category: text("category").unwrap_or_else(|| "general".to_owned()),
            tags: keywords.tags,
            examples: keywords.examples,
            input_schema: match keywords.input_schema {
                Some(stated) => Some(stated),
                None => self.input_schema(&parameters, &descriptions),
            },
            output_schema: keywords.output_schema.or_else(|| self.output_schema()),
            function: self.function_name().to_owned(),
            is_nested: !is_at_the_top(self.function),
            takes_context: self.named_parameters().any(|parameter| parameter.is_context()),
            first_parameter: parameters.into_iter().next().map(|parameter| parameter.name),
            is_async: keywords
                .flags
                .get("is_async")
                .copied()
                .unwrap_or_else(|| self.is_async()),
            flags,
            risk_level: keywords.risk_level.resolve(flags),
            display_name: display_name(&name, keywords.texts.get("display_name").map(String::as_str)),
            extra: keywords.extra,
            hidden: keywords.flags.get("hidden").copied().unwrap_or_default(),
            config_params: keywords.config_params,
            line: self.function.start_position().row + 1,
            name,
        })
    }

    fn is_async(&self) -> bool {
        self.function.child(0).is_some_and(|first| first.kind() == "async")
    }

    /// The docstring as Python keeps it, indent included.
    fn docstring(&self) -> Option<String> {
        let body = self.function.child_by_field_name("body")?;
        let first = parts(body).into_iter().next()?;
        let expression = if first.kind() == "expression_statement" {
            parts(first).into_iter().next()?
        } else {
            first
        };
        string(expression, self.module.text)
    }

    /// Every parameter that has a name, but for `*args` and `**kwargs`.
    fn named_parameters(&self) -> impl Iterator<Item = Parameter> {
        named_parameters(self.function, self.module.text)
    }

    fn input_schema(&mut self, parameters: &[Parameter], descriptions: &BTreeMap<String, String>) -> Option<Value> {
        // The only parameter is a model: its schema is the schema of the tool.
        if let [only] = parameters
            && let Some(model) = only
                .annotation
                .as_ref()
                .and_then(|annotation| self.types.model(annotation))
        {
            return Some(model);
        }
        if parameters.is_empty() {
            return None;
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for parameter in parameters {
            let annotation = parameter.annotation.as_ref().unwrap_or(&Annotation::Unknown);
            let mut schema = self.types.parameter(annotation, self.table);
            if let Some(unsaid) = parameter
                .annotation
                .as_ref()
                .and_then(|kind| self.types.unsaid(kind, self.table))
            {
                self.report_unsaid(&parameter.name, &unsaid);
            }
            if let (Some(members), Some(description)) = (schema.as_object_mut(), descriptions.get(&parameter.name))
                && !description.is_empty()
                && !self.types.describes(annotation)
            {
                members.insert("description".to_owned(), description.as_str().into());
            }
            properties.insert(parameter.name.clone(), schema);
            if !parameter.has_default {
                required.push(Value::from(parameter.name.as_str()));
            }
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        hoist_definitions(&mut schema);
        Some(Value::Object(schema))
    }

    fn report_unsaid(&mut self, parameter: &str, unsaid: &Unsaid) {
        let Unsaid {
            written,
            member,
            is_of_tukuy,
        } = unsaid;
        let message = match member {
            None => format!(
                "the type of the parameter {parameter}, {written}, is written as a string in the schema; the function gets the \
                 text that a model writes"
            ),
            Some(member) => format!(
                "the type of {member} in the parameter {parameter}, {written}, is not in the schema; the function gets any value \
                 that a model writes"
            ),
        };
        let help = if *is_of_tukuy {
            "Remove the decorators of the file, which is how Tukuy writes it, or give the decorator an input_schema"
        } else {
            "Use a type of Python, or a dataclass, TypedDict, Enum or Pydantic model of this file, or give the decorator an input_schema"
        };
        self.report(Severity::Warning, self.function, message, help);
    }

    fn output_schema(&self) -> Option<Value> {
        let annotation = self.function.child_by_field_name("return_type")?;
        self.types
            .returned(&Annotation::parse(text_of(annotation, self.module.text)))
    }

    fn report(&mut self, severity: Severity, node: Node<'_>, message: impl Into<String>, help: &str) {
        self.problems.push(SchemaProblem::at(severity, node, message, help));
    }

    /// Reads the decorator's keywords. `None` if it cannot be a declaration at all.
    fn keywords(&mut self, arguments: Option<Node<'_>>) -> Option<Keywords> {
        let mut keywords = Keywords::default();
        for argument in arguments.map(parts).unwrap_or_default() {
            let (Some(name), Some(value)) = (
                argument.child_by_field_name("name"),
                argument.child_by_field_name("value"),
            ) else {
                self.problems.push(SchemaProblem::at(
                    Severity::Error,
                    argument,
                    "the decorator takes named arguments only",
                    "Write name=\"...\" and the like",
                ));
                return None;
            };
            let name = text_of(name, self.module.text).to_owned();
            let known = evaluate(value, self.module);
            if let Err(message) = self.set(&mut keywords, &name, known) {
                // A default in its place could say less than the text does, and a limit would let it pass.
                let severity = if RISK_KEYWORDS.contains(&name.as_str()) {
                    Severity::Error
                } else {
                    Severity::Warning
                };
                self.report(severity, argument, message, LITERALS_ONLY);
            }
        }
        Some(keywords)
    }

    fn set(&self, keywords: &mut Keywords, name: &str, value: Static) -> Result<(), String> {
        if value == Static::Value(Value::Null) {
            return Ok(());
        }
        let unknown = || format!("the value of {name} cannot be read from the source text and stays at its default");
        match name {
            "name" | "description" | "version" | "category" | "display_name" => {
                let text = value.value().and_then(|value| value.as_str().map(ToOwned::to_owned));
                keywords.texts.insert(name.to_owned(), text.ok_or_else(unknown)?);
            }
            "side_effects" | "idempotent" | "requires_network" | "requires_filesystem" | "hidden" | "is_async" => {
                let flag = value.value().and_then(|value| value.as_bool());
                keywords.flags.insert(name.to_owned(), flag.ok_or_else(unknown)?);
            }
            "tags" => {
                let tags: Option<Vec<String>> = value.elements().ok_or_else(unknown)?.into_iter().map(tag).collect();
                keywords.tags = tags.ok_or_else(unknown)?;
            }
            "examples" => {
                let examples: Option<Vec<Value>> =
                    value.elements().ok_or_else(unknown)?.into_iter().map(example).collect();
                keywords.examples = examples.ok_or_else(unknown)?;
            }
            "risk_level" => {
                let word = match &value {
                    Static::Value(Value::String(word)) => Some(word.as_str()),
                    other => other.last_name(),
                };
                keywords.risk_level = word.and_then(RiskLevel::parse).ok_or_else(|| {
                    "risk_level is not one of AUTO, SAFE, MODERATE, DANGEROUS, CRITICAL and stays AUTO".to_owned()
                })?;
            }
            "input_schema" => keywords.input_schema = Some(self.explicit_schema(value).ok_or_else(unknown)?),
            "output_schema" => keywords.output_schema = Some(self.explicit_schema(value).ok_or_else(unknown)?),
            "config_params" => {
                for element in value.elements().ok_or_else(unknown)? {
                    keywords.config_params.push(config_param(element)?);
                }
            }
            _ if COPIED.contains(&name) => {
                let value = value.value().ok_or_else(unknown)?;
                keywords.extra.insert(name.to_owned(), value);
            }
            _ => return Err(format!("{name} is not a keyword of the decorator and is left out")),
        }
        Ok(())
    }

    /// A schema given as a dict, a type or a model.
    fn explicit_schema(&self, value: Static) -> Option<Value> {
        match value {
            Static::Value(value) => value.is_object().then_some(value),
            Static::Name(name) => self.types.returned(&Annotation::parse(&name)),
            _ => None,
        }
    }
}

/// The keywords of a decorator.
#[derive(Default)]
struct Keywords {
    texts: BTreeMap<String, String>,
    flags: BTreeMap<String, bool>,
    tags: Vec<String>,
    examples: Vec<Value>,
    risk_level: RiskLevel,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    config_params: Vec<ConfigParam>,
    extra: Map<String, Value>,
}

impl Keywords {
    fn is_set(&self, flag: &str) -> bool {
        self.flags.get(flag).copied().unwrap_or_default()
    }
}

fn tag(element: Static) -> Option<String> {
    element.value()?.as_str().map(str::to_lowercase)
}

/// `SkillExample(input=..., output=..., description=...)` or a plain value.
fn example(element: Static) -> Option<Value> {
    let Static::Call {
        positional, keywords, ..
    } = element
    else {
        return element.value();
    };
    let mut example = json!({"input": null, "output": null, "description": ""});
    let named = ["input", "output", "description"]
        .map(ToOwned::to_owned)
        .into_iter()
        .zip(positional);
    for (name, value) in named.chain(keywords) {
        *example.get_mut(&name)? = value.value()?;
    }
    Some(example)
}

fn config_param(element: Static) -> Result<ConfigParam, String> {
    let unknown = "a config parameter cannot be read from the source text and is left out";
    let Static::Call {
        function,
        positional,
        keywords,
    } = element
    else {
        return Err(unknown.to_owned());
    };
    if function.rsplit('.').next() != Some("ConfigParam") {
        return Err(unknown.to_owned());
    }
    let named = positional
        .into_iter()
        .enumerate()
        .filter_map(|(index, value)| Some((ConfigParam::keyword_at(index)?.to_owned(), value)));
    let mut known = Vec::new();
    for (name, value) in named.chain(keywords) {
        let value = match value {
            Static::Name(scope) if name == "scope" => Value::from(scope.rsplit('.').next().unwrap_or_default()),
            other => other.value().ok_or_else(|| {
                format!("{name} of a config parameter cannot be read from the source text; it is left out")
            })?,
        };
        known.push((name, value));
    }
    ConfigParam::from_keywords(&known)
}
