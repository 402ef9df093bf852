//! From every source to the state that a user reads.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::cgroup::Group;
use crate::chart;
use crate::controller::Controller;
use crate::objects::{create, document, inline, merge, message, reads, skills};
use crate::wait::{BOUND, until};
use crate::web::{Answer, digest, serve, tgz, with_link};

/// What a skill of a source must read, and a part of the message.
type Row = (&'static str, Value, &'static str, &'static str);

const READY: &str = "True/Delivered";
const INVALID: &str = "False/InvalidSkill+Stalled";
const BAD_ARCHIVE: &str = "False/BadArchive+Stalled";
const TOO_LARGE: &str = "False/TooLarge+Stalled";
const NOT_FOUND: &str = "False/SourceNotFound+Reconciling";
const DENIED: &str = "False/AddressDenied+Stalled";

fn inline_rows() -> Vec<Row> {
    let files = |files: Value| json!({"source": {"inline": {"files": files}}});
    vec![
        ("good", inline(&document("good", "Do it.")), READY, "1 file,"),
        (
            "two-files",
            files(json!({"skills/a/SKILL.md": document("two-files", "x"), "skills/a/b.py": "1"})),
            READY,
            "2 files",
        ),
        (
            "cjk",
            inline(&document("cjk", &"\u{5b57}".repeat(41_000))),
            TOO_LARGE,
            "at most 122880 (120 KiB)",
        ),
        ("no-document", files(json!({"README.md": "x"})), INVALID, "SKILL.md"),
        ("unclosed", inline("---\nname: unclosed\n"), INVALID, "SKILL.md"),
        ("bad-yaml", inline("---\nname: [\n---\nx"), INVALID, "SKILL.md"),
        ("no-mapping", inline("---\n- a\n---\nx"), INVALID, "SKILL.md"),
        (
            "version",
            json!({"source": {"inline": {"files": {"SKILL.md": "---\nname: version\ndescription: d\nversion: 1.0.0\n---\nx"}}}, "version": "2.0.0"}),
            INVALID,
            "version",
        ),
        (
            "tool-file",
            json!({"source": {"inline": {"files": {"SKILL.md": document("tool-file", "x")}}}, "tools": [{"name": "t", "command": ["scripts/none.py"]}]}),
            READY,
            "scripts/none.py",
        ),
        (
            "ambiguous",
            files(json!({"a/SKILL.md": "x", "b/SKILL.md": "x"})),
            "False/AmbiguousSource+Stalled",
            "select one with spec.source.path",
        ),
        (
            "no-base64",
            json!({"source": {"inline": {"files": {"SKILL.md": document("no-base64", "x")}, "binaryFiles": {"a": "?"}}}}),
            "False/InvalidSource+Stalled",
            "not base64",
        ),
        (
            "wrong-path",
            json!({"source": {"inline": {"files": {"a/SKILL.md": "x"}}, "path": "b"}}),
            "False/InvalidSource+Stalled",
            "no file below \"b\"",
        ),
    ]
}

fn archive_rows() -> Vec<Row> {
    let document = document("archived", "Do it.");
    let good = tgz(&[("pdf/SKILL.md", document.as_bytes()), ("pdf/run.py", b"1")]);
    let traversal = tgz(&[("SKILL.md", document.as_bytes()), ("../evil", b"x")]);
    let link = with_link(&document);
    let zeros = vec![0; 65 << 20];
    let bomb = tgz(&[("SKILL.md", document.as_bytes()), ("bomb", &zeros)]);
    let names: Vec<String> = (0..20_000).map(|number| format!("f{number}")).collect();
    let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
    let many = tgz(&many);
    let page = b"<!DOCTYPE html><title>Not found</title>".to_vec();
    let sums: Vec<String> = [&good, &traversal, &link, &bomb, &many, &page]
        .iter()
        .map(|bytes| digest(bytes))
        .collect();
    let base = serve(vec![
        ("/good.tgz", Answer::Bytes(good)),
        ("/traversal.tgz", Answer::Bytes(traversal)),
        ("/link.tgz", Answer::Bytes(link)),
        ("/bomb.tgz", Answer::Bytes(bomb)),
        ("/many.tgz", Answer::Bytes(many)),
        ("/page.tgz", Answer::Bytes(page)),
        ("/moved", Answer::Moved("/good.tgz".to_owned())),
        (
            "/metadata",
            Answer::Moved("http://169.254.169.254/latest/meta-data".to_owned()),
        ),
    ]);
    let row = |name, path: &str, sum: usize, verdict, text| {
        let url = if path.starts_with("https:") {
            path.to_owned()
        } else {
            format!("{base}/{path}")
        };
        let spec = json!({"source": {"archive": {"url": url, "digest": sums[sum]}}});
        (name, spec, verdict, text)
    };
    vec![
        row("archive-good", "good.tgz", 0, READY, "2 files"),
        row("archive-moved", "moved", 0, READY, "2 files"),
        row(
            "archive-digest",
            "good.tgz",
            1,
            "False/DigestMismatch+Stalled",
            "the spec says",
        ),
        row("archive-traversal", "traversal.tgz", 1, BAD_ARCHIVE, "\"../evil\""),
        row("archive-link", "link.tgz", 2, BAD_ARCHIVE, "\"passwd\" is a link"),
        row("archive-bomb", "bomb.tgz", 3, TOO_LARGE, "64 MiB unpacked"),
        row("archive-many", "many.tgz", 4, TOO_LARGE, "10000 entries"),
        row("archive-page", "page.tgz", 5, BAD_ARCHIVE, "<!DOCTYPE html>"),
        row("archive-none", "none.tgz", 0, NOT_FOUND, "404"),
        row(
            "archive-metadata",
            "metadata",
            0,
            DENIED,
            "169.254.169.254 is not a public address",
        ),
        row(
            "archive-api",
            "https://10.250.0.1/a.tgz",
            0,
            DENIED,
            "not a public address",
        ),
    ]
}

#[test]
fn every_source_reads_as_its_author_needs() {
    cluster_support::run("every_source_reads_as_its_author_needs", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-sources").await;
        let name = namespace.name();
        let allow = ["--allow-archive-network", "127.0.0.0/8"];
        let controller = Controller::start(cluster, name, &[name], &allow, "leading").await;
        let api = skills(&client, name);
        let rows: Vec<Row> = inline_rows().into_iter().chain(archive_rows()).collect();
        for (name, spec, _, _) in &rows {
            create(&api, name, spec.clone()).await;
        }
        for (name, _, expected, part) in &rows {
            let skill = until(&api, name, expected, reads(expected)).await.unwrap();
            let text = message(&skill, "Ready");
            assert!(text.contains(part), "{name}: {text:?} should contain {part:?}");
            let status = skill.status.unwrap();
            assert_eq!(status.artifact.is_some(), *expected == READY, "{name}");
            assert!(
                status
                    .conditions
                    .iter()
                    .all(|condition| condition.observed_generation == Some(1)),
                "{name}"
            );
        }
        controller.stop();
    });
}

