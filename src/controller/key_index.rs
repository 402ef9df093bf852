//! Which objects of a store have something in common, so that a reconcile does not read all of them: with
//! thousands of skills, reading all of them for each of them is most of what the process does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use kube::Resource;
use kube::runtime::watcher::Event;

use crate::object_name::ObjectName;

/// Names of objects by the keys of each; clones share it. It may be slightly ahead of the store or behind it: callers get
/// the object from the store and check that it still has the key.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyIndex(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    members: HashMap<String, BTreeSet<ObjectName>>,
    keys: HashMap<ObjectName, Vec<String>>,
    /// The entries of a list that is being read; older ones are removed at its end.
    listed: Option<HashSet<ObjectName>>,
}

impl KeyIndex {
    /// Takes an event of the watch in.
    pub(super) fn apply<K: Resource, Keys: IntoIterator<Item = String>>(
        &self,
        event: &Event<K>,
        keys: impl Fn(&K) -> Keys,
    ) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) => entries.put(ObjectName::of(object), keys(object)),
            Event::Delete(object) => entries.put(ObjectName::of(object), None),
            Event::Init => entries.listed = Some(HashSet::new()),
            Event::InitApply(object) => {
                if let Some(listed) = &mut entries.listed {
                    listed.insert(ObjectName::of(object));
                }
                entries.put(ObjectName::of(object), keys(object));
            }
            Event::InitDone => {
                let listed = entries.listed.take().unwrap_or_default();
                let gone: Vec<ObjectName> = entries
                    .keys
                    .keys()
                    .filter(|name| !listed.contains(name))
                    .cloned()
                    .collect();
                for name in gone {
                    entries.put(name, None);
                }
            }
        }
    }

    /// The objects of a key, by name.
    pub(super) fn members(&self, key: &str) -> Vec<ObjectName> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.members.get(key).into_iter().flatten().cloned().collect()
    }
}

impl Entries {
    /// Gives an object its keys, which may be none.
    fn put(&mut self, name: ObjectName, keys: impl IntoIterator<Item = String>) {
        let keys: Vec<String> = keys.into_iter().collect();
        if self.keys.get(&name).map_or(keys.is_empty(), |known| *known == keys) {
            return;
        }
        for old in self.keys.remove(&name).into_iter().flatten() {
            if let Some(members) = self.members.get_mut(&old) {
                members.remove(&name);
                if members.is_empty() {
                    self.members.remove(&old);
                }
            }
        }
        for key in &keys {
            self.members.entry(key.clone()).or_default().insert(name.clone());
        }
        if !keys.is_empty() {
            self.keys.insert(name, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt as _;

    use super::*;

    fn object(name: &str, key: Option<&str>) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("team".to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.labels = key.map(|key| [("key".to_owned(), key.to_owned())].into());
        object
    }

    fn check(events: Vec<Event<ConfigMap>>, expected: &[(&str, &[&str])]) {
        let index = KeyIndex::default();
        for event in events {
            index.apply(&event, |object| {
                let keys = object.labels().get("key").cloned().unwrap_or_default();
                keys.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            });
        }
        for (key, names) in expected {
            let members = index.members(key);
            let members: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            assert_eq!(members, *names, "{key}");
        }
        let entries = index.0.lock().unwrap();
        assert_eq!(
            entries.members.values().map(BTreeSet::len).sum::<usize>(),
            entries.keys.values().map(Vec::len).sum::<usize>(),
            "nothing is left behind"
        );
    }

    #[test]
    fn an_object_is_found_by_its_present_key_only() {
        let apply = |name: &str, key| Event::Apply(object(name, key));
        check(
            vec![apply("a", Some("x")), apply("b", Some("x")), apply("c", Some("y"))],
            &[("x", &["a", "b"]), ("y", &["c"]), ("z", &[])],
        );
        check(
            vec![apply("a", Some("x")), apply("a", Some("y"))],
            &[("x", &[]), ("y", &["a"])],
        );
        check(vec![apply("a", Some("x")), apply("a", None)], &[("x", &[])]);
        check(
            vec![apply("a", Some("x y")), apply("b", Some("y")), apply("a", Some("y z"))],
            &[("x", &[]), ("y", &["a", "b"]), ("z", &["a"])],
        );
        check(
            vec![apply("a", Some("x")), Event::Delete(object("a", Some("x")))],
            &[("x", &[])],
        );
    }

    #[test]
    fn objects_that_are_not_in_a_new_list_are_gone() {
        check(
            vec![
                Event::Apply(object("a", Some("x"))),
                Event::Apply(object("b", Some("x"))),
                Event::Init,
                Event::InitApply(object("b", Some("y"))),
                Event::InitApply(object("c", Some("x"))),
                Event::InitDone,
            ],
            &[("x", &["c"]), ("y", &["b"])],
        );
    }
}
