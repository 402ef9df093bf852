use super::*;
use crate::environment::Input;
use crate::fixture::files;

const FRONTMATTER: &str = "---\nname: x\ndescription: d\npackages:\n  python: [\"pillow>=10\", numpy]\n---\nBody\n";
const BLOCK: &str = "# /// script\n# dependencies = [\"rich==1\"]\n# ///\n";

fn hashed(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| format!("{line} --hash=sha256:{}\n", "a".repeat(64)))
        .collect()
}

#[test]
fn the_first_declaration_counts_alone() {
    let lock = hashed(&["pillow==10.1", "numpy==2", "six==1"]);
    let plain = "---\nname: x\n---\n";
    for (list, source, names) in [
        (
            &[
                ("SKILL.md", FRONTMATTER),
                ("requirements.txt", "six"),
                ("scripts/a.py", BLOCK),
            ][..],
            Source::Frontmatter,
            &["numpy", "pillow"][..],
        ),
        (
            &[
                ("SKILL.md", plain),
                ("requirements.txt", "six"),
                ("scripts/requirements.txt", "rich"),
                ("a.py", BLOCK),
            ],
            Source::Requirements("requirements.txt".to_owned()),
            &["six"],
        ),
        (
            &[
                ("SKILL.md", plain),
                ("scripts/requirements.txt", "rich"),
                ("a.py", BLOCK),
            ],
            Source::Requirements("scripts/requirements.txt".to_owned()),
            &["rich"],
        ),
        (
            &[("SKILL.md", plain), ("scripts/a.py", BLOCK)],
            Source::Scripts(vec!["scripts/a.py".to_owned()]),
            &["rich"],
        ),
        (
            &[("SKILL.md", plain), ("requirements.lock", &lock)],
            Source::Lock(LOCK_FILE),
            &["numpy", "pillow", "six"],
        ),
        (&[("SKILL.md", plain), ("a.py", "import os")], Source::Nothing, &[]),
        // A file that names nothing says that nothing is wanted.
        (
            &[
                ("SKILL.md", plain),
                ("requirements.txt", "# none\n"),
                ("a.py", "import numpy"),
            ],
            Source::Requirements("requirements.txt".to_owned()),
            &[],
        ),
        (&[("docs/requirements.txt", "six")], Source::Nothing, &[]),
    ] {
        let declared = declare(&files(list), None);
        assert_eq!(declared.source, source, "{list:?}");
        assert_eq!(declared.names(), names, "{list:?}");
        assert_eq!(declared.findings, [], "{list:?}");
    }
}

#[test]
fn a_lock_wins_over_versions_and_must_hold_what_is_declared() {
    let lock = hashed(&["pillow==10.1", "numpy==2"]);
    let declared = declare(&files(&[("SKILL.md", FRONTMATTER), ("requirements.lock", &lock)]), None);
    assert_eq!(
        (declared.source.clone(), declared.is_refused()),
        (Source::Frontmatter, false)
    );
    assert_eq!(declared.lock.unwrap().packages().len(), 2);
    let declared = declare(
        &files(&[("requirements.txt", "six"), ("requirements.lock", &lock)]),
        None,
    );
    assert!(declared.is_refused());
    assert!(
        declared.findings[0]
            .text
            .contains("six is declared but not in the lock"),
        "{:?}",
        declared.findings
    );
    let declared = declare(&files(&[("requirements.lock", "six")]), None);
    assert!(declared.is_refused() && declared.lock.is_none());
}

/// A lock may be without packages where no requirement need count; what depends on the interpreter is judged with it.
#[test]
fn a_lock_may_lack_what_markers_exclude() {
    let empty = ("requirements.lock", "# Written by knack skill lock\n");
    let pillow = hashed(&["pillow==10.1"]);
    for (requirements, lock, refused) in [
        ("# none\n", empty, false),
        ("colorama; sys_platform == 'win32'", empty, false),
        ("tomli; python_version < '3.11'", empty, false),
        (
            "pillow\ntomli; python_version < '3.11'",
            ("requirements.lock", &*pillow),
            false,
        ),
        ("pillow\ntomli", ("requirements.lock", &*pillow), true),
        ("tomli; sys_platform == 'linux'", empty, true),
        ("six", empty, true),
    ] {
        let declared = declare(&files(&[("requirements.txt", requirements), lock]), None);
        assert_eq!(
            declared.is_refused(),
            refused,
            "{requirements}: {:?}",
            declared.findings
        );
        let depends = requirements.contains("python_version");
        let input = Input::of(&declared);
        for declared in [&declared, &input.declaration().unwrap()]
            .into_iter()
            .filter(|_| !refused)
        {
            assert_eq!(declared.python_refused("3.12.1", "x86_64"), None, "{requirements}");
            let older = declared.python_refused("3.10.2", "x86_64");
            assert_eq!(older.is_some(), depends, "{requirements}: {older:?}");
            assert_eq!(
                declared.has_packages(),
                depends || requirements.contains("pillow"),
                "{requirements}"
            );
        }
    }
    let alone = declare(&files(&[empty]), None);
    assert!(
        alone.findings[0].text.contains("the lock is empty"),
        "{:?}",
        alone.findings
    );
}

