//! What is made anew by which change, against an API server that has the ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::ConfigMap;
use knack_skill::model::SkillFile;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::api::SkillOverrides;
use crate::artifact::{build as pack, shard_digest};
use crate::events::Events;
use crate::hub::world::trim;
use crate::memory::MemoryBudget;
use crate::telemetry::Tracer;

type Maps = Arc<Mutex<HashMap<String, ConfigMap>>>;

/// A hub's views, and the cluster around them.
struct Cluster {
    maps: Maps,
    shared: Arc<Shared>,
    artifacts: Artifacts,
    views: Views,
}

async fn config_map(State(maps): State<Maps>, Path((_, name)): Path<(String, String)>) -> Json<ConfigMap> {
    Json(lock(&maps).get(&name).cloned().unwrap_or_default())
}

fn settings() -> HubSettings {
    HubSettings {
        namespace: "system".to_owned(),
        runtime_namespaces: BTreeSet::from(["run".to_owned()]),
        default_runtime: Some(RuntimeName::new("run", "default")),
        watch_namespaces: BTreeSet::new(),
        default_image: Some("i".to_owned()),
        default_languages: Vec::new(),
        runner_image: None,
        allow_image_tags: true,
        priority_class: None,
        replica: "r".to_owned(),
        address: "https://r:1".to_owned(),
        tracer: Tracer::off(),
    }
}

impl Cluster {
    async fn start() -> Self {
        let maps = Maps::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/configmaps/{name}", get(config_map))
            .with_state(Arc::clone(&maps));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let shared = Arc::new(Shared::default());
        let events = Events::new(client.clone(), "test");
        let artifacts = Artifacts::new(client, Arc::clone(&shared), events, &MemoryBudget::new(64 << 20));
        let views = Views::new(
            Arc::clone(&shared),
            artifacts.clone(),
            Arc::new(settings()),
            ViewCounts::default(),
        );
        for name in ["default", "other"] {
            let runtime = json!({"metadata": {"namespace": "run", "name": name}, "spec": {}});
            let runtime = serde_json::from_value(runtime).unwrap();
            shared.write(|world| world.runtimes.take(None, Event::Apply(runtime)));
        }
        Self {
            maps,
            shared,
            artifacts,
            views,
        }
    }

    /// A Skill `s` of a namespace whose content is `text`, delivered and told as the watch does.
    async fn apply(&self, namespace: &str, text: &str, change: serde_json::Value) {
        let id = SkillRef {
            namespace: namespace.to_owned(),
            name: "s".to_owned(),
        };
        let document = format!("---\nname: s\ndescription: {text}\n---\n{text}\n");
        let file = SkillFile {
            bytes: document.into_bytes().into(),
            executable: false,
        };
        let files = BTreeMap::from([("SKILL.md".to_owned(), file)]);
        let owner = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "name": "s", "uid": namespace, "controller": true,
        }));
        let artifact = pack(&id, &files, &SkillOverrides::default()).owned_by(&owner.unwrap());
        let shards: Vec<_> = artifact
            .shards
            .iter()
            .map(|map| json!({"name": map.name_any(), "digest": shard_digest(map)}))
            .collect();
        for map in &artifact.shards {
            lock(&self.maps).insert(map.name_any(), map.clone());
        }
        let mut skill = json!({
            "metadata": {"namespace": namespace, "name": "s", "uid": namespace},
            "spec": {"source": {}},
            "status": {
                "artifact": {"revision": artifact.revision, "digest": artifact.digest, "size": 1, "fileCount": 1},
                "configMaps": shards,
            },
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            skill[pointer.as_str()]
                .as_object_mut()
                .unwrap()
                .extend(value.as_object().unwrap().clone());
        }
        let skill = trim(serde_json::from_value(skill).unwrap());
        self.artifacts.want(&skill);
        self.shared
            .write(|world| world.skills.take(None, Event::Apply(skill.clone())));
        let mut changes = self.shared.changes();
        let known = changes.wait_for(|_| {
            self.artifacts
                .summary(&skill)
                .is_some_and(|summary| summary.in_service.digest == artifact.digest)
        });
        tokio::time::timeout(std::time::Duration::from_mins(1), known)
            .await
            .unwrap()
            .unwrap();
    }

    fn view(&self, sees: Option<&str>) -> Arc<View> {
        let version = *self.shared.changes().borrow();
        self.views
            .get(version, &RuntimeName::new("run", "default"), sees)
            .unwrap()
    }

    /// The three views, and how many were built and patched so far.
    fn look(&self) -> ([Arc<View>; 3], (u64, u64)) {
        let views = [self.view(Some("a")), self.view(Some("b")), self.view(None)];
        (views, (self.views.counts.built.get(), self.views.counts.patched.get()))
    }
}

