//! Problems that an author should see before a model does: imports without a package, installations in prose.

use std::collections::{BTreeMap, BTreeSet};

use knack_skill::model::{AskedPackages, SkillFile};
use knack_skill::{functions, tree};

use crate::declaration::{Declaration, Source};
use crate::declare::is_python;
use crate::finding::{Finding, FindingKind, shown};
use crate::imports::Import;
use crate::node;

/// Most findings of one kind for one skill.
const MAX_MISSING: usize = 30;

/// Commands that would install something.
const INSTALLERS: [&str; 9] = [
    "pip install",
    "pip3 install",
    "uv add",
    "uv pip install",
    "conda install",
    "npm install",
    "npm i ",
    "apt-get install",
    "apt install",
];

/// All findings about a skill's packages: refused declarations, missing imports, prose that installs nothing. `declared` is
/// the declaration of the files and the manifest (`spec`).
pub fn findings(
    files: &BTreeMap<String, SkillFile>,
    spec: Option<&AskedPackages>,
    declared: &Declaration,
) -> Vec<Finding> {
    let mut all = declared.findings.clone();
    all.extend(missing_imports(files, declared));
    all.extend(missing_packages(files, spec, declared));
    all.extend(installs_in_prose(files));
    all
}

/// An import that is neither in the standard library, nor in the skill, nor declared. Optional imports are left to the
/// script.
fn missing_imports(files: &BTreeMap<String, SkillFile>, declared: &Declaration) -> Vec<Finding> {
    // A refused declaration has no list to compare with.
    if declared.is_refused() {
        return Vec::new();
    }
    let own = own_modules(files);
    let given = declared.given();
    let is_foreign = |import: &&Import| {
        let has_other = import.optional || import.is_standard() || is_given(import);
        !has_other && !own.contains(import.top())
    };
    let mut reported: BTreeSet<String> = BTreeSet::new();
    let mut findings = Vec::new();
    for (file, imports) in &declared.imports {
        for import in imports.iter().filter(is_foreign) {
            for need in import.needs() {
                if findings.len() >= MAX_MISSING || need.provider(&given).is_some() {
                    continue;
                }
                if reported.insert(need.package().unwrap_or(&need.module).to_owned()) {
                    let text = format!("{} is imported, but no declared package provides it", need.module);
                    let help = match need.package() {
                        Some(package) => help(declared, package),
                        None => format!("declare the packages that have the modules of {}", need.module),
                    };
                    findings.push(Finding::new(FindingKind::MissingImport, file, import.line, text, help));
                }
            }
        }
    }
    findings
}

/// Whether the program that calls functions has the module where no package of that name is installed.
fn is_given(import: &Import) -> bool {
    let below = |name: &String| format!("{}.{name}", import.module);
    let is_stand_in = |module: &str| functions::STAND_INS.contains(&module);
    is_stand_in(&import.module)
        || (!import.names.is_empty() && import.names.iter().all(|name| is_stand_in(&below(name))))
}

/// A package that a script of Node loads and no lock has.
fn missing_packages(
    files: &BTreeMap<String, SkillFile>,
    spec: Option<&AskedPackages>,
    declared: &Declaration,
) -> Vec<Finding> {
    if declared.is_refused() {
        return Vec::new();
    }
    let imports = node::imports::of_files(files);
    if imports.is_empty() {
        return Vec::new();
    }
    let requirements = node::requirements(files, spec).ok().flatten();
    // Declared packages without a lock have a finding already.
    let is_required = |name: &str| {
        requirements
            .iter()
            .flat_map(|requirements| &requirements.dependencies)
            .any(|one| one.name == name)
    };
    let is_there = |name: &str| declared.node.as_ref().is_some_and(|node| node.lock.top(name).is_some());
    let mut reported: BTreeSet<String> = BTreeSet::new();
    let mut findings = Vec::new();
    for import in imports {
        let name = import.name;
        if is_required(&name) || is_there(&name) || findings.len() >= MAX_MISSING || !reported.insert(name.clone()) {
            continue;
        }
        let declared_in = match &requirements {
            Some(requirements) => requirements.source.as_str(),
            None => "dependencies of package.json",
        };
        let help = format!("add {name} to {declared_in}, then generate the lock with knack skill lock");
        let text = format!("{name} is loaded, but no package of Node provides it");
        findings.push(Finding::new(
            FindingKind::MissingImport,
            import.file,
            import.line,
            text,
            help,
        ));
    }
    findings
}

