//! Inline metadata of scripts (PEP 723): a TOML block in comments between `# /// script` and `# ///`.

use crate::finding::{Finding, FindingKind, shown};
use crate::requirement::Requirement;
use crate::requirements_txt::{MAX_FINDINGS, help_of};
use crate::version_clause::VersionClause;
use crate::{MAX_PACKAGES, moment};

/// Largest block; a list of 200 requirements is under 16 KiB.
const MAX_BLOCK_BYTES: usize = 64 << 10;

/// The keys of a block.
const KEYS: [&str; 3] = ["dependencies", "requires-python", "tool"];

/// Settings of uv that name an index or a source.
const INDEXES: [&str; 5] = ["index", "index-url", "extra-index-url", "find-links", "sources"];

/// The setting of uv that counts.
const EXCLUDE_NEWER: &str = "exclude-newer";

/// The metadata of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// `dependencies`, with nothing left out.
    pub dependencies: Vec<Requirement>,
    /// `requires-python`: the clauses, each an operator and a version.
    pub requires_python: Vec<VersionClause>,
    /// `tool.uv.exclude-newer`, as UTC: no file that the index got later may be chosen.
    pub exclude_newer: Option<String>,
    /// Keys without effect.
    pub ignored: Vec<Finding>,
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
    let settings = uv_settings(&table);
    // The person or installation that runs the skill chooses indexes, not the script.
    for key in INDEXES
        .iter()
        .filter(|key| settings.is_some_and(|uv| uv.contains_key(**key)))
    {
        let text = format!(
            "tool.uv.{key} names another index or source; only the index that is configured for runs of the skill is used"
        );
        findings.push(Finding::new(FindingKind::IndexOption, file, line, text, "remove it"));
    }
    let exclude_newer = match settings.and_then(|uv| uv.get(EXCLUDE_NEWER)).map(moment_of).transpose() {
        Ok(moment) => moment,
        Err(why) => {
            let help = "name the last day whose versions are known to work";
            let text = format!("tool.uv.{EXCLUDE_NEWER}: {why}");
            findings.push(Finding::new(FindingKind::Metadata, file, line, text, help));
            None
        }
    };
    if findings.is_empty() {
        Ok(Metadata {
            dependencies,
            requires_python,
            exclude_newer,
            ignored: ignored(file, line, &table),
        })
    } else {
        Err(findings)
    }
}

fn uv_settings(table: &toml::Table) -> Option<&toml::Table> {
    table.get("tool")?.get("uv")?.as_table()
}

fn moment_of(value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => moment::read(text),
        toml::Value::Datetime(time) => moment::read(&time.to_string()),
        _ => Err("it must be a text".to_owned()),
    }
}

/// Findings about keys that a script's author takes for settings. Tools other than uv have theirs under `tool`.
fn ignored(file: &str, line: usize, table: &toml::Table) -> Vec<Finding> {
    let finding = |text: String, help: &'static str| Finding::new(FindingKind::Setting, file, line, text, help);
    let unknown = table.keys().filter(|key| !KEYS.contains(&key.as_str())).map(|key| {
        let text = format!("the key {} of the script block has no effect", shown(key));
        finding(text, "keys are dependencies, requires-python and tool")
    });
    let of_uv = uv_settings(table).into_iter().flat_map(toml::Table::keys);
    let of_uv = of_uv.filter(|key| *key != EXCLUDE_NEWER).map(|key| {
        let text = format!("the setting {} of tool.uv has no effect", shown(key));
        finding(
            text,
            "write versions in dependencies, or lock the script with uv lock --script, which follows its settings",
        )
    });
    unknown.chain(of_uv).take(MAX_FINDINGS).collect()
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
    fn settings_of_uv_count_or_are_reported_by_name() {
        let text = "# /// script\n# dependencys = []\n# dependencies = []\n# [tool.uv]\n# exclude-newer = \"2026-07-01T02:00:00+02:00\"\n\
                    # constraint-dependencies = [\"a<2\"]\n# override-dependencies = [\"b==1\"]\n# [tool.hatch]\n# x = 1\n# ///\n";
        let metadata = read("a.py", text).unwrap().unwrap();
        assert_eq!(metadata.exclude_newer.as_deref(), Some("2026-07-01T00:00:00Z"));
        let ignored: Vec<String> = metadata.ignored.iter().map(ToString::to_string).collect();
        let help =
            "(write versions in dependencies, or lock the script with uv lock --script, which follows its settings)";
        assert_eq!(
            ignored,
            [
                "a.py:1: the key \"dependencys\" of the script block has no effect (keys are dependencies, requires-python and tool)"
                    .to_owned(),
                format!("a.py:1: the setting \"constraint-dependencies\" of tool.uv has no effect {help}"),
                format!("a.py:1: the setting \"override-dependencies\" of tool.uv has no effect {help}"),
            ]
        );
        assert!(metadata.ignored.iter().all(|finding| !finding.is_error()));
        let native = "# /// script\n# [tool.uv]\n# exclude-newer = 2026-07-01\n# ///\n";
        let metadata = read("a.py", native).unwrap().unwrap();
        assert_eq!(metadata.exclude_newer.as_deref(), Some("2026-07-01T23:59:59Z"));
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
            (
                "# /// script\n# [tool.uv.sources]\n# a = { git = \"https://g/a\" }\n# ///\n",
                K::IndexOption,
            ),
            (
                "# /// script\n# [tool.uv]\n# exclude-newer = \"1 week\"\n# ///\n",
                K::Metadata,
            ),
            ("# /// script\n# [tool.uv]\n# exclude-newer = 7\n# ///\n", K::Metadata),
        ] {
            let findings = read("a.py", text).unwrap().unwrap_err();
            assert_eq!(findings[0].kind, kind, "{text}");
            assert!(findings[0].line > 0, "{text}");
        }
    }
}
