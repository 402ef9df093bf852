//! Follows the builders' records of environments, and requests a look where they change.

use std::sync::Arc;
use std::time::Duration;

use knack_api::SkillStatus;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tracing::warn;

use super::context::Context;
use super::world::decoded;
use crate::environments;

/// How long the first look at Skills waits for the records: what is judged without them says of environments that are there that
/// they are not, until the records come. Records that cannot be had, as without the right to read them, delay nobody for longer.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// Follows without end. `listed` becomes true when the records are there, and after [`LIST_WITHIN`] without them.
pub(super) async fn follow(context: Arc<Context>, listed: watch::Sender<bool>) {
    let (changed, news) = watch::channel(());
    let (client, namespace) = (context.client.clone(), context.settings.namespace.clone());
    let following = environments::follow(client, namespace, |records| {
        context.environments.store(Arc::new(records));
        listed.send_replace(true);
        changed.send_replace(());
    });
    let patience = async {
        tokio::time::sleep(LIST_WITHIN).await;
        if !listed.send_replace(true) {
            warn!("the records of environments cannot be read: the status of skills with packages may be wrong");
        }
    };
    tokio::join!(following, patience, notify(&context, news));
}

/// Skills with packages look again, and the runtimes that reach them.
async fn notify(context: &Context, mut news: watch::Receiver<()>) {
    while news.changed().await.is_ok() {
        context.world.ready().await;
        for skill in context.world.skills() {
            let Some(skill) = decoded(&skill) else { continue };
            // Its own, or what a runtime gives it.
            let has_packages = |status: &SkillStatus| {
                status.packages.is_some() || status.runtimes.iter().any(|verdict| verdict.packages.is_some())
            };
            if skill.status.as_ref().is_some_and(has_packages) {
                let namespace = skill.namespace().unwrap_or_default();
                context.changes.skills_of(&namespace);
                context.trigger_skill(&namespace, &skill.name_any()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Method;
    use knack_vocabulary::CONFIG_MAP_PACKAGES;
    use serde_json::json;

    use super::super::fixture::{lead, settings, start};
    use super::super::settings::ControllerSettings;

    /// Lists of records that fail before one is answered.
    const FAILURES: usize = 2;

    #[tokio::test]
    async fn no_skill_is_judged_before_the_records_are_listed() {
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
            (&Method::GET, "/api/v1/namespaces/home/configmaps") => {
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
