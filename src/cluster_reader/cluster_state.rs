//! The hub's copy of the cluster: an index fed by watch events. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use knack_api::skill::Source;
use knack_api::{Skill, SkillRuntime, SkillStatus};
use knack_hub_api::RuntimeName;
use knack_packages::EnvironmentStatuses;
use knack_skill::model::SkillRef;
use knack_vocabulary::CONDITION_READY;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;

use super::change_log::{Change, ChangeLog};
use super::decoded::Undecoded;
use super::fences::Fences;
use crate::object_name::ObjectName;
use crate::selection::NamespaceLabels;

/// An object of which an event may change nothing that is served.
pub trait ServedObject: ResourceExt {
    /// Whether two states of it are served differently.
    fn differs(&self, other: &Self) -> bool;

    /// A change of it.
    fn changed(&self) -> Change;

    /// Whether it is kept no longer, though a finalizer holds it.
    fn is_gone(&self) -> bool {
        false
    }
}

impl ServedObject for Skill {
    /// Conditions, verdicts of runtimes and the resource version are left out: [`trim`] has dropped the former.
    fn differs(&self, other: &Self) -> bool {
        self.metadata.uid != other.metadata.uid
            || self.metadata.labels != other.metadata.labels
            || self.spec != other.spec
            || self.status != other.status
    }

    fn changed(&self) -> Change {
        Change::Skill(SkillRef {
            namespace: self.namespace().unwrap_or_default(),
            name: self.name_any(),
        })
    }

    /// From its deletion on, as for the controller. A runtime is needed until it is away: its runs are ended.
    fn is_gone(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl ServedObject for SkillRuntime {
    /// Compares, in the status, only the controller's verdict; the hub's own counts are not served.
    fn differs(&self, other: &Self) -> bool {
        let judged = |runtime: &Self| {
            let status = runtime.status.clone().unwrap_or_default();
            let ready = status
                .conditions
                .into_iter()
                .find(|found| found.type_ == CONDITION_READY);
            let ready = ready.map(|found| (found.status, found.reason, found.message));
            (status.observed_generation, ready)
        };
        self.metadata.uid != other.metadata.uid
            || self.metadata.generation != other.metadata.generation
            || self.metadata.deletion_timestamp != other.metadata.deletion_timestamp
            || self.spec != other.spec
            || judged(self) != judged(other)
    }

    fn changed(&self) -> Change {
        Change::Runtime(RuntimeName::new(self.namespace().unwrap_or_default(), self.name_any()))
    }
}

/// Objects of one kind.
#[derive(Debug)]
pub struct WatchedObjects<K> {
    objects: BTreeMap<ObjectName, Arc<K>>,
    /// Lists that are being read, by what is listed (a namespace, or all).
    pending: BTreeMap<Option<String>, Listing<K>>,
    /// Lists that were read to their end at least once, by what is listed: a list that is read again is not another one.
    complete: BTreeSet<Option<String>>,
    /// Highest resourceVersion seen, of deletions and of lists too.
    seen: String,
}

/// A list that is being read.
#[derive(Debug)]
struct Listing<K> {
    objects: BTreeMap<ObjectName, Arc<K>>,
    /// Highest resourceVersion that is known to be in it.
    seen: String,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            seen: "0".to_owned(),
        }
    }
}

impl<K> Default for WatchedObjects<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            pending: BTreeMap::new(),
            complete: BTreeSet::new(),
            seen: "0".to_owned(),
        }
    }
}

impl<K: ServedObject> WatchedObjects<K> {
    /// Applies an event of the watch over `scope` (a namespace; `None`: all). Returns what it changed of the served
    /// content.
    pub fn apply(&mut self, scope: Option<&str>, event: Event<K>) -> Option<Change> {
        match event {
            Event::Init => {
                self.pending.insert(scope.map(str::to_owned), Listing::default());
                None
            }
            Event::InitApply(object) => {
                let listing = self.pending.entry(scope.map(str::to_owned)).or_default();
                raise(&mut listing.seen, object.resource_version());
                if !object.is_gone() {
                    listing.objects.insert(ObjectName::of(&object), Arc::new(object));
                }
                None
            }
            Event::InitDone => {
                let listing = self.pending.remove(&scope.map(str::to_owned)).unwrap_or_default();
                self.objects
                    .retain(|name, _| scope.is_some_and(|scope| scope != name.namespace));
                self.objects.extend(listing.objects);
                raise(&mut self.seen, Some(listing.seen));
                self.complete.insert(scope.map(str::to_owned));
                Some(Change::All)
            }
            Event::Apply(object) if !object.is_gone() => {
                raise(&mut self.seen, object.resource_version());
                let object = Arc::new(object);
                let before = self.objects.insert(ObjectName::of(&*object), Arc::clone(&object));
                let same = before.is_some_and(|before| !before.differs(&object));
                (!same).then(|| object.changed())
            }
            Event::Apply(object) | Event::Delete(object) => {
                raise(&mut self.seen, object.resource_version());
                self.objects.remove(&ObjectName::of(&object)).map(|_| object.changed())
            }
        }
    }

