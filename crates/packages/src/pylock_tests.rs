use super::*;
use crate::declaration::Source;
use crate::declare::declare;
use crate::fixture::files;
use crate::lock::LOCK_FILE;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn wheel(name: &str, hash: &str) -> String {
    format!("{{url = \"https://elsewhere.example/{name}\", hashes = {{sha256 = \"{hash}\"}}}}")
}

fn package(name: &str, more: &str) -> String {
    format!("[[packages]]\nname = \"{name}\"\n{more}\n")
}

fn good(name: &str) -> String {
    let wheels = wheel("x.whl", A);
    package(name, &format!("version = \"1.0\"\nwheels = [{wheels}]"))
}

fn lock(packages: &[String]) -> String {
    format!("lock-version = \"1.0\"\ncreated-by = \"uv\"\n{}", packages.concat())
}

fn texts(text: &str) -> Vec<String> {
    read(text.as_bytes())
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn versions_markers_and_hashes_of_wheels_are_those_of_a_lock_in_pips_format() {
    let text = lock(&[
        package(
            "NumPy",
            &format!(
                "version = \"2.0\"\nmarker = \"python_version < '3.12'\"\nindex = \"https://elsewhere.example/simple\"\nwheels = [\n  {},\n  {},\n]\n[packages.sdist]\nurl = \"https://elsewhere.example/numpy.tar.gz\"\nhashes = {{sha256 = \"{A}\"}}",
                wheel("one.whl", B),
                wheel("two.whl", A)
            ),
        ),
        package(
            "numpy",
            &format!(
                "version = \"2.5\"\nmarker = \"python_version >= '3.12'\"\nwheels = [{}]",
                wheel("x.whl", A)
            ),
        ),
        // Others install it by a folder.
        package(
            "pywin32",
            "marker = \"sys_platform == 'win32'\"\ndirectory = {path = \"x\"}",
        ),
        good("et_xmlfile"),
    ]);
    let pip = format!(
        "et-xmlfile==1.0 --hash=sha256:{A}\nnumpy==2.0 ; python_version < \"3.12\" --hash=sha256:{A} --hash=sha256:{B}\nnumpy==2.5 ; python_version >= \"3.12\" --hash=sha256:{A}\n"
    );
    let read = read(text.as_bytes()).unwrap();
    assert_eq!(read.lock, Lock::read(LOCK_FILE, pip.as_bytes()).unwrap());
    assert_eq!(read.head, Head::default());
}

#[test]
fn what_a_sandbox_cannot_install_is_named() {
    let sdist = format!(
        "version = \"1\"\n[packages.sdist]\nurl = \"https://x.example/a.tar.gz\"\nhashes = {{sha256 = \"{A}\"}}"
    );
    let hash = format!("hashes = {{sha256 = \"{A}\"}}");
    let marked = |marker: &str| {
        format!(
            "version = \"1\"\nmarker = \"{marker}\"\nwheels = [{}]",
            wheel("x.whl", A)
        )
    };
    for (more, why) in [
        (sdist.as_str(), "\"a\" has source code alone (sdist)"),
        ("version = \"1\"", "\"a\" has no wheels"),
        (
            "vcs = {type = \"git\", url = \"https://x.example/a\", commit-id = \"1\"}",
            "comes from version control (vcs)",
        ),
        ("directory = {path = \".\"}", "is a folder (directory)"),
        (
            &format!("archive = {{url = \"https://x.example/a.zip\", {hash}}}"),
            "is an archive at a URL or path (archive)",
        ),
        (
            &format!("wheels = [{{url = \"https://x.example/a.whl\", {hash}}}]"),
            "\"a\" has no version",
        ),
        (
            &format!("version = \"1\"\nwheels = [{{path = \"files/a.whl\", {hash}}}]"),
            "the wheel \"a.whl\" is a file beside the lock",
        ),
        (
            "version = \"1\"\nwheels = [{url = \"https://x.example/a.whl\"}]",
            "the wheel \"a.whl\" has no hash",
        ),
        (
            "version = \"1\"\nwheels = [{url = \"https://x.example/a.whl\", hashes = {md5 = \"00\"}}]",
            "the wheel \"a.whl\" has no hash",
        ),
        (
            "version = \"1\"\nwheels = [{name = \"a.whl\", hashes = {sha256 = \"00\"}}]",
            "the wheel \"a.whl\" has no hash",
        ),
        (
            "version = \"1\"\nmarker = \"'dev' == dependency_groups\"",
            "a list is allowed only to the right",
        ),
        ("version = \"1\"\nmarker = \"shell == 'x'\"", "cannot be read"),
        ("version = \"1\"\nmarker = 1", "a marker must be text"),
        (
            &marked("os_name != 'x\\n--index-url https://elsewhere.example/simple\\n'"),
            "\"a\": its marker is too long",
        ),
        (&marked("os_name != 'x --pre'"), "\"a\": its marker is too long"),
        (&marked("os_name != 'x # y'"), "\"a\": its marker is too long"),
        (
            &marked(&format!("os_name != '{}'", "x".repeat(5000))),
            "\"a\": its marker is too long",
        ),
        (
            &format!("version = \"1.*\"\nwheels = [{{name = \"a.whl\", {hash}}}]"),
            "is not a valid name and version",
        ),
        (
            &format!("version = \"1,<2\"\nwheels = [{{name = \"a.whl\", {hash}}}]"),
            "is not a valid name and version",
        ),
        (
            &format!("version = \"1 ; os_name == 'x'\"\nwheels = [{{name = \"a.whl\", {hash}}}]"),
            "is not a valid name and version",
        ),
    ] {
        let message = texts(&lock(&[good("b"), package("a", more)]));
        assert_eq!(message.len(), 1, "{more}: {message:?}");
        assert!(
            message[0].starts_with("pylock.toml: ") && message[0].contains(why),
            "{more}: {message:?}"
        );
    }
}

#[test]
fn a_lock_that_no_sandbox_can_use_says_why() {
    let good = good("a");
    let many: Vec<String> = (0..=crate::MAX_PACKAGES)
        .map(|number| self::good(&format!("a{number}")))
        .collect();
    for (text, why) in [
        (
            String::new(),
            "it is empty; a lock without packages has lock-version = \"1.0\"",
        ),
        ("# nothing\n".to_owned(), "it is empty"),
        ("packages = []".to_owned(), "lock-version is missing"),
        (
            format!("lock-version = \"2.0\"\n{good}"),
            "lock-version \"2.0\" is not 1.x",
        ),
        (
            "lock-version = \"1.0\"\npackages = 1".to_owned(),
            "packages must be an array of tables",
        ),
        (
            "lock-version = \"1.0\"\npackages = [1]".to_owned(),
            "packages must be an array of tables",
        ),
        (
            "lock-version = \"1.0\"\n[[packages]]\nversion = \"1\"".to_owned(),
            "packages[0] has no name",
        ),
        (
            format!("lock-version = \"1.0\"\nenvironments = [\"sys_platform == 'win32'\"]\n{good}"),
            "none for Linux",
        ),
        (
            format!("lock-version = \"1.0\"\nrequires-python = \"any\"\n{good}"),
            "requires-python",
        ),
        (
            "lock-version = \"1.0\"\n[[packages".to_owned(),
            "pylock.toml:2: it is not valid TOML",
        ),
        (lock(&many), "201 packages, more than 200"),
        ("x".repeat(5 << 20), "more than 4194304"),
        (format!("a = {}", "[".repeat(100_000)), "it is not valid TOML"),
    ] {
        let message = texts(&text);
        assert!(message[0].contains(why), "{message:?}");
    }
    let later = format!(
        "lock-version = \"1.1\"\nrequires-python = \">=3.10\"\nenvironments = [\"os_name == 'nt'\", \"os_name == 'posix'\"]\n{good}"
    );
    let read = read(later.as_bytes()).unwrap();
    let clauses: Vec<String> = read.head.requires_python.iter().map(ToString::to_string).collect();
    assert_eq!(clauses, [">=3.10"]);
    assert_eq!(read.head.environments.len(), 2);
}

#[test]
fn what_pdm_exports_is_read_for_its_default_groups() {
    let of_group = |name: &str, group: &str| {
        let wheels = wheel("x.whl", A);
        let more = format!("version = \"1.0\"\nmarker = \"'{group}' in dependency_groups\"\nwheels = [{wheels}]");
        package(name, &more)
    };
    let groups = "dependency-groups = [\"default\", \"dev\"]\ndefault-groups = [\"default\"]\nextras = [\"x\"]\n";
    let packages = [of_group("six", "default"), of_group("pytest", "dev"), good("rich")].concat();
    let text = format!("lock-version = \"1.0\"\ncreated-by = \"pdm\"\n{groups}{packages}");
    let read = read(text.as_bytes()).unwrap();
    assert_eq!(
        read.lock.text(),
        format!("rich==1.0 \\\n    --hash=sha256:{A}\nsix==1.0 \\\n    --hash=sha256:{A}\n")
    );
    for wrong in ["default-groups = 1", "default-groups = [1]", "environments = [1]"] {
        let message = texts(&format!("lock-version = \"1.0\"\n{wrong}\n{}", good("a")));
        assert!(message[0].contains("must be a list of texts"), "{message:?}");
    }
}

#[test]
fn a_lock_for_another_interpreter_is_refused_for_this_one() {
    let text = |environments: &str| {
        format!(
            "lock-version = \"1.0\"\nenvironments = [{environments}]\n{}",
            good("six")
        )
    };
    for (environments, refused) in [
        ("", false),
        ("\"python_version == '3.11'\"", false),
        ("\"python_version == '3.12'\"", true),
        ("\"python_version == '3.12'\", \"python_version == '3.11'\"", false),
        ("\"platform_machine == 'aarch64'\"", true),
        ("\"sys_platform == 'linux' and platform_machine == 'x86_64'\"", false),
        ("\"python_full_version < '3.11.2'\", \"sys_platform == 'win32'\"", true),
    ] {
        let declared = declare(&files(&[("pylock.toml", &text(environments))]), None);
        assert!(!declared.is_refused(), "{:?}", declared.findings);
        let why = declared.python_refused("3.11.2", "x86_64");
        assert_eq!(why.is_some(), refused, "{environments}: {why:?}");
        // A builder of a cluster decides as a laptop does.
        let built = crate::environment::Input::of(&declared).declaration().unwrap();
        assert_eq!(built.python_refused("3.11.2", "x86_64"), why, "{environments}");
    }
    let declared = declare(&files(&[("pylock.toml", &text("\"python_version == '3.12'\""))]), None);
    assert_eq!(
        declared.python_refused("3.11.2", "x86_64").unwrap(),
        "environments of pylock.toml (python_version == \"3.12\") has none for Python 3.11.2 on x86_64, which is here; \
         lock the packages for it too, or write requirements.lock with knack skill lock"
    );
}

#[test]
fn a_skill_declares_by_it_as_by_a_lock_in_pips_format() {
    let pylock = format!("lock-version = \"1.0\"\nrequires-python = \">=3.12\"\n{}", good("six"));
    let other = format!("rich==1 --hash=sha256:{A}\n");
    let found = |list: &[(&str, &str)]| {
        let declared = declare(&files(list), None);
        let message: Vec<String> = declared.findings.iter().map(ToString::to_string).collect();
        (declared, message.join("\n"))
    };
    let (alone, message) = found(&[("SKILL.md", "x"), ("pylock.toml", &pylock)]);
    assert_eq!(
        (alone.source.clone(), alone.names(), message.as_str()),
        (Source::Lock(PYTHON_LOCK_FILE), vec!["six".to_owned()], "")
    );
    assert_eq!(alone.source.shown(), "pylock.toml");
    assert_eq!(
        alone.python_refused("3.11.2", "x86_64").unwrap(),
        "pylock.toml requires Python >=3.12, and 3.11.2 is here"
    );
    let (beside, message) = found(&[("requirements.txt", "six"), ("pylock.toml", &pylock)]);
    assert_eq!((beside.lock.is_some(), message.as_str()), (true, ""));
    let (refused, message) = found(&[("requirements.txt", "rich"), ("pylock.toml", &pylock)]);
    assert!(
        refused.is_refused() && message.starts_with("pylock.toml: rich is declared but not in the lock"),
        "{message}"
    );
    let (both, message) = found(&[
        ("pylock.toml", &pylock),
        ("requirements.lock", &other),
        ("pylock.dev.toml", ""),
    ]);
    assert_eq!(
        (both.names(), both.requires_python.clone()),
        (vec!["rich".to_owned()], vec![])
    );
    assert_eq!(
        message.lines().map(|line| &line[..36]).collect::<Vec<_>>(),
        [
            "pylock.dev.toml: this lock file is n",
            "pylock.toml: this lock file is not u"
        ]
    );
    let (standard, message) = found(&[
        ("SKILL.md", "---\nname: x\npackages: {standard: true}\n---\n"),
        ("pylock.toml", &pylock),
    ]);
    assert_eq!(
        (standard.source, message.contains("pylock.toml: it has no effect")),
        (Source::Standard, true)
    );
    let (_, message) = found(&[
        ("SKILL.md", "---\nname: x\npackages: {standard: true}\n---\n"),
        ("requirements.lock", &other),
        ("pylock.toml", &pylock),
    ]);
    assert_eq!(message.lines().count(), 2, "one finding for each lock: {message}");
}

#[test]
fn a_lock_without_packages_is_an_environment_without_packages() {
    let windows = package(
        "six",
        "marker = \"sys_platform == 'win32'\"\ndirectory = {path = \"x\"}",
    );
    for (what, text) in [
        ("as pdm writes it", "lock-version = \"1.0\"\npackages = []\n".to_owned()),
        ("as uv writes it", lock(&[])),
        ("for others alone", lock(&[windows])),
    ] {
        let declared = declare(&files(&[("SKILL.md", "x"), ("pylock.toml", &text)]), None);
        assert!(!declared.is_refused(), "{what}: {:?}", declared.findings);
        assert_eq!(declared.source, Source::Lock(PYTHON_LOCK_FILE), "{what}");
        assert!(
            declared.is_declared() && !declared.has_packages() && declared.names().is_empty(),
            "{what}"
        );
        let built = crate::environment::Input::of(&declared).declaration().unwrap();
        assert_eq!(built.lock, Some(Lock::empty()), "{what}");
        // Beside a declaration it lacks what applies here, and nothing else.
        for (requirement, refused) in [
            ("six", true),
            ("# none", false),
            ("six; sys_platform == 'win32'", false),
        ] {
            let list = [("requirements.txt", requirement), ("pylock.toml", &text)];
            let declared = declare(&files(&list), None);
            assert_eq!(declared.is_refused(), refused, "{what}: {requirement}");
        }
    }
}
