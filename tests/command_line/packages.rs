//! `knack skill validate`, `lock`, `packages` and `run` where packages are declared, and `knack packages prune`.

use serde_json::{Value, json};

use super::program::{Program, folder, knack};
use super::{err, out};

const NO_UV: (&str, &str) = ("KNACK_UV", "/nonexistent/uv");
const FILES: &[(&str, &str)] = &[
    (
        "skills/declares/SKILL.md",
        "---\nname: declares\ndescription: d\npackages: {python: [\"pillow>=10\"]}\n---\nFirst pip install pillow.\n",
    ),
    ("skills/declares/a.py", "import PIL\nimport mcp\n"),
    (
        "skills/refused/SKILL.md",
        "---\nname: refused\ndescription: d\n---\nBody\n",
    ),
    (
        "skills/refused/requirements.txt",
        "pillow\n--index-url https://user:secret@mirror/simple\n",
    ),
    ("skills/plain/SKILL.md", "---\nname: plain\ndescription: d\n---\nBody\n"),
    ("skills/plain/a.py", "print('ran')\n"),
    (
        "skills/inferred/SKILL.md",
        "---\nname: inferred\ndescription: d\n---\nBody\n",
    ),
    (
        "skills/inferred/a.py",
        "try:\n    import yaml\nexcept ImportError:\n    pass\nprint('ran')\n",
    ),
];

#[tokio::test]
async fn validate_reports_missing_imports_and_refused_declarations() {
    let folder = folder(FILES);
    let output = knack(folder.path(), &["skill", "validate", "skills"], &[]).await;
    let said = out(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        "ok   default/declares",
        "a.py:2: mcp is imported, but no declared package provides it (add \"mcp\" to packages.python in SKILL.md)",
        "SKILL.md:6: \"First pip install pillow.\" installs nothing",
        "FAIL default/refused",
        "requirements.txt:2: \"--index-url\" names another index",
        "packages: inferred from imports: the standard environment",
        "4 skills, 1 with errors",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("secret") && !said.contains("unknown key"), "{said}");
    let output = knack(
        folder.path(),
        &["skill", "validate", "skills/declares", "--output", "json"],
        &[],
    )
    .await;
    let document: Value = serde_json::from_str(&out(&output)).unwrap();
    let skill = &document["skills"][0];
    assert_eq!(skill["summary"]["packages"]["names"], json!(["pillow"]));
    let kinds: Vec<&str> = skill["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["import-missing", "install-in-prose"]);
}

/// What a manifest lists of Node is checked against the lock among its files, which nothing else makes.
#[tokio::test]
async fn validate_checks_the_packages_of_node_that_a_manifest_lists() {
    let lock = json!({"lockfileVersion": 3, "packages": {
        "": {"dependencies": {"docx": "^9"}},
        "node_modules/docx": {"version": "9.5.1", "integrity": format!("sha512-{}==", "a".repeat(86))},
    }})
    .to_string();
    let make = "generate it with knack skill lock";
    for (what, listed, lock, code, said) in [
        ("it fits", json!(["docx@^9"]), Some(&lock), 0, "ok   default/report"),
        ("no lock", json!(["docx@^9"]), None, 0, make),
        (
            "not in the lock",
            json!(["docx@^9", "xlsx"]),
            Some(&lock),
            1,
            "package-lock.json: xlsx is declared but not in the lock (regenerate the lock with knack skill lock)",
        ),
        (
            "an address",
            json!(["docx", "x@file:../x"]),
            Some(&lock),
            1,
            "spec.packages.node[1]: packages.node must be package names with version ranges",
        ),
    ] {
        let mut files = json!({
            "SKILL.md": "---\nname: report\ndescription: d\n---\nRun write.cjs.\n",
            "write.cjs": "require('docx'); require('pptxgenjs')\n",
        });
        if let Some(lock) = lock {
            files["package-lock.json"] = json!(lock);
        }
        let manifest = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "report"},
            "spec": {"packages": {"node": listed}, "source": {"inline": {"files": files}}},
        });
        let folder = folder(&[("skills/report.yaml", manifest.to_string().as_str())]);
        let output = knack(folder.path(), &["skill", "validate", "skills"], &[]).await;
        let told = out(&output);
        assert_eq!(output.status.code(), Some(code), "{what}: {told}");
        assert!(told.contains(said), "{what}: {told}");
        let missing = "write.cjs:1: pptxgenjs is loaded, but no package of Node provides it (add pptxgenjs to spec.packages.node, then";
        assert_eq!(told.contains(missing), code == 0, "{what}: {told}");
    }
}

