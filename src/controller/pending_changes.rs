//! Which runtimes have to look again after a change, so that one skill's change costs what it touches.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use knack_api::SkillRuntime;
use tokio::sync::Notify;

use crate::selection::{Scope, namespaces_reached, reaches};

/// What changed since runtimes looked last.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changed: Mutex<Changed>,
    pub(super) notify: Notify,
}

/// Namespaces, by what changed about them.
#[derive(Debug, Default)]
pub(super) struct Changed {
    skills: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl PendingChanges {
    /// A skill of a namespace came, changed or went.
    pub(super) fn skills_of(&self, namespace: &str) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.skills.contains(namespace) {
            changed.skills.insert(namespace.to_owned());
        }
        drop(changed);
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
    /// Whether a runtime has to look again.
    pub(super) fn touches(&self, runtime: &SkillRuntime, scope: &Scope<'_>) -> bool {
        if self.skills.iter().any(|namespace| reaches(runtime, scope, namespace)) {
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

    /// How many of 200 runtimes of their own namespaces, a cluster default, one with a selector and one with a pin look again.
    fn looks(changed: &Changed) -> usize {
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
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
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
                skills: set(skills),
                labels: set(labels),
            };
            assert_eq!(looks(&changed), expected, "{skills:?} {labels:?}");
        }
    }
}
