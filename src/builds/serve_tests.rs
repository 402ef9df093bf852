//! Reconciles with an API server in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Shares};
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::Role;
use knack_api::SkillOverrides;
use knack_packages::environment::EnvironmentImage;
use knack_skill::model::{SkillFile, SkillRef};
use knack_vocabulary::CONFIG_MAP_PACKAGES;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;
use crate::artifact::{build as pack, shard_digest};
use crate::fixture::{done, failed, list, not_found};
use crate::tasks::Tasks;

const REPOSITORY: &str = "r.io/environments";
/// What the API server says to a Job that a policy refuses.
const DENIED: (u16, &str) = (
    403,
    "admission webhook \"validate.kyverno.svc\" denied the request: no digest",
);
const EXCEEDED: (u16, &str) = (
    403,
    "jobs.batch is forbidden: exceeded quota: knack-builds, requested: count/jobs.batch=1, used: count/jobs.batch=8",
);

#[derive(Default)]
struct Cluster {
    /// By name.
    jobs: BTreeMap<String, Value>,
    pods: Vec<Value>,
    /// ConfigMaps of content, by namespace and name.
    contents: BTreeMap<String, ConfigMap>,
    statuses: Option<BTreeMap<String, String>>,
    role: Option<Value>,
    /// How a write of the Role is refused.
    role_refusal: Option<(u16, &'static str)>,
    /// How a new Job is refused, and whether a delete fails.
    refusal: Option<(u16, &'static str)>,
    is_delete_refused: bool,
    /// Jobs that may be there at once.
    quota: Option<usize>,
    events: usize,
    /// Writes, in their order.
    writes: Vec<String>,
}

type SharedCluster = Arc<Mutex<Cluster>>;

fn lock(cluster: &SharedCluster) -> MutexGuard<'_, Cluster> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config_map(data: &BTreeMap<String, String>) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP_PACKAGES}, "data": data})
}

impl Cluster {
    fn create_job(&mut self, mut job: Value) -> Response {
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        if let Some((code, message)) = self.refusal {
            return failed(code, "Forbidden", message);
        }
        if self.jobs.contains_key(&name) {
            return failed(409, "Forbidden", "exists");
        }
        if self.quota.is_some_and(|quota| self.jobs.len() >= quota) {
            return failed(EXCEEDED.0, "Forbidden", EXCEEDED.1);
        }
        self.writes.push(format!("create {name}"));
        job["metadata"]["uid"] = json!(format!("uid-{name}"));
        self.jobs.insert(name, job.clone());
        axum::Json(job).into_response()
    }

    fn delete_job(&mut self, name: &str, options: &Value) -> Response {
        if self.is_delete_refused {
            return failed(500, "Forbidden", "failed calling webhook");
        }
        let known = self.jobs.get(name).map(|job| job["metadata"]["uid"].clone());
        if known != Some(options["preconditions"]["uid"].clone()) {
            return failed(409, "Forbidden", "the UID in the precondition does not match");
        }
        self.writes.push(format!("delete {name}"));
        self.jobs.remove(name);
        done()
    }

    fn patch_statuses(&mut self, object: &Value) -> Response {
        self.writes.push("records".to_owned());
        let statuses = self.statuses.get_or_insert_default();
        for (key, value) in object["data"].as_object().unwrap() {
            match value.as_str() {
                Some(value) => statuses.insert(key.clone(), value.to_owned()),
                None => statuses.remove(key),
            };
        }
        axum::Json(config_map(statuses)).into_response()
    }

    fn patch_role(&mut self, object: Value) -> Response {
        if let Some((code, message)) = self.role_refusal {
            return failed(code, "Forbidden", message);
        }
        self.writes.push("role".to_owned());
        self.role = Some(object.clone());
        axum::Json(object).into_response()
    }

    /// The builders of all Jobs end.
    fn end_builds(&mut self) {
        let image = Some(EnvironmentImage {
            image: format!("{REPOSITORY}@sha256:{}", "a".repeat(64)),
            home: "/opt/knack/packages/env-1".to_owned(),
        });
        let outcome = Outcome {
            environment: image,
            ..Outcome::failed(State::Ready, "made")
        };
        for (name, job) in &self.jobs {
            let ended = json!({"exitCode": 0, "message": outcome.text()});
            self.pods.push(json!({
                "metadata": {"name": name, "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]},
                ]},
                "status": {"containerStatuses": [
                    {"name": "b", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": {"terminated": ended}},
                ]},
            }));
        }
    }