/// A file that pip would check by its hashes is a lock, and hashes of some lines are no use.
#[test]
fn requirements_with_hashes_are_their_own_lock_and_some_hashes_are_reported() {
    let whole = hashed(&["pillow==10.1", "six==1 ; python_version >= '3'"]);
    let declared = declare(&files(&[("requirements.txt", &whole)]), None);
    assert_eq!(declared.findings, []);
    assert_eq!(declared.source, Source::Requirements("requirements.txt".to_owned()));
    let lock = declared.lock.unwrap();
    assert_eq!(lock.packages().len(), 2);
    assert!(lock.text().contains("--hash=sha256:aaaa"), "{}", lock.text());
    for (name, text, part) in [
        (
            "requirements.txt",
            format!("rich==1\n{whole}"),
            "requirements.txt:1: hashes are not checked: 1 of 3 requirements, the first of them rich,",
        ),
        (
            "scripts/requirements.txt",
            hashed(&["pillow>=10"]),
            "scripts/requirements.txt:1: hashes are not checked: 1 of 1 requirements",
        ),
    ] {
        let declared = declare(&files(&[(name, &text)]), None);
        assert!(
            declared.lock.is_none() && !declared.is_refused(),
            "{:?}",
            declared.findings
        );
        assert!(
            declared.findings[0].to_string().starts_with(part),
            "{:?}",
            declared.findings
        );
    }
    // Another lock wins, and its hashes count.
    let lock = hashed(&["pillow==10.1", "six==1", "rich==1"]);
    let both = declare(
        &files(&[("requirements.txt", &whole), ("requirements.lock", &lock)]),
        None,
    );
    assert_eq!((both.findings, both.lock.unwrap().packages().len()), (vec![], 3));
}

#[test]
fn a_lock_without_a_declared_version_is_reported() {
    let lock = hashed(&[
        "numpy==2.2.6 ; python_full_version < '3.11'",
        "numpy==2.4.6 ; python_full_version >= '3.11'",
        "pillow==10.1",
        "pywin==1 ; sys_platform == 'win32'",
        "six==2rc1",
    ]);
    for (requirements, part) in [
        ("pillow>=10\nnumpy>=2.3\npywin>=2\nsix", None),
        ("pillow>=11", Some("pillow>=11 is declared, and the lock has 10.1,")),
        ("numpy>=3", Some("numpy>=3 is declared, and the lock has 2.2.6, 2.4.6,")),
        ("six>=2", Some("the lock has 2rc1")),
        ("pillow>=11 ; sys_platform == 'win32'", None),
        ("pillow==ten1", None),
    ] {
        let list = [("requirements.txt", requirements), ("requirements.lock", lock.as_str())];
        let declared = declare(&files(&list), None);
        assert!(!declared.is_refused(), "{:?}", declared.findings);
        let message: Vec<String> = declared.findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            message.len(),
            usize::from(part.is_some()),
            "{requirements}: {message:?}"
        );
        let is_told =
            part.is_none_or(|part| message[0].starts_with("requirements.lock: ") && message[0].contains(part));
        assert!(is_told, "{message:?}");
    }
}

#[test]
fn imports_choose_the_standard_environment() {
    for (text, inferred) in [
        ("import yaml", true),
        ("from PIL import Image", true),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None", true),
        ("import json, mcp", false),
        ("import requests", false),
    ] {
        let declared = declare(&files(&[("SKILL.md", "x"), ("scripts/a.py", text)]), None);
        assert_eq!(declared.source == Source::Inferred, inferred, "{text}");
        assert_eq!(declared.lock.is_some(), inferred, "{text}");
        assert!(!declared.is_declared() || !inferred);
    }
}

