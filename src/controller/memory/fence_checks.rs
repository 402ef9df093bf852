//! The last checks of the fences of runtimes.

use std::time::{Duration, Instant};

use knack_api::SkillRuntime;

use super::bounded_map::BoundedMap;
use crate::controller::conditions::Verdict;
use crate::controller::settings::FENCE_CHECK_INTERVAL;
use crate::object_name::ObjectName;

/// The results of the last checks, by the runtime's name.
#[derive(Debug, Default)]
pub(in crate::controller) struct FenceChecks(BoundedMap<ObjectName, FenceCheck>);

/// The result of the last check of a runtime's fence.
#[derive(Debug)]
struct FenceCheck {
    uid: Option<String>,
    generation: Option<i64>,
    at: Instant,
    verdict: Option<Verdict>,
}

impl FenceChecks {
    /// The result of the last check of a runtime's fence, while it is of this generation and no older than
    /// [`FENCE_CHECK_INTERVAL`], and how long it stays valid.
    pub(in crate::controller) fn get(&self, runtime: &SkillRuntime) -> Option<(Option<Verdict>, Duration)> {
        let checks = self.0.lock();
        let check = checks
            .get(&ObjectName::of(runtime))
            .filter(|check| check.is_of(runtime))?;
        let left = FENCE_CHECK_INTERVAL.checked_sub(check.at.elapsed())?;
        Some((check.verdict.clone(), left))
    }

    /// Whether this generation of a runtime was reconciled before.
    pub(in crate::controller) fn has_seen(&self, runtime: &SkillRuntime) -> bool {
        let checks = self.0.lock();
        checks
            .get(&ObjectName::of(runtime))
            .is_some_and(|check| check.is_of(runtime))
    }

    /// Stores the result of a check of a runtime's fence.
    pub(in crate::controller) fn remember(&self, runtime: &SkillRuntime, verdict: Option<Verdict>) {
        let check = FenceCheck {
            uid: runtime.metadata.uid.clone(),
            generation: runtime.metadata.generation,
            at: Instant::now(),
            verdict,
        };
        self.0.remember(ObjectName::of(runtime), check);
    }

    /// Forgets the checks of a namespace.
    pub(super) fn forget(&self, namespace: &str) {
        self.0.lock().retain(|of, _| of.namespace != namespace);
    }
}

impl FenceCheck {
    fn is_of(&self, runtime: &SkillRuntime) -> bool {
        self.uid == runtime.metadata.uid && self.generation == runtime.metadata.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_checked_once_per_generation_and_pause() {
        let checks = FenceChecks::default();
        let runtime = |uid: &str, generation: i64| -> SkillRuntime {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "spec": {},
                "metadata": {"name": "main", "namespace": "n", "uid": uid, "generation": generation},
            }))
            .unwrap()
        };
        let first = runtime("u", 1);
        assert!(checks.get(&first).is_none() && !checks.has_seen(&first));
        checks.remember(&first, None);
        let mut evaluations = 0;
        for _ in 0..1_000 {
            evaluations += usize::from(checks.get(&first).is_none());
        }
        assert_eq!(evaluations, 0, "a look at skills asks for no fence");
        assert!(checks.get(&runtime("u", 2)).is_none(), "an edit");
        assert!(checks.get(&runtime("v", 1)).is_none(), "another one of the name");
        checks.forget("n");
        assert!(checks.get(&first).is_none());
    }
}
