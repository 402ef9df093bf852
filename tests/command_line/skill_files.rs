//! `knack skill import`, `export` and `diff`: folders, archives and manifests, and which skill of several is meant.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::program::{folder, knack};
use super::{err, out};

pub(super) const DOCUMENT: &str = "---\nname: good\ndescription: Adds numbers.\n---\nAdd with `scripts/add.py`.\n";
const CHANGED: &str =
    "---\nname: good\ndescription: Adds whole numbers.\n---\nAdd with `scripts/add.py`.\nNever guess.\n";

/// A skill `good` with a text file and a binary one.
pub(super) fn good() -> tempfile::TempDir {
    let folder = folder(&[("good/SKILL.md", DOCUMENT), ("good/scripts/add.py", "print(1)\n")]);
    std::fs::write(folder.path().join("good/logo.png"), [0x89, b'P', 0, 0xff]).unwrap();
    folder
}

fn make_executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Every file below a folder: path, content, and whether it is executable.
pub(super) fn tree(root: &Path) -> Vec<(String, Vec<u8>, bool)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let mode = path.metadata().unwrap().permissions().mode();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.push((name, std::fs::read(&path).unwrap(), mode & 0o100 != 0));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_folder_goes_to_a_manifest_and_back_byte_for_byte() {
    for executable in [false, true] {
        let folder = good();
        if executable {
            make_executable(&folder.path().join("good/scripts/add.py"));
        }
        let arguments = [
            "skill",
            "import",
            "good",
            "--namespace",
            "team",
            "--output",
            "good.yaml",
        ];
        let output = knack(folder.path(), &arguments, &[]).await;
        assert!(output.status.success(), "{}", err(&output));
        let text = std::fs::read_to_string(folder.path().join("good.yaml")).unwrap();
        assert_eq!(text.contains("kind: ConfigMap"), executable, "{text}");
        assert!(
            text.contains("namespace: team") && text.contains("Add with `scripts/add.py`."),
            "{text}"
        );

        let output = knack(folder.path(), &["skill", "validate", "good.yaml"], &[]).await;
        assert!(out(&output).contains("ok   team/good"), "{}", out(&output));
        let output = knack(folder.path(), &["skill", "export", "good.yaml", "back"], &[]).await;
        assert_eq!(out(&output), "back/good\n", "{}", err(&output));
        assert_eq!(
            tree(&folder.path().join("back/good")),
            tree(&folder.path().join("good"))
        );
        let output = knack(
            folder.path(),
            &["skill", "diff", "--exit-code", "good", "good.yaml"],
            &[],
        )
        .await;
        assert_eq!(
            (output.status.code(), out(&output).as_str()),
            (Some(0), ""),
            "{}",
            err(&output)
        );
    }
}

#[tokio::test]
async fn an_archive_is_a_skill() {
    let folder = good();
    make_executable(&folder.path().join("good/scripts/add.py"));
    let status = std::process::Command::new("tar")
        .args(["-czf", "good.tar.gz", "good"])
        .current_dir(folder.path())
        .status();
    assert!(status.unwrap().success());
    let output = knack(folder.path(), &["skill", "export", "good.tar.gz", "back"], &[]).await;
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(
        tree(&folder.path().join("back/good")),
        tree(&folder.path().join("good"))
    );
    let output = knack(folder.path(), &["skill", "import", "good.tar.gz"], &[]).await;
    assert!(out(&output).contains("mode: 493"), "{}", out(&output));
}

