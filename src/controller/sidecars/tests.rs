//! What a controller reports of the pods of an API server, from lists to what it writes.

use std::cell::OnceCell;
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

/// Longest wait for the first check.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a controller goes on after what it is to do, so that it could do what it is not to do.
const GOES_ON: Duration = Duration::from_millis(500);
const NEW: &str = "registry.example/knack-gateway:2";
const ONE_OF_ONE: &str = "1 of 1 pods that ask have the sidecar";
const OLD: &str = "registry.example/knack-gateway:1";

/// What was written, the ServiceAccounts that were asked about, and the namespaces that got the hub's authorities.
#[derive(Debug, Default, Clone)]
struct LogBuffer {
    condition: Option<Value>,
    events: Vec<String>,
    asked: Vec<String>,
    shared: Vec<String>,
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

/// A pod of a Deployment.
fn replica(deployment: &str, mut pod: Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-1"), "uid": "s", "controller": true});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod["metadata"]["labels"] = json!({"pod-template-hash": "1"});
    pod
}

/// Namespaces `listed`, which the SkillRuntime names, and `other`; and in the second a ServiceAccount that RBAC lets use it. Pods of
/// `alone` ask by themselves, and in `full` there is no room for a ConfigMap: where one of them has pods there is a hub.
fn answer(written: &Mutex<LogBuffer>, pods: &[Value], method: &Method, path: &str, body: &[u8]) -> Option<Value> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let list = |items: Vec<Value>| Some(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
    let of = |namespace: &str| {
        let own = pods.iter().filter(|pod| pod["metadata"]["namespace"] == namespace);
        own.cloned().collect()
    };
    match (method, path) {
        (&Method::GET, "/api/v1/namespaces") => {
            let namespace = |name: &str, team: &str| json!({"metadata": {"name": name, "uid": name, "labels": {"team": team, "knack.dev/inject": "enabled"}}});
            list(vec![
                namespace("listed", "yes"),
                namespace("other", "no"),
                namespace("wrong", "yes"),
                namespace("full", "yes"),
                json!({"metadata": {"name": "alone", "uid": "alone", "labels": {"team": "yes"}}}),
            ])
        }
        (&Method::GET, "/api/v1/pods") => list(of("alone")),
        (&Method::GET, "/api/v1/namespaces/full/pods") => list(of("full")),
        (&Method::GET, "/api/v1/namespaces/home/configmaps/knack-hub-ca") => {
            let has_hub = pods
                .iter()
                .any(|pod| ["alone", "full"].iter().any(|one| pod["metadata"]["namespace"] == *one));
            has_hub.then(|| json!({"metadata": {}, "data": {"ca.crt": "authority"}}))
        }
        (&Method::PATCH, "/api/v1/namespaces/full/configmaps/knack-ca") => {
            let message = "configmaps \"knack-ca\" is forbidden: exceeded quota: maps";
            Some(json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}))
        }
        (&Method::PATCH, path) if path.ends_with("/configmaps/knack-ca") => {
            let namespace = path.split('/').nth(4).unwrap_or_default();
            written.lock().unwrap().shared.push(namespace.to_owned());
            Some(body)
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

/// What a controller writes at its first check, once it has written the condition and as many Events.
async fn first_check(pods: Vec<Value>, events: usize) -> LogBuffer {
    first_check_of(pods, events, |_| {}).await
}

/// What a controller writes at its first check of another SkillRuntime.
async fn first_check_of(pods: Vec<Value>, events: usize, change: fn(&mut Value)) -> LogBuffer {
    looks(pods, change, |now| {
        now.condition.is_some() && now.events.len() >= events
    })
    .await
}

/// What a controller writes until it is enough.
async fn looks(pods: Vec<Value>, change: fn(&mut Value), is_enough: impl Fn(&LogBuffer) -> bool) -> LogBuffer {
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
        if is_enough(&now) {
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
    let written = first_check(pods, 3).await;
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
    let older = format!(
        "older SidecarOutdated has the sidecar of Knack with the image {OLD}, and this installation has another one; a restart of \
         the workload gives it that"
    );
    assert_eq!(
        written.events,
        [format!("refused {event}"), format!("refused-too {event}"), older]
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
    let written = first_check(
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
            "untrue NoSidecar asks for the sidecar of Knack but does not have it: knack.dev/injection says that it has one, but \
             there is no container knack-gateway"
                .to_owned(),
            format!(
                "lost {refused} SkillRuntime home/gone does not exist; create it, or name another one (knack.dev/runtime on \
                 the pod, KNACK_RUNTIME in the ConfigMap knack-sidecar of the namespace)"
            ),
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
    let before = first_check(pods.clone(), 0).await.condition.unwrap();
    assert_eq!(before["observedGeneration"], 1);
    let after = first_check_of(pods, 0, |runtime| {
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
    let written = first_check(pods, 1).await;
    let message = format!(
        "all 2 pods that ask have the sidecar, 1 of them with another image than this installation's; restart their workloads, or set injection.rollStale: listed/older ({OLD})"
    );
    assert_eq!(said(&written), ["True", "OlderSidecars", &message]);
    assert!(
        written.events.len() == 1 && written.events[0].starts_with("older SidecarOutdated "),
        "{:?}",
        written.events
    );
}

/// Pods of one workload are replaced all the time: what they have in common is reported once, and after what is worse.
#[tokio::test]
async fn a_workload_is_told_once_that_its_sidecars_are_older_or_that_an_annotation_is_ignored() {
    let ignored = |name: &str| {
        let mut one = pod("listed", name, "default", Some(NEW));
        let text = "injected; unknown annotation knack.dev/runtim is ignored";
        one["metadata"]["annotations"]["knack.dev/injection"] = json!(text);
        replica("web", one)
    };
    let older = |name: &str| replica("api", pod("listed", name, "default", Some(OLD)));
    let mut partly = pod("listed", "partly", "default", Some(NEW));
    partly["metadata"]["annotations"]["knack.dev/injection"] =
        json!("injected; not redirected: openai (base URLs differ)");
    let pods = vec![
        older("a"),
        older("b"),
        ignored("c"),
        ignored("d"),
        partly,
        pod("other", "refused", "app", Some(NEW)),
    ];
    let written = first_check(pods, 3).await;
    let begins: Vec<&str> = written
        .events
        .iter()
        .map(|event| event.split(" has ").next().unwrap())
        .collect();
    assert!(begins[0].starts_with("refused SidecarRefused "), "{begins:?}");
    assert_eq!(begins[1..], ["c AnnotationIgnored", "a SidecarOutdated"]);
    assert!(
        written.events[1].ends_with(
            "but unknown annotation knack.dev/runtim is ignored; correct the pod template, and restart the workload"
        ),
        "{:?}",
        written.events
    );
}

/// A pod that asks by itself needs the authorities as one whose namespace asks, and one that cannot have them carries no skills.
#[tokio::test]
async fn the_authorities_come_to_every_accepted_sidecar_and_where_they_do_not_the_condition_is_false() {
    let by_itself = |name: &str, account: &str| {
        let mut one = pod("alone", name, account, Some(NEW));
        one["metadata"]["labels"] = json!({"knack.dev/inject": "enabled"});
        one
    };
    let pods = vec![
        by_itself("own", "default"),
        pod("full", "cut-off", "default", Some(NEW)),
    ];
    let written = looks(
        pods,
        |_| {},
        |now| !now.events.is_empty() && now.shared.iter().any(|namespace| namespace == "alone"),
    )
    .await;
    let [status, reason, message] = said(&written);
    assert_eq!((status, reason), ("False", "AuthoritiesNotShared"));
    assert!(
        message.starts_with(
            "the sidecars of 1 of 2 pods do not trust the hub: full/cut-off (ConfigMap knack-ca does not have its authorities: "
        ),
        "{message}"
    );
    let [event] = written.events.as_slice() else {
        panic!("{:?}", written.events)
    };
    assert!(
        event.starts_with("cut-off AuthoritiesNotShared the sidecar of Knack does not trust the hub: ConfigMap knack-ca does not have its authorities: ")
            && event.contains("exceeded quota"),
        "{event}"
    );
}

#[tokio::test]
async fn no_authorities_go_where_the_hub_accepts_no_sidecar() {
    let mut refused = pod("alone", "refused", "default", Some(NEW));
    refused["metadata"]["labels"] = json!({"knack.dev/inject": "enabled"});
    refused["metadata"]["annotations"]["knack.dev/runtime"] = json!("home/gone");
    let good = pod("listed", "good", "default", Some(NEW));
    let done = OnceCell::new();
    let written = looks(
        vec![refused, good],
        |_| {},
        |now| {
            let is_done = !now.events.is_empty() && now.shared.iter().any(|namespace| namespace == "listed");
            is_done && done.get_or_init(Instant::now).elapsed() >= GOES_ON
        },
    )
    .await;
    assert!(
        written.events.len() == 1 && written.events[0].starts_with("refused SidecarRefused "),
        "{:?}",
        written.events
    );
    assert!(
        !written.shared.iter().any(|namespace| namespace == "alone"),
        "{:?}",
        written.shared
    );
}

#[tokio::test]
async fn a_pod_without_a_sidecar_comes_before_what_is_less_bad() {
    let pods = vec![
        pod("listed", "missed", "default", None),
        pod("listed", "older", "default", Some(OLD)),
        pod("other", "refused", "app", Some(NEW)),
    ];
    let written = first_check(pods, 2).await;
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
