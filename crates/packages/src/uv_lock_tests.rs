//! Tests of locks of scripts.

use crate::declare::declare;
use crate::fixture::files;

const SCRIPT: &str = "# /// script\n# dependencies = [\"a>=1\", \"b[x]\"]\n# ///\n";

fn package(name: &str, version: &str, rest: &str) -> String {
    let hash = "a".repeat(64);
    format!(
        "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = {{ registry = \"https://i.example/simple\" }}\n\
         wheels = [{{ url = \"https://i.example/{name}-{version}-py3-none-any.whl\", hash = \"sha256:{hash}\", size = 1 }}]\n{rest}\n"
    )
}

fn lock(requirements: &str, packages: &[String]) -> String {
    let packages = packages.concat();
    format!(
        "version = 1\nrevision = 3\nrequires-python = \">=3.9\"\n\n[manifest]\nrequirements = [{requirements}]\n\n{packages}"
    )
}

fn shown_lock(text: &str) -> Result<Vec<String>, String> {
    let declared = declare(&files(&[("scripts/t.py", SCRIPT), ("scripts/t.py.lock", text)]), None);
    match declared.findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => Ok(declared.lock.unwrap().pins().iter().map(ToString::to_string).collect()),
    }
}

#[test]
fn what_the_script_asks_for_is_installed_in_the_versions_of_its_lock() {
    let text = lock(
        "{ name = \"a\", specifier = \">=1\" }, { name = \"b\", extras = [\"x\"] }",
        &[
            package(
                "a",
                "1.2",
                "dependencies = [{ name = \"c\" }, { name = \"win\", marker = \"sys_platform == 'win32'\" }, \
                 { name = \"old\", marker = \"python_full_version < '3.11'\" }]",
            ),
            package(
                "b",
                "2",
                "dependencies = [{ name = \"a\" }]\n[package.optional-dependencies]\nx = [{ name = \"d\", version = \"3\" }]\n\
                 y = [{ name = \"unasked\" }]",
            ),
            package("c", "1", "dependencies = [{ name = \"a\" }]"),
            package("d", "2", "resolution-markers = [\"python_full_version < '3.10'\"]"),
            package("d", "3", "resolution-markers = [\"python_full_version >= '3.10'\"]"),
            package("old", "1", ""),
            package("unasked", "1", ""),
            package("win", "1", ""),
        ],
    );
    let shown = shown_lock(&text).unwrap();
    let names: Vec<&str> = shown.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["a==1.2", "b==2", "c==1", "d==3", "old==1"], "{shown:?}");
    assert!(
        shown[4].contains("python_full_version <") && shown[4].contains("3.11"),
        "{shown:?}"
    );
    // Without a version every fork is meant, each under its markers.
    let forked = text.replace("{ name = \"d\", version = \"3\" }", "{ name = \"d\" }");
    let shown = shown_lock(&forked).unwrap();
    assert_eq!(
        shown.iter().filter(|line| line.starts_with("d==")).count(),
        2,
        "{shown:?}"
    );
    assert!(
        shown
            .iter()
            .filter(|line| line.starts_with("d=="))
            .all(|line| line.contains(';')),
        "{shown:?}"
    );
}