    /// The statuses by state and message, sorted.
    fn states(&self) -> Vec<(State, String)> {
        let read = EnvironmentStatuses::read(self.statuses.iter().flatten());
        let mut all: Vec<(State, String)> = read.0.into_values().map(|one| (one.state, one.message)).collect();
        all.sort_by_key(|(state, message)| (state.as_str(), message.clone()));
        all
    }
}

async fn answer(Shares(cluster): Shares<SharedCluster>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path: Vec<&str> = parts.uri.path().trim_start_matches('/').split('/').collect();
    let mut cluster = lock(&cluster);
    match (&parts.method, path.as_slice()) {
        (&Method::GET, [.., "jobs"]) => list("JobList", &cluster.jobs.values().cloned().collect::<Vec<_>>()),
        (&Method::GET, [.., "pods"]) => list("PodList", &cluster.pods),
        (&Method::POST, [.., "jobs"]) => cluster.create_job(object),
        (&Method::DELETE, [.., "jobs", name]) => cluster.delete_job(name, &object),
        (&Method::GET, [.., "configmaps"]) => {
            let found: Vec<Value> = cluster.statuses.iter().map(config_map).collect();
            list("ConfigMapList", &found)
        }
        (&Method::GET, [.., namespace, "configmaps", name]) => {
            match cluster.contents.get(&format!("{namespace}/{name}")) {
                Some(content) => axum::Json(content).into_response(),
                None => not_found(),
            }
        }
        (&Method::PATCH, [.., "configmaps", _]) => cluster.patch_statuses(&object),
        (&Method::GET, [.., "roles"]) => list("RoleList", cluster.role.as_slice()),
        (&Method::PATCH, [.., "roles", _]) => cluster.patch_role(object),
        (&Method::POST, [.., "events"]) => {
            cluster.events += 1;
            axum::Json(object).into_response()
        }
        (&Method::POST, [.., "configmaps"]) => axum::Json(object).into_response(),
        (method, path) => {
            let what = format!("{method} {path:?}");
            (StatusCode::NOT_IMPLEMENTED, Body::from(what)).into_response()
        }
    }
}

/// A server where each of so many runtimes needs an environment of its own.
fn server(cluster: &SharedCluster, runtimes: usize) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let router = Router::new().fallback(answer).with_state(Arc::clone(cluster));
    let client = Client::new(router, "knack-system");
    let shared = Arc::new(Shared::default());
    let skill: Skill = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "s", "uid": "u"}, "spec": {"source": {}},
        "status": {"artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
    }))
    .unwrap();
    shared.write(|cluster_state| {
        cluster_state.skills.apply(None, Event::Init);
        cluster_state.skills.apply(None, Event::InitApply(skill));
        cluster_state.skills.apply(None, Event::InitDone);
        cluster_state.runtimes.apply(None, Event::Init);
        for number in 0..runtimes {
            let runtime = json!({
                "metadata": {"namespace": "n", "name": format!("r{number}")},
                "spec": {"packages": {"standard": true}, "sandbox": {"image": format!("r.io/base@sha256:{number}")}},
            });
            let runtime: SkillRuntime = serde_json::from_value(runtime).unwrap();
            cluster_state.runtimes.apply(None, Event::InitApply(runtime));
        }
        cluster_state.runtimes.apply(None, Event::InitDone);
        cluster_state.take_namespace::<ConfigMap>(Event::Init);
        cluster_state.take_namespace::<ConfigMap>(Event::InitDone)
    });
    let builder = BuilderSettings {
        namespace: "knack-builds".to_owned(),
        image: "r.io/builder@sha256:0".to_owned(),
        service_account: "knack-builder".to_owned(),
        repository: REPOSITORY.to_owned(),
        base_repositories: Vec::new(),
        only_base_repositories: false,
        index: None,
        index_secret: None,
        npm_index: None,
        npm_index_secret: None,
        registry_secret: None,
        image_pull_secrets: Vec::new(),
        plain_http: false,
        authorities: None,
    };
    let watching = WatchSettings::default();
    let events = Events::new(client.clone(), FIELD_MANAGER_PACKAGES);
    let memory = MemoryBudget::of_process();
    Server {
        builders: Builders::new(&client, builder.clone()),
        published: Published::new(&client, "knack-system"),
        lists: watch::lists(&watching),
        artifacts: Artifacts::new(client, Arc::clone(&shared), events.clone(), &memory),
        settings: ServeSettings {
            watching,
            default_runtime: None,
            default_image: None,
            allow_image_tags: false,
            builder,
        },
        shared,
        events,
        metrics: Arc::default(),
    }
}

