//! `knack dev`: start, refusals, where requests go, what is recorded.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::gateway::PATIENCE;
use super::program::{Program, folder, knack};
use super::{err, out};

const SKILL: &str = "---\nname: always\ndescription: d\nactivation: Always\n---\nThe word is plover.\n";
pub(crate) const FILES: &[(&str, &str)] = &[("skills/always/SKILL.md", SKILL)];

pub(crate) fn hello() -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]})
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = folder(FILES);
    let output = knack(folder.path(), &["dev", "skills", "--listen", &address], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert!(
        said.contains(&address) && said.contains("choose another port"),
        "{said}"
    );
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_before_anything_starts() {
    let folder = folder(FILES);
    let dev = ["dev", "skills", "--listen", "127.0.0.1:0"];
    for (arguments, said) in [
        (&["--listen", "0.0.0.0:4141"][..], "loopback addresses only"),
        (&["--upstream", "ftp://x"], "not an http or https URL"),
        (&["--upstream", "not a url"], "is not a URL"),
        (
            &["--upstream-openai", "http://name:word@host/v1"],
            "a user name or a password",
        ),
        (&["--upstream", "mock=none.yaml"], "the script cannot be read"),
        (&["--allow-env", "always:OPENAI_API_KEY"], "OPENAI_API_KEY"),
        (
            &["--record", "skills/always/SKILL.md"],
            "--record skills/always/SKILL.md: is a file; name a folder",
        ),
    ] {
        // A flag that comes twice is an error of its own.
        let base = if arguments[0] == "--listen" {
            &dev[..2]
        } else {
            &dev[..]
        };
        let output = knack(folder.path(), &[base, arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
    let output = knack(folder.path(), &dev, &[("TMPDIR", "/none/at/all")]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("TMPDIR names the folder"), "{}", err(&output));
}

/// A SkillRuntime that says less than the defaults, or another provider, must not be lost.
#[tokio::test]
async fn a_named_file_that_may_hold_a_runtime_and_cannot_be_read_is_refused() {
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {maxRisk: Low}\n";
    for (file, said) in [
        (runtime.replace("maxRisk", "maxRisc"), "maxRisc"),
        (runtime.replace("SkillRuntime", "SkillRuntim"), "SkillRuntim"),
        (runtime.replace("{name: r}", "{name: r"), "not valid YAML"),
    ] {
        let folder = folder(&[FILES[0], ("runtime.yaml", &file)]);
        let arguments = [
            "dev",
            "skills",
            "runtime.yaml",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "mock",
        ];
        let output = knack(folder.path(), &arguments, &[]).await;
        assert_eq!(output.status.code(), Some(1), "{said}");
        let told = err(&output);
        assert!(
            told.starts_with("error: runtime.yaml: ") && told.contains(said),
            "{told}"
        );
    }
    let output = knack(
        folder(FILES).path(),
        &["dev", "skills", "none", "--listen", "127.0.0.1:0"],
        &[],
    )
    .await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("none: nothing is at this path"),
        "{}",
        err(&output)
    );
    // A skill is mended while it is served.
    let skill = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: s}\nspec: {sauce: {}}\n";
    let files = folder(&[FILES[0], ("skill.yaml", skill)]);
    let arguments = ["skill.yaml", "--upstream", "mock", "--no-local-executor"];
    let program = Program::start(files, &arguments, &[]).await;
    let told = program.greeting.join("\n");
    assert!(told.contains("error: skill.yaml: ") && told.contains("sauce"), "{told}");
}

/// As one that an editor has emptied before it writes.
#[tokio::test]
async fn an_emptied_manifest_keeps_its_skill() {
    let manifest = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: kept}\nspec:\n  source: {inline: {files: {SKILL.md: \
                    \"---\\nname: kept\\ndescription: d\\nactivation: Always\\n---\\nx\\n\"}}}\n";
    let arguments = ["--upstream", "mock", "--no-local-executor"];
    let mut program = Program::start(folder(&[("skills/m.yaml", manifest)]), &arguments, &[]).await;
    std::fs::write(program.path("skills/m.yaml"), "").unwrap();
    while !program.line().await.contains("m.yaml: it has no object; ") {}
    program.post("/v1/chat/completions", &hello(), &[]).await;
    while !program.line().await.contains("skills: kept (always)") {}
}

/// The command of the pages that are read first, as it stands there.
#[tokio::test]
async fn the_command_of_the_pages_serves_the_examples() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut commands = Vec::new();
    for page in ["README.md", "docs/dev.md", "docs/mcp.md", "examples/README.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let (_, command) = text
            .split_once("knack dev ")
            .unwrap_or_else(|| panic!("{page}: no command"));
        let end = command.find(['\n', '`']).unwrap();
        commands.push((page, command[..end].to_owned()));
    }
    for (page, command) in &commands {
        assert_eq!(command, &commands[0].1, "{page}");
    }
    let folder = folder(&[]);
    std::os::unix::fs::symlink(root.join("examples"), folder.path().join("examples")).unwrap();
    let paths: Vec<&str> = commands[0].1.split(' ').collect();
    let arguments = [&paths[..], &["--upstream", "mock", "--no-local-executor"]].concat();
    let mut program = Program::start_with(folder, &arguments, &[]).await;
    let greeting = program.greeting.join("\n");
    for part in ["error", "several SkillRuntimes", "is not served"] {
        assert!(!greeting.contains(part), "{part}: {greeting}");
    }
    program.post("/v1/chat/completions", &hello(), &[]).await;
    let line = program.line().await;
    assert!(line.contains("answer-style (always)"), "{line}");
}

#[tokio::test]
async fn several_runtimes_are_reported_with_what_to_do() {
    for (marked, said) in [
        ("{}", "; set spec.default: true on one of them"),
        ("{default: true}", "; keep spec.default: true on one of them"),
    ] {
        let of = |name: &str| {
            format!("apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: {name}}}\nspec: {marked}\n")
        };
        let files = [FILES[0], ("skills/a.yaml", &of("a")), ("skills/b.yaml", &of("b"))];
        let program = Program::start(folder(&files), &["--upstream", "mock", "--no-local-executor"], &[]).await;
        let greeting = program.greeting.join("\n");
        assert!(
            greeting.contains(&format!("several SkillRuntimes (a, b); a is used{said}")),
            "{greeting}"
        );
    }
}

#[tokio::test]
async fn it_says_why_generated_files_are_written_to_no_folder() {
    let arguments = ["--upstream", "mock", "--no-local-executor"];
    let program = Program::start(folder(FILES), &arguments, &[("XDG_STATE_HOME", "/dev/null")]).await;
    let greeting = program.greeting.join("\n");
    for part in ["by URL only", "/dev/null/knack/files: Not a directory", "--files-dir"] {
        assert!(greeting.contains(part), "{part} in {greeting}");
    }
}

#[tokio::test]
async fn trace_takes_an_address_as_dev_prints_it_and_says_what_one_is() {
    let folder = folder(&[]);
    for (gateway, said) in [
        ("http://127.0.0.1:1", "gateway at 127.0.0.1:1\n"),
        ("http://localhost:1/", "gateway at 127.0.0.1:1\n"),
        ("[::1]:1", "gateway at [::1]:1\n"),
        ("knack.example", "write an IP address and a port"),
    ] {
        let output = knack(folder.path(), &["trace", "--gateway", gateway], &[]).await;
        assert!(err(&output).contains(said), "{gateway}: {}", err(&output));
    }
}

#[tokio::test]
async fn it_says_how_to_point_each_sdk_at_it_and_one_line_for_each_request() {
    let arguments = ["--upstream", "mock", "--no-local-executor", "--print-port-file", "port"];
    let mut program = Program::start(folder(FILES), &arguments, &[]).await;
    let greeting = program.greeting.join("\n");
    for part in [
        format!("OPENAI_BASE_URL={}/v1", program.url),
        format!("ANTHROPIC_BASE_URL={}\n", program.url),
        format!("GOOGLE_GEMINI_BASE_URL={}\n", program.url),
        format!("MCP clients     {}/mcp", program.url),
        "1 skill at revision".to_owned(),
        "code is not run here".to_owned(),
    ] {
        assert!(greeting.contains(&part), "{part} in {greeting}");
    }
    // The answer proves that the port file exists: it is written before the first request is served.
    program.post("/v1/chat/completions", &hello(), &[]).await;
    let line = program.line().await;
    for part in ["200 chat gpt-x", "skills: always (always)", "tokens", "1 round"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let port = std::fs::read_to_string(program.path("port")).unwrap();
    assert!(program.url.ends_with(&format!(":{}", port.trim())), "{port}");
    program.stop().await;
    let stopping = program.line().await;
    assert!(
        stopping.starts_with("stopping; running answers are finished first"),
        "{stopping}"
    );
    assert_eq!(program.line().await, "stopped");
}

/// Skills that the budget of the list leaves out are not in the request's text.
#[tokio::test]
async fn a_request_counts_the_skills_that_its_list_has() {
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {gateway: {injection: {maxListingTokens: 200}}}\n";
    let skills: Vec<(String, String)> = (0..40)
        .map(|number| {
            let name = format!("one-of-many-{number}");
            let text = format!("---\nname: {name}\ndescription: d\n---\nx\n");
            (format!("skills/{name}/SKILL.md"), text)
        })
        .collect();
    let mut files: Vec<(&str, &str)> = skills
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    files.push(("runtime.yaml", runtime));
    let arguments = ["runtime.yaml", "--upstream", "mock", "--no-local-executor"];
    let mut program = Program::start(folder(&files), &arguments, &[]).await;
    let before = |text: &str, word: &str| {
        let (head, _) = text.split_once(word).unwrap_or_else(|| panic!("{word} in {text}"));
        head.trim_end().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let omitted = before(&program.greeting.join("\n"), " skills omitted");
    assert!((1..40).contains(&omitted), "{omitted}");
    program.post("/v1/chat/completions", &hello(), &[]).await;
    assert_eq!(before(&program.line().await, " listed"), 40 - omitted);
    program.stop().await;
}

#[tokio::test]
async fn a_request_is_shown_afterwards_and_its_content_is_not() {
    let arguments = ["--upstream", "mock", "--no-local-executor"];
    let mut program = Program::start(folder(FILES), &arguments, &[]).await;
    let address = program.url.strip_prefix("http://").unwrap().to_owned();
    let here = folder(&[]);
    let trace =
        async |words: &[&str]| knack(here.path(), &[&["trace", "--gateway", &address], words].concat(), &[]).await;
    let none = trace(&[]).await;
    assert!(
        none.status.success() && err(&none).contains("no request so far"),
        "{none:?}"
    );

    program.post("/v1/chat/completions", &hello(), &[]).await;
    program.line().await;
    // The report is there a moment after the line.
    let begun = Instant::now();
    let listed = loop {
        let listed = trace(&["-o", "json"]).await;
        let listed: Value = serde_json::from_str(&out(&listed)).unwrap();
        if listed["requests"][0].is_object() {
            break listed;
        }
        assert!(begun.elapsed() < PATIENCE, "{listed}");
    };
    let id = listed["requests"][0]["requestId"].as_str().unwrap();
    let shown = out(&trace(&[id]).await);
    for part in [
        id,
        "200 chat gpt-x",
        "skills    always (always)",
        "round 1: provider 200",
        "end       answer",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let json: Value = serde_json::from_str(&out(&trace(&[id, "-o", "json"]).await)).unwrap();
    assert_eq!(json, listed["requests"][0]);
    let text = json.to_string();
    for content in ["hello", "plover", "sk-client"] {
        assert!(!text.contains(content) && !shown.contains(content), "{content}: {text}");
    }

    for (words, said) in [
        (&["0199c0de-0000-7000-8000-000000000000"][..], "no request 0199c0de"),
        (&["../../metrics"], "is not a request id"),
    ] {
        let failed = trace(words).await;
        assert!(!failed.status.success() && err(&failed).contains(said), "{failed:?}");
    }
    program.stop().await;
    let gone = trace(&[]).await;
    assert!(
        !gone.status.success() && err(&gone).contains("is knack dev running?"),
        "{gone:?}"
    );
}

#[tokio::test]
async fn recordings_hold_the_bodies_before_and_after_and_no_credential() {
    let arguments = ["--upstream", "mock", "--no-local-executor", "--record", "bodies"];
    let mut program = Program::start(folder(FILES), &arguments, &[]).await;
    let answer = program.post("/v1/chat/completions", &hello(), &[]).await;
    program.stop().await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&program.path("bodies")), 0o700, "only for its user");
    let mut recorded: BTreeMap<String, String> = BTreeMap::new();
    for entry in std::fs::read_dir(program.path("bodies")).unwrap() {
        let entry = entry.unwrap();
        // `0001-<request id>.<what>`
        let name = entry.file_name().into_string().unwrap();
        let (request, what) = name.split_once('.').unwrap();
        assert!(request.starts_with("0001-"), "{name}");
        assert_eq!(mode(&entry.path()), 0o600, "{name}");
        recorded.insert(what.to_owned(), std::fs::read_to_string(entry.path()).unwrap());
    }
    let names: Vec<&str> = recorded.keys().map(String::as_str).collect();
    assert_eq!(names, ["request.json", "response", "upstream-1.json"]);
    assert_eq!(recorded["request.json"], hello().to_string());
    assert_eq!(recorded["response"], answer);
    assert!(
        recorded["upstream-1.json"].contains("The word is plover."),
        "{recorded:?}"
    );
    assert!(
        recorded.values().all(|body| !body.contains("sk-client")),
        "{recorded:?}"
    );
}

/// Providers that note with which key they were asked.
async fn provider() -> (String, Arc<Mutex<Vec<String>>>) {
    type Seen = Arc<Mutex<Vec<String>>>;
    async fn answer(State(seen): State<Seen>, headers: HeaderMap) -> axum::Json<Value> {
        let key = headers["authorization"].to_str().unwrap().to_owned();
        seen.lock().unwrap().push(key);
        axum::Json(json!({"id": "1", "object": "chat.completion", "model": "m", "choices":
            [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}))
    }
    let seen = Seen::default();
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

#[tokio::test]
async fn upstreams_come_from_flags_then_the_environment_then_the_runtime_and_keys_from_the_client_unless_set() {
    let (flagged, seen_flagged) = provider().await;
    let (named, seen_named) = provider().await;
    let manifest = format!(
        "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: dev}}\nspec: {{gateway: {{upstreams: {{openai: {{url: \"{named}\"}}}}}}}}\n"
    );
    let files = [FILES[0], ("runtime.yaml", manifest.as_str())];
    let openai = ["--no-local-executor", "--upstream-openai", &flagged];
    let runtime = ["--no-local-executor", "runtime.yaml"];
    let variable = [("KNACK_UPSTREAM_OPENAI", flagged.as_str())];
    let key = [("KNACK_UPSTREAM_OPENAI_KEY", "sk-own")];
    for (arguments, environment, seen, expected) in [
        (&openai[..], &[][..], &seen_flagged, "Bearer sk-client"),
        (&openai, &key, &seen_flagged, "Bearer sk-own"),
        (&openai[..1], &variable, &seen_flagged, "Bearer sk-client"),
        (&runtime, &[], &seen_named, "Bearer sk-client"),
    ] {
        let mut program = Program::start(folder(&files), arguments, environment).await;
        let answer = program.post("/v1/chat/completions", &hello(), &[]).await;
        program.stop().await;
        let keys = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(keys, [expected], "{arguments:?} {environment:?}: {answer}");
    }
}

/// A model that writes a skill, a runtime and a manifest, and then repeats its system text.
const PLANTING: &str = r#"
turns:
  - user: plant
    rounds:
      - reply:
          calls:
            - tool: run_code
              arguments:
                code: |
                  import os
                  os.makedirs("x/y", exist_ok=True)
                  text = "---\nname: planted\ndescription: d\nactivation: Always\n---\nEvil words.\n"
                  open("x/SKILL.md", "w").write(text)
                  open("x/y/run.yaml", "w").write("apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {default: true, gateway: {upstreams: {openai: {url: 'http://127.0.0.1:9/evil'}}}}\n")
      - reply: {text: planted}
  - rounds:
      - expect: {no_system: Evil words}
        reply: {text: clean}
"#;

async fn nothing_planted_is_served(paths: &[&str], arguments: &[&str], written_to: &str) {
    let folder = folder(&[
        (
            "skills/helper/SKILL.md",
            "---\nname: helper\ndescription: d\nactivation: Always\n---\nRun python3 skills/helper/add.py.\n",
        ),
        ("skills/helper/add.py", "print(1)\n"),
        ("script.yaml", PLANTING),
    ]);
    let arguments = [paths, &["--upstream", "mock=script.yaml"], arguments].concat();
    let program = Program::start_with(folder, &arguments, &[]).await;
    let say = |text: &str| json!({"model": "gpt-x", "messages": [{"role": "user", "content": text}]});
    let answer = program.post("/v1/chat/completions", &say("plant"), &[]).await;
    assert!(answer.contains("planted"), "{answer}");
    let written = walk(&program.path(written_to));
    assert!(written.iter().any(|path| path.ends_with("x/SKILL.md")), "{written:?}");
    // The watch has seen the files by now: a change is live for the next request.
    for _ in 0..5 {
        let answer = program.post("/v1/chat/completions", &say("hello"), &[]).await;
        assert!(answer.contains("clean"), "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn what_runs_write_never_becomes_a_skill_with_the_default_settings() {
    // The folder of the state lies below the one that is searched here, as in a home folder.
    nothing_planted_is_served(&[], &[], "state/knack/files").await;
}

#[tokio::test]
async fn what_runs_write_never_becomes_a_skill_or_a_part_of_one_below_a_searched_folder() {
    nothing_planted_is_served(&["."], &["--files-dir", "skills/out"], "skills/out").await;
    nothing_planted_is_served(&["skills"], &["--files-dir", "skills/helper/out"], "skills/helper/out").await;
}

#[tokio::test]
async fn upstreams_of_a_runtime_count_only_from_a_file_that_was_named() {
    let (url, seen) = provider().await;
    let manifest = format!(
        "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {{name: r}}\nspec: {{gateway: {{upstreams: {{openai: {{url: '{url}'}}}}}}}}\n"
    );
    let files = || folder(&[("skills/always/SKILL.md", SKILL), ("skills/runtime.yaml", &manifest)]);
    let mut named = Program::start_with(files(), &["skills/runtime.yaml", "--no-local-executor"], &[]).await;
    named.post("/v1/chat/completions", &hello(), &[]).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
    named.stop().await;
    let found = Program::start_with(files(), &["skills", "--no-local-executor"], &[]).await;
    let told = found.greeting.join("\n");
    assert!(
        told.contains("spec.gateway.upstreams is not used from a file that was found by searching"),
        "{told}"
    );
}

/// What a create confirmed is there after the process is killed, for its key and for no other.
#[tokio::test]
async fn an_uploaded_skill_outlives_a_killed_process() {
    let registry = tempfile::tempdir().unwrap();
    let registry = registry.path().to_str().unwrap();
    let arguments = ["--upstream", "mock", "--registry", registry];
    let key = [("x-api-key", "one")];
    let content = "---\nname: kept\ndescription: d\nactivation: Always\n---\nThe word is plover.\n";
    let mut program = Program::start(folder(FILES), &arguments, &[]).await;
    let created = program
        .post("/api/v1/skills", &json!({"name": "kept", "content": content}), &key)
        .await;
    assert!(created.contains("\"raw_content\""), "{created}");
    let second = knack(
        program.path("").as_path(),
        &["dev", "skills", "--listen", "127.0.0.1:0", "--registry", registry],
        &[],
    )
    .await;
    assert!(
        err(&second).contains("another knack uses this folder"),
        "{}",
        err(&second)
    );
    program.kill().await;
    let program = Program::start(folder(FILES), &arguments, &[]).await;
    for (key, is_taken) in [("one", true), ("two", false)] {
        let headers = [("x-api-key", key)];
        let answer = program
            .post("/api/v1/skills", &json!({"name": "kept", "content": content}), &headers)
            .await;
        assert_eq!(
            answer.contains("conflicts with existing skill 'kept'"),
            is_taken,
            "{answer}"
        );
        assert_eq!(answer.contains("\"raw_content\""), !is_taken, "{answer}");
    }
}

/// What an upload confirmed, and what was put into a container, is there after the process is killed, for its key and for no
/// other.
#[tokio::test]
async fn uploads_and_containers_outlive_a_killed_process_where_a_folder_keeps_them() {
    let registry = tempfile::tempdir().unwrap();
    let registry = registry.path().to_str().unwrap();
    let arguments = [
        "--upstream",
        "mock",
        "--no-local-executor",
        "--files",
        "--registry",
        registry,
    ];
    let client = super::gateway::client();
    let get = async |program: &Program, path: &str, key: &str| {
        let sent = client.get(format!("{}{path}", program.url)).bearer_auth(key).send();
        let answer = sent.await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let mut program = Program::start(folder(FILES), &arguments, &[]).await;
    let form = "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--B\r\nContent-Disposition: form-data; \
                name=\"file\"; filename=\"a.csv\"\r\n\r\na,b\r\n--B--\r\n";
    let sent = client
        .post(format!("{}/v1/files", program.url))
        .bearer_auth("one")
        .header("content-type", "multipart/form-data; boundary=B")
        .body(form);
    let file: Value = serde_json::from_str(&sent.send().await.unwrap().text().await.unwrap()).unwrap();
    let key = [("authorization", "Bearer one")];
    let made = program
        .post("/v1/containers", &json!({"name": "n", "file_ids": [file["id"]]}), &key)
        .await;
    let made: Value = serde_json::from_str(&made).unwrap();
    program.kill().await;
    let program = Program::start(folder(FILES), &arguments, &[]).await;
    let content = format!("/v1/files/{}/content", file["id"].as_str().unwrap());
    assert_eq!(get(&program, &content, "one").await, (200, "a,b".to_owned()));
    assert_eq!(get(&program, &content, "two").await.0, 404);
    let files = format!("/v1/containers/{}/files", made["id"].as_str().unwrap());
    let (status, listed) = get(&program, &files, "one").await;
    assert_eq!((status, listed.contains("/mnt/data/a.csv")), (200, true), "{listed}");
    assert_eq!(get(&program, &files, "two").await.0, 404);
}

/// A pipe with the name of a manifest has no writer: nobody waits for one.
#[tokio::test]
async fn a_pipe_in_a_folder_stops_neither_reloading_nor_the_end() {
    let mut program = Program::start(folder(FILES), &["--upstream", "mock", "--no-local-executor"], &[]).await;
    let pipe = program.path("skills/pipe.yaml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let changed = SKILL.replace("name: always", "name: later");
    std::fs::create_dir(program.path("skills/later")).unwrap();
    std::fs::write(program.path("skills/later/SKILL.md"), changed).unwrap();
    // The line of a request names the skills that it got.
    loop {
        program.post("/v1/chat/completions", &hello(), &[]).await;
        if program.line().await.contains("later") {
            break;
        }
    }
    program.stop().await;
}
