//! Which runtimes have to look again after a change, so that one skill's change costs what it touches.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

use super::context::Context;
use super::settings::{RUNTIME_PAUSE, RUNTIME_PAUSE_MAX};
use super::world::WatchedRuntime;
use crate::api::SkillRuntime;
use crate::selection::{Scope, namespaces_reached, reaches};

/// What changed since runtimes looked last.
#[derive(Debug, Default)]
pub(super) struct Dirt {
    changed: Mutex<Changed>,
    notify: Notify,
}

/// Namespaces, by what changed about them.
#[derive(Debug, Default)]
struct Changed {
    skills: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Dirt {
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

    fn take(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Changed {
    /// Whether a runtime has to look again.
    fn touches(&self, runtime: &SkillRuntime, scope: &Scope<'_>) -> bool {
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

/// Turns any number of changes into one look per pause, of the runtimes that they touch.
pub(super) async fn pace(context: &Context) {
    let mut pause = RUNTIME_PAUSE;
    loop {
        let quiet = tokio::time::Instant::now();
        context.dirt.notify.notified().await;
        let quiet = quiet.elapsed();
        tokio::time::sleep(pause).await;
        let touched = touched(context, &context.dirt.take());
        pause = next_pause(pause, quiet, !touched.is_empty());
        for runtime in touched {
            context.trigger_runtime(runtime).await;
        }
    }
}

/// Looks go further apart while changes keep coming: a look at ten thousand skills four times a second is work for nothing.
fn next_pause(pause: Duration, quiet: Duration, has_looked: bool) -> Duration {
    if !has_looked || quiet > RUNTIME_PAUSE {
        return RUNTIME_PAUSE;
    }
    pause.saturating_mul(2).min(RUNTIME_PAUSE_MAX)
}

fn touched(context: &Context, changed: &Changed) -> Vec<ObjectRef<WatchedRuntime>> {
    let labels = context.world.namespace_labels();
    let runtimes = context.world.runtimes();
    let decoded = runtimes.iter().filter_map(|runtime| runtime.0.as_ref().ok());
    let touched = decoded.filter(|runtime| {
        let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
        changed.touches(runtime, &context.scope(&labels, &namespace, &name))
    });
    touched
        .map(|runtime| ObjectRef::new(&runtime.name_any()).within(&runtime.namespace().unwrap_or_default()))
        .collect()
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
    fn a_change_is_looked_at_by_those_whom_it_touches() {
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

    #[test]
    fn looks_go_apart_in_a_storm_and_come_back_after_it() {
        let mut pause = RUNTIME_PAUSE;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pause = next_pause(pause, Duration::ZERO, true);
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
        assert_eq!(next_pause(pause, Duration::from_secs(1), true), RUNTIME_PAUSE);
        assert_eq!(next_pause(pause, Duration::ZERO, false), RUNTIME_PAUSE);
    }
}
