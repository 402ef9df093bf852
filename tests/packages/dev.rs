//! `knack dev` with a skill that declares packages, from its start to what the model reads.

use std::time::Duration;

use serde_json::json;

use super::index::{Index, wheel};
use super::program::{Program, folder};
use super::{BuilderFixture, uv_path};

const SKILL: &str = "---\nname: with\ndescription: d\npackages: {python: [good]}\n---\nRun scripts/a.py.\n";
const SCRIPT: &str = r#"
models: [m]
turns:
  - user: go
    rounds:
      - expect: {tool: run_code}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: with, code: "import good; print('value', good.VALUE)"}
      - expect: {result: ['value 7']}
        reply:
          calls:
            - tool: run_code
              arguments: {skill: with, code: "import absent"}
      - expect:
          result: ['Module "absent" is not here, and nothing can be installed at run time. Runs of skill "with" have these Python packages: good.']
        reply: {text: "all is well"}
"#;

/// `knack dev` over a folder with `script.yaml`, with packages of an index; `more` arguments beside those of all tests.
async fn dev(fixture: &BuilderFixture, index: &Index, folder: tempfile::TempDir, more: &[&str]) -> Program {
    let (uv, store) = (uv_path(), fixture.folder.path().join("store"));
    let environment = [
        ("KNACK_UV", uv.to_str().unwrap()),
        ("KNACK_PACKAGES_DIR", store.to_str().unwrap()),
        ("UV_DEFAULT_INDEX", index.url.as_str()),
        ("HOME", fixture.folder.path().to_str().unwrap()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let arguments = [&["--upstream", "mock=script.yaml", "--files-dir", "files"][..], more].concat();
    Program::start(folder, &arguments, &environment).await
}

/// Waits for a line that begins so.
async fn says(program: &mut Program, begin: &str) {
    if !program.greeting.iter().any(|line| line.starts_with(begin)) {
        while !program.line().await.starts_with(begin) {}
    }
}

/// Asks what the script waits for, and reaches its end.
async fn follows_the_script(program: &Program) {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "go"}]});
    let answer = program.post("/v1/chat/completions", &body, &[]).await;
    assert!(answer.contains("all is well"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn knack_dev_builds_at_its_start_and_shows_the_model_what_is_there() {
    let index = Index::serve(vec![wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")])]).await;
    let fixture = BuilderFixture::new(&index.url);
    let folder = folder(&[
        ("skills/with/SKILL.md", SKILL),
        ("skills/with/scripts/a.py", "import good\n"),
        ("script.yaml", SCRIPT),
    ]);
    let mut program = dev(&fixture, &index, folder, &["--record", "bodies"]).await;
    says(&mut program, "packages of with: ready (1 package").await;
    follows_the_script(&program).await;
    program.stop().await;
    let bodies = std::fs::read_dir(program.path("bodies")).unwrap();
    let sent = bodies
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().ends_with("upstream-1.json"))
        .unwrap();
    let sent = std::fs::read_to_string(sent).unwrap();
    assert!(sent.contains("for runs that name the skill: with: good."), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_whose_packages_cannot_be_had_is_refused_with_the_state() {
    let script = SCRIPT
        .split("      - expect: {result: ['value 7']}")
        .next()
        .unwrap()
        .to_owned()
        + "      - expect: {result: ['the packages of skill \"with\" are not there (PackageNotFound)']}\n        reply: {text: 'all is well'}\n";
    let index = Index::serve(Vec::new()).await;
    let fixture = BuilderFixture::new(&index.url);
    let folder = folder(&[
        ("skills/with/SKILL.md", SKILL),
        ("skills/with/scripts/a.py", "import good\n"),
        ("script.yaml", &script),
    ]);
    let mut program = dev(&fixture, &index, folder, &[]).await;
    says(&mut program, "packages of with: PackageNotFound").await;
    follows_the_script(&program).await;
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_with_nothing_but_a_lock_that_cannot_be_used_is_not_run_without_its_packages() {
    let script = SCRIPT
        .split("      - expect: {result: ['value 7']}")
        .next()
        .unwrap()
        .to_owned()
        + "      - expect: {result: ['the packages of skill \"with\" are not there (Refused)']}\n        reply: {text: 'all is well'}\n";
    let index = Index::serve(Vec::new()).await;
    for (lock, text) in [
        ("requirements.lock", "good==1.0\n"),
        ("pylock.toml", ""),
        ("poetry.lock", "# by Poetry\n"),
    ] {
        let fixture = BuilderFixture::new(&index.url);
        let lock = format!("skills/with/{lock}");
        let folder = folder(&[
            (
                "skills/with/SKILL.md",
                "---\nname: with\ndescription: d\n---\nRun it.\n",
            ),
            (lock.as_str(), text),
            ("script.yaml", &script),
        ]);
        let mut program = dev(&fixture, &index, folder, &[]).await;
        says(&mut program, "packages of with: Refused").await;
        follows_the_script(&program).await;
        program.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_that_is_refused_leaves_the_last_good_revision_in_service() {
    let index = Index::serve(vec![wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")])]).await;
    let fixture = BuilderFixture::new(&index.url);
    let folder = folder(&[
        ("skills/with/SKILL.md", SKILL),
        ("skills/with/scripts/a.py", "import good\n"),
        ("script.yaml", SCRIPT),
    ]);
    let mut program = dev(&fixture, &index, folder, &[]).await;
    says(&mut program, "packages of with: ready (1 package").await;
    let broken = SKILL.replace("[good]", "[\"good @ https://user:secret@elsewhere.example/good.whl\"]");
    std::fs::write(program.path("skills/with/SKILL.md"), broken).unwrap();
    let (mut reason, mut kept) = (false, false);
    while !(reason && kept) {
        let line = program.line().await;
        assert!(!line.contains("secret"), "{line}");
        reason |= line.contains("skill with: SKILL.md:4: packages.python[0]: ");
        kept |= line.contains("skill with: the last good revision stays in service");
    }
    follows_the_script(&program).await;
    program.stop().await;
}

/// Of what the turns of [`SCRIPT`] do not ask.
const OTHER_TURN: &str = r#"
  - user: other
    rounds:
      - reply:
          calls:
            - tool: run_code
              arguments: {skill: with, code: "import other; print('value', other.VALUE)"}
      - expect: {result: ['value 8']}
        reply: {text: "other is well"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_an_edit_that_cannot_be_had_leave_the_last_good_revision_in_service() {
    let index = Index::serve(vec![
        wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")]),
        wheel("other", "1.0", "", &[("other.py", "VALUE = 8\n")]),
    ])
    .await;
    let fixture = BuilderFixture::new(&index.url);
    let script = format!("{}{}", SCRIPT.trim_end(), OTHER_TURN);
    let folder = folder(&[
        ("skills/with/SKILL.md", SKILL),
        ("skills/with/scripts/a.py", "print(1)\n"),
        ("script.yaml", &script),
    ]);
    let mut program = dev(&fixture, &index, folder, &[]).await;
    says(&mut program, "packages of with: ready (1 package").await;
    let edit = |program: &Program, packages: &str| {
        let text = SKILL
            .replace("[good]", packages)
            .replace("Run scripts", "Please run scripts");
        std::fs::write(program.path("skills/with/SKILL.md"), text).unwrap();
    };
    for packages in ["[good, none-such]", "[none-such]"] {
        edit(&program, packages);
        let mut awaited = vec![
            "skill with: the packages of its new revision are being installed; the revision before stays in service",
            "packages of with: PackageNotFound",
            "skill with: the packages of its new revision are not there (PackageNotFound); the line \"packages of with\" says why",
            "skill with: the last good revision stays in service until this is fixed",
        ];
        while !awaited.is_empty() {
            let line = program.line().await;
            awaited.retain(|said| !line.contains(said));
        }
        follows_the_script(&program).await;
    }
    edit(&program, "[other]");
    for said in [
        "are being installed",
        "packages of with: ready (1 package",
        "1 skill at revision",
    ] {
        while !program.line().await.contains(said) {}
    }
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "other"}]});
    // A line about the revision before may come between: what is served decides.
    let mut answer = String::new();
    for _ in 0..100 {
        answer = program.post("/v1/chat/completions", &body, &[]).await;
        if answer.contains("other is well") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(answer.contains("other is well"), "{answer}");
    program.stop().await;
}

const MANIFESTS: &str = r#"
apiVersion: knack.dev/v1alpha1
kind: SkillRuntime
metadata: {name: blue}
spec: {packages: {constraints: ["good<2"]}}
---
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata: {name: with}
spec:
  packages: {python: [good]}
  source:
    inline:
      files:
        requirements.txt: absent
        SKILL.md: |
          ---
          name: with
          description: d
          ---
          Run code.
"#;

#[tokio::test(flavor = "multi_thread")]
async fn knack_dev_reads_packages_of_manifests() {
    let index = Index::serve(vec![
        wheel("good", "1.0", "", &[("good.py", "VALUE = 7\n")]),
        wheel("good", "2.0", "", &[("good.py", "VALUE = 8\n")]),
    ])
    .await;
    let fixture = BuilderFixture::new(&index.url);
    let folder = folder(&[("skills/blue.yaml", MANIFESTS), ("script.yaml", SCRIPT)]);
    let mut program = dev(&fixture, &index, folder, &[]).await;
    says(&mut program, "packages of with: ready (1 package").await;
    // The older version, which the runtime allows, has the value that the script expects.
    follows_the_script(&program).await;
    program.stop().await;
}
