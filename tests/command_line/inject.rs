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
                assert!(knack_gateway::upstream::BaseUrl::parse(&url).is_ok(), "{url}");
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