    /// As [`WatchedObjects::apply`], also for an object that this version cannot decode.
    pub(super) fn take(&mut self, scope: Option<&str>, event: Result<Event<K>, Undecoded>) -> Option<Change> {
        let key = |meta: &ObjectMeta| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            ObjectName::new(text(&meta.namespace), text(&meta.name))
        };
        match event {
            Ok(event) => self.apply(scope, event),
            Err(Undecoded::Written) => None,
            Err(Undecoded::Listed(meta)) => {
                let listing = self.pending.entry(scope.map(str::to_owned)).or_default();
                let (key, uid) = (key(&meta), meta.uid);
                raise(&mut listing.seen, meta.resource_version);
                // An earlier object of this name, with another uid, does not count.
                let known = self.objects.get(&key).filter(|known| known.meta().uid == uid);
                listing
                    .objects
                    .extend(known.map(|known| (key.clone(), Arc::clone(known))));
                None
            }
            Err(Undecoded::Deleted(meta)) => {
                let key = key(&meta);
                raise(&mut self.seen, meta.resource_version);
                self.objects.remove(&key).map(|known| known.changed())
            }
        }
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        // Two short strings are cheaper than a second map with borrowed keys.
        self.objects.get(&ObjectName::new(namespace, name))
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Whether `lists` lists were read to their end.
    pub fn is_complete(&self, lists: usize) -> bool {
        self.complete.len() >= lists
    }

    /// Highest resourceVersion seen.
    pub fn newest_version(&self) -> &str {
        &self.seen
    }

    /// The list over `scope` that is being read has everything up to a resourceVersion.
    pub fn set_list_version(&mut self, scope: Option<&str>, version: String) {
        let listing = self.pending.entry(scope.map(str::to_owned)).or_default();
        raise(&mut listing.seen, Some(version));
    }
}

/// Raises the highest resourceVersion seen.
fn raise(seen: &mut String, version: Option<String>) {
    if let Some(version) = version
        && (version.len(), version.as_str()) > (seen.len(), seen.as_str())
    {
        *seen = version;
    }
}

/// Everything.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// Skills, without their sources: those are up to 120 KiB each, and the hub serves artifacts only.
    pub skills: WatchedObjects<Skill>,
    /// Runtimes.
    pub runtimes: WatchedObjects<SkillRuntime>,
    /// Labels of namespaces.
    pub namespaces: Arc<NamespaceLabels>,
    /// The fences of runtimes.
    pub fences: Arc<Fences>,
    /// The statuses of environments of packages.
    pub environments: Arc<EnvironmentStatuses>,
    /// Whether these statuses were listed.
    pub environments_listed: bool,
    /// The recent changes.
    pub log: ChangeLog,
    /// Namespaces of a list that is being read.
    pending_namespaces: Option<NamespaceLabels>,
    /// Whether namespaces were listed.
    namespaces_complete: bool,
}

impl ClusterState {
    /// A runtime.
    pub fn runtime(&self, name: &RuntimeName) -> Option<&Arc<SkillRuntime>> {
        self.runtimes.get(&name.namespace, &name.name)
    }

