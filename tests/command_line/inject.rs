//! `knack inject`.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::program::{folder, knack};
use super::{err, out};

const MANIFESTS: &str = "\
# A comment goes.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, version: '1.10', on: 'yes'}}
    spec: {containers: [{name: app, image: app, args: ['0x10', '1e3', '12:30', 'null', '~']}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: {spec: {hostNetwork: true, restartPolicy: Never, containers: [{name: app, image: app}]}}}}}
";

#[tokio::test]
async fn every_pod_of_a_file_is_injected_and_the_rest_is_passed_on() {
    let folder = folder(&[("all.yaml", MANIFESTS)]);
    let done = knack(folder.path(), &["inject", "-f", "all.yaml"], &[]).await;
    assert!(done.status.success(), "{}", err(&done));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&out(&done)).unwrap();
    assert_eq!(documents.len(), 3);
    let pod = &documents[0]["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"][0]["name"], "knack-gateway");
    // Words that older readers of YAML take for something else are still text.
    assert_eq!(
        pod["containers"][0]["args"],
        serde_json::json!(["0x10", "1e3", "12:30", "null", "~"])
    );
    for quoted in ["'0x10'", "'1e3'", "'12:30'", "'null'", "'1.10'", "'yes'"] {
        let text = out(&done).replace('"', "'");
        assert!(text.contains(quoted), "{quoted} is not quoted: {text}");
    }
    assert_eq!(documents[1]["kind"], "Service");
    let cron = &documents[2]["spec"]["jobTemplate"]["spec"]["template"];
    assert!(cron["spec"]["initContainers"].is_null());
    let told = err(&done);
    assert!(told.contains("all.yaml: Deployment web: injected"), "{told}");
    assert!(
        told.contains("CronJob report: not injected: the pod uses the host's network"),
        "{told}"
    );
}

