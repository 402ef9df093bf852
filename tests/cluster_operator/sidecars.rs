//! Pods that ask for the sidecar and have none: condition, metric, Event.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use knack_api::SkillRuntime;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::objects::{IMAGE, create_runtime, merge, runtimes};
use crate::wait::{BOUND, until};

/// Between two looks at what has no watch.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// A pod that waits for a node that never comes, as an injection has left it.
fn pod(name: &str, labels: &Value, annotations: &Value) -> Pod {
    let is_injected = annotations["knack.dev/injection"] == "injected";
    let sidecar = json!({"name": "knack-gateway", "image": "none", "restartPolicy": "Always"});
    let before: &[Value] = if is_injected { &[sidecar] } else { &[] };
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "nodeSelector": {"knack.dev/nowhere": "true"}, "initContainers": before,
            "containers": [{"name": "app", "image": "none"}],
        },
    }))
    .unwrap()
}

fn says(status: &str, text: &str) -> impl Fn(Option<&SkillRuntime>) -> bool + use<> {
    let (status, text) = (status.to_owned(), text.to_owned());
    move |runtime| {
        let conditions = runtime.and_then(|runtime| Some(&runtime.status.as_ref()?.conditions));
        let found = conditions.and_then(|all| all.iter().find(|one| one.type_ == "PodsInjected"));
        found.is_some_and(|found| found.status == status && found.message == text)
    }
}

/// Pods of every standing, in a namespace that asks and in that of the installation. Returns where they are.
async fn make_pods(client: &Client, home: &str, apps: &str) -> Api<Pod> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let ask = json!({"metadata": {"labels": {"knack.dev/inject": "enabled"}}});
    merge(&namespaces, apps, ask).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), apps);
    let injected = json!({"knack.dev/injection": "injected"});
    let refused = json!({"knack.dev/injection": "not injected: the pod uses the host's network"});
    let chosen = json!({"knack.dev/injection": "injected", "knack.dev/runtime": format!("{home}/chosen")});
    for (name, labels, annotations) in [
        ("good", json!({}), injected),
        ("missed", json!({}), json!({})),
        ("refused", json!({}), refused),
        ("out", json!({"knack.dev/inject": "disabled"}), json!({})),
        ("elsewhere", json!({}), chosen),
    ] {
        pods.create(&PostParams::default(), &pod(name, &labels, &annotations))
            .await
            .unwrap();
    }
    // One that asks by itself, in the namespace of the installation, which no delivery reaches.
    let near: Api<Pod> = Api::namespaced(client.clone(), home);
    let by_itself = pod("own", &json!({"knack.dev/inject": "enabled"}), &json!({}));
    near.create(&PostParams::default(), &by_itself).await.unwrap();
    pods
}

#[test]
fn pods_without_their_sidecar_are_reported() {
    cluster_support::run("pods_without_their_sidecar_are_reported", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let (home, apps) = (
            cluster.namespace("sidecars-home").await,
            cluster.namespace("sidecars-apps").await,
        );
        let (home, apps) = (home.name(), apps.name());
        let api = runtimes(&client, home);
        for name in ["default", "chosen"] {
            create_runtime(
                &api,
                name,
                json!({
                    "sandbox": {"image": IMAGE},
                    "warmPool": {"replicas": 0},
                    "allowedCallers": {"namespaces": {"selector": {"matchLabels": {"knack.dev/inject": "enabled"}}}},
                }),
            )
            .await;
        }
        let pods = make_pods(&client, home, apps).await;

        let default = format!("{home}/default");
        let flags = ["--injection-runtime", default.as_str()];
        let controller = Controller::start(cluster, home, &[home, apps], &flags, "leading").await;
        let wrong = format!(
            "2 of 3 pods that ask for the sidecar have none: {apps}/missed (it was not injected; pods are injected only when they are created), {apps}/refused (not injected: the pod uses the host's network)"
        );
        until(&api, "default", "the pods without", says("False", &wrong)).await;
        until(
            &api,
            "chosen",
            "the pod with",
            says("True", "1 of 1 pods that ask have the sidecar"),
        )
        .await;
        let counted = |state: &str| controller.counter(&format!("knack_controller_sidecar_pods{{state=\"{state}\"}}"));
        let until_counted = async |injected: f64, without: f64| {
            let expected = (injected, 0.0, without);
            let started = std::time::Instant::now();
            loop {
                let now = (counted("injected"), counted("partly"), counted("without"));
                if now == expected {
                    return;
                }
                assert!(started.elapsed() < BOUND, "{now:?}, expected {expected:?}");
                tokio::time::sleep(PAUSE).await;
            }
        };
        until_counted(2.0, 2.0).await;
        // What alerts ask for.
        let ready = || controller.counter("knack_controller_objects{kind=\"SkillRuntime\",state=\"ready\"}");
        let started = std::time::Instant::now();
        let expiry =
            || controller.counter("knack_controller_certificate_expiry_timestamp_seconds{secret=\"knack-hub-tls\"}");
        while ready() < 2.0 || expiry() < 1.7e9 {
            assert!(started.elapsed() < BOUND, "ready: {}, expiry: {}", ready(), expiry());
            tokio::time::sleep(PAUSE).await;
        }
        assert!(controller.counter("knack_controller_runtimes_not_isolated") < 1.0);
        assert_eq!(told(&client, apps).await, ["missed", "refused"]);

        for name in ["missed", "refused"] {
            pods.delete(name, &DeleteParams::default().grace_period(0))
                .await
                .unwrap();
        }
        // Another SkillRuntime for the sidecars of the namespace: the default one has no pods then, and no condition.
        let other = serde_json::from_value(json!({
            "metadata": {"name": "knack-sidecar"}, "data": {"KNACK_RUNTIME": format!("{home}/chosen")},
        }))
        .unwrap();
        Api::<ConfigMap>::namespaced(client.clone(), apps)
            .create(&PostParams::default(), &other)
            .await
            .unwrap();
        until(
            &api,
            "chosen",
            "both pods",
            says("True", "2 of 2 pods that ask have the sidecar"),
        )
        .await;
        until(&api, "default", "nothing", |runtime: Option<&SkillRuntime>| {
            let conditions = runtime.and_then(|runtime| Some(&runtime.status.as_ref()?.conditions));
            conditions.is_some_and(|all| !all.is_empty() && all.iter().all(|one| one.type_ != "PodsInjected"))
        })
        .await;
        until_counted(2.0, 0.0).await;
        controller.stop();
    });
}