    /// Applies an event about namespaces. Returns what it changed of the served content.
    pub fn take_namespace<K: ResourceExt>(&mut self, event: Event<K>) -> Option<Change> {
        let has_changed = match event {
            Event::Init => {
                self.pending_namespaces = Some(NamespaceLabels::new());
                false
            }
            Event::InitApply(namespace) => {
                let pending = self.pending_namespaces.get_or_insert_default();
                pending.insert(namespace.name_any(), namespace.labels().clone());
                false
            }
            Event::InitDone => {
                self.namespaces = Arc::new(self.pending_namespaces.take().unwrap_or_default());
                self.namespaces_complete = true;
                true
            }
            Event::Apply(namespace) => {
                let labels = namespace.labels().clone();
                let has_changed = self.namespaces.get(&namespace.name_any()) != Some(&labels);
                if has_changed {
                    Arc::make_mut(&mut self.namespaces).insert(namespace.name_any(), labels);
                }
                has_changed
            }
            Event::Delete(namespace) => {
                let name = namespace.name_any();
                self.namespaces.contains_key(&name) && {
                    Arc::make_mut(&mut self.namespaces).remove(&name);
                    true
                }
            }
        };
        has_changed.then_some(Change::All)
    }

    /// The lists that are still being read for the first time, if any; `lists` = watches per kind.
    pub fn waiting_for(&self, lists: usize) -> Option<&'static str> {
        if !self.skills.is_complete(lists) {
            Some("Skills")
        } else if !self.runtimes.is_complete(lists) {
            Some("SkillRuntimes")
        } else if !self.namespaces_complete {
            Some("Namespaces")
        } else {
            None
        }
    }
}