/// The help: the line to add, in the declaration that counts.
fn help(declared: &Declaration, package: &str) -> String {
    match &declared.source {
        Source::Spec => format!("add \"{package}\" to spec.packages.python"),
        Source::Frontmatter => format!("add \"{package}\" to packages.python in SKILL.md"),
        Source::Requirements(file) => format!("add the line {package} to {file}"),
        Source::Scripts(files) => format!(
            "add \"{package}\" to dependencies in the script block of {}",
            files.first().map_or("the script", String::as_str)
        ),
        Source::Lock(_) => {
            format!("create requirements.txt with {package} in it, then regenerate the lock with knack skill lock")
        }
        Source::Nothing | Source::OfRuntime => format!("create requirements.txt with the line {package}"),
        Source::Standard => {
            format!("list what the scripts import, including {package}, instead of packages.standard")
        }
        // A declaration replaces inferred packages, so those must be written down too.
        Source::Inferred => {
            let given = declared.given();
            let needs = declared.imports.values().flatten().flat_map(Import::needs);
            let used: BTreeSet<&str> = needs.filter_map(|need| need.provider(&given)).collect();
            let used: Vec<&str> = used.into_iter().collect();
            format!("create requirements.txt with the lines {}, {package}", used.join(", "))
        }
    }
}

/// Modules of the skill itself: its Python files, and the folders that hold some.
fn own_modules(files: &BTreeMap<String, SkillFile>) -> BTreeSet<&str> {
    let mut own = BTreeSet::new();
    for path in files.keys().filter(|path| is_python(path)) {
        let mut parts = path.split('/').rev();
        own.extend(parts.next().and_then(|file| file.strip_suffix(".py")));
        own.extend(parts);
    }
    own
}

