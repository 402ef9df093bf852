//! Functions that are declared by their types alone: those of files without a decorated one.

use tree_sitter::Node;

use super::literal::evaluate;
use super::source::{DecoratedFunction, Module, parts, text_of};

/// The function that a script runs by itself, which is no tool.
const ENTRY_POINT: &str = "main";

impl<'t> Module<'t> {
    /// The public functions at the top of the file whose parameters all have types, and those without parameters whose
    /// result has one. Public is what `__all__` lists, else what does not begin with an underscore.
    pub(super) fn typed_functions(&self) -> Vec<DecoratedFunction<'t>> {
        let listed = self.listed();
        let functions = parts(self.root)
            .into_iter()
            .filter_map(|statement| match statement.kind() {
                "function_definition" => Some(statement),
                // The types of one form of a function that follows.
                "decorated_definition" if is_overload(statement, self.text) => None,
                "decorated_definition" => statement
                    .child_by_field_name("definition")
                    .filter(|definition| definition.kind() == "function_definition"),
                _ => None,
            });
        functions
            .filter(|function| {
                let name = function
                    .child_by_field_name("name")
                    .map(|name| text_of(name, self.text));
                name.is_some_and(|name| match &listed {
                    Some(listed) => listed.iter().any(|public| public == name),
                    None => !name.starts_with('_') && name != ENTRY_POINT,
                }) && is_typed(*function)
            })
            .map(|function| DecoratedFunction {
                arguments: None,
                function,
            })
            .collect()
    }

    /// `__all__`, if it is a list of texts.
    fn listed(&self) -> Option<Vec<String>> {
        let value = evaluate(*self.constants.get("__all__")?, self).value()?;
        let names = value.as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect()
    }
}

fn is_overload(statement: Node<'_>, text: &str) -> bool {
    let mut decorators = parts(statement).into_iter().filter(|part| part.kind() == "decorator");
    decorators.any(|decorator| {
        let words = text_of(decorator, text).trim_start_matches('@').trim();
        words.rsplit('.').next() == Some("overload")
    })
}

fn is_typed(function: Node<'_>) -> bool {
    let parameters = function
        .child_by_field_name("parameters")
        .map(parts)
        .unwrap_or_default();
    let mut named = parameters
        .into_iter()
        .filter(|parameter| !matches!(parameter.kind(), "keyword_separator" | "positional_separator"))
        .peekable();
    if named.peek().is_none() {
        return function.child_by_field_name("return_type").is_some();
    }
    named.all(|parameter| parameter.child_by_field_name("type").is_some())
}

#[cfg(test)]
mod tests {
    use crate::generate;

    #[track_caller]
    fn declares(source: &str, expected: &[&str]) {
        let report = generate(source);
        assert_eq!(report.problems, [], "{source}");
        let names: Vec<&str> = report.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, expected, "{source}");
        assert!(report.tools.iter().all(|tool| !tool.is_nested), "{source}");
    }

    #[test]
    fn typed_public_functions_are_declared_where_none_is_decorated() {
        declares(
            "def f(x: int, *, y: str = 'a') -> int: pass\nasync def g(z: 'list[int]'): pass\n",
            &["f", "g"],
        );
        declares(
            "def f(x): pass\ndef g(x: int, y): pass\ndef h(*a): pass\ndef i(): pass\n",
            &[],
        );
        declares(
            "def f() -> str: pass\ndef _g(x: int): pass\ndef main() -> None: pass\n",
            &["f"],
        );
        declares(
            "@cache\ndef f(x: int): pass\nclass C:\n  def g(self, x: int): pass\n",
            &["f"],
        );
        declares(
            "__all__ = ['_g', 'h']\ndef f(x: int): pass\ndef _g(x: int): pass\ndef h(x): pass\n",
            &["_g"],
        );
        declares(
            "@overload\ndef f(x: int) -> int: ...\n@typing.overload\ndef f(x: str) -> str: ...\ndef f(x: int | str): pass\n",
            &["f"],
        );
        declares("def f(x: int): pass\n@tool\ndef g(x): pass\n", &["g"]);
    }

    #[test]
    fn a_typed_function_has_the_declaration_of_a_decorated_one_where_tables_agree() {
        let body = "def f(x: int = 1):\n  '''Adds.\n\n  Args:\n    x: The number.\n  '''\n";
        let declared = |source: &str| generate(source).tools[0].to_value();
        assert_eq!(declared(body), declared(&format!("@skill\n{body}")));
    }

    #[test]
    fn what_cannot_be_called_from_outside_is_reported() {
        let source = "def f():\n  @skill\n  def g(x): pass\n@skill\ndef h(x, c: SkillContext): pass\n\
            @skill\ndef i(c: SkillContext = None): pass\n";
        let tools = generate(source).tools;
        let actual: Vec<_> = tools
            .iter()
            .map(|tool| (tool.function.as_str(), tool.is_nested))
            .collect();
        assert_eq!(actual, [("g", true), ("h", false), ("i", false)]);
    }
}
