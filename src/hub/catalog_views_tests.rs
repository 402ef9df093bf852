//! Which change rebuilds what, against an API server that has the ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::SkillOverrides;
use knack_memory::MemoryBudget;
use knack_skill::model::SkillFile;
use knack_telemetry::Tracer;
use knack_vocabulary::{LABEL_UPLOAD_OF, LABEL_UPLOAD_VERSION};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::artifact::{build as pack, shard_digest};
use crate::cluster_reader::cluster_state::trim;
use crate::cluster_reader::watch::take_skill;
use crate::events::Events;
use crate::hub::served_revision::ServedRevision;

#[path = "catalog_views_first_reading_tests.rs"]
mod first_reading;
#[path = "catalog_views_unserved_tests.rs"]
mod unserved;

#[path = "catalog_views_memory_tests.rs"]
mod memory;

/// How long what is asked for may take until it is read: only a busy machine needs more than a moment.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_mins(1);

type Maps = Arc<Mutex<HashMap<String, ConfigMap>>>;

/// What the API server has, and whether it answers.
#[derive(Clone, Default)]
struct Server {
    maps: Maps,
    silent: watch::Sender<bool>,
}

/// A hub's views, and the cluster around them.
struct Cluster {
    maps: Maps,
    silent: watch::Sender<bool>,
    shared: Arc<Shared>,
    artifacts: Artifacts,
    views: CatalogViews,
}

async fn config_map(State(server): State<Server>, Path((_, name)): Path<(String, String)>) -> Json<ConfigMap> {
    let mut silent = server.silent.subscribe();
    silent.wait_for(|silent| !silent).await.unwrap();
    Json(lock(&server.maps).get(&name).cloned().unwrap_or_default())
}

pub(in crate::hub) fn settings() -> HubSettings {
    HubSettings {
        namespace: "system".to_owned(),
        runtime_namespaces: BTreeSet::from(["run".to_owned()]),
        default_runtime: Some(RuntimeName::new("run", "default")),
        watch_namespaces: BTreeSet::new(),
        default_image: Some("i".to_owned()),
        default_languages: Vec::new(),
        runner_image: None,
        allow_image_tags: true,
        packages: false,
        priority_class: None,
        replica: "r".to_owned(),
        address: "https://r:1".to_owned(),
        tracer: Tracer::off(),
    }
}

impl Cluster {
    async fn start() -> Self {
        Self::within(&MemoryBudget::new(64 << 20)).await
    }

