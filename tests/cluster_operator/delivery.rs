//! Delivery of content into ConfigMaps with obstacles: an earlier skill's ConfigMap, a foreign one, and refusals of the
//! API server.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use k8s_openapi::api::events::v1::Event;
use knack_api::Skill;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::objects::{IMAGE, create, create_runtime, document, inline, merge, message, reads, runtimes, skills};
use crate::wait::{BOUND, until};

const READY: &str = "True/Delivered";
const REFUSED: &str = "False/RefusedByApiServer+Reconciling";
/// Skills that are deleted and applied again: the race is of milliseconds, and here it is lost every time.
const MADE_ANEW: usize = 50;

fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// The one ConfigMap of a skill's status: name and uid.
fn standing(skill: &Skill) -> (String, String) {
    let status = skill.status.as_ref().unwrap();
    assert_eq!(status.config_maps.len(), 1);
    (status.config_maps[0].name.clone(), status.config_maps[0].uid.clone())
}

/// Garbage collection that lags, by finalizers on what it should collect.
#[test]
fn a_skill_recreated_before_its_old_content_is_collected_gets_ready() {
    cluster_support::run(
        "a_skill_made_anew_before_its_old_content_is_collected",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-anew").await;
            let name = namespace.name();
            let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
            let (api, maps) = (skills(&client, name), config_maps(&client, name));
            let names: Vec<String> = (0..MADE_ANEW).map(|number| format!("s{number}")).collect();
            let mut held = Vec::new();
            for skill in &names {
                create(&api, skill, inline(&document(skill, "x"))).await;
            }
            for skill in &names {
                let (map, _) = standing(&until(&api, skill, "ready", reads(READY)).await.unwrap());
                merge(&maps, &map, json!({"metadata": {"finalizers": ["example.org/held"]}})).await;
                api.delete(skill, &DeleteParams::background()).await.unwrap();
                create(&api, skill, inline(&document(skill, "x"))).await;
                held.push(map);
            }
            for skill in &names {
                let waits = until(&api, skill, "waits", reads("False/NameConflict+Reconciling")).await;
                assert!(message(&waits.unwrap(), "Ready").contains("waiting for garbage collection"));
            }
            for map in &held {
                merge(&maps, map, json!({"metadata": {"finalizers": null}})).await;
            }
            for skill in &names {
                until(&api, skill, "ready again", reads(READY)).await;
            }
            // And as fast as it goes, with garbage collection as it is.
            for _ in 0..MADE_ANEW {
                api.delete("s0", &DeleteParams::background()).await.unwrap();
                create(&api, "s0", inline(&document("s0", "x"))).await;
            }
            until(&api, "s0", "ready after all", reads(READY)).await;
            controller.stop();
        },
    );
}

/// Puts a ConfigMap of another text in the place of a skill's, with everything else that can be copied.
async fn swap(maps: &Api<ConfigMap>, name: &str, immutable: bool) {
    let mut forged = maps.get(name).await.unwrap();
    maps.delete(name, &DeleteParams::background()).await.unwrap();
    forged.metadata.uid = None;
    forged.metadata.resource_version = None;
    forged.immutable = Some(immutable);
    for text in forged.data.iter_mut().flatten().map(|(_, text)| text) {
        *text = text.replace("honest", "forged");
    }
    maps.create(&PostParams::default(), &forged).await.unwrap();
}

#[test]
fn replaced_content_is_restored_and_reported() {
    cluster_support::run("replaced_content_is_restored_and_reported", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-swap").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let (api, maps) = (skills(&client, name), config_maps(&client, name));
        for skill in ["frozen", "loose", "kept"] {
            create(&api, skill, inline(&document(skill, "an honest text"))).await;
        }
        let mut before = Vec::new();
        for skill in ["frozen", "loose", "kept"] {
            before.push(standing(&until(&api, skill, "ready", reads(READY)).await.unwrap()));
        }
        controller.stop();
        swap(&maps, &before[0].0, true).await;
        swap(&maps, &before[1].0, false).await;
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        for (skill, (map, swapped)) in ["frozen", "loose"].iter().zip(&before) {
            let told = |skill: Option<&Skill>| {
                skill.is_some_and(|skill| message(skill, "Ready").contains("deleted it and created it again"))
            };
            let after = until(&api, skill, "put back", told).await.unwrap();
            let found = maps.get(map).await.unwrap();
            let text = serde_json::to_string(&found.data).unwrap();
            assert!(text.contains("an honest text") && !text.contains("forged"), "{text}");
            assert_eq!((map.clone(), found.uid().unwrap()), standing(&after));
            assert_ne!(&found.uid().unwrap(), swapped);
        }
        assert_eq!(standing(&api.get("kept").await.unwrap()), before[2], "untouched");
        let started = std::time::Instant::now();
        let expected = BTreeSet::from(["frozen".to_owned(), "loose".to_owned()]);
        while replaced(&client, name).await != expected {
            assert!(started.elapsed() < BOUND, "{:?}", replaced(&client, name).await);
        }
        controller.stop();
    });
}

