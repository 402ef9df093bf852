//! The imports of Python files, read from their syntax; nothing is executed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use tree_sitter::{Node, Parser};

use crate::provider::{self, ModuleNeed};

/// Largest script that is read; generated files are no scripts of skills.
pub const MAX_SCRIPT_BYTES: usize = 1 << 20;

/// Most scripts of a skill that are read: files of a vendored library are not the skill's own imports.
pub const MAX_SCRIPTS: usize = 500;

const STDLIB: &str = include_str!("data/stdlib.txt");

static STANDARD: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| STDLIB.lines().collect());

/// One import.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// Dotted name, as written.
    pub module: String,
    /// The names after `from module import`: members of the module, or modules below it. Empty for `*`.
    pub names: Vec<String>,
    /// Line from 1.
    pub line: usize,
    /// Inside a `try` or a condition: the script works without it.
    pub optional: bool,
}

impl Import {
    /// The first part of the name.
    pub fn top(&self) -> &str {
        self.module.split('.').next().unwrap_or_default()
    }

    /// Whether the standard library has it (3.10 to 3.14).
    pub fn is_standard(&self) -> bool {
        STANDARD.contains(self.top())
    }

    /// The modules that it needs, each with the packages that can provide it.
    pub fn needs(&self) -> Vec<ModuleNeed> {
        provider::needs(&self.module, &self.names)
    }
}

/// Absolute imports of a file, in its order. A file that is too large or cannot be read has none.
pub fn of_source(text: &str) -> Vec<Import> {
    let mut parser = Parser::new();
    let is_loaded = parser.set_language(&tree_sitter_python::LANGUAGE.into()).is_ok();
    if !is_loaded || text.len() > MAX_SCRIPT_BYTES {
        return Vec::new();
    }
    let Some(tree) = parser.parse(text, None) else {
        return Vec::new();
    };
    let mut imports = Vec::new();
    // An explicit stack, since a file may nest deeper than a thread's stack allows.
    let mut open = vec![(tree.root_node(), false)];
    while let Some((node, optional)) = open.pop() {
        match node.kind() {
            "import_statement" => add_names(node, text, optional, &mut imports),
            "import_from_statement" => {
                let module = node.child_by_field_name("module_name");
                if let Some(module) = module.filter(|module| module.kind() == "dotted_name") {
                    let mut cursor = node.walk();
                    let listed = node.children_by_field_name("name", &mut cursor);
                    let names = listed.filter_map(|name| written(imported(name)?, text)).collect();
                    push(module, names, (text, optional), &mut imports);
                }
            }
            kind => {
                let optional = optional || matches!(kind, "try_statement" | "if_statement");
                let mut cursor = node.walk();
                open.extend(node.named_children(&mut cursor).map(|child| (child, optional)));
            }
        }
    }
    imports.sort_by_key(|import| import.line);
    imports
}

fn add_names(node: Node<'_>, text: &str, optional: bool, imports: &mut Vec<Import>) {
    let mut cursor = node.walk();
    for module in node.named_children(&mut cursor).filter_map(imported) {
        push(module, Vec::new(), (text, optional), imports);
    }
}

/// The dotted name in one part of an import: `a.b`, or `a.b as c`.
fn imported(part: Node<'_>) -> Option<Node<'_>> {
    match part.kind() {
        "dotted_name" => Some(part),
        "aliased_import" => part.child_by_field_name("name"),
        _ => None,
    }
}

/// A dotted name without the space that may be in it.
fn written(name: Node<'_>, text: &str) -> Option<String> {
    let name: String = text.get(name.byte_range())?.split_whitespace().collect();
    (!name.is_empty()).then_some(name)
}

fn push(node: Node<'_>, names: Vec<String>, (text, optional): (&str, bool), imports: &mut Vec<Import>) {
    if let Some(module) = written(node, text) {
        imports.push(Import {
            module,
            names,
            line: node.start_position().row + 1,
            optional,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_imports_are_found_wherever_they_stand() {
        let text = "import os, numpy as np\nfrom PIL import Image\nfrom . import own\nfrom .own import x\n\
                    def f():\n    import yaml\ntry:\n    import lxml.etree\nexcept ImportError:\n    pass\n\
                    text = 'import nothing'\n# import comment\nif True:\n    from google.protobuf import message\n";
        let found: Vec<_> = of_source(text)
            .into_iter()
            .map(|import| {
                let package = import.needs()[0].package().unwrap_or_default().to_owned();
                (import.line, package, import.is_standard(), import.optional)
            })
            .collect();
        let expect = |line, package: &str, standard, optional| (line, package.to_owned(), standard, optional);
        assert_eq!(
            found,
            [
                expect(1, "os", true, false),
                expect(1, "numpy", false, false),
                expect(2, "pillow", false, false),
                expect(6, "pyyaml", false, false),
                expect(8, "lxml", false, true),
                expect(14, "protobuf", false, true),
            ]
        );
    }

    #[test]
    fn names_of_a_from_import_are_read_without_their_aliases() {
        let text = "from google.cloud import (\n    storage as s,  # a comment\n    bigquery,\n)\nfrom a . b import *\nimport a.c as d\n";
        let found: Vec<_> = of_source(text)
            .into_iter()
            .map(|import| (import.module, import.names.join(" ")))
            .collect();
        let expected = [("google.cloud", "storage bigquery"), ("a.b", ""), ("a.c", "")];
        assert_eq!(
            found,
            expected.map(|(module, names)| (module.to_owned(), names.to_owned()))
        );
    }

    #[test]
    fn broken_and_deep_files_end() {
        assert_eq!(
            of_source("import a\ndef (\nimport b\n")
                .first()
                .map(|import| import.module.clone())
                .as_deref(),
            Some("a")
        );
        let _ = of_source(&"(".repeat(100_000));
        let _ = of_source(&"if x:\n".repeat(5000));
        assert!(of_source(&"import a\n".repeat(200_000)).is_empty(), "too large");
    }
}