/// A pod that asks by itself needs what sidecars trust as one whose namespace asks; where somebody else has made the ConfigMap, its
/// pods carry no skills.
#[test]
fn authorities_come_where_a_pod_asks_by_itself() {
    cluster_support::run("authorities_come_where_a_pod_asks_by_itself", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let (home, apps, taken) = (
            cluster.namespace("trust-home").await,
            cluster.namespace("trust-apps").await,
            cluster.namespace("trust-taken").await,
        );
        let (home, apps, taken) = (home.name(), apps.name(), taken.name());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for namespace in [apps, taken] {
            merge(&namespaces, namespace, json!({"metadata": {"labels": {"team": home}}})).await;
        }
        let api = runtimes(&client, home);
        let callers = json!({"namespaces": {"selector": {"matchLabels": {"team": home}}}});
        let spec = json!({"sandbox": {"image": IMAGE}, "warmPool": {"replicas": 0}, "allowedCallers": callers});
        create_runtime(&api, "default", spec).await;
        let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let foreign = json!({"metadata": {"name": "knack-ca"}, "data": {"ca.crt": "another"}});
        let foreign = serde_json::from_value(foreign).unwrap();
        maps(taken).create(&PostParams::default(), &foreign).await.unwrap();
        let asks = json!({"knack.dev/inject": "enabled"});
        let injected = json!({"knack.dev/injection": "injected"});
        for namespace in [apps, taken] {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let one = pod("own", &asks, &injected);
            pods.create(&PostParams::default(), &one).await.unwrap();
        }

        let default = format!("{home}/default");
        let flags = ["--injection-runtime", default.as_str()];
        let controller = Controller::start(cluster, home, &[home, apps, taken], &flags, "leading").await;
        let wrong = format!(
            "the sidecars of 1 of 2 pods do not trust the hub: {taken}/own (ConfigMap knack-ca does not have its authorities: it has another owner; delete it)"
        );
        until(&api, "default", "the pod without authorities", says("False", &wrong)).await;
        let started = std::time::Instant::now();
        while maps(apps).get_opt("knack-ca").await.unwrap().is_none() {
            assert!(started.elapsed() < BOUND, "no knack-ca in {apps}");
            tokio::time::sleep(PAUSE).await;
        }
        maps(taken).delete("knack-ca", &DeleteParams::default()).await.unwrap();
        until(
            &api,
            "default",
            "both pods",
            says("True", "2 of 2 pods that ask have the sidecar"),
        )
        .await;
        controller.stop();
    });
}

/// The pods that have an Event, once there are two.
async fn told(client: &Client, namespace: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let started = std::time::Instant::now();
    loop {
        let found = events.list(&ListParams::default()).await.unwrap();
        let ours = found
            .items
            .iter()
            .filter(|event| event.reason.as_deref() == Some("NoSidecar"));
        let mut names: Vec<String> = ours
            .filter_map(|event| event.regarding.as_ref()?.name.clone())
            .collect();
        names.sort();
        // A later look may tell of one again.
        names.dedup();
        if names.len() >= 2 {
            return names;
        }
        assert!(started.elapsed() < BOUND, "Events: {names:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