/// Skills for which an Event reports that their content was replaced.
async fn replaced(client: &Client, namespace: &str) -> BTreeSet<String> {
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let events = events.list(&ListParams::default()).await.unwrap().into_iter();
    events
        .filter(|event| event.reason.as_deref() == Some("ContentReplaced"))
        .filter_map(|event| event.regarding?.name)
        .collect()
}

/// Denies every ConfigMap of a Skill in one namespace.
fn denial(name: &str, namespace: &str) -> Value {
    json!([
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ]},
                "validations": [{"expression": "!has(object.metadata.labels) || !('knack.dev/skill' in object.metadata.labels)",
                    "message": "content is not welcome here"}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": namespace}}}},
        },
    ])
}

#[test]
fn refusals_of_the_api_server_are_in_conditions_until_they_end() {
    cluster_support::run("what_the_api_server_refuses_stands_in_conditions", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-refused").await;
        let name = namespace.name();
        let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
        let hard = json!({"count/configmaps": "0", "count/networkpolicies.networking.k8s.io": "0"});
        let none = serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": hard}})).unwrap();
        quotas.create(&PostParams::default(), &none).await.unwrap();
        let counted = |quota: Option<&ResourceQuota>| {
            quota.is_some_and(|quota| quota.status.as_ref().is_some_and(|status| status.hard.is_some()))
        };
        until(&quotas, "none", "counted", counted).await;
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let (api, of_runtimes) = (skills(&client, name), runtimes(&client, name));
        create(&api, "a", inline(&document("a", "x"))).await;
        create_runtime(&of_runtimes, "main", json!({"sandbox": {"image": IMAGE}})).await;
        let refused = until(&api, "a", "refused by the quota", reads(REFUSED)).await.unwrap();
        assert!(
            message(&refused, "Ready").contains("quota"),
            "{}",
            message(&refused, "Ready")
        );
        until(
            &of_runtimes,
            "main",
            "refused by the quota",
            crate::runtimes::reads("False/RefusedByApiServer 0+1"),
        )
        .await;
        quotas.delete("none", &DeleteParams::default()).await.unwrap();
        until(&api, "a", "taken", reads(READY)).await;

        let policy = format!("test-{name}");
        for object in denial(&policy, name).as_array().unwrap() {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), object.to_string()).unwrap();
            cluster.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
        }
        until_denied(&config_maps(&client, name)).await;
        create(&api, "b", inline(&document("b", "x"))).await;
        let refused = until(&api, "b", "refused by the policy", reads(REFUSED)).await;
        let told = refused.map(|skill| message(&skill, "Ready")).unwrap_or_default();
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            cluster.kubectl(&["delete", kind, &policy]);
        }
        assert!(told.contains("content is not welcome here"), "{told}");
        until(&api, "b", "taken", reads(READY)).await;

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), unreachable_webhook(&policy, name).to_string()).unwrap();
        cluster.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
        until_denied(&config_maps(&client, name)).await;
        create(&api, "c", inline(&document("c", "x"))).await;
        let refused = until(&api, "c", "waits for the webhook", reads(REFUSED)).await;
        let told = refused.map(|skill| message(&skill, "Ready")).unwrap_or_default();
        cluster.kubectl(&["delete", "validatingwebhookconfiguration", &policy]);
        assert!(told.contains("admission webhook away.example.org"), "{told}");
        until(&api, "c", "taken", reads(READY)).await;
        controller.stop();
    });
}

/// A webhook for every ConfigMap of one namespace, where nothing answers.
fn unreachable_webhook(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": "away.example.org", "clientConfig": {"url": "https://127.0.0.1:9/"}, "failurePolicy": "Fail",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
        }],
    })
}

/// A policy binds a moment after it was made.
async fn until_denied(maps: &Api<ConfigMap>) {
    let probe =
        serde_json::from_value(json!({"metadata": {"name": "probe", "labels": {"knack.dev/skill": "x"}}})).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let started = std::time::Instant::now();
    while maps.create(&params, &probe).await.is_ok() {
        assert!(started.elapsed() < BOUND, "the policy does not bind");
    }
}

#[test]
fn what_an_older_version_judged_is_judged_again() {
    cluster_support::run("what_an_older_version_judged_is_judged_again", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-judge").await;
        let name = namespace.name();
        let api = skills(&client, name);
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        create(&api, "a", inline(&document("a", "x"))).await;
        let before = until(&api, "a", "ready", reads(READY)).await.unwrap().status.unwrap();
        controller.stop();
        // As an older version left it, with what that one made of the files.
        let older = json!({"status": {"judgedBy": "0.0.1", "description": "as it was once read"}});
        let patch = Patch::Merge(&older);
        api.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let anew = {
            let judge = before.judged_by.clone();
            move |skill: Option<&Skill>| {
                skill.is_some_and(|skill| skill.status.as_ref().is_some_and(|status| status.judged_by == judge))
            }
        };
        let after = until(&api, "a", "judged again", anew).await.unwrap().status.unwrap();
        assert_eq!(after, before);
        controller.stop();
    });
}
