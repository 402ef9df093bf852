//! The parameters of a function.

use tree_sitter::Node;

use super::annotation::Annotation;
use super::source::{parts, text_of};

/// One parameter of a function.
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) annotation: Option<Annotation>,
    pub(super) has_default: bool,
}

impl Parameter {
    /// Whether the caller of the function gives it, and no model.
    pub(super) fn is_context(&self) -> bool {
        let annotation = self.annotation.as_ref();
        annotation.is_some_and(|annotation| annotation.is_named("SkillContext"))
    }

    /// Whether a model gives it.
    pub(super) fn is_given(&self) -> bool {
        !matches!(self.name.as_str(), "self" | "cls") && !self.is_context()
    }
}

/// Every parameter of a function that has a name, but for `*args` and `**kwargs`.
pub(super) fn named_parameters<'t>(function: Node<'t>, text: &'t str) -> impl Iterator<Item = Parameter> {
    let nodes = function
        .child_by_field_name("parameters")
        .map(parts)
        .unwrap_or_default();
    nodes.into_iter().filter_map(|node| parameter(node, text))
}

fn parameter(node: Node<'_>, text: &str) -> Option<Parameter> {
    let name = match node.kind() {
        "identifier" => node,
        // A parameter with a type and without a default has no field for its name.
        "typed_parameter" => parts(node).into_iter().find(|part| part.kind() == "identifier")?,
        "default_parameter" | "typed_default_parameter" => node.child_by_field_name("name")?,
        _ => return None,
    };
    Some(Parameter {
        name: text_of(name, text).to_owned(),
        annotation: node
            .child_by_field_name("type")
            .map(|kind| Annotation::parse(text_of(kind, text))),
        has_default: node.child_by_field_name("value").is_some(),
    })
}