/// A Skill without the fields that the hub does not read.
pub fn trim(mut skill: Skill) -> Skill {
    skill.spec.source = Source::default();
    skill.metadata.managed_fields = None;
    // kubectl's client-side apply keeps the whole object, source included, in an annotation.
    skill.metadata.annotations = None;
    skill.metadata.generation = None;
    skill.status = skill.status.map(|status| SkillStatus {
        activation: status.activation,
        // The conditions of a Skill without content say why it has none.
        conditions: if status.artifact.is_none() {
            status.conditions
        } else {
            Vec::new()
        },
        artifact: status.artifact,
        config_maps: status.config_maps,
        earlier: status.earlier,
        inputs: status.inputs,
        packages: status.packages,
        version: status.version,
        ..SkillStatus::default()
    });
    skill
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(namespace: &str, name: &str, version: &str) -> SkillRuntime {
        SkillRuntime {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: knack_api::SkillRuntimeSpec::default(),
            status: None,
        }
    }

    fn names(kind: &WatchedObjects<SkillRuntime>) -> Vec<String> {
        kind.iter()
            .map(|object| format!("{}/{}", object.namespace().unwrap(), object.name_any()))
            .collect()
    }

    #[test]
    fn a_new_list_replaces_what_it_covers_and_nothing_else() {
        let mut kind = WatchedObjects::default();
        for (scope, name) in [("a", "x"), ("b", "y")] {
            kind.apply(Some(scope), Event::Init);
            kind.apply(Some(scope), Event::InitApply(runtime(scope, name, "5")));
            assert_eq!(kind.apply(Some(scope), Event::InitDone), Some(Change::All));
        }
        assert!(kind.is_complete(2));
        kind.apply(Some("a"), Event::Init);
        kind.apply(Some("a"), Event::InitApply(runtime("a", "z", "6")));
        assert_eq!(
            (names(&kind), kind.newest_version()),
            (vec!["a/x".to_owned(), "b/y".to_owned()], "5"),
            "the old list serves until the new one is complete"
        );
        kind.apply(Some("a"), Event::InitDone);
        assert_eq!(
            (names(&kind), kind.newest_version()),
            (vec!["a/z".to_owned(), "b/y".to_owned()], "6")
        );
    }

    /// A hub that counted a list twice would send a catalog without the skills of the other namespace.
    #[test]
    fn a_list_that_is_read_again_does_not_stand_for_another_one() {
        let mut kind = WatchedObjects::default();
        for _ in 0..2 {
            kind.apply(Some("a"), Event::Init);
            kind.apply(Some("a"), Event::InitApply(runtime("a", "x", "5")));
            kind.apply(Some("a"), Event::InitDone);
        }
        assert!(kind.is_complete(1) && !kind.is_complete(2), "b was not read");
        kind.apply(Some("b"), Event::Init);
        kind.apply(Some("b"), Event::InitDone);
        assert!(kind.is_complete(2));
    }

    #[test]
    fn what_changes_nothing_that_is_served_is_no_change() {
        let mut kind = WatchedObjects::default();
        let untrimmed = |version: &str, ready: &str, revision: &str, label: &str| -> Skill {
            let skill = serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": "n", "name": "s", "uid": "u", "resourceVersion": version, "labels": {"l": label}},
                "spec": {"source": {}},
                "status": {
                    "observedGeneration": version.len(),
                    "conditions": [{"type": "Ready", "status": ready, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    "artifact": {"revision": revision, "digest": "d", "size": 1, "fileCount": 1},
                },
            }));
            skill.unwrap()
        };
        let skill = |version, ready, revision, label| trim(untrimmed(version, ready, revision, label));
        let changed = Some(Change::Skill(SkillRef {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
        }));
        let mut used = untrimmed("26", "False", "b", "y");
        let time = serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap();
        used.status.as_mut().unwrap().last_used_time = Some(time);
        let used = trim(used);
        for (object, expected) in [
            (skill("1", "False", "a", "x"), &changed),
            (skill("22", "True", "a", "x"), &None),
            (skill("23", "True", "b", "x"), &changed),
            (skill("24", "True", "b", "y"), &changed),
            (skill("25", "False", "b", "y"), &None),
            (used, &None),
        ] {
            assert_eq!(kind.apply(None, Event::Apply(object)), *expected);
        }
        assert_eq!(kind.newest_version(), "26");
        let mut kind = WatchedObjects::default();
        let runtime_with = |warm: i64, ready: &str| -> SkillRuntime {
            serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": "n", "name": "r"}, "spec": {},
                "status": {"warmPool": {"ready": warm, "desired": 2}, "conditions": [
                    {"type": "Ready", "status": ready, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]},
            }))
            .unwrap()
        };
        assert!(kind.apply(None, Event::Apply(runtime_with(0, "True"))).is_some());
        assert_eq!(
            kind.apply(None, Event::Apply(runtime_with(2, "True"))),
            None,
            "a count of the pool"
        );
        assert!(
            kind.apply(None, Event::Apply(runtime_with(2, "False"))).is_some(),
            "the fence is gone"
        );
    }

    /// A finalizer holds it for as long as its owner likes.
    #[test]
    fn a_skill_is_served_until_its_deletion_and_not_until_it_is_away() {
        let skill = |deleted: Option<&str>, version: &str| -> Skill {
            let mut skill: Skill = serde_json::from_value(serde_json::json!({
                "metadata": {"namespace": "n", "name": "s", "uid": "u", "resourceVersion": version, "finalizers": ["a.io/f"]},
                "spec": {"source": {}},
            }))
            .unwrap();
            skill.metadata.deletion_timestamp = deleted.map(|time| serde_json::from_value(time.into()).unwrap());
            skill
        };
        let deleted = Some("2026-01-01T00:00:00Z");
        let mut kind = WatchedObjects::default();
        let changed = kind.apply(None, Event::Apply(skill(None, "1")));
        assert!(changed.is_some() && kind.get("n", "s").is_some());
        assert_eq!(kind.apply(None, Event::Apply(skill(deleted, "2"))), changed);
        assert!(kind.get("n", "s").is_none());
        // Its later writes, and its end, change nothing more.
        assert_eq!(kind.apply(None, Event::Apply(skill(deleted, "3"))), None);
        assert_eq!(kind.apply(None, Event::Delete(skill(deleted, "4"))), None);
        assert_eq!(kind.newest_version(), "4");
        // A Skill that is being deleted when the first list has it.
        kind.apply(None, Event::Init);
        kind.apply(None, Event::InitApply(skill(deleted, "5")));
        kind.apply(None, Event::InitDone);
        assert!(kind.get("n", "s").is_none());
        assert_eq!(kind.newest_version(), "5");
    }

    #[test]
    fn versions_of_deletions_count_as_seen() {
        let mut kind = WatchedObjects::default();
        kind.apply(None, Event::Apply(runtime("a", "x", "9")));
        kind.apply(None, Event::Delete(runtime("a", "x", "12")));
        assert_eq!(kind.newest_version(), "12");
        assert!(names(&kind).is_empty());
        kind.apply(None, Event::Apply(runtime("a", "x", "11")));
        assert_eq!(kind.newest_version(), "12");
    }
}