#[test]
fn a_config_map_is_followed_from_before_it_exists_until_after_it_is_gone() {
    cluster_support::run("a_config_map_is_followed", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-source-map").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let api = skills(&client, name);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        create(&api, "a", json!({"source": {"configMap": {"name": "files"}}})).await;
        let waiting = until(&api, "a", "waiting", reads(NOT_FOUND)).await.unwrap();
        assert!(message(&waiting, "Ready").contains("ConfigMap files was not found in namespace"));
        let map = serde_json::from_value(json!({
            "metadata": {"name": "files"}, "data": {"SKILL.md": document("a", "One.")}, "binaryData": {"logo.png": "AAEC"},
        }))
        .unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        let first = until(&api, "a", "ready", reads(READY))
            .await
            .unwrap()
            .status
            .unwrap()
            .artifact
            .unwrap();
        assert_eq!(first.file_count, 2);
        merge(&maps, "files", json!({"data": {"SKILL.md": document("a", "Two.")}})).await;
        let changed = move |skill: Option<&knack_api::Skill>| {
            let artifact = skill.and_then(|skill| skill.status.as_ref()?.artifact.as_ref());
            artifact.is_some_and(|artifact| artifact.digest != first.digest)
        };
        let second = until(&api, "a", "a new digest", changed)
            .await
            .unwrap()
            .status
            .unwrap()
            .artifact
            .unwrap();
        maps.delete("files", &DeleteParams::default()).await.unwrap();
        let orphaned = until(&api, "a", "source gone", reads(NOT_FOUND)).await.unwrap();
        assert_eq!(
            orphaned.status.as_ref().unwrap().artifact.as_ref(),
            Some(&second),
            "the last good one stays"
        );
        assert!(message(&orphaned, "Ready").contains(&format!("Revision {} stays in service", second.revision)));
        controller.stop();
    });
}

