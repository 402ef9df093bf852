//! Bad input, as one table: nothing of it runs, nothing is left, the error names what is wrong, and what was there before
//! serves on.

use knack::packages::{BaseInterpreter, BuildError, BuildLimits, Builder, Uv};
use knack_packages::{Rules, State};

use super::index::{Index, sha256, wheel};
use super::skip::skip;
use super::{BuilderFixture, declared, sandbox_user, uv_path};

/// What nobody's sandbox needs and each row would make if its code ran or its path escaped.
const MARKER: &str = "knack-bad-input-ran";

struct Row {
    what: &'static str,
    files: Vec<(&'static str, String)>,
    state: State,
    /// What the error says: the object, or what to do.
    parts: &'static [&'static str],
}

fn row(what: &'static str, files: &[(&'static str, &str)], state: State, parts: &'static [&'static str]) -> Row {
    let files = files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    Row {
        what,
        files,
        state,
        parts,
    }
}

fn block(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("# {line}\n")).collect();
    format!("# /// script\n{lines}# ///\nimport shared\n")
}

/// Locks that hold for another interpreter, and one of another tool.
fn locks_of_others() -> Vec<Row> {
    let pylock = |environment: &str| {
        let wheels = format!(
            "[{{name = \"good.whl\", hashes = {{sha256 = \"{}\"}}}}]",
            "0".repeat(64)
        );
        format!(
            "lock-version = \"1.0\"\nenvironments = [\"{environment}\"]\n[[packages]]\nname = \"good\"\nversion = \"1.0\"\nwheels = {wheels}\n"
        )
    };
    let of_python = pylock("python_version == '3.1'");
    let of_machine = pylock("platform_machine == 'riscv64'");
    vec![
        row(
            "a lock for another Python",
            &[("pylock.toml", &of_python)],
            State::Refused,
            &[
                "environments of pylock.toml (python_version == \"3.1\") has none for Python 3.",
                "lock the packages for it too",
            ],
        ),
        row(
            "a lock for another machine",
            &[("pylock.toml", &of_machine)],
            State::Refused,
            &["environments of pylock.toml (platform_machine == \"riscv64\") has none for Python 3."],
        ),
        row(
            "the lock of another tool alone",
            &[("uv.lock", "version = 1")],
            State::Refused,
            &[
                "uv.lock: ",
                "nothing else declares packages",
                "uv export --format pylock.toml",
            ],
        ),
    ]
}

/// What is refused before anybody asks an index.
fn refused() -> Vec<Row> {
    let many: String = (0..500).map(|number| format!("package-{number}\n")).collect();
    let (one, two) = (
        block("dependencies = ['shared==1.0']"),
        block("dependencies = ['shared==2.0']"),
    );
    let old = block("requires-python = '<3'\ndependencies = ['good']");
    vec![
        row(
            "two scripts that exclude each other",
            &[("scripts/a.py", &one), ("scripts/b.py", &two)],
            State::Refused,
            &["scripts/b.py", "shared==1.0 in scripts/a.py conflict"],
        ),
        row(
            "500 requirements",
            &[("requirements.txt", &many)],
            State::Refused,
            &["requirements.txt: 500 requirements, more than 200"],
        ),
        row(
            "an address",
            &[(
                "requirements.txt",
                "good\ngood @ https://user:secret@elsewhere.example/good-1.0.whl",
            )],
            State::Refused,
            &["requirements.txt:2: ", "is a URL"],
        ),
        row(
            "version control",
            &[("requirements.txt", "git+ssh://git@elsewhere.example/good.git")],
            State::Refused,
            &["requirements.txt:1: "],
        ),
        row(
            "a folder beside it",
            &[("requirements.txt", "./vendored")],
            State::Refused,
            &["requirements.txt:1: "],
        ),
        row(
            "a folder that would be built",
            &[
                ("requirements.txt", "-e ."),
                ("setup.py", "open('/tmp/knack-bad-input-ran', 'w')"),
            ],
            State::Refused,
            &["requirements.txt:1: \"-e\" builds a folder"],
        ),
        row(
            "another index",
            &[(
                "requirements.txt",
                "--index-url https://user:secret@elsewhere.example/simple\ngood",
            )],
            State::Refused,
            &[
                "requirements.txt:1: \"--index-url\" names another index",
                "remove the line",
            ],
        ),
        row(
            "another index in a script block",
            &[(
                "a.py",
                &block("dependencies = ['good']\n[tool.uv]\nindex-url = 'https://user:secret@elsewhere.example'"),
            )],
            State::Refused,
            &["a.py:"],
        ),
        row(
            "files that name each other",
            &[("requirements.txt", "-r more.txt"), ("more.txt", "-r requirements.txt")],
            State::Refused,
            &["requirements.txt:1: \"-r\" names another file", "write its lines here"],
        ),
        row(
            "a script for another Python",
            &[("a.py", &old)],
            State::Refused,
            &["a.py requires Python <3"],
        ),
        row(
            "a lock without hashes",
            &[("requirements.txt", "good"), ("requirements.lock", "good==1.0")],
            State::Refused,
            &["requirements.lock:1: good has no hash", "knack skill lock"],
        ),
    ]
}