/// What is missing depends on the machine, so each answer is compared with what stands in the directories of runs.
#[tokio::test]
async fn programs_that_skills_name_are_reported_where_they_are_missing() {
    const NAMES: [&str; 5] = ["pandoc", "pdftotext", "qpdf", "soffice", "tesseract"];
    let document = format!("---\nname: office\ndescription: d\n---\n{}\n", NAMES.join("\n"));
    let folder = folder(&[("skills/office/SKILL.md", document.as_str())]);
    let validated = knack(folder.path(), &["skill", "validate", "skills"], &[]).await;
    let looked = knack(folder.path(), &["doctor", "skills", "--output", "json"], &[]).await;
    assert_eq!(
        (validated.status.code(), looked.status.code()),
        (Some(0), Some(0)),
        "{}",
        err(&looked)
    );
    let said = out(&validated);
    let checks: Value = serde_json::from_str(&out(&looked)).unwrap();
    let checks = checks["checks"].as_array().unwrap();
    for (index, name) in NAMES.iter().enumerate() {
        let is_there = ["/usr/local/bin", "/usr/bin", "/bin"]
            .iter()
            .any(|directory| std::path::Path::new(directory).join(name).exists());
        let line = format!(
            "SKILL.md:{}: the program {name} is named but not installed on this machine (get it with: apt-get install ",
            index + 5
        );
        assert_eq!(!is_there, said.contains(&line), "{name}: {said}");
        // No run can have a socket, which it needs.
        let is_usable = *name != "soffice";
        let of_no_use = format!(
            "SKILL.md:{}: the program {name} is named, but runs on this machine cannot use it",
            index + 5
        );
        assert_eq!(is_there && !is_usable, said.contains(&of_no_use), "{name}: {said}");
        let check = checks.iter().find(|check| check["what"] == *name).unwrap();
        assert_eq!(check["is_there"], json!(is_there && is_usable), "{check}");
        let place = format!("named by office: SKILL.md:{}", index + 5);
        assert_eq!(check["details"][1], json!(place));
    }
    assert_eq!(checks[0]["is_there"], json!(true), "{:?}", checks[0]);
    // A program on PATH that runs cannot start, and one that they can.
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    let own = folder.path().join("bin/xelatex");
    std::fs::copy("/bin/sh", &own).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
    let all = out(&knack(folder.path(), &["doctor"], &[("PATH", &path)]).await);
    let is_installed = std::path::Path::new("/usr/bin/xelatex").exists();
    let closed = format!("MISSING xelatex: runs cannot find or execute {}", own.display());
    assert!(is_installed || all.contains(&closed), "{all}");
    assert!(
        all.lines().any(|line| line.starts_with("ok      sandbox, for python")),
        "{all}"
    );
}

