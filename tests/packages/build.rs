//! What a build makes, and what it refuses.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use knack::packages::BuildLimits;
use knack_packages::{Rules, State, declare};
use knack_skill::model::AskedPackages;
use rustix::process::Signal;

use super::index::{Index, sha256, wheel};
use super::program::folder;
use super::{BuilderFixture, declared, skill_files};

fn good() -> (String, Vec<u8>) {
    wheel("good", "1.0", "", &[("good/__init__.py", "VALUE = 7\n")])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_environment_is_made_for_one_lock_however_many_ask() {
    let (fixture, index) = BuilderFixture::with(vec![good()]).await;
    let builder = fixture.builder(BuildLimits::default()).await;
    let one = declared(&[("requirements.txt", "good")]);
    let two = declared(&[("SKILL.md", "---\npackages: {python: [Good]}\n---\n")]);
    let quiet = |_: &str| {};
    let (first, second) = tokio::join!(builder.environment(&one, &quiet), builder.environment(&two, &quiet));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.environment.root, second.environment.root);
    assert!(first.is_new != second.is_new, "one of them built it");
    assert_eq!(first.about.packages, [("good".to_owned(), "1.0".to_owned())]);
    // Neither versions nor files are asked for again.
    drop(index);
    assert!(!builder.environment(&one, &quiet).await.unwrap().is_new);
    assert!(builder.present(&two).await.unwrap().is_some());
    let left: Vec<_> = std::fs::read_dir(fixture.store().root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().starts_with("new-")),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_has_a_state_of_its_own() {
    let source_only = ("source-1.0.tar.gz".to_owned(), b"no archive".to_vec());
    let (fixture, _index) = BuilderFixture::with(vec![
        good(),
        source_only,
        wheel("one", "1.0", "Requires-Dist: shared==1.0\n", &[]),
        wheel("two", "1.0", "Requires-Dist: shared==2.0\n", &[]),
        wheel("shared", "1.0", "", &[]),
        wheel("shared", "2.0", "", &[]),
    ])
    .await;
    let lock_of_another_file = format!("good==1.0 --hash=sha256:{}\n", "0".repeat(64));
    for (files, state, part) in [
        (&[("requirements.txt", "absent")][..], State::PackageNotFound, "absent"),
        (&[("requirements.txt", "good==9")], State::PackageNotFound, "good==9"),
        (&[("requirements.txt", "source")], State::NoWheel, "source"),
        (&[("requirements.txt", "one\ntwo")], State::Conflict, "shared"),
        (
            &[("requirements.lock", &lock_of_another_file)],
            State::HashMismatch,
            "good",
        ),
        (&[("requirements.txt", "-e .")], State::Refused, "requirements.txt:1"),
        (
            &[("a.py", "# /// script\n# requires-python = \">=99\"\n# ///\n")],
            State::Refused,
            "a.py requires Python >=99",
        ),
    ] {
        let error = fixture.build(files).await.unwrap_err();
        assert_eq!(error.state, state, "{files:?}: {error}");
        assert!(error.text.contains(part), "{part} in {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_gone_is_reported_and_nothing_is_left() {
    let (fixture, index) = BuilderFixture::with(vec![good()]).await;
    drop(index);
    let error = fixture.build(&[("requirements.txt", "good")]).await.unwrap_err();
    assert_eq!(error.state, State::IndexUnreachable, "{error}");
    // One that accepts and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = BuilderFixture::new(&format!("http://{}/simple", silent.local_addr().unwrap()));
    let limits = BuildLimits {
        time: Duration::from_secs(2),
        ..BuildLimits::default()
    };
    let builder = fixture.builder(limits).await;
    let error = builder
        .environment(&declared(&[("requirements.txt", "good")]), &|_| {})
        .await
        .unwrap_err();
    assert_eq!(error.state, State::TimedOut, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_package_runs_while_it_is_installed() {
    let marker = tempfile::tempdir().unwrap();
    let path = marker.path().join("ran");
    let line = format!("import os; open({:?}, 'w').close()\n", path.display().to_string());
    let (fixture, _index) = BuilderFixture::with(vec![wheel(
        "eager",
        "1.0",
        "",
        &[("eager.pth", &line), ("eager.py", &line), ("sitecustomize.py", &line)],
    )])
    .await;
    let built = fixture.build(&[("requirements.txt", "eager")]).await.unwrap();
    assert!(!path.exists());
    // The files are there and would do so: a proof that the test can fail.
    let ran = std::process::Command::new(&built.environment.python)
        .args(["-c", "0"])
        .status()
        .unwrap();
    assert!(ran.success() && path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wheel_that_names_places_outside_writes_nothing_there() {
    for escaping in [
        "../../../../../../escaped.py",
        "/tmp/knack-escaped.py",
        "evil-1.0.data/data/../../../../../escaped.py",
    ] {
        let (fixture, _index) = BuilderFixture::with(vec![wheel(
            "evil",
            "1.0",
            "",
            &[(escaping, "x = 1\n"), ("evil.py", "")],
        )])
        .await;
        let _ = fixture.build(&[("requirements.txt", "evil")]).await;
        let mut open = vec![fixture.folder.path().to_path_buf()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let entry = entry.unwrap();
                let inside = folder.to_string_lossy().contains("/env-");
                assert!(
                    inside || entry.file_name() != "escaped.py",
                    "{}",
                    entry.path().display()
                );
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                }
            }
        }
        assert!(!std::path::Path::new("/tmp/knack-escaped.py").exists());
        for above in fixture.folder.path().ancestors() {
            assert!(!above.join("escaped.py").exists(), "{}", above.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_and_numbers_are_bounded() {
    let large = "x".repeat(3 << 20);
    let many: Vec<(String, &str)> = (0..60).map(|number| (format!("many/f{number}.py"), "")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (fixture, _index) = BuilderFixture::with(vec![
        good(),
        wheel("large", "1.0", "", &[("large.txt", &large)]),
        wheel("many", "1.0", "", &many),
    ])
    .await;
    let limits = BuildLimits {
        bytes: 2 << 20,
        files: 50,
        packages: 1,
        ..BuildLimits::default()
    };
    let builder = fixture.builder(limits).await;
    for (name, part) in [
        ("large", "2 MiB"),
        ("many", "50 files"),
        ("good\nlarge", "2 packages, more than 1"),
    ] {
        let error = builder
            .environment(&declared(&[("requirements.txt", name)]), &|_| {})
            .await
            .unwrap_err();
        assert_eq!(error.state, State::TooLarge, "{name}: {error}");
        assert!(error.text.contains(part), "{part} in {error}");
    }
    assert!(
        builder
            .environment(&declared(&[("requirements.txt", "good")]), &|_| {})
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_installed_as_it_is_and_another_one_is_another_environment() {
    let (old, new) = (good(), wheel("good", "2.0", "", &[("good.py", "")]));
    let lock = format!("good==1.0 --hash=sha256:{}\n", sha256(&old.1));
    let (fixture, _index) = BuilderFixture::with(vec![old, new]).await;
    let locked = fixture
        .build(&[("requirements.txt", "good"), ("requirements.lock", &lock)])
        .await
        .unwrap();
    let free = fixture.build(&[("requirements.txt", "good")]).await.unwrap();
    assert_eq!(locked.about.packages[0].1, "1.0");
    assert_eq!(free.about.packages[0].1, "2.0");
    assert_ne!(locked.environment.root, free.environment.root);
    // What a running knack uses stays.
    let store = fixture.store();
    drop(free);
    let pruned = store.prune(Duration::ZERO).unwrap();
    let freed: Vec<bool> = pruned.iter().map(|one| one.freed.is_some()).collect();
    assert_eq!(freed.iter().filter(|freed| **freed).count(), 1, "{pruned:?}");
    assert!(locked.environment.python.exists());
    drop(locked);
    assert_eq!(
        store.prune(Duration::from_hours(1)).unwrap(),
        [],
        "it was used just now"
    );
    assert_eq!(store.prune(Duration::ZERO).unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_declares_nothing_by_an_empty_file_gets_an_empty_environment() {
    let index = Index::serve(Vec::new()).await;
    let fixture = BuilderFixture::new(&index.url);
    let built = fixture
        .build(&[("requirements.txt", "# none\n"), ("a.py", "import numpy")])
        .await
        .unwrap();
    assert!(built.about.packages.is_empty() && built.environment.python.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_are_compiled_when_they_are_installed_and_tests_of_packages_are_not() {
    let (fixture, _index) = BuilderFixture::with(vec![wheel(
        "mixed",
        "1.0",
        "",
        &[
            ("mixed/__init__.py", "x = 1\n"),
            ("mixed/broken.py", "def\n"),
            ("mixed/tests/a.py", "x = 1\n"),
            ("mixed/testsuite.py", "x = 1\n"),
        ],
    )])
    .await;
    let built = fixture.build(&[("requirements.txt", "mixed")]).await.unwrap();
    let code = |path: &str| {
        let question = format!("import importlib.util as u; print(u.cache_from_source({path:?}))");
        let output = std::process::Command::new(&built.environment.python)
            .args(["-c", &question])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let site = std::fs::read_dir(built.environment.root.join("lib"))
        .unwrap()
        .next()
        .unwrap();
    let site = site.unwrap().path().join("site-packages");
    let is_compiled = |module: &str| std::path::Path::new(&code(site.join(module).to_str().unwrap())).exists();
    for (module, expected) in [
        ("mixed/__init__.py", true),
        ("mixed/testsuite.py", true),
        ("mixed/broken.py", false),
        ("mixed/tests/a.py", false),
    ] {
        assert_eq!(is_compiled(module), expected, "{module}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_constrains_versions_and_demands_locks() {
    let (old, new) = (good(), wheel("good", "2.0", "", &[("good.py", "")]));
    let lock = format!("good==1.0 --hash=sha256:{}\n", sha256(&old.1));
    let lock_for_all = format!(
        "good==1.0 ; python_full_version < '3' --hash=sha256:{}\ngood==2.0 ; python_full_version >= '3' --hash=sha256:{}\n",
        sha256(&old.1),
        sha256(&new.1)
    );
    let (fixture, _index) = BuilderFixture::with(vec![old, new]).await;
    let under = async |constraints: &[&str], require_lock, files: &[(&str, &str)]| {
        let constraints: Vec<String> = constraints.iter().map(|text| (*text).to_owned()).collect();
        let rules = Rules::read(&constraints, require_lock).unwrap();
        let builder = fixture.builder_under(BuildLimits::default(), rules).await;
        let built = builder.environment(&declared(files), &|_| {}).await;
        built.map(|built| built.about.packages[0].1.clone())
    };
    let (open, locked) = (
        [("requirements.txt", "good")],
        [("requirements.txt", "good"), ("requirements.lock", &lock)],
    );
    // Versions that were chosen under other constraints are not taken.
    assert_eq!(under(&[], false, &open).await.unwrap(), "2.0");
    assert_eq!(under(&["good<2"], false, &open).await.unwrap(), "1.0");
    assert_eq!(under(&[], false, &open).await.unwrap(), "2.0");
    assert_eq!(under(&["good<2", "absent>9"], true, &locked).await.unwrap(), "1.0");
    // Of a lock for several Pythons the version for this one counts.
    let for_all = [("requirements.lock", lock_for_all.as_str())];
    assert_eq!(under(&["good>=2"], true, &for_all).await.unwrap(), "2.0");
    for (constraints, require_lock, files, state, part) in [
        (
            &["good>=2"][..],
            false,
            &locked[..],
            State::Conflict,
            "good==1.0 is pinned",
        ),
        (&["good<2"], false, &for_all[..], State::Conflict, "good==2.0 is pinned"),
        (&["good>=3"], false, &open[..], State::PackageNotFound, "good"),
        (&[], true, &open, State::Refused, "knack skill lock"),
    ] {
        let error = under(constraints, require_lock, files).await.unwrap_err();
        assert_eq!(error.state, state, "{constraints:?}: {error}");
        assert!(error.text.contains(part), "{part} in {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_a_manifest_is_installed_instead_of_what_the_files_declare() {
    let (fixture, _index) = BuilderFixture::with(vec![good()]).await;
    let builder = fixture.builder(BuildLimits::default()).await;
    let files = skill_files(&[("requirements.txt", "absent")]);
    let asked = AskedPackages {
        python: vec!["good".to_owned()],
        ..AskedPackages::default()
    };
    let built = builder
        .environment(&declare(&files, Some(&asked)), &|_| {})
        .await
        .unwrap();
    assert_eq!(built.about.packages, [("good".to_owned(), "1.0".to_owned())]);
}

/// A program that never ends stands for `uv`; a signal to the command ends it, and removes the folder that it works in.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_installer_and_removes_its_folder() {
    let fixture = BuilderFixture::new("http://127.0.0.1:9/simple");
    let skill = "---\nname: with\ndescription: d\npackages: {python: [good]}\n---\nText.\n";
    let folder = folder(&[("skills/with/SKILL.md", skill)]);
    let path = |name: &str| folder.path().join(name);
    let (uv, note, begun) = (path("uv"), path("note"), path("begun"));
    let script = format!("#!/bin/sh\nprintf '%s\\n' $$ \"$PWD\" > {note:?}\nmv {note:?} {begun:?}\nexec sleep 600\n");
    std::fs::write(&uv, script).unwrap();
    std::fs::set_permissions(&uv, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, signal) in [
        (&["skill", "lock", "skills/with"][..], Signal::INT),
        (&["skill", "packages", "--build", "skills/with"], Signal::TERM),
        (
            &["skill", "run", "skills/with", "--", "python3", "-c", "1"],
            Signal::TERM,
        ),
    ] {
        let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_knack"))
            .args(arguments)
            .current_dir(folder.path())
            .env("KNACK_RUNNER", super::runner::binary())
            .env("KNACK_UV", &uv)
            .env("KNACK_PACKAGES_DIR", fixture.folder.path().join("store"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until("the installer begins", || begun.exists()).await;
        let said = std::fs::read_to_string(&begun).unwrap();
        std::fs::remove_file(&begun).unwrap();
        let (pid, work) = said.trim_end().split_once('\n').unwrap();
        let knack = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(knack, signal).unwrap();
        let ended = tokio::time::timeout(SOON, child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("stopped by a signal"), "{arguments:?}: {told}");
        assert!(!Path::new(work).exists(), "{arguments:?} left {work}");
        let command = format!("/proc/{pid}/cmdline");
        // Whoever adopts it may take a while to collect it; an ended process has no command line.
        until("the installer ends", || {
            std::fs::read(&command).is_ok_and(|line| line.is_empty()) || !Path::new(&command).exists()
        })
        .await;
    }
}

/// Longest wait for what comes at once.
const SOON: Duration = Duration::from_mins(1);

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Markers that exclude this Python and this system leave nothing to install, which is no error.
#[tokio::test(flavor = "multi_thread")]
async fn requirements_for_other_pythons_and_systems_make_an_environment_without_packages() {
    // Nothing listens there: nothing is asked for either.
    let fixture = BuilderFixture::new("http://127.0.0.1:9/simple");
    for files in [
        &[(
            "requirements.txt",
            "tomli>=1; python_version < '3'\ncolorama; sys_platform == 'win32'\n",
        )][..],
        &[("requirements.txt", "# none\n"), ("requirements.lock", "# none\n")],
        &[
            ("requirements.txt", "tomli>=1; python_version < '3'\n"),
            ("requirements.lock", "# Written by knack skill lock\n"),
        ],
    ] {
        let built = fixture.build(files).await.unwrap();
        assert_eq!(built.about.packages, [], "{files:?}");
    }
}
