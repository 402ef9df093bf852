//! The table of pods.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends by panicking")]

use knack_injection::{Outcome, Parameters, inject, inject_manifest};
use serde_json::{Value, json};

/// A row as a pod.
fn pod(row: &Value) -> Value {
    let mut metadata = row["metadata"].clone();
    if metadata["labels"].is_null() {
        metadata["labels"] = json!({"knack.dev/inject": "enabled"});
    }
    let mut spec = row["spec"].clone();
    if let Some(copies) = row["copies"].as_u64() {
        let first = spec["containers"][0].clone();
        let all = (0..copies).map(|number| {
            let mut copy = first.clone();
            copy["name"] = json!(format!("app-{number}"));
            copy
        });
        spec["containers"] = all.collect();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn rows() -> Vec<Value> {
    serde_saphyr::from_str(include_str!("pods.yaml")).unwrap()
}

#[test]
fn every_row_is_what_it_says() {
    let parameters = Parameters::defaults().unwrap();
    assert!(rows().len() >= 30);
    for row in rows() {
        let title = row["title"].as_str().unwrap();
        let before = pod(&row);
        let injection = inject(&before, &parameters);
        assert_eq!(injection.outcome.to_string(), row["says"].as_str().unwrap(), "{title}");
        let said = injection.pod.pointer("/metadata/annotations/knack.dev~1injection");
        match &injection.outcome {
            Outcome::Unchanged(_) => assert_eq!(injection.pod, before, "{title}"),
            Outcome::Injected(text) | Outcome::Refused(text) => assert_eq!(said, Some(&json!(text)), "{title}"),
        }
        for (pointer, value) in row["want"].as_object().into_iter().flatten() {
            let found = injection.pod.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(found, value, "{title}: {pointer}");
        }
        untouched(title, &before, &injection.pod, &injection.outcome);
        let again = inject(&injection.pod, &parameters);
        if matches!(injection.outcome, Outcome::Injected(_)) {
            assert!(matches!(again.outcome, Outcome::Unchanged(_)), "{title}: twice");
        }
        assert_eq!(again.pod, injection.pod, "{title}: twice");
    }
}

const LOCAL_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";

/// The row in which an empty list of exceptions got the other list of its container: which of the two was empty is not
/// known.
const FILLED: &str = "empty exceptions beside others";

#[test]
fn a_pod_that_is_injected_again_is_as_it_was() {
    let mut parameters = Parameters::defaults().unwrap();
    for row in rows() {
        let title = row["title"].as_str().unwrap();
        let first = inject(&pod(&row), &parameters);
        if !matches!(first.outcome, Outcome::Injected(_)) {
            continue;
        }
        let mut again = first.pod.clone();
        let message = inject_manifest(&mut again, &parameters);
        if title == FILLED {
            assert_eq!(again["spec"]["containers"], first.pod["spec"]["containers"], "{title}");
        } else {
            assert_eq!(again, first.pod, "{title}");
            let same = Outcome::Unchanged("it has the sidecar of these parameters");
            assert_eq!(message[0].outcome, same, "{title}");
        }
    }
    // Pods with the sidecar of another release.
    for row in rows() {
        let title = row["title"].as_str().unwrap();
        let first = inject(&pod(&row), &parameters);
        if !matches!(first.outcome, Outcome::Injected(_)) || title == FILLED {
            continue;
        }
        let image = parameters.container.insert("image".to_owned(), json!("other")).unwrap();
        let mut again = first.pod.clone();
        let message = inject_manifest(&mut again, &parameters);
        assert_eq!(again, inject(&pod(&row), &parameters).pod, "{title}");
        assert_eq!(message[0].outcome, first.outcome, "{title}");
        parameters.container.insert("image".to_owned(), image);
    }
}

#[test]
fn a_sidecar_that_is_replaced_keeps_what_its_author_wrote_and_leaves_what_the_application_does_not_use() {
    let parameters = Parameters::defaults().unwrap();
    let app = json!({"name": "app", "env": [{"name": "A", "value": "b"}]});
    let mut pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [app]}});
    inject_manifest(&mut pod, &parameters);
    let own = json!([
        {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}},
        {"name": "KNACK_RUNTIME", "value": "team-a/own"},
        {"name": "KNACK_OLD", "value": "x"},
    ]);
    let env = pod["spec"]["initContainers"][0]["env"].as_array_mut().unwrap();
    let fixed = env.len();
    env.extend(own.as_array().unwrap().clone());
    // Made by a release that did not know of clients for Azure.
    let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.push(json!({"name": "AZURE_OPENAI_ENDPOINT", "value": "https://x.openai.azure.com"}));
    let message = inject_manifest(&mut pod, &parameters);
    assert_eq!(
        message[0].outcome.to_string(),
        "injected; not redirected: openai (a client for Azure)"
    );
    let env = pod["spec"]["initContainers"][0]["env"].as_array().unwrap();
    assert_eq!(env[fixed..], own.as_array().unwrap()[..2]);
    let names: Vec<&str> = pod["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "A",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_URL",
            "GOOGLE_GEMINI_BASE_URL",
            "AZURE_OPENAI_ENDPOINT"
        ]
    );
    // What stands in the way of another one leaves the pod as it is.
    let mounts = json!([{"name": "knack-files", "mountPath": "/files"}]);
    pod["spec"]["containers"][0]["volumeMounts"] = mounts;
    let before = pod.clone();
    let message = inject_manifest(&mut pod, &parameters);
    assert!(
        message[0].outcome.to_string().contains("cannot be replaced"),
        "{message:?}"
    );
    assert_eq!(pod, before);
}