#[tokio::test]
async fn a_change_costs_what_it_touches() {
    let cluster = Cluster::start().await;
    cluster.apply("a", "one", json!({})).await;
    cluster.apply("b", "two", json!({})).await;
    let (before, counts) = cluster.look();
    assert_eq!(before.each_ref().map(|view| view.skills.len()), [1, 1, 2]);
    assert_eq!(counts, (3, 0));
    let same = |after: &[Arc<View>; 3]| [0, 1, 2].map(|index: usize| Arc::ptr_eq(&before[index], &after[index]));

    // The controller writes conditions and versions, ten times.
    for round in 0..10 {
        let status =
            json!({"status": {"observedGeneration": round}, "metadata": {"resourceVersion": round.to_string()}});
        cluster.apply("a", "one", status).await;
    }
    let (after, counts) = cluster.look();
    assert_eq!(
        (same(&after), counts),
        ([true; 3], (3, 0)),
        "a status is served nowhere"
    );
    assert_eq!(cluster.shared.seen(), "9");

    // A label that no runtime asks for, and settings of another runtime.
    cluster
        .apply("a", "one", json!({"metadata": {"labels": {"l": "x"}}}))
        .await;
    let other = json!({"metadata": {"namespace": "run", "name": "other"}, "spec": {"suspend": true}});
    let other: SkillRuntime = serde_json::from_value(other).unwrap();
    cluster
        .shared
        .write(|world| world.runtimes.take(None, Event::Apply(other)));
    let (after, counts) = cluster.look();
    assert_eq!((same(&after), counts), ([true; 3], (3, 0)));

    // New content: whoever sees the skill gets a new view, from the old one.
    cluster
        .apply("a", "three", json!({"metadata": {"labels": {"l": "x"}}}))
        .await;
    let (after, counts) = cluster.look();
    assert_eq!((same(&after), counts), ([false, true, false], (3, 2)));
    let id = SkillRef {
        namespace: "a".to_owned(),
        name: "s".to_owned(),
    };
    let line = &after[0].skills[&id];
    assert_ne!(line.digest, before[0].skills[&id].digest);
    assert_eq!(after[2].of_digest(&line.digest), Some(&id));
    assert!(after[2].of_digest(&before[0].skills[&id].digest).is_none());

    // The runtime itself.
    let own = json!({"metadata": {"namespace": "run", "name": "default"}, "spec": {"suspend": true}});
    let own: SkillRuntime = serde_json::from_value(own).unwrap();
    cluster
        .shared
        .write(|world| world.runtimes.take(None, Event::Apply(own)));
    let (after, counts) = cluster.look();
    assert!(after.iter().all(|view| view.skills.is_empty()));
    assert_eq!(counts, (6, 2));
}

#[tokio::test]
async fn content_that_was_swapped_is_in_no_view() {
    let cluster = Cluster::start().await;
    cluster.apply("a", "one", json!({})).await;
    cluster.apply("b", "two", json!({})).await;
    let name = cluster.view(Some("a")).skills.values().next().unwrap().digest.clone();
    // A hub that starts now reads what is there: in the place of a's ConfigMap is b's text, made to fit a's name.
    let fresh = Cluster::start().await;
    {
        let maps = lock(&cluster.maps);
        let (evil, honest) = {
            let mut all = maps.values();
            let (one, two) = (all.next().unwrap(), all.next().unwrap());
            if one.namespace().as_deref() == Some("a") {
                (two, one)
            } else {
                (one, two)
            }
        };
        let mut swapped = honest.clone();
        swapped.data.clone_from(&evil.data);
        lock(&fresh.maps).insert(honest.name_any(), swapped);
    }
    let skill = cluster
        .shared
        .read(|world| world.skills.get("a", "s").cloned())
        .unwrap();
    fresh.artifacts.want(&skill);
    fresh
        .shared
        .write(|world| world.skills.take(None, Event::Apply((*skill).clone())));
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(fresh.view(None).skills.is_empty());
    assert!(fresh.artifacts.content(&reference(&skill), &name).await.is_err());
}
