//! Revisions over time: the last good one, pruning, suspension, and a restart that writes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_api::{Skill, SkillRuntime};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::controller::Controller;
use crate::objects::{IMAGE, create, create_runtime, document, inline, merge, message, reads, runtimes, skills};
use crate::wait::{BOUND, until};

const READY: &str = "True/Delivered";
/// Between two looks at what has no watch.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long nothing is written where nothing is left to write: the controller evaluates runtimes once in 250 ms.
const QUIET: Duration = Duration::from_secs(5);
/// How often the controller is asked meanwhile whether it gets the processor, and how soon it must answer.
const PULSE: Duration = Duration::from_millis(500);
const PULSE_WITHIN: Duration = Duration::from_secs(2);

async fn revisions(client: &Client, namespace: &str) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels("knack.dev/skill=a");
    let list = maps.list(&params).await.unwrap();
    list.iter()
        .map(|map| map.labels()["knack.dev/revision"].clone())
        .collect()
}

fn revision(skill: &Skill) -> String {
    skill
        .status
        .as_ref()
        .unwrap()
        .artifact
        .as_ref()
        .unwrap()
        .revision
        .clone()
}

/// Changes the body and waits for the new revision.
async fn edit(api: &Api<Skill>, body: &str) -> String {
    merge(api, "a", json!({"spec": inline(&document("a", body))})).await;
    let bytes = i64::try_from(document("a", body).len()).unwrap();
    let served = move |skill: Option<&Skill>| {
        reads(READY)(skill)
            && skill.is_some_and(|skill| {
                skill
                    .status
                    .as_ref()
                    .is_some_and(|status| status.artifact.as_ref().is_some_and(|artifact| artifact.size == bytes))
            })
    };
    revision(&until(api, "a", "the new revision", served).await.unwrap())
}

/// How often each reason was reported for skills.
async fn events(client: &Client, namespace: &str) -> BTreeMap<String, i32> {
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    for event in events.list(&ListParams::default()).await.unwrap() {
        if event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref()) == Some("Skill") {
            *counts.entry(event.reason.unwrap_or_default()).or_default() +=
                event.series.map_or(1, |series| series.count);
        }
    }
    counts
}

#[test]
fn old_revisions_go() {
    cluster_support::run("old_revisions_go", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-prune").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let api = skills(&client, name);
        let spec = json!({"sandbox": {"image": IMAGE}, "revisionHistoryLimit": 2});
        create_runtime(&runtimes(&client, name), "main", spec).await;
        create(&api, "a", inline(&document("a", "0"))).await;
        let first = revision(&until(&api, "a", "ready", reads(READY)).await.unwrap());
        let mut made = vec![first];
        for length in 1..=6 {
            made.push(edit(&api, &"x".repeat(length * 10)).await);
        }
        let kept = |skills: &[String]| {
            let mut kept = skills.to_vec();
            kept.sort();
            kept
        };
        // The one in service, and two before it.
        let expected = kept(&[made[6].clone(), made[5].clone(), made[4].clone()]);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        until(&maps, &format!("a-{}", made[3]), "pruned", |map: Option<&ConfigMap>| {
            map.is_none()
        })
        .await;
        // Others that are to go may go after it.
        let started = std::time::Instant::now();
        loop {
            let left = kept(&revisions(&client, name).await);
            if left == expected {
                break;
            }
            assert!(started.elapsed() < BOUND, "{left:?} should be {expected:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        controller.stop();
    });
}

#[test]
fn the_last_good_revision_serves_while_a_newer_one_is_broken_or_suspended() {
    cluster_support::run("the_last_good_revision_serves", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-last-good").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let api = skills(&client, name);
        create(&api, "a", inline(&document("a", "good"))).await;
        let good = until(&api, "a", "ready", reads(READY)).await.unwrap().status.unwrap();
        merge(&api, "a", json!({"spec": inline("---\nbroken")})).await;
        let broken = until(&api, "a", "broken", reads("False/InvalidSkill+Stalled"))
            .await
            .unwrap();
        let text = message(&broken, "Ready");
        assert!(
            text.contains(&format!(
                "Revision {} stays in service",
                good.artifact.as_ref().unwrap().revision
            )),
            "{text}"
        );
        let status = broken.status.clone().unwrap();
        assert_eq!(
            (&status.artifact, &status.config_maps, &status.tokens),
            (&good.artifact, &good.config_maps, &good.tokens)
        );
        assert_eq!(
            revisions(&client, name).await.len(),
            1,
            "nothing was made of what is broken"
        );
        merge(
            &api,
            "a",
            json!({"spec": {"suspend": true, "source": inline(&document("a", "another"))["source"]}}),
        )
        .await;
        let suspended = until(&api, "a", "suspended", reads("True/Suspended")).await.unwrap();
        assert_eq!(
            suspended.status.unwrap().artifact,
            good.artifact,
            "suspended: content is not looked at"
        );
        merge(&api, "a", json!({"spec": {"suspend": false}})).await;
        let resumed = until(&api, "a", "resumed", reads(READY)).await.unwrap();
        assert_ne!(resumed.status.unwrap().artifact, good.artifact);
        // One event per transition: delivered, broken, suspended, delivered again.
        let expected = [("Delivered", 2), ("InvalidSkill", 1), ("Suspended", 1)];
        let expected = BTreeMap::from(expected.map(|(reason, count)| (reason.to_owned(), count)));
        // An Event follows the status that it reports.
        let started = std::time::Instant::now();
        while events(&client, name).await != expected {
            assert!(
                started.elapsed() < BOUND,
                "{:?} should be {expected:?}",
                events(&client, name).await
            );
        }
        controller.stop();
    });
}