/// What only an index can tell; `elsewhere` is the hash of a wheel for another platform.
fn unavailable(elsewhere: &str) -> Vec<Row> {
    let wrong = format!("good==1.0 --hash=sha256:{}\n", "0".repeat(64));
    let other = format!("windows==1.0 --hash=sha256:{elsewhere}\n");
    let (low, high) = (
        block("dependencies = ['shared<2']"),
        block("dependencies = ['shared>=2']"),
    );
    vec![
        row(
            "an unknown package",
            &[("requirements.txt", "absent")],
            State::PackageNotFound,
            &["absent"],
        ),
        row(
            "an unknown version",
            &[("requirements.txt", "good==9")],
            State::PackageNotFound,
            &["good==9"],
        ),
        row(
            "sources alone",
            &[("requirements.txt", "source")],
            State::NoWheel,
            &["source"],
        ),
        row(
            "wheels for another platform alone",
            &[("requirements.txt", "windows")],
            State::NoWheel,
            &["windows"],
        ),
        row(
            "a lock for another platform",
            &[("requirements.lock", &other)],
            State::NoWheel,
            &["windows"],
        ),
        row(
            "a file that is not the locked one",
            &[("requirements.lock", &wrong)],
            State::HashMismatch,
            &["good"],
        ),
        row(
            "two scripts whose versions have nothing in common",
            &[("a.py", &low), ("b.py", &high)],
            State::Conflict,
            &["declared in a.py, b.py: ", "shared<2", "shared>=2"],
        ),
        row(
            "a package for another Python",
            &[("requirements.txt", "newer")],
            State::Refused,
            &["newer", "requires Python >=99"],
        ),
        row(
            "a file that is another package",
            &[("requirements.txt", "alias")],
            State::Failed,
            &["alias", "impostor"],
        ),
        row(
            "more bytes than are allowed",
            &[("requirements.txt", "bomb")],
            State::TooLarge,
            &["8 MiB"],
        ),
        row(
            "a file that is no wheel",
            &[("requirements.txt", "broken")],
            State::Failed,
            &["broken"],
        ),
    ]
}