    /// A hub whose process has this memory.
    async fn within(memory: &MemoryBudget) -> Self {
        let server = Server::default();
        let Server { maps, silent } = server.clone();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/configmaps/{name}", get(config_map))
            .with_state(server);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let shared = Arc::new(Shared::default());
        let events = Events::new(client.clone(), "test");
        let artifacts = Artifacts::new(client, Arc::clone(&shared), events, memory);
        let views = CatalogViews::new(
            Arc::clone(&shared),
            artifacts.clone(),
            Arc::new(settings()),
            CatalogViewCounts::default(),
        );
        for name in ["default", "other"] {
            let runtime = json!({"metadata": {"namespace": "run", "name": name}, "spec": {}});
            let runtime = serde_json::from_value(runtime).unwrap();
            shared.write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(runtime)));
        }
        Self {
            maps,
            silent,
            shared,
            artifacts,
            views,
        }
    }

    /// A Skill `s` of a namespace whose content is `text`, delivered and reported by the watch.
    async fn apply(&self, namespace: &str, text: &str, change: serde_json::Value) {
        let skill = self.deliver(namespace, text, &change);
        self.take(Event::Apply(skill.clone()));
        self.is_read(&skill).await;
    }

    /// An event of the watch over all Skills.
    fn take(&self, event: Event<Skill>) {
        take_skill(&self.shared, None, Ok(event), |skill| {
            self.artifacts.request_read(skill);
        });
    }

    /// Waits until the content in service is known.
    async fn is_read(&self, skill: &Skill) {
        let wanted = ServedRevision::of(skill);
        let mut changes = self.shared.changes();
        let known = changes.wait_for(|_| {
            self.artifacts
                .summary(skill, None)
                .map(|summary| summary.in_service.clone())
                == wanted
        });
        let known = tokio::time::timeout(READ_WITHIN, known).await;
        assert!(known.is_ok(), "the content of {wanted:?} is not read");
    }

    /// Waits until it is decided whether the content in service can be had.
    async fn is_settled(&self, skill: &Skill) {
        let wanted = ServedRevision::of(skill).unwrap();
        let begun = std::time::Instant::now();
        while !self.artifacts.is_settled(&wanted) {
            assert!(begun.elapsed() < READ_WITHIN, "nothing is decided about {wanted:?}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// A Skill `s` of a namespace whose content is `text`, with its ConfigMaps delivered, as the watch would report it.
    fn deliver(&self, namespace: &str, text: &str, change: &serde_json::Value) -> Skill {
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
        trim(serde_json::from_value(skill).unwrap())
    }

    fn view(&self, sees: Option<&str>) -> Arc<CatalogView> {
        let version = *self.shared.changes().borrow();
        self.views
            .get(version, &RuntimeName::new("run", "default"), sees)
            .unwrap()
    }

    /// The three views, and how many were built and patched so far.
    fn look(&self) -> ([Arc<CatalogView>; 3], (u64, u64)) {
        let views = [self.view(Some("a")), self.view(Some("b")), self.view(None)];
        (views, (self.views.counts.built.get(), self.views.counts.patched.get()))
    }
}

/// A request that meets a replica between the watch's event and the start of the reading is told to try again, not that the
/// skill is gone.
#[tokio::test]
async fn a_skill_is_being_read_from_the_moment_that_the_watch_reports_it() {
    let cluster = Cluster::start().await;
    let id = SkillRef {
        namespace: "a".to_owned(),
        name: "s".to_owned(),
    };
    assert!(!cluster.artifacts.is_being_read(&id), "nobody has heard of it");
    let skill = cluster.deliver("a", "one", &json!({}));
    take_skill(&cluster.shared, None, Ok(Event::Apply(skill.clone())), |_| ());
    assert!(
        cluster.artifacts.is_being_read(&id),
        "reported, and nothing has begun to read it"
    );
    cluster.artifacts.request_read(&skill);
    cluster.is_read(&skill).await;
    assert!(!cluster.artifacts.is_being_read(&id), "known");
    let broken = cluster.deliver("b", "two", &json!({"status": {"artifact": null}}));
    cluster.take(Event::Apply(broken.clone()));
    assert!(
        !cluster.artifacts.is_being_read(&reference(&broken)),
        "it has no content"
    );
}

#[tokio::test]
async fn a_change_costs_what_it_touches() {
    let cluster = Cluster::start().await;
    cluster.apply("a", "one", json!({})).await;
    cluster.apply("b", "two", json!({})).await;
    let (before, counts) = cluster.look();
    assert_eq!(before.each_ref().map(|view| view.skills.len()), [1, 1, 2]);
    assert_eq!(counts, (3, 0));
    let same = |after: &[Arc<CatalogView>; 3]| [0, 1, 2].map(|index: usize| Arc::ptr_eq(&before[index], &after[index]));

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
    assert_eq!(cluster.shared.newest_version(), "9");

    // A label that no runtime selects, and settings of another runtime.
    cluster
        .apply("a", "one", json!({"metadata": {"labels": {"l": "x"}}}))
        .await;
    let other = json!({"metadata": {"namespace": "run", "name": "other"}, "spec": {"suspend": true}});
    let other: SkillRuntime = serde_json::from_value(other).unwrap();
    cluster
        .shared
        .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(other)));
    let (after, counts) = cluster.look();
    assert_eq!((same(&after), counts), ([true; 3], (3, 0)));

    // New content: callers that see the skill get a new view, made from the old one.
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
        .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(own)));
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
    // A hub that starts now reads the current objects: a's ConfigMap was replaced by b's text under a's name.
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
        .read(|cluster_state| cluster_state.skills.get("a", "s").cloned())
        .unwrap();
    fresh.take(Event::Apply((*skill).clone()));
    fresh.is_settled(&skill).await;
    assert!(fresh.view(None).skills.is_empty());
    assert!(fresh.artifacts.content(&reference(&skill), &name).await.is_err());
}