#[tokio::test]
async fn what_cannot_be_imported_or_exported_is_refused_by_name_and_nothing_is_written() {
    let folder = good();
    let path = folder.path();
    std::fs::create_dir_all(path.join("bad")).unwrap();
    std::fs::write(path.join("bad/SKILL.md"), "---\nname: [bad\n---\n").unwrap();
    std::fs::create_dir_all(path.join("huge")).unwrap();
    std::fs::write(path.join("huge/SKILL.md"), DOCUMENT.replace("good", "huge")).unwrap();
    std::fs::write(path.join("huge/data.bin"), vec![0; 1_100_000]).unwrap();
    std::fs::create_dir_all(path.join("Upper_Case")).unwrap();
    std::fs::write(path.join("Upper_Case/SKILL.md"), DOCUMENT).unwrap();
    std::fs::write(path.join("broken.zip"), "PK\u{3}\u{4} and no more").unwrap();
    let escaping = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: out}\nspec:\n  source:\n    inline:\n      \
                    files: {SKILL.md: \"x\", ../../owned: \"x\"}\n";
    std::fs::write(path.join("escaping.yaml"), escaping).unwrap();
    let lone = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: lone}\nspec: {source: {configMap: {name: away}}}\n";
    std::fs::write(path.join("lone.yaml"), lone).unwrap();
    for name in ["twice/a/good", "twice/b/good"] {
        std::fs::create_dir_all(path.join(name)).unwrap();
        std::fs::write(path.join(name).join("SKILL.md"), DOCUMENT).unwrap();
    }
    std::fs::create_dir_all(path.join("some/new")).unwrap();
    std::fs::write(path.join("some/new/SKILL.md"), DOCUMENT).unwrap();
    std::fs::create_dir_all(path.join("some/good")).unwrap();
    std::fs::write(path.join("some/good/SKILL.md"), DOCUMENT).unwrap();
    let before = tree(path);
    for (arguments, part) in [
        (&["import", "bad", "-o", "x.yaml"][..], "bad"),
        (&["import", "huge", "-o", "x.yaml"], "spec.source.archive"),
        (&["import", "Upper_Case", "-o", "x.yaml"], "rename the folder"),
        (&["import", "nowhere", "-o", "x.yaml"], "nowhere"),
        (&["import", "broken.zip", "-o", "x.yaml"], "broken.zip"),
        (
            &["import", "escaping.yaml", "-o", "x.yaml"],
            "`../../owned`: paths in source.inline.files",
        ),
        (
            &["export", "escaping.yaml", "back"],
            "`../../owned`: paths in source.inline.files",
        ),
        (&["export", "good", "."], "good exists"),
        (&["export", "some", "."], "good exists; nothing was written"),
        (
            &["import", "twice", "-o", "x.yaml"],
            "twice/b/good: twice/a/good has a skill good, too",
        ),
        (&["export", "twice", "back"], "has a skill good, too"),
        (&["export", "lone.yaml", "back"], "ConfigMap default/away"),
        (&["diff", "good", "bad"], "would not be served"),
        (
            &["diff", "good", "."],
            "several skills; name the path of one: ./Upper_Case, ",
        ),
    ] {
        let output = knack(path, &[&["skill"], arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", out(&output));
        assert!(
            err(&output).contains(part),
            "{arguments:?}: {} should contain {part}",
            err(&output)
        );
        let blames_a_field = part == "broken.zip" && err(&output).contains("spec.source");
        assert!(!blames_a_field, "an archive has no fields: {}", err(&output));
    }
    assert_eq!(tree(path), before);
}

#[tokio::test]
async fn a_diff_shows_what_a_model_sees_before_and_after() {
    let folder = good();
    let path = folder.path();
    std::fs::create_dir_all(path.join("new/good/scripts")).unwrap();
    std::fs::write(path.join("new/good/SKILL.md"), CHANGED).unwrap();
    std::fs::write(path.join("new/good/scripts/add.py"), "print(2)\n\n").unwrap();
    std::fs::write(path.join("new/good/more.txt"), "more").unwrap();
    let output = knack(path, &["skill", "diff", "--exit-code", "good", "new/good"], &[]).await;
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "in every request: ",
        " tokens\n",
        "-<skill name=\"good\">Adds numbers.</skill>",
        "+<skill name=\"good\">Adds whole numbers.</skill>",
        "when it is loaded: ",
        "+Never guess.",
        "file logo.png: removed",
        "file more.txt: added, 4 bytes",
        "file scripts/add.py: 9 -> 10 bytes",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

/// As with `diff` of other programs: 1 means that something differs, and nothing else.
#[tokio::test]
async fn an_error_of_a_diff_has_an_exit_code_of_its_own() {
    let folder = good();
    for (arguments, code) in [
        (&["good", "none"][..], 1),
        (&["--exit-code", "good", "none"], 2),
        (&["--exit-code", "none", "good"], 2),
        (&["--exit-code", "good", "good"], 0),
    ] {
        let output = knack(folder.path(), &[&["skill", "diff"], arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", err(&output));
        assert_eq!(
            err(&output).contains("none: no skill found"),
            code != 0,
            "{}",
            err(&output)
        );
    }
}

#[tokio::test]
async fn an_export_that_fails_on_the_way_leaves_nothing() {
    let folder = good();
    let path = folder.path();
    // A file and a folder of one name.
    let both = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: second}\nspec:\n  source:\n    inline:\n      \
                files: {SKILL.md: \"x\", a: \"x\", a/b: \"x\"}\n";
    let first = both.replace("second", "first").replace(", a/b: \"x\"", "");
    std::fs::write(path.join("all.yaml"), format!("{first}---\n{both}")).unwrap();
    let output = knack(path, &["skill", "export", "all.yaml", "back"], &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let said = err(&output);
    assert!(
        said.contains("second: nothing was written") || said.contains("\"a/b\""),
        "{said}"
    );
    assert_eq!(out(&output), "");
    let left = std::fs::read_dir(path.join("back")).into_iter().flatten().count();
    assert_eq!(left, 0, "{said}");
}

/// The manifests of examples/cluster are the folders of examples/skills.
#[tokio::test]
async fn the_manifests_of_the_examples_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(root.join("examples/cluster")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let source = format!("examples/skills/{}", path.file_stem().unwrap().display());
        let output = knack(root, &["skill", "import", &source], &[]).await;
        assert!(output.status.success(), "{}", err(&output));
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, out(&output), "{}: knack skill import {source}", path.display());
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

/// `kubectl get -o yaml` writes several objects as one of kind List.
#[tokio::test]
async fn a_list_of_objects_is_read_as_its_objects() {
    let item = |name: &str| {
        format!(
            "- apiVersion: knack.dev/v1alpha1\n  kind: Skill\n  metadata: {{name: {name}, uid: u}}\n  spec: {{source: {{inline: {{files: \
             {{SKILL.md: \"---\\nname: {name}\\ndescription: d\\n---\\nB\\n\"}}}}}}}}\n  status: {{}}\n"
        )
    };
    let begin = "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n";
    let runtime = "- apiVersion: knack.dev/v1alpha1\n  kind: SkillRuntime\n  metadata: {name: main}\n  spec: {packages: {constraints: [\"good<2\"]}}\n";
    let skills = format!("{begin}{}{}", item("one"), item("two"));
    let folder = folder(&[
        ("skills.yaml", &skills),
        ("runtimes.yaml", &format!("{begin}{runtime}")),
        (
            "with/SKILL.md",
            "---\nname: with\ndescription: d\npackages: {python: [good]}\n---\nB\n",
        ),
    ]);
    let no_uv = [("KNACK_UV", "/nonexistent/uv")];
    for (arguments, said) in [
        (&["skill", "validate", "skills.yaml"][..], "2 skills, 0 with errors"),
        (&["skill", "export", "skills.yaml", "out"], "out/one\nout/two\n"),
        (&["skill", "packages", "skills.yaml"], "two: NotDeclared"),
    ] {
        let output = knack(folder.path(), arguments, &no_uv).await;
        assert!(
            output.status.success() && out(&output).contains(said),
            "{}{}",
            out(&output),
            err(&output)
        );
    }
    let output = knack(
        folder.path(),
        &["skill", "diff", "skills.yaml", "skills.yaml", "--exit-code"],
        &[],
    )
    .await;
    assert!(!err(&output).contains("no skill found"), "{}", err(&output));
    // The runtime is found: what is missing is the installer.
    let output = knack(folder.path(), &["skill", "lock", "with", "runtimes.yaml"], &no_uv).await;
    assert!(err(&output).contains("pipx install uv"), "{}", err(&output));
}

/// A pipe would wait for a writer, and a device may never end.
#[tokio::test]
async fn only_regular_files_are_read() {
    let folder = good();
    let pipe = folder.path().join("pipe.yaml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for arguments in [
        &["skill", "validate", "pipe.yaml"][..],
        &["skill", "validate", "/dev/zero"],
        &["skill", "schema", "/dev/zero"],
        &["skill", "run", "good", "--input", "pipe.yaml", "--", "true"],
    ] {
        let output = knack(folder.path(), arguments, &[]).await;
        let told = format!("{}{}", out(&output), err(&output));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains("not a regular file"), "{arguments:?}: {told}");
    }
    // What was found by searching is another tool's.
    let output = knack(folder.path(), &["skill", "validate", "."], &[]).await;
    assert!(out(&output).contains("1 skill, 0 with errors"), "{}", out(&output));
}

/// Two namespaces of one manifest have a skill of one name.
#[tokio::test]
async fn a_skill_is_chosen_by_its_namespace_too() {
    let of = |namespace: &str| {
        format!(
            "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: word, namespace: {namespace}}}\nspec: {{source: {{inline: {{files: {{SKILL.md: \"---\\nname: word\\ndescription: d\\n---\\n{namespace}\"}}}}}}}}\n"
        )
    };
    let two = [of("team-a"), of("team-b")].join("---\n");
    let folder = folder(&[("two.yaml", &two)]);
    let choose = "several skills; choose one with --skill: team-a/word, team-b/word";
    let run = async |skill: &[&str]| {
        let arguments = [&["skill", "run", "two.yaml"], skill, &["--", "true"]].concat();
        err(&knack(folder.path(), &arguments, &[]).await)
    };
    assert!(run(&[]).await.contains(choose), "{}", run(&[]).await);
    assert!(run(&["--skill", "word"]).await.contains(choose));
    let missing = run(&["--skill", "team-c/word"]).await;
    assert!(
        missing.contains("no skill team-c/word; found: team-a/word, team-b/word"),
        "{missing}"
    );
    let diff = async |skill: &str| {
        let arguments = ["skill", "diff", "two.yaml", "two.yaml", "--exit-code", "--skill", skill];
        knack(folder.path(), &arguments, &[]).await
    };
    let one = diff("team-b/word").await;
    assert_eq!(one.status.code(), Some(0), "{}", err(&one));
    assert!(err(&diff("word").await).contains(choose));
}
