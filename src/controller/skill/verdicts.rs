//! The verdicts of all runtimes on one skill, by the same selection as everywhere.

use knack_api::skill_status::{EarlierRevision, RuntimePackagesStatus, RuntimeVerdict, STATUS_RUNTIMES_MAX};
use knack_api::{Skill, SkillRuntime, SkillStatus};
use knack_vocabulary::defaults::REVISION_HISTORY;
use kube::ResourceExt as _;

use super::outline::Outline;
use crate::controller::cluster_state::decoded;
use crate::controller::conditions::Acceptance;
use crate::controller::context::Context;
use crate::controller::reason::{ConditionReason, served_instead, verdict_word};
use crate::selection::{
    Audience, EarlierState, Revision, Scope, Selected, earlier_state, environment, newest_version, packages, reaches,
    retained, select, version_matches,
};
use crate::shortened::cut;

/// Most characters of what a status says of packages.
const PACKAGES_MESSAGE_MAX: usize = 1024;

/// The verdicts of runtimes on a skill.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdicts {
    /// The first of them, for status.
    pub(super) listed: Vec<RuntimeVerdict>,
    /// Condition `Accepted`.
    pub(super) acceptance: Acceptance,
    /// Superseded revisions to keep: the most that any accepting runtime asks for.
    pub(super) history: Option<u32>,
    /// The earlier revisions that some runtime serves, or may.
    pub(super) earlier: Vec<EarlierRevision>,
}

