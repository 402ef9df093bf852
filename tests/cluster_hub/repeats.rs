//! One `idempotency-key` at two gateways of one account: processes, with a real registry, hub and cluster. What is counted are Jobs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster_support::{progress, run};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use knack_api::Skill;
use knack_mock_provider::{Script, spawn};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::gateway_replicas::{Replica, owned};
use super::support::{Installation, Process, SOON, free_port};

/// On Jobs that probe the network of a node.
const LABEL_PROBE: &str = "knack.dev/probe";
/// How often a condition without a signal is asked for.
const POLL: Duration = Duration::from_millis(50);

/// Every Job of a sandbox that was ever there, but for probes, by uid and name, in the order in which they came.
struct Jobs {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    pods: Api<Pod>,
    _watch: AbortOnDropHandle<()>,
}

impl Jobs {
    fn watch(installation: &Installation) -> Self {
        let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let (api, kept): (Api<Job>, _) = (
            Api::namespaced(installation.client.clone(), installation.run.name()),
            Arc::clone(&seen),
        );
        let watch = async move {
            let events = watcher::watcher(api, watcher::Config::default());
            pin_mut!(events);
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(job) | Event::InitApply(job) | Event::Delete(job)) = event
                    && !job.labels().contains_key(LABEL_PROBE)
                {
                    let (job, mut kept) = ((job.uid().unwrap(), job.name_any()), kept.lock().unwrap());
                    if !kept.contains(&job) {
                        kept.push(job);
                    }
                }
            }
        };
        Self {
            seen,
            pods: Api::namespaced(installation.client.clone(), installation.run.name()),
            _watch: AbortOnDropHandle::new(tokio::spawn(watch)),
        }
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Waits until there were so many; the name of the last one.
    async fn until(&self, count: usize) -> String {
        let there = async {
            loop {
                let last = self.seen.lock().unwrap().get(count - 1).cloned();
                if let Some((_, name)) = last {
                    return name;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, there)
            .await
            .expect("the Job of the run is there")
    }

    /// Waits until the container of a Job runs.
    async fn until_running(&self, job: &str) {
        let params = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let running = async {
            loop {
                let pods = self.pods.list(&params).await.unwrap();
                let mut states = pods
                    .iter()
                    .filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
                if states.any(|states| states.iter().all(|state| state.ready)) {
                    return;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, running).await.expect("the pod runs");
    }
}

/// A skill whose tools say which process they are, once after a while, in which every other request is answered, and once after a long one.
async fn apply(installation: &Installation) {
    let tool = |name: &str, seconds: u32| {
        format!("  - name: {name}\n    description: Tells.\n    command: [python3, tell.py, '{seconds}']\n")
    };
    let document = format!(
        "---\nname: teller\ndescription: Tells.\ntimeout_ms: 60000\ntools:\n{}{}---\nText.\n",
        tool("soon", 15),
        tool("late", 50)
    );
    let script = "import sys, time, uuid\nname = uuid.uuid4().hex\ntime.sleep(float(sys.argv[1]))\nprint(name)\n";
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "teller"},
        "spec": {"source": {"inline": {"files": {"SKILL.md": document, "tell.py": script}}}},
    });
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    api.patch("teller", &params, &Patch::Apply(&body)).await.unwrap();
}

