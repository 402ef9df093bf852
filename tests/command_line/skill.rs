//! `knack skill validate`, `run` and `schema`.

use serde_json::{Value, json};

use super::program::{folder, knack};
use super::{err, out};

const GOOD: &str = "---\nname: good\ndescription: Adds.\ntools:\n  - name: add\n    description: Adds two numbers.\n    \
                    command: [python3, add.py]\n    parameters:\n      - {name: a, description: one}\n      - {name: b, description: two}\n---\nAdd.\n";
const ADD: &str = "import sys\nprint(sys.argv[1:])\n";
pub(super) const FILES: &[(&str, &str)] = &[
    ("skills/good/SKILL.md", GOOD),
    ("skills/good/add.py", ADD),
    ("skills/odd/SKILL.md", "---\nname: odd\n---\nNo description.\n"),
    ("skills/bad/SKILL.md", "---\nname: [bad\n---\n"),
];

fn json_of(output: &std::process::Output) -> Value {
    serde_json::from_str(&out(output)).unwrap()
}

#[tokio::test]
async fn validate_lists_every_skill_and_fails_for_errors_only() {
    let folder = folder(FILES);
    for (arguments, code, parts) in [
        (
            &["skills/good"][..],
            0,
            &["ok   default/good", "1 skill, 0 with errors"][..],
        ),
        (&["skills/odd"], 0, &["ok   default/odd", "description"]),
        (&["--strict", "skills/odd"], 1, &["FAIL default/odd", "description"]),
        (
            &["skills"],
            1,
            &["FAIL default/bad", "ok   default/good", "3 skills, 1 with errors"],
        ),
    ] {
        let output = knack(folder.path(), &[&["skill", "validate"], arguments].concat(), &[]).await;
        let said = out(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    let output = knack(folder.path(), &["skill", "validate", "skills", "--output", "json"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let document = json_of(&output);
    assert_eq!(document["failed"], 1);
    let skills = document["skills"].as_array().unwrap();
    let by = |name: &str| skills.iter().find(|skill| skill["skill"] == name).unwrap();
    assert_eq!(by("default/good")["valid"], true);
    assert_eq!(by("default/good")["summary"]["tools"], json!(["add"]));
    let problem = &by("default/bad")["problems"][0];
    assert_eq!(
        (&problem["severity"], &problem["kind"]),
        (&json!("error"), &json!("yaml-invalid"))
    );
    assert!(problem["line"].is_u64() && problem["help"].is_string(), "{problem}");
}

#[tokio::test]
async fn a_folder_that_links_reach_too_is_one_skill() {
    let folder = folder(&[(
        "skills/a/real/SKILL.md",
        "---\nname: real\ndescription: d\n---\nText.\n",
    )]);
    for (target, link) in [("..", "a/above"), ("a/real", "again"), ("a", "zone")] {
        std::os::unix::fs::symlink(target, folder.path().join("skills").join(link)).unwrap();
    }
    let output = knack(folder.path(), &["skill", "validate", "skills", "skills/again"], &[]).await;
    let said = out(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("ok   default/real") && said.contains("1 skill, 0 with errors"),
        "{said}"
    );
}

/// Its author may have meant to ship it; the other names never are a part of a skill.
#[tokio::test]
async fn packages_in_a_folder_are_said_to_be_left_out_once() {
    let folder = folder(&[
        ("a/SKILL.md", "---\nname: a\ndescription: d\n---\nText.\n"),
        ("a/node_modules/x/index.js", ""),
        ("a/scripts/node_modules/x/index.js", ""),
        ("a/.git/config", ""),
        ("a/.venv/x", ""),
        ("a/scripts/.venv/x", ""),
        ("a/scripts/env/pyvenv.cfg", ""),
        ("a/scripts/env/SKILL.md", ""),
        ("a/scripts/__pycache__/x.pyc", ""),
    ]);
    let left_out = |folder: &str, instead: &str| {
        format!("warning: a/{folder}: left out, it is not part of the skill; list its packages in {instead}")
    };
    let warnings = [
        left_out("node_modules", "package.json and run knack skill lock"),
        left_out(".venv", "requirements.txt"),
        left_out("scripts/env", "requirements.txt"),
    ];
    for arguments in [&["validate", "a"], &["import", "a"]] {
        let output = knack(folder.path(), &[&["skill"], &arguments[..]].concat(), &[]).await;
        let said = format!("{}{}", out(&output), err(&output));
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.matches("left out").count(), warnings.len(), "{said}");
        for warning in &warnings {
            assert!(said.contains(warning), "{said}");
        }
        assert!(!said.contains("pyvenv") && !said.contains(".venv/x"), "{said}");
    }
}

#[tokio::test]
async fn validate_reports_skills_of_one_name_as_dev_does() {
    let document = "---\nname: word\ndescription: d\n---\nText.\n";
    let folder = folder(&[("a/word/SKILL.md", document), ("b/word/SKILL.md", document)]);
    let output = knack(folder.path(), &["skill", "validate", "a", "b"], &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let said = out(&output);
    assert!(
        said.contains("error: b/word: skill default/word is already defined in a/word; rename one"),
        "{said}"
    );
}

#[tokio::test]
async fn manifests_are_judged_as_by_an_api_server() {
    let object = |kind: &str, spec: &str| {
        format!("apiVersion: knack.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n---\n")
    };
    let skill = object(
        "Skill",
        "{source: {inline: {files: {SKILL.md: \"---\\nname: a\\ndescription: d\\n---\\nB\\n\"}}}}",
    );
    let folder = folder(&[
        ("good.yaml", &object("SkillRuntime", "{}")),
        ("zero.yaml", &object("SkillRuntime", "{sandbox: {timeoutSeconds: 0}}")),
        ("twice.yaml", &format!("{skill}{skill}")),
        (
            "typo.yaml",
            &object(
                "SkillRuntime",
                "{gateway: {upstreams: {opnai: {url: 'http://127.0.0.1:9'}}}}",
            ),
        ),
    ]);
    for (file, code, parts) in [
        ("good.yaml", 0, &["0 skills, 1 SkillRuntime, 0 with errors"][..]),
        (
            "zero.yaml",
            1,
            &["(SkillRuntime default/a): spec.sandbox.timeoutSeconds: must be at least 1"],
        ),
        (
            "typo.yaml",
            1,
            &["spec.gateway.upstreams: `opnai`: keys of upstreams must be openai, anthropic or gemini"],
        ),
        (
            "twice.yaml",
            1,
            &[
                "skill default/a is already defined in the same file",
                "ok   default/a",
                "FAIL default/a",
                "2 skills, 1 with errors",
            ],
        ),
    ] {
        let output = knack(folder.path(), &["skill", "validate", file], &[]).await;
        let said = out(&output);
        assert_eq!(output.status.code(), Some(code), "{file}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{file}: {said}");
    }
    let output = knack(folder.path(), &["dev", "typo.yaml", "--listen", "127.0.0.1:0"], &[]).await;
    assert!(
        err(&output).contains("typo.yaml: document 1 (SkillRuntime default/a): spec.gateway.upstreams: `opnai`"),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let document = "---\nname: word\ndescription: d\n---\nText.\n";
    let folder = folder(&[("skills/word/SKILL.md", document), ("skills/other/SKILL.md", document)]);
    for (arguments, part) in [
        (
            &["skill", "run", "skills", "--skill", "nope", "--", "true"][..],
            "skills: there is no skill nope; found: other, word",
        ),
        (
            &["skill", "import", "skills/word", "-o", "absent/x.yaml"],
            "the folder absent does not exist",
        ),
        (
            &["dev", "--listen", "localhost:4141"],
            "write an address and a port, such as 127.0.0.1:4141",
        ),
        (
            &["mock", "--listen", "4141"],
            "write an address and a port, such as 127.0.0.1:4141",
        ),
    ] {
        let output = knack(folder.path(), arguments, &[]).await;
        assert!(
            !output.status.success() && err(&output).contains(part),
            "{arguments:?}: {}",
            err(&output)
        );
    }
}

#[tokio::test]
async fn validate_of_nothing_says_what_to_name() {
    let folder = folder(&[("empty/README.txt", "x")]);
    let output = knack(folder.path(), &["skill", "validate", "empty"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("no skill found in empty"), "{}", err(&output));
}

#[tokio::test]
async fn a_program_gets_a_document_where_nothing_is_judged_or_run() {
    let folder = folder(&[FILES[0], FILES[1], ("empty/README.txt", "x")]);
    let as_json = async |arguments: &[&str]| {
        let arguments = [&["skill"], arguments].concat();
        let output = knack(folder.path(), &arguments, &[]).await;
        assert_eq!(output.status.code(), Some(1), "{}", out(&output));
        json_of(&output)
    };
    let message = "no skill found; name a folder with a SKILL.md or a manifest file";
    let expected =
        json!({"skills": [], "failed": 1, "reports": [{"level": "error", "origin": "empty", "message": message}]});
    assert_eq!(as_json(&["validate", "--output", "json", "empty"]).await, expected);
    for (arguments, said) in [
        (&["skills/good", "--", "no-such-program"][..], "no-such-program"),
        (&["skills/good", "--tool", "other"], "this skill declares add"),
    ] {
        let document = as_json(&[&["run", "--output", "json"], arguments].concat()).await;
        assert_eq!(document["status"], "invalid", "{document}");
        assert!(document["error"].as_str().unwrap().contains(said), "{document}");
    }
}

#[tokio::test]
async fn run_calls_a_tool_gives_its_exit_code_and_saves_its_files() {
    let folder = folder(FILES);
    let tool = [
        "skill",
        "run",
        "skills/good",
        "--tool",
        "add",
        "--arguments",
        r#"{"a": "2", "b": "3"}"#,
    ];
    let output = knack(folder.path(), &[&tool[..], &["--output", "json"]].concat(), &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let document = json_of(&output);
    assert_eq!(
        (&document["status"], &document["exit_code"]),
        (&json!("success"), &json!(0))
    );
    assert!(document["stdout"].as_str().unwrap().contains("'2'"), "{document}");
    let command = [
        "skill",
        "run",
        "skills/good",
        "--files-dir",
        "made",
        "--",
        "python3",
        "-c",
    ];
    let code = "import sys; open('x.txt', 'w').write('here'); print('hi'); sys.exit(7)";
    let output = knack(folder.path(), &[&command[..], &[code]].concat(), &[]).await;
    assert_eq!(
        (output.status.code(), out(&output).as_str()),
        (Some(7), "hi\n"),
        "{}",
        err(&output)
    );
    assert_eq!(
        std::fs::read_to_string(folder.path().join("made/x.txt")).unwrap(),
        "here"
    );
}

#[tokio::test]
async fn run_refuses_what_it_cannot_run_and_names_what_there_is() {
    let folder = folder(FILES);
    for (arguments, said) in [
        (&["skills/good"][..], "tools of this skill: add"),
        (&["skills/good", "--tool", "multiply"], "this skill declares add"),
        (
            &["skills/good", "--tool", "add", "--arguments", "{"],
            "must be a JSON object",
        ),
        (&["skills", "--", "true"], "choose one with --skill"),
        (&["skills/bad", "--", "true"], "the skill has errors"),
        (&["skills/none", "--", "true"], "skills/none"),
        (
            &["skills/good", "--tool", "add", "--allow-env", "other:HOME"],
            "--allow-env other:HOME: the skill is good, not other",
        ),
        (
            &["skills/good", "--tool", "add", "--allow-env", "good:LANG"],
            "no tool of this skill asks for that variable; they ask for none",
        ),
    ] {
        let output = knack(folder.path(), &[&["skill", "run"], arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
    for timeout in ["0", "3601", "18446744073709551615"] {
        let arguments = ["skill", "run", "skills/good", "--timeout", timeout, "--", "true"];
        let output = knack(folder.path(), &arguments, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{timeout}");
        assert!(err(&output).contains("is not in 1..=3600"), "{}", err(&output));
    }
}

/// The limit of a run on this machine is not below what its skill asks for.
#[tokio::test]
async fn a_run_has_the_time_limit_that_is_asked_for() {
    let asking = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  sandbox: {timeoutSeconds: \
                  3600}\n  source: {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: d\\n---\\nx\\n\"}}}\n";
    let folder = folder(&[("good.yaml", asking)]);
    for more in [&[][..], &["--timeout", "3600"]] {
        let arguments = [
            &["skill", "run", "good.yaml"],
            more,
            &["--", "python3", "-c", "print('done')"],
        ]
        .concat();
        let output = knack(folder.path(), &arguments, &[]).await;
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert_eq!(out(&output), "done\n");
    }
}

/// A run from the command line has the limits of the runtime beside the skill, as a model's run has, and the person who starts it may
/// give it more time.
#[tokio::test]
async fn a_run_has_the_limits_of_its_runtime() {
    let skill = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  suspend: true\n  sandbox: {timeoutSeconds: 30, \
                 resources: {limits: {cpu: 1, memory: 1Gi}}}\n  source: {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: \
                 d\\n---\\nx\\n\"}}}\n";
    let runtime = "---\napiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: main}\nspec: {sandbox: {timeoutSeconds: 1, \
                   maxTimeoutSeconds: 1, resources: {limits: {memory: 256Mi}}}}\n";
    let all = format!("{skill}{runtime}");
    let folder = folder(&[("all.yaml", &all)]);
    let code = "import time; time.sleep(3); held = b'x' * (400 << 20); time.sleep(20)";
    let run = |more: &'static [&'static str]| {
        let arguments = [&["skill", "run", "all.yaml"], more, &["--", "python3", "-c", code]].concat();
        let folder = folder.path().to_owned();
        async move { knack(&folder, &arguments, &[]).await }
    };
    let output = run(&[]).await;
    assert_eq!(out(&output), "");
    for part in [
        "spec.sandbox.resources.limits.cpu has an effect only in a cluster",
        "spec.sandbox.timeoutSeconds 30 exceeds the runtime's maxTimeoutSeconds 1; ",
        "spec.suspend is true",
    ] {
        assert!(err(&output).contains(part), "{}", err(&output));
    }
    let output = run(&["--timeout", "30"]).await;
    assert!(err(&output).contains("ended by its memory limit"), "{}", err(&output));
    let validated = knack(folder.path(), &["skill", "validate", "all.yaml"], &[]).await;
    assert_eq!(validated.status.code(), Some(0));
    for part in [
        "exceeds the runtime's maxTimeoutSeconds 1; ",
        "limits.cpu has an effect",
    ] {
        assert!(out(&validated).contains(part), "{}", out(&validated));
    }
}

/// A run from the command line has the limits of the skill, as a model's run has.
#[tokio::test]
async fn a_run_has_the_limits_of_its_skill() {
    let limited = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  sandbox: {maxOutputBytes: 1024, \
                   resources: {limits: {memory: 96Mi}}}\n  source: {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: \
                   d\\n---\\nx\\n\"}}}\n";
    let folder = folder(&[("good.yaml", limited)]);
    let run = async |code: &str| {
        knack(
            folder.path(),
            &["skill", "run", "good.yaml", "--", "python3", "-c", code],
            &[],
        )
        .await
    };
    let memory = run("b = b'x' * (200 << 20)").await;
    assert!(err(&memory).contains("MemoryError"), "{}", err(&memory));
    let output = run("print('x' * 5000)").await;
    assert_eq!(out(&output).trim_end().len(), 1024, "{}", err(&output));
}

/// What the program printed, and its status, do not depend on where its files go.
#[tokio::test]
async fn a_result_that_cannot_be_saved_loses_neither_output_nor_status() {
    let folder = folder(&[FILES[0], FILES[1], ("full", "")]);
    for (status, expected) in [(0, 1), (7, 7)] {
        let code = format!("import sys; open('x.txt', 'w').write('here'); print('hi'); sys.exit({status})");
        let run = ["skill", "run", "skills/good", "--files-dir", "full"];
        let output = knack(
            folder.path(),
            &[&run[..], &["--", "python3", "-c", &code]].concat(),
            &[],
        )
        .await;
        assert_eq!(
            (output.status.code(), out(&output).as_str()),
            (Some(expected), "hi\n"),
            "{}",
            err(&output)
        );
        assert!(
            err(&output).contains("not saved x.txt: --files-dir full: "),
            "{}",
            err(&output)
        );
        let json = [&run[..], &["--output", "json", "--", "python3", "-c", &code]].concat();
        let output = knack(folder.path(), &json, &[]).await;
        assert_eq!(output.status.code(), Some(expected), "{}", err(&output));
        let document = json_of(&output);
        assert_eq!(
            (&document["stdout"], &document["exit_code"]),
            (&json!("hi\n"), &json!(status))
        );
        assert_eq!(document["file_errors"][0]["name"], "x.txt", "{document}");
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_read_fails_doctor_and_packages() {
    let folder = folder(FILES);
    for arguments in [
        &["doctor", "typo"][..],
        &["doctor", "skills/good", "typo"],
        &["skill", "packages", "skills/good", "typo"],
    ] {
        let output = knack(folder.path(), arguments, &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", out(&output));
        assert!(
            err(&output).contains("typo: nothing is at this path"),
            "{}",
            err(&output)
        );
    }
}

#[tokio::test]
async fn schema_prints_declarations_and_reports_what_it_could_not_read() {
    let source = "@skill\ndef add(a: int, b: int = 2) -> int:\n    \"\"\"Adds.\"\"\"\n    return a + b\n";
    let folder = folder(&[("tools.py", source), ("broken.py", "@skill\ndef (:\n")]);
    let output = knack(
        folder.path(),
        &["skill", "schema", "tools.py", "--format", "openai"],
        &[],
    )
    .await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let document = json_of(&output);
    assert_eq!(document[0]["function"]["name"], "add");
    assert_eq!(document[0]["function"]["parameters"]["required"], json!(["a"]));
    let output = knack(folder.path(), &["skill", "schema", "broken.py"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("broken.py"), "{}", err(&output));
}

/// A folder with a skill whose tools are functions.
pub(super) fn python() -> tempfile::TempDir {
    folder(&[
        (
            "py/SKILL.md",
            "---\nname: py\ndescription: d\ntools:\n  - python: tools.py\n---\nBody\n",
        ),
        (
            "py/tools.py",
            "def add(a: int, b: int = 2) -> int:\n    '''Adds.'''\n    print('adding')\n    return a + b\n",
        ),
    ])
}

#[tokio::test]
async fn functions_of_a_python_file_are_validated_listed_and_run() {
    let folder = python();
    let output = knack(folder.path(), &["skill", "validate", "py", "--output", "json"], &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    assert_eq!(json_of(&output)["skills"][0]["summary"]["tools"], json!(["add"]));
    for (arguments, code, said) in [
        (r#"{"a": 1}"#, 0, "3"),
        (r#"{"a": "one"}"#, 1, "do not match its schema"),
        ("{}", 1, "is required"),
    ] {
        let command = ["skill", "run", "py", "--tool", "add", "--arguments", arguments];
        let output = knack(folder.path(), &command, &[]).await;
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        let told = if code == 0 { out(&output) } else { err(&output) };
        assert!(told.contains(said), "{told}");
        assert!(!out(&output).contains("adding"), "{}", out(&output));
    }
}

#[tokio::test]
async fn a_manifest_needs_the_lock_of_the_functions_and_carries_it() {
    let folder = python();
    let import = ["skill", "import", "py", "-o", "py.yaml"];
    let lock = ["skill", "lock", "py"];
    let validate = ["skill", "validate", "py"];
    let refused = knack(folder.path(), &import, &[]).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = err(&refused);
    assert!(
        said.contains("no python-tools.lock") && said.contains("knack skill lock"),
        "{said}"
    );

    let locked = knack(folder.path(), &lock, &[]).await;
    assert_eq!(locked.status.code(), Some(0), "{}", err(&locked));
    assert!(
        out(&locked).contains("python-tools.lock: 1 functions"),
        "{}",
        out(&locked)
    );
    let first = std::fs::read(folder.path().join("py/python-tools.lock")).unwrap();
    let imported = knack(folder.path(), &import, &[]).await;
    assert_eq!(imported.status.code(), Some(0), "{}", err(&imported));
    let exported = knack(folder.path(), &["skill", "export", "py.yaml", "again"], &[]).await;
    assert_eq!(exported.status.code(), Some(0), "{}", err(&exported));
    assert_eq!(
        std::fs::read(folder.path().join("again/py/python-tools.lock")).unwrap(),
        first
    );
    assert!(!out(&knack(folder.path(), &validate, &[]).await).contains("python-tools.lock"));

    let path = folder.path().join("py/tools.py");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("b: int", "c: int")).unwrap();
    let stale = knack(folder.path(), &import, &[]).await;
    assert_eq!(stale.status.code(), Some(1));
    let said = err(&stale);
    assert!(said.contains("tools.py has changed since it was written"), "{said}");
    let warned = knack(folder.path(), &validate, &[]).await;
    assert_eq!(warned.status.code(), Some(0));
    assert!(out(&warned).contains("a cluster refuses the skill"), "{}", out(&warned));
    knack(folder.path(), &lock, &[]).await;
    let imported = knack(folder.path(), &import, &[]).await;
    assert_eq!(imported.status.code(), Some(0), "{}", err(&imported));
}

#[tokio::test]
async fn functions_with_errors_are_not_locked() {
    let folder = python();
    std::fs::write(folder.path().join("py/tools.py"), "def add(a: int:\n").unwrap();
    let output = knack(folder.path(), &["skill", "lock", "py"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("py: nothing was written"), "{}", err(&output));
    assert!(!folder.path().join("py/python-tools.lock").exists());
}

/// Names that a program or a person chooses: one of two equal ones would replace the other, and a line feed is no line of Knack.
#[tokio::test]
async fn names_of_files_are_each_one_and_shown_in_one_line() {
    let folder = folder(&[
        ("good/SKILL.md", "---\nname: good\ndescription: d\n---\nx\n"),
        ("a/x.txt", "of a"),
        ("b/x.txt", "of b"),
    ]);
    let arguments = [
        "skill", "run", "good", "--input", "a/x.txt", "--input", "b/x.txt", "--", "true",
    ];
    let output = knack(folder.path(), &arguments, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("--input b/x.txt: another input is inputs/x.txt already"),
        "{}",
        err(&output)
    );
    let source = "open('new\\nsaved line', 'w').write('x')";
    let output = knack(
        folder.path(),
        &["skill", "run", "good", "--", "python3", "-c", source],
        &[],
    )
    .await;
    let told = err(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("saved knack-files/new\\nsaved line\n"), "{told}");
}