/// The blocks of one skill have room for hundreds of thousands of requirements, of which each was compared with all others.
#[test]
fn far_too_many_requirements_of_scripts_cost_little() {
    let block = |item: &dyn Fn(usize) -> String, count: usize| {
        let items: Vec<String> = (0..count).map(item).collect();
        format!("# /// script\n# dependencies = [{}]\n# ///\n", items.join(","))
    };
    let begun = std::time::Instant::now();
    let stated_of = |texts: Vec<String>| {
        let named = texts.into_iter().enumerate();
        let named: Vec<(String, String)> = named.map(|(at, text)| (format!("s{at:03}.py"), text)).collect();
        let list: Vec<(&str, &str)> = named
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let declared = stated(&files(&list), None);
        assert!(declared.findings.len() <= MAX_FINDINGS, "{}", declared.findings.len());
        declared.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>()
    };
    let own = |script: usize| block(&|number| format!("\"p{script}-{number}\""), MAX_PACKAGES);
    assert_eq!(stated_of((0..MAX_SCRIPTS).map(own).collect()), [FindingKind::TooMany]);
    let one = block(&|number| format!("\"p{number}\""), 5_000);
    assert_eq!(stated_of(vec![one]), [FindingKind::TooMany]);
    let empty = block(&|_| "\"\"".to_owned(), 20_000);
    assert_eq!(stated_of(vec![empty]), [FindingKind::TooMany]);
    let wrong = || block(&|_| "\"\"".to_owned(), MAX_PACKAGES);
    assert_eq!(
        stated_of((0..MAX_SCRIPTS).map(|_| wrong()).collect()).len(),
        MAX_FINDINGS
    );
    let pinned = |script: usize| block(&|number| format!("\"p{number}=={script}\""), 100);
    assert_eq!(stated_of((0..MAX_SCRIPTS).map(pinned).collect()).len(), MAX_FINDINGS);
    // Far above the second or two that it takes on a quiet machine; comparing all of them takes minutes.
    assert!(begun.elapsed().as_secs() < 90, "{:?}", begun.elapsed());
}

#[test]
fn two_scripts_that_exclude_each_other_are_both_named() {
    let other = "# /// script\n# dependencies = [\"rich==2\", \"six\"]\n# ///\n";
    let declared = declare(&files(&[("a.py", BLOCK), ("b.py", other)]), None);
    let [finding] = declared.findings.as_slice() else {
        panic!("{:?}", declared.findings)
    };
    assert_eq!((finding.kind, finding.file.as_str()), (FindingKind::Conflict, "b.py"));
    assert!(
        finding.text.contains("a.py") && finding.text.contains("rich==1") && finding.text.contains("rich==2"),
        "{finding}"
    );
    let same = declare(&files(&[("a.py", BLOCK), ("b.py", BLOCK)]), None);
    assert_eq!((same.names(), same.findings), (vec!["rich".to_owned()], Vec::new()));
}

#[test]
fn a_frontmatter_that_cannot_be_used_is_reported_with_its_line() {
    for (packages, line, part) in [
        ("packages: 3", 3, "must be a mapping"),
        ("packages: {python: x}", 3, "packages.python: it must be a list"),
        ("packages: {pip: [x]}", 3, "unknown key \"pip\""),
        (
            "packages:\n  python:\n    - six\n    - git+https://x/y",
            6,
            "packages.python[1]: ",
        ),
        ("packages: {python: [3]}", 3, "packages.python[0]: it must be text"),
    ] {
        let declared = declare(
            &files(&[("SKILL.md", &format!("---\nname: x\n{packages}\n---\nB"))]),
            None,
        );
        let [finding] = declared.findings.as_slice() else {
            panic!("{packages}: {:?}", declared.findings)
        };
        assert!(finding.is_error() && finding.text.contains(part), "{finding}");
        assert_eq!(finding.line, line, "{finding}");
        assert!(declared.is_declared() && declared.is_refused());
    }
}

#[test]
fn what_is_not_installed_is_a_warning() {
    let node = "---\nname: x\npackages: {node: [docx]}\n---\nB";
    for list in [
        &[("SKILL.md", node)][..],
        &[("package.json", "{\"dependencies\": {\"docx\": \"^9\"}}")],
        &[("package.json", "{")],
        &[("requirements.txt", "six"), ("uv.lock", "")],
        &[("requirements.txt", "six"), ("scripts/a.py.lock", "")],
        &[("pylock.dev.toml", "")],
    ] {
        let declared = declare(&files(list), None);
        assert_eq!(declared.findings.len(), 1, "{list:?}");
        assert_eq!(declared.findings[0].kind, FindingKind::NotInstalled);
        assert!(!declared.is_refused());
    }
    assert!(declare(&files(&[("package.json", "{}")]), None).findings.is_empty());
}