/// Names of what stands in the store, apart from files of locks.
fn kept(fixture: &BuilderFixture) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.store().root()).unwrap();
    let names = entries.map(|entry| entry.unwrap());
    let folders = names.filter(|entry| entry.file_type().unwrap().is_dir() && entry.file_name() != "locks");
    folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_has_its_own_error_leaves_nothing_and_stops_nothing() {
    let bomb = "0".repeat(64 << 20);
    let elsewhere = wheel("windows", "1.0", "", &[]).1;
    let impostor = wheel("impostor", "1.0", "", &[]).1;
    let ran = format!("open('/tmp/{MARKER}', 'w')\n");
    let (fixture, _index) = BuilderFixture::with(vec![
        wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")]),
        wheel("shared", "1.0", "", &[]),
        wheel("shared", "2.0", "", &[]),
        wheel("newer", "1.0", "Requires-Python: >=99\n", &[]),
        wheel(
            "bomb",
            "1.0",
            "",
            &[("bomb.txt", &bomb), ("bomb.pth", &format!("import os; {ran}"))],
        ),
        ("alias-1.0-py3-none-any.whl".to_owned(), impostor),
        ("windows-1.0-cp311-cp311-win_amd64.whl".to_owned(), elsewhere.clone()),
        ("source-1.0.tar.gz".to_owned(), b"no archive".to_vec()),
        ("broken-1.0-py3-none-any.whl".to_owned(), b"no archive".to_vec()),
    ])
    .await;
    let limits = BuildLimits {
        bytes: 8 << 20,
        ..BuildLimits::default()
    };
    let builder = fixture.builder(limits).await;
    let good = declared(&[("requirements.txt", "good")]);
    let before = builder.environment(&good, &|_| {}).await.unwrap();
    let only = kept(&fixture);
    assert_eq!(only.len(), 1, "{only:?}");
    let mut wrong = Vec::new();
    for Row {
        what,
        files,
        state,
        parts,
    } in refused()
        .into_iter()
        .chain(locks_of_others())
        .chain(unavailable(&sha256(&elsewhere)))
    {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let error = builder.environment(&declared(&files), &|_| {}).await.unwrap_err();
        let is_told = error.state == state && parts.iter().all(|part| error.text.contains(part));
        if !is_told || error.text.contains("secret") || kept(&fixture) != only {
            wrong.push(format!(
                "{what}: expected {state} with {parts:?}, got {error}; kept {:?}",
                kept(&fixture)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!std::path::Path::new("/tmp").join(MARKER).exists());
    // The one that was there before is used as before, and by others.
    let after = builder.environment(&good, &|_| {}).await.unwrap();
    assert!(!after.is_new && after.environment.root == before.environment.root);
}

/// A file system of 4 MiB for the store, as far as this user may make one.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: &std::path::Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m,mode=0755", "tmpfs"])
            .arg(at)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_space_is_reported_and_what_was_there_serves_on() {
    // Noise, so that no layer of compression helps.
    let mut state = 1_u64;
    let noise: String = (0..6 << 20)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from(state >> 57).unwrap_or_default() % 90)
        })
        .collect();
    let (fixture, _index) = BuilderFixture::with(vec![
        wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")]),
        wheel("large", "1.0", "", &[("large.txt", &noise)]),
    ])
    .await;
    let Some(_small) = Small::mount(&fixture.folder.path().join("store")) else {
        return skip(
            "a_disk_without_space_is_reported_and_what_was_there_serves_on",
            "this user cannot mount a file system",
        );
    };
    let good = fixture.build(&[("requirements.txt", "good")]).await.unwrap();
    let error = fixture.build(&[("requirements.txt", "large")]).await.unwrap_err();
    assert_eq!(error.state, State::TooLarge, "{error}");
    assert!(error.text.to_lowercase().contains("no space left"), "{error}");
    assert_eq!(kept(&fixture).len(), 1);
    let again = fixture.build(&[("requirements.txt", "good")]).await.unwrap();
    assert!(!again.is_new && good.environment.python.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_runs_use_is_not_removed_and_one_that_vanished_is_made_again() {
    let (fixture, _index) = BuilderFixture::with(vec![wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")])]).await;
    let files = [("requirements.txt", "good")];
    let first = fixture.build(&files).await.unwrap();
    let pruned = fixture.store().prune(std::time::Duration::ZERO).unwrap();
    assert!(pruned.iter().all(|one| one.freed.is_none()) && first.environment.python.exists());
    // Somebody removes it by hand, against all rules: the next one is made anew, at the same place.
    let mut open = vec![first.environment.root.clone()];
    while let Some(folder) = open.pop() {
        let writable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&folder, writable).unwrap();
        let below = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        open.extend(
            below
                .filter(|entry| entry.file_type().unwrap().is_dir())
                .map(|entry| entry.path()),
        );
    }
    std::fs::remove_dir_all(&first.environment.root).unwrap();
    let second = fixture.build(&files).await.unwrap();
    assert!(second.is_new && second.environment.root == first.environment.root);
    assert!(second.environment.python.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_two_indexes_have_is_taken_from_the_first_alone() {
    // Somebody published the name of a private package, with a higher version, on the index that is mirrored.
    let (fixture, _mirror) =
        BuilderFixture::with(vec![wheel("shared", "9.0", "", &[]), wheel("public", "1.0", "", &[])]).await;
    let private = Index::serve(vec![wheel("shared", "1.0", "", &[])]).await;
    let build = async |text: &str| {
        let variables = [
            ("UV_INDEX", private.url.as_str()),
            ("UV_DEFAULT_INDEX", fixture.url.as_str()),
            ("HOME", fixture.folder.path().to_str().unwrap()),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let uv = Uv::new(uv_path(), variables.into_iter());
        let base = BaseInterpreter::of(std::path::Path::new("/usr/bin/python3"), sandbox_user())
            .await
            .unwrap();
        let no_node = Err(BuildError::new(State::PackagesOff, "no packages of Node here"));
        let builder = Builder::new(
            fixture.store(),
            base,
            uv,
            no_node,
            BuildLimits::default(),
            Rules::default(),
        );
        builder
            .environment(&declared(&[("requirements.txt", text)]), &|_| {})
            .await
    };
    let built = build("shared\npublic").await.unwrap();
    let packages = [("public", "1.0"), ("shared", "1.0")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    assert_eq!(built.about.packages, packages);
    let error = build("shared>=9").await.unwrap_err();
    assert_eq!(error.state, State::PackageNotFound, "{error}");
}
