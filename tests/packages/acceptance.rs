//! `make real-skills` over a folder with each shape of import, declaration and program (`tests/packages/skills`).

use super::BuilderFixture;
use super::index::wheel;
use super::uv_path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What the tool prints. Where a text is the interpreter's own, its beginning counts.
const TABLE: &str = "\
skill     loads  listed  packages         imports  programs
blocks    yes    yes     declared (2)     2 of 2   -
declared  yes    yes     declared (3)     5 of 5   -
lacking   yes    yes     declared (1)     1 of 4   -
listed    yes    yes     declared (1)     1 of 1   -
programs  yes    yes     none             1 of 1   missing: absent-as-text, absent-by-asyncio, absent-by-system, absent-in-a-list
refused   NO     NO      Refused          0 of 1   -
text      yes    yes     none             -        -
unknown   yes    yes     PackageNotFound  0 of 1   -
";

const TOLD: [&str; 8] = [
    "lacking/missing.py: ModuleNotFoundError: No module named 'undeclared_module'",
    "lacking/missing.py: ModuleNotFoundError: No module named 'plain_module.NOT_THERE'",
    "lacking/ends.py: its imports ended the interpreter: exit 3",
    "lacking/old.py: not Python: ",
    "programs/scripts/start.py: the program absent-in-a-list is not found",
    "refused: \"--index-url\" names another index",
    "unknown: packages: error: No solution found when resolving dependencies cause: Because package-of-nobody was not found in the package registry",
    "5 of 8 skills are accepted; of 15 scripts 10 resolve every import, 9 of them find every program too",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_of_import_and_program_is_done_in_the_sandbox_and_reported() {
    let module: &[(&str, &str)] = &[
        ("plain_module/__init__.py", "VALUE = 1\n"),
        ("plain_module/deep.py", "BELOW = 2\nFURTHER = 3\n"),
    ];
    let (fixture, index) = BuilderFixture::with(vec![
        wheel("plain_package", "1.0", "", module),
        wheel("space_one", "1.0", "", &[("space/one.py", "ONE = 1\n")]),
        wheel("space_two", "1.0", "", &[("space/two.py", "TWO = 2\n")]),
    ])
    .await;
    // It finds its runner as in a release: beside it.
    let mut command = tokio::process::Command::new("python3");
    command
        .args(["-B", &format!("{ROOT}/tools/real_skills/main.py")])
        .args(["--knack", env!("CARGO_BIN_EXE_knack")])
        .arg(format!("{ROOT}/tests/packages/skills"))
        .env("KNACK_UV", uv_path())
        .env("KNACK_PACKAGES_DIR", fixture.store().root())
        .env("UV_DEFAULT_INDEX", &index.url)
        .env("HOME", fixture.folder.path())
        .env("NO_PROXY", "127.0.0.1")
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with(TABLE), "{said}{errors}");
    for line in TOLD {
        assert!(said.lines().any(|told| told.starts_with(line)), "{line} in {said}");
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
}
