//! How often an uploaded Skill is read: once, and again when its ConfigMaps change; and so is each version of it that a pin chooses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use knack_api::SkillOverrides;
use knack_skill::digest::sha256;
use knack_skill::model::{SkillFile, SkillRef};
use knack_vocabulary::{ANNOTATION_UPLOAD, CONDITION_ACCEPTED, LABEL_UPLOAD};
use serde_json::{Value, json};

use super::fixture::{lead, settings, start};
use crate::artifact;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// Events of the Skill after it was delivered, each of which is a reconcile.
const TOUCHES: usize = 5;

/// The objects, and what was asked of them.
struct FakeCluster {
    skill: Value,
    runtimes: Vec<Value>,
    /// The ConfigMaps of the upload.
    upload: BTreeMap<String, Value>,
    /// The ConfigMaps of the revisions in service.
    delivered: Vec<Value>,
    /// Events of ConfigMaps that are still to be sent.
    gone: Option<Value>,
    reads: usize,
    touches: usize,
    wanted: usize,
    /// A status was written, and the watch has not delivered it.
    is_written: bool,
}

impl FakeCluster {
    /// A Skill of one ConfigMap.
    fn new() -> Self {
        let mut upload = BTreeMap::new();
        let digest = add_upload(&mut upload, "draw-upload-0", "Text.");
        let names: Vec<&String> = upload.keys().collect();
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "team", "name": "draw", "uid": "s", "resourceVersion": "10", "generation": 1},
            "spec": {"source": {"upload": {"digest": digest, "configMaps": names}}}});
        Self {
            skill,
            runtimes: Vec::new(),
            upload,
            delivered: Vec::new(),
            gone: None,
            reads: 0,
            touches: 0,
            wanted: 0,
            is_written: false,
        }
    }

    fn reason(&self) -> &str {
        let conditions = self.skill["status"]["conditions"].as_array();
        let ready = conditions.and_then(|all| all.iter().find(|one| one["type"] == "Ready"));
        ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default()
    }

    fn has_accepted(&self) -> bool {
        let conditions = self.skill["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == CONDITION_ACCEPTED))
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Option<Value> {
        let list = |items: Vec<Value>| Some(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
        match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skills") => list(vec![self.skill.clone()]),
            (&Method::GET, "/apis/knack.dev/v1alpha1/skillruntimes") => list(self.runtimes.clone()),
            (&Method::GET, "/api/v1/configmaps") => list(self.upload.values().map(meta).collect()),
            (&Method::POST, "/api/v1/namespaces/team/configmaps") => {
                let mut made: Value = serde_json::from_slice(body).unwrap();
                // A ConfigMap that exists stays what it is, also where the watch has not shown it yet.
                let there = |map: &&Value| map["metadata"]["name"] == made["metadata"]["name"];
                if let Some(found) = self.delivered.iter().find(there) {
                    return Some(found.clone());
                }
                made["metadata"]["uid"] = json!(format!("made-{}", self.delivered.len()));
                made["metadata"]["resourceVersion"] = json!("8");
                self.delivered.push(made.clone());
                Some(made)
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                self.skill["status"] = sent["status"].clone();
                self.is_written = true;
                self.skill["metadata"]["resourceVersion"] = json!(format!("status-{}", self.touches));
                Some(self.skill.clone())
            }
            (&Method::POST, path) if path.starts_with("/apis/events.k8s.io/") => serde_json::from_slice(body).ok(),
            (_, path) if path.contains("?watch=") => Some(self.event(path)),
            (&Method::GET, path) => {
                let name = path.strip_prefix("/api/v1/namespaces/team/configmaps/")?;
                let found = self.upload.get(name).or_else(|| {
                    let delivered = self.delivered.iter();
                    delivered.into_iter().find(|map| map["metadata"]["name"] == name)
                });
                self.reads += usize::from(self.upload.contains_key(name));
                found.cloned()
            }
            _ => None,
        }
    }

    /// The next event of a watch, by its path and number.
    fn event(&mut self, path: &str) -> Value {
        let (path, number) = path.split_once("?watch=").unwrap();
        match path {
            "/apis/knack.dev/v1alpha1/skills" if self.touches < self.wanted => {
                self.touches += 1;
                // The last of them lacks a condition, which no reading of the content needs: the status that is written
                // then shows that its reconcile is over.
                if self.touches == self.wanted
                    && let Some(conditions) = self.skill["status"]["conditions"].as_array_mut()
                {
                    conditions.retain(|one| one["type"] != CONDITION_ACCEPTED);
                }
                self.skill["metadata"]["resourceVersion"] = json!(format!("touch-{}", self.touches));
                json!({"type": "MODIFIED", "object": self.skill})
            }
            "/apis/knack.dev/v1alpha1/skills" if self.is_written => {
                self.is_written = false;
                json!({"type": "MODIFIED", "object": self.skill})
            }
            // Each of the three watches has both; the stores are by name.
            "/api/v1/configmaps" => {
                let number = number.parse::<usize>().unwrap();
                match (self.delivered.get(number), &self.gone) {
                    (Some(made), _) => json!({"type": "ADDED", "object": meta(made)}),
                    (None, Some(gone)) if number == self.delivered.len() => {
                        json!({"type": "DELETED", "object": meta(gone)})
                    }
                    _ => Value::Null,
                }
            }
            _ => Value::Null,
        }
    }
}

/// A ConfigMap of an upload, and the digest of its files.
fn add_upload(upload: &mut BTreeMap<String, Value>, name: &str, text: &str) -> String {
    let id = SkillRef {
        namespace: "team".to_owned(),
        name: "draw".to_owned(),
    };
    let file = SkillFile {
        bytes: format!("---\nname: draw\ndescription: d\n---\n{text}\n")
            .as_bytes()
            .into(),
        executable: false,
    };
    let files = BTreeMap::from([("SKILL.md".to_owned(), file)]);
    let made = artifact::build(&id, &files, &SkillOverrides::default());
    assert_eq!(made.shards.len(), 1);
    let mut map = serde_json::to_value(&made.shards[0]).unwrap();
    map["metadata"] = json!({"namespace": "team", "name": name, "uid": name, "resourceVersion": "7",
        "labels": {LABEL_UPLOAD: "draw"}, "annotations": map["metadata"]["annotations"]});
    upload.insert(name.to_owned(), map);
    made.digest
}

/// As watches of metadata have it.
fn meta(map: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map["metadata"]})
}

