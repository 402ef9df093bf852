//! What a controller reports of the pods of an API server, from lists to what it writes.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::controller::fixture::{settings, start};
use crate::controller::process::run;
use crate::lease::Keeper;

/// Longest wait for the first look.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
const NEW: &str = "registry.example/knack-gateway:2";
const ONE_OF_ONE: &str = "1 of 1 pods that ask have the sidecar";
const OLD: &str = "registry.example/knack-gateway:1";

/// What was written, and the ServiceAccounts that were asked about.
#[derive(Debug, Default, Clone)]
struct LogBuffer {
    condition: Option<Value>,
    events: Vec<String>,
    asked: Vec<String>,
}

/// A pod of a namespace that asks, as an injection has left it.
fn pod(namespace: &str, name: &str, account: &str, image: Option<&str>) -> Value {
    let injected = image.map(|_| json!({"knack.dev/injection": "injected"}));
    let sidecar = image.map(|image| json!([{"name": "knack-gateway", "image": image}]));
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "annotations": injected},
        "spec": {"serviceAccountName": account, "initContainers": sidecar.unwrap_or(json!([])), "containers": []},
    })
}

/// Namespaces `listed`, which the SkillRuntime names, and `other`; and in the second a ServiceAccount that RBAC lets use it.
fn answer(written: &Mutex<LogBuffer>, pods: &[Value], method: &Method, path: &str, body: &[u8]) -> Option<Value> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = |items: Vec<Value>| Some(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
    let of = |namespace: &str| {
        let own = pods.iter().filter(|pod| pod["metadata"]["namespace"] == namespace);
        own.cloned().collect()
    };
    match (method, path) {
        (&Method::GET, "/api/v1/namespaces") => {
            let namespace = |name: &str, team: &str| json!({"metadata": {"name": name, "labels": {"team": team, "knack.dev/inject": "enabled"}}});
            list(vec![
                namespace("listed", "yes"),
                namespace("other", "no"),
                namespace("wrong", "yes"),
            ])
        }
        (&Method::GET, "/apis/knack.dev/v1alpha1/skillruntimes") => list(vec![json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"namespace": "home", "name": "default", "uid": "r", "resourceVersion": "1", "generation": 1},
            "spec": {"allowedCallers": {"namespaces": {"selector": {"matchLabels": {"team": "yes"}}}}},
        })]),
        (&Method::GET, "/api/v1/namespaces/listed/pods") => list(of("listed")),
        (&Method::GET, "/api/v1/namespaces/other/pods") => list(of("other")),
        (&Method::GET, "/api/v1/namespaces/wrong/pods") => list(of("wrong")),
        // The settings of a namespace's sidecars.
        (&Method::GET, "/api/v1/namespaces/wrong/configmaps/knack-sidecar") => {
            Some(json!({"metadata": {}, "data": {"KNACK_RUNTIME": "tools"}}))
        }
        (&Method::GET, path) if path.ends_with("/configmaps/knack-sidecar") => Some(json!({"metadata": {}})),
        (&Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews") => {
            let wanted = json!({"group": "knack.dev", "resource": "skillruntimes", "namespace": "home", "name": "default", "verb": "use"});
            assert_eq!(body["spec"]["resourceAttributes"], wanted);
            let user = body["spec"]["user"].as_str().unwrap_or_default().to_owned();
            let allowed = user == "system:serviceaccount:other:granted";
            written.lock().unwrap().asked.push(user);
            Some(json!({"spec": body["spec"], "status": {"allowed": allowed}}))
        }
        (&Method::POST, path) if path.starts_with("/apis/events.k8s.io/v1/namespaces/") => {
            if body["regarding"]["kind"] == "Pod" {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (name, reason, note) = (
                    word(&body["regarding"]["name"]),
                    word(&body["reason"]),
                    word(&body["note"]),
                );
                written.lock().unwrap().events.push(format!("{name} {reason} {note}"));
            }
            Some(body)
        }
        (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/home/skillruntimes/default/status") => {
            let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if let Some(found) = conditions.iter().find(|one| one["type"] == "PodsInjected") {
                written.lock().unwrap().condition = Some(found.clone());
            }
            Some(json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
                "metadata": {"namespace": "home", "name": "default", "uid": "r", "resourceVersion": "2"}}))
        }
        _ => None,
    }
}

