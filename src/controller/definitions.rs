//! The definitions of Skill and SkillRuntime, without which the controller waits.

use knack_api::{Skill, SkillRuntime};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use super::http::Phase;
use super::settings::{CRD_PAUSE, ControllerSettings};
use super::streams::scoped;
use crate::api_call::{CALL_TIMEOUT, within};

/// Waits until the API server serves both definitions. Log and `/readyz` say why it waits, and again when the
/// reason changes: a connection that is refused at the start does not hide a missing definition.
pub(super) async fn wait(client: &Client, settings: &ControllerSettings, phase: &watch::Sender<Phase>) {
    let mut reported = None;
    loop {
        let missing = match (
            served::<Skill>(client, settings).await,
            served::<SkillRuntime>(client, settings).await,
        ) {
            (Ok(true), Ok(true)) => return,
            (Err(kube::Error::Api(status)), _) | (_, Err(kube::Error::Api(status))) if status.is_forbidden() => {
                format!(
                    "{}; run helm upgrade, which restores the rights of the release's ServiceAccounts",
                    status.message
                )
            }
            (Err(error), _) | (_, Err(error)) => error.to_string(),
            _ => "not installed; install the chart knack-crds, or kubectl apply --server-side -f crds/".to_owned(),
        };
        if reported.as_ref() != Some(&missing) {
            warn!(%missing, "waiting for the definitions of Skill and SkillRuntime");
            phase.send_replace(Phase::WaitingForDefinitions(missing.clone()));
            reported = Some(missing);
        }
        sleep(CRD_PAUSE).await;
    }
}

/// Whether the API server serves a kind.
async fn served<K>(client: &Client, settings: &ControllerSettings) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let first = settings.namespaces().first().map(|name| (*name).to_owned());
    let api: Api<K> = scoped(client, first.as_ref());
    match within(CALL_TIMEOUT, api.list_metadata(&ListParams::default().limit(1))).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use serde_json::json;

    use super::*;
    use crate::controller::fixture;

    #[tokio::test]
    async fn current_reason_is_reported() {
        let code = Arc::new(AtomicU16::new(403));
        let answered = Arc::clone(&code);
        let (address, _) = fixture::start(move |_, path, _| {
            let code = answered.load(Ordering::SeqCst);
            let message = "skills.knack.dev is forbidden: User \"c\" cannot list resource \"skills\"";
            let refused =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Forbidden", "message": message});
            (code != 200 && path.contains("knack.dev")).then_some(refused)
        });
        let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let (phase, mut seen) = watch::channel(Phase::Standby);
        let waiting = tokio::spawn(async move { wait(&client, &fixture::settings(), &phase).await });
        for (next, word) in [(404, "run helm upgrade"), (200, "install the chart knack-crds")] {
            seen.changed().await.unwrap();
            let reported = format!("{:?}", *seen.borrow_and_update());
            assert!(reported.contains(word), "{reported}");
            code.store(next, Ordering::SeqCst);
        }
        waiting.await.unwrap();
    }
}
