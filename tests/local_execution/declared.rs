//! Declared tools and granted environment values.

use knack_execution::{ExecutionRequest, Executor as _, InputFile, Program, SkillMount, WorkingDirectory};
use knack_skill::call::ToolRun;
use knack_skill::model::{Skill, SkillFile};
use knack_skill::risk::Risk;
use tokio_util::sync::CancellationToken;

use super::{executor, python, run, run_python, skill};

#[tokio::test]
async fn the_environment_is_built_and_holds_only_what_was_granted() {
    // `CARGO_MANIFEST_DIR` stands for a secret of the process that nobody granted.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let script = "import os\nprint(os.environ.get('GRANTED'), 'CARGO_MANIFEST_DIR' in os.environ)";
    let mut request = declared(&[("scripts/run.py", script)], &["python3", "scripts/run.py"]);
    request.env.insert("GRANTED".into(), "value".into());
    let result = run(&executor(0).await, request).await;
    assert_eq!(result.stdout.text(), "value False\n");
}

/// The bound of `argv::build` is the system's: the longest argument and the longest command line that it passes do start.
#[tokio::test]
async fn the_longest_arguments_that_pass_start_a_program() {
    use knack_skill::argv::{ARGUMENT_MAX, ARGUMENTS_MAX};
    let script = "import sys\nprint(sum(map(len, sys.argv[1:])))";
    let executor = executor(0).await;
    for count in [1, ARGUMENTS_MAX / (ARGUMENT_MAX + 1) - 1] {
        let mut command = vec!["python3", "scripts/run.py"];
        let longest = "x".repeat(ARGUMENT_MAX);
        command.extend(std::iter::repeat_n(longest.as_str(), count));
        let result = run(&executor, declared(&[("scripts/run.py", script)], &command)).await;
        assert_eq!(result.stdout.text(), format!("{}\n", count * ARGUMENT_MAX));
    }
}

/// A request of a declared tool, whose command this is, and which asks for `GRANTED`.
fn declared(files: &[(&str, &str)], command: &[&str]) -> ExecutionRequest {
    let skill = skill("tool", files);
    let tool = ToolRun {
        skill: skill.id.clone(),
        tool: "run".into(),
        arguments: serde_json::Map::new(),
        argv: command.iter().map(ToString::to_string).collect(),
        env: vec!["GRANTED".into()],
        is_open: false,
        risk: Risk::Safe,
        config: Vec::new(),
    };
    let mount = SkillMount {
        name: "tool".into(),
        skill,
    };
    ExecutionRequest::of_tool(python("declared", "").id, "test", tool, mount)
}

/// A run with granted values is the declared command in its own folder, and nothing beside it.
#[tokio::test]
async fn values_for_anything_but_a_declared_tool_are_refused_by_every_executor() {
    type Change = fn(&mut ExecutionRequest);
    let changes: [(Change, &str); 9] = [
        (|request| request.tool = None, "declared tools only"),
        (
            |request| request.program = python("1", "steal()").program,
            "must be its declared command",
        ),
        (
            |request| {
                request.program = Program::Command {
                    argv: vec!["python3".into(), "-c".into(), "steal()".into()],
                }
            },
            "must be its declared command",
        ),
        (
            |request| request.working_directory = WorkingDirectory::Work,
            "must be its skill's folder",
        ),
        (
            |request| {
                request.mounts.push(SkillMount {
                    name: "node_modules".into(),
                    skill: skill("other", &[]),
                });
            },
            "exactly its own skill",
        ),
        (
            |request| request.mounts[0].skill = skill("other", &[]),
            "exactly its own skill",
        ),
        (
            |request| request.inputs = vec![file("usercustomize.py")],
            "not below inputs/",
        ),
        (
            |request| request.inputs = vec![file("inputs/.npmrc")],
            "begin with a dot",
        ),
        (
            |request| drop(request.env.insert("OTHER".into(), "x".into())),
            "does not declare the environment variable OTHER",
        ),
    ];
    let executor = executor(0).await;
    for (change, said) in changes {
        let mut request = declared(&[("scripts/run.py", "")], &["python3", "scripts/run.py"]);
        request.env.insert("GRANTED".into(), "value".into());
        change(&mut request);
        let error = executor.execute(request, CancellationToken::new()).await.unwrap_err();
        assert!(
            error.metric_label() == "invalid" && error.to_string().contains(said),
            "{said}: {error}"
        );
    }
}

fn file(path: &str) -> InputFile {
    InputFile {
        path: path.into(),
        bytes: "x".into(),
    }
}

/// Debian has no `python`, and texts of skills say it.
#[tokio::test]
async fn child_processes_find_python() {
    let source = "import shutil, subprocess\n\
         subprocess.run(['python', '-c', 'import sqlite3, sys; print(sys.version_info >= (3,))'], check=True)\n\
         path = shutil.which('python')\n\
         for change in (lambda: open(path, 'w'), lambda: __import__('os').unlink(path)):\n\
         \x20   try: change()\n\
         \x20   except OSError as error: print(type(error).__name__)";
    let result = run_python(source).await;
    let denied = |line: &str| line == "PermissionError" || line == "OSError";
    let text = result.stdout.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&"True"), "{}", result.stderr.text());
    assert!(
        lines.len() == 3 && lines[1..].iter().all(|line| denied(line)),
        "{lines:?}"
    );
}

/// The library of `sandbox-office` (`images/office/preload.c`) gives a program an end of a `socketpair` for a socket that the locks
/// refuse: nobody is reached by it.
#[tokio::test]
async fn a_socket_of_the_office_image_reaches_nobody() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("preload.so");
    // As images/office.sh makes it.
    let compiled = std::process::Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-s"])
        .args(["-Wl,--build-id=none", "-o"])
        .args([&library, &root.join("images/office/preload.c")])
        .status();
    assert!(compiled.unwrap().success());
    let mut office = Skill::clone(&skill("office", &[]));
    let preload = SkillFile {
        bytes: std::fs::read(&library).unwrap().into(),
        executable: false,
    };
    office.files.insert("preload.so".to_owned(), preload);
    let asked = include_str!("../../crates/execution/tests/office/socket.py");
    let source = format!(
        "import os, subprocess, sys\nfor library in ['', os.path.realpath('skills/office/preload.so')]:\n\
         \x20   subprocess.run([sys.executable, '-c', {asked:?}], env={{**os.environ, 'LD_PRELOAD': library}}, stderr=subprocess.DEVNULL)\n\
         \x20   print('-', flush=True)"
    );
    let mut request = python("1", &source);
    request.mounts = vec![SkillMount {
        name: "office".into(),
        skill: std::sync::Arc::new(office),
    }];
    let result = run(&executor(0).await, request).await;
    assert_eq!(
        result.stdout.text(),
        "-\nmade\nbind EPERM\nconnect EPERM\nabstract EPERM\ninet EPERM\n-\n",
        "{}",
        result.stderr.text()
    );
}
