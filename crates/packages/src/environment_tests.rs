use super::*;
use crate::declare::stated;
use crate::fixture::files as skill_files;

fn declared(files: &[(&str, &str)]) -> Declaration {
    let declared = stated(&skill_files(files), None);
    assert!(!declared.is_refused(), "{:?}", declared.findings);
    declared
}

fn lock(version: &str) -> String {
    format!("six=={version} --hash=sha256:{}\n", "a".repeat(64))
}

/// A lock of a package of Node, with what one of the same packages may say besides.
fn node_lock(version: &str, more: &str) -> String {
    format!(
        "{{\"lockfileVersion\": 3, {more} \"packages\": {{\"\": {{\"dependencies\": {{\"@s/b\": \"*\"}}}}, \"node_modules/@s/b\": \
         {{\"version\": {version:?}, \"cpu\": [\"x64\"], \"optional\": true, \"integrity\": \"sha512-{}==\"}}}}}}",
        "a".repeat(86)
    )
}

/// A script whose block asks for files until a moment.
const DATED: &str =
    "# /// script\n# dependencies = [\"six>=1\"]\n# [tool.uv]\n# exclude-newer = \"2026-07-01T12:00:00Z\"\n# ///\n";

#[test]
fn a_builder_reads_what_was_declared() {
    let script = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"six>=1\"]\n# ///\n";
    let locked = lock("1.16");
    let node = node_lock("1.0.0", "");
    for files in [
        &[("requirements.txt", "six>=1 ; python_version > '3'\nmcp[cli]<2\n")][..],
        &[("requirements.txt", "six>=1"), ("requirements.lock", &locked)],
        &[("requirements.lock", &locked)],
        &[("scripts/a.py", script)],
        &[("scripts/a.py", DATED)],
        &[("package-lock.json", &node)],
        &[("requirements.txt", "six>=1"), ("package-lock.json", &node)],
        &[("requirements.lock", &locked), ("package-lock.json", &node)],
    ] {
        let of_skill = declared(files);
        let input = Input::of(&of_skill);
        let text = serde_json::to_string(&input).unwrap();
        let read: Input = serde_json::from_str(&text).unwrap();
        let built = read.declaration().unwrap();
        assert_eq!(built.lock, of_skill.lock, "{files:?}");
        assert_eq!(built.requires_python, of_skill.requires_python);
        assert_eq!(built.exclude_newer, of_skill.exclude_newer);
        let packages = |declared: &Declaration| declared.node.as_ref().map(|node| node.lock.packages().to_vec());
        assert_eq!(packages(&built), packages(&of_skill), "{files:?}");
        if built.lock.is_none() {
            assert_eq!(built.requirements_text(), of_skill.requirements_text());
        }
        assert_eq!(Input::of(&built).digest(), input.digest(), "{files:?}");
    }
}

fn key(files: &[(&str, &str)], constraints: &[&str], base: &str) -> EnvironmentKey {
    let request = Request {
        input: Input::of(&declared(files)),
        constraints: constraints.iter().map(|text| (*text).to_owned()).collect(),
        exclude_newer: None,
        base: base.to_owned(),
    };
    request.key().unwrap()
}

#[test]
fn the_moment_of_a_script_is_part_of_the_key_where_versions_are_chosen() {
    let of = |script: &str, more: &[(&str, &str)]| key(&[&[("a.py", script)], more].concat(), &[], "img@sha256:a");
    let without = DATED.replace("# exclude-newer = \"2026-07-01T12:00:00Z\"\n", "");
    let other = DATED.replace("T12", "T13");
    let same = DATED.replace("12:00:00Z", "14:00:00+02:00");
    assert_eq!(of(DATED, &[]), of(&same, &[]));
    assert_ne!(of(DATED, &[]), of(&without, &[]));
    assert_ne!(of(DATED, &[]), of(&other, &[]));
    let lock = lock("1.16");
    let locked = [("requirements.lock", lock.as_str())];
    assert_eq!(of(DATED, &locked), of(&without, &locked));
}

#[test]
fn a_key_changes_with_what_decides_and_with_nothing_else() {
    let (one, other) = (lock("1.16"), lock("1.17"));
    let open = [("requirements.txt", "six>=1")];
    let locked = [("requirements.lock", one.as_str())];
    let base = key(&locked, &[], "img@sha256:a");
    assert_eq!(base.as_str().len(), 32);
    for (what, same, found) in [
        (
            "a comment in the lock",
            true,
            key(&[("requirements.lock", &format!("# x\n{one}"))], &[], "img@sha256:a"),
        ),
        (
            "what the lock was made from",
            true,
            key(&[open[0], locked[0]], &[], "img@sha256:a"),
        ),
        (
            "constraints where a lock decides",
            true,
            key(&locked, &["six<2"], "img@sha256:a"),
        ),
        (
            "a constraint that excludes a version of the lock",
            false,
            key(&locked, &["six<1"], "img@sha256:a"),
        ),
        (
            "another version",
            false,
            key(&[("requirements.lock", &other)], &[], "img@sha256:a"),
        ),
        ("another base", false, key(&locked, &[], "img@sha256:b")),
        ("no lock", false, key(&open, &[], "img@sha256:a")),
    ] {
        assert_eq!(found == base, same, "{what}");
    }
    let free = key(&open, &[], "img@sha256:a");
    assert_ne!(
        free,
        key(&open, &["six<2"], "img@sha256:a"),
        "constraints choose versions"
    );
    assert_eq!(
        free,
        key(&[("requirements.txt", "# x\nsix >= 1\n")], &[], "img@sha256:a")
    );
}

