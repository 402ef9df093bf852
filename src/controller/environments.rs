//! Follows the builders' statuses of environments, and requests reconciles where they change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use knack_api::{Skill, SkillRuntime};
use knack_packages::{EnvironmentKey, EnvironmentStatus, EnvironmentStatuses};
use kube::ResourceExt as _;
use tokio::sync::watch;
use tracing::warn;

use super::cluster_state::decoded;
use super::context::Context;
use crate::environments;
use crate::selection::{Revision, Scope, asked, reaches};

/// How long the first reconcile of Skills waits for the statuses: what is judged without them says of environments that
/// are there that they are not, until the statuses come. Statuses that cannot be had, as without the right to read
/// them, delay nobody for longer.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// Follows without end. `listed` becomes true when the statuses are there, and after [`LIST_WITHIN`] without them.
pub(super) async fn follow(context: Arc<Context>, listed: watch::Sender<bool>) {
    let (changed, news) = watch::channel(());
    let (client, namespace) = (context.client.clone(), context.settings.namespace.clone());
    let following = environments::follow(client, namespace, |statuses| {
        // Builders write times all along. The same object, so that what was made with it stays valid.
        if !others(&context.environments.load(), &statuses).is_empty() {
            context.environments.store(Arc::new(statuses));
            changed.send_replace(());
        }
        listed.send_replace(true);
    });
    let patience = async {
        tokio::time::sleep(LIST_WITHIN).await;
        if !listed.send_replace(true) {
            warn!("the statuses of environments cannot be read: the status of skills with packages may be wrong");
        }
    };
    tokio::join!(following, patience, notify(&context, news));
}