/// Asks every runtime about a skill as it would be with a status.
pub(super) fn verdicts(context: &Context, outline: &Outline, status: &SkillStatus) -> Verdicts {
    let candidate = outline.with_status(status.clone());
    let others = context.cluster_state.of_words(outline.name(), &status.ids);
    let others: Vec<&Skill> = others
        .iter()
        .filter_map(|other| decoded(other))
        .filter(|other| other.metadata.uid != candidate.metadata.uid)
        .collect();
    let namespaces = context.cluster_state.namespace_labels();
    let environments = context.environments();
    let mut listed = Vec::new();
    let mut first_refusal = None;
    let (mut accepted_by, mut history) = (0_usize, None);
    let mut states = vec![EarlierState::Useless; status.earlier.len()];
    for runtime in context.cluster_state.runtimes().iter() {
        let Ok(runtime) = &runtime.0 else { continue };
        let (runtime_namespace, runtime_name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
        let scope = context.scope(&namespaces, environments.as_deref(), &runtime_namespace, &runtime_name);
        if !reaches(runtime, &scope, outline.namespace()) {
            continue;
        }
        let candidates = others.iter().copied().chain([&candidate]);
        let selected = select(runtime, &scope, Audience::All, candidates);
        let Some(item) = selected
            .iter()
            .find(|item| item.skill.metadata.uid == candidate.metadata.uid)
        else {
            continue;
        };
        let refusal = refusal(runtime, item);
        accepted_by += usize::from(refusal.is_none());
        if let Some(refusal) = refusal {
            first_refusal.get_or_insert_with(|| format!("{runtime_namespace}/{runtime_name}: {refusal}"));
        }
        if item.accepted.is_ok() {
            history = history.max(Some(history_limit(runtime)));
        }
        listed.push(runtime_verdict(runtime, item, &scope));
        for (known, earlier) in states.iter_mut().zip(&status.earlier) {
            *known = (*known).max(earlier_state(runtime, item, earlier, &scope));
        }
    }
    for known in &outline.before().runtimes {
        // Nobody knows what it selects now: as its hub, which has it as it was read last.
        if context
            .cluster_state
            .is_undecoded_runtime(&known.namespace, &known.name)
        {
            accepted_by += usize::from(known.accepted);
            listed.push(known.clone());
            history = history.max(Some(REVISION_HISTORY));
            for state in &mut states {
                *state = (*state).max(EarlierState::Possible);
            }
        }
    }
    listed.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    listed.truncate(STATUS_RUNTIMES_MAX);
    Verdicts {
        acceptance: acceptance(accepted_by, first_refusal),
        listed,
        history,
        earlier: retained(status.earlier.iter().cloned().zip(states).collect()),
    }
}

/// Superseded revisions that a runtime asks to keep.
fn history_limit(runtime: &SkillRuntime) -> u32 {
    let limit = runtime.spec.revision_history_limit;
    limit.unwrap_or(REVISION_HISTORY)
}

/// Why a runtime does not serve a skill.
fn refusal<'a>(runtime: &SkillRuntime, item: &'a Selected<'_>) -> Option<&'a str> {
    match &item.accepted {
        Err(rejection) => Some(&rejection.message),
        Ok(_) => runtime
            .spec
            .is_suspended()
            .then_some("spec.suspend of the SkillRuntime is true: it serves no skill"),
    }
}

fn runtime_verdict(runtime: &SkillRuntime, item: &Selected<'_>, scope: &Scope<'_>) -> RuntimeVerdict {
    let (accepted, word) = verdict_word(runtime, item);
    RuntimeVerdict {
        namespace: runtime.namespace().unwrap_or_default(),
        name: runtime.name_any(),
        accepted,
        reason: word.to_owned(),
        serves: served_instead(runtime, item).map(str::to_owned),
        packages: packages_status(runtime, item, scope),
    }
}

/// The state of the packages of the newest revision, and the packages of runs of the one in service. Of a revision that the pin
/// does not take nothing is built, so the state is that of the one in service; it is where a pin chooses another version, too.
pub(in crate::controller) fn packages_status(
    runtime: &SkillRuntime,
    item: &Selected<'_>,
    scope: &Scope<'_>,
) -> Option<RuntimePackagesStatus> {
    let newest = Revision::newest(item.skill);
    let earlier = item.earlier.map(|earlier| Revision::earlier(item.skill, earlier));
    let is_chosen = item.earlier.is_some_and(|earlier| earlier.upload_version.is_some());
    let judged = if !is_chosen && version_matches(item.pin, newest_version(item.skill)) {
        newest
    } else {
        earlier?
    };
    let given = environment(runtime, earlier.unwrap_or(newest), scope).ok().flatten();
    packages(runtime, judged, scope).map(|verdict| RuntimePackagesStatus {
        state: verdict.state.to_string(),
        message: cut(&verdict.message, PACKAGES_MESSAGE_MAX),
        source: verdict.given.map(str::to_owned),
        environment: given.map(|given| given.image.clone()),
    })
}

fn acceptance(accepted_by: usize, first_refusal: Option<String>) -> Acceptance {
    let (accepted, reason, message) = match (accepted_by, first_refusal) {
        (0, None) => (
            false,
            ConditionReason::NoRuntime,
            "no SkillRuntime selects this skill; create one in its namespace, or let the cluster default select it"
                .to_owned(),
        ),
        (0, Some(refusal)) => (false, ConditionReason::Rejected, refusal),
        (1, _) => (true, ConditionReason::Accepted, "served by 1 runtime".to_owned()),
        (count, _) => (true, ConditionReason::Accepted, format!("served by {count} runtimes")),
    };
    Acceptance {
        accepted,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::selection::NamespaceLabels;

    #[test]
    fn a_suspended_runtime_does_not_accept_a_skill_and_says_so() {
        let skill: Skill = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": "word", "namespace": "n"},
            "spec": {"source": {}},
            "status": {"artifact": {"revision": "r", "digest": "d", "size": 1, "fileCount": 1}},
        }))
        .unwrap();
        let none = NamespaceLabels::new();
        let scope = Scope::plain(&none);
        for (suspend, expected, message) in [
            (false, (true, "Accepted"), "served by 1 runtime"),
            (
                true,
                (false, "RuntimeSuspended"),
                "n/main: spec.suspend of the SkillRuntime is true",
            ),
        ] {
            let runtime: SkillRuntime = serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": "main", "namespace": "n"},
                "spec": {"suspend": suspend},
            }))
            .unwrap();
            let selected = select(&runtime, &scope, Audience::All, [&skill]);
            let verdict = runtime_verdict(&runtime, &selected[0], &scope);
            assert_eq!((verdict.accepted, verdict.reason.as_str()), expected);
            let refusal = refusal(&runtime, &selected[0]).map(|refusal| format!("n/main: {refusal}"));
            let acceptance = acceptance(usize::from(refusal.is_none()), refusal);
            assert_eq!(acceptance.accepted, !suspend);
            assert!(acceptance.message.starts_with(message), "{}", acceptance.message);
        }
    }
}
