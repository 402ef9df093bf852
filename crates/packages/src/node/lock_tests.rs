use serde_json::json;

use super::*;

fn hash(letter: &str) -> String {
    format!("sha512-{}==", letter.repeat(86))
}

fn entry(changes: &Value) -> Value {
    let mut entry = json!({
        "version": "1.0.0", "resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz", "integrity": hash("a"),
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => entry.as_object_mut().unwrap().remove(name),
            value => entry.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    entry
}

fn read(entries: &Value) -> Result<NodeLock, Vec<String>> {
    let text = json!({"lockfileVersion": 3, "packages": entries}).to_string();
    NodeLock::read(text.as_bytes()).map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

#[test]
fn what_is_installed_is_read_with_its_place_and_its_file() {
    let lock = read(&json!({
        "": {"dependencies": {"a": "^1", "alias": "npm:@s/b@2"}, "devDependencies": {"tool": "1"}},
        "node_modules/a/node_modules/c": entry(&json!({"resolved": null, "cpu": ["x64"], "libc": ["glibc"], "optional": true})),
        "node_modules/a": entry(&json!({"hasShrinkwrap": true, "bin": {"a": "bin.js"}, "engines": {"node": ">=99"}})),
        "node_modules/alias": entry(&json!({
            "name": "@s/b", "version": "2.0.0-rc.1", "resolved": "http://mirror.example/npm/@s/b/-/b-2.0.0-rc.1.tgz?x=1",
            "integrity": format!("sha1-abc {}", hash("b")),
        })),
        "node_modules/odd": entry(&json!({"resolved": "https://npm.example/download/odd/1.0.0/0a1b"})),
        "node_modules/tool": entry(&json!({"dev": true, "integrity": null, "hasInstallScript": true})),
        "node_modules/a/node_modules/bundled": {"version": "1.0.0", "inBundle": true},
        "node_modules/left": entry(&json!({"extraneous": true, "resolved": "git+ssh://x"})),
        "node_modules/fsevents": entry(&json!({"os": ["darwin"], "optional": true, "hasInstallScript": true})),
        "node_modules/fsevents/node_modules/below": entry(&json!({"optional": true})),
        "node_modules/scripted": entry(&json!({"optional": true, "hasInstallScript": true})),
        "node_modules/not-windows": entry(&json!({"os": ["!win32"]})),
    }))
    .unwrap();
    let shown: Vec<String> = lock
        .packages()
        .iter()
        .map(|package| {
            format!(
                "{} {} {} {}",
                package.location, package.name, package.version, package.file
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "node_modules/a a 1.0.0 a/-/a-1.0.0.tgz",
            "node_modules/a/node_modules/c c 1.0.0 c/-/c-1.0.0.tgz",
            "node_modules/alias @s/b 2.0.0-rc.1 @s/b/-/b-2.0.0-rc.1.tgz",
            "node_modules/not-windows not-windows 1.0.0 not-windows/-/a-1.0.0.tgz",
            "node_modules/odd odd 1.0.0 odd/-/odd-1.0.0.tgz",
        ]
    );
    assert_eq!(lock.top("alias").unwrap().sha512, format!("{}==", "b".repeat(86)));
    assert!(lock.top("c").is_none() && lock.top("tool").is_none());
    assert_eq!(lock.root().get("a").map(String::as_str), Some("^1"));
    let native = &lock.packages()[1];
    assert!(native.optional && native.fits("x64", "glibc"));
    assert!(!native.fits("arm64", "glibc") && !native.fits("x64", "musl"));
}

#[test]
fn what_is_not_installed_as_it_says_is_refused_by_name() {
    for (location, changes, part) in [
        ("node_modules/a", json!({"integrity": null}), "it has no integrity"),
        (
            "node_modules/a",
            json!({"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="}),
            "integrity: must contain a sha512 hash",
        ),
        (
            "node_modules/a",
            json!({"integrity": "sha512-short=="}),
            "integrity: must contain a sha512 hash",
        ),
        ("node_modules/a", json!({"link": true}), "a link to a folder"),
        (
            "node_modules/a",
            json!({"resolved": "git+ssh://git@h/a.git#0a"}),
            "resolved: it comes from \"git+ssh://git@h/a.git#0a\"",
        ),
        (
            "node_modules/a",
            json!({"resolved": "file:../a"}),
            "resolved: it comes from \"file:../a\"",
        ),
        (
            "node_modules/a",
            json!({"hasInstallScript": true}),
            "a needs an install script, which Knack never runs",
        ),
        ("node_modules/a", json!({"version": null}), "it has no version"),
        (
            "node_modules/a",
            json!({"version": "file:../a"}),
            "\"file:../a\" is not a version",
        ),
        (
            "node_modules/a",
            json!({"name": "../a"}),
            "\"../a\" is not a package name",
        ),
        ("node_modules/a", json!({"os": ["win32"]}), "another operating system"),
        ("node_modules/../a", json!({}), "the location"),
        ("node_modules/a/../../b", json!({}), "the location"),
        ("/etc/a", json!({}), "the location"),
        ("packages/own", json!({}), "the location"),
        ("node_modules/.bin", json!({}), "the location"),
    ] {
        let message = read(&json!({"node_modules/good": entry(&json!({})), location: entry(&changes)})).unwrap_err();
        let begin = format!("package-lock.json: packages[{location:?}]: ");
        assert!(
            message[0].starts_with(&begin) && message[0].contains(part),
            "{part} in {message:?}"
        );
    }
}

#[test]
fn a_file_that_is_no_lock_is_refused() {
    for (text, part) in [
        ("{".to_owned(), "not valid JSON"),
        ("[]".to_owned(), "lockfileVersion"),
        ("{}".to_owned(), "lockfileVersion: must be a number"),
        (
            "{\"lockfileVersion\": 1, \"dependencies\": {}}".to_owned(),
            "lockfileVersion: 1 is not supported; supported are 2 and 3",
        ),
        (
            "{\"lockfileVersion\": 4, \"packages\": {}}".to_owned(),
            "lockfileVersion: 4 is not supported",
        ),
        ("{\"lockfileVersion\": 2}".to_owned(), "packages: must be a mapping"),
        (
            "{\"lockfileVersion\": 3, \"packages\": {\"node_modules/a\": 1}}".to_owned(),
            "it must be a mapping",
        ),
        (
            "{\"lockfileVersion\": 3, \"packages\": {\"\": {\"workspaces\": [\"x\"]}}}".to_owned(),
            "workspaces are not installed",
        ),
    ] {
        let message = NodeLock::read(text.as_bytes()).unwrap_err();
        assert!(message[0].text.contains(part), "{text}: {message:?}");
        assert!(message[0].is_error());
    }
}

#[test]
fn a_lock_has_a_bounded_number_of_packages_and_of_findings() {
    let many = |count: usize, changes: &Value| {
        let entries: Map<String, Value> = (0..count)
            .map(|number| (format!("node_modules/a{number}"), entry(changes)))
            .collect();
        read(&Value::Object(entries))
    };
    assert_eq!(many(MAX_NODE_PACKAGES, &json!({})).unwrap().packages().len(), 500);
    assert!(many(501, &json!({})).unwrap_err()[0].contains("501 packages, more than 500"));
    assert_eq!(many(600, &json!({"dev": true})).unwrap().packages(), []);
    assert_eq!(many(600, &json!({"link": true})).unwrap_err().len(), MAX_FINDINGS);
}

#[test]
fn a_text_changes_with_what_is_installed_and_with_nothing_else() {
    let text = |changes: &Value| read(&json!({"node_modules/a": entry(changes)})).unwrap().text();
    let base = text(&json!({}));
    assert_eq!(
        base,
        text(&json!({"license": "MIT", "engines": {"node": "1"}, "peer": true}))
    );
    assert_eq!(
        base,
        text(&json!({"resolved": "https://other.example/a/-/a-1.0.0.tgz"}))
    );
    for changes in [
        json!({"version": "1.0.1"}),
        json!({"integrity": hash("b")}),
        json!({"cpu": ["x64"]}),
        json!({"optional": true}),
    ] {
        assert_ne!(base, text(&changes), "{changes}");
    }
}