#[test]
fn a_lock_of_another_tool_says_how_to_export_it_and_alone_it_is_refused() {
    for (file, remedy) in [
        ("uv.lock", "uv export --format pylock.toml"),
        ("pdm.lock", "pdm export -f pylock"),
        ("poetry.lock", "poetry export -o requirements.lock"),
        ("Pipfile.lock", "pipenv requirements --hash"),
        ("pixi.lock", "packages.python of SKILL.md"),
        ("conda-lock.yml", "packages.python of SKILL.md"),
    ] {
        // Even where imports would give the standard environment: that has other versions than the author locked.
        let alone = declare(&files(&[(file, ""), ("a.py", "import yaml")]), None);
        let [finding] = alone.findings.as_slice() else {
            panic!("{file}: {:?}", alone.findings)
        };
        assert_eq!((finding.kind, finding.file.as_str()), (FindingKind::Lock, file));
        assert!(finding.text.contains("nothing else declares packages"), "{finding}");
        assert!(finding.help.contains(remedy), "{finding}");
        assert!(alone.is_refused());
        let front = "---\nname: x\npackages: {python: []}\n---\n";
        for beside in [
            ("requirements.txt", "six"),
            (
                "requirements.lock",
                &*format!("six==1 --hash=sha256:{}", "a".repeat(64)),
            ),
            ("SKILL.md", front),
            ("SKILL.md", "---\nname: x\npackages: {standard: true}\n---\n"),
        ] {
            let declared = declare(&files(&[(file, ""), beside]), None);
            assert!(!declared.is_refused(), "{beside:?}: {:?}", declared.findings);
            let message = declared.findings.iter().find(|finding| finding.file == file).unwrap();
            assert!(message.help.contains(remedy), "{message}");
        }
    }
    let script = "# /// script\n# dependencies = [\"six\"]\n# ///\n";
    let locked = declare(&files(&[("a.py", script), ("b.py", script), ("a.py.lock", "")]), None);
    assert!(!locked.is_refused());
    assert!(
        locked.findings[0].help.contains("uv export --script a.py"),
        "{:?}",
        locked.findings
    );
}

#[test]
fn equal_declarations_have_one_text() {
    let one = declare(&files(&[("requirements.txt", "Six\npillow>=10 # x\n")]), None);
    let two = declare(&files(&[("requirements.txt", "pillow >= 10\nsix\nsix")]), None);
    assert_eq!(one.requirements_text(), "pillow>=10\nsix\n");
    assert_eq!(one.requirements_text(), two.requirements_text());
}

#[test]
fn a_script_says_which_python_it_requires() {
    let script = "# /// script\n# requires-python = \">=3.12,<4\"\n# ///\n";
    let declared = declare(&files(&[("scripts/a.py", script)]), None);
    assert_eq!(declared.python_refused("3.12.1", "x86_64"), None);
    assert_eq!(
        declared.python_refused("3.11.2", "x86_64").unwrap(),
        "scripts/a.py requires Python >=3.12,<4, and 3.11.2 is here"
    );
}

/// A list of a manifest.
fn listed(python: &[&str]) -> AskedPackages {
    AskedPackages {
        python: python.iter().map(|line| (*line).to_owned()).collect(),
        ..AskedPackages::default()
    }
}

#[test]
fn the_list_of_a_manifest_counts_alone_and_a_lock_fixes_it() {
    let lock = format!("six==1.16 --hash=sha256:{}\n", "a".repeat(64));
    let list = [
        ("SKILL.md", FRONTMATTER),
        ("requirements.txt", "absent"),
        ("requirements.lock", lock.as_str()),
    ];
    let declared = declare(&files(&list), Some(&listed(&["Six>=1"])));
    assert_eq!(
        (&declared.source, declared.names()),
        (&Source::Spec, vec!["six".to_owned()])
    );
    assert!(declared.lock.is_some() && declared.findings.is_empty(), "{declared:?}");
    // An empty list asks for nothing, and says so.
    let none = declare(&files(&list[..2]), Some(&listed(&[])));
    assert!(none.wants_environment() && none.names().is_empty() && none.versions().is_none());
    let wrong = declare(&files(&[("SKILL.md", "x")]), Some(&listed(&["six", "git+https://x/y"])));
    let message: Vec<String> = wrong.findings.iter().map(ToString::to_string).collect();
    assert!(message[0].starts_with("spec.packages.python[1]: "), "{message:?}");
}

