//! Packages of Node: installed from a lock, refused where they are not what it says, and used by runs.

use std::time::Duration;

use knack::packages::{BuildError, BuildLimits, BuiltEnvironment};
use knack_packages::environment::Input;
use knack_packages::{Rules, State};
use serde_json::{Value, json};

use super::npm_index::{NpmServer, integrity, lock, package, tgz};
use super::skip::skip;
use super::{BuilderFixture, declared, open_folder_with, program};

pub(super) const NODE: &str = "/usr/bin/node";
const GREET: &str = "{\"dependencies\": {\"greet\": \"^1\"}}";

/// A fixture whose index of Node packages is at an address; it has none of Python.
fn world_at(npm: &str) -> BuilderFixture {
    let mut fixture = BuilderFixture::new("http://127.0.0.1:9/simple");
    npm.clone_into(&mut fixture.npm);
    fixture
}

/// A fixture with an index of these files.
pub(super) async fn fixture(files: &[(&str, &[u8])]) -> (BuilderFixture, NpmServer) {
    let server = NpmServer::serve(files).await;
    (world_at(&server.url), server)
}

pub(super) async fn build(
    fixture: &BuilderFixture,
    lock: &str,
    limits: BuildLimits,
) -> Result<BuiltEnvironment, BuildError> {
    let builder = fixture.builder(limits).await;
    builder
        .environment(&declared(&[("package-lock.json", lock)]), &|_| {})
        .await
}

pub(super) fn greet() -> Vec<u8> {
    package(&[
        (
            "package.json",
            "{\"name\": \"greet\", \"exports\": {\"require\": \"./index.cjs\", \"import\": \"./index.mjs\"}, \"scripts\": {\"postinstall\": \"touch /tmp/knack-node-ran\"}}",
        ),
        (
            "index.cjs",
            "exports.hello = (name) => 'hello ' + name + ' ' + require('deep').value;",
        ),
        (
            "index.mjs",
            "import deep from 'deep';\nexport const hello = (name) => 'bonjour ' + name + ' ' + deep.value;",
        ),
        ("data/text.txt", "data"),
    ])
}

