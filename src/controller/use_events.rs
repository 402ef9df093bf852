//! Events of Skills that say nothing but a later `status.lastUsedTime`: they are no reason to reconcile anything.

use std::collections::HashMap;
use std::sync::Arc;

use knack_api::Skill;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

use super::cluster_state::WatchedSkill;

/// The Skills of a store as the last events left them.
#[derive(Debug)]
pub(super) struct LastEvents {
    store: Store<WatchedSkill>,
    /// The objects are the store's own.
    seen: HashMap<ObjectRef<WatchedSkill>, Arc<WatchedSkill>>,
}

impl LastEvents {
    /// No events were seen yet, and the store is empty.
    pub(super) fn of(store: Store<WatchedSkill>) -> Self {
        Self {
            store,
            seen: HashMap::new(),
        }
    }

    /// Whether an event, which the store has already, changes nothing but the time of the last use.
    pub(super) fn is_use(&mut self, event: &Event<WatchedSkill>) -> bool {
        match event {
            Event::Init | Event::InitApply(_) => false,
            Event::InitDone => {
                let listed = self.store.state().into_iter();
                self.seen = listed.map(|skill| (ObjectRef::from_obj(&*skill), skill)).collect();
                false
            }
            Event::Delete(skill) => {
                self.seen.remove(&ObjectRef::from_obj(skill));
                false
            }
            Event::Apply(skill) => {
                let key = ObjectRef::from_obj(skill);
                let Some(stored) = self.store.get(&key) else {
                    return false;
                };
                let before = self.seen.insert(key, stored);
                before.is_some_and(|before| differs_in_use_only(&before, skill))
            }
        }
    }
}

fn differs_in_use_only(before: &WatchedSkill, after: &WatchedSkill) -> bool {
    let (Ok(before), Ok(after)) = (&before.0, &after.0) else {
        return false;
    };
    let used = |skill: &Skill| skill.status.as_ref().and_then(|status| status.last_used_time.clone());
    let others = |skill: &Skill| {
        let mut skill = skill.clone();
        skill.metadata.resource_version = None;
        let mut status = skill.status.unwrap_or_default();
        status.last_used_time = None;
        skill.status = Some(status);
        skill
    };
    used(before) != used(after) && others(before) == others(after)
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use kube::runtime::reflector;
    use serde_json::{Value, json};

    use super::*;

    fn skill(version: &str, label: &str, status: &Value) -> WatchedSkill {
        let object = json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "n", "name": "s", "uid": "u", "resourceVersion": version, "labels": {"l": label}},
            "spec": {"source": {}}, "status": status,
        });
        DeserializeGuard(Ok(serde_json::from_value(object).unwrap()))
    }

    #[test]
    #[expect(clippy::large_stack_arrays, reason = "the rows of one test")]
    fn only_an_event_that_moves_the_time_and_nothing_else_is_a_use() {
        let (store, mut writer) = reflector::store::<WatchedSkill>();
        let mut events = LastEvents::of(store);
        let used = |minute: u8, seen: i64| json!({"observedGeneration": seen, "lastUsedTime": format!("2026-01-01T00:{minute:02}:00Z")});
        for (number, (event, expected)) in [
            (Event::Init, false),
            (Event::InitApply(skill("1", "a", &json!(null))), false),
            (Event::InitDone, false),
            (
                Event::Apply(skill("2", "a", &json!({"lastUsedTime": "2026-01-01T00:00:00Z"}))),
                true,
            ),
            (Event::Apply(skill("3", "a", &used(0, 1))), false),
            (Event::Apply(skill("4", "a", &used(5, 1))), true),
            (Event::Apply(skill("5", "a", &used(10, 1))), true),
            // The uses again as they were, as after a write that changed nothing but the bookkeeping: as without this.
            (Event::Apply(skill("6", "a", &used(10, 1))), false),
            (Event::Apply(skill("7", "a", &used(15, 2))), false),
            (Event::Apply(skill("8", "b", &used(20, 2))), false),
            (Event::Delete(skill("9", "b", &used(20, 2))), false),
            (Event::Apply(skill("10", "b", &used(25, 2))), false),
            (Event::Init, false),
            (Event::InitApply(skill("11", "b", &used(30, 2))), false),
            (Event::InitDone, false),
            (Event::Apply(skill("12", "b", &used(35, 2))), true),
        ]
        .into_iter()
        .enumerate()
        {
            writer.apply_watcher_event(&event);
            assert_eq!(events.is_use(&event), expected, "{number}: {event:?}");
        }
    }
}
