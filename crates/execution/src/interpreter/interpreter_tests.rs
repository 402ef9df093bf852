use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// A world-enterable directory; `tempfile` makes them 0700, which is what "closed" looks like.
fn open_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A file that answers as the interpreter at `root/bin/python3` with its library in `root/lib/python3.11`.
fn fake_python(root: &Path, version: &str) -> PathBuf {
    let binary = root.join("bin/python3");
    let library = root.join("lib/python3.11");
    fs::create_dir_all(&library).unwrap();
    let answer = format!(
        r#"{{"executable":"{}","version":"{version}","prefixes":["{}"],"libraries":["{}"],"shared":[]}}"#,
        binary.display(),
        root.display(),
        library.display()
    );
    script(&binary, &format!("#!/bin/sh\necho '{answer}'\n"));
    binary
}

fn search(path: &[PathBuf], fallback: &[PathBuf], code_user: CodeUser) -> Search {
    Search {
        path: path.to_vec(),
        fallback: fallback.to_vec(),
        home: Some("/home/nobody".into()),
        code_user,
    }
}

#[tokio::test]
async fn a_shim_resolves_to_the_real_binary_and_grants_its_tree() {
    let dir = open_directory();
    let real = fake_python(&dir.path().join(".pyenv/versions/3.11.7"), "3.11.7");
    let shims = dir.path().join(".pyenv/shims");
    script(
        &shims.join("python3"),
        &format!("#!/bin/sh\nexec {} \"$@\"\n", real.display()),
    );
    let found = find(&search(&[shims], &[], CodeUser::Stranger)).await;
    let python = &found.interpreters[0];
    assert_eq!(python.path, real);
    assert_eq!(python.version, "3.11.7");
    assert_eq!(python.permissions.execute, [dir.path().join(".pyenv/versions/3.11.7")]);
}

#[tokio::test]
async fn one_behind_a_closed_directory_is_passed_over_and_named() {
    let dir = open_directory();
    let home = dir.path().join("home");
    let closed = fake_python(&home.join("versions/3.12"), "3.12.0");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let shims = dir.path().join("shims");
    script(
        &shims.join("python3"),
        &format!("#!/bin/sh\nexec {} \"$@\"\n", closed.display()),
    );
    let open = fake_python(&dir.path().join("usr"), "3.9.2");
    let path = [shims.clone(), open.parent().unwrap().to_path_buf()];

    let found = find(&search(&path, &[], CodeUser::Stranger)).await;
    assert_eq!(found.interpreters[0].path, open);
    let note = &found.notes[0];
    assert!(note.starts_with("skipped"), "{note}");
    assert!(
        note.contains(&*home.to_string_lossy()) && note.contains("not accessible"),
        "{note}"
    );

    let same = find(&search(&path, &[], CodeUser::SameUser)).await;
    assert_eq!(same.interpreters[0].path, closed);
}

#[tokio::test]
async fn a_virtual_environment_keeps_its_own_path_and_grants_both_trees() {
    let dir = open_directory();
    let base = dir.path().join("opt/python");
    let environment = dir.path().join("project/.venv");
    fs::create_dir_all(base.join("lib/python3.11")).unwrap();
    fs::create_dir_all(environment.join("lib/python3.11/site-packages")).unwrap();
    fs::write(environment.join("pyvenv.cfg"), "").unwrap();
    let link = environment.join("bin/python3");
    let answer = format!(
        r#"{{"executable":"{}","version":"3.11.7","prefixes":["{}","{}"],"libraries":[],"shared":[]}}"#,
        link.display(),
        environment.display(),
        base.display()
    );
    script(&base.join("bin/python3"), &format!("#!/bin/sh\necho '{answer}'\n"));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(base.join("bin/python3"), &link).unwrap();

    let found = find(&search(&[environment.join("bin")], &[], CodeUser::Stranger)).await;
    assert_eq!(found.interpreters[0].path, link);
    assert_eq!(found.interpreters[0].permissions.execute, [base, environment]);
}

#[tokio::test]
async fn what_does_not_answer_as_an_interpreter_is_passed_over() {
    let dir = open_directory();
    for (name, text) in [
        ("fails", "#!/bin/sh\nexit 127\n"),
        ("talks", "#!/bin/sh\necho hello\n"),
        (
            "lies",
            "#!/bin/sh\necho '{\"executable\":\"/nowhere\",\"version\":\"3\",\"prefixes\":[],\"libraries\":[],\"shared\":[]}'\n",
        ),
        ("broken", "not a program"),
    ] {
        script(&dir.path().join(name).join("python3"), text);
        let good = fake_python(&dir.path().join("good"), "3.11.7");
        let found = find(&search(
            &[dir.path().join(name)],
            &[good.parent().unwrap().to_path_buf()],
            CodeUser::Stranger,
        ))
        .await;
        assert_eq!(found.interpreters[0].path, good, "{name}");
        assert_eq!(found.notes.len(), 2, "{name}: {:?}", found.notes);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_passed_over_after_the_time_limit() {
    let dir = open_directory();
    script(&dir.path().join("bin/python3"), "#!/bin/sh\nexec sleep 30\n");
    let found = find(&search(&[dir.path().join("bin")], &[], CodeUser::SameUser)).await;
    assert_eq!(found.interpreters, []);
    assert!(found.notes[0].contains("no answer within 5 s"), "{:?}", found.notes);
}

#[tokio::test]
async fn none_at_all_finds_nothing() {
    let dir = open_directory();
    let found = find(&search(&[dir.path().to_path_buf()], &[], CodeUser::SameUser)).await;
    assert_eq!(found, FoundInterpreters::default());
}

#[test]
fn wide_prefixes_are_cut_to_the_parts_of_the_interpreter() {
    let dir = open_directory();
    let home = dir.path().join("home");
    let local = home.join(".local");
    let library = local.join("lib/python3.11");
    fs::create_dir_all(&library).unwrap();
    fs::create_dir_all(home.join("project")).unwrap();
    let binary = local.join("bin/python3");
    script(&binary, "");
    let answer = describe::InterpreterDescription {
        executable: binary.clone(),
        version: "3.11.7".into(),
        prefixes: vec![local, "/".into(), "/usr".into()],
        libraries: vec![library.clone(), home.join("project"), "/usr/lib/python3".into()],
        shared: Vec::new(),
    };
    assert_eq!(
        path_permissions::of_interpreter(&answer, Some(&home)).execute,
        [binary, library]
    );
}

#[test]
fn a_link_leads_to_the_directory_that_is_closed() {
    let dir = open_directory();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("python3"), "").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    symlink("closed/python3", dir.path().join("link")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    assert_eq!(
        unreachable_part(&dir.path().join("link"), CodeUser::Stranger),
        Some(closed)
    );
    assert_eq!(
        unreachable_part(&dir.path().join("loop"), CodeUser::Stranger),
        Some(dir.path().join("loop"))
    );
    assert_eq!(
        unreachable_part(&dir.path().join("none"), CodeUser::Stranger),
        Some(dir.path().join("none"))
    );
    assert_eq!(unreachable_part(Path::new("/usr/bin"), CodeUser::Stranger), None);
}