/// What a controller writes at its first look, once it has written the condition and as many Events.
async fn first_look(pods: Vec<Value>, events: usize) -> LogBuffer {
    first_look_at(pods, events, |_| {}).await
}

/// The same, with another SkillRuntime.
async fn first_look_at(pods: Vec<Value>, events: usize, change: fn(&mut Value)) -> LogBuffer {
    let written = Arc::new(Mutex::new(LogBuffer::default()));
    let seen = Arc::clone(&written);
    let (address, _lease) = start(move |method, path, body| {
        let mut answer = answer(&seen, &pods, method, path, body)?;
        if *method == Method::GET && path == "/apis/knack.dev/v1alpha1/skillruntimes" {
            change(&mut answer["items"][0]);
        }
        Some(answer)
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let leases = Keeper::start(config.clone()).unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let shutdown = CancellationToken::new();
    let settings = crate::controller::ControllerSettings {
        injection_runtime: Some("home/default".parse().unwrap()),
        sidecar_image: Some(NEW.to_owned()),
        ..settings()
    };
    let leading = tokio::spawn(run(client, leases, settings, listener, None, shutdown.clone()));
    let begun = Instant::now();
    let result = loop {
        let now = written.lock().unwrap().clone();
        if now.condition.is_some() && now.events.len() >= events {
            break now;
        }
        assert!(begun.elapsed() < PATIENCE && !leading.is_finished(), "{now:?}");
        tokio::time::sleep(PAUSE).await;
    };
    shutdown.cancel();
    leading.await.unwrap().unwrap();
    result
}

fn said(written: &LogBuffer) -> [&str; 3] {
    let condition = written.condition.as_ref().unwrap();
    ["status", "reason", "message"].map(|key| condition[key].as_str().unwrap())
}

#[tokio::test]
async fn a_sidecar_that_the_hub_refuses_makes_the_condition_false_and_its_pod_is_reported() {
    let pods = vec![
        pod("listed", "good", "default", Some(NEW)),
        pod("listed", "older", "default", Some(OLD)),
        pod("other", "granted", "granted", Some(NEW)),
        pod("other", "refused", "app", Some(OLD)),
        pod("other", "refused-too", "app", Some(NEW)),
    ];
    let written = first_look(pods, 2).await;
    let why = "ServiceAccount app may not use SkillRuntime home/default";
    let message = format!(
        "the hub refuses the sidecars of 2 of 5 pods; add the labels of their namespaces to spec.allowedCallers, or grant \
         their ServiceAccounts the verb use: other/refused ({why}), other/refused-too ({why}); sidecars of another \
         image than this installation's: 1"
    );
    assert_eq!(said(&written), ["False", "CallersNotAllowed", &message]);
    let event = format!(
        "SidecarRefused the hub refuses the sidecar of Knack: {why}; an administrator can add the namespace's labels to its \
         spec.allowedCallers, or grant the verb use"
    );
    assert_eq!(
        written.events,
        [format!("refused {event}"), format!("refused-too {event}")]
    );
    // Once for each ServiceAccount, and never for those of a namespace that the SkillRuntime names.
    let user = |account: &str| format!("system:serviceaccount:other:{account}");
    assert_eq!(written.asked, [user("granted"), user("app")]);
}

#[tokio::test]
async fn a_sidecar_of_a_runtime_that_does_not_exist_is_refused_and_its_pod_is_reported() {
    let mut lost = pod("listed", "lost", "default", Some(NEW));
    lost["metadata"]["annotations"]["knack.dev/runtime"] = json!("home/gone");
    let mut own = pod("wrong", "own", "default", Some(NEW));
    own["metadata"]["annotations"]["knack.dev/runtime"] = json!("home/default");
    let mut untrue = pod("listed", "untrue", "default", Some(NEW));
    untrue["spec"]["initContainers"] = json!([]);
    let good = pod("listed", "good", "default", Some(NEW));
    let written = first_look(
        vec![good, lost, own, pod("wrong", "nonsense", "default", Some(NEW)), untrue],
        3,
    )
    .await;
    let message = "1 of 3 pods that ask for the sidecar have none: listed/untrue (knack.dev/injection says that it has one, \
         but there is no container knack-gateway)";
    assert_eq!(said(&written), ["False", "PodsWithoutSidecar", message]);
    let refused = "SidecarRefused the hub refuses the sidecar of Knack:";
    assert_eq!(
        written.events,
        [
            format!(
                "lost {refused} SkillRuntime home/gone does not exist; create it, or name another one (knack.dev/runtime on \
                 the pod, KNACK_RUNTIME in the ConfigMap knack-sidecar of the namespace)"
            ),
            "untrue NoSidecar asks for the sidecar of Knack but does not have it: knack.dev/injection says that it has one, but \
             there is no container knack-gateway"
                .to_owned(),
            format!(
                "nonsense {refused} KNACK_RUNTIME of ConfigMap knack-sidecar is not namespace/name; correct it, and restart \
                 the pod"
            ),
        ]
    );
}

/// `kubectl wait` takes a condition of an earlier generation for none.
#[tokio::test]
async fn after_an_edit_the_condition_is_of_the_new_generation() {
    let pods = vec![pod("listed", "good", "default", Some(NEW))];
    let before = first_look(pods.clone(), 0).await.condition.unwrap();
    assert_eq!(before["observedGeneration"], 1);
    let after = first_look_at(pods, 0, |runtime| {
        runtime["metadata"]["generation"] = json!(2);
        runtime["status"]["conditions"] = json!([{
            "type": "PodsInjected", "status": "True", "reason": "AllInjected", "message": ONE_OF_ONE,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }]);
    })
    .await
    .condition
    .unwrap();
    assert_eq!(after["message"], before["message"], "the same but for the generation");
    assert_eq!(
        (&after["reason"], &after["message"]),
        (&json!("AllInjected"), &json!(ONE_OF_ONE))
    );
    assert_eq!(
        (&after["observedGeneration"], &after["lastTransitionTime"]),
        (&json!(2), &json!("2026-01-01T00:00:00Z"))
    );
}

#[tokio::test]
async fn a_sidecar_of_another_release_is_named_and_makes_nothing_false() {
    let pods = vec![
        pod("listed", "good", "default", Some(NEW)),
        pod("listed", "older", "default", Some(OLD)),
    ];
    let written = first_look(pods, 0).await;
    let message = format!(
        "all 2 pods that ask have the sidecar, 1 of them with another image than this installation's; restart their workloads, or set injection.rollStale: listed/older ({OLD})"
    );
    assert_eq!(said(&written), ["True", "OlderSidecars", &message]);
    assert!(written.events.is_empty(), "{:?}", written.events);
}

#[tokio::test]
async fn a_pod_without_a_sidecar_comes_before_what_is_less_bad() {
    let pods = vec![
        pod("listed", "missed", "default", None),
        pod("listed", "older", "default", Some(OLD)),
        pod("other", "refused", "app", Some(NEW)),
    ];
    let written = first_look(pods, 2).await;
    let [status, reason, message] = said(&written);
    assert_eq!((status, reason), ("False", "PodsWithoutSidecar"));
    assert!(
        message.starts_with("1 of 3 pods that ask for the sidecar have none: listed/missed ("),
        "{message}"
    );
    assert!(
        message.contains(", other/refused (ServiceAccount app may not use"),
        "{message}"
    );
    assert!(
        message.ends_with("; sidecars of another image than this installation's: 1"),
        "{message}"
    );
    assert!(
        written.events[0].starts_with("missed NoSidecar ") && written.events[1].starts_with("refused SidecarRefused ")
    );
}