#[tokio::test]
async fn an_edit_that_a_new_list_reports_is_read() {
    let cluster = Cluster::start().await;
    cluster.apply("a", "one", json!({})).await;
    // The watch broke, the Skill was edited, and everything is listed again.
    let edited = cluster.deliver("a", "two", &json!({}));
    cluster.take(Event::Init);
    cluster.take(Event::InitApply(edited.clone()));
    // The next page of the list takes a while: a reader that had begun would have its turn here, and give up what the cluster state does not
    // have yet.
    tokio::task::yield_now().await;
    cluster.take(Event::InitDone);
    cluster.is_read(&edited).await;
}

#[tokio::test]
async fn a_hub_that_starts_reads_every_revision_that_a_status_names() {
    let cluster = Cluster::start().await;
    let before = cluster.deliver("a", "one", &json!({}));
    let status = before.status.clone().unwrap();
    let artifact = status.artifact.unwrap();
    let earlier = json!({"revision": artifact.revision, "digest": artifact.digest, "configMaps": status.config_maps});
    let edited = cluster.deliver("a", "two", &json!({"status": {"earlier": [earlier]}}));
    cluster.take(Event::Apply(edited.clone()));
    cluster.is_read(&edited).await;
    let id = reference(&edited);
    let known = || {
        let earlier = &edited.status.as_ref().unwrap().earlier[0];
        cluster.artifacts.summary(&edited, Some(earlier))
    };
    let mut changes = cluster.shared.changes();
    let read = changes.wait_for(|_| known().is_some());
    let read = tokio::time::timeout(READ_WITHIN, read).await.is_ok();
    assert!(read, "the earlier revision is not read");
    assert_eq!(known().unwrap().in_service.digest, artifact.digest);
    assert!(cluster.artifacts.content(&id, &artifact.digest).await.is_ok());
    // However many edits come, it stays known while it serves.
    for text in ["three", "four", "five", "six", "seven", "eight"] {
        let edited = cluster.deliver(
            "a",
            text,
            &json!({"status": {"earlier": edited.status.as_ref().unwrap().earlier}}),
        );
        cluster.take(Event::Apply(edited.clone()));
        cluster.is_read(&edited).await;
    }
    assert!(known().is_some(), "it was forgotten while it serves");
}