/// Nothing of the application changes but variables; what is refused has an annotation more.
fn untouched(title: &str, before: &Value, after: &Value, outcome: &Outcome) {
    let mut after = after.clone();
    if let Some(annotations) = after
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("knack.dev/injection");
        // It has what it had, and perhaps the sidecar's volume.
        let had = before["metadata"]["annotations"][LOCAL_VOLUMES].clone();
        match annotations.insert(LOCAL_VOLUMES.to_owned(), had.clone()) {
            Some(now) => assert!(
                now.as_str().unwrap().starts_with(had.as_str().unwrap_or_default()),
                "{title}"
            ),
            None => assert_eq!(had, Value::Null, "{title}"),
        }
        if had.is_null() {
            annotations.remove(LOCAL_VOLUMES);
        }
        if before["metadata"]["annotations"].is_null() {
            assert!(annotations.is_empty(), "{title}");
            after["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    if matches!(outcome, Outcome::Injected(_)) {
        after["spec"]["initContainers"].as_array_mut().unwrap().remove(0);
        after["spec"]["volumes"]
            .as_array_mut()
            .unwrap()
            .retain(|volume| !volume["name"].as_str().unwrap().starts_with("knack-"));
    }
    let mut before = before.clone();
    for pod in [&mut before, &mut after] {
        let spec = pod["spec"].as_object_mut().unwrap();
        for kind in ["containers", "initContainers"] {
            for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
                if matches!(outcome, Outcome::Injected(_)) {
                    container.as_object_mut().unwrap().remove("env");
                }
            }
        }
        spec.retain(|_, value| value != &json!([]));
    }
    assert_eq!(after, before, "{title}");
}

#[test]
fn mirrors_of_static_pods_and_what_is_no_pod_stay() {
    let parameters = Parameters::defaults().unwrap();
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"containers": [{"name": "a"}]}});
    for pod in [
        mirror,
        json!({}),
        json!(null),
        json!([]),
        json!({"spec": "x"}),
        json!({"spec": {"containers": ["x"]}}),
        json!({"spec": {"containers": [{"name": "a"}], "volumes": {}}}),
        json!({"spec": {"containers": [{"name": "a"}], "initContainers": [7]}}),
        json!({"metadata": "x", "spec": {"containers": [{"name": "a"}]}}),
        json!({"metadata": {"annotations": []}, "spec": {"containers": [{"name": "a"}]}}),
        json!({"spec": {"containers": [{"name": "a", "env": ["x"]}]}}),
    ] {
        let injection = inject(&pod, &parameters);
        assert!(
            matches!(injection.outcome, Outcome::Unchanged(_)),
            "{pod}: {}",
            injection.outcome
        );
        assert_eq!(injection.pod, pod);
    }
}

