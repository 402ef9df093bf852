//! Skills whose archives never come, beside one of another namespace.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use knack_skill::digest::sha256;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use super::fixture::{lead, settings, start};
use super::settings::{ControllerSettings, SKILL_CONCURRENCY};

/// Many more than there are reconciles at once.
const SLOW: usize = 10 * SKILL_CONCURRENCY as usize;
/// Less than a fetch may take, which is 64 s.
const SOON: Duration = Duration::from_secs(50);
const SKILLS: &str = "/apis/knack.dev/v1alpha1/namespaces/";
const SKILL_MD: &str = "---\nname: quick\ndescription: d\n---\nText.\n";

#[path = "../../tests/support/tar.rs"]
#[expect(clippy::duplicate_mod, reason = "the tests of sources make archives too")]
mod archives;

fn skill(namespace: &str, name: &str, source: &Value) -> Value {
    json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "10", "generation": 1},
        "spec": {"source": source}})
}

fn archive(url: &str, digest: &str) -> Value {
    json!({"archive": {"url": url, "digest": format!("sha256:{digest}")}})
}

/// Messages of Skills whose status says that work has begun, or is waited for, by name.
type Reported = Arc<Mutex<BTreeMap<String, String>>>;

/// An API server with some Skills, and when the one in `modest` is delivered.
#[expect(clippy::type_complexity, reason = "it is taken apart where it is made")]
fn api_server(
    skills: Vec<Value>,
    reported: &Reported,
) -> (
    impl Fn(&Method, &str, &[u8]) -> Option<Value> + use<>,
    oneshot::Receiver<()>,
) {
    let reported = Arc::clone(reported);
    let (delivered, is_delivered) = oneshot::channel();
    let delivered = Mutex::new(Some(delivered));
    let answers = move |method: &Method, path: &str, body: &[u8]| {
        let named = |path: &str| {
            let name = path.strip_prefix(SKILLS)?.split('/').nth(2)?;
            skills.iter().find(|skill| skill["metadata"]["name"] == name).cloned()
        };
        match *method {
            Method::GET if path == "/apis/knack.dev/v1alpha1/skills" => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": skills}))
            }
            Method::PATCH if path.ends_with("/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                let ready = &sent["status"]["conditions"][0];
                // A merge of conditions alone, which follows where the answer lacks them, has no name.
                if ready["reason"] == "Progressing"
                    && let Some(name) = sent["metadata"]["name"].as_str()
                {
                    let message = ready["message"].as_str().unwrap().to_owned();
                    reported.lock().unwrap().insert(name.to_owned(), message);
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
    };
    (answers, is_delivered)
}

fn settings_of_loopback() -> ControllerSettings {
    ControllerSettings {
        allow_archive_networks: vec!["127.0.0.0/8".parse().unwrap()],
        ..settings()
    }
}

#[tokio::test]
async fn archives_that_never_come_keep_no_other_skill_waiting() {
    // It takes connections, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/skill.tgz", silent.local_addr().unwrap());
    let archive = archive(&url, &"0".repeat(64));
    let inline = json!({"inline": {"files": {"SKILL.md": SKILL_MD}}});
    let mut skills: Vec<Value> = (0..SLOW)
        .map(|number| skill("greedy", &format!("slow{number}"), &archive))
        .collect();
    skills.push(skill("modest", "quick", &inline));
    let reported = Reported::default();
    let (answers, is_delivered) = api_server(skills, &reported);
    let (address, _lease) = start(answers);
    let (leading, shutdown) = lead(address, settings_of_loopback()).await;
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

/// Reads the request of a connection, and answers with these bytes.
async fn answer(stream: &mut TcpStream, bytes: &[u8]) {
    let mut request = [0; 2048];
    let _ = stream.read(&mut request).await.unwrap();
    stream.write_all(bytes).await.unwrap();
}

/// Room is taken by the head of an answer, which costs its server nothing.
#[tokio::test]
async fn archives_that_begin_and_never_end_leave_room_for_those_of_another_namespace() {
    let stalled = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let prompt = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = |listener: &TcpListener| format!("http://{}/skill.tar", listener.local_addr().unwrap());
    let content = archives::tar(&[("SKILL.md", tar::EntryType::Regular, 0o644, SKILL_MD.as_bytes())]);
    let mut skills: Vec<Value> = (0..SKILL_CONCURRENCY)
        .map(|number| {
            let source = archive(&url(&stalled), &"0".repeat(64));
            skill("greedy", &format!("slow{number}"), &source)
        })
        .collect();
    skills.push(skill("modest", "quick", &archive(&url(&prompt), &sha256(&content))));
    let (begun, mut has_begun) = watch::channel(0);
    let greedy = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = stalled.accept().await.unwrap();
            answer(
                &mut stream,
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-tar\r\n\r\n",
            )
            .await;
            open.push(stream);
            begun.send_replace(open.len());
        }
    });
    let modest = tokio::spawn(async move {
        let (mut stream, _) = prompt.accept().await.unwrap();
        // As much as there is room for has begun, and its head is read.
        has_begun.wait_for(|count| *count >= 2).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", content.len());
        answer(&mut stream, &[head.as_bytes(), &content].concat()).await;
    });
    let (answers, is_delivered) = api_server(skills, &Reported::default());
    let (address, _lease) = start(answers);
    let (leading, shutdown) = lead(address, settings_of_loopback()).await;
    tokio::time::timeout(SOON, is_delivered)
        .await
        .expect("the other namespace's archive is delivered soon")
        .unwrap();
    modest.await.unwrap();
    shutdown.cancel();
    leading.abort();
    greedy.abort();
}
