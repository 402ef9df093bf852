//! `knack skill import` of an address: a file, and what the index of a site offers.

use std::path::Path;

use super::program::{folder, knack};
use super::skill_files::{DOCUMENT, good, tree};
use super::{err, out};

/// A site on loopback with these files.
async fn site(files: Vec<(String, Vec<u8>)>) -> std::net::SocketAddr {
    let mut router = axum::Router::new();
    for (path, bytes) in files {
        router = router.route(&path, axum::routing::get(async || bytes));
    }
    let inside = || async { axum::response::Redirect::temporary("http://169.254.169.254/latest/meta-data") };
    router = router.route("/inside.zip", axum::routing::get(inside));
    let endless = || async {
        let zeros =
            std::iter::repeat_with(|| Ok::<_, std::convert::Infallible>(bytes::Bytes::from_static(&[0; 1 << 13])));
        axum::body::Body::from_stream(futures::stream::iter(zeros))
    };
    router = router.route("/endless.zip", axum::routing::get(endless));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

fn index(entries: &[(&str, &str, &str, &[u8])]) -> Vec<u8> {
    let entry = |(name, kind, url, bytes): &(&str, &str, &str, &[u8])| {
        let digest = knack_skill::digest::sha256(bytes);
        serde_json::json!({"name": name, "type": kind, "description": "d", "url": url, "digest": format!("sha256:{digest}")})
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    let schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
    serde_json::json!({"$schema": schema, "skills": entries})
        .to_string()
        .into_bytes()
}

fn archive_of(folder: &Path) -> Vec<u8> {
    let mut tar = std::process::Command::new("tar");
    let output = tar.args(["-czf", "-", "good"]).current_dir(folder).output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[tokio::test]
async fn skills_of_a_site_are_imported_with_what_their_digests_promise() {
    let folder = good();
    let path = folder.path();
    let archive = archive_of(path);
    let lone = DOCUMENT.replace("good", "lone").into_bytes();
    let listed = index(&[
        ("good", "archive", "/skills/good.tar.gz", &archive),
        ("lone", "skill-md", "lone/SKILL.md", &lone),
        ("other", "bundle", "other.bin", b"x"),
    ]);
    let address = site(vec![
        ("/team/.well-known/agent-skills/index.json".into(), listed),
        ("/team/.well-known/agent-skills/lone/SKILL.md".into(), lone),
        ("/skills/good.tar.gz".into(), archive.clone()),
    ])
    .await;
    let root = format!("http://{address}/team/");

    let output = knack(path, &["skill", "import", &root, "-o", "all.yaml"], &[]).await;
    assert!(output.status.success(), "{}", err(&output));
    assert!(err(&output).contains("other: skipped"), "{}", err(&output));
    let output = knack(path, &["skill", "export", "all.yaml", "back"], &[]).await;
    assert_eq!(out(&output), "back/good\nback/lone\n", "{}", err(&output));
    assert_eq!(tree(&path.join("back/good")), tree(&path.join("good")));

    // One of them, by its address: what the cluster fetches is what was looked at.
    let output = knack(
        path,
        &["skill", "import", &root, "--skill", "good", "--pin", "-n", "team"],
        &[],
    )
    .await;
    let manifest: serde_json::Value = serde_saphyr::from_str(&out(&output)).unwrap();
    assert_eq!(
        (&manifest["metadata"], &manifest["spec"]),
        (
            &serde_json::json!({"name": "good", "namespace": "team"}),
            &serde_json::json!({"source": {"archive": {
                "url": format!("http://{address}/skills/good.tar.gz"),
                "digest": format!("sha256:{}", knack_skill::digest::sha256(&archive)),
            }}})
        )
    );
    // A file without an index.
    let file = format!("http://{address}/skills/good.tar.gz?token=secret");
    let output = knack(path, &["skill", "import", &file], &[]).await;
    assert!(
        out(&output).contains("name: good\n") && !out(&output).contains("secret"),
        "{}",
        err(&output)
    );
    let file = format!("http://{address}/team/.well-known/agent-skills/lone/SKILL.md");
    let output = knack(path, &["skill", "import", &file], &[]).await;
    assert!(out(&output).contains("name: lone\n"), "{}", err(&output));
}

/// An update is seen before it is applied: from the manifest that is applied to what the site offers now.
#[tokio::test]
async fn a_diff_goes_from_a_pinned_archive_to_what_a_site_offers() {
    let folder = good();
    let path = folder.path();
    let before = archive_of(path);
    std::fs::write(path.join("good/SKILL.md"), DOCUMENT.replace("Adds", "Multiplies")).unwrap();
    let after = archive_of(path);
    let lone = DOCUMENT.replace("good", "lone").into_bytes();
    let listed = index(&[
        ("good", "archive", "/2.tar.gz", &after),
        ("lone", "skill-md", "/lone/SKILL.md", &lone),
    ]);
    let address = site(vec![
        ("/1.tar.gz".into(), before),
        ("/2.tar.gz".into(), after),
        ("/lone/SKILL.md".into(), lone),
        ("/.well-known/agent-skills/index.json".into(), listed),
    ])
    .await;
    let root = format!("http://{address}/");
    let first = format!("{root}1.tar.gz");
    let output = knack(path, &["skill", "import", &first, "--pin", "-o", "good.yaml"], &[]).await;
    assert!(output.status.success(), "{}", err(&output));

    let output = knack(path, &["skill", "diff", "good.yaml", &root, "--skill", "good"], &[]).await;
    for part in [
        "-<skill name=\"good\">Adds numbers.</skill>",
        "+<skill name=\"good\">Multiplies numbers.</skill>",
    ] {
        assert!(out(&output).contains(part), "{part}: {}{}", out(&output), err(&output));
    }
    let output = knack(path, &["skill", "diff", "good.yaml", &root], &[]).await;
    assert!(
        err(&output).contains("several skills; choose one with --skill: good, lone"),
        "{}",
        err(&output)
    );

    // What is behind the address has changed since.
    let text = std::fs::read_to_string(path.join("good.yaml")).unwrap();
    std::fs::write(path.join("good.yaml"), text.replace("1.tar.gz", "2.tar.gz")).unwrap();
    let output = knack(path, &["skill", "diff", "good.yaml", "good"], &[]).await;
    assert!(
        err(&output).contains("good.yaml: spec.source.archive: the archive has digest"),
        "{}",
        err(&output)
    );
    // Nothing else here fetches.
    let output = knack(path, &["skill", "validate", "good.yaml"], &[]).await;
    assert!(
        err(&output).contains("needs a cluster") || out(&output).contains("needs a cluster"),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn an_upload_of_a_cluster_is_refused_where_there_is_none() {
    let digest = "0".repeat(64);
    let manifest = format!(
        "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: a}}\n\
         spec: {{source: {{upload: {{digest: \"{digest}\", configMaps: [a-upload-1]}}}}}}\n"
    );
    let folder = folder(&[("a.yaml", manifest.as_str())]);
    for command in [
        &["skill", "validate", "a.yaml"][..],
        &["skill", "diff", "a.yaml", "a.yaml"],
        &["skill", "import", "a.yaml"],
    ] {
        let output = knack(folder.path(), command, &[]).await;
        assert!(!output.status.success(), "{command:?}");
        let told = out(&output) + &err(&output);
        assert!(
            told.contains("spec.source.upload: needs a cluster"),
            "{command:?}: {told}"
        );
    }
}

#[tokio::test]
async fn what_a_site_must_not_do_is_refused_by_name_and_nothing_is_written() {
    let folder = good();
    let path = folder.path();
    let archive = archive_of(path);
    let many: Vec<String> = (0..51).map(|number| format!("s{number}")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|name| (name.as_str(), "archive", "/good.tar.gz", &archive[..]))
        .collect();
    let address = site(vec![
        ("/good.tar.gz".into(), archive.clone()),
        ("/page".into(), b"<html>".to_vec()),
        (
            "/lies.json".into(),
            index(&[("good", "archive", "/good.tar.gz", b"other")]),
        ),
        (
            "/inside.json".into(),
            index(&[("good", "archive", "/inside.zip", b"x")]),
        ),
        (
            "/named.json".into(),
            index(&[("better", "archive", "/good.tar.gz", &archive)]),
        ),
        (
            "/typed.json".into(),
            index(&[("good", "bundle", "/good.tar.gz", &archive)]),
        ),
        (
            "/metadata.json".into(),
            index(&[("good", "archive", "http://169.254.169.254/", b"x")]),
        ),
        ("/many.json".into(), index(&many)),
        (
            "/torn.json".into(),
            br#"{"$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json", "skills": [{"name": "good"}]}"#
                .to_vec(),
        ),
        (
            "/old.json".into(),
            br#"{"skills": [{"name": "good", "files": ["SKILL.md"]}]}"#.to_vec(),
        ),
    ])
    .await;
    let before = tree(path);
    for (source, more, part) in [
        ("/lies.json", &[][..], "the index says"),
        ("/inside.json", &[], "not a public address"),
        ("/metadata.json", &[], "not a public address"),
        ("/named.json", &[], "better: the archive holds a skill \"good\""),
        ("/typed.json", &["--skill", "good"], "its type is not supported"),
        ("/many.json", &[], "at most 50 at a time"),
        ("/many.json", &["--skill", "s99"], "no skill \"s99\"; it has s0, s1"),
        ("/old.json", &[], "the index version \"\" is not supported"),
        ("/torn.json", &["--skill", "good"], "skills[0] \"good\": missing field"),
        (
            "/torn.json",
            &[],
            "no entry of the index can be read: skills[0] \"good\"",
        ),
        ("/page", &[], "neither .tar, .tar.gz nor .zip"),
        (
            "/good.tar.gz",
            &["--skill", "better"],
            "the skill is named \"good\", not \"better\"",
        ),
        ("/endless.zip", &[], "more than 32 MiB"),
        ("/missing", &[], "404"),
        ("/", &[], "404"),
    ] {
        let source = format!("http://{address}{source}");
        let output = knack(
            path,
            &[&["skill", "import", &source, "-o", "x.yaml"], more].concat(),
            &[],
        )
        .await;
        assert_eq!(output.status.code(), Some(1), "{source}: {}", out(&output));
        assert!(
            err(&output).contains(part),
            "{source}: {} should contain {part}",
            err(&output)
        );
    }
    assert_eq!(tree(path), before);
}

#[tokio::test]
async fn an_address_that_is_none_or_holds_a_password_is_refused_before_anything_is_asked() {
    let folder = good();
    let path = folder.path();
    for (arguments, part) in [
        (
            &["http://user:word@127.0.0.1/good.zip"][..],
            "holds a user or a password",
        ),
        (&["good", "--pin"], "only with an http(s) URL"),
        (&["good", "--key-env", "PATH"], "only with an http(s) URL"),
        (&["https://"], "the address is not valid"),
    ] {
        let output = knack(path, &[&["skill", "import", "-o", "x.yaml"], arguments].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", out(&output));
        assert!(
            err(&output).contains(part) && !err(&output).contains("word@"),
            "{}",
            err(&output)
        );
    }
}