/// An upload of one file as the registry would leave it: its ConfigMaps, and the Skill's spec.
fn uploaded(namespace: &str, skill: &str, version: u32, text: &str) -> (Vec<ConfigMap>, Value) {
    let file = |bytes: &[u8]| knack_skill::model::SkillFile {
        bytes: bytes.into(),
        executable: false,
    };
    let files = [
        ("SKILL.md".to_owned(), file(text.as_bytes())),
        (
            "large.bin".to_owned(),
            file(&vec![255; knack::artifact::SHARD_MAX_BYTES + 1]),
        ),
    ];
    let id = knack_skill::model::SkillRef {
        namespace: namespace.to_owned(),
        name: skill.to_owned(),
    };
    let made = knack::artifact::build(&id, &files.into(), &knack_api::SkillOverrides::default());
    let mut maps = made.shards;
    for (shard, map) in maps.iter_mut().enumerate() {
        map.metadata.name = Some(format!("{skill}-upload-{version}-{shard}"));
        map.metadata.labels = Some([("knack.dev/upload".to_owned(), skill.to_owned())].into());
    }
    let names: Vec<_> = maps.iter().map(|map| map.metadata.name.clone()).collect();
    (
        maps,
        json!({"source": {"upload": {"digest": made.digest, "configMaps": names}}}),
    )
}

#[test]
fn an_upload_is_followed_from_before_its_config_maps_until_one_is_gone() {
    cluster_support::run("an_upload_is_followed", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-source-upload").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let api = skills(&client, name);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        let (first, spec) = uploaded(name, "a", 1, &document("a", "One."));
        assert!(first.len() > 1);
        create(&api, "a", spec).await;
        let waiting = until(&api, "a", "waiting", reads(NOT_FOUND)).await.unwrap();
        assert!(
            message(&waiting, "Ready")
                .contains("ConfigMap a-upload-1-0, which holds a part of the uploaded content, was not found")
        );
        for map in &first {
            maps.create(&PostParams::default(), map).await.unwrap();
        }
        let ready = until(&api, "a", "ready", reads(READY)).await.unwrap().status.unwrap();
        let artifact = ready.artifact.unwrap();
        assert_eq!(artifact.file_count, 2);

        // Another text under the digest that was uploaded.
        let (mut other, _) = uploaded(name, "a", 1, &document("a", "Two."));
        maps.delete("a-upload-1-0", &DeleteParams::default()).await.unwrap();
        until(&api, "a", "a part gone", reads(NOT_FOUND)).await;
        maps.create(&PostParams::default(), &other.remove(0)).await.unwrap();
        let differs = until(&api, "a", "another text", reads("False/DigestMismatch+Stalled"))
            .await
            .unwrap();
        let told = message(&differs, "Ready");
        assert!(
            told.contains(&format!("Revision {} stays in service", artifact.revision)),
            "{told}"
        );
        assert_eq!(
            differs.status.unwrap().artifact.as_ref(),
            Some(&artifact),
            "the last good one stays"
        );

        // One that the registry did not make.
        maps.delete("a-upload-1-0", &DeleteParams::default()).await.unwrap();
        let mut unlabelled = first[0].clone();
        unlabelled.metadata.labels = None;
        maps.create(&PostParams::default(), &unlabelled).await.unwrap();
        let refused = until(&api, "a", "without its label", reads("False/InvalidSource+Stalled"))
            .await
            .unwrap();
        assert!(message(&refused, "Ready").contains("knack.dev/upload"));
        controller.stop();
    });
}

