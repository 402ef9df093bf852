//! Inline metadata of scripts (PEP 723): a TOML block in comments between `# /// script` and `# ///`.

use crate::MAX_PACKAGES;
use crate::finding::{Finding, FindingKind};
use crate::requirement::Requirement;
use crate::requirements_txt::help_of;
use crate::version_clause::VersionClause;

/// Largest block; a list of 200 requirements is under 16 KiB.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// The metadata of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// `dependencies`, with nothing left out.
    pub dependencies: Vec<Requirement>,
    /// `requires-python`: the clauses, each an operator and a version.
    pub requires_python: Vec<VersionClause>,
}

/// Reads the block of one script; `None` without a block.
pub fn read(file: &str, text: &str) -> Option<Result<Metadata, Vec<Finding>>> {
    let (line, block) = match block(text)? {
        Ok(found) => found,
        Err((line, why)) => {
            return Some(Err(vec![Finding::new(
                FindingKind::Metadata,
                file,
                line,
                why,
                "keep one block that ends with # ///",
            )]));
        }
    };
    Some(metadata(file, line, &block))
}

fn metadata(file: &str, line: usize, block: &str) -> Result<Metadata, Vec<Finding>> {
    let wrong = |text: String| {
        vec![Finding::new(
            FindingKind::Metadata,
            file,
            line,
            text,
            "see PEP 723: dependencies = [\"pillow>=10\"]",
        )]
    };
    if block.len() > MAX_BLOCK_BYTES {
        return Err(wrong("the script block is larger than 64 KiB".to_owned()));
    }
    let table: toml::Table = toml::from_str(block)
        .map_err(|error| wrong(format!("the script block is not valid TOML: {}", error.message())))?;
    let requires_python = match table.get("requires-python") {
        None => Vec::new(),
        Some(toml::Value::String(text)) => {
            VersionClause::parse_all(text).map_err(|why| wrong(format!("requires-python: {why}")))?
        }
        Some(_) => return Err(wrong("requires-python must be text".to_owned())),
    };
    let listed = match table.get("dependencies") {
        None => &Vec::new(),
        Some(toml::Value::Array(list)) => list,
        Some(_) => return Err(wrong("dependencies must be a list of texts".to_owned())),
    };
    if listed.len() > MAX_PACKAGES {
        let text = format!("{} requirements, more than {MAX_PACKAGES}", listed.len());
        let help = "declare what the script imports";
        return Err(vec![Finding::new(FindingKind::TooMany, file, line, text, help)]);
    }
    let mut findings = Vec::new();
    let mut dependencies = Vec::new();
    for item in listed {
        match item.as_str().map(Requirement::parse) {
            Some(Ok(requirement)) => dependencies.push(requirement),
            Some(Err((kind, text))) => findings.push(Finding::new(kind, file, line, text, help_of(kind))),
            None => findings.extend(wrong("dependencies must be a list of texts".to_owned())),
        }
    }
    // The person or installation that runs the skill chooses indexes, not the script.
    if names_index(&table) {
        findings.push(Finding::new(
            FindingKind::IndexOption,
            file,
            line,
            "tool.uv names another index or source; only the index that is configured for runs of the skill is used",
            "remove it",
        ));
    }
    if findings.is_empty() {
        Ok(Metadata {
            dependencies,
            requires_python,
        })
    } else {
        Err(findings)
    }
}

/// Whether `tool.uv` names an index or a source.
fn names_index(table: &toml::Table) -> bool {
    let uv = table.get("tool").and_then(|tool| tool.get("uv"));
    uv.and_then(toml::Value::as_table).is_some_and(|uv| {
        ["index", "index-url", "extra-index-url", "find-links", "sources"]
            .iter()
            .any(|key| uv.contains_key(*key))
    })
}

/// A value with its line.
type Numbered<T> = (usize, T);

/// The first line and the content of the block. Errors: a block that does not end, or a second one.
fn block(text: &str) -> Option<Result<Numbered<String>, Numbered<&'static str>>> {
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> = (0..lines.len())
        .filter(|index| lines[*index].trim_end() == "# /// script")
        .collect();
    let start = *starts.first()?;
    if starts.len() > 1 {
        return Some(Err((starts[1] + 1, "a second script block")));
    }
    let comments = lines[start + 1..]
        .iter()
        .take_while(|line| **line == "#" || line.starts_with("# "));
    let inside: Vec<&str> = comments.copied().collect();
    // The last `# ///` of the comment ends the block.
    let Some(end) = inside.iter().rposition(|line| line.trim_end() == "# ///") else {
        return Some(Err((start + 1, "the script block does not end")));
    };
    let content: Vec<&str> = inside[..end]
        .iter()
        .map(|line| line.strip_prefix("# ").unwrap_or(""))
        .collect();
    Some(Ok((start + 1, content.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gives_its_requirements() {
        let text = "#!/usr/bin/env python3\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"pillow>=10\",\n#   \"rich\",\n# ]\n# ///\nimport PIL\n";
        let metadata = read("scripts/a.py", text).unwrap().unwrap();
        let clauses: Vec<String> = metadata.requires_python.iter().map(ToString::to_string).collect();
        assert_eq!(clauses, [">=3.11"]);
        let names: Vec<String> = metadata.dependencies.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["pillow>=10", "rich"]);
        assert_eq!(read("a.py", "import x\n"), None);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_reported_with_its_line() {
        use FindingKind as K;
        for (text, kind) in [
            ("# /// script\n# dependencies = [\n# ///\n", K::Metadata),
            ("# /// script\n# dependencies = \"x\"\n# ///\n", K::Metadata),
            ("# /// script\n# dependencies = [1]\n# ///\n", K::Metadata),
            ("# /// script\n# requires-python = \"new\"\n# ///\n", K::Metadata),
            ("# /// script\n# dependencies = []\nimport x\n", K::Metadata),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", K::Metadata),
            (
                "# /// script\n# dependencies = [\"a @ file:///x\"]\n# ///\n",
                K::UrlRequirement,
            ),
            (
                "# /// script\n# [tool.uv]\n# index-url = \"https://m\"\n# ///\n",
                K::IndexOption,
            ),
        ] {
            let findings = read("a.py", text).unwrap().unwrap_err();
            assert_eq!(findings[0].kind, kind, "{text}");
            assert!(findings[0].line > 0, "{text}");
        }
    }
}