async fn until(fake_cluster: &Mutex<FakeCluster>, what: &str, is_so: impl Fn(&FakeCluster) -> bool) {
    let begun = Instant::now();
    loop {
        let (is_so, reason) = {
            let fake_cluster = fake_cluster.lock().unwrap();
            (is_so(&fake_cluster), fake_cluster.reason().to_owned())
        };
        if is_so {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {reason}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Has the Skill reconciled so many times more. Returns the reads of the upload and the ConfigMaps delivered until then.
async fn touch(fake_cluster: &Mutex<FakeCluster>, count: usize) -> (usize, usize) {
    fake_cluster.lock().unwrap().wanted += count;
    until(fake_cluster, "the last event is answered", |fake_cluster| {
        fake_cluster.touches == fake_cluster.wanted && fake_cluster.has_accepted() && !fake_cluster.is_written
    })
    .await;
    let fake_cluster = fake_cluster.lock().unwrap();
    (fake_cluster.reads, fake_cluster.delivered.len())
}

#[tokio::test]
async fn an_uploaded_skill_is_read_once_and_again_when_its_config_maps_change() {
    let fake_cluster = Arc::new(Mutex::new(FakeCluster::new()));
    let asked = Arc::clone(&fake_cluster);
    let (address, _lease) = start(move |method, path, body| asked.lock().unwrap().answer(method, path, body));
    let (leading, shutdown) = lead(address, settings()).await;

    until(&fake_cluster, "it is delivered", |fake_cluster| {
        fake_cluster.reason() == "Delivered"
    })
    .await;
    // A reconcile that sees the revision in service, and then as many that have nothing to do.
    let (before, _) = touch(&fake_cluster, 2).await;
    let (after, _) = touch(&fake_cluster, TOUCHES).await;
    assert_eq!(
        after - before,
        0,
        "reads of ConfigMaps by {TOUCHES} reconciles, after {before}"
    );

    // What is gone is noticed without an event of the Skill.
    {
        let mut fake_cluster = fake_cluster.lock().unwrap();
        let first = fake_cluster.upload.keys().next().unwrap().clone();
        fake_cluster.gone = fake_cluster.upload.remove(&first);
    }
    until(&fake_cluster, "its loss is reported", |fake_cluster| {
        fake_cluster.reason() == "SourceNotFound"
    })
    .await;
    shutdown.cancel();
    leading.await.unwrap().unwrap();
}

/// A user may write a Skill that names an upload, and its ConfigMaps. If the index decided how much is read, one such Skill would end the
/// controller of the whole cluster, again after each start.
#[tokio::test]
async fn an_index_that_names_a_value_many_times_costs_no_memory_and_its_skill_says_so() {
    let mut hostile = FakeCluster::new();
    let map = hostile.upload.get_mut("draw-upload-0").unwrap();
    map["data"]["a"] = json!("a".repeat(100 << 10));
    let mut index: Value = serde_json::from_str(map["data"]["index.json"].as_str().unwrap()).unwrap();
    index["files"][0]["pieces"] = vec![json!({"shard": 0, "key": "a"}); 10_000].into();
    map["data"]["index.json"] = json!(index.to_string());
    let fake_cluster = Arc::new(Mutex::new(hostile));
    let asked = Arc::clone(&fake_cluster);
    let (address, _lease) = start(move |method, path, body| asked.lock().unwrap().answer(method, path, body));
    let (leading, shutdown) = lead(address, settings()).await;

    until(&fake_cluster, "it is refused", |fake_cluster| {
        fake_cluster.reason() == "DigestMismatch"
    })
    .await;
    let status = fake_cluster.lock().unwrap().skill["status"].clone();
    let text = "index.json uses key a of shard 0 twice, the second time for SKILL.md";
    assert!(status.to_string().contains(text), "{status}");
    shutdown.cancel();
    leading.await.unwrap().unwrap();
}

/// A Skill whose default version is 2.0.0, and which has the version 1.0.0, too.
fn two_versions() -> FakeCluster {
    let mut fake_cluster = FakeCluster::new();
    fake_cluster.upload.clear();
    let version = |number: u32, text: &str, digest: &str| {
        json!({"number": number, "id": format!("skver_knack_{number}"), "created": number, "description": "d", "version": text,
            "digest": digest, "bytes": 3})
    };
    let name = |number: u32| {
        let hash = sha256(format!("skver_knack_{number}").as_bytes());
        format!("draw-upload-{number}-{}", &hash[..10])
    };
    let digests = [1, 2].map(|number| add_upload(&mut fake_cluster.upload, &name(number), &format!("Text {number}.")));
    let record = json!({"id": "skill_knack_1", "owner": "team", "name": "draw", "title": null, "mode": null, "created": 1, "updated": 2,
        "default": 2, "next": 3, "versions": [version(1, "1.0.0", &digests[0]), version(2, "2.0.0", &digests[1])]});
    let record = json!({"record": record, "shards": {"1": 1, "2": 1}}).to_string();
    fake_cluster.skill["metadata"]["annotations"] = json!({ANNOTATION_UPLOAD: record});
    fake_cluster.skill["spec"] = json!({"source": {"upload": {"digest": digests[1], "configMaps": [name(2)]}}, "version": "2.0.0",
        "ids": ["skill_knack_1", "skill_knack_1:2"]});
    fake_cluster.runtimes = vec![json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
        "metadata": {"namespace": "team", "name": "pins", "uid": "r", "resourceVersion": "3", "generation": 1},
        "spec": {"skillSelector": {"skills": [{"name": "draw", "version": "^1"}]}}})];
    fake_cluster
}

#[tokio::test]
async fn a_version_that_a_pin_chooses_is_delivered_once_as_a_revision_of_the_skill() {
    let fake_cluster = Arc::new(Mutex::new(two_versions()));
    let asked = Arc::clone(&fake_cluster);
    let (address, _lease) = start(move |method, path, body| asked.lock().unwrap().answer(method, path, body));
    let (leading, shutdown) = lead(address, settings()).await;

    until(&fake_cluster, "it is delivered", |fake_cluster| {
        fake_cluster.reason() == "Delivered"
    })
    .await;
    // The watch delivers the two ConfigMaps one after the other.
    let before = touch(&fake_cluster, 2 * TOUCHES).await;
    assert_eq!(
        touch(&fake_cluster, TOUCHES).await,
        before,
        "reads and deliveries of {TOUCHES} reconciles"
    );
    {
        let fake_cluster = fake_cluster.lock().unwrap();
        assert_eq!(fake_cluster.delivered.len(), 2, "of both versions");
        let status = &fake_cluster.skill["status"];
        let chosen = &status["earlier"][0];
        assert_eq!(
            (&status["version"], &chosen["version"], &chosen["uploadVersion"]),
            (&json!("2.0.0"), &json!("1.0.0"), &json!(1)),
            "{status}"
        );
        let served = json!([{"namespace": "team", "name": "pins", "accepted": true, "reason": "KeptVersion",
            "serves": chosen["revision"]}]);
        assert_eq!(status["runtimes"], served);
        let text = fake_cluster
            .delivered
            .iter()
            .find(|map| map["metadata"]["name"] == chosen["configMaps"][0]["name"]);
        assert!(
            text.unwrap()["data"]["f0-SKILL.md"]
                .as_str()
                .unwrap()
                .contains("Text 1.")
        );
    }
    shutdown.cancel();
    leading.await.unwrap().unwrap();
}
