//! Files change while the gateway serves.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::{ALWAYS, Running, Start, start, with_script, write};

const ECHO: &str = "turns:\n  - rounds:\n      - reply: {text: hi}\n";

/// How long a request waits for files that are being read. One that took as long may have been served without them, on a machine that
/// stands still meanwhile.
const RELOAD_WAIT: Duration = Duration::from_millis(500);
/// How often such a request is sent again.
const ATTEMPTS: usize = 20;

fn chat() -> Value {
    json!({"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]})
}

/// What the provider gets of the next request.
async fn next(knack: &Running) -> String {
    for _ in 0..ATTEMPTS {
        let begun = Instant::now();
        knack.send(knack.chat(&chat())).await;
        if begun.elapsed() < RELOAD_WAIT {
            break;
        }
    }
    knack.upstream().to_string()
}

#[tokio::test]
async fn a_saved_change_is_live_for_the_next_request() {
    let knack = with_script(ECHO).await;
    for word in ["dunlin", "curlew", "whimbrel"] {
        write(
            &knack.folder.path().join("skills"),
            "always/SKILL.md",
            &ALWAYS.replace("plover", word),
        );
        assert!(next(&knack).await.contains(word), "{word}");
    }
    write(
        &knack.folder.path().join("skills"),
        "new/SKILL.md",
        &ALWAYS.replace("always", "new").replace("plover", "godwit"),
    );
    assert!(next(&knack).await.contains("godwit"));
    std::fs::remove_dir_all(knack.folder.path().join("skills/new")).unwrap();
    assert!(!next(&knack).await.contains("godwit"));
}

/// The folder that is served, as `git checkout` and archives replace it. What it gave stays until there is one again.
#[tokio::test]
async fn a_served_folder_that_is_made_anew_is_live_for_the_next_request() {
    let knack = with_script(ECHO).await;
    let skills = knack.folder.path().join("skills");
    for word in ["dunlin", "curlew"] {
        let before = knack.gateway.catalog.current().skills.len();
        // In one step: a folder that is read while it is deleted has the part that is left.
        let aside = knack.folder.path().join(word);
        std::fs::rename(&skills, &aside).unwrap();
        std::fs::remove_dir_all(&aside).unwrap();
        next(&knack).await;
        let current = knack.gateway.catalog.current();
        assert_eq!(current.skills.len(), before);
        let said: Vec<&str> = current.reports.iter().map(|report| report.text.as_str()).collect();
        assert!(
            said.iter().any(|text| text.contains("nothing is at this path")),
            "{said:?}"
        );
        assert!(said.iter().any(|text| text.contains("last good")), "{said:?}");
        write(&skills, "always/SKILL.md", &ALWAYS.replace("plover", word));
        assert!(next(&knack).await.contains(word), "{word}");
        write(&skills, "always/SKILL.md", &ALWAYS.replace("plover", "godwit"));
        assert!(next(&knack).await.contains("godwit"), "{word}");
    }
}

/// Releases are switched by a link.
#[tokio::test]
async fn a_served_link_that_is_swapped_is_live_for_the_next_request() {
    let knack = with_script(ECHO).await;
    let (root, skills) = (knack.folder.path(), knack.folder.path().join("skills"));
    std::fs::rename(&skills, root.join("plover")).unwrap();
    write(root, "dunlin/always/SKILL.md", &ALWAYS.replace("plover", "dunlin"));
    for word in ["plover", "dunlin", "plover"] {
        let _ = std::fs::remove_file(root.join("new"));
        std::os::unix::fs::symlink(word, root.join("new")).unwrap();
        std::fs::rename(root.join("new"), &skills).unwrap();
        assert!(next(&knack).await.contains(word), "{word}");
    }
}

#[tokio::test]
async fn a_broken_edit_keeps_the_last_good_one_and_says_why() {
    let knack = with_script(ECHO).await;
    let skills = knack.folder.path().join("skills");
    for broken in ["---\nname: [\n---\nx\n", "---\nname: always\ndescription: d\n", ""] {
        write(&skills, "always/SKILL.md", broken);
        assert!(next(&knack).await.contains("plover"), "{broken:?}");
        let reports = &knack.gateway.catalog.current().reports;
        assert!(
            reports.iter().any(|report| report.text.contains("last good")),
            "{broken:?}: {reports:?}"
        );
    }
    std::fs::write(skills.join("always/SKILL.md"), [0xff, 0xfe, b'x']).unwrap();
    assert!(next(&knack).await.contains("plover"));
}

#[tokio::test]
async fn a_broken_manifest_beside_good_ones_spoils_none_of_them() {
    let good = "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: good}\nspec:\n  activation: {mode: Always}\n  source: {inline: {files: {SKILL.md: \"---\\nname: good\\ndescription: d\\n---\\nThe good word.\\n\"}}}\n";
    let skills = vec![
        (
            "a.yaml",
            "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {name: bad}\nspec: {sauce: {}}\n",
        ),
        ("b.yaml", good),
    ];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    assert!(next(&knack).await.contains("The good word."));
    let reports = &knack.gateway.catalog.current().reports;
    assert!(
        reports
            .iter()
            .any(|report| report.text.contains("spec.sauce") || report.text.contains("`sauce`")),
        "{reports:?}"
    );
    // The good one breaks: what it gave stays.
    write(&knack.folder.path().join("skills"), "b.yaml", "apiVersion: [");
    assert!(next(&knack).await.contains("The good word."));
}

#[tokio::test]
async fn a_duplicate_name_is_reported_with_both_places() {
    let skills = vec![("one/always/SKILL.md", ALWAYS), ("two/always/SKILL.md", ALWAYS)];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    let snapshot = knack.gateway.catalog.current();
    assert_eq!(snapshot.skills.len(), 1);
    assert!(
        snapshot
            .reports
            .iter()
            .any(|report| report.text.contains("already defined") && report.text.contains("one/always")),
        "{:?}",
        snapshot.reports
    );
}

#[tokio::test]
async fn a_suspended_runtime_injects_nothing() {
    let runtime = "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {suspend: true}\n";
    let skills = vec![("runtime.yaml", runtime), ("always/SKILL.md", ALWAYS)];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    knack.send(knack.chat(&chat())).await;
    assert_eq!(
        knack.mock.handle.requests().last().unwrap().body.as_ref(),
        chat().to_string().as_bytes()
    );
    knack.told("suspended").await;
    // At a hub's suspended runtime that is every skill.
    let named = knack
        .send(knack.chat(&chat()).header("x-knack-skills", "not-in-the-catalog"))
        .await;
    assert_eq!(named.status, 404);
    assert!(named.text.contains("is suspended (spec.suspend)"), "{}", named.text);
}

#[tokio::test]
async fn a_runtime_caps_activation_and_the_console_says_so() {
    let runtime =
        "apiVersion: knack.dev/v1alpha1\nkind: SkillRuntime\nmetadata: {name: r}\nspec: {maxActivation: Listed}\n";
    let skills = vec![("runtime.yaml", runtime), ("always/SKILL.md", ALWAYS)];
    let knack = start(Start {
        skills,
        ..Start::default()
    })
    .await;
    let sent = next(&knack).await;
    assert!(!sent.contains("plover") && sent.contains("Says the word."), "{sent}");
}