#[tokio::test]
async fn without_uv_the_help_says_how_to_get_it_and_only_what_is_declared_is_not_run() {
    let folder = folder(FILES);
    let store = folder.path().join("store");
    let environment = [NO_UV, ("KNACK_PACKAGES_DIR", store.to_str().unwrap())];
    for (arguments, code, parts) in [
        (
            &[
                "skill",
                "run",
                "skills/declares",
                "--",
                "python3",
                "skills/declares/a.py",
            ][..],
            1,
            &[
                "packages of declares: PackagesOff: packages are installed by uv",
                "pipx install uv",
                "so it is not run",
            ][..],
        ),
        (
            &["skill", "run", "skills/refused", "--", "python3", "-c", "1"],
            1,
            &["packages of refused: Refused: requirements.txt:2"],
        ),
        (
            &[
                "skill",
                "run",
                "skills/inferred",
                "--",
                "python3",
                "skills/inferred/a.py",
            ],
            0,
            &["its scripts run without the standard environment: PackagesOff"],
        ),
        (
            &["skill", "run", "skills/plain", "--", "python3", "skills/plain/a.py"],
            0,
            &["exit 0"],
        ),
        (&["skill", "lock", "skills/declares"], 1, &["pipx install uv"]),
        (&["skill", "lock", "skills/refused"], 1, &["requirements.txt:2"]),
        (&["skill", "lock", "skills/plain"], 1, &["no packages are declared"]),
        (&["skill", "lock", "skills/inferred"], 1, &["has a lock of its own"]),
        (&["skill", "lock", "none"], 1, &["none: not a folder"]),
        (&["skill", "packages", "skills/refused"], 1, &[]),
        (&["skill", "packages", "none"], 1, &["no skill found"]),
        (&["packages", "prune"], 0, &[]),
    ] {
        let output = knack(folder.path(), arguments, &environment).await;
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}{}",
            out(&output),
            err(&output)
        );
        for part in parts {
            assert!(err(&output).contains(part), "{part} in {}", err(&output));
        }
    }
}

#[tokio::test]
async fn the_state_of_every_skill_is_shown() {
    let folder = folder(FILES);
    let store = folder.path().join("store");
    let environment = [NO_UV, ("KNACK_PACKAGES_DIR", store.to_str().unwrap())];
    let arguments = ["skill", "packages", "skills", "--output", "json"];
    let output = knack(folder.path(), &arguments, &environment).await;
    let document: Value = serde_json::from_str(&out(&output)).unwrap();
    let states: Vec<(String, String)> = document["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| {
            (
                skill["skill"].as_str().unwrap().to_owned(),
                skill["state"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("declares", "NotBuilt"),
        ("inferred", "NotBuilt"),
        ("plain", "NotDeclared"),
        ("refused", "Refused"),
    ];
    assert_eq!(
        states,
        expected.map(|(skill, state)| (skill.to_owned(), state.to_owned()))
    );
}

/// Another folder than the one that was meant is neither filled nor emptied.
#[tokio::test]
async fn a_store_that_is_not_named_from_the_root_is_refused() {
    let folder = folder(FILES);
    let (cache, environment) = (
        folder.path().join("cache"),
        folder.path().join("cache/knack/packages/env-1"),
    );
    std::fs::create_dir_all(&environment).unwrap();
    let variables = [
        NO_UV,
        ("KNACK_PACKAGES_DIR", "store"),
        ("XDG_CACHE_HOME", cache.to_str().unwrap()),
    ];
    for (arguments, code) in [
        (&["packages", "prune", "--unused-for", "0"][..], 1),
        (&["skill", "packages", "skills/declares"], 1),
        // Without packages code can be run: it is told, and no failure.
        (&["doctor"], 0),
    ] {
        let output = knack(folder.path(), arguments, &variables).await;
        let told = format!("{}{}", out(&output), err(&output));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(
            told.contains("KNACK_PACKAGES_DIR: store is not an absolute path"),
            "{arguments:?}: {told}"
        );
    }
    assert!(environment.exists());
}

#[tokio::test]
async fn doctor_says_where_packages_cannot_be_kept() {
    let folder = folder(&[("file", ""), ("open/x", ""), ("closed/x", "")]);
    for (name, mode) in [("open", 0o777), ("closed", 0o555)] {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
    }
    // Root writes everywhere.
    let closed = (!rustix::process::geteuid().is_root()).then_some("closed cannot be written");
    for (store, said) in [
        ("new/store", None),
        ("file/store", Some("file is not a folder")),
        ("open", Some("it is not a folder that only this user can write to")),
        ("closed/store", closed),
    ] {
        let path = folder.path().join(store);
        let told = out(&knack(
            folder.path(),
            &["doctor"],
            &[("KNACK_PACKAGES_DIR", path.to_str().unwrap())],
        )
        .await);
        let line = told
            .lines()
            .find(|line| line.contains("folder for packages: "))
            .unwrap();
        match said {
            None => assert_eq!(line, format!("ok      folder for packages: {}", path.display())),
            Some(said) => assert!(
                line.starts_with("MISSING ")
                    && line.ends_with(&format!("{said}; name another folder by KNACK_PACKAGES_DIR")),
                "{line}"
            ),
        }
    }
    assert!(!folder.path().join("new").exists(), "nothing is changed");
}

#[tokio::test]
async fn dev_serves_no_skill_with_packages_that_its_runtime_does_not_allow() {
    let skill = |packages: &str| {
        format!(
            "---\nname: sheet\ndescription: d\nactivation: Always\npackages: {{python: [{packages}]}}\n---\nPlover.\n"
        )
    };
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\n\
                   spec: {maxActivation: Always, packages: {allowed: None}}\n";
    let field = "spec.packages.allowed of the runtime is None";
    let named = json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]});
    let files = folder(&[
        ("skills/sheet/SKILL.md", &skill("openpyxl")),
        ("skills/runtime.yaml", runtime),
    ]);
    let mut program = Program::start(files, &["--upstream", "mock", "--no-local-executor"], &[]).await;
    let told = program.greeting.join("\n");
    assert!(told.contains(&format!("skill sheet is not served: {field}")), "{told}");
    let answer = program
        .post("/v1/chat/completions", &named, &[("x-knack-skills", "sheet")])
        .await;
    assert!(
        answer.contains("here but not served") && answer.contains(field),
        "{answer}"
    );
    // Without them it is served, and goes on when an edit adds some.
    let path = program.path("skills/sheet/SKILL.md");
    for (packages, line) in [
        ("", "1 skill at revision"),
        ("openpyxl", "skill sheet: spec.packages.allowed"),
    ] {
        std::fs::write(&path, skill(packages)).unwrap();
        while !program.line().await.contains(line) {}
        let answer = program
            .post("/v1/chat/completions", &named, &[("x-knack-skills", "sheet")])
            .await;
        assert!(answer.contains("choices"), "{packages}: {answer}");
    }
}

