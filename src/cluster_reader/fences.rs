//! The fences of runtimes that the cluster has: an index fed by watch events. Pure.
//!
//! The controller applies fences and checks them once a minute; the hub follows them, so that nothing runs behind one
//! that is gone, also while the controller is away.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_hub_api::RuntimeName;
use kube::runtime::watcher::Event;

use super::change_log::Change;
use crate::fence;

/// Names of runtimes.
type Names = BTreeSet<String>;

/// The runtimes with a fence that denies everything, by namespace.
#[derive(Debug, Clone, Default)]
pub struct Fences {
    /// The fenced runtimes of the namespaces whose list was read.
    known: BTreeMap<String, Names>,
    /// The fenced runtimes in lists that are being read.
    pending: BTreeMap<String, Names>,
}

impl Fences {
    /// Whether a runtime is known to have no fence that denies everything. While a list was not read, nothing is known: the
    /// controller's word counts then, as where an installation gives the hub no right to read policies.
    pub(crate) fn is_missing(&self, runtime: &RuntimeName) -> bool {
        let known = self.known.get(&runtime.namespace);
        known.is_some_and(|names| !names.contains(&runtime.name))
    }

    /// Whether the list of a namespace was read.
    pub(crate) fn is_known(&self, namespace: &str) -> bool {
        self.known.contains_key(namespace)
    }

    /// Applies an event of the watch over a namespace. Returns what it changed.
    pub(crate) fn apply(&mut self, namespace: &str, event: Event<NetworkPolicy>) -> Option<Change> {
        match event {
            Event::Init => {
                self.pending.insert(namespace.to_owned(), Names::new());
                None
            }
            Event::InitApply(policy) => {
                if let Some((runtime, true)) = fence::of_runtime(&policy) {
                    self.pending
                        .entry(namespace.to_owned())
                        .or_default()
                        .insert(runtime.name);
                }
                None
            }
            Event::InitDone => {
                let listed = self.pending.remove(namespace).unwrap_or_default();
                let is_same = self.known.get(namespace) == Some(&listed);
                self.known.insert(namespace.to_owned(), listed);
                (!is_same).then_some(Change::All)
            }
            Event::Apply(policy) => self.set(namespace, fence::of_runtime(&policy)?),
            Event::Delete(policy) => self.set(namespace, (fence::of_runtime(&policy)?.0, false)),
        }
    }

    fn set(&mut self, namespace: &str, (runtime, is_intact): (RuntimeName, bool)) -> Option<Change> {
        let names = self.known.entry(namespace.to_owned()).or_default();
        let has_changed = if is_intact {
            names.insert(runtime.name.clone())
        } else {
            names.remove(&runtime.name)
        };
        has_changed.then_some(Change::Runtime(runtime))
    }
}

#[cfg(test)]
mod tests {
    use knack_api::SkillRuntime;
    use serde_json::json;

    use super::*;

    fn policy(namespace: &str, name: &str) -> NetworkPolicy {
        let runtime: SkillRuntime =
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}})).unwrap();
        fence::deny_all(&runtime)
    }

    #[test]
    fn a_fence_that_is_deleted_or_opened_is_missing_from_then_on() {
        let name = RuntimeName::new("run", "main");
        let change = Some(Change::Runtime(name.clone()));
        let mut fences = Fences::default();
        assert!(!fences.is_missing(&name), "nothing was read yet");
        assert!(!fences.is_known("run"), "nothing was read yet");
        fences.apply("run", Event::Init);
        fences.apply("run", Event::InitApply(policy("run", "main")));
        assert!(!fences.is_missing(&name), "the list is being read");
        assert!(!fences.is_known("run"), "the list is being read");
        assert_eq!(fences.apply("run", Event::InitDone), Some(Change::All));
        assert!(!fences.is_missing(&name) && fences.is_missing(&RuntimeName::new("run", "other")));
        assert!(fences.is_known("run") && !fences.is_known("elsewhere"));
        let mut opened = policy("run", "main");
        opened.spec.as_mut().unwrap().policy_types = Some(vec!["Ingress".to_owned()]);
        for (what, event, changes, is_missing) in [
            ("as it was", Event::Apply(policy("run", "main")), &None, false),
            ("opened", Event::Apply(opened.clone()), &change, true),
            ("still open", Event::Apply(opened), &None, true),
            ("restored", Event::Apply(policy("run", "main")), &change, false),
            ("deleted", Event::Delete(policy("run", "main")), &change, true),
            ("made again", Event::Apply(policy("run", "main")), &change, false),
        ] {
            assert_eq!(&fences.apply("run", event), changes, "{what}");
            assert_eq!(fences.is_missing(&name), is_missing, "{what}");
        }
        // A list that is read again.
        fences.apply("run", Event::Init);
        fences.apply("run", Event::InitApply(policy("run", "main")));
        assert_eq!(fences.apply("run", Event::InitDone), None, "it says nothing new");
        fences.apply("run", Event::Init);
        assert_eq!(fences.apply("run", Event::InitDone), Some(Change::All));
        assert!(fences.is_missing(&name));
        assert!(!fences.is_missing(&RuntimeName::new("elsewhere", "main")));
    }
}
