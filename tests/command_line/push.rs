//! `knack skill push` and `versions`, against `knack dev --registry`.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::StatusCode;
use knack_registry::{Files, zipped_content};
use knack_skill::model::SkillFile;
use serde_json::json;
use tokio::net::TcpListener;

use super::program::{Program, folder, knack};
use super::skill_files::{DOCUMENT, good};
use super::{err, out};

async fn push(path: &Path, program: &Program, source: &str, more: &[&str], key: &str) -> Output {
    let arguments = [&["skill", "push", source, "--to", &program.url], more].concat();
    knack(path, &arguments, &[("OPENAI_API_KEY", key)]).await
}

/// The id that a line of `push` names.
fn id_of(line: &str) -> String {
    let id = line.split(' ').nth(1).unwrap();
    assert!(id.starts_with("skill_"), "{line}");
    id.to_owned()
}

#[tokio::test]
async fn a_pushed_skill_is_served_and_pushed_again_it_is_a_new_version() {
    let registry = tempfile::tempdir().unwrap();
    let arguments = ["--upstream", "mock", "--registry", registry.path().to_str().unwrap()];
    let program = Program::start(folder(&[("skills/README", "")]), &arguments, &[]).await;
    let local = good();
    let path = local.path();

    let first = push(path, &program, "good", &[], "one").await;
    assert!(
        out(&first).ends_with("version 1, default\n"),
        "{}{}",
        out(&first),
        err(&first)
    );
    let id = id_of(&out(&first));
    // The default of the gateway's address, as vendors write it, does as well.
    std::fs::write(path.join("good/SKILL.md"), DOCUMENT.replace("Adds", "Adds whole")).unwrap();
    let base = format!("{}/v1", program.url);
    let second = knack(
        path,
        &["skill", "push", "good", "--to", &base, "--key-env", "OTHER"],
        &[("OTHER", "one")],
    )
    .await;
    assert_eq!(
        out(&second),
        format!("good {id} version 2, default\n"),
        "{}",
        err(&second)
    );
    let third = push(path, &program, "good", &["--keep-default"], "one").await;
    assert_eq!(out(&third), format!("good {id} version 3, the default is still 2\n"));

    let listed = ["skill", "versions", "good", "--to", &program.url];
    let output = knack(path, &listed, &[("OPENAI_API_KEY", "one")]).await;
    let shown = out(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}{}", err(&output));
    assert!(
        lines[0].starts_with("3  skver_") && lines[1].starts_with("2 (default)  skver_"),
        "{shown}"
    );
    assert!(lines[2].ends_with("Adds numbers."), "{shown}");

    // Behind a forwarded port the name is another one than what is looked up.
    let forwarded = program.url.replace("127.0.0.1", "knack-registry.localhost");
    let named = [
        "skill",
        "versions",
        "good",
        "--to",
        &forwarded,
        "--address",
        "127.0.0.1",
    ];
    let output = knack(path, &named, &[("OPENAI_API_KEY", "one")]).await;
    assert_eq!(out(&output), shown, "{}", err(&output));
    let elsewhere = [
        "skill",
        "versions",
        "good",
        "--to",
        &program.url.replace("127.0.0.1", "localhost"),
        "--address",
        "127.0.0.9",
    ];
    let output = knack(path, &elsewhere, &[("OPENAI_API_KEY", "one")]).await;
    assert!(err(&output).contains("error sending request"), "{}", err(&output));

    // Another key has skills of its own.
    let output = knack(path, &listed, &[("OPENAI_API_KEY", "two")]).await;
    assert!(
        err(&output).contains("this key has no skill of that name"),
        "{}",
        err(&output)
    );
    let other = push(path, &program, "good", &[], "two").await;
    assert_ne!(id_of(&out(&other)), id);
}