/// What a cluster would refuse by the rules of the runtime beside the skill.
#[tokio::test]
async fn validate_says_what_the_runtime_beside_a_skill_does_not_allow() {
    let skill = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  packages: {python: [\"mcp==2.1\"]}\n  source: \
                 {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: d\\n---\\nx\\n\"}}}\n";
    for (rules, code, said) in [
        ("{}", 0, ""),
        (
            "{requireLock: true}",
            0,
            "skill good: packages are declared without a lock",
        ),
        (
            "{allowed: Standard}",
            0,
            "skill good: spec.packages.allowed of the runtime is Standard",
        ),
        ("{constraints: [mcp<2]}", 0, "skill good: mcp==2.1 is pinned"),
        (
            "{constraints: [mcp<2x]}",
            1,
            "(SkillRuntime default/main): spec.packages.constraints[0]: packages.constraints must be package names",
        ),
    ] {
        let runtime =
            "---\napiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: main}\nspec: {packages: ";
        let folder = folder(&[("all.yaml", &format!("{skill}{runtime}{rules}}}\n"))]);
        let output = knack(folder.path(), &["skill", "validate", "all.yaml"], &[]).await;
        assert_eq!(output.status.code(), Some(code), "{rules}: {}", out(&output));
        assert!(out(&output).contains(said), "{rules}: {}", out(&output));
        let is_told = out(&output).contains("skill good: ") || code == 1;
        assert_eq!(is_told, !said.is_empty(), "{}", out(&output));
    }
}
