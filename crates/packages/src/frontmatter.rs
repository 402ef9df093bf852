//! `packages` in the frontmatter of a skill.

use std::collections::BTreeMap;

use knack_skill::frontmatter::{Delimiters, Split, YAML_LINE_OFFSET, split};
use knack_skill::model::SkillFile;
use knack_skill::{tree, yaml};
use serde_json::Value;

use crate::finding::{Finding, FindingKind};

/// The member `packages`, and the document for line numbers.
pub(crate) struct FrontmatterPackages<'a> {
    /// The skill's document.
    pub(crate) name: &'a str,
    /// `packages`.
    pub(crate) packages: Value,
    node: yaml::Node,
}

impl<'a> FrontmatterPackages<'a> {
    /// Reads the member; `None`: it is absent, or the frontmatter cannot be read.
    pub(crate) fn of(files: &'a BTreeMap<String, SkillFile>) -> Option<Self> {
        let name = tree::find_document(files.keys().map(String::as_str))?;
        let text = std::str::from_utf8(&files[name].bytes).ok()?;
        let Split::Found { yaml, .. } = split(text, Delimiters::Lenient) else {
            return None;
        };
        let node = yaml::parse(yaml).ok()?;
        let packages = node.get("packages")?.to_json();
        (!packages.is_null()).then_some(Self { name, packages, node })
    }

    /// The line of a field.
    pub(crate) fn line(&self, field: &str) -> usize {
        self.node.line_of(field).saturating_add(YAML_LINE_OFFSET) as usize
    }

    /// A finding about an invalid field.
    pub(crate) fn wrong(&self, field: &str, text: &str) -> Finding {
        Finding::new(
            FindingKind::Metadata,
            self.name,
            self.line(field),
            format!("{field}: {text}"),
            "write packages: {python: [\"pillow>=10\"], node: [\"docx@^9\"]}",
        )
    }

    /// Parses the texts of [`FrontmatterPackages::list`]. `help` is for texts that cannot be parsed.
    pub(crate) fn read<T>(
        &self,
        texts: Vec<(String, String)>,
        parse: impl Fn(&str) -> Result<T, (FindingKind, String)>,
        help: impl Fn(FindingKind) -> &'static str,
        findings: &mut Vec<Finding>,
    ) -> Vec<T> {
        let mut read = Vec::new();
        for (field, text) in texts {
            match parse(&text) {
                Ok(one) => read.push(one),
                Err((kind, why)) => {
                    let text = format!("{field}: {why}");
                    findings.push(Finding::new(kind, self.name, self.line(&field), text, help(kind)));
                }
            }
        }
        read
    }

    /// The texts of a list in the member, each with its field; `None`: the list is absent.
    pub(crate) fn list(&self, key: &str, findings: &mut Vec<Finding>) -> Option<Vec<(String, String)>> {
        let field = format!("packages.{key}");
        let items = match self.packages.get(key) {
            None | Some(Value::Null) => return None,
            Some(Value::Array(items)) => items,
            Some(_) => {
                findings.push(self.wrong(&field, "it must be a list"));
                return Some(Vec::new());
            }
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let field = format!("{field}[{index}]");
            match item.as_str() {
                Some(text) => texts.push((field, text.to_owned())),
                None => findings.push(self.wrong(&field, "it must be text")),
            }
        }
        Some(texts)
    }
}