pub(super) fn deep(value: u32) -> Vec<u8> {
    package(&[
        ("package.json", "{\"name\": \"deep\", \"main\": \"main.js\"}"),
        ("main.js", &format!("exports.value = {value};")),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_stand_where_the_lock_says_and_are_shared_by_equal_locks() {
    let (greet, inner, outer, native) = (greet(), deep(1), deep(2), deep(3));
    let (fixture, server) = fixture(&[
        ("greet/-/greet-1.0.0.tgz", &greet),
        ("deep/-/deep-1.0.0.tgz", &inner),
        ("@s/deep/-/deep-2.0.0.tgz", &outer),
    ])
    .await;
    let text = lock(&[
        (
            "node_modules/greet",
            "1.0.0",
            &greet,
            json!({"resolved": "https://elsewhere.invalid/greet/-/greet-1.0.0.tgz"}),
        ),
        ("node_modules/greet/node_modules/deep", "1.0.0", &inner, json!({})),
        ("node_modules/deep", "2.0.0", &outer, json!({"name": "@s/deep"})),
        (
            "node_modules/native",
            "1.0.0",
            &native,
            json!({"cpu": ["mips"], "optional": true}),
        ),
        (
            "node_modules/native/node_modules/below",
            "1.0.0",
            &native,
            json!({"optional": true}),
        ),
        ("node_modules/tool", "1.0.0", &native, json!({"dev": true})),
    ]);
    let built = build(&fixture, &text, BuildLimits::default()).await.unwrap();
    assert!(built.is_new);
    let names: Vec<String> = built
        .about
        .node
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    assert_eq!(names, ["@s/deep 2.0.0", "deep 1.0.0", "greet 1.0.0"]);
    let modules = built.environment.node_modules.clone().unwrap();
    let read = |path: &str| std::fs::read_to_string(modules.join(path)).unwrap();
    assert_eq!(read("greet/data/text.txt"), "data");
    assert_eq!(read("greet/node_modules/deep/main.js"), "exports.value = 1;");
    assert_eq!(read("deep/main.js"), "exports.value = 2;");
    assert!(!modules.join("native").exists() && !modules.join("tool").exists());
    assert!(std::fs::write(modules.join("greet/new"), "x").is_err() || rustix::process::geteuid().is_root());
    // Nothing of a package has run, and no other index was asked.
    assert!(!std::path::Path::new("/tmp/knack-node-ran").exists());
    assert_eq!(server.asked.lock().unwrap().len(), 3);
    drop(server);
    // Other members of the lock install nothing else.
    let same = text.replace("\"lockfileVersion\":3", "\"lockfileVersion\":2");
    assert_ne!(same, text);
    let again = build(&fixture, &same, BuildLimits::default()).await.unwrap();
    assert!(!again.is_new && again.environment.root == built.environment.root);
    // A builder of a cluster reads the same from its request.
    let asked = Input::of(&declared(&[("package-lock.json", &text)]));
    let request: Input = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
    let builder = fixture.builder(BuildLimits::default()).await;
    let there = builder
        .environment(&request.declaration().unwrap(), &|_| {})
        .await
        .unwrap();
    assert!(!there.is_new && there.environment.root == built.environment.root);
}

/// What an index answers of a package with one version.
fn about(name: &str, dependencies: &Value, file: &[u8]) -> String {
    let entry = json!({"name": name, "version": "1.2.0", "dependencies": dependencies,
        "dist": {"integrity": integrity(file), "tarball": format!("http://elsewhere.invalid/{name}/-/{name}-1.2.0.tgz")}});
    json!({"name": name, "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": entry}}).to_string()
}

/// Where a person names the skill: it works without a lock, and is the same every time, also for whom npm is not run.
#[tokio::test(flavor = "multi_thread")]
async fn versions_that_no_lock_fixes_are_chosen_once() {
    let greet = package(&[("package.json", "{\"name\": \"greet\", \"version\": \"1.2.0\"}")]);
    let about = about("greet", &json!({}), &greet);
    let (fixture, server) = fixture(&[("greet", about.as_bytes()), ("greet/-/greet-1.2.0.tgz", &greet)]).await;
    let builder = fixture.builder(BuildLimits::default()).await.choosing_node();
    for files in [
        &[("SKILL.md", "---\nname: x\npackages: {node: [\"greet@^1\"]}\n---\n")][..],
        &[("package.json", GREET)],
    ] {
        let declared = declared(files);
        assert!(declared.wants_environment() && !declared.is_refused(), "{declared:?}");
        let is_first = files[0].0 == "SKILL.md";
        assert_eq!(builder.present(&declared).await.unwrap().is_none(), is_first);
        let built = match builder.environment(&declared, &|_| {}).await {
            Err(error) if error.state == State::PackagesOff => {
                return skip("versions_that_no_lock_fixes_are_chosen_once", &error.text);
            }
            built => built.unwrap(),
        };
        assert_eq!(built.is_new, is_first);
        assert_eq!(built.about.node, [("greet".to_owned(), "1.2.0".to_owned())]);
        let modules = built.environment.node_modules.clone().unwrap();
        assert!(modules.join("greet/package.json").exists());
    }
    let asked = server.asked.lock().unwrap().len();
    assert_eq!(asked, 2, "npm asks once for the versions, and the file is fetched once");
    drop(server);
    let uploaded = declared(&[("package.json", GREET)]);
    let builder = fixture.builder(BuildLimits::default()).await;
    assert!(!builder.environment(&uploaded, &|_| {}).await.unwrap().is_new);
    is_refused_without_a_lock(&fixture).await;
}

async fn is_refused_without_a_lock(fixture: &BuilderFixture) {
    let rules = Rules::read(&[], true).unwrap();
    for chooses in [false, true] {
        let mut builder = fixture.builder_under(BuildLimits::default(), rules.clone()).await;
        if chooses {
            builder = builder.choosing_node();
        }
        let declared = declared(&[("package.json", GREET)]);
        let error = builder.environment(&declared, &|_| {}).await.unwrap_err();
        assert!(
            error.state == State::Refused && error.text.contains("knack skill lock"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_no_lock_fixes_are_refused_where_a_lock_is_required() {
    let (fixture, server) = fixture(&[]).await;
    is_refused_without_a_lock(&fixture).await;
    assert!(server.asked.lock().unwrap().is_empty());
}

/// What nobody has asked npm for, such as an upload, makes it ask nobody for anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_not_locked_by_itself() {
    let (fixture, server) = fixture(&[]).await;
    let builder = fixture.builder(BuildLimits::default()).await;
    let list = "---\nname: x\npackages: {node: [\"greet@^1\"]}\n---\n";
    for (file, text) in [("SKILL.md", list), ("package.json", GREET)] {
        let declared = declared(&[(file, text)]);
        let built = builder.environment(&declared, &|_| {}).await.unwrap_err();
        assert_eq!(builder.present(&declared).await.unwrap_err(), built);
        let is_told = built.text.contains(file) && built.text.contains("knack skill lock");
        assert!(built.state == State::Refused && is_told, "{built}");
    }
    assert!(server.asked.lock().unwrap().is_empty());
}

/// Neither those that a skill names, nor those that a package of the index names.
#[tokio::test(flavor = "multi_thread")]
async fn npm_follows_no_other_source_than_the_index() {
    let other = NpmServer::serve(&[]).await;
    for scheme in ["", "git+"] {
        let source = format!("{scheme}{}/evil.tgz", other.url);
        let text = json!({"dependencies": {"greet": "^1"}, "overrides": {"dep": source}}).to_string();
        let refused = declared(&[("package.json", &text)]);
        let said: Vec<String> = refused.findings.iter().map(ToString::to_string).collect();
        let is_told = said.iter().any(|text| text.contains("overrides: dep comes from"));
        assert!(refused.open_node.is_none() && is_told, "{said:?}");
        let about = about("greet", &json!({"dep": source}), b"x");
        let (fixture, _server) = fixture(&[("greet", about.as_bytes())]).await;
        let builder = fixture.builder(BuildLimits::default()).await.choosing_node();
        let open = declared(&[("package.json", GREET)]);
        let error = builder.environment(&open, &|_| {}).await.unwrap_err();
        if error.state == State::PackagesOff {
            return skip("npm_follows_no_other_source_than_the_index", &error.text);
        }
        let is_told = error.text.contains("EALLOW");
        assert!(error.state == State::Refused && is_told, "{error}");
    }
    assert!(other.asked.lock().unwrap().is_empty());
}

/// As uv, npm takes settings from a folder above, if that counts it among its workspaces: here its proxy, where nobody answers.
#[tokio::test(flavor = "multi_thread")]
async fn settings_above_the_folder_that_npm_works_in_have_no_say() {
    let greet = package(&[("package.json", "{\"name\": \"greet\", \"version\": \"1.2.0\"}")]);
    let about = about("greet", &json!({}), &greet);
    let (_, server) = fixture(&[("greet", about.as_bytes()), ("greet/-/greet-1.2.0.tgz", &greet)]).await;
    let folder = open_folder_with(&[
        ("with/SKILL.md", "---\nname: with\ndescription: d\n---\nText.\n"),
        ("with/package.json", GREET),
        (
            "shared/package.json",
            "{\"workspaces\": [\".tmp*\", \"store/work-*\"], \"dependencies\": {\"aaa\": \"1.0.0\"}}",
        ),
        (
            "shared/.npmrc",
            "proxy=http://127.0.0.1:9\nhttps-proxy=http://127.0.0.1:9\nfetch-retries=0\n",
        ),
    ]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (store, shared) = (path("shared/store"), path("shared"));
    let none = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
    ]
    .map(|name| (name, ""));
    let own = [
        ("NPM_CONFIG_REGISTRY", server.url.as_str()),
        ("KNACK_PACKAGES_DIR", store.as_str()),
        ("TMPDIR", shared.as_str()),
    ];
    for arguments in [
        &["skill", "packages", "--build", "with"][..],
        &["skill", "lock", "with"],
    ] {
        let output = program::knack(folder.path(), arguments, &[&none[..], &own].concat()).await;
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if told.contains("npm is not on PATH") || told.contains("cannot be kept from other sources") {
            return skip("settings_above_the_folder_that_npm_works_in_have_no_say", &told);
        }
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
    }
    let locked = std::fs::read_to_string(path("with/package-lock.json")).unwrap();
    assert!(locked.contains("greet") && !locked.contains("aaa"), "{locked}");
}

struct Row {
    what: &'static str,
    /// What the index has.
    file: Vec<u8>,
    /// Other members of the lock's entry.
    members: Value,
    state: State,
    part: &'static str,
}

fn row(what: &'static str, file: Vec<u8>, members: Value, state: State, part: &'static str) -> Row {
    Row {
        what,
        file,
        members,
        state,
        part,
    }
}

/// Files that hold what no package may.
fn bad_files() -> Vec<Row> {
    use tar::EntryType::{Char, Link, Regular, Symlink};
    let entry = |path: &str, kind, content: &[u8]| tgz(&[(path, kind, 0o644, content)]);
    let none = || json!({});
    let bomb = vec![0; 3 << 20];
    let many: Vec<String> = (0..60).map(|number| format!("package/f{number}")).collect();
    let many: Vec<(&str, tar::EntryType, u32, &[u8])> = many
        .iter()
        .map(|path| (path.as_str(), Regular, 0o644, &b""[..]))
        .collect();
    vec![
        row(
            "a path that leaves",
            entry("package/../../../../escaped", Regular, b"x"),
            none(),
            State::Refused,
            "holds . or ..",
        ),
        row(
            "a path from the root",
            entry("/tmp/knack-node-escaped", Regular, b"x"),
            none(),
            State::Refused,
            "the path is absolute",
        ),
        row(
            "a link",
            entry("package/a", Symlink, b"/etc"),
            none(),
            State::Refused,
            "is a link",
        ),
        row(
            "a hard link",
            entry("package/a", Link, b"/etc/passwd"),
            none(),
            State::Refused,
            "is a link",
        ),
        row(
            "a device",
            entry("package/a", Char, b""),
            none(),
            State::Refused,
            "a special file",
        ),
        row(
            "a link and a file through it",
            tgz(&[
                ("package/a", Symlink, 0o777, b"/tmp"),
                ("package/a/knack-node-escaped", Regular, 0o644, b"x"),
            ]),
            none(),
            State::Refused,
            "is a link",
        ),
        row(
            "a file twice",
            tgz(&[("package/a", Regular, 0o644, b"1"), ("package/a", Regular, 0o644, b"2")]),
            none(),
            State::Refused,
            "appears twice",
        ),
        row(
            "a file that is a folder",
            tgz(&[
                ("package/a", Regular, 0o644, b"1"),
                ("package/a/b", Regular, 0o644, b"2"),
            ]),
            none(),
            State::Refused,
            "entry \"package/a/b\": ",
        ),
        row(
            "many bytes",
            tgz(&[("package/bomb", Regular, 0o644, &bomb)]),
            none(),
            State::TooLarge,
            "more",
        ),
        row("many files", tgz(&many), none(), State::TooLarge, "more files"),
    ]
}

/// Answers that are not what the lock says, and locks that are not followed.
fn bad_answers() -> Vec<Row> {
    let none = || json!({});
    let foreign = json!({"integrity": format!("sha512-{}==", "A".repeat(86))});
    vec![
        row(
            "another file",
            greet(),
            foreign,
            State::HashMismatch,
            "is not the one of package-lock.json",
        ),
        row(
            "no archive",
            b"<!DOCTYPE html>".to_vec(),
            none(),
            State::Refused,
            "broken tar",
        ),
        row(
            "another machine",
            greet(),
            json!({"cpu": ["mips"]}),
            State::NoWheel,
            "it does not support",
        ),
        row(
            "an index that fails",
            Vec::new(),
            none(),
            State::IndexUnreachable,
            "503",
        ),
        row(
            "a file that the index has not",
            greet(),
            json!({"resolved": "https://x/a/-/other-1.0.0.tgz"}),
            State::PackageNotFound,
            "has no file a/-/other-1.0.0.tgz",
        ),
        row(
            "a script",
            greet(),
            json!({"hasInstallScript": true}),
            State::Refused,
            "needs an install script",
        ),
        row(
            "version control",
            greet(),
            json!({"resolved": "git+ssh://git@x/a.git"}),
            State::Refused,
            "comes from",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_the_lock_says_has_its_own_error_and_leaves_nothing() {
    let limits = BuildLimits {
        bytes: 2 << 20,
        files: 50,
        ..BuildLimits::default()
    };
    for Row {
        what,
        file,
        members,
        state,
        part,
    } in bad_files().into_iter().chain(bad_answers())
    {
        let (fixture, _server) = fixture(&[("a/-/a-1.0.0.tgz", &file)]).await;
        let text = lock(&[("node_modules/a", "1.0.0", &file, members)]);
        let error = build(&fixture, &text, limits).await.unwrap_err();
        assert_eq!(error.state, state, "{what}: {error}");
        assert!(
            error.text.contains(part) && error.text.contains('a'),
            "{what}: {part} in {error}"
        );
        let left: Vec<_> = std::fs::read_dir(fixture.store().root())
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        assert!(!fixture.folder.path().join("escaped").exists(), "{what}");
        assert!(!std::path::Path::new("/tmp/knack-node-escaped").exists(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_never_answers_ends_with_the_time_of_a_build() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = world_at(&format!("http://{}/", silent.local_addr().unwrap()));
    let limits = BuildLimits {
        time: Duration::from_secs(1),
        ..BuildLimits::default()
    };
    let text = lock(&[("node_modules/a", "1.0.0", b"x", json!({}))]);
    let error = build(&fixture, &text, limits).await.unwrap_err();
    assert_eq!(error.state, State::TimedOut, "{error}");
    // One that is not there.
    let fixture = BuilderFixture::new("http://127.0.0.1:9/simple");
    let error = build(&fixture, &text, BuildLimits::default()).await.unwrap_err();
    assert_eq!(error.state, State::IndexUnreachable, "{error}");
}