/// Cluster Autoscaler splits at commas and takes nothing away: a volume counts by its exact name.
#[test]
fn the_local_volumes_of_the_parameters_are_named_and_taken_out_with_the_sidecar() {
    let mut parameters = Parameters::defaults().unwrap();
    let mut pod = json!({"kind": "Pod", "metadata": {"annotations": {LOCAL_VOLUMES: "cache"}}, "spec": {"containers": [{"name": "a"}]}});
    inject_manifest(&mut pod, &parameters);
    assert_eq!(pod["metadata"]["annotations"][LOCAL_VOLUMES], "cache,knack-files");
    // The volumes of another release, without one on the node.
    parameters.volumes.retain(|volume| volume["name"] != "knack-files");
    inject_manifest(&mut pod, &parameters);
    assert_eq!(pod["metadata"]["annotations"][LOCAL_VOLUMES], "cache");
    let mut bare = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
    inject_manifest(&mut bare, &Parameters::defaults().unwrap());
    inject_manifest(&mut bare, &parameters);
    assert_eq!(
        bare["metadata"]["annotations"],
        json!({"knack.dev/injection": "injected"})
    );
}

#[test]
fn pull_secrets_are_added_once() {
    let mut parameters = Parameters::defaults().unwrap();
    parameters.image_pull_secrets = vec!["own".to_owned(), "registry".to_owned()];
    let pod = json!({"spec": {"containers": [{"name": "a"}], "imagePullSecrets": [{"name": "own"}]}});
    let secrets = inject(&pod, &parameters).pod["spec"]["imagePullSecrets"].clone();
    assert_eq!(secrets, json!([{"name": "own"}, {"name": "registry"}]));
}

/// Kubernetes gives a pod the secrets of its ServiceAccount only if it names none: one that names any had none to lose.
#[test]
fn only_a_pod_that_named_no_pull_secret_is_told_that_it_has_the_sidecars_alone() {
    let mut parameters = Parameters::defaults().unwrap();
    parameters.image_pull_secrets = vec!["mirror".to_owned()];
    let mut hides = |pod: &mut Value, image: &str| {
        parameters.container.insert("image".to_owned(), json!(image));
        inject_manifest(pod, &parameters)[0].hides_pull_secrets
    };
    for (secrets, expected) in [
        (json!(null), true),
        (json!([]), true),
        (json!([{"name": "mirror"}]), false),
        (json!([{"name": "own"}]), false),
    ] {
        let mut pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        if !secrets.is_null() {
            pod["spec"]["imagePullSecrets"] = secrets.clone();
        }
        assert_eq!(hides(&mut pod, "one"), expected, "{secrets}");
        // It is not known who added a secret of a pod that has the sidecar already.
        let is_alone = pod["spec"]["imagePullSecrets"] == json!([{"name": "mirror"}]);
        assert_eq!(hides(&mut pod, "two"), is_alone, "{secrets}: replaced");
    }
}