/// One reconcile, before which the watches deliver what is there.
async fn look(cluster: &SharedCluster, server: &Server, past: &mut BuildState) -> Result<bool, CallError> {
    let (lines, role) = {
        let known = lock(cluster);
        (known.statuses.clone(), known.role.clone())
    };
    let role: Option<Role> = role.map(|role| serde_json::from_value(role).unwrap());
    let rules = role.map(|role| role.rules.unwrap_or_default());
    server.published.set_listed(lines, rules);
    server.reconcile(past).await
}

fn is_ready(server: &Server) -> bool {
    knack_serving::probes::Probes::ready(&*server.metrics).is_ok()
}

#[tokio::test]
async fn a_policy_that_refuses_builder_jobs_keeps_nothing_else_from_being_known() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 5);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 4);
    lock(&cluster).end_builds();
    lock(&cluster).refusal = Some(DENIED);
    look(&cluster, &server, &mut past).await.unwrap();
    assert!(is_ready(&server));
    let states = lock(&cluster).states();
    let of = |wanted: State| states.iter().filter(move |(state, _)| *state == wanted);
    assert_eq!(of(State::Ready).count(), 4, "{states:?}");
    let failed: Vec<_> = of(State::Failed).collect();
    assert_eq!(failed.len(), 1, "{states:?}");
    assert!(failed[0].1.contains(DENIED.1), "{states:?}");
    let known = lock(&cluster);
    assert!(known.jobs.is_empty(), "those that ended are removed");
    assert!(known.events > 0);
    assert!(
        known.role.as_ref().unwrap().to_string().contains("n_r"),
        "the hub may run them"
    );
    let metrics = knack_serving::probes::Probes::metrics(&*server.metrics);
    let counted = "knack_packages_builds_total{result=\"Failed\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn what_has_ended_is_written_and_then_removed_and_then_others_start() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 6);
    // Less than builds of two reconciles.
    lock(&cluster).quota = Some(4);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    lock(&cluster).end_builds();
    lock(&cluster).writes.clear();
    look(&cluster, &server, &mut past).await.unwrap();
    let writes: Vec<String> = lock(&cluster)
        .writes
        .iter()
        .map(|write| write.chars().take(6).collect())
        .collect();
    let expected = [
        "role", "record", "delete", "delete", "delete", "delete", "create", "create", "record",
    ];
    assert_eq!(writes, expected);
}

#[tokio::test]
async fn a_build_waits_for_the_quota_and_is_not_failed_by_it() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 3);
    let mut past = BuildState::default();
    lock(&cluster).refusal = Some(EXCEEDED);
    assert!(
        look(&cluster, &server, &mut past).await.unwrap(),
        "it is tried again soon"
    );
    let states = lock(&cluster).states();
    assert!(states.iter().all(|(state, _)| *state == State::Resolving), "{states:?}");
    assert_eq!(
        states.iter().filter(|(_, why)| why.contains(EXCEEDED.1)).count(),
        1,
        "{states:?}"
    );
    lock(&cluster).writes.clear();
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).writes, [""; 0], "it settles");
    lock(&cluster).refusal = None;
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 3);
}

#[tokio::test]
async fn a_job_that_cannot_be_removed_holds_no_other_build_up() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 5);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    lock(&cluster).end_builds();
    lock(&cluster).is_delete_refused = true;
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 5);
    lock(&cluster).is_delete_refused = false;
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 1);
}

