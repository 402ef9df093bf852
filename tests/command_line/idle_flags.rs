//! Flags that would do nothing: refused by their names, and never because a variable of the environment has the same meaning.

use super::program::{Program, folder, knack};
use super::skill_files::DOCUMENT;
use super::{err, out};

/// Nobody's cluster is asked.
const NO_CLUSTER: (&str, &str) = ("KUBECONFIG", "none");

const FILES: &[(&str, &str)] = &[("good/SKILL.md", DOCUMENT), ("token", "t"), ("ca.pem", "hello")];

async fn said(arguments: &str, environment: &[(&str, &str)]) -> String {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = knack(folder(FILES).path(), &arguments, environment).await;
    assert!(!output.status.success(), "{arguments:?}: {}", out(&output));
    err(&output)
}

#[tokio::test]
async fn a_flag_without_effect_is_refused_by_its_name() {
    for (arguments, flag) in [
        ("skill run a/b --runtime a/r --ca-file ca.pem", "--ca-file"),
        ("skill run a/b --runtime a/r --ca-pem x", "--ca-pem"),
        ("skill run a/b --runtime a/r --skill b", "--skill"),
        ("skill run good --tool add -- true", "--tool"),
        ("skill import good --ca-file ca.pem", "--ca-file"),
        ("skill import good --skill good", "--skill"),
        ("skill packages good --ca-pem x", "--ca-pem"),
        ("trace -n a --gateway 127.0.0.1:1", "--gateway"),
        (
            "history --server https://x --token-file token --ca-file ca.pem --registry .",
            "--registry",
        ),
        (
            "packages serve --builder-image x --repository a/b --packages",
            "--packages",
        ),
        (
            "packages serve --builder-image x --repository a/b --sandbox-priority-class x",
            "--sandbox-priority-class",
        ),
        ("dev good --no-local-executor --files-dir x", "--files-dir"),
        ("dev good --no-local-executor --allow-env good:X", "--allow-env"),
        (
            "dev good --listen 127.0.0.1:0 --upstream mock --registry r --catalog-files-url http://127.0.0.1:1",
            "--catalog-files-url",
        ),
        ("gateway --mcp health", "health"),
        ("registry --tls-dir x --ca-file ca.pem", "--ca-file"),
    ] {
        let said = said(arguments, &[NO_CLUSTER]).await;
        let named = said.lines().next().unwrap_or_default();
        assert!(
            named.starts_with("error: ") && named.contains(flag),
            "{arguments}: {said}"
        );
    }
}

/// A skill may come later, so this is a warning.
#[tokio::test]
async fn dev_says_which_flags_name_a_skill_that_is_not_here() {
    let (mock, token) = (["--upstream", "mock"], [("TOKEN", "t")]);
    let flags = [
        "--set",
        "godo.currency=secret",
        "--allow-env",
        "goood:TOKEN",
        "--allow-env",
        "good:TOKEN",
    ];
    let files = || folder(&[("skills/good/SKILL.md", DOCUMENT)]);
    let program = Program::start(files(), &[&mock[..], &flags].concat(), &token).await;
    let told = program.greeting.join("\n");
    for (flag, skill) in [("--set godo.currency", "godo"), ("--allow-env goood:TOKEN", "goood")] {
        let line = format!("warning: {flag}: no skill {skill} is found here, so it has no effect");
        assert!(told.contains(&line), "{told}");
    }
    assert!(!told.contains("env good:TOKEN: ") && !told.contains("secret"), "{told}");
    // A skill of any name may be uploaded, and is named as one.
    let registry = ["--registry", "registry", "--allow-env", "uploads/any:TOKEN"];
    let program = Program::start(files(), &[&mock[..], &flags, &registry].concat(), &token).await;
    let told = program.greeting.join("\n");
    assert!(
        told.contains("goood:TOKEN: no skill goood is found here") && !told.contains("any:TOKEN"),
        "{told}"
    );
    // Its files are here.
    let unasked =
        "skill good: no declared tool that may get values asks for TOKEN, so --allow-env good:TOKEN has no effect";
    assert!(told.contains(unasked), "{told}");
}