#[test]
fn a_lock_that_cannot_be_followed_is_refused_with_the_reason() {
    let a = package("a", "1.2", "");
    let b = package("b", "2", "");
    let asks = "{ name = \"a\" }, { name = \"b\" }";
    let good = lock(asks, &[a.clone(), b.clone()]);
    assert_eq!(shown_lock(&good).unwrap(), ["a==1.2", "b==2"]);
    for (text, part) in [
        (
            good.replace("version = 1\n", "version = 2\n"),
            "scripts/t.py.lock: it has version 2 of uv's format",
        ),
        (String::new(), "not a uv.lock file"),
        ("[".to_owned(), "not valid TOML"),
        (good.replace("registry =", "git ="), "\"a\" comes from \"git\""),
        (good.replace("wheels", "no-wheels"), "has no wheels"),
        (
            good.replace("\", size", "\", other").replace("hash =", "mash ="),
            "no hash of SHA-256",
        ),
        (
            lock("{ name = \"a\" }", std::slice::from_ref(&a)),
            "b is declared but not in the lock (lock the script again",
        ),
        (lock(asks, &[a]), "\"b\" is a dependency and not among its packages"),
    ] {
        let said = shown_lock(&text).unwrap_err();
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn locks_of_several_scripts_are_one_where_they_agree_and_none_where_one_is_missing() {
    let asks = "{ name = \"a\" }, { name = \"b\" }";
    let one = lock(asks, &[package("a", "1.2", ""), package("b", "2", "")]);
    let other = one.replace("1.2", "1.3");
    let of = |list: &[(&str, &str)]| declare(&files(list), None);
    let same = of(&[
        ("s.py", SCRIPT),
        ("s.py.lock", &one),
        ("t.py", SCRIPT),
        ("t.py.lock", &one),
    ]);
    assert_eq!((same.findings.len(), same.lock.unwrap().packages().len()), (0, 2));
    let differ = of(&[
        ("s.py", SCRIPT),
        ("s.py.lock", &one),
        ("t.py", SCRIPT),
        ("t.py.lock", &other),
    ]);
    assert!(differ.is_refused());
    assert!(
        differ.findings[0]
            .text
            .contains("a 1.3 here and 1.2 in s.py.lock conflict"),
        "{differ:?}"
    );
    let missing = of(&[("s.py", SCRIPT), ("s.py.lock", &one), ("t.py", SCRIPT)]);
    assert_eq!((missing.lock, missing.findings.len()), (None, 1));
    // The skill's own lock counts before those of scripts.
    let hash = "a".repeat(64);
    let own = format!("a==9 --hash=sha256:{hash}\nb==9 --hash=sha256:{hash}\n");
    let both = of(&[("s.py", SCRIPT), ("s.py.lock", &one), ("requirements.lock", &own)]);
    assert_eq!(both.lock.unwrap().packages()[0].1, "9");
    assert!(both.findings[0].text.contains("its versions do not count"));
}

#[test]
fn a_lock_whose_ways_would_fill_the_memory_is_refused() {
    let long = format!("python_version > '{}'", "3".repeat(400_000));
    let asked = |marker: &str| format!("{{ name = \"h\", marker = \"{marker}\" }}");
    let many = format!("dependencies = [{}]", "{name=\"a\"},".repeat(20_000));
    let packages = [package("a", "1", ""), package("h", "1", &many)];
    let said = shown_lock(&lock(&asked(&long), &packages)).unwrap_err();
    assert!(
        said.starts_with(
            "scripts/t.py.lock: \"h\": a marker of it has 400019 bytes, more than 1000 (lock the script again"
        ),
        "{said}"
    );
    let said = shown_lock(&lock(&asked("python_version > '3'"), &packages)).unwrap_err();
    assert!(
        said.starts_with("scripts/t.py.lock: its dependencies combine in too many ways (lock"),
        "{said}"
    );
    // Markers of forks, and extras.
    let fork = format!("resolution-markers = [\"{long}\"]");
    let forked = [package("a", "1", &fork), package("a", "2", "")];
    let said = shown_lock(&lock("{ name = \"a\" }", &forked)).unwrap_err();
    assert!(said.contains("a marker of it has 400019 bytes"), "{said}");
    let extras = format!("{{ name = \"a\", extras = [{}] }}", "\"x\",".repeat(20_000));
    let said = shown_lock(&lock(&extras, &[package("a", "1", "")])).unwrap_err();
    assert!(said.contains("its dependencies combine in too many ways"), "{said}");
}

#[test]
fn the_edges_of_all_locks_of_a_skill_count_together() {
    let many = format!("dependencies = [{}]", "{name=\"a\"},".repeat(11_000));
    let text = lock(
        "{ name = \"a\" }, { name = \"b\" }",
        &[package("a", "1", ""), package("b", "1", &many)],
    );
    assert_eq!(shown_lock(&text).unwrap(), ["a==1", "b==1"]);
    let list = [
        ("s.py", SCRIPT),
        ("s.py.lock", &text),
        ("t.py", SCRIPT),
        ("t.py.lock", &text),
    ];
    let said = declare(&files(&list), None).findings[0].to_string();
    assert!(
        said.starts_with("t.py.lock: its dependencies combine in too many ways"),
        "{said}"
    );
}

#[test]
fn more_packages_than_a_lock_may_list_are_refused() {
    let numbered = |from: usize, to: usize| -> Vec<String> {
        let one = |number: usize| package(&format!("p{number}"), "1", "");
        (from..to).map(one).collect()
    };
    let asked = |from: usize, to: usize| -> String {
        let one = |number: usize| format!("{{ name = \"p{number}\", marker = \"sys_platform == 'win32'\" }},");
        (from..to).map(one).collect()
    };
    // What nothing asks for is listed and not installed.
    let of_script = [package("a", "1", ""), package("b", "1", "")];
    let with = |packages: Vec<String>| [of_script.to_vec(), packages].concat();
    let asks = "{ name = \"a\" }, { name = \"b\" }";
    let fits = shown_lock(&lock(asks, &with(numbered(0, 798)))).unwrap();
    assert_eq!(fits, ["a==1", "b==1"]);
    let said = shown_lock(&lock(asks, &with(numbered(0, 799)))).unwrap_err();
    assert_eq!(
        said,
        "scripts/t.py.lock: 801 packages, more than 800 (declare what the scripts import)"
    );
    let installed = asked(0, 199).replace("win32", "linux");
    let said = shown_lock(&lock(&format!("{installed}{asks}"), &with(numbered(0, 199)))).unwrap_err();
    assert!(said.contains("201 packages, more than 200"), "{said}");
    // The packages of all scripts together count, also those for other systems.
    let (one, other) = (
        lock(&asked(0, 500), &numbered(0, 500)),
        lock(&asked(500, 1000), &numbered(500, 1000)),
    );
    let list = [
        ("s.py", SCRIPT),
        ("s.py.lock", &one),
        ("t.py", SCRIPT),
        ("t.py.lock", &other),
    ];
    let said = declare(&files(&list), None).findings[0].to_string();
    assert!(said.starts_with("t.py.lock: 1000 packages, more than 800"), "{said}");
}

#[test]
fn markers_that_combine_in_too_many_ways_are_refused() {
    let said = |requirements: &str, packages: &[String]| shown_lock(&lock(requirements, packages)).unwrap_err();
    let part = "its markers combine in too many ways (lock the script again";
    // Many ways to one package.
    let one = |number: usize| format!("{{ name = \"a\", marker = \"python_version > '{number}'\" }},");
    let ways: String = (0..33).map(one).collect();
    assert!(said(&ways, &[package("a", "1", "")]).contains(part));
    // Many markers of one way.
    let one = |number: usize| {
        let next = number + 1;
        let to = format!("dependencies = [{{ name = \"p{next}\", marker = \"python_version > '{number}'\" }}]");
        package(&format!("p{number}"), "1", &to)
    };
    let mut chain: Vec<String> = (0..17).map(one).collect();
    chain.push(package("p17", "1", ""));
    assert!(said("{ name = \"p0\" }", &chain).contains(part));
    // Long markers.
    let one = |number: usize| {
        let long = "3".repeat(900);
        format!("{{ name = \"a\", marker = \"python_version > '{long}{number}'\" }},")
    };
    let ways: String = (0..20).map(one).collect();
    assert!(said(&ways, &[package("a", "1", "")]).contains(part));
    // Few ways in each of two locks.
    let one = |from: usize| {
        let one = |number: usize| format!("{{ name = \"a\", marker = \"python_version > '{number}'\" }},");
        lock(
            &(from..from + 20).map(one).collect::<String>(),
            &[package("a", "1", "")],
        )
    };
    let (one, other) = (one(10), one(50));
    let list = [
        ("s.py", SCRIPT),
        ("s.py.lock", &one),
        ("t.py", SCRIPT),
        ("t.py.lock", &other),
    ];
    let found = declare(&files(&list), None).findings[0].to_string();
    assert!(found.starts_with("t.py.lock: ") && found.contains(part), "{found}");
}