#[test]
fn what_is_stated_is_read_without_parsing_python() {
    let imports = [("SKILL.md", "x"), ("a.py", "import numpy")];
    assert_eq!(declare(&files(&imports), None).source, Source::Inferred);
    let stated = stated(&files(&imports), None);
    assert_eq!((stated.source, stated.imports.len()), (Source::Nothing, 0));
}

#[test]
fn the_standard_environment_can_be_asked_for_and_has_a_lock_of_its_own() {
    let own = hashed(&["six==1"]);
    let asks = "---\nname: x\npackages: {standard: true}\n---\n";
    let with_standard = |python: &[&str]| AskedPackages {
        standard: true,
        ..listed(python)
    };
    let (word, both) = (with_standard(&[]), with_standard(&["six"]));
    for (what, list, spec, source, message) in [
        (
            "manifest",
            &[("SKILL.md", "x")][..],
            Some(&word),
            Source::Standard,
            None,
        ),
        (
            "over its files",
            &[("SKILL.md", FRONTMATTER)],
            Some(&word),
            Source::Standard,
            None,
        ),
        (
            "frontmatter",
            &[("SKILL.md", asks), ("requirements.txt", "six")],
            None,
            Source::Standard,
            None,
        ),
        (
            "its own lock",
            &[("SKILL.md", asks), ("requirements.lock", &own)],
            None,
            Source::Standard,
            Some((false, "requirements.lock: it has no effect")),
        ),
        (
            "false",
            &[("SKILL.md", "---\npackages: {standard: false}\n---\n")],
            None,
            Source::Frontmatter,
            None,
        ),
        (
            "no boolean",
            &[("SKILL.md", "---\npackages: {standard: all}\n---\n")],
            None,
            Source::Frontmatter,
            Some((true, "packages.standard: it must be true or false")),
        ),
        (
            "a list beside it",
            &[("SKILL.md", "---\npackages: {standard: true, python: [six]}\n---\n")],
            None,
            Source::Frontmatter,
            Some((true, "cannot be combined with a list in packages.python")),
        ),
        (
            "a list in the manifest",
            &[("SKILL.md", "x")],
            Some(&both),
            Source::Spec,
            Some((true, "cannot be combined with a list in spec.packages.python")),
        ),
    ] {
        let declared = stated(&files(list), spec);
        assert_eq!(declared.source, source, "{what}");
        if source == Source::Standard {
            assert_eq!(declared.lock.as_ref(), standard::lock(), "{what}");
            assert!(
                declared.is_declared() && declared.names().contains(&"numpy".to_owned()),
                "{what}"
            );
            assert_eq!(declared.source.shown(), "standard environment");
        }
        let found = declared.findings.first();
        let found = found.map(|finding| (finding.is_error(), finding.to_string()));
        match (&found, message) {
            (None, None) => {}
            (Some((is_error, text)), Some((expected, part))) => {
                assert!(*is_error == expected && text.contains(part), "{what}: {text}");
            }
            _ => panic!("{what}: {found:?}"),
        }
    }
}

#[test]
fn settings_of_scripts_count_where_their_blocks_do() {
    let script = |moment: &str| {
        format!(
            "# /// script\n# dependencies = [\"six\"]\n# [tool.uv]\n# exclude-newer = \"{moment}\"\n# prerelease = \"allow\"\n# ///\n"
        )
    };
    let (one, two) = (script("2026-07-02"), script("2026-07-01T12:00:00Z"));
    let scripts = [("a.py", one.as_str()), ("b.py", two.as_str())];
    let settings = |more: &[(&str, &str)]| {
        let declared = declare(&files(&[&scripts[..], more].concat()), None);
        let ignored: Vec<String> = declared.findings.iter().map(|finding| finding.file.clone()).collect();
        (declared.exclude_newer, ignored.join(" "))
    };
    // A skill has one environment.
    assert_eq!(
        settings(&[]),
        (Some("2026-07-01T12:00:00Z".to_owned()), "a.py b.py".to_owned())
    );
    assert_eq!(settings(&[("requirements.txt", "six")]), (None, String::new()));
    let refused = "# /// script\n# [tool.uv]\n# exclude-newer = \"2 days\"\n# ///\n";
    let declared = declare(&files(&[("a.py", refused)]), None);
    assert_eq!(
        declared.findings[0].to_string(),
        "a.py:1: tool.uv.exclude-newer: \"2 days\" is neither a day nor a time with its zone; write one such as 2026-07-01 or \
         2026-07-01T12:00:00Z (name the last day whose versions are known to work)"
    );
}
