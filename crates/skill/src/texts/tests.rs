//! Goldens: each text as a model reads it. A change here voids prompt caches and gets a CHANGELOG line.

use serde_json::Value;

use super::*;
use crate::call::{End, Outcome, OutputFile, ShownEnd, ShownResult};
use crate::catalog::Node;
use crate::model::Packages;
use crate::risk::Risk;

fn outcome(end: End) -> Outcome {
    Outcome {
        end,
        duration_ms: 1_249,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        files: Vec::new(),
        file_errors: Vec::new(),
    }
}

fn ball() -> OutputFile {
    OutputFile {
        path: "ball.gif".into(),
        mime: "image/gif".into(),
        size: 12_345,
        url: None,
    }
}

fn full() -> Outcome {
    Outcome {
        stdout: "drew 20 frames\n".into(),
        stderr: "warning: slow\n".into(),
        files: vec![ball()],
        file_errors: vec!["big.bin is over 4 MiB".into()],
        ..outcome(End::Exit(0))
    }
}

#[test]
fn the_generic_tools_are_declared_like_this() {
    let declared = |name: &str, description: String, schema: Value| format!("{name}\n{description}\n{schema}");
    let all = [
        declared(LOAD_SKILL, load_skill_description(), load_skill_schema()),
        declared(
            RUN_SKILL_TOOL,
            run_skill_tool_description(LOAD_SKILL),
            run_skill_tool_schema(),
        ),
        declared(RUN_CODE, run_code_description(&[]), run_code_schema(Node::Absent)),
        declared(LITELLM_CODE_TOOL, litellm_code_description(), litellm_code_schema()),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    load_skill
    Returns the instructions, file list and tools of a skill, or one of its files.
    {"type":"object","properties":{"skill":{"type":"string","description":"Name from the list of skills."},"path":{"type":"string","description":"File of the skill to read instead of its instructions."},"inputs":{"type":"object","description":"Values for the inputs the skill asks for."}},"required":["skill"]}

    run_skill_tool
    Runs a tool that load_skill described.
    {"type":"object","properties":{"skill":{"type":"string"},"tool":{"type":"string"},"arguments":{"type":"object","description":"As the tool's schema says."}},"required":["skill","tool"]}

    run_code
    Runs a program once in a sealed sandbox without network; give either code or command. The working directory holds files saved by earlier runs of this conversation, where still kept, and inputs/ from the user; skills/<skill>/ is read-only. Files written to the working directory are delivered to the user.
    {"type":"object","properties":{"skill":{"type":"string","description":"Skill whose files the program uses."},"code":{"type":"string"},"language":{"type":"string","enum":["python"]},"command":{"type":"string","description":"Program and arguments, e.g. python3 skills/csv-chart/scripts/chart.py in.csv. No shell."}}}

    litellm_code_execution
    Execute Python code in a sandboxed environment without network. Files of the skills are in the working directory; generated files are returned to the user.
    {"type":"object","properties":{"code":{"type":"string","description":"Python code to execute"}},"required":["code"]}
    "#);
}

#[test]
fn skills_that_a_request_attaches_are_sections_like_others() {
    let files = attached_files_line("adder", ["add.py", "data/x.csv"].into_iter());
    assert_eq!(files, "Files (attached/adder/): add.py, data/x.csv");
    assert_eq!(attached_files_line("adder", std::iter::empty()), "");
    let section = body_section("adder", "Run it.", &files);
    let whole =
        "---\n\n# Available Skills\n\n## Skill: adder\n\nRun it.\n\nFiles (attached/adder/): add.py, data/x.csv";
    assert_eq!(with_sections("", false, &[&section]), whole);
    assert_eq!(
        with_sections("# Skills", false, &[&section]),
        format!("# Skills\n\n{whole}")
    );
    let behind = whole.strip_prefix("---\n\n# Available Skills\n\n").unwrap();
    let before = bodies_block(&["## Skill: a\n\nA."]);
    assert_eq!(
        with_sections(&before, true, &[&section]),
        format!("{before}\n\n---\n\n{behind}")
    );
}

#[test]
fn files_that_no_later_run_gets_are_named() {
    let hidden = |path: &str| OutputFile {
        path: path.into(),
        ..ball()
    };
    let outcome = Outcome {
        files: vec![hidden(".npmrc"), ball(), hidden("a/.b/c")],
        ..outcome(End::Exit(0))
    };
    insta::assert_snapshot!(code_result(&outcome), @r"
    exit 0, 1.2 s
    Files for the user: .npmrc (image/gif, 12 kB), ball.gif (image/gif, 12 kB), a/.b/c (image/gif, 12 kB)
    Not kept for later runs, since names begin with a dot: .npmrc, a/.b/c
    ");
}

#[test]
fn refusals_of_tools_that_leave_their_program_to_the_arguments_read_like_this() {
    insta::assert_snapshot!(
        [
            open_command_with_grants("weather", "any"),
            open_command_denied("weather", "any"),
            above_max_risk("disk", "wipe", Risk::Dangerous, Risk::Moderate),
            MODEL_CODE_DENIED.to_owned(),
            CALL_UNRESOLVED.to_owned(),
        ]
        .join("\n"),
        @r#"
    tool "any" of skill "weather" gets no environment values: its command leaves to the arguments which program runs. The skill's author can name a file of the skill in the command; nothing ran.
    tool "any" of skill "weather" is not run here: its command leaves to the arguments which program runs, and this runtime runs declared programs only. The skill's author can name a file of the skill in the command; nothing ran.
    tool "wipe" of skill "disk" is not run here: its risk is Dangerous, and this runtime runs tools up to Moderate. Whoever operates the runtime can raise that limit (spec.maxRisk of the SkillRuntime); nothing ran.
    Error: this runtime runs declared tools only; nothing ran.
    Error: the call could not be read; nothing ran.
    "#
    );
}

#[test]
fn results_of_code_read_like_this() {
    insta::assert_snapshot!(code_result(&full()), @r"
    exit 0, 1.2 s
    drew 20 frames
    stderr:
    warning: slow
    Files for the user: ball.gif (image/gif, 12 kB)
    File not delivered: big.bin is over 4 MiB
    ");
    for (end, text) in [
        (End::Exit(0), "exit 0, 1.2 s"),
        (End::Exit(3), "exit 3, 1.2 s"),
        (End::Signal(9), "killed by signal 9, 1.2 s"),
        (End::Timeout { seconds: 10 }, "stopped at the time limit of 10 s"),
        (End::OutOfMemory, "out of memory, 1.2 s"),
        (End::NotStarted("no python3 here".into()), "Error: no python3 here"),
    ] {
        assert_eq!(code_result(&outcome(end)), text);
    }
    let cut = Outcome {
        truncated: true,
        stdout: "x".into(),
        ..outcome(End::Exit(0))
    };
    assert_eq!(
        code_result(&cut),
        "exit 0, 1.2 s\nx\n(output over the limit was dropped)"
    );
    let linked = Outcome {
        files: vec![OutputFile {
            url: Some("http://localhost/f".into()),
            ..ball()
        }],
        ..outcome(End::Exit(0))
    };
    assert!(code_result(&linked).ends_with("ball.gif (image/gif, 12 kB, http://localhost/f)"));
}

#[test]
fn results_of_declared_tools_are_husks() {
    for (end, stdout, stderr, text) in [
        (End::Exit(0), "  {\"ok\":1}\n\n", "warn", "{\"ok\":1}"),
        (End::Exit(3), "out", "oops\n", "Error (exit 3): oops"),
        (End::Exit(1), "only stdout\n", "  ", "Error (exit 1): only stdout"),
        (
            End::Timeout { seconds: 5 },
            "",
            "",
            "Error: the tool timed out: it ran for 5 s, its time limit (timeoutSeconds)",
        ),
        (
            End::NotStarted("spawn nope ENOENT".into()),
            "",
            "",
            "Error: spawn nope ENOENT",
        ),
    ] {
        let outcome = Outcome {
            stdout: stdout.into(),
            stderr: stderr.into(),
            ..outcome(end)
        };
        assert_eq!(declared_result(&outcome), text);
    }
    let files = Outcome {
        files: vec![ball()],
        ..outcome(End::Exit(0))
    };
    assert_eq!(
        declared_result(&files),
        "Files for the user: ball.gif (image/gif, 12 kB)"
    );
}

#[test]
fn results_of_litellm_code_are_litellms() {
    assert_eq!(litellm_result(&outcome(End::Exit(0))), "Code executed successfully");
    let failed = Outcome {
        stdout: "part".into(),
        stderr: "Traceback".into(),
        ..outcome(End::Exit(1))
    };
    assert_eq!(litellm_result(&failed), "part\n\nError: Traceback");
    let files = Outcome {
        stdout: "ok".into(),
        files: vec![ball()],
        ..outcome(End::Exit(0))
    };
    assert_eq!(litellm_result(&files), "ok\n\nGenerated file: ball.gif");
    let warned = Outcome {
        stderr: "a warning".into(),
        ..files.clone()
    };
    assert_eq!(
        litellm_result(&warned),
        "ok\n\nGenerated file: ball.gif\n\nError: a warning"
    );
    // A blank line is before each part, as LiteLLM writes it.
    let silent = Outcome {
        stdout: String::new(),
        ..files
    };
    assert_eq!(litellm_result(&silent), "\n\nGenerated file: ball.gif");
    let failed = Outcome {
        stdout: String::new(),
        ..failed
    };
    assert_eq!(litellm_result(&failed), "\n\nError: Traceback");
}

#[test]
fn long_results_keep_their_head_and_tail() {
    let stdout = format!("BEGIN{}END", "é".repeat(100_000));
    let text = code_result(&Outcome {
        stdout,
        files: vec![ball()],
        ..outcome(End::Exit(0))
    });
    assert!(
        text.len() <= MAX_RESULT_BYTES && text.len() > MAX_RESULT_BYTES - 100,
        "{}",
        text.len()
    );
    assert!(text.starts_with("exit 0, 1.2 s\nBEGIN") && text.ends_with("ball.gif (image/gif, 12 kB)"));
    let (head, tail) = text.split_once(" bytes cut here]").unwrap();
    assert!(head.len() > 23 * 1_024 && tail.len() > 8_000);
    assert_eq!(cut("short"), "short");
}

#[test]
fn errors_read_like_this() {
    let all = [
        no_skill("x", &["a", "b", "c"]),
        no_skill("x", &[]),
        no_tool("pdf", "x", &["extract"]),
        no_tool("pdf", "x", &[]),
        arguments_not_json("t", "EOF", "{}"),
        arguments_mismatch("t", "\"path\" is required", "{}"),
        argument_refused("a value begins with -"),
        one_program(RUN_CODE),
        not_executable("the command is empty"),
        file_unknown("pdf", "x", "a, b"),
        file_binary("pdf", "logo.png", 2_048),
        file_too_large("pdf", "big.txt", 3_500_000, "head"),
        LAST_CALL.to_owned(),
        SKILL_CHANGED.to_owned(),
        NO_LONGER_AVAILABLE.to_owned(),
        too_many_calls(32),
        LIMIT_REACHED.to_owned(),
        unknown_tool("x"),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    No skill "x". Closest: a, b, c.
    No skill "x".
    Error: skill "pdf" has no tool "x". Its tools: extract.
    Error: skill "pdf" has no tool "x"; it declares none.
    Error: the arguments of t are not a JSON object (EOF); nothing ran. Schema: {}
    Error: the arguments of t do not match its schema: "path" is required; nothing ran. Schema: {}
    Error: a value begins with -
    Error: give run_code either code or command, not both and not neither; nothing ran.
    Error: the command is empty; nothing ran.
    Error: skill "pdf" has no file "x". Files: a, b.
    logo.png of skill "pdf" is a binary file (2 kB); a program can read it at skills/pdf/logo.png.
    head
    [cut: big.txt has 3.5 MB; a program can read all of it at skills/pdf/big.txt]
    Last skill call available for this request; answer now.
    This skill changed; load it again.
    result no longer available
    Not run: of one turn only the first 32 skill calls are run. Call again with fewer at once.
    Limit of skill calls for this request reached; answer without them.
    No tool "x".
    "#);
}

#[test]
fn templates_that_are_too_long_are_reported() {
    let error = crate::template::FilledTooLarge { bytes: 5_000_000 };
    assert_eq!(
        body_too_large(error),
        "Its instructions are not shown: the text with these values would have 5000000 bytes, above the limit of 4194304; \
         give shorter values, or name them less often in the text."
    );
    assert_eq!(
        inputs_too_long("pdf", 5_000_000, 1_048_576),
        "Error: with these inputs the instructions of skill \"pdf\" would have 5000000 bytes, above the limit of 1048576. \
         Load it again with shorter inputs."
    );
}

#[test]
fn file_lists_are_bounded() {
    let names: Vec<String> = (0..500).map(|i| format!("f{i}")).collect();
    let line = files_line("pdf", names.iter().map(String::as_str));
    assert!(
        line.starts_with("Files (read-only, skills/pdf/): f0, f1, ") && line.ends_with("f199 and 300 more"),
        "{line}"
    );
    assert_eq!(files_line("pdf", std::iter::empty()), "");
}

#[test]
fn packages_are_reported_with_the_code_runner_and_when_a_module_is_missing() {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (chart, many) = (names(&["matplotlib", "numpy"]), vec!["p".to_owned(); 41]);
    let described = run_code_description(&[("chart", &chart), ("other", &many)]);
    let added = described.strip_prefix(&run_code_description(&[])).unwrap();
    let forty = vec!["p"; 40].join(", ");
    assert_eq!(
        added,
        format!(
            " Python packages besides the standard library, for runs that name the skill: chart: matplotlib, numpy; \
             other: {forty} and 1 more."
        )
    );
    let trace = |module: &str| {
        format!("Traceback (most recent call last):\n  File \"x\"\nModuleNotFoundError: No module named '{module}'\n")
    };
    let python = |names: &[String]| Packages {
        python: names.to_vec(),
        node: vec!["docx".to_owned()],
    };
    let (charts, none) = (python(&chart), Packages::default());
    let node_alone = Packages {
        node: names(&["docx", "@s/x"]),
        ..Packages::default()
    };
    let scipy = "Module \"scipy\" is not here, and nothing can be installed at run time.";
    for (stderr, named, others, message) in [
        (
            trace("scipy"),
            Some(("chart", &charts)),
            &[][..],
            Some(format!(
                "{scipy} Runs of skill \"chart\" have these Python packages: matplotlib, numpy."
            )),
        ),
        (
            trace("scipy"),
            None,
            &[("plain", &none), ("report", &node_alone), ("chart", &charts)],
            Some(format!(
                "{scipy} Packages come with a skill: name it in the call, for example \"chart\"."
            )),
        ),
        (trace("scipy"), Some(("plain", &none)), &[], Some(scipy.to_owned())),
        (
            trace("scipy"),
            Some(("report", &node_alone)),
            &[],
            Some(scipy.to_owned()),
        ),
        (trace("scipy"), None, &[], Some(scipy.to_owned())),
        (
            "ModuleNotFoundError: No module named 'x'\nfine".to_owned(),
            Some(("chart", &charts)),
            &[],
            None,
        ),
        (String::new(), None, &[], None),
    ] {
        assert_eq!(missing_module(&stderr, named, others), message, "{stderr}");
    }
}

#[test]
fn a_package_of_node_that_is_missing_is_reported_with_those_of_node() {
    let charts = Packages {
        python: vec!["matplotlib".to_owned()],
        node: vec!["docx".to_owned()],
    };
    let none = Packages::default();
    let node_alone = Packages {
        node: vec!["docx".to_owned(), "@s/x".to_owned()],
        ..Packages::default()
    };
    // Texts of node 18 and 20.
    let required = |module: &str| {
        format!(
            "node:internal/modules/cjs/loader:1080\n  throw err;\n  ^\n\nError: Cannot find module '{module}'\nRequire stack:\n- /w/<code>\n    \
             at Module._load (node:internal/modules/cjs/loader:922:27)\n    at <code>:1:1 {{\n  code: 'MODULE_NOT_FOUND',\n  \
             requireStack: [ '/w/<code>' ]\n}}\n\nNode.js v18.19.0\n"
        )
    };
    let imported = "node:internal/modules/esm/resolve:873\n  throw new ERR_MODULE_NOT_FOUND(packageName);\n        ^\n\n\
        Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'scipy' imported from /w/.tmp/code.mjs\n    at packageResolve \
        (node:internal/modules/esm/resolve:873:9) {\n  code: 'ERR_MODULE_NOT_FOUND'\n}\n\nNode.js v20.20.2\n";
    let scipy = "Module \"scipy\" is not here, and nothing can be installed at run time.";
    for (stderr, named, others, message) in [
        (
            required("scipy"),
            Some(("report", &node_alone)),
            &[][..],
            Some(format!(
                "{scipy} Runs of skill \"report\" have these Node packages: docx, @s/x."
            )),
        ),
        (
            imported.to_owned(),
            Some(("chart", &charts)),
            &[],
            Some(format!(
                "{scipy} Runs of skill \"chart\" have these Node packages: docx."
            )),
        ),
        (
            required("scipy"),
            None,
            &[("plain", &none), ("report", &node_alone)],
            Some(format!(
                "{scipy} Packages come with a skill: name it in the call, for example \"report\"."
            )),
        ),
        (required("scipy"), Some(("plain", &none)), &[], Some(scipy.to_owned())),
        (required("./own.js"), Some(("report", &node_alone)), &[], None),
        (required("/w/skills/own.js"), Some(("report", &node_alone)), &[], None),
        (
            format!("{}went on\n", required("scipy")),
            Some(("report", &node_alone)),
            &[],
            None,
        ),
    ] {
        assert_eq!(missing_module(&stderr, named, others), message, "{stderr}");
    }
}

#[test]
fn a_run_that_only_the_client_remembers_reads_like_the_run_without_what_it_was_not_shown() {
    let seen = |outcome: &Outcome, is_code: bool, end: ShownEnd| {
        seen_result(&ShownResult {
            is_code,
            end,
            stdout: &outcome.stdout,
            stderr: &shown_stderr(outcome),
            files: outcome.files.clone(),
            other_files: 0,
        })
    };
    insta::assert_snapshot!(seen(&full(), true, ShownEnd::Exit(0)), @r"
    exit 0
    drew 20 frames
    stderr:
    warning: slow
    File not delivered: big.bin is over 4 MiB
    Files for the user: ball.gif (image/gif, 12 kB)
    ");
    let out_of_memory = Outcome {
        truncated: true,
        stderr: "half a line".into(),
        ..outcome(End::OutOfMemory)
    };
    insta::assert_snapshot!(seen(&out_of_memory, true, ShownEnd::Exit(137)), @r"
    exit 137
    stderr:
    half a line
    ended by the sandbox: out of memory
    (output over the limit was dropped)
    ");
    // A run of which nothing is to be added is shown as it is.
    assert_eq!(shown_stderr(&outcome(End::Exit(1))), "");
    let quiet = outcome(End::Exit(0));
    let (run, tool) = (true, false);
    for (is_code, end, stdout, stderr, others, text) in [
        (
            run,
            ShownEnd::Failed,
            "1\n",
            "",
            2,
            "failed\n1\nFiles for the user: 2 of unknown name",
        ),
        (run, ShownEnd::Timeout, "", "", 0, "stopped at the time limit"),
        (
            tool,
            ShownEnd::Exit(0),
            "5\n",
            "warned",
            1,
            "5\nFiles for the user: 1 of unknown name",
        ),
        (tool, ShownEnd::Exit(3), "5\n", "no\n", 0, "Error (exit 3): no"),
        (tool, ShownEnd::Exit(1), "Error: no skill\n", "", 0, "Error: no skill"),
        (tool, ShownEnd::Timeout, "", "", 0, "Error: the tool timed out"),
        (tool, ShownEnd::Failed, "", "", 0, "result no longer available"),
        (
            tool,
            ShownEnd::Exit(0),
            "",
            "",
            1,
            "Files for the user: 1 of unknown name",
        ),
    ] {
        let seen = ShownResult {
            is_code,
            end,
            stdout,
            stderr,
            files: quiet.files.clone(),
            other_files: others,
        };
        assert_eq!(seen_result(&seen), text);
    }
    let long = "x".repeat(2 * MAX_RESULT_BYTES);
    let long = ShownResult {
        is_code: true,
        end: ShownEnd::Exit(0),
        stdout: &long,
        stderr: "",
        files: vec![ball()],
        other_files: 0,
    };
    assert!(seen_result(&long).len() <= MAX_RESULT_BYTES);
    assert!(seen_result(&long).ends_with("ball.gif (image/gif, 12 kB)"));
}
