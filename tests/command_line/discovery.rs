//! The index of skills that `knack dev` offers, read as installers read it, and by `knack skill import`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::program::{Program, folder, knack};
use super::skill_files::{DOCUMENT, tree};
use super::{err, out};

const INDEX: &str = "/.well-known/agent-skills/index.json";
const ARGUMENTS: [&str; 3] = ["--upstream", "mock", "--no-local-executor"];

/// A skill with scripts, a binary file and a SKILL.md that is none, a lone SKILL.md, one of a manifest, and what is not offered.
fn offered() -> tempfile::TempDir {
    let manifest = |name: &str, spec: &str| {
        let document = format!("---\nname: {name}\ndescription: Of a manifest.\n---\nText.\n");
        format!(
            "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: {name}}}\nspec: {{{spec}source: {{inline: {{files: {{SKILL.md: {document:?}}}}}}}}}\n"
        )
    };
    let folder = folder(&[
        ("skills/good/SKILL.md", DOCUMENT),
        ("skills/good/examples/SKILL.md", "An example.\n"),
        ("skills/good/scripts/add.py", "print(1)\n"),
        (
            "skills/lone/SKILL.md",
            &DOCUMENT.replace("good", "lone").replace('\n', "\r\n"),
        ),
        ("skills/made.yaml", &manifest("made", "")),
        ("skills/paused.yaml", &manifest("paused", "suspend: true, ")),
        (
            "skills/off/SKILL.md",
            "---\nname: off\ndescription: d\nactivation: Never\n---\nx\n",
        ),
        ("skills/Upper_Case/SKILL.md", "---\ndescription: d\n---\nx\n"),
    ]);
    std::fs::write(folder.path().join("skills/good/logo.png"), [0x89, b'P', 0, 0xff]).unwrap();
    let script = folder.path().join("skills/good/scripts/add.py");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The index as a value, with its tag.
async fn index(program: &Program, headers: &[(&'static str, &str)]) -> (Value, String) {
    let response = program.get(INDEX, headers).await;
    assert_eq!(
        (response.status().as_u16(), header(&response, "content-type")),
        (200, "application/json")
    );
    let tag = header(&response, "etag").to_owned();
    (serde_json::from_str(&response.text().await.unwrap()).unwrap(), tag)
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn names(index: &Value) -> Vec<&str> {
    let skills = index["skills"].as_array().unwrap();
    skills.iter().map(|skill| skill["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_is_imported_from_a_running_knack_dev_is_what_it_serves() {
    let mut program = Program::start(offered(), &ARGUMENTS, &[]).await;
    let here = folder(&[]);
    let path = here.path();
    let output = knack(path, &["skill", "import", &program.url, "-o", "all.yaml"], &[]).await;
    assert!(output.status.success(), "{}", err(&output));
    let output = knack(path, &["skill", "export", "all.yaml", "back"], &[]).await;
    assert_eq!(out(&output), "back/good\nback/lone\nback/made\n", "{}", err(&output));
    for skill in ["good", "lone"] {
        let served = tree(&program.path("skills").join(skill));
        assert_eq!(tree(&path.join("back").join(skill)), served, "{skill}");
    }
    let good = tree(&path.join("back/good"));
    assert!(
        good.iter()
            .any(|(name, _, executable)| name == "scripts/add.py" && *executable)
    );
    let made = std::fs::read_to_string(path.join("back/made/SKILL.md")).unwrap();
    assert_eq!(made, "---\nname: made\ndescription: Of a manifest.\n---\nText.\n");

    // The same skills have the same digests in another process, and a changed one another.
    let (before, tag) = index(&program, &[]).await;
    program.stop().await;
    let program = Program::start(offered(), &ARGUMENTS, &[]).await;
    assert_eq!(index(&program, &[]).await, (before.clone(), tag));
    std::fs::write(program.path("skills/good/scripts/add.py"), "print(2)\n").unwrap();
    // A save is live for the next request; the watch has half a second.
    let mut after = index(&program, &[]).await.0;
    for _ in 0..600 {
        if after != before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        after = index(&program, &[]).await.0;
    }
    assert_ne!(after["skills"][0]["digest"], before["skills"][0]["digest"]);
    assert_eq!(after["skills"][1], before["skills"][1]);
}

#[tokio::test]
async fn the_index_is_that_of_the_discovery_schema_and_its_files_have_types_tags_and_their_digest() {
    let program = Program::start(offered(), &ARGUMENTS, &[]).await;
    let (listed, tag) = index(&program, &[]).await;
    assert_eq!(
        listed["$schema"],
        "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
    );
    assert_eq!(names(&listed), ["good", "lone", "made"]);
    for (skill, kind, url, media_type) in [
        ("good", "archive", "good.zip", "application/zip"),
        ("lone", "skill-md", "lone/SKILL.md", "text/markdown; charset=utf-8"),
    ] {
        let entries = listed["skills"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["name"] == skill).unwrap();
        assert_eq!(
            (&entry["type"], &entry["description"]),
            (&kind.into(), &"Adds numbers.".into())
        );
        let url = format!("/.well-known/agent-skills/{url}");
        assert_eq!(entry["url"], url);
        let response = program.get(&url, &[]).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "content-type")),
            (200, media_type)
        );
        assert_eq!(header(&response, "x-content-type-options"), "nosniff");
        assert_eq!(header(&response, "cache-control"), "private, no-cache");
        let (tag, vary) = (
            header(&response, "etag").to_owned(),
            response.headers().get_all("vary").iter().count(),
        );
        assert_eq!(vary, 5, "headers of credentials");
        let bytes = response.bytes().await.unwrap();
        let digest = knack_skill::digest::sha256(&bytes);
        assert_eq!(
            (tag, &entry["digest"]),
            (format!("\"{digest}\""), &format!("sha256:{digest}").into())
        );
    }
    // What the sender has is not sent again; another tag is no such thing.
    for address in [
        INDEX,
        "/.well-known/agent-skills/good.zip",
        "/.well-known/agent-skills/good/SKILL.md",
    ] {
        let tag = header(&program.get(address, &[]).await, "etag").to_owned();
        let same = program
            .get(address, &[("if-none-match", &format!("\"x\", W/{tag}"))])
            .await;
        assert_eq!(
            (same.status().as_u16(), header(&same, "etag")),
            (304, tag.as_str()),
            "{address}"
        );
        assert!(same.bytes().await.unwrap().is_empty());
        let other = program.get(address, &[("if-none-match", "\"x\"")]).await;
        assert_eq!(other.status().as_u16(), 200, "{address}");
    }
    assert!(tag.len() == 66, "{tag}");
    for name in ["off", "paused", "Upper_Case", "none", "good/scripts/add.py", "../good"] {
        for end in ["/SKILL.md", ".zip", ""] {
            let missing = program
                .get(&format!("/.well-known/agent-skills/{name}{end}"), &[])
                .await;
            let text = missing.text().await.unwrap();
            assert!(
                text.contains("No skill is offered at") || name == "../good",
                "{name}{end}: {text}"
            );
        }
    }
    let posted = program.post(INDEX, &Value::Null, &[]).await;
    assert!(posted.contains("This path is read-only (GET)"), "{posted}");
}

#[tokio::test]
async fn pages_and_hosts_from_elsewhere_are_offered_nothing_and_a_suspended_runtime_offers_nothing() {
    let program = Program::start(offered(), &ARGUMENTS, &[]).await;
    for address in [
        INDEX,
        "/.well-known/agent-skills/good.zip",
        "/.well-known/agent-skills/lone/SKILL.md",
    ] {
        for foreign in [
            ("host", "skills.example"),
            ("origin", "https://page.example"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let refused = program.get(address, &[foreign]).await;
            assert_eq!(refused.status().as_u16(), 403, "{address} {foreign:?}");
            let text = refused.text().await.unwrap();
            assert!(text.contains("local programs only") && !text.contains("good"), "{text}");
        }
    }
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {suspend: true}\n";
    let folder = offered();
    std::fs::write(folder.path().join("runtime.yaml"), runtime).unwrap();
    let program = Program::start(folder, &[&ARGUMENTS[..], &["runtime.yaml"]].concat(), &[]).await;
    assert_eq!(names(&index(&program, &[]).await.0), [""; 0]);
    let archive = program.get("/.well-known/agent-skills/good.zip", &[]).await;
    assert_eq!(archive.status().as_u16(), 404);
}

async fn push(path: &Path, program: &Program, more: &[&str], key: &str) {
    let arguments = [&["skill", "push", "good", "--to", &program.url], more].concat();
    let output = knack(path, &arguments, &[("OPENAI_API_KEY", key)]).await;
    assert!(output.status.success(), "{}", err(&output));
}

/// The skill comes as it was pushed, to whoever pushed it: by the header of any SDK, and to nobody else.
#[tokio::test]
async fn an_uploaded_skill_is_offered_to_its_credential_only() {
    let registry = tempfile::tempdir().unwrap();
    let arguments = [&ARGUMENTS[..], &["--registry", registry.path().to_str().unwrap()]].concat();
    let lone = DOCUMENT.replace("good", "lone");
    let program = Program::start(folder(&[("skills/lone/SKILL.md", &lone)]), &arguments, &[]).await;
    let local = offered();
    let local = local.path().join("skills");
    push(&local, &program, &[], "one").await;

    let bearer: &[(&str, &str)] = &[("authorization", "Bearer one")];
    let (listed, tag) = index(&program, bearer).await;
    assert_eq!(names(&listed), ["good", "lone"]);
    let archive = "/.well-known/agent-skills/good.zip";
    let response = program.get(archive, &[("x-api-key", "one")]).await;
    assert_eq!(response.status().as_u16(), 200);
    let bytes = response.bytes().await.unwrap();
    let digest = format!("sha256:{}", knack_skill::digest::sha256(&bytes));
    assert_eq!(listed["skills"][0]["digest"], digest);
    std::fs::write(local.join("good.zip"), &bytes).unwrap();
    let output = knack(&local, &["skill", "export", "good.zip", "back"], &[]).await;
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(tree(&local.join("back/good")), tree(&local.join("good")));

    // By `knack skill import`, whose key the named host gets.
    for (key, skills) in [("one", "back/good\nback/lone\n"), ("two", "back/lone\n")] {
        let here = folder(&[]);
        let arguments = ["skill", "import", &program.url, "--key-env", "KEY", "-o", "all.yaml"];
        let output = knack(here.path(), &arguments, &[("KEY", key)]).await;
        assert!(output.status.success(), "{}", err(&output));
        let output = knack(here.path(), &["skill", "export", "all.yaml", "back"], &[]).await;
        assert_eq!(out(&output), skills, "{}", err(&output));
        if key == "one" {
            assert_eq!(tree(&here.path().join("back/good")), tree(&local.join("good")));
        }
    }

    // The tag of another credential's index does not answer for this one's.
    for headers in [
        &[("authorization", "Bearer two")][..],
        &[],
        &[("authorization", "Bearer two"), ("if-none-match", &tag)],
    ] {
        assert_eq!(names(&index(&program, headers).await.0), ["lone"], "{headers:?}");
        for address in [archive, "/.well-known/agent-skills/good/SKILL.md"] {
            let missing = program.get(address, headers).await;
            assert_eq!(missing.status().as_u16(), 404, "{headers:?}");
        }
    }

    // The version that is served where none is named.
    std::fs::write(local.join("good/scripts/add.py"), "print(2)\n").unwrap();
    push(&local, &program, &["--keep-default"], "one").await;
    assert_eq!(index(&program, bearer).await.0["skills"][0]["digest"], digest);
    push(&local, &program, &[], "one").await;
    assert_ne!(index(&program, bearer).await.0["skills"][0]["digest"], digest);
}
