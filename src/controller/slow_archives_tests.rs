//! Skills whose archives never come, beside one that has its files inline.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::fixture::{lead, settings, start};
use super::settings::{ControllerSettings, SKILL_CONCURRENCY};

/// Many more than there are reconciles at once.
const SLOW: usize = 10 * SKILL_CONCURRENCY as usize;
/// Less than a fetch may take, which is 64 s.
const SOON: Duration = Duration::from_secs(50);
const SKILLS: &str = "/apis/knack.dev/v1alpha1/namespaces/";

fn skill(namespace: &str, name: &str, source: &Value) -> Value {
    json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "10", "generation": 1},
        "spec": {"source": source}})
}

#[tokio::test]
async fn archives_that_never_come_keep_no_other_skill_waiting() {
    // It takes connections, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/skill.tgz", silent.local_addr().unwrap());
    let archive = json!({"archive": {"url": url, "digest": format!("sha256:{}", "0".repeat(64))}});
    let inline = json!({"inline": {"files": {"SKILL.md": "---\nname: quick\ndescription: d\n---\nText.\n"}}});
    let mut skills: Vec<Value> = (0..SLOW)
        .map(|number| skill("greedy", &format!("slow{number}"), &archive))
        .collect();
    skills.push(skill("modest", "quick", &inline));
    // Names of Skills with a status that says that work has begun, or is waited for.
    let reported = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&reported);
    let (delivered, is_delivered) = oneshot::channel();
    let delivered = Mutex::new(Some(delivered));
    let skills = Arc::new(skills);
    let (address, _lease) = start(move |method, path, body| {
        let named = |path: &str| {
            let name = path.strip_prefix(SKILLS)?.split('/').nth(2)?;
            skills.iter().find(|skill| skill["metadata"]["name"] == name).cloned()
        };
        match *method {
            Method::GET if path == "/apis/knack.dev/v1alpha1/skills" => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": *skills}))
            }
            Method::PATCH if path.ends_with("/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                let ready = &sent["status"]["conditions"][0];
                // A merge of conditions alone, which follows where the answer lacks them, has no name.
                if ready["reason"] == "Progressing"
                    && let Some(name) = sent["metadata"]["name"].as_str()
                {
                    let message = ready["message"].as_str().unwrap().to_owned();
                    seen.lock().unwrap().insert(name.to_owned(), message);
                }
                named(path)
            }
            Method::GET | Method::PATCH => named(path),
            Method::POST if path == "/api/v1/namespaces/modest/configmaps" => {
                if let Some(delivered) = delivered.lock().unwrap().take() {
                    delivered.send(()).unwrap();
                }
                serde_json::from_slice(body).ok()
            }
            Method::POST => serde_json::from_slice(body).ok(),
            _ => None,
        }
    });
    let settings = ControllerSettings {
        allow_archive_networks: vec!["127.0.0.0/8".parse().unwrap()],
        ..settings()
    };
    let (leading, shutdown) = lead(address, settings).await;
    tokio::time::timeout(SOON, is_delivered)
        .await
        .expect("the inline skill is delivered soon")
        .unwrap();
    let all_told = async {
        while reported.lock().unwrap().len() < SLOW {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, all_told)
        .await
        .expect("every Skill says what it waits for");
    let waiting = reported
        .lock()
        .unwrap()
        .values()
        .filter(|message| message.contains("waiting for other archives"))
        .count();
    assert!(waiting >= SLOW - SKILL_CONCURRENCY as usize, "{waiting}");
    shutdown.cancel();
    leading.abort();
    drop(silent);
}