/// Skills that ask for an environment whose status has changed are reconciled, and the runtimes that reach them.
async fn notify(context: &Context, mut news: watch::Receiver<()>) {
    let mut known = Arc::new(EnvironmentStatuses::default());
    while news.changed().await.is_ok() {
        context.cluster_state.ready().await;
        let statuses = context.environments.load_full();
        let changed = others(&known, &statuses);
        let (labels, runtimes) = (
            context.cluster_state.namespace_labels(),
            context.cluster_state.runtimes(),
        );
        let scoped = runtimes.iter().filter_map(|runtime| {
            let runtime = runtime.0.as_ref().ok()?;
            let (namespace, name) = (runtime.namespace().unwrap_or_default(), runtime.name_any());
            Some((runtime, context.scope(&labels, Some(&statuses), &namespace, &name)))
        });
        let scoped: Vec<(&SkillRuntime, Scope<'_>)> = scoped.collect();
        for skill in context.cluster_state.skills() {
            let Some(skill) = decoded(&skill) else { continue };
            let mut scoped = scoped.iter();
            if scoped.any(|(runtime, scope)| asks_for(runtime, skill, scope, &changed)) {
                let (namespace, name) = (skill.namespace().unwrap_or_default(), skill.name_any());
                context.changes.skill(&namespace, &name);
                context.trigger_skill(&namespace, &name).await;
            }
        }
        known = statuses;
    }
}

/// The keys whose statuses differ in what verdicts depend on: not in times, which change all along.
fn others<'a>(before: &'a EnvironmentStatuses, now: &'a EnvironmentStatuses) -> BTreeSet<&'a EnvironmentKey> {
    let said = |status: &EnvironmentStatus| EnvironmentStatus {
        since: 0,
        used: 0,
        ..status.clone()
    };
    let keys = before.0.keys().chain(now.0.keys());
    keys.filter(|key| before.get(key).map(said) != now.get(key).map(said))
        .collect()
}

/// Whether a runtime that reaches a skill asks for one of these environments for some revision of it.
fn asks_for(runtime: &SkillRuntime, skill: &Skill, scope: &Scope<'_>, keys: &BTreeSet<&EnvironmentKey>) -> bool {
    let earlier = skill.status.iter().flat_map(|status| &status.earlier);
    let earlier = earlier.map(|earlier| Revision::earlier(skill, earlier));
    let mut revisions = [Revision::newest(skill)].into_iter().chain(earlier);
    reaches(runtime, scope, skill.metadata.namespace.as_deref().unwrap_or_default())
        && revisions.any(|revision| {
            let asked = asked(runtime, revision, scope);
            asked.is_some_and(|asked| keys.contains(&asked.key))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Method;
    use knack_packages::{Rules, State};
    use knack_vocabulary::CONFIG_MAP_PACKAGES;
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::fixture::{lead, settings, start};
    use crate::controller::settings::ControllerSettings;
    use crate::selection::NamespaceLabels;

    /// Lists of statuses that fail before one is answered.
    const FAILURES: usize = 2;

    fn status(state: State, message: &str, used: i64) -> EnvironmentStatus {
        EnvironmentStatus {
            state,
            message: message.to_owned(),
            environment: None,
            is_partial: false,
            since: used,
            used,
        }
    }

    #[test]
    fn statuses_differ_in_what_they_say_and_not_in_times() {
        let statuses = |list: &[(&str, State, &str, i64)]| {
            let list = list
                .iter()
                .map(|(key, state, message, used)| ((*key).into(), status(*state, message, *used)));
            EnvironmentStatuses(list.collect())
        };
        let before = statuses(&[("a", State::Building, "m", 1), ("b", State::Failed, "m", 1)]);
        for (now, expected) in [
            (
                &[("a", State::Building, "m", 9), ("b", State::Failed, "m", 2)][..],
                &[][..],
            ),
            (&[("a", State::Failed, "m", 1), ("b", State::Failed, "m", 1)], &["a"]),
            (
                &[("a", State::Building, "other", 1), ("b", State::Failed, "m", 1)],
                &["a"],
            ),
            (&[("a", State::Building, "m", 1)], &["b"]),
            (
                &[
                    ("a", State::Building, "m", 1),
                    ("b", State::Failed, "m", 1),
                    ("c", State::Failed, "m", 1),
                ],
                &["c"],
            ),
        ] {
            let now = statuses(now);
            let changed: Vec<&str> = others(&before, &now).into_iter().map(EnvironmentKey::as_str).collect();
            assert_eq!(changed, expected);
        }
    }

    #[test]
    fn only_skills_that_ask_for_a_changed_environment_are_reconciled() {
        let base = "r.io/python@sha256:00";
        let of = |digest: &str| EnvironmentKey::of(digest, true, &Rules::default(), base);
        let declared = |digest: &str| json!({"source": "requirements.lock", "locked": true, "python": ["six==1"], "digest": digest});
        let skill = |namespace: &str, packages: Value, earlier: Value| -> Skill {
            serde_json::from_value(json!({
                "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"namespace": namespace, "name": "draw"},
                "spec": {"source": {}}, "status": {"packages": packages, "earlier": earlier},
            }))
            .unwrap()
        };
        let runtime: SkillRuntime = serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"namespace": "n", "name": "main"},
            "spec": {"sandbox": {"image": base}},
        }))
        .unwrap();
        let (none, statuses, one) = (NamespaceLabels::new(), EnvironmentStatuses::default(), of("d1"));
        let changed = BTreeSet::from([&one]);
        let scope = Scope {
            allow_image_tags: false,
            environments: Some(&statuses),
            ..Scope::plain(&none)
        };
        let before = json!([{"revision": "r", "digest": "d", "packages": declared("d1")}]);
        for (what, skill, expected) in [
            ("its own", skill("n", declared("d1"), json!([])), true),
            ("another one", skill("n", declared("d2"), json!([])), false),
            ("of an earlier revision", skill("n", declared("d2"), before), true),
            ("none", skill("n", json!(null), json!([])), false),
            ("elsewhere", skill("m", declared("d1"), json!([])), false),
        ] {
            assert_eq!(asks_for(&runtime, &skill, &scope, &changed), expected, "{what}");
        }
    }

    #[tokio::test]
    async fn no_skill_is_judged_before_the_statuses_are_listed() {
        let (patched, judged) = tokio::sync::oneshot::channel();
        let (patched, lists) = (Mutex::new(Some(patched)), Mutex::new(0));
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "team", "name": "draw", "uid": "s", "resourceVersion": "10", "generation": 1},
            "spec": {"source": {"inline": {"files": {"SKILL.md": "no frontmatter"}}}}});
        let (address, _lease) = start(move |method, path, _| match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skills") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [skill]}))
            }
            (&Method::GET, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw") => Some(skill.clone()),
            (&Method::GET, "/api/v1/namespaces/home/configmaps?name=knack-packages") => {
                let mut lists = lists.lock().unwrap();
                *lists += 1;
                Some(if *lists > FAILURES {
                    json!({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": CONFIG_MAP_PACKAGES}}]})
                } else {
                    json!("no list")
                })
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw/status") => {
                if let Some(patched) = patched.lock().unwrap().take() {
                    patched.send(*lists.lock().unwrap()).unwrap();
                }
                Some(skill.clone())
            }
            _ => None,
        });
        let settings = ControllerSettings {
            packages: true,
            ..settings()
        };
        let (leading, shutdown) = lead(address, settings).await;
        assert_eq!(
            judged.await,
            Ok(FAILURES + 1),
            "lists of records before the first status"
        );
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }
}
