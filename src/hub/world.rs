//! What the hub knows of the cluster: an index fed by watch events. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

use crate::api::skill::Source;
use crate::api::{Skill, SkillRuntime};
use crate::hub_api::RuntimeName;
use crate::selection::NamespaceLabels;

/// Namespace and name.
pub type Key = (String, String);

/// Objects of one kind.
#[derive(Debug)]
pub struct Kind<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Objects of lists that are being read, by what is listed (a namespace, or all).
    pending: BTreeMap<Option<String>, BTreeMap<Key, Arc<K>>>,
    /// Lists that were read to their end at least once.
    complete: usize,
    /// Highest resourceVersion seen, of deletions too.
    seen: String,
}

impl<K> Default for Kind<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            pending: BTreeMap::new(),
            complete: 0,
            seen: "0".to_owned(),
        }
    }
}

impl<K: ResourceExt> Kind<K> {
    /// Takes an event of the watch over `scope` (a namespace; `None`: all). Returns whether readers should look again.
    pub fn take(&mut self, scope: Option<&str>, event: Event<K>) -> bool {
        match event {
            Event::Init => {
                self.pending.insert(scope.map(str::to_owned), BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                self.note(&object);
                let pending = self.pending.entry(scope.map(str::to_owned)).or_default();
                pending.insert(key(&object), Arc::new(object));
                false
            }
            Event::InitDone => {
                let listed = self.pending.remove(&scope.map(str::to_owned)).unwrap_or_default();
                self.objects
                    .retain(|(namespace, _), _| scope.is_some_and(|scope| scope != namespace));
                self.objects.extend(listed);
                self.complete += 1;
                true
            }
            Event::Apply(object) => {
                self.note(&object);
                self.objects.insert(key(&object), Arc::new(object));
                true
            }
            Event::Delete(object) => {
                self.note(&object);
                self.objects.remove(&key(&object)).is_some()
            }
        }
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        // Two short strings are cheaper than a second map with borrowed keys.
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Whether `lists` lists were read to their end.
    pub fn is_complete(&self, lists: usize) -> bool {
        self.complete >= lists
    }

    /// Highest resourceVersion seen.
    pub fn seen(&self) -> &str {
        &self.seen
    }

    fn note(&mut self, object: &K) {
        if let Some(version) = object.resource_version()
            && (version.len(), version.as_str()) > (self.seen.len(), self.seen.as_str())
        {
            self.seen = version;
        }
    }
}

fn key<K: ResourceExt>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Everything.
#[derive(Debug, Default)]
pub struct World {
    /// Skills, without their sources: those are up to 120 KiB each, and the hub serves artifacts only.
    pub skills: Kind<Skill>,
    /// Runtimes.
    pub runtimes: Kind<SkillRuntime>,
    /// Labels of namespaces.
    pub namespaces: NamespaceLabels,
    /// Namespaces of a list that is being read.
    pending_namespaces: Option<NamespaceLabels>,
    /// Whether namespaces were listed.
    namespaces_complete: bool,
}

impl World {
    /// A runtime.
    pub fn runtime(&self, name: &RuntimeName) -> Option<&Arc<SkillRuntime>> {
        self.runtimes.get(&name.namespace, &name.name)
    }

    /// Takes an event about namespaces. Returns whether readers should look again.
    pub fn take_namespace<K: ResourceExt>(&mut self, event: Event<K>) -> bool {
        match event {
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
                self.namespaces = self.pending_namespaces.take().unwrap_or_default();
                self.namespaces_complete = true;
                true
            }
            Event::Apply(namespace) => {
                let labels = namespace.labels().clone();
                let before = self.namespaces.insert(namespace.name_any(), labels.clone());
                before.as_ref() != Some(&labels)
            }
            Event::Delete(namespace) => self.namespaces.remove(&namespace.name_any()).is_some(),
        }
    }

    /// What is still being read for the first time, if anything; `lists` = watches per kind.
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

/// A Skill without what the hub does not read.
pub fn trim(mut skill: Skill) -> Skill {
    skill.spec.source = Source::default();
    skill.metadata.managed_fields = None;
    // kubectl's client-side apply keeps the whole object, source included, in an annotation.
    skill.metadata.annotations = None;
    skill
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;

    fn runtime(namespace: &str, name: &str, version: &str) -> SkillRuntime {
        SkillRuntime {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: crate::api::SkillRuntimeSpec::default(),
            status: None,
        }
    }

    fn names(kind: &Kind<SkillRuntime>) -> Vec<String> {
        kind.iter()
            .map(|object| format!("{}/{}", object.namespace().unwrap(), object.name_any()))
            .collect()
    }

    #[test]
    fn a_new_list_replaces_what_it_covers_and_nothing_else() {
        let mut kind = Kind::default();
        for (scope, name) in [("a", "x"), ("b", "y")] {
            kind.take(Some(scope), Event::Init);
            kind.take(Some(scope), Event::InitApply(runtime(scope, name, "5")));
            assert!(kind.take(Some(scope), Event::InitDone));
        }
        assert!(kind.is_complete(2));
        kind.take(Some("a"), Event::Init);
        kind.take(Some("a"), Event::InitApply(runtime("a", "z", "6")));
        assert_eq!(
            names(&kind),
            ["a/x", "b/y"],
            "the old list serves until the new one is complete"
        );
        kind.take(Some("a"), Event::InitDone);
        assert_eq!(names(&kind), ["a/z", "b/y"]);
    }

    #[test]
    fn versions_of_deletions_count_as_seen() {
        let mut kind = Kind::default();
        kind.take(None, Event::Apply(runtime("a", "x", "9")));
        kind.take(None, Event::Delete(runtime("a", "x", "12")));
        assert_eq!(kind.seen(), "12");
        assert!(names(&kind).is_empty());
        kind.take(None, Event::Apply(runtime("a", "x", "11")));
        assert_eq!(kind.seen(), "12");
    }
}
