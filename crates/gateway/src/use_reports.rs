//! Reports what this gateway counted of skills to its hub, which adds up what all gateways counted. Nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{RuntimeName, UsesPost};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::skill_metrics::SkillMetrics;

/// How often: as often as Prometheus usually looks.
const EVERY: Duration = Duration::from_secs(15);
/// How long an orderly end waits for the hub.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that reports.
#[derive(Debug)]
pub(crate) struct UseReports {
    ending: CancellationToken,
    task: JoinHandle<()>,
}

impl UseReports {
    /// Reports to the hub of a runtime.
    pub(crate) fn start(client: HubClient, runtime: RuntimeName, counts: Arc<SkillMetrics>) -> Self {
        let ending = CancellationToken::new();
        let ended = ending.clone();
        let task = tokio::spawn(async move {
            loop {
                let is_last = tokio::time::timeout(EVERY, ended.cancelled()).await.is_ok();
                report(&client, &runtime, &counts).await;
                if is_last {
                    return;
                }
            }
        });
        Self { ending, task }
    }

    /// Reports the rest, in bounded time.
    pub(crate) async fn close(mut self) {
        self.ending.cancel();
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn report(client: &HubClient, runtime: &RuntimeName, counts: &SkillMetrics) {
    let post = UsesPost {
        uses: counts.take_unreported(),
    };
    if post.uses.is_empty() {
        return;
    }
    if let Err(error) = client.post_report(&format!("/v1/uses?runtime={runtime}"), &post).await {
        tracing::debug!(%error, "the uses of skills were not reported to the hub");
        if !may_have_counted(&error) {
            counts.give_back(&post.uses);
        }
    }
}

/// What the hub may have counted is not reported again: too few uses say less than uses that did not happen.
fn may_have_counted(error: &HubError) -> bool {
    match error {
        HubError::Broken(_) | HubError::Protocol(_) => true,
        HubError::Unreachable(_) | HubError::Refused(_) | HubError::Configuration(_) => false,
    }
}
