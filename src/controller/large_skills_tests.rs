//! Many large Skills at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use knack_vocabulary::{ANNOTATION_SHARD, LABEL_SKILL};
use serde_json::{Value, json};

use super::fixture::{lead, settings, start};
use super::settings::{JUDGED_COPIES, JUDGED_MAX_BYTES, SKILL_CONCURRENCY};
use crate::sources::UPLOAD_MAX_BYTES;

/// Files of each of them, which take one key of its ConfigMap.
const FILES: usize = 7;
const FILE_BYTES: usize = 1 << 20;
/// How many there is memory for at once.
const AT_ONCE: usize = JUDGED_MAX_BYTES / (JUDGED_COPIES * FILES * FILE_BYTES);
const SKILLS: usize = SKILL_CONCURRENCY as usize - 4;
const _: () = assert!(
    AT_ONCE < SKILLS,
    "without a bound more of them are judged at once than there is memory for"
);
const _: () = assert!(
    JUDGED_COPIES * UPLOAD_MAX_BYTES <= JUDGED_MAX_BYTES,
    "the largest upload is judged at all"
);

fn skill(name: &str) -> Value {
    let mut items: Vec<Value> = (0..FILES)
        .map(|number| json!({"key": "large", "path": format!("f{number}.txt")}))
        .collect();
    items.push(json!({"key": "SKILL.md", "path": "SKILL.md"}));
    json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
        "metadata": {"namespace": "team", "name": name, "uid": name, "resourceVersion": "10", "generation": 1},
        "spec": {"source": {"configMap": {"name": name, "items": items}}}})
}

/// Skills of which some ConfigMaps were made and not yet all, with the number of those; and what is known of the rest.
#[derive(Debug, Default)]
struct Seen {
    begun: BTreeMap<String, usize>,
    most: usize,
    delivered: usize,
}

impl Seen {
    fn made(&mut self, config_map: &Value) {
        let meta = &config_map["metadata"];
        let name = meta["labels"][LABEL_SKILL].as_str().unwrap().to_owned();
        let shard = meta["annotations"][ANNOTATION_SHARD].as_str().unwrap();
        let count: usize = shard.split_once('/').unwrap().1.parse().unwrap();
        let made = self.begun.entry(name.clone()).or_default();
        *made += 1;
        let is_whole = *made == count;
        self.most = self.most.max(self.begun.len());
        if is_whole {
            self.begun.remove(&name);
            self.delivered += 1;
        }
    }
}

#[tokio::test]
async fn large_skills_are_judged_one_after_the_other_within_memory() {
    let skills: Vec<Value> = (0..SKILLS).map(|number| skill(&format!("s{number}"))).collect();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noted = Arc::clone(&seen);
    let (address, _lease) = start(move |method, path, body| {
        let name = path.rsplit('/').find(|part| *part != "status").unwrap_or_default();
        match *method {
            Method::GET if path == "/apis/knack.dev/v1alpha1/skills" => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": skills}))
            }
            Method::GET if path.starts_with("/api/v1/namespaces/team/configmaps/s") => Some(json!({
                "metadata": {"namespace": "team", "name": name},
                "data": {"SKILL.md": format!("---\nname: {name}\ndescription: d\n---\nText.\n"), "large": "x".repeat(FILE_BYTES)},
            })),
            Method::POST if path == "/api/v1/namespaces/team/configmaps" => {
                let made: Value = serde_json::from_slice(body).unwrap();
                noted.lock().unwrap().made(&made);
                Some(json!({"metadata": {"namespace": "team", "name": made["metadata"]["name"], "uid": "made"}}))
            }
            Method::GET | Method::PATCH => {
                let mut skills = skills.iter();
                skills.find(|skill| skill["metadata"]["name"] == name).cloned()
            }
            _ => None,
        }
    });
    let (leading, shutdown) = lead(address, settings()).await;
    let all = async {
        while seen.lock().unwrap().delivered < SKILLS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_mins(3), all).await;
    ended.unwrap_or_else(|_| panic!("all are delivered: {:?}", seen.lock().unwrap()));
    let most = seen.lock().unwrap().most;
    assert!((1..=AT_ONCE).contains(&most), "{most} at once");
    shutdown.cancel();
    leading.abort();
}