/// Constraints are of Python, and a lock of Node is read for what it installs.
#[test]
fn a_key_holds_the_lock_of_node() {
    let one = lock("1.16");
    let open = [("requirements.txt", "six>=1")];
    let locked = [("requirements.lock", one.as_str())];
    let base = key(&locked, &[], "img@sha256:a");
    let (node, again) = (node_lock("1.0.0", ""), node_lock("1.0.0", "\"name\": \"other\","));
    let both = key(&[locked[0], ("package-lock.json", &node)], &[], "img@sha256:a");
    let alone = key(&[("package-lock.json", &node)], &[], "img@sha256:a");
    for (what, same, found, of) in [
        ("packages of Node", false, &both, &base),
        ("no packages of Python", false, &alone, &both),
        (
            "another writing of the lock",
            true,
            &key(&[("package-lock.json", &again)], &[], "img@sha256:a"),
            &alone,
        ),
        (
            "what the lock was made from",
            true,
            &key(
                &[
                    ("package.json", "{\"dependencies\": {\"@s/b\": \"*\"}}"),
                    ("package-lock.json", &node),
                ],
                &[],
                "img@sha256:a",
            ),
            &alone,
        ),
        (
            "constraints, which are of Python",
            true,
            &key(&[("package-lock.json", &node)], &["six<2"], "img@sha256:a"),
            &alone,
        ),
        (
            "another version of Node's",
            false,
            &key(&[("package-lock.json", &node_lock("1.0.1", ""))], &[], "img@sha256:a"),
            &alone,
        ),
        (
            "constraints where versions of Python are open",
            false,
            &key(&[open[0], ("package-lock.json", &node)], &["six<2"], "img@sha256:a"),
            &key(&[open[0], ("package-lock.json", &node)], &[], "img@sha256:a"),
        ),
    ] {
        assert_eq!(found == of, same, "{what}");
    }
}

#[test]
fn statuses_are_read_as_they_are_written_and_nothing_else_is() {
    let key = EnvironmentKey::from("a".repeat(32).as_str());
    let status = |state, image: Option<&str>| EnvironmentStatus {
        state,
        message: "why \"image\"".to_owned(),
        environment: image.map(|image| EnvironmentImage {
            image: image.to_owned(),
            home: "/opt/knack/packages/env-1".to_owned(),
        }),
        is_partial: false,
        since: 7,
        used: 8,
    };
    let digest = format!("r.example:5000/x@sha256:{}", "b".repeat(64));
    for (status, is_read) in [
        (status(State::Ready, Some(&digest)), true),
        (
            EnvironmentStatus {
                is_partial: true,
                ..status(State::Ready, Some(&digest))
            },
            true,
        ),
        (status(State::NoWheel, None), true),
        (status(State::Ready, None), false),
        (status(State::Ready, Some("r.example/x:latest")), false),
    ] {
        let statuses = EnvironmentStatuses(BTreeMap::from([(key.clone(), status)]));
        let read = EnvironmentStatuses::read(&statuses.lines());
        assert_eq!(read == statuses, is_read, "{statuses:?}");
        assert!(is_read || read.0.is_empty());
    }
    for (key, text) in [
        ("a", "{\"state\":\"Failed\"}"),
        (key.as_str(), "{\"state\":\"x\"}"),
        (key.as_str(), "{"),
    ] {
        let lines = BTreeMap::from([(key.to_owned(), text.to_owned())]);
        assert_eq!(
            EnvironmentStatuses::read(&lines),
            EnvironmentStatuses::default(),
            "{text}"
        );
    }
    for home in ["relative", "/a/../etc", "/a:b"] {
        let bad = EnvironmentImage {
            image: digest.clone(),
            home: home.to_owned(),
        };
        assert!(!bad.is_plausible(), "{home}");
    }
}

/// Keys of environments that are there already, made before packages of Node were built: they are not built again.
#[test]
fn a_request_without_packages_of_node_is_what_it_was() {
    let request = Request {
        input: Input::of(&declared(&[("requirements.txt", "six>=1")])),
        constraints: Vec::new(),
        exclude_newer: None,
        base: "img@sha256:a".to_owned(),
    };
    let text = serde_json::to_string(&request.input).unwrap();
    assert_eq!(text, "{\"requirements\":\"six>=1\\n\",\"lock\":null,\"python\":[]}");
    let before = hash(&["six>=1\n", ""]);
    assert_eq!(request.input.digest(), before);
    assert_eq!(
        request.key().unwrap().as_str(),
        &hash(&["1", &before, "", "img@sha256:a"])[..32]
    );
}