#[tokio::test]
async fn a_pin_holds_a_skill_at_the_versions_that_it_takes() {
    let cluster = Cluster::start().await;
    let pin = json!({"name": "s", "namespace": "a", "version": "^1"});
    let runtime =
        json!({"metadata": {"namespace": "run", "name": "default"}, "spec": {"skillSelector": {"skills": [pin]}}});
    let runtime = serde_json::from_value(runtime).unwrap();
    cluster
        .shared
        .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(runtime)));
    let before = cluster.deliver("a", "one", &json!({"status": {"version": "1.0.0"}}));
    let status = before.status.clone().unwrap();
    let artifact = status.artifact.unwrap();
    let earlier = json!({
        "revision": artifact.revision, "digest": artifact.digest, "configMaps": status.config_maps, "version": status.version,
    });
    let newest = json!({"status": {"version": "2.0.0", "earlier": [earlier]}});
    let edited = cluster.deliver("a", "two", &newest);
    cluster.take(Event::Apply(edited.clone()));
    let known = || {
        let earlier = &edited.status.as_ref().unwrap().earlier[0];
        cluster.artifacts.summary(&edited, Some(earlier)).is_some()
    };
    let mut changes = cluster.shared.changes();
    let read = changes.wait_for(|_| known());
    let read = tokio::time::timeout(READ_WITHIN, read).await.is_ok();
    assert!(read, "the earlier revision is not read");
    let digests = |view: &CatalogView| view.skills.values().map(|line| line.digest.clone()).collect::<Vec<_>>();
    assert_eq!(digests(&cluster.view(Some("a"))), [artifact.digest]);
    // Whoever asks for another revision by its digest is told why it is not run; without a pin it is.
    let id = reference(&edited);
    for (runtime, version, expected) in [
        ("default", Some("1.4.0"), None),
        (
            "default",
            Some("2.0.0"),
            Some("its version is 2.0.0, and the pin requires ^1"),
        ),
        ("default", None, Some("it has no version")),
        ("other", Some("2.0.0"), None),
    ] {
        let refused = cluster
            .views
            .version_refusal(&RuntimeName::new("run", runtime), &id, version);
        let message = refused.map(|refused| refused.message);
        assert_eq!(
            message.is_some(),
            expected.is_some(),
            "{runtime} {version:?}: {message:?}"
        );
        if let Some((message, expected)) = message.zip(expected) {
            assert!(message.starts_with(expected), "{message}");
        }
    }
}

#[tokio::test]
async fn a_version_that_a_pin_chooses_is_served_in_place_of_a_default_one_that_it_takes() {
    let cluster = Cluster::start().await;
    let chosen = cluster.deliver("a", "one", &json!({"status": {"version": "1.3.0"}}));
    let status = chosen.status.clone().unwrap();
    let artifact = status.artifact.unwrap();
    let revision = json!({
        "revision": artifact.revision, "digest": artifact.digest, "configMaps": status.config_maps, "version": status.version,
        "uploadVersion": 3,
    });
    let default = json!({
        "metadata": {"labels": {LABEL_UPLOAD_OF: "s", LABEL_UPLOAD_VERSION: "2"}},
        "status": {"version": "1.2.0", "earlier": [revision]},
    });
    let skill = cluster.deliver("a", "two", &default);
    cluster.take(Event::Apply(skill.clone()));
    cluster.is_read(&skill).await;
    let known = || {
        let earlier = &skill.status.as_ref().unwrap().earlier[0];
        cluster.artifacts.summary(&skill, Some(earlier)).is_some()
    };
    let mut changes = cluster.shared.changes();
    let read = changes.wait_for(|_| known());
    let read = tokio::time::timeout(READ_WITHIN, read).await.is_ok();
    assert!(read, "the chosen version is not read");
    let default = skill.status.as_ref().unwrap().artifact.as_ref().unwrap().digest.clone();
    for (pin, digest, number) in [
        (
            json!({"name": "s", "namespace": "a", "version": "^1"}),
            &artifact.digest,
            0,
        ),
        (json!({"name": "s", "namespace": "a", "version": "~1.2"}), &default, 2),
        (json!({"name": "s", "namespace": "a"}), &default, 2),
    ] {
        let runtime = json!({
            "metadata": {"namespace": "run", "name": "default"}, "spec": {"skillSelector": {"skills": [pin.clone()]}},
        });
        let runtime = serde_json::from_value(runtime).unwrap();
        cluster
            .shared
            .write(|cluster_state| cluster_state.runtimes.apply(None, Event::Apply(runtime)));
        let view = cluster.view(Some("a"));
        let line = &view.skills[&reference(&skill)];
        assert_eq!(&line.digest, digest, "{pin}");
        assert_eq!(line.upload.as_ref().map(|upload| upload.number), Some(number), "{pin}");
    }
}