/// `kind/name` to resourceVersion of everything that the controller writes.
async fn versions(client: &Client, namespace: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let params = ListParams::default();
    let mut add = |kind: &str, name: String, version: Option<String>| {
        all.insert(format!("{kind}/{name}"), version.unwrap());
    };
    for object in Api::<Skill>::namespaced(client.clone(), namespace)
        .list(&params)
        .await
        .unwrap()
    {
        add("Skill", object.name_any(), object.resource_version());
    }
    for object in Api::<SkillRuntime>::namespaced(client.clone(), namespace)
        .list(&params)
        .await
        .unwrap()
    {
        add("SkillRuntime", object.name_any(), object.resource_version());
    }
    for object in Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .list(&params)
        .await
        .unwrap()
    {
        add("ConfigMap", object.name_any(), object.resource_version());
    }
    for object in Api::<NetworkPolicy>::namespaced(client.clone(), namespace)
        .list(&params)
        .await
        .unwrap()
    {
        add("NetworkPolicy", object.name_any(), object.resource_version());
    }
    // The hub's authority belongs to another task of the process.
    all.retain(|key, _| !key.starts_with("ConfigMap/knack-hub"));
    all
}

/// The versions of all objects, once they have not changed for a while, in which the controller always answered: one that gets no processor writes nothing
/// either, and has its writes still to come.
async fn at_rest(client: &Client, namespace: &str, controller: &Controller) -> BTreeMap<String, String> {
    let started = std::time::Instant::now();
    let (mut last, mut since) = (versions(client, namespace).await, started);
    loop {
        tokio::time::sleep(PULSE).await;
        let asked = std::time::Instant::now();
        let is_answered = controller.get("/metrics").is_some() && asked.elapsed() < PULSE_WITHIN;
        let now = versions(client, namespace).await;
        if now != last || !is_answered {
            assert!(started.elapsed() < BOUND, "answered: {is_answered}; {last:?} {now:?}");
            (last, since) = (now, std::time::Instant::now());
        } else if since.elapsed() >= QUIET {
            cluster_support::progress("nothing is written any more");
            return now;
        }
    }
}

#[test]
fn a_restart_of_the_controller_writes_nothing() {
    cluster_support::run("a_restart_of_the_controller_writes_nothing", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-restart").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let api = skills(&client, name);
        create_runtime(&runtimes(&client, name), "main", json!({"sandbox": {"image": IMAGE}})).await;
        let map = serde_json::from_value(
            json!({"metadata": {"name": "files"}, "data": {"SKILL.md": document("mapped", "x")}}),
        )
        .unwrap();
        Api::<ConfigMap>::namespaced(client.clone(), name)
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
        create(&api, "good", inline(&document("good", "x"))).await;
        create(&api, "broken", inline("---\nbroken")).await;
        create(&api, "mapped", json!({"source": {"configMap": {"name": "files"}}})).await;
        create(&api, "lost", json!({"source": {"configMap": {"name": "none"}}})).await;
        create(
            &api,
            "always",
            json!({"source": inline(&document("always", "x"))["source"], "activation": {"mode": "Always"}}),
        )
        .await;
        for (skill, expected) in [
            ("good", READY),
            ("mapped", READY),
            ("always", READY),
            ("broken", "False/InvalidSkill+Stalled"),
            ("lost", "False/SourceNotFound+Reconciling"),
        ] {
            let told = |skill: Option<&Skill>| {
                skill.is_some_and(|skill| skill.status.as_ref().is_some_and(|status| !status.runtimes.is_empty()))
            };
            until(&api, skill, expected, reads(expected)).await;
            until(&api, skill, "a runtime's verdict", told).await;
        }
        let counted = |runtime: Option<&SkillRuntime>| {
            let skills = runtime.and_then(|runtime| runtime.status.as_ref()?.skills);
            skills.is_some_and(|skills| (skills.accepted, skills.rejected) == (3, 2))
        };
        until(&runtimes(&client, name), "main", "counts", counted).await;
        // What follows from that, the verdicts of the last evaluation above all, is written by then.
        let before = at_rest(&client, name, &controller).await;
        controller.stop();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        // Everything was looked at: five skills and the runtime.
        let looks = "knack_controller_reconciles_total";
        while controller.counter(looks) < 6.0 {
            tokio::task::yield_now().await;
        }
        let writes = controller.counter("knack_controller_writes_total");
        controller.stop();
        assert_eq!(versions(&client, name).await, before);
        assert!(writes.abs() < f64::EPSILON, "{writes} writes");
    });
}
