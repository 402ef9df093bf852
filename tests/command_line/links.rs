//! Links in a checkout of somebody else's.

use super::err;
use super::program::{folder, knack};
use super::skill::{FILES, python};

/// A checkout of somebody else's: its links lead neither results of its code nor locks to another file.
#[tokio::test]
async fn neither_results_nor_locks_are_written_through_links() {
    let folder = folder(&[FILES[0], FILES[1], ("elsewhere/config", "mine"), ("out/kept", "")]);
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    link("elsewhere", "knack-files");
    link("../elsewhere", "out/below");
    link("../elsewhere/config", "out/config");
    let code =
        "import os; os.mkdir('below'); open('below/x', 'w').write('theirs'); open('config', 'w').write('theirs')";
    for (arguments, lines) in [
        (
            &[][..],
            [
                "not saved below/x: --files-dir knack-files: knack-files is a symbolic link",
                "not saved config: --files-dir knack-files: knack-files is a symbolic link",
            ],
        ),
        (
            &["--files-dir", "out"],
            [
                "not saved below/x: --files-dir out: out/below is a symbolic link",
                "not saved config: --files-dir out: out/config is a symbolic link",
            ],
        ),
    ] {
        let run = [
            &["skill", "run", "skills/good"],
            arguments,
            &["--", "python3", "-c", code],
        ]
        .concat();
        let output = knack(folder.path(), &run, &[]).await;
        let told = err(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        for line in lines {
            assert!(told.contains(line) && told.contains("remove"), "{line} in {told}");
        }
    }
    let entries = std::fs::read_dir(folder.path().join("elsewhere")).unwrap().count();
    let config = std::fs::read_to_string(folder.path().join("elsewhere/config")).unwrap();
    assert_eq!((entries, config.as_str()), (1, "mine"));

    let skill = python();
    let path = |name: &str| skill.path().join(name);
    std::fs::write(path("victim"), "mine").unwrap();
    std::os::unix::fs::symlink("../victim", path("py/python-tools.lock")).unwrap();
    let output = knack(skill.path(), &["skill", "lock", "py"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = err(&output);
    assert!(
        told.contains("py/python-tools.lock is a symbolic link") && told.contains("remove it"),
        "{told}"
    );
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "mine");
    // A name that would be a line of its own wherever it is written.
    std::fs::remove_file(path("py/python-tools.lock")).unwrap();
    std::fs::write(path("py/a\nb.py"), "x = 1\n").unwrap();
    let output = knack(skill.path(), &["skill", "lock", "py"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("py: nothing was written"), "{}", err(&output));
    assert!(!path("py/python-tools.lock").exists());
}