#[test]
fn pods_are_found_in_the_objects_that_hold_them() {
    let parameters = Parameters::defaults().unwrap();
    let pod = |label: &str| json!({"metadata": {"labels": {"knack.dev/inject": label}}, "spec": {"containers": [{"name": "a"}]}});
    let job = |pod: Value| json!({"spec": {"template": pod}});
    let object = |kind: &str, rest: Value| {
        let mut object = json!({"kind": kind, "metadata": {"name": "web"}});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    for (mut manifest, place) in [
        (object("Deployment", job(pod("x"))), Some("/spec/template")),
        (object("StatefulSet", job(pod("x"))), Some("/spec/template")),
        (object("DaemonSet", job(pod("x"))), Some("/spec/template")),
        (object("Job", job(pod("x"))), Some("/spec/template")),
        (
            object("CronJob", json!({"spec": {"jobTemplate": job(pod("x"))}})),
            Some("/spec/jobTemplate/spec/template"),
        ),
        (
            json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}),
            Some(""),
        ),
        (object("Service", json!({"spec": {}})), None),
        (json!({"kind": "Deployment"}), None),
        (json!("text"), None),
    ] {
        let before = manifest.clone();
        let message = inject_manifest(&mut manifest, &parameters);
        let Some(place) = place else {
            assert_eq!((message.len(), manifest), (0, before));
            continue;
        };
        assert_eq!(message[0].object, format!("{} web", before["kind"].as_str().unwrap()));
        let changed = manifest.pointer(place).unwrap();
        assert_eq!(changed["spec"]["initContainers"][0]["name"], "knack-gateway", "{place}");
        assert_eq!(
            manifest.get("metadata").and_then(|metadata| metadata.get("name")),
            before["metadata"].get("name")
        );
    }
    let mut list =
        json!({"kind": "List", "items": [object("Job", job(pod("x"))), object("Job", job(pod("disabled")))]});
    let message = inject_manifest(&mut list, &parameters);
    assert_eq!(message[1].outcome, Outcome::Unchanged("its label says disabled"));
    assert_eq!(list["items"][1], object("Job", job(pod("disabled"))));
    assert!(matches!(message[0].outcome, Outcome::Injected(_)));
}

/// The pods that the policy and the webhook never inject, and objects of other groups.
#[test]
fn pods_that_get_no_sidecar_in_a_cluster_get_none_in_a_manifest() {
    let parameters = Parameters::defaults().unwrap();
    let spec = json!({"containers": [{"name": "a"}]});
    let metadata = |namespace: &str| json!({"name": "web", "namespace": namespace});
    let pod = |namespace| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(namespace), "spec": spec});
    let job = |api_version| json!({"apiVersion": api_version, "kind": "Job", "metadata": metadata("a"), "spec": {"template": {"spec": spec}}});
    let mut sandbox = pod("knack-sandboxes");
    sandbox["metadata"]["labels"] = json!({"knack.dev/role": "sandbox"});
    let namespaced = "unchanged: pods of its namespace never get the sidecar";
    for (mut object, message) in [
        (pod("kube-system"), Some(namespaced)),
        (pod("kube-public"), Some(namespaced)),
        (pod("knack-system"), Some(namespaced)),
        (sandbox, Some("unchanged: a sandbox never gets the sidecar")),
        (job("foo.example/v1"), None),
        (job("v1"), None),
    ] {
        let before = object.clone();
        let injected = inject_manifest(&mut object, &parameters);
        let outcomes: Vec<String> = injected.iter().map(|one| one.outcome.to_string()).collect();
        assert_eq!(outcomes, message.into_iter().collect::<Vec<_>>(), "{before}");
        assert_eq!(object, before);
    }
    for mut object in [pod("a"), job("batch/v1")] {
        let injected = inject_manifest(&mut object, &parameters);
        assert!(matches!(injected[0].outcome, Outcome::Injected(_)), "{object}");
    }
    // Items of a list of one kind may be without it, and stay so.
    let item = json!({"metadata": metadata("a"), "spec": {"template": {"spec": spec}}});
    let mut list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [item]});
    let injected = inject_manifest(&mut list, &parameters);
    assert_eq!(injected[0].object, "Deployment web");
    assert!(matches!(injected[0].outcome, Outcome::Injected(_)));
    assert!(list["items"][0].get("kind").is_none());
}

#[test]
fn parameters_are_refused_by_name() {
    for (text, word) in [
        ("container: {}", "missing field"),
        (
            "container: {}\nresources: {requests: {}, limits: {}}\nvolumes: []\nports: []\napis: []",
            "container",
        ),
        (
            "container: {name: a}\nresources: {requests: {}, limits: {}}\nvolumes: [{}]\nports: []\napis: []",
            "volumes",
        ),
        (
            "container: {name: a}\nresources: {requests: {}, limits: {}}\nvolumes: []\nports: []\napis: []\nmore: 1",
            "more",
        ),
        ("[", "not the parameters"),
    ] {
        let error = Parameters::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
