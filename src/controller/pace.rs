//! Which runtimes are reconciled after a change, and when.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use super::cluster_state::WatchedRuntime;
use super::context::Context;
use super::pending_changes::Changed;
use super::settings::{RUNTIME_PAUSE, RUNTIME_PAUSE_MAX};
use crate::object_name::ObjectName;

/// Turns any number of changes into one reconcile per pause, of the runtimes that they touch.
pub(super) async fn pace(context: &Context) {
    let mut pause = RUNTIME_PAUSE;
    loop {
        let quiet = tokio::time::Instant::now();
        context.changes.notify.notified().await;
        let quiet = quiet.elapsed();
        tokio::time::sleep(pause).await;
        let touched = touched(context, &context.changes.take());
        pause = next_pause(pause, quiet, !touched.is_empty());
        if !touched.is_empty() {
            context.trigger_runtimes(touched).await;
        }
    }
}

/// The runtimes that a change touches; it is noted for each.
pub(super) fn touched(context: &Context, changed: &Changed) -> Vec<ObjectRef<WatchedRuntime>> {
    let labels = context.cluster_state.namespace_labels();
    let (runtimes, environments) = (context.cluster_state.runtimes(), context.environments());
    let decoded = runtimes.iter().filter_map(|runtime| runtime.0.as_ref().ok());
    let touched = decoded.filter(|runtime| {
        let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
        changed.touches(
            runtime,
            &context.scope(&labels, environments.as_deref(), &namespace, &name),
        )
    });
    let touched = touched.inspect(|runtime| {
        context.evaluations.note(&ObjectName::of(*runtime), changed);
    });
    touched
        .map(|runtime| ObjectRef::new(&runtime.name_any()).within(&runtime.namespace().unwrap_or_default()))
        .collect()
}

/// Reconciles are spaced further apart while changes keep arriving: going through ten thousand skills four times a
/// second gains nothing.
pub(super) fn next_pause(pause: Duration, quiet: Duration, has_reconciled: bool) -> Duration {
    if !has_reconciled || quiet > RUNTIME_PAUSE {
        return RUNTIME_PAUSE;
    }
    pause.saturating_mul(2).min(RUNTIME_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciles_go_apart_in_a_storm_and_come_back_after_it() {
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
