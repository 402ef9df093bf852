//! The process: its servers, leadership, end. The leader does [`super::leader_tasks`].

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_vocabulary::{ANNOTATION_SCOPE, LEASE_CONTROLLER};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::ControllerError;
use super::http::{self, Phase};
use super::leader_tasks::reconcile;
use super::metrics::Metrics;
use super::settings::ControllerSettings;
use super::webhook::Webhook;
use super::{account, definitions, other_releases};
use crate::lease::{Keeper, LeaseHolder, LeaseSettings};
use crate::tasks::TaskEnded;

/// Runs until cancelled, or until leadership is lost. `leases` renews the leader's Lease on a thread of its own, so that neither
/// many Skills nor a large archive make this process lose it.
pub async fn run(
    client: Client,
    leases: Keeper,
    settings: ControllerSettings,
    listener: TcpListener,
    webhook: Option<TcpListener>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let metrics = Arc::new(Metrics::default());
    let (phase, phase_seen) = watch::channel(Phase::WaitingForDefinitions("not asked for yet".to_owned()));
    let mut tasks: JoinSet<Result<(), ControllerError>> = JoinSet::new();
    // Serves until the very end: probes come also while the Lease is released.
    let stop_http = CancellationToken::new();
    let served = http::serve(listener, Arc::clone(&metrics), phase_seen, stop_http.clone());
    tasks.spawn(async move {
        served.await;
        Ok(())
    });
    // Served by every replica, and for a while after the end of all else.
    let mut webhooks = JoinSet::new();
    if let (Some(listener), Some(own)) = (webhook, settings.webhook.clone()) {
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        let webhook = Webhook::prepare(listener, own, settings.namespace.clone(), client, metrics).await;
        webhooks.spawn(webhook.run(shutdown.clone()));
    }
    let lead = lead(client, leases, settings, metrics, phase, shutdown.clone());
    let result = tokio::select! {
        result = lead => result,
        // Without the webhook, new pods of the cluster would wait for an answer, or start without their sidecar.
        ended = failure_of(&mut webhooks, &shutdown) => Err(ended),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| Err(ControllerError::Stopped(error.to_string()))),
    };
    // After any other end the process exits at once: waiting for the webhook would delay its restart.
    if result.is_ok() {
        while webhooks.join_next().await.is_some() {}
    }
    stop_http.cancel();
    while tasks.join_next().await.is_some() {}
    result
}

/// Returns when the webhook has ended although nobody asked it to.
async fn failure_of(webhooks: &mut JoinSet<()>, shutdown: &CancellationToken) -> ControllerError {
    match webhooks.join_next().await {
        Some(Ok(())) if shutdown.is_cancelled() => std::future::pending().await,
        Some(ended) => ControllerError::Stopped(TaskEnded::new("webhook", ended).to_string()),
        None => std::future::pending().await,
    }
}

/// Waits for definitions and leadership, then reconciles while it lasts.
async fn lead(
    client: Client,
    leases: Keeper,
    settings: ControllerSettings,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    tokio::select! {
        () = definitions::wait(&client, &settings, &phase) => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    tokio::select! {
        () = other_releases::wait_until_alone(&client, &settings, &phase) => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    phase.send_replace(Phase::Standby);
    let owner = account::owner(&client, &settings.namespace).await;
    let wanted = LeaseSettings {
        owner: owner.clone(),
        annotations: BTreeMap::from([(ANNOTATION_SCOPE.to_owned(), other_releases::scope(&settings))]),
        ..LeaseSettings::new(&settings.namespace, LEASE_CONTROLLER, &settings.identity)
    };
    let stop_lease = CancellationToken::new();
    let (holding, mut holder) = leases.keep(wanted, stop_lease.clone());
    let leading = tokio::select! {
        () = shutdown.cancelled() => false,
        won = holder.wait_for(|holder| holder.is_mine(Instant::now())) => won.is_ok(),
    };
    let mut result = Ok(());
    if leading {
        metrics.leader.set(1);
        phase.send_replace(Phase::Reading);
        let stop = shutdown.child_token();
        let (asking, own) = (client.clone(), settings.clone());
        result = tokio::select! {
            result = reconcile(client, settings, owner, Arc::clone(&metrics), phase, stop) => result,
            rival = other_releases::meet(&asking, &own) => Err(rival),
            // Another process may lead from now on: nothing more is written, not even by calls under way.
            () = LeaseHolder::lost(holder) => Err(ControllerError::LeaseLost),
        };
    }
    metrics.leader.set(0);
    stop_lease.cancel();
    let _ = holding.await;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_webhook_that_fails_ends_the_process_and_one_that_is_stopped_does_not() {
        let shutdown = CancellationToken::new();
        let mut webhooks = JoinSet::new();
        webhooks.spawn(async { panic!("a bug") });
        let failure = failure_of(&mut webhooks, &shutdown).await.to_string();
        assert!(
            failure.contains("\"webhook\" failed") && failure.contains("a bug"),
            "{failure}"
        );
        shutdown.cancel();
        webhooks.spawn(async {});
        let stopped = tokio::time::timeout(
            std::time::Duration::from_millis(50),
            failure_of(&mut webhooks, &shutdown),
        );
        assert!(stopped.await.is_err());
    }
}
