//! Objects that were stored before their definition was what it is.

use std::time::{Duration, Instant};

use cluster_support::Cluster;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use knack_api::Skill;
use knack_vocabulary::FIELD_MANAGER;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::alone;
use super::calls::Calls;
use super::support::{Installation, SOON};

/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Both kinds, with their definitions.
const KINDS: [(&str, &str); 2] = [
    ("skillruntimes.knack.dev", "SkillRuntime"),
    ("skills.knack.dev", "Skill"),
];

/// Definitions that take any spec, until dropped.
struct Loose(&'static Cluster);

impl Loose {
    fn definitions(cluster: &'static Cluster) -> Self {
        let loose = Self(cluster);
        let anything = json!([{
            "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
            "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }]);
        for (name, _) in KINDS {
            cluster.kubectl(&["patch", "crd", name, "--type=json", "-p", &anything.to_string()]);
        }
        loose
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
        // No second panic while one unwinds.
        let restored = self
            .0
            .try_kubectl(&["apply", "--server-side", "--force-conflicts", "-f", crds]);
        assert!(
            restored.status.success() || std::thread::panicking(),
            "{}",
            String::from_utf8_lossy(&restored.stderr)
        );
    }
}

/// Objects of one kind, as they are stored.
struct Objects<'w> {
    installation: &'w Installation,
    kind: &'static str,
    api: Api<DynamicObject>,
}

impl<'w> Objects<'w> {
    fn both(installation: &'w Installation) -> [Self; 2] {
        KINDS.map(|(_, kind)| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("knack.dev", "v1alpha1", kind));
            let api = Api::namespaced_with(installation.client.clone(), installation.run.name(), &resource);
            Self {
                installation,
                kind,
                api,
            }
        })
    }

    /// A spec that fits.
    fn good(&self, name: &str) -> Value {
        match self.kind {
            "Skill" => json!({"source": {"inline": {"files": {
                "SKILL.md": format!("---\nname: {name}\ndescription: A skill of a test.\n---\nx\n")}}}}),
            _ => json!({"sandbox": {"image": self.installation.cluster.image("sandbox-python")}}),
        }
    }

    /// One whose field does not fit and that no rule of the definition reads.
    fn without_rule(&self, name: &str) -> Value {
        let mut spec = self.good(name);
        spec["suspend"] = json!("not now");
        spec
    }

    /// One whose field does not fit and that a rule reads, and the field.
    fn with_rule(&self) -> (Value, &'static str) {
        match self.kind {
            "Skill" => (json!({"source": "a folder"}), "spec.source: "),
            _ => (json!({"sandbox": "an image"}), "spec.sandbox: "),
        }
    }

    fn object(&self, name: &str, spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": self.kind, "metadata": {"name": name}, "spec": spec,
        }))
        .unwrap()
    }

    /// Makes an object once the definition lets it.
    async fn create(&self, name: &str, spec: &Value) {
        let object = self.object(name, spec);
        until("the loose definition is in force", async || {
            let made = self.api.create(&PostParams::default(), &object).await;
            made.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Waits until the status reads so, and returns the messages of its conditions.
    async fn reads(&self, name: &str, expected: &str) -> String {
        until(&format!("{} {name} reads {expected}", self.kind), async || {
            let object = self.api.get(name).await.unwrap();
            let (conditions, messages) = told(&object);
            (conditions == expected)
                .then_some(messages)
                .ok_or_else(|| object.data["status"].to_string())
        })
        .await
    }

    /// Replaces an object, as `kubectl replace` does.
    async fn replace(&self, name: &str) {
        let mut object = self.object(name, &self.good(name));
        until(&format!("{} {name} is replaced", self.kind), async || {
            object.metadata.resource_version = self.api.get(name).await.unwrap().metadata.resource_version;
            let replaced = self.api.replace(name, &PostParams::default(), &object).await;
            replaced.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// Asks until there is an answer; fails with why there was none.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        let why = match ask().await {
            Ok(found) => {
                cluster_support::progress(what);
                return found;
            }
            Err(why) => why,
        };
        assert!(begun.elapsed() < SOON, "{what}: {why}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// `<type>=<status>/<reason>` of the controller's conditions of the present generation, but for whether a skill is served
/// anywhere, and their messages.
fn told(object: &DynamicObject) -> (String, String) {
    let status = &object.data["status"];
    if status["observedGeneration"].as_i64() != object.metadata.generation {
        return Default::default();
    }
    let word = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let (mut lines, messages): (Vec<_>, Vec<_>) = conditions
        .filter(|one| ["Ready", "Reconciling", "Stalled"].contains(&one["type"].as_str().unwrap_or_default()))
        .map(|one| {
            let [kind, status, reason] = ["type", "status", "reason"].map(|key| word(one, key));
            (format!("{kind}={status}/{reason}"), word(one, "message"))
        })
        .unzip();
    lines.sort();
    (lines.join(" "), messages.join(" "))
}

/// The note of the Event about an object that does not fit.
async fn event(installation: &Installation, kind: &str, name: &str) -> String {
    let api: Api<Event> = Api::namespaced(installation.client.clone(), installation.run.name());
    until(&format!("an Event tells of {kind} {name}"), async || {
        let events = api.list(&ListParams::default()).await.unwrap();
        let found = events.items.into_iter().find(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            event.reason.as_deref() == Some("InvalidObject")
                && (regarding.kind.as_deref(), regarding.name.as_deref()) == (Some(kind), Some(name))
        });
        found.and_then(|event| event.note).ok_or_else(String::new)
    })
    .await
}

/// How the controller has written the status of a skill that fits.
async fn operations(installation: &Installation) -> Vec<String> {
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), installation.tenants[0].name());
    let fields = api.get("steady").await.unwrap().metadata.managed_fields;
    let of_controller = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(FIELD_MANAGER);
    let fields = fields.unwrap_or_default().into_iter().filter(of_controller);
    fields.filter_map(|entry| entry.operation).collect()
}

/// The hub's part of the status of a runtime that does not fit any more: its last readable state is served, and the condition and
/// the counts that the hub loses are written again.
async fn hub_reports_a_runtime_that_does_not_fit(installation: &Installation, calls: &Calls) {
    let [runtimes, _] = Objects::both(installation);
    assert_eq!(runtimes.kind, "SkillRuntime");
    let name = "default";
    let before = runtimes.api.get(name).await.unwrap();
    assert!(
        !before.data["status"].to_string().contains("SandboxesReady"),
        "nothing was started yet"
    );
    let spec = before.data["spec"].clone();
    let mut unfit = spec.clone();
    unfit["suspend"] = json!("not now");
    let put = async |spec: &Value| {
        let mut object = runtimes.object(name, spec);
        until("the spec is replaced", async || {
            object.metadata.resource_version = runtimes.api.get(name).await.unwrap().metadata.resource_version;
            let put = runtimes.api.replace(name, &PostParams::default(), &object).await;
            put.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
    };
    put(&unfit).await;
    runtimes.reads(name, INVALID).await;
    assert_eq!(
        calls.text(calls.sleeper(0.0, "served still")).await.unwrap(),
        "served still\n"
    );
    until("the hub says that sandboxes start", async || {
        let object = runtimes.api.get(name).await.unwrap();
        let conditions = object.data["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let told = conditions
            .iter()
            .any(|one| one["type"] == "SandboxesReady" && one["status"] == "True");
        (told && object.data["status"]["owner"].is_string())
            .then_some(())
            .ok_or_else(|| object.data["status"].to_string())
    })
    .await;
    put(&spec).await;
    runtimes.reads(name, "Ready=True/Serving").await;
}

const INVALID: &str = "Ready=False/InvalidObject Stalled=True/InvalidObject";

/// They are reported by name and affect no others, and once replaced they work like any other.
#[test]
fn undecodable_objects_are_reported_and_do_not_affect_others() {
    alone(
        "undecodable_objects_are_reported_and_do_not_affect_others",
        async |cluster| {
            let mut installation = Installation::start(cluster, 1, json!({})).await;
            let calls = Calls::new(&installation, installation.tenant(0).await).await;
            let loose = Loose::definitions(cluster);
            // One while the controller looks on, under the loose definition: server-side apply takes its status.
            for objects in Objects::both(&installation) {
                objects.create("seen", &objects.without_rule("seen")).await;
                objects.reads("seen", INVALID).await;
            }
            // One that the hub serves already: what the hub says of it still reaches its status.
            hub_reports_a_runtime_that_does_not_fit(&installation, &calls).await;
            // The others come with the first list of controller and hub, under definitions that they do not fit.
            installation.stop_controller();
            installation.kill_hub();
            for objects in Objects::both(&installation) {
                objects.create("unseen", &objects.without_rule("unseen")).await;
                objects.create("ruled", &objects.with_rule().0).await;
            }
            drop(loose);
            installation.start_controller();
            installation.restart_hub().await;
            for objects in Objects::both(&installation) {
                for name in ["seen", "unseen"] {
                    let messages = objects.reads(name, INVALID).await;
                    assert!(messages.contains("spec.suspend: invalid type"), "{messages}");
                    assert!(messages.contains("kubectl replace"), "{messages}");
                }
                let note = event(&installation, objects.kind, "ruled").await;
                assert!(note.contains(objects.with_rule().1), "{note}");
            }
            assert_eq!(
                calls.text(calls.sleeper(0.0, "others go on")).await.unwrap(),
                "others go on\n"
            );
            assert_eq!(
                operations(&installation).await,
                ["Apply"],
                "what fits is applied and never merged"
            );
            for objects in Objects::both(&installation) {
                let good = match objects.kind {
                    "Skill" => "Ready=True/Delivered",
                    _ => "Ready=True/Serving",
                };
                for name in ["seen", "unseen", "ruled"] {
                    objects.replace(name).await;
                    objects.reads(name, good).await;
                }
            }
        },
    );
}
