//! Packages that scripts of Node load, found line by line: no parser, so unusual forms are skipped.

use std::collections::BTreeMap;

use knack_skill::model::SkillFile;

use super::location::is_name;
use crate::imports::MAX_SCRIPTS;

/// Modules of Node itself that have a name without `node:`.
const BUILT_IN: [&str; 42] = [
    "assert",
    "async_hooks",
    "buffer",
    "child_process",
    "cluster",
    "console",
    "constants",
    "crypto",
    "dgram",
    "diagnostics_channel",
    "dns",
    "domain",
    "events",
    "fs",
    "http",
    "http2",
    "https",
    "inspector",
    "module",
    "net",
    "os",
    "path",
    "perf_hooks",
    "process",
    "punycode",
    "querystring",
    "readline",
    "repl",
    "stream",
    "string_decoder",
    "sys",
    "timers",
    "tls",
    "trace_events",
    "tty",
    "url",
    "util",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];

/// Longest line that is read; longer ones are generated.
const MAX_LINE: usize = 2_000;

/// A package that a script loads: its file, its line from 1, its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeImport<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: usize,
    pub(crate) name: String,
}

/// The packages that a skill's scripts load and that are neither of Node nor of the skill, in the order of files and lines. Loads
/// inside a `try` block are left to the script.
pub(crate) fn of_files(files: &BTreeMap<String, SkillFile>) -> Vec<NodeImport<'_>> {
    let scripts = files.iter().filter(|(path, _)| is_script(path));
    let texts = scripts.filter_map(|(path, file)| Some((path.as_str(), std::str::from_utf8(&file.bytes).ok()?)));
    let mut found = Vec::new();
    for (file, text) in texts.take(MAX_SCRIPTS) {
        for (line, name) in of_source(text) {
            if !is_in_skill(files, &name) {
                found.push(NodeImport { file, line, name });
            }
        }
    }
    found
}

/// Files of packages in the skill's own folder are not its scripts.
fn is_script(path: &str) -> bool {
    let is_named = [".js", ".mjs", ".cjs"]
        .iter()
        .any(|end| path.strip_suffix(end).is_some_and(|stem| !stem.is_empty()));
    is_named && !path.starts_with("node_modules/") && !path.contains("/node_modules/")
}

fn is_in_skill(files: &BTreeMap<String, SkillFile>, name: &str) -> bool {
    let folder = format!("node_modules/{name}/");
    files.keys().any(|path| {
        path.find(&folder)
            .is_some_and(|at| at == 0 || path.as_bytes()[at - 1] == b'/')
    })
}

fn of_source(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut in_comment, mut in_try) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if in_comment || line.starts_with("/*") {
            in_comment = !line.contains("*/");
            continue;
        }
        if line.starts_with("//") || line.len() > MAX_LINE {
            continue;
        }
        in_try |= line == "try" || line.contains("try {") || line.contains("try{");
        if !in_try {
            let loaded = specifiers(line).into_iter().filter_map(package_of);
            found.extend(loaded.map(|name| (index + 1, name)));
        }
        in_try &= !line.contains("catch") && !line.contains("finally");
    }
    found
}

/// The texts of `require('x')`, of `import … from 'x'` and of `import 'x'`.
fn specifiers(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, word) in line.match_indices("require(") {
        let before = line[..at].chars().next_back();
        let is_word = before.is_none_or(|letter| !letter.is_alphanumeric() && !"_$.'\"`".contains(letter));
        let inside = line[at + word.len()..].trim_start();
        found.extend(quoted(inside).filter(|_| is_word));
    }
    if let Some(rest) = line.strip_prefix("import ") {
        found.extend(quoted(rest.trim_start()));
    }
    let is_statement = ["import ", "import{", "export ", "export{", "}"]
        .iter()
        .any(|start| line.starts_with(start));
    if let Some((before, after)) = line.rsplit_once("from").filter(|_| is_statement) {
        let is_word = before.ends_with([' ', '}', '*']) && !before.contains(['\'', '"', '`', '(']);
        found.extend(quoted(after.trim_start()).filter(|_| is_word));
    }
    found
}

/// The text of a string at the beginning.
fn quoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|letter| ['\'', '"'].contains(letter))?;
    let rest = &text[1..];
    rest.find(quote).map(|end| &rest[..end])
}

/// The package of a specifier; `None`: a path, an address, or a module of Node.
fn package_of(specifier: &str) -> Option<String> {
    let parts: Vec<&str> = specifier.splitn(3, '/').collect();
    let name = match parts.as_slice() {
        [scope, name, ..] if scope.starts_with('@') => format!("{scope}/{name}"),
        [name, ..] => (*name).to_owned(),
        [] => return None,
    };
    (is_name(&name) && !BUILT_IN.contains(&name.as_str())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::files;

    #[test]
    fn packages_are_found_where_they_are_loaded() {
        for (text, names) in [
            ("const a = require('docx')", &["docx"][..]),
            (
                "const { a } = require(\"@s/x/deep\"), b = require('y/z');",
                &["@s/x", "y"],
            ),
            ("import a from 'docx';", &["docx"]),
            ("import * as a from \"docx\"", &["docx"]),
            ("import {\n  a,\n} from 'docx'", &["docx"]),
            ("import 'side-effect';", &["side-effect"]),
            ("export { a } from 'docx'", &["docx"]),
            ("require('fs'); require('node:fs'); require('fs/promises')", &[]),
            (
                "require('./own'); require('../own'); require('/abs'); import x from './x.js'",
                &[],
            ),
            ("require(name); require(`${x}`); my.require('a'); myrequire('a')", &[]),
            (
                "// require('a')\n/* require('a')\nrequire('b') */\nrequire('c')",
                &["c"],
            ),
            ("try {\n  require('a');\n} catch {}\nrequire('b')", &["b"]),
            ("try { x = require('a') } catch (e) {}", &[]),
            ("console.log('taken from ', 'docx')", &[]),
            ("const text = \"import x from 'docx'\"", &[]),
            ("import x from 'https://cdn.example/x.js'", &[]),
            ("import x from '#internal'", &[]),
        ] {
            let found: Vec<String> = of_source(text).into_iter().map(|(_, name)| name).collect();
            assert_eq!(found, names, "{text}");
        }
        assert_eq!(of_source("\n\nrequire('a')"), [(3, "a".to_owned())]);
        assert_eq!(of_source(&format!("require('a'){}", " ".repeat(3_000) + "x")), []);
    }

    #[test]
    fn what_is_in_the_skill_is_no_package() {
        let files = files(&[
            ("scripts/a.js", "require('own'); require('docx'); require('ow')"),
            ("scripts/node_modules/own/index.js", "require('other')"),
            ("a.py", "require('x')"),
        ]);
        let found: Vec<String> = of_files(&files).into_iter().map(|import| import.name).collect();
        assert_eq!(found, ["docx", "ow"]);
    }
}