#[test]
fn a_foreign_object_of_our_name_is_left_alone() {
    cluster_support::run("a_foreign_object_of_our_name_is_left_alone", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-conflict").await;
        let name = namespace.name();
        let api = skills(&client, name);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        let text = document("a", "x");
        let file = knack_skill::model::SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        let id = knack_skill::model::SkillRef {
            namespace: name.to_owned(),
            name: "a".to_owned(),
        };
        let made = knack::artifact::build(
            &id,
            &[("SKILL.md".to_owned(), file)].into(),
            &knack_api::SkillOverrides::default(),
        );
        let taken = knack::artifact::name(&id, &made.revision, 0);
        let foreign = serde_json::from_value(json!({"metadata": {"name": taken}, "data": {"mine": "yes"}})).unwrap();
        let before = maps.create(&PostParams::default(), &foreign).await.unwrap();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        create(&api, "a", inline(&text)).await;
        let skill = until(&api, "a", "a conflict", reads("False/NameConflict+Stalled"))
            .await
            .unwrap();
        assert!(message(&skill, "Ready").contains(&taken));
        assert_eq!(maps.get(&taken).await.unwrap(), before, "untouched");
        // Out of the way, and asked for: it goes on.
        maps.delete(&taken, &DeleteParams::default()).await.unwrap();
        merge(
            &api,
            "a",
            json!({"metadata": {"annotations": {"knack.dev/requestedAt": "now"}}}),
        )
        .await;
        // The map's end alone makes it ready too, which may come before the request.
        let is_handled = |skill: Option<&Skill>| {
            let status = skill.and_then(|skill| skill.status.as_ref());
            reads(READY)(skill) && status.and_then(|status| status.last_handled_reconcile_at.as_deref()) == Some("now")
        };
        until(&api, "a", "ready, and the request handled", is_handled).await;
        controller.stop();
    });
}

/// What it holds when nothing is read any more: a process that has started holds some 50 MiB.
const AFTERWARDS_MIB: usize = 160;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until its memory is free again; free memory has no signal.
async fn returns(controller: &Controller) {
    let begun = std::time::Instant::now();
    while controller.resident_mib() >= AFTERWARDS_MIB {
        assert!(begun.elapsed() < BOUND, "{} MiB stay", controller.resident_mib());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Sixteen skills at once, each with an archive that unpacks to nearly all that is taken, under the chart's own limit.
#[test]
fn archives_that_swell_do_not_take_the_memory_of_the_process() {
    cluster_support::run("archives_that_swell_do_not_take_the_memory", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-bombs").await;
        let name = namespace.name();
        let arguments = ["--allow-archive-network", "127.0.0.0/8"];
        let Some(group) = Group::new(chart::memory_limit("controller")) else {
            cluster_support::skip("the controller's limit", "no memory control group can be made here");
            return;
        };
        let mut controller = Controller::launch_within(&group, cluster.kubeconfig(), name, &[name], &arguments);
        controller.until_phase("leading").await;
        let document = document("bomb", "x");
        // Bytes that do not shrink make it long on the wire, zeros make it large in memory.
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .take(8 << 20)
        .collect();
        let zeros = vec![0; 52 << 20];
        let bomb = tgz(&[("SKILL.md", document.as_bytes()), ("noise", &noise), ("zeros", &zeros)]);
        let sum = digest(&bomb);
        let base = serve(vec![("/bomb.tgz", Answer::Bytes(bomb))]);
        let api = skills(&client, name);
        let names: Vec<String> = (0..16).map(|number| format!("bomb{number}")).collect();
        for (number, skill) in names.iter().enumerate() {
            let url = format!("{base}/bomb.tgz?{number}");
            create(&api, skill, json!({"source": {"archive": {"url": url, "digest": sum}}})).await;
        }
        for skill in &names {
            until(&api, skill, "refused", reads("False/InvalidSkill+Stalled")).await;
        }
        assert_eq!(group.killed(), 0, "killed for want of memory");
        println!(
            "peak of the control group: {:?} MiB",
            group.peak_bytes().map(|bytes| bytes >> 20)
        );
        returns(&controller).await;
        controller.stop();
    });
}