#[tokio::test]
async fn what_cannot_be_pushed_is_refused_by_name_and_nothing_is_sent() {
    let registry = tempfile::tempdir().unwrap();
    let arguments = ["--upstream", "mock", "--registry", registry.path().to_str().unwrap()];
    let mut program = Program::start(folder(&[("skills/README", "")]), &arguments, &[]).await;
    let closed = Program::start(folder(&[("skills/README", "")]), &["--upstream", "mock"], &[]).await;
    let local = good();
    let path = local.path();
    std::fs::create_dir_all(path.join("more/bad")).unwrap();
    std::fs::create_dir_all(path.join("more/good")).unwrap();
    std::fs::write(path.join("more/good/SKILL.md"), DOCUMENT).unwrap();
    std::fs::write(path.join("more/bad/SKILL.md"), DOCUMENT.replace("good", "Bad Name")).unwrap();
    std::fs::create_dir_all(path.join("empty")).unwrap();
    for name in ["twice/a/good", "twice/b/good"] {
        std::fs::create_dir_all(path.join(name)).unwrap();
        std::fs::write(path.join(name).join("SKILL.md"), DOCUMENT).unwrap();
    }
    std::fs::create_dir_all(path.join("always")).unwrap();
    let always = "---\nname: always\ndescription: d\nactivation: Always\ninputs: [{name: x}]\n---\n{{x}}\n";
    std::fs::write(path.join("always/SKILL.md"), always).unwrap();
    let set = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  version: 1.0.0\n  suspend: true\n  \
               activation: {mode: Always}\n  source: {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: d\\n---\\nx\\n\"}}}\n";
    std::fs::write(path.join("set.yaml"), set).unwrap();
    let to_all = set.replace(
        "version: 1.0.0\n  suspend: true\n  activation: {mode: Always}",
        "allowedRuntimes: {namespaces: {from: All}}",
    );
    std::fs::write(path.join("to_all.yaml"), to_all).unwrap();
    for (server, source, key, part) in [
        (&program, "more", "one", "Bad Name"),
        (&program, "empty", "one", "no skill found"),
        (
            &program,
            "always",
            "one",
            "always: activation: uploads to the APIs of OpenAI and Anthropic are Listed",
        ),
        (
            &program,
            "twice",
            "one",
            "twice/b/good: twice/a/good has a skill good, too",
        ),
        (
            &program,
            "set.yaml",
            "one",
            "the manifest also has spec.version, spec.activation.mode, spec.suspend; write spec.version as metadata.version into the \
             SKILL.md; for spec.activation.mode, spec.suspend apply the manifest to a cluster with kubectl instead",
        ),
        (
            &program,
            "to_all.yaml",
            "one",
            "the manifest also has spec.allowedRuntimes; for spec.allowedRuntimes apply the manifest to a cluster with kubectl instead",
        ),
        (&program, "missing", "one", "missing: nothing is at this path"),
        (&program, "good", "", "OPENAI_API_KEY is not set"),
        (
            &program,
            "good",
            "line\nbreak",
            "the key contains characters that are not allowed in a header",
        ),
        (&closed, "good", "one", "/v1/skills"),
    ] {
        let output = push(path, server, source, &[], key).await;
        assert_eq!(output.status.code(), Some(1), "{source}: {}", out(&output));
        assert!(
            err(&output).contains(part),
            "{source}: {} should contain {part}",
            err(&output)
        );
    }
    let listed = ["skill", "versions", "good", "--to", &program.url];
    let output = knack(path, &listed, &[("OPENAI_API_KEY", "one")]).await;
    assert!(
        err(&output).contains("no skill of that name"),
        "{}{}",
        out(&output),
        err(&output)
    );
    program.stop().await;
    let output = push(path, &program, "good", &[], "one").await;
    assert!(
        err(&output).contains("/v1/skills: error sending request"),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn every_skill_of_an_archive_is_pushed() {
    let registry = tempfile::tempdir().unwrap();
    let arguments = ["--upstream", "mock", "--registry", registry.path().to_str().unwrap()];
    let program = Program::start(folder(&[("skills/README", "")]), &arguments, &[]).await;
    let here = tempfile::tempdir().unwrap();
    let files = ["one", "two"].map(|name| {
        let file = SkillFile {
            bytes: DOCUMENT.replace("good", name).into_bytes().into(),
            executable: false,
        };
        (format!("skills/{name}/SKILL.md"), file)
    });
    let zip = zipped_content(&Files::from(files)).unwrap();
    std::fs::write(here.path().join("both.zip"), zip).unwrap();
    let output = push(here.path(), &program, "both.zip", &[], "one").await;
    let said = out(&output);
    let names: Vec<&str> = said.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["one", "two"], "{}", err(&output));
}

#[tokio::test]
async fn a_dry_run_of_a_push_shows_what_a_model_would_see_and_uploads_nothing() {
    let registry = tempfile::tempdir().unwrap();
    let arguments = ["--upstream", "mock", "--registry", registry.path().to_str().unwrap()];
    let program = Program::start(folder(&[("skills/README", "")]), &arguments, &[]).await;
    let local = good();
    let path = local.path();
    let versions = async || {
        let listed = ["skill", "versions", "good", "--to", &program.url];
        out(&knack(path, &listed, &[("OPENAI_API_KEY", "one")]).await)
    };

    let new = push(path, &program, "good", &["--dry-run"], "one").await;
    let text = out(&new);
    for part in [
        "good would be new\n",
        "+<skill name=\"good\">Adds numbers.</skill>",
        "file SKILL.md: added, ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}{}", err(&new));
    }
    assert_eq!(versions().await, "");

    let id = id_of(&out(&push(path, &program, "good", &[], "one").await));
    let before = versions().await;
    let same = push(path, &program, "good", &["--dry-run"], "one").await;
    assert_eq!(
        out(&same),
        format!("good {id} would have a version after 1: the same for a model\n"),
        "{}",
        err(&same)
    );
    std::fs::write(path.join("good/SKILL.md"), DOCUMENT.replace("Adds", "Adds whole")).unwrap();
    let changed = push(path, &program, "good", &["--dry-run"], "one").await;
    let text = out(&changed);
    for part in [
        "-<skill name=\"good\">Adds numbers.</skill>",
        "+<skill name=\"good\">Adds whole numbers.</skill>",
        "file SKILL.md: ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}{}", err(&changed));
    }
    assert_eq!(versions().await, before);
    // What could not be uploaded is refused as by the push.
    std::fs::write(path.join("good/SKILL.md"), "---\nname: [bad\n---\n").unwrap();
    let refused = push(path, &program, "good", &["--dry-run"], "one").await;
    assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
}