#[tokio::test]
async fn statuses_that_others_changed_are_as_they_should_be_after_a_reconcile() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 2);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    lock(&cluster).end_builds();
    look(&cluster, &server, &mut past).await.unwrap();
    let written = lock(&cluster).statuses.clone();
    assert_eq!(lock(&cluster).states().len(), 2);
    let some_key = written.iter().flatten().next().unwrap().0.clone();
    let changed = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
        let mut statuses = written.clone().unwrap();
        change(&mut statuses);
        Some(statuses)
    };
    for (what, found) in [
        ("deleted", None),
        ("replaced by nothing", Some(BTreeMap::new())),
        ("a line is gone", changed(&|statuses| drop(statuses.remove(&some_key)))),
        (
            "a line is another",
            changed(&|statuses| drop(statuses.insert(some_key.clone(), "{}".to_owned()))),
        ),
        (
            "a line is added",
            changed(&|statuses| drop(statuses.insert("n_x_y".to_owned(), String::new()))),
        ),
    ] {
        lock(&cluster).statuses = found;
        look(&cluster, &server, &mut past).await.unwrap();
        assert_eq!(lock(&cluster).statuses, written, "{what}");
        lock(&cluster).writes.clear();
        look(&cluster, &server, &mut past).await.unwrap();
        assert_eq!(lock(&cluster).writes, [""; 0], "{what}: it settles");
    }
}

#[tokio::test]
async fn a_job_of_the_same_name_that_came_since_is_not_removed() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 1);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    let name = lock(&cluster).jobs.keys().next().unwrap().clone();
    let key = EnvironmentKey::from(name.strip_prefix("knack-build-").unwrap());
    server.builders.remove(&key, "another").await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 1);
    server.builders.remove(&key, &format!("uid-{name}")).await.unwrap();
    assert!(lock(&cluster).jobs.is_empty());
}

#[tokio::test]
async fn a_role_that_is_refused_keeps_no_status_from_being_known() {
    const REFUSED: (u16, &str) = (403, "roles \"knack-environments\" is forbidden: denied by a policy");
    let cluster = SharedCluster::default();
    let server = server(&cluster, 5);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    lock(&cluster).end_builds();
    lock(&cluster).refusal = Some(DENIED);
    lock(&cluster).role_refusal = Some(REFUSED);
    for _ in 0..2 {
        let error = look(&cluster, &server, &mut past).await.unwrap_err().to_string();
        assert!(error.contains("apply Role knack-environments"), "{error}");
        let states = lock(&cluster).states();
        let waiting = |(state, message): &&(State, String)| *state == State::Building && message.contains(REFUSED.1);
        assert_eq!(states.iter().filter(waiting).count(), 4, "{states:?}");
        assert_eq!(
            states.iter().filter(|(state, _)| *state == State::Failed).count(),
            1,
            "{states:?}"
        );
        assert_eq!(
            lock(&cluster).jobs.len(),
            4,
            "they have the only word of what was built"
        );
    }
    assert!(is_ready(&server));
    lock(&cluster).role_refusal = None;
    look(&cluster, &server, &mut past).await.unwrap();
    let states = lock(&cluster).states();
    let ready = states.iter().filter(|(state, _)| *state == State::Ready);
    assert_eq!(ready.count(), 4, "{states:?}");
    assert!(lock(&cluster).jobs.is_empty());
}

#[tokio::test]
async fn decides_only_after_first_lists() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 1);
    let mut past = BuildState::default();
    assert!(server.reconcile(&mut past).await.unwrap(), "it is due again soon");
    assert!(lock(&cluster).jobs.is_empty() && past.written.is_none());
    let lines = BTreeMap::from([("n_x_y".to_owned(), String::new())]);
    lock(&cluster).statuses = Some(lines.clone());
    let (mut statuses, mut rules) = server.published.changes();
    let mut watches = Tasks::default();
    server.published.follow(&mut watches);
    statuses.changed().await.unwrap();
    rules.changed().await.unwrap();
    assert_eq!(server.published.lines().as_deref(), Some(&Some(lines)));
    assert_eq!(server.published.rules().as_deref(), Some(&None));
    server.reconcile(&mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 1);
}

#[tokio::test]
async fn an_environment_on_a_base_that_the_list_no_longer_has_stops_at_once() {
    let cluster = SharedCluster::default();
    let mut server = server(&cluster, 1);
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    lock(&cluster).end_builds();
    look(&cluster, &server, &mut past).await.unwrap();
    assert!(lock(&cluster).role.as_ref().unwrap().to_string().contains("n_r0_"));
    // A new list is one of a new process.
    server.settings.builder.only_base_repositories = true;
    server.settings.builder.base_repositories = vec!["r.io/another".to_owned()];
    look(&cluster, &server, &mut BuildState::default()).await.unwrap();
    let known = lock(&cluster);
    assert!(
        !known.role.as_ref().unwrap().to_string().contains("n_r0_"),
        "{:?}",
        known.role
    );
    assert_eq!(known.states()[0].0, State::PackagesOff);
}