/// A registry that keeps a history, with the hub's certificate: both are 127.0.0.1 here. Returns its address.
pub(crate) async fn start_registry(installation: &Installation) -> (Process, String) {
    let (folder, port, metrics) = (installation.folder.path(), free_port(), free_port());
    let words = [
        "registry".to_owned(),
        format!("--watch-namespace={}", installation.tenants[0].name()),
        format!("--listen=127.0.0.1:{port}"),
        format!("--metrics-listen=127.0.0.1:{metrics}"),
        format!("--tls-dir={}", folder.display()),
        format!("--history-dir={}", folder.join("history").display()),
    ];
    let process = Process::start(installation.cluster, folder, "registry", &words);
    let ready = async {
        let url = format!("http://127.0.0.1:{metrics}/readyz");
        while !reqwest::get(&url)
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(SOON, ready).await.expect("the registry is ready");
    (process, format!("https://127.0.0.1:{port}"))
}

/// Asks a gateway to run a tool under a key; `None`: it gave no answer.
async fn ask(port: u16, key: &str, tool: &str) -> Option<(u16, Value)> {
    let body = json!({"skillName": "teller", "tool": tool, "input": {}});
    let request = reqwest::Client::new()
        .post(format!("http://127.0.0.1:{port}/api/skills/executions"))
        .bearer_auth("sk-of-the-client")
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .timeout(SOON)
        .body(body.to_string());
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// Asks until the answer is another one than "in progress", which is that it is not known how it ended.
async fn ask_until_lost(port: u16, key: &str, tool: &str) -> Value {
    let known = async {
        loop {
            let (status, answer) = ask(port, key, tool).await.expect("the gateway answers");
            if status == 500 {
                assert_eq!(answer["code"], "TOOL_STATE_UNKNOWN", "{answer}");
                return answer;
            }
            assert_eq!((status, &answer["code"]), (409, &json!("TOOL_IN_PROGRESS")), "{answer}");
            // Claims of a namespace are paced: two a second.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let known = tokio::time::timeout(SOON, known).await;
    known.expect("what became of it is known")
}

#[test]
fn one_key_at_two_gateways_is_one_job_also_when_the_gateway_that_runs_it_is_killed() {
    let test = "one_key_at_two_gateways_is_one_job_also_when_the_gateway_that_runs_it_is_killed";
    run(test, async |cluster| {
        let installation = Installation::start(cluster, 1, json!({"sandbox": {"timeoutSeconds": 60}})).await;
        let hub = installation.tenant(0).await;
        apply(&installation).await;
        installation.served(&hub, "teller").await;
        owned(&installation, &hub).await;
        let (_registry, address) = start_registry(&installation).await;
        let mock = spawn(Script::parse("turns:\n  - rounds:\n      - reply: {text: hello}\n").unwrap())
            .await
            .unwrap();
        let more = [format!("--registry={address}"), format!("--history={address}")];
        let gateway = async |name| Replica::start_at(&installation, &installation.url(), &mock, (name, 0), &more).await;
        let (mut one, two) = (gateway("one").await, gateway("two").await);
        let jobs = Jobs::watch(&installation);

        // At both at once: one runs it, the other one says that it is being run.
        let (first, second) = tokio::join!(ask(one.port, "at-once", "soon"), ask(two.port, "at-once", "soon"));
        let mut answers = [first.unwrap(), second.unwrap()];
        answers.sort_by_key(|(status, _)| *status);
        let [(status, ran), (refused, in_progress)] = answers;
        assert_eq!((status, &ran["replayed"]), (200, &json!(false)), "{ran}");
        assert_eq!(ran["execution"]["status"], "success", "{ran}");
        assert_eq!(
            (refused, &in_progress["code"]),
            (409, &json!("TOOL_IN_PROGRESS")),
            "{in_progress}"
        );
        // And again after it has ended: the same answer, of the same run.
        for port in [one.port, two.port] {
            let (status, again) = ask(port, "at-once", "soon").await.unwrap();
            assert_eq!((status, &again["replayed"]), (200, &json!(true)), "{again}");
            assert_eq!(again["execution"], ran["execution"]);
        }
        jobs.until(1).await;
        assert_eq!(jobs.count(), 1, "Jobs of one request that was sent four times");
        progress("one Job");

        // The gateway that runs it ends in the middle of it.
        let running = tokio::spawn(ask(one.port, "killed", "late"));
        jobs.until_running(&jobs.until(2).await).await;
        one.process.kill();
        assert!(running.await.unwrap().is_none(), "its client has no answer");
        let (status, answer) = ask(two.port, "killed", "late").await.unwrap();
        assert_eq!((status, &answer["code"]), (409, &json!("TOOL_IN_PROGRESS")), "{answer}");
        progress("the gateway is killed");
        let lost = ask_until_lost(two.port, "killed", "late").await;
        let text = lost["error"].as_str().unwrap_or_default();
        assert!(text.contains("whether the program did its work is not known"), "{lost}");
        // Also at the replica that takes its place.
        let next = gateway("next").await;
        for port in [two.port, next.port] {
            assert_eq!(ask_until_lost(port, "killed", "late").await, lost);
        }
        assert_eq!(jobs.count(), 2, "never a second Job under the key");

        // Another key is another Job, and what came before it has been seen by then.
        let (status, other) = ask(next.port, "another", "soon").await.unwrap();
        assert_eq!(
            (status, &other["execution"]["status"]),
            (200, &json!("success")),
            "{other}"
        );
        assert_ne!(other["execution"]["output"], ran["execution"]["output"]);
        let last = jobs.until(3).await;
        assert_eq!(jobs.count(), 3);

        // A record outlives the Job of its run.
        let api: Api<Job> = Api::namespaced(installation.client.clone(), installation.run.name());
        api.delete(&last, &DeleteParams::background()).await.unwrap();
        let gone = async {
            while api.get_opt(&last).await.unwrap().is_some() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(SOON, gone).await.expect("the Job is gone");
        let path = format!("/api/skills/executions/{}", other["execution"]["id"].as_str().unwrap());
        let (status, kept) = two.get(&path, "sk-of-the-client").await;
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!((status, &kept), (200, &other["execution"]));
    });
}
