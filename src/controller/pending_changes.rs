//! Which runtimes a change affects: only these are reconciled, so the cost of one skill's change does not depend on all runtimes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use knack_api::SkillRuntime;
use tokio::sync::Notify;

use crate::selection::{Scope, namespaces_reached, reaches};

/// The changes since runtimes were reconciled last.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changed: Mutex<Changed>,
    pub(super) notify: Notify,
}

/// Names that are noted of one namespace; beyond it all of its skills count as changed.
const NAMES_MAX: usize = 64;

/// Namespaces, by what changed about them.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// With the names of the skills; `None`: any of them.
    skills: BTreeMap<String, Option<BTreeSet<String>>>,
    labels: BTreeSet<String>,
    /// Skills may have gone that no event names.
    listed_anew: bool,
}

impl PendingChanges {
    /// Any skills of a namespace came, changed or went.
    pub(super) fn skills_of(&self, namespace: &str) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.skills.insert(namespace.to_owned(), None);
        drop(changed);
        self.notify.notify_one();
    }

    /// One skill came, changed or went.
    pub(super) fn skill(&self, namespace: &str, name: &str) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.skills.contains_key(namespace) {
            changed.skills.insert(namespace.to_owned(), Some(BTreeSet::new()));
        }
        if let Some(names) = changed.skills.get_mut(namespace)
            && let Some(known) = names
        {
            known.insert(name.to_owned());
            if known.len() > NAMES_MAX {
                *names = None;
            }
        }
        drop(changed);
        self.notify.notify_one();
    }

    /// Skills were listed anew: what went before the list is not in it, and has no event.
    pub(super) fn list_of_skills(&self) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).listed_anew = true;
        self.notify.notify_one();
    }

    /// A namespace came, changed or went.
    pub(super) fn labels_of(&self, namespace: String) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.labels.insert(namespace);
        drop(changed);
        self.notify.notify_one();
    }

    pub(super) fn take(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Changed {
    /// Which skills changed, if it is known of each, and no namespace's labels did.
    pub(super) fn names(&self) -> Option<impl Iterator<Item = (&str, &str)>> {
        let is_known = !self.listed_anew && self.labels.is_empty() && self.skills.values().all(Option::is_some);
        let names = self.skills.iter().flat_map(|(namespace, names)| {
            let names = names.iter().flatten();
            names.map(move |name| (namespace.as_str(), name.as_str()))
        });
        is_known.then_some(names)
    }

    /// Whether a runtime has to be reconciled.
    pub(super) fn touches(&self, runtime: &SkillRuntime, scope: &Scope<'_>) -> bool {
        if self.listed_anew || self.skills.keys().any(|namespace| reaches(runtime, scope, namespace)) {
            return true;
        }
        // A selector may match now or have matched before; a skill's consent may go by the labels of the runtime's namespace.
        !self.labels.is_empty()
            && (namespaces_reached(runtime, scope).is_none()
                || runtime
                    .metadata
                    .namespace
                    .as_ref()
                    .is_some_and(|own| self.labels.contains(own)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::selection::NamespaceLabels;

    fn runtime(namespace: &str, spec: &serde_json::Value) -> SkillRuntime {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "main", "namespace": namespace}, "spec": spec,
        }))
        .unwrap()
    }

    /// How many of 200 runtimes of their own namespaces, a cluster default, one with a selector and one with a pin are
    /// reconciled.
    fn evaluations(changed: &Changed) -> usize {
        let labels: NamespaceLabels = [("n7".to_owned(), [("team".to_owned(), "a".to_owned())].into())].into();
        let scope = |cluster_default| Scope {
            cluster_default,
            namespaces: &labels,
            default_image: None,
            allow_image_tags: false,
            environments: None,
        };
        let mut runtimes: Vec<_> = (0..200)
            .map(|number| (runtime(&format!("n{number}"), &json!({})), false))
            .collect();
        let selector = json!({"skillSelector": {"namespaceSelector": {"matchLabels": {"team": "a"}}}});
        let pin = json!({"skillSelector": {"skills": [{"name": "x", "namespace": "n8"}]}});
        runtimes.push((runtime("home", &json!({})), true));
        runtimes.push((runtime("teams", &selector), false));
        runtimes.push((runtime("pins", &pin), false));
        let touched = runtimes
            .iter()
            .filter(|(runtime, default)| changed.touches(runtime, &scope(*default)));
        touched.count()
    }

    #[test]
    fn a_change_reconciles_only_what_it_affects() {
        for (skills, labels, expected) in [
            (&["n5"][..], &[][..], 2),
            (&["n7"], &[], 3),
            (&["n8"], &[], 3),
            (&["elsewhere"], &[], 1),
            (&["n5", "n6"], &[], 3),
            (&[], &["elsewhere"], 2),
            (&[], &["n5"], 3),
            (&[], &[], 0),
        ] {
            let changed = Changed {
                skills: skills.iter().map(|name| ((*name).to_owned(), None)).collect(),
                labels: labels.iter().map(|name| (*name).to_owned()).collect(),
                listed_anew: false,
            };
            assert_eq!(evaluations(&changed), expected, "{skills:?} {labels:?}");
        }
        let listed = Changed {
            listed_anew: true,
            ..Changed::default()
        };
        assert_eq!(evaluations(&listed), 203, "after a new list all of them");
    }

    #[test]
    fn names_are_known_until_there_are_too_many_or_something_else_changed() {
        let names = |pending: &PendingChanges| {
            let changed = pending.take();
            changed
                .names()
                .map(|names| names.map(|(_, name)| name.to_owned()).collect::<Vec<_>>())
        };
        let pending = PendingChanges::default();
        for name in ["a", "b", "a"] {
            pending.skill("n", name);
        }
        assert_eq!(names(&pending), Some(vec!["a".to_owned(), "b".to_owned()]));
        pending.skill("n", "a");
        pending.skills_of("n");
        pending.skill("n", "b");
        assert_eq!(names(&pending), None, "any of a namespace");
        pending.skill("n", "a");
        pending.labels_of("n".to_owned());
        assert_eq!(names(&pending), None, "labels of a namespace");
        pending.skill("n", "a");
        pending.list_of_skills();
        assert_eq!(names(&pending), None, "a new list");
        for number in 0..=NAMES_MAX {
            pending.skill("n", &number.to_string());
        }
        assert_eq!(names(&pending), None, "too many");
        assert_eq!(names(&pending), Some(Vec::new()), "they are taken once");
    }
}
