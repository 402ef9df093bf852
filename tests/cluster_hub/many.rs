//! One hub that takes many runtimes over at once, as the only replica does when it starts again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cluster_support::{progress, run};
use k8s_openapi::api::coordination::v1::Lease;
use knack_api::SkillRuntime;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{ExecutionState, RefusalCode};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use serde_json::json;

use super::idle::Counted;
use super::support::{Installation, InstallationOptions, SOON, fresh_id};

const RUNTIMES: u32 = 20;
/// How long it may take from the start of the process until it serves the last of them, beyond what a first start takes on this machine.
/// The Leases of a process that was killed last 15 s, and are looked at each 7.5 s; the rest is for a machine that is busier now.
const WITHIN: Duration = Duration::from_mins(1);
/// Calls to the API server, per runtime: by the Lease and by what recovery reads. Some ten are made on a quiet machine in half a minute.
const CALLS_PER_RUNTIME: f64 = 15.0;
/// And by renewals of the Lease and looks at it, of which each takes a call or two, per second.
const CALLS_PER_SECOND: f64 = 1.0 / 3.0;
/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who holds the Lease of each runtime.
async fn holders(installation: &Installation) -> BTreeMap<String, String> {
    let leases: Api<Lease> = Api::namespaced(installation.client.clone(), installation.run.name());
    let list = leases.list(&ListParams::default()).await.unwrap();
    let held = list.items.into_iter().filter_map(|lease| {
        let runtime = lease.metadata.name?.strip_prefix("knack-runtime-")?.to_owned();
        Some((runtime, lease.spec?.holder_identity?))
    });
    held.collect()
}

/// Waits until the hub serves every runtime: only an owner that has recovered knows that it has no such execution.
async fn all_serve(installation: &Installation, client: &HubClient, names: &[String], within: Duration) {
    let begun = Instant::now();
    for (served, name) in names.iter().enumerate() {
        let path = format!(
            "/v1/executions/{}?runtime={}/{name}",
            fresh_id(),
            installation.run.name()
        );
        loop {
            match client.hub().get::<ExecutionState>(&path).await {
                Err(HubError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => break,
                Err(HubError::Refused(_)) => {}
                Err(error) if error.is_transient() => {}
                other => panic!("{name}: {other:?}"),
            }
            assert!(begun.elapsed() < within, "{served} of {} serve", names.len());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    progress("every runtime is served");
}

#[test]
fn many_runtimes_are_taken_over_at_once_within_a_bound() {
    run("many_runtimes_are_taken_over_at_once_within_a_bound", async |cluster| {
        let mut installation = Installation::install(cluster, InstallationOptions::of(1, json!({}))).await;
        let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
        let mut more = runtimes.get("default").await.unwrap();
        more.metadata = ObjectMeta::default();
        more.status = None;
        let mut names = vec!["default".to_owned()];
        for number in 1..RUNTIMES {
            let name = format!("more-{number}");
            more.metadata.name = Some(name.clone());
            runtimes.create(&PostParams::default(), &more).await.unwrap();
            names.push(name);
        }
        // The hub alone: the controller was started as somebody else.
        let counted = Counted::new(
            installation.client.clone(),
            format!("counted-{}", installation.run.name()),
        )
        .await;
        installation.acts_as(&counted.name);
        let begun = Instant::now();
        installation.restart_hub().await;
        let client = installation.tenant(0).await;
        all_serve(&installation, &client, &names, SOON).await;
        let within = WITHIN + begun.elapsed();
        let old = holders(&installation).await;
        assert_eq!(old.len(), names.len(), "{old:?}");

        installation.kill_hub();
        let (before, begun) = (counted.calls().await, Instant::now());
        installation.restart_hub().await;
        all_serve(&installation, &client, &names, within).await;
        let (took, calls) = (begun.elapsed(), counted.calls().await - before);
        let each = calls / f64::from(RUNTIMES);
        println!(
            "{RUNTIMES} runtimes in {:.1} s, {each:.1} calls for each",
            took.as_secs_f64()
        );
        assert!(took <= within, "{took:?}");
        assert!(each > 1.0, "they are counted");
        assert!(
            each <= CALLS_PER_RUNTIME + CALLS_PER_SECOND * took.as_secs_f64(),
            "{each:.1} calls for each of {RUNTIMES} runtimes in {took:?}"
        );
        let new = holders(&installation).await;
        assert!(
            old.iter()
                .all(|(name, holder)| new.get(name).is_some_and(|now| now != holder)),
            "{old:?} {new:?}"
        );
        counted.remove().await;
    });
}
