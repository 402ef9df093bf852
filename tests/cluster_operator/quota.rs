//! The quota of the sandboxes of a namespace: sums over its runtimes, binds their PriorityClass and nothing else.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::controller::Controller;
use crate::objects::{IMAGE, create_runtime, merge, runtimes};
use crate::wait::until;

const CLASS: &str = "operator-quota-sandboxes";
const QUOTA: &str = "knack-sandboxes";

/// The number of pods that the quota allows, once the server counts by it.
fn pods(expected: &str) -> impl Fn(Option<&ResourceQuota>) -> bool + use<> {
    let expected = expected.to_owned();
    move |quota| {
        let status = quota.and_then(|quota| quota.status.as_ref()?.hard.as_ref()?.get("pods"));
        status.is_some_and(|pods| pods.0 == expected)
    }
}

/// A pod that waits for a node that never comes.
fn pod(class: Option<&str>) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"generateName": "waits-"},
        "spec": {
            "priorityClassName": class, "nodeSelector": {"knack.dev/nowhere": "true"},
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"}}}],
        },
    }))
    .unwrap()
}

#[test]
fn the_quota_binds_the_sandboxes_of_a_namespace_and_nothing_else() {
    cluster_support::run(
        "the_quota_binds_the_sandboxes_of_a_namespace_and_nothing_else",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-quota").await;
            let name = namespace.name();
            let classes: Api<PriorityClass> = Api::all(client.clone());
            let class = serde_json::from_value(json!({
                "metadata": {"name": CLASS}, "value": 0, "preemptionPolicy": "Never",
            }))
            .unwrap();
            classes.create(&PostParams::default(), &class).await.unwrap();
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
            let flags = ["--sandbox-priority-class", CLASS];
            let controller = Controller::start(cluster, name, &[name], &flags, "leading").await;
            let api = runtimes(&client, name);
            let spec = |runs| json!({"sandbox": {"image": IMAGE}, "concurrency": {"maxRuns": runs}, "warmPool": {"replicas": 0}});
            create_runtime(&api, "one", spec(1)).await;
            until(&quotas, QUOTA, "one runtime's", pods("6")).await;
            create_runtime(&api, "two", spec(2)).await;
            until(&quotas, QUOTA, "both runtimes'", pods("14")).await;
            merge(&api, "two", json!({"spec": {"concurrency": {"maxRuns": 3}}})).await;
            until(&quotas, QUOTA, "the changed runtime's", pods("16")).await;
            // Widened from outside: narrowed again by the next check.
            merge(&quotas, QUOTA, json!({"spec": {"hard": {"pods": "900"}}})).await;
            merge(&api, "two", json!({"spec": {"suspend": true}})).await;
            until(&quotas, QUOTA, "narrowed", pods("16")).await;
            api.delete("two", &DeleteParams::default()).await.unwrap();
            merge(&api, "one", json!({"spec": {"suspend": true}})).await;
            until(&quotas, QUOTA, "one runtime's again", pods("6")).await;

            let room: Api<Pod> = Api::namespaced(client.clone(), name);
            for _ in 0..6 {
                room.create(&PostParams::default(), &pod(Some(CLASS))).await.unwrap();
            }
            let refused = room
                .create(&PostParams::default(), &pod(Some(CLASS)))
                .await
                .unwrap_err();
            assert!(
                refused.to_string().contains("exceeded quota: knack-sandboxes"),
                "{refused}"
            );
            room.create(&PostParams::default(), &pod(None)).await.unwrap();

            api.delete("one", &DeleteParams::default()).await.unwrap();
            until(
                &quotas,
                QUOTA,
                "gone with the last runtime",
                |quota: Option<&ResourceQuota>| quota.is_none(),
            )
            .await;
            controller.stop();
            classes.delete(CLASS, &DeleteParams::default()).await.unwrap();
        },
    );
}

#[test]
fn a_foreign_quota_is_left_alone_and_ours_bounds_nothing_without_the_setting() {
    cluster_support::run(
        "a_foreign_quota_is_left_alone_and_ours_bounds_nothing_without_the_setting",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-foreign-quota").await;
            let name = namespace.name();
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
            let foreign =
                serde_json::from_value(json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": "5"}}})).unwrap();
            quotas.create(&PostParams::default(), &foreign).await.unwrap();
            let api = runtimes(&client, name);
            let flags = ["--sandbox-priority-class", "any"];
            let controller = Controller::start(cluster, name, &[name], &flags, "leading").await;
            create_runtime(&api, "main", json!({"sandbox": {"image": IMAGE}})).await;
            until(
                &api,
                "main",
                "a conflict",
                crate::runtimes::reads("False/NameConflict 0+0"),
            )
            .await;
            let left = quotas.get(QUOTA).await.unwrap();
            assert_eq!(left.spec.unwrap().hard.unwrap()["pods"].0, "5", "untouched");
            // Out of the way: Knack's comes, and bounds nothing once the installation wants no bounds.
            quotas.delete(QUOTA, &DeleteParams::default()).await.unwrap();
            merge(&api, "main", json!({"spec": {"suspend": true}})).await;
            until(&quotas, QUOTA, "ours", pods("72")).await;
            controller.stop();
            let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
            // The object stays, for what it says of the runtimes; it bounds nothing any more.
            until(&quotas, QUOTA, "no bounds", |quota: Option<&ResourceQuota>| {
                quota.is_some_and(|quota| quota.spec.as_ref().is_none_or(|spec| spec.hard.is_none()))
            })
            .await;
            let register = quotas
                .get(QUOTA)
                .await
                .unwrap()
                .metadata
                .annotations
                .unwrap_or_default();
            assert!(register.keys().any(|key| key.ends_with("/main")), "{register:?}");
            controller.stop();
        },
    );
}
