//! Reports what this gateway counted of skills to its hub, which adds up what all gateways counted. Nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{RefusalCode, RuntimeName, UsesPost};
use knack_serving::tasks::{TaskEnded, Tasks};
use tokio_util::sync::CancellationToken;

use super::skill_metrics::SkillMetrics;

/// How often: as often as Prometheus usually scrapes.
const REPORT_EVERY: Duration = Duration::from_secs(15);
/// How often the gateway retries at a hub that does not accept reports. Such a hub is of an earlier release, and nothing announces
/// its upgrade. Uses that are counted until then are reported after it.
const EVERY_UNTAKEN: Duration = Duration::from_mins(10);
/// How long an orderly end waits for the hub.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that reports.
#[derive(Debug)]
pub(crate) struct UseReports {
    ending: CancellationToken,
    tasks: Tasks,
}

impl UseReports {
    /// Reports to the hub of a runtime.
    pub(crate) fn start(client: HubClient, runtime: &RuntimeName, counts: Arc<SkillMetrics>) -> Self {
        let ending = CancellationToken::new();
        let ended = ending.clone();
        let path: Arc<str> = format!("/v1/uses?runtime={runtime}").into();
        let send = move |post: UsesPost| {
            let (client, path) = (client.clone(), Arc::clone(&path));
            async move { client.hub().post_report(&path, &post).await }
        };
        let mut tasks = Tasks::default();
        tasks.spawn_finite("reports of skill use", async move {
            keep_reporting(&counts, &ended, send).await;
        });
        Self { ending, tasks }
    }

    /// Resolves when the task that reports has failed.
    pub(crate) async fn ended(&mut self) -> TaskEnded {
        self.tasks.ended().await
    }

    /// Reports the rest, in bounded time.
    pub(crate) async fn close(self) {
        self.ending.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.returned()).await;
    }
}

/// Reports until `ended`, and then once more.
async fn keep_reporting<F>(counts: &SkillMetrics, ended: &CancellationToken, send: impl Fn(UsesPost) -> F)
where
    F: Future<Output = Result<(), HubError>>,
{
    let mut every = REPORT_EVERY;
    loop {
        let is_last = tokio::time::timeout(every, ended.cancelled()).await.is_ok();
        every = match report(counts, &send).await {
            Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {
                if every != EVERY_UNTAKEN {
                    tracing::info!(
                        hub_says = %refusal,
                        "the hub is of an earlier release and accepts no reports of skill use; trying again every {} minutes",
                        EVERY_UNTAKEN.as_secs() / 60
                    );
                }
                EVERY_UNTAKEN
            }
            Ok(()) | Err(_) => REPORT_EVERY,
        };
        if is_last {
            return;
        }
    }
}

/// Reports what was counted since the last report, if anything was.
async fn report<F>(counts: &SkillMetrics, send: impl Fn(UsesPost) -> F) -> Result<(), HubError>
where
    F: Future<Output = Result<(), HubError>>,
{
    let post = UsesPost {
        uses: counts.take_unreported(),
    };
    if post.uses.is_empty() {
        return Ok(());
    }
    let sent = send(post.clone()).await;
    if let Err(error) = &sent {
        tracing::debug!(%error, "skill use could not be reported to the hub");
        if !may_have_counted(error) {
            counts.give_back(&post.uses);
        }
    }
    sent
}

/// Whether the hub may have counted a report, which then is not sent again: a count that is too low does less harm than one that
/// is too high.
fn may_have_counted(error: &HubError) -> bool {
    match error {
        HubError::Broken(_) | HubError::Protocol(_) => true,
        HubError::Unreachable(_) | HubError::Refused(_) | HubError::Configuration(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use knack_hub_api::{HubRefusal, SkillUseKind};
    use tokio::time::Instant;

    use super::*;
    use crate::telemetry::skill_metrics::SkillUse;

    #[tokio::test(start_paused = true)]
    async fn hub_that_takes_no_reports_is_asked_seldom_and_gets_all_once_it_does() {
        let (counts, ended, begun) = (SkillMetrics::default(), CancellationToken::new(), Instant::now());
        let upgraded = Duration::from_mins(25);
        let (asked, total) = (RefCell::new(Vec::new()), RefCell::new(0));
        let hub = |post: UsesPost| {
            asked.borrow_mut().push(begun.elapsed().as_secs());
            std::future::ready(if begun.elapsed() < upgraded {
                let text = "no such endpoint of the hub";
                Err(HubError::Refused(HubRefusal::new(RefusalCode::NotFound, text)))
            } else {
                *total.borrow_mut() += post.uses.iter().map(|line| line.ran).sum::<u32>();
                Ok(())
            })
        };
        let runs = async {
            for seconds in [0, 700, 1865] {
                tokio::time::sleep_until(begun + Duration::from_secs(seconds)).await;
                let ran = SkillUse {
                    skill: "team/pdf".to_owned(),
                    what: SkillUseKind::Ran,
                    tokens: 0,
                    call: None,
                };
                counts.count("r", &[ran]);
            }
            tokio::time::sleep(Duration::from_mins(1)).await;
            ended.cancel();
        };
        tokio::join!(keep_reporting(&counts, &ended, hub), runs);
        let at = asked.into_inner();
        assert_eq!(
            at,
            [15, 615, 1215, 1815, 1875],
            "seldom, and as usual once it takes them"
        );
        assert_eq!(total.into_inner(), 3);
    }
}
