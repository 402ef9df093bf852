//! Follows the builders' records of environments, and requests a look where they change.

use std::sync::Arc;

use knack_api::SkillStatus;
use kube::ResourceExt as _;
use tokio::sync::watch;

use super::context::Context;
use super::world::decoded;
use crate::environments;

/// Follows without end.
pub(super) async fn follow(context: Arc<Context>) {
    let (changed, news) = watch::channel(());
    let (client, namespace) = (context.client.clone(), context.settings.namespace.clone());
    let following = environments::follow(client, namespace, |records| {
        context.environments.store(Arc::new(records));
        changed.send_replace(());
    });
    tokio::join!(following, notify(&context, news));
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
