//! The syntax tree of a Python file and the positions of decorated functions, classes and constants in it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::{Node, Parser, Tree};

use super::problem::{SchemaProblem, Severity};

/// Largest file that is read: source files of people are far below, generated ones are no skills.
pub(super) const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Steps of evaluation of a file: the largest file has fewer expressions.
const MAX_STEPS: usize = 1_000_000;

/// Syntax errors listed per file; after the first few the rest usually follow from them.
const MAX_SYNTAX_PROBLEMS: usize = 10;

/// Decorators that declare a tool.
const DECORATORS: [&str; 2] = ["skill", "tool"];

/// A function under `@skill` or `@tool`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecoratedFunction<'t> {
    /// The decorator's `argument_list`; `None` for the bare form.
    pub(super) arguments: Option<Node<'t>>,
    /// The `function_definition`.
    pub(super) function: Node<'t>,
}

/// One parsed file.
#[derive(Debug)]
pub(super) struct Module<'t> {
    /// The whole text.
    pub(super) text: &'t str,
    /// The whole file.
    pub(super) root: Node<'t>,
    /// In the order of the file.
    pub(super) functions: Vec<DecoratedFunction<'t>>,
    /// Every class by name, nested ones too; the last definition of a name wins, as in Python.
    pub(super) classes: BTreeMap<&'t str, Node<'t>>,
    /// Right-hand sides of `NAME = ...` at the top of the file.
    pub(super) constants: BTreeMap<&'t str, Node<'t>>,
    /// Steps of evaluation that are left: a constant that names itself several times has no end that could be waited for.
    pub(super) steps: Cell<usize>,
}

/// Parses a text; `None` only if the grammar cannot be loaded or the text is too large.
pub(super) fn parse(text: &str) -> Option<Tree> {
    if text.len() > MAX_SOURCE_BYTES {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
    parser.parse(text, None)
}

/// The text of a node.
pub(super) fn text_of<'t>(node: Node<'_>, text: &'t str) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// Children that mean something: named and no comment.
pub(super) fn parts(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .filter(|child| child.kind() != "comment")
        .collect()
}

impl<'t> Module<'t> {
    /// Collects the declarations of a tree.
    pub(super) fn collect(tree: &'t Tree, text: &'t str) -> Self {
        let mut module = Self {
            text,
            root: tree.root_node(),
            functions: Vec::new(),
            classes: BTreeMap::new(),
            constants: BTreeMap::new(),
            steps: Cell::new(MAX_STEPS),
        };
        let names = decorator_names(tree.root_node(), text);
        // An explicit stack, since a file may nest deeper than a thread's stack allows.
        let mut open = vec![tree.root_node()];
        while let Some(node) = open.pop() {
            match node.kind() {
                "decorated_definition" => module.add_decorated(node, &names),
                "class_definition" => {
                    if let Some(name) = node.child_by_field_name("name") {
                        module.classes.insert(text_of(name, text), node);
                    }
                }
                "assignment" if is_top_level(node) => module.add_constant(node),
                _ => {}
            }
            let mut cursor = node.walk();
            let from = open.len();
            open.extend(node.named_children(&mut cursor));
            open[from..].reverse();
        }
        module
    }

    fn add_decorated(&mut self, node: Node<'t>, names: &BTreeSet<&'t str>) {
        let Some(function) = node
            .child_by_field_name("definition")
            .filter(|definition| definition.kind() == "function_definition")
        else {
            return;
        };
        let found = parts(node)
            .into_iter()
            .filter(|child| child.kind() == "decorator")
            .filter_map(|decorator| parts(decorator).first().copied())
            .find_map(|expression| declared(expression, function, self.text, names));
        self.functions.extend(found);
    }

    fn add_constant(&mut self, assignment: Node<'t>) {
        let (Some(left), Some(right)) = (
            assignment.child_by_field_name("left"),
            assignment.child_by_field_name("right"),
        ) else {
            return;
        };
        if left.kind() == "identifier" {
            self.constants.insert(text_of(left, self.text), right);
        }
    }
}

/// The function if its decorator is `@skill` or `@skill(...)`, also behind a module name.
fn declared<'t>(
    expression: Node<'t>,
    function: Node<'t>,
    text: &'t str,
    names: &BTreeSet<&'t str>,
) -> Option<DecoratedFunction<'t>> {
    let (callee, arguments) = if expression.kind() == "call" {
        (
            expression.child_by_field_name("function")?,
            Some(expression.child_by_field_name("arguments")?),
        )
    } else {
        (expression, None)
    };
    let found = match callee.kind() {
        "identifier" => names.contains(text_of(callee, text)),
        "attribute" => DECORATORS.contains(&text_of(callee.child_by_field_name("attribute")?, text)),
        _ => false,
    };
    found.then_some(DecoratedFunction { arguments, function })
}

/// The decorators' names, with those that `from x import skill as y` gives them here.
fn decorator_names<'t>(root: Node<'t>, text: &'t str) -> BTreeSet<&'t str> {
    let mut names: BTreeSet<&'t str> = DECORATORS.into_iter().collect();
    for statement in parts(root) {
        if statement.kind() != "import_from_statement" {
            continue;
        }
        for import in parts(statement) {
            if import.kind() != "aliased_import" {
                continue;
            }
            if let (Some(name), Some(alias)) = (import.child_by_field_name("name"), import.child_by_field_name("alias"))
                && DECORATORS.contains(&text_of(name, text))
            {
                names.insert(text_of(alias, text));
            }
        }
    }
    names
}

/// Whether a function, decorated or not, is a statement of the file itself.
pub(super) fn is_at_the_top(function: Node<'_>) -> bool {
    let statement = function
        .parent()
        .filter(|parent| parent.kind() == "decorated_definition")
        .unwrap_or(function);
    statement.parent().is_some_and(|parent| parent.kind() == "module")
}

fn is_top_level(assignment: Node<'_>) -> bool {
    assignment
        .parent()
        .and_then(|statement| statement.parent())
        .is_some_and(|parent| parent.kind() == "module")
}

/// The first syntax errors of a tree, in the order of the file.
pub(super) fn syntax_problems(tree: &Tree, text: &str) -> Vec<SchemaProblem> {
    let mut problems = Vec::new();
    let mut open = vec![tree.root_node()];
    while let Some(node) = open.pop() {
        if problems.len() >= MAX_SYNTAX_PROBLEMS {
            break;
        }
        if node.is_missing() {
            problems.push(syntax_problem(node, format!("{} is missing here", node.kind())));
        } else if node.is_error() {
            problems.push(syntax_problem(
                node,
                format!("Python cannot read {:?}", first_words(text_of(node, text))),
            ));
        } else if node.has_error() {
            let mut cursor = node.walk();
            let from = open.len();
            open.extend(node.children(&mut cursor));
            open[from..].reverse();
        }
    }
    problems
}

fn syntax_problem(node: Node<'_>, message: String) -> SchemaProblem {
    SchemaProblem::at(
        Severity::Error,
        node,
        message,
        "Repair the syntax; functions that hold the error are left out",
    )
}

/// The first line of a text, at most 40 characters.
fn first_words(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(40)
        .collect()
}