/// Lines of SKILL.md that ask a model to install something, which it cannot.
fn installs_in_prose(files: &BTreeMap<String, SkillFile>) -> Vec<Finding> {
    let Some(name) = tree::find_document(files.keys().map(String::as_str)) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&files[name].bytes);
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| INSTALLERS.iter().any(|words| line.contains(words)));
    lines
        .take(MAX_MISSING)
        .map(|(index, line)| {
            let text = format!("{} installs nothing: runs have no network", shown(line.trim()));
            let help = "declare what it names in requirements.txt or under packages in the frontmatter";
            Finding::new(FindingKind::InstallInProse, name, index + 1, text, help)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare;
    use crate::fixture::files;

    fn reported(list: &[(&str, &str)]) -> Vec<String> {
        let files = files(list);
        findings(&files, None, &declare(&files, None))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_missing_import_is_reported_with_the_line_to_add() {
        let script = "import os\nimport sys, own, package.deep\nfrom PIL import Image\nimport mcp\ntry:\n    import rich\nexcept ImportError:\n    pass\n";
        let own = [("scripts/own.py", "x = 1"), ("package/deep.py", "x = 1")];
        let with =
            |more: &[(&'static str, &'static str)]| reported(&[&own[..], &[("scripts/a.py", script)], more].concat());
        for (more, line) in [
            (
                &[("requirements.txt", "pillow")][..],
                "scripts/a.py:4: mcp is imported, but no declared package provides it (add the line mcp to requirements.txt)",
            ),
            (
                &[("SKILL.md", "---\npackages: {python: [pillow]}\n---\n")],
                "scripts/a.py:4: mcp is imported, but no declared package provides it (add \"mcp\" to packages.python in SKILL.md)",
            ),
            (
                &[],
                "scripts/a.py:4: mcp is imported, but no declared package provides it (create requirements.txt with the lines pillow, mcp)",
            ),
        ] {
            assert_eq!(with(more), [line]);
        }
        assert_eq!(
            reported(&[("a.py", "import mcp")]),
            [
                "a.py:1: mcp is imported, but no declared package provides it (create requirements.txt with the line mcp)"
            ]
        );
        assert_eq!(with(&[("requirements.txt", "pillow\nmcp")]), [""; 0]);
        // One line for one package.
        assert_eq!(
            reported(&[("a.py", "import mcp\nimport mcp.x"), ("b.py", "import mcp")]).len(),
            1
        );
    }

    #[test]
    fn a_package_of_a_namespace_provides_its_modules_and_no_others() {
        let script = "import ruamel.yaml\nfrom google.cloud import storage\nimport google.protobuf.message\n\
                      from azure.identity import DefaultAzureCredential\nfrom zope import interface\nimport google\n";
        let with = |requirements: &str| reported(&[("a.py", script), ("requirements.txt", requirements)]);
        let all = "ruamel.yaml\ngoogle-cloud-storage>=2\nprotobuf\nazure-identity\nzope.interface\n";
        assert_eq!(with(all), [""; 0]);
        let line = |number: u32, module: &str, package: &str| {
            format!(
                "a.py:{number}: {module} is imported, but no declared package provides it (add the line {package} to \
                 requirements.txt)"
            )
        };
        assert_eq!(
            with("ruamel.base\ngoogle-cloud-bigquery\nazure-core\nzope.event\n"),
            [
                line(1, "ruamel.yaml", "ruamel-yaml"),
                line(2, "google.cloud.storage", "google-cloud-storage"),
                line(3, "google.protobuf", "protobuf"),
                line(4, "azure.identity", "azure-identity"),
                line(5, "zope.interface", "zope-interface"),
            ]
        );
        assert_eq!(
            reported(&[("a.py", "import google.cloud\n")]),
            [
                "a.py:1: google.cloud is imported, but no declared package provides it (declare the packages that have the \
                 modules of google.cloud)"
            ]
        );
        // What a lock has counts as well.
        let lock = format!("ruamel.yaml==0.18 --hash=sha256:{}\n", "a".repeat(64));
        let locked = [("a.py", "from ruamel.yaml import YAML"), ("requirements.lock", &lock)];
        assert_eq!(reported(&locked), [""; 0]);
    }

    #[test]
    fn modules_of_the_program_that_calls_functions_need_no_package() {
        for module in functions::STAND_INS {
            assert_eq!(
                reported(&[("a.py", &format!("import {module}\n"))]),
                [""; 0],
                "{module}"
            );
        }
        let script = "from tukuy.skills import skill\nfrom prompture.integrations import tukuy_bridge\n\
                      from prompture.integrations.tukuy_bridge import current_tool_call_id\n";
        assert_eq!(reported(&[("a.py", script)]), [""; 0]);
        for missing in ["import tukuy.registry", "from prompture import Driver"] {
            assert_eq!(reported(&[("a.py", missing)]).len(), 1, "{missing}");
        }
    }

    #[test]
    fn a_missing_package_of_node_is_reported_with_its_line() {
        let script = (
            "a.js",
            "const fs = require('fs')\nconst a = require('docx')\nrequire('docx')",
        );
        assert_eq!(
            reported(&[script]),
            [
                "a.js:2: docx is loaded, but no package of Node provides it (add docx to dependencies of package.json, then generate the lock with knack skill lock)"
            ]
        );
        let lock = format!(
            "{{\"lockfileVersion\": 3, \"packages\": {{\"node_modules/docx\": {{\"version\": \"9.0.0\", \"integrity\": \"sha512-{}==\"}}}}}}",
            "a".repeat(86)
        );
        assert_eq!(reported(&[script, ("package-lock.json", &lock)]), [""; 0]);
        // Without a lock one finding is enough.
        let declared = reported(&[script, ("package.json", "{\"dependencies\": {\"docx\": \"^9\"}}")]);
        assert!(
            declared.len() == 1 && declared[0].starts_with("package.json: "),
            "{declared:?}"
        );
    }

    #[test]
    fn prose_that_installs_is_reported_with_its_line() {
        let reported = reported(&[(
            "SKILL.md",
            "---\nname: x\n---\nFirst:\n```\npip install pillow\n```\nThe pip of an apple.\n",
        )]);
        assert_eq!(reported.len(), 1);
        assert!(
            reported[0].starts_with("SKILL.md:6: \"pip install pillow\" installs nothing"),
            "{reported:?}"
        );
    }
}