#[tokio::test]
async fn parameters_come_from_a_file_and_manifests_from_standard_input() {
    let parameters = "\
container: {name: side, image: 'registry.example.org/side:1'}
resources: {requests: {}, limits: {}}
volumes: []
ports: [1]
apis: [{name: openai, url: 'http://127.0.0.1:1', variables: [OPENAI_BASE_URL], upstream: UP}]
";
    let folder = folder(&[("p.yaml", parameters), ("broken.yaml", "container: 1")]);
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_knack"))
        .args(["inject", "-f", "-", "--parameters", "p.yaml"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pod = br#"{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}}"#;
    child.stdin.take().unwrap().write_all(pod).await.unwrap();
    let done = child.wait_with_output().await.unwrap();
    let printed: Value = serde_saphyr::from_str(&out(&done)).unwrap();
    assert_eq!(
        printed["spec"]["initContainers"][0]["image"],
        "registry.example.org/side:1"
    );
    assert_eq!(
        printed["spec"]["containers"][0]["env"][0]["value"],
        "http://127.0.0.1:1"
    );

    for (arguments, word) in [
        (&["inject", "-f", "absent.yaml"][..], "absent.yaml"),
        (
            &["inject", "-f", "p.yaml", "--parameters", "broken.yaml"],
            "broken.yaml",
        ),
        (&["inject"], "--filename"),
    ] {
        let done = knack(folder.path(), arguments, &[]).await;
        assert!(
            !done.status.success() && err(&done).contains(word),
            "{arguments:?}: {}",
            err(&done)
        );
    }
}

/// Kubernetes gives a pod the pull secrets of its ServiceAccount only if the pod names none itself.
#[tokio::test]
async fn a_pod_that_gets_pull_secrets_without_any_of_its_own_is_told_of() {
    let parameters = "\
container: {name: side, image: 'registry.example.org/side:1'}
resources: {requests: {}, limits: {}}
volumes: []
imagePullSecrets: [mirror]
ports: [1]
apis: []
";
    let pod = |name: &str, more: &str| {
        format!("kind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: app, image: app}}]{more}}}\n---\n")
    };
    let all = [
        pod("bare", ""),
        pod("empty", ", imagePullSecrets: []"),
        pod("own", ", imagePullSecrets: [{name: own}]"),
        pod("host", ", hostNetwork: true, imagePullSecrets: [{name: mirror}]"),
    ];
    let folder = folder(&[("p.yaml", parameters), ("all.yaml", &all.concat())]);
    let done = knack(
        folder.path(),
        &["inject", "-f", "all.yaml", "--parameters", "p.yaml"],
        &[],
    )
    .await;
    assert!(done.status.success(), "{}", err(&done));
    let told = err(&done);
    let lines = told
        .lines()
        .filter(|line| line.contains("imagePullSecrets are the sidecar's alone"));
    let named: Vec<&str> = lines.map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(named, ["Pod bare", "Pod empty"], "{told}");
}

/// What kubectl reads of a manifest that is passed on is what it reads of the manifest itself.
#[tokio::test]
async fn numbers_and_words_of_yaml_1_1_are_those_that_kubectl_reads() {
    let manifest = "\
kind: Pod
metadata: {name: p, annotations: {mode: '0400', other: \"0o17\", flag: 'on'}}
spec:
  hostPID: no
  containers: [{name: app, image: app, stdin: yes, tty: off}]
  volumes:
    - {name: s, secret: {secretName: s, defaultMode: 0400}}
    - {name: t, secret: {secretName: t, defaultMode: 0o644, items: [{key: k, path: p, mode: 0}, {key: l, path: q, mode: 0x10}]}}
    - {name: u, secret: {secretName: u, defaultMode: 420}}
";
    let folder = folder(&[("pod.yaml", manifest)]);
    let done = knack(folder.path(), &["inject", "-f", "pod.yaml"], &[]).await;
    assert!(done.status.success(), "{}", err(&done));
    let printed = out(&done);
    let pod: Value = serde_saphyr::from_str(&printed).unwrap();
    for (place, expected) in [
        ("/spec/volumes/0/secret/defaultMode", Value::from(256)),
        ("/spec/volumes/1/secret/defaultMode", Value::from(420)),
        ("/spec/volumes/1/secret/items/0/mode", Value::from(0)),
        ("/spec/volumes/1/secret/items/1/mode", Value::from(16)),
        ("/spec/volumes/2/secret/defaultMode", Value::from(420)),
        ("/spec/hostPID", Value::from(false)),
        ("/spec/containers/0/stdin", Value::from(true)),
        ("/spec/containers/0/tty", Value::from(false)),
    ] {
        assert_eq!(pod.pointer(place), Some(&expected), "{place}: {printed}");
    }
    // What was text is still text for a reader of YAML 1.1.
    for quoted in ["'0400'", "'0o17'", "'on'"] {
        assert!(
            printed.replace('"', "'").contains(quoted),
            "{quoted} is not quoted: {printed}"
        );
    }
}

#[tokio::test]
async fn the_sidecar_of_another_release_is_replaced_and_what_the_application_had_is_kept() {
    let manifest = "\
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {annotations: {knack.dev/runtime: team-a/tools}}
    spec:
      initContainers: [{name: first, image: app}]
      containers:
        - name: app
          image: app
          env:
            - {name: OPENAI_BASE_URL, value: 'https://llm.example.org/v1beta/openai'}
            - {name: HTTPS_PROXY, value: 'http://proxy:3128'}
            - {name: NO_PROXY, value: .svc}
        - {name: two, image: app, env: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]}
";
    let parameters = |more: &str| {
        format!(
            "container: {{name: side, image: 'registry.example.org/side:{more}', env: [{{name: KNACK_HUB, value: '{more}'}}], volumeMounts: [{{name: own-{more}, mountPath: /own}}]}}\n\
             resources: {{requests: {{}}, limits: {{memory: 1Gi}}}}\nvolumes: [{{name: own-{more}, emptyDir: {{}}}}]\nports: [1]\n\
             apis: [{{name: openai, url: 'http://127.0.0.1:1/v1', variables: [OPENAI_BASE_URL], upstream: UP}}]\n"
        )
    };
    let (one, two) = (parameters("one"), parameters("two"));
    let folder = folder(&[("web.yaml", manifest), ("one.yaml", &one), ("two.yaml", &two)]);
    let run = async |file: &str, parameters: &str| {
        let done = knack(folder.path(), &["inject", "-f", file, "--parameters", parameters], &[]).await;
        assert!(done.status.success(), "{}", err(&done));
        (out(&done), err(&done))
    };
    let (first, _) = run("web.yaml", "one.yaml").await;
    std::fs::write(folder.path().join("first.yaml"), &first).unwrap();
    let (second, told) = run("first.yaml", "two.yaml").await;
    assert!(told.contains("Deployment web: injected"), "{told}");
    let (fresh, _) = run("web.yaml", "two.yaml").await;
    assert_eq!(second, fresh, "as without the older sidecar");
    assert!(second.contains("side:two") && !second.contains("one"), "{second}");
    assert!(
        second.contains("UP") && second.contains("https://llm.example.org/v1beta/openai"),
        "{second}"
    );
    let (same, told) = run("first.yaml", "one.yaml").await;
    assert_eq!(same, first);
    assert!(
        told.contains("Deployment web: unchanged: it has the sidecar of these parameters"),
        "{told}"
    );
}

/// Every text of an alphabet, up to a length.
fn texts(alphabet: &[&str], longest: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..longest {
        last = last
            .iter()
            .flat_map(|text| alphabet.iter().map(move |more| format!("{text}{more}")))
            .collect();
        all.extend_from_slice(&last);
    }
    all
}

#[test]
fn every_base_url_that_becomes_an_upstream_is_one_that_the_gateway_takes() {
    let names = texts(&["a", "x", "n", "-", ".", "0", "9", "0x"], 5);
    let numbers = texts(&["0", "25", "256", "1", "."], 7);
    let addresses = texts(&["1", "ffff", ":", "::", "."], 7)
        .into_iter()
        .map(|text| format!("[{text}]"));
    let long = ["1:", ":1", "xn--"]
        .into_iter()
        .flat_map(|part| (5..10).map(move |times| part.repeat(times)))
        .flat_map(|text| [format!("[{text}:]"), format!("[:{text}]"), format!("[{text}1]"), text]);
    let (mut taken, mut all) = (0, 0);
    for host in names.into_iter().chain(numbers).chain(addresses).chain(long) {
        for end in ["", ":65535/v1/../a//"] {
            let url = format!("http://{host}{end}");
            all += 1;
            if knack_injection::is_base_url(&url) {
                taken += 1;
                assert!(
                    knack_gateway::providers::base_url::BaseUrl::parse(&url).is_ok(),
                    "{url}"
                );
            }
        }
    }
    assert!(taken > 10_000 && all > 200_000, "{taken} of {all}");
    for host in [
        "llm",
        "10.0.0.1",
        "vllm.team-a.svc.cluster.local.",
        "3scale.x1",
        "[::1]",
        "[1:2:3:4:5:6:7:8]",
    ] {
        assert!(
            knack_injection::is_base_url(&format!("https://{host}:8443/v1")),
            "{host}"
        );
    }
}

/// Streams as programs write them: JSON objects one after the other, and markers of YAML that are not bare.
#[tokio::test]
async fn documents_are_found_in_streams_of_json_and_of_yaml() {
    let pod = |name: &str| {
        format!(r#"{{"kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"a"}}]}}}}"#)
    };
    let folder = folder(&[
        ("lines.json", &format!("{}\n{}\n", pod("a"), pod("b"))),
        (
            "marked.yaml",
            &format!("%YAML 1.1\n---\n{}\n---  # second\n{}\n...\n", pod("a"), pod("b")),
        ),
        ("twice.yaml", "kind: Pod\nkind: Job\n"),
        ("cut.json", &format!("{}\n{{\"kind\"", pod("a"))),
    ]);
    for file in ["lines.json", "marked.yaml"] {
        let done = knack(folder.path(), &["inject", "-f", file], &[]).await;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&out(&done)).unwrap();
        assert!(done.status.success() && documents.len() == 2, "{file}: {}", err(&done));
        assert!(err(&done).contains("Pod b: injected"), "{}", err(&done));
    }
    for file in ["twice.yaml", "cut.json"] {
        let done = knack(folder.path(), &["inject", "-f", file], &[]).await;
        let told = err(&done);
        assert!(
            !done.status.success() && told.contains(&format!("{file}: document 1: not valid YAML")),
            "{told}"
        );
        assert!(!told.contains("Options") && !told.contains("from_"), "{told}");
    }
}