/// A gateway of a cluster limits the changes of a caller.
#[tokio::test]
async fn a_push_waits_as_the_server_asks_and_lists_what_is_there_once() {
    let (lists, uploads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listed = {
        let lists = Arc::clone(&lists);
        move || {
            lists.fetch_add(1, Ordering::Relaxed);
            std::future::ready(axum::Json(json!({"data": [], "has_more": false})))
        }
    };
    let uploaded = {
        let uploads = Arc::clone(&uploads);
        move || {
            std::future::ready(match uploads.fetch_add(1, Ordering::Relaxed) {
                // Before the second skill.
                1 | 2 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
                // The third may have been made.
                4 => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")]).into_response(),
                at => {
                    let id = format!("skill_knack_{at}");
                    axum::Json(json!({"id": id, "name": "x", "default_version": "1"})).into_response()
                }
            })
        }
    };
    let router = Router::new().route("/v1/skills", get(listed).post(uploaded));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let local = tempfile::tempdir().unwrap();
    for name in ["first", "second", "third"] {
        std::fs::create_dir_all(local.path().join("all").join(name)).unwrap();
        let document = format!("---\nname: {name}\ndescription: Adds numbers.\n---\nx\n");
        std::fs::write(local.path().join("all").join(name).join("SKILL.md"), document).unwrap();
    }
    let key = [("OPENAI_API_KEY", "one")];
    let pushed = knack(local.path(), &["skill", "push", "all", "--to", &url], &key).await;
    assert_eq!(pushed.status.code(), Some(1), "{}{}", out(&pushed), err(&pushed));
    let said = out(&pushed);
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "first skill_knack_0 version 1, default",
            "second skill_knack_3 version 1, default"
        ]
    );
    let told = err(&pushed);
    for part in [
        "429 Too Many Requests; trying again in 1 s, as the server asks",
        "third: ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!((lists.load(Ordering::Relaxed), uploads.load(Ordering::Relaxed)), (1, 5));
}

/// Under `metadata` nothing would read them, and the skill would run without.
#[tokio::test]
async fn a_key_of_knack_is_refused_with_what_keeps_its_meaning() {
    let document = "---\nname: good\ndescription: d\nactivation: Always\nauthor: me\npackages:\n  python:\n    - openpyxl\n---\nx\n";
    let local = folder(&[("good/SKILL.md", document)]);
    let pushed = ["skill", "push", "good", "--to", "http://127.0.0.1:1"];
    let output = knack(local.path(), &pushed, &[("OPENAI_API_KEY", "one")]).await;
    let said = err(&output);
    for part in [
        "unexpected fields: activation, author, packages",
        "write packages of Python into requirements.txt beside SKILL.md",
        "the operator sets a mode, by a pin of the SkillRuntime",
        "move author under metadata; known are name,",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