/// The change of a file is told as its beginning is.
#[tokio::test]
async fn dev_says_which_values_tools_ask_for_in_vain() {
    let asking = |env: &str| {
        let tool = format!("  - name: rain\n    description: d\n    command: [python3, rain.py]\n    env: [{env}]\n");
        format!("---\nname: good\ndescription: d\ntools:\n{tool}---\nx\n")
    };
    let files = folder(&[("skills/good/SKILL.md", &asking("TOKEN")), ("skills/good/rain.py", "")]);
    let document = files.path().join("skills/good/SKILL.md");
    let arguments = ["--upstream", "mock", "--allow-env", "good:TOKEN"];
    let mut program = Program::start(files, &arguments, &[("TOKEN", "secret")]).await;
    let told = program.greeting.join("\n");
    assert!(!told.contains("environment values"), "{told}");
    std::fs::write(document, asking("TOKEN, REGION")).unwrap();
    let line = loop {
        let line = program.line().await;
        if line.contains("environment values") {
            break line;
        }
    };
    assert!(
        line.contains("rain: REGION; grant them with --allow-env good:REGION, or remove them")
            && !line.contains("secret"),
        "{line}"
    );
}

/// A variable is for every command, so the one that has no use for it goes on.
#[tokio::test]
async fn a_variable_that_a_command_has_no_use_for_is_no_error() {
    let authorities = ("KNACK_CA_PEM", "hello");
    for (arguments, variable, goes_on_to) in [
        ("skill run a/b --runtime a/r", authorities, "kubeconfig"),
        ("trace -n a", ("KNACK_LISTEN", "127.0.0.1:1"), "kubeconfig"),
        (
            "history --server https://127.0.0.1:1 --token-file token --ca-file ca.pem",
            ("KNACK_REGISTRY", "r"),
            "--server",
        ),
        ("gateway health", ("KNACK_MCP", "true"), "the gateway at 127.0.0.1:9090"),
    ] {
        let said = said(arguments, &[NO_CLUSTER, variable]).await;
        assert!(said.contains(goes_on_to), "{arguments}: {said}");
    }
    let imported = knack(folder(FILES).path(), &["skill", "import", "good"], &[authorities]).await;
    assert!(out(&imported).contains("kind: Skill"), "{}", err(&imported));
}

#[tokio::test]
async fn a_value_that_a_skill_asks_for_is_given_to_each_of_its_tools() {
    let document = "---\nname: sec\ndescription: d\ntool_env: [TOKEN]\ntools:\n  - name: w\n    description: d\n    \
                    command: [python3, w.py]\n---\nx\n";
    let tool = "import os\nprint(os.environ['TOKEN'])\n";
    let files = folder(&[("sec/SKILL.md", document), ("sec/w.py", tool)]);
    let run = async |granted: &str| {
        let arguments = ["skill", "run", "sec", "--tool", "w", "--allow-env", granted];
        knack(files.path(), &arguments, &[("TOKEN", "t-123"), ("OTHER", "o")]).await
    };
    let output = run("sec:TOKEN").await;
    assert_eq!(out(&output), "t-123\n", "{}", err(&output));
    let refused = err(&run("sec:OTHER").await);
    assert!(
        refused.contains("asks for that variable; they ask for TOKEN"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_empty_variable_counts_as_absent_and_one_means_yes() {
    let empty = [
        "KNACK_UPSTREAM",
        "KNACK_UPSTREAM_OPENAI",
        "KNACK_UPSTREAM_KNACK",
        "KNACK_SANDBOX_CODE_TOOLS",
        "KNACK_FILES",
        "KNACK_REGISTRY",
        "KNACK_RUN_MODEL",
        "KNACK_CA_FILE",
        "KNACK_CA_PEM",
    ];
    let files = || folder(&[("skills/good/SKILL.md", DOCUMENT)]);
    let without = ["--no-local-executor"];
    Program::start(files(), &without, &empty.map(|variable| (variable, ""))).await;
    let traced = knack(files().path(), &["trace"], &[("KNACK_LISTEN", "")]).await;
    assert!(!err(&traced).contains("KNACK_LISTEN"), "{}", err(&traced));
    assert!(!err(&traced).contains("invalid value"), "{}", err(&traced));
    let listed = knack(files().path(), &["history"], &[("KNACK_REGISTRY", "")]).await;
    assert!(err(&listed).contains("--registry <DIR>"), "{}", err(&listed));
    for (value, is_on) in [
        ("1", true),
        ("yes", true),
        ("true", true),
        ("0", false),
        ("false", false),
    ] {
        let arguments = ["--no-local-executor", "--upstream", "mock", "--registry", "registry"];
        let program = Program::start(files(), &arguments, &[("KNACK_FILES", value)]).await;
        let told = program.greeting.join("\n");
        assert_eq!(told.contains("uploaded files are kept in"), is_on, "{value}: {told}");
    }
    let unread = said("dev good --no-local-executor", &[("KNACK_FILES", "maybe")]).await;
    assert!(unread.contains("--files"), "{unread}");
}