#[tokio::test]
async fn a_skill_whose_content_cannot_be_read_says_so_and_holds_no_other_build_up() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 1);
    let unread: Skill = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "unread", "uid": "x"}, "spec": {"source": {}},
        "status": {
            "artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1},
            "packages": {"source": "requirements.txt", "python": ["six"], "digest": "d1"},
        },
    }))
    .unwrap();
    server.shared.write(|cluster_state| {
        cluster_state.skills.apply(None, Event::Apply(unread));
        None
    });
    let mut past = BuildState::default();
    look(&cluster, &server, &mut past).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 1);
    let states = lock(&cluster).states();
    let why = format!("{CONTENT_AWAITED}: n/unread: ");
    let says = |(state, message): &(State, String)| *state == State::Resolving && message.starts_with(&why);
    assert!(states.iter().any(says), "{states:?}");
}

/// The Skill `s` of a namespace, which needs the package six, and the ConfigMaps of its content.
fn needs_six(namespace: &str) -> (Skill, Vec<ConfigMap>) {
    let document = "---\nname: s\ndescription: Counts.\n---\nCounts.\n";
    let files = [("SKILL.md", document), ("requirements.txt", "six\n")].map(|(path, text)| {
        let file = SkillFile {
            bytes: text.as_bytes().into(),
            executable: false,
        };
        (path.to_owned(), file)
    });
    let files = BTreeMap::from(files);
    let id = SkillRef {
        namespace: namespace.to_owned(),
        name: "s".to_owned(),
    };
    let owner = serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "name": "s", "uid": namespace, "controller": true,
    }));
    let artifact = pack(&id, &files, &SkillOverrides::default()).owned_by(&owner.unwrap());
    let shards = artifact.shards.iter();
    let shards: Vec<Value> = shards
        .map(|map| json!({"name": map.metadata.name, "digest": shard_digest(map)}))
        .collect();
    let declared = Input::of(&stated(&files, None)).digest();
    let skill = json!({
        "metadata": {"namespace": namespace, "name": "s", "uid": namespace}, "spec": {"source": {}},
        "status": {
            "artifact": {"revision": artifact.revision, "digest": artifact.digest, "size": 1, "fileCount": 2},
            "configMaps": shards,
            "packages": {"source": "requirements.txt", "python": ["six"], "digest": declared},
        },
    });
    (serde_json::from_value(skill).unwrap(), artifact.shards)
}

#[tokio::test]
async fn what_several_tenants_need_is_built_from_a_skill_that_can_be_read_and_names_none() {
    let cluster = SharedCluster::default();
    let server = server(&cluster, 0);
    let ((gone, _), (there, content)) = (needs_six("aaa"), needs_six("bbb"));
    server.shared.write(|cluster_state| {
        for skill in [&gone, &there] {
            let runtime = json!({
                "metadata": {"namespace": skill.metadata.namespace, "name": "r"},
                "spec": {"sandbox": {"image": "r.io/base@sha256:0"}},
            });
            let runtime: SkillRuntime = serde_json::from_value(runtime).unwrap();
            cluster_state.runtimes.apply(None, Event::Apply(runtime));
            cluster_state.skills.apply(None, Event::Apply(skill.clone()));
        }
        None
    });
    look(&cluster, &server, &mut BuildState::default()).await.unwrap();
    assert!(lock(&cluster).jobs.is_empty(), "neither can be read");
    let awaited = (
        State::Resolving,
        "the build waits for the content of a skill".to_owned(),
    );
    assert_eq!(lock(&cluster).states(), [awaited]);
    // The content of one of them comes. The other tenant has deleted his.
    for map in content {
        let name = format!("bbb/{}", map.metadata.name.as_deref().unwrap());
        lock(&cluster).contents.insert(name, map);
    }
    server.artifacts.request_read(&gone);
    server.artifacts.request_read(&there);
    let begun = Instant::now();
    while server.artifacts.summary(&there, None).is_none() {
        assert!(begun.elapsed() < Duration::from_mins(1), "the content is not read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    look(&cluster, &server, &mut BuildState::default()).await.unwrap();
    assert_eq!(lock(&cluster).jobs.len(), 1);
    assert_eq!(lock(&cluster).states()[0].0, State::Building);
}
