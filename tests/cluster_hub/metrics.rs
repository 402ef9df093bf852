//! What alerts and the dashboard ask for is there in the metrics of running processes. Those of the controller are asked for
//! in `tests/chart/webhook.py`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster_support::run;
use knack_hub_api::client::{HubClient, HubError};
use knack_hub_api::{RefusalCode, USES_MAX, UseLine, UsesPost};
use regex::Regex;
use serde_json::{Value, json};

use super::chat::{Model, chat, content, with_catalog};
use super::support::{Installation, InstallationOptions, Process, SOON, free_port, listening};

/// Gateways that run a skill once each, until two uses have reached the hub.
const GATEWAYS_MAX: usize = 5;

/// Labels that the scraper adds.
const OF_SCRAPER: [&str; 3] = ["namespace", "pod", "component"];

/// The queries of the alerts, as templates, and those of the dashboard.
fn queries() -> Vec<String> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/knack");
    let rules = std::fs::read_to_string(chart.join("templates/monitoring/metrics.yaml")).unwrap();
    let mut queries: Vec<String> = rules.split("- alert:").skip(1).map(str::to_owned).collect();
    let board = std::fs::read_to_string(chart.join("files/dashboard.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    for panel in board["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        queries.extend(targets.map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    queries
}

/// Metrics of gateway and hub in a query, and the labels by which it asks.
fn asked(query: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let named = Regex::new(r"(knack_(?:gateway|hub|execution)\w*)\{((?:[^{}]|\{\{[^{}]*\}\})*)\}").unwrap();
    let matcher = Regex::new(r"([a-z_]+)(?:=~|!=|=)").unwrap();
    let grouped = Regex::new(r"by \(([a-z_, ]+)\)").unwrap();
    let (mut names, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for found in named.captures_iter(query) {
        names.insert(found[1].to_owned());
        labels.extend(matcher.captures_iter(&found[2]).map(|label| label[1].to_owned()));
    }
    for found in grouped.captures_iter(query) {
        labels.extend(found[1].split(", ").map(str::to_owned));
    }
    labels.retain(|label| !OF_SCRAPER.contains(&label.as_str()));
    (names, labels)
}

pub(super) async fn metrics(port: u16) -> String {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await.unwrap();
    answer.text().await.unwrap()
}

/// The query's metrics and labels that the text does not have.
fn missing(query: &str, text: &str) -> Vec<String> {
    let (names, labels) = asked(query);
    let series = |name: &str| {
        let prefixes = [format!("{name}{{"), format!("{name} ")];
        let lines = text
            .lines()
            .filter(move |line| prefixes.iter().any(|prefix| line.starts_with(prefix)));
        lines.collect::<Vec<_>>()
    };
    let mut missing = Vec::new();
    for name in names {
        let lines = series(&name);
        if lines.is_empty() {
            missing.push(name);
            continue;
        }
        for label in &labels {
            if !lines.iter().any(|line| line.contains(&format!("{label}=\""))) {
                missing.push(format!("{name}: {label}"));
            }
        }
    }
    missing
}

/// Starts a hub whose metrics are served at a port of loopback.
pub(super) async fn metered_hub(installation: &Installation) -> (Process, u16) {
    let probes = free_port();
    let mut words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
    let listen = words
        .iter_mut()
        .find(|word| word.starts_with("--metrics-listen="))
        .unwrap();
    *listen = format!("--metrics-listen=127.0.0.1:{probes}");
    let hub = Process::start(installation.cluster, installation.folder.path(), "hub", &words);
    installation.wait_for_hub_at(&installation.url()).await;
    (hub, probes)
}

/// Has the skill's code run once, through a gateway.
async fn has_run(port: u16) {
    let (status, body) = chat(port, "run it", Some("steady")).await;
    assert!(
        status == 200 && content(&body).contains("steady ran"),
        "{status} {body}"
    );
}

#[test]
fn what_alerts_and_the_dashboard_ask_for_is_there() {
    run("what_alerts_and_the_dashboard_ask_for_is_there", async |cluster| {
        let options = InstallationOptions::of(1, json!({"maxActivation": "Always", "warmPool": {"replicas": 1}}));
        let installation = Installation::install(cluster, options).await;
        let (_hub, probes) = metered_hub(&installation).await;
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        installation.served(&installation.tenant(0).await, "steady").await;
        let model = Model::start(&installation).await;
        let (port, own) = (free_port(), free_port());
        let mut words = model.gateway_words(port);
        words.retain(|word| !word.starts_with("--metrics-listen="));
        words.push(format!("--metrics-listen=127.0.0.1:{own}"));
        words.push(with_catalog());
        let _gateway = Process::start(installation.cluster, installation.folder.path(), "gateway", &words);
        listening(port).await;
        listening(own).await;
        has_run(port).await;

        let queries = queries();
        let asked_for: BTreeSet<String> = queries.iter().flat_map(|query| asked(query).0).collect();
        assert!(asked_for.len() >= 15, "{asked_for:?}");
        // Counts of pools are told from time to time.
        let begun = Instant::now();
        loop {
            let text = metrics(own).await + &metrics(probes).await;
            let missing: BTreeSet<String> = queries.iter().flat_map(|query| missing(query, &text)).collect();
            if missing.is_empty() {
                break;
            }
            assert!(begun.elapsed() < SOON, "{missing:?} in\n{text}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// Posts a report of uses, again where the hub was too busy to take it: it has counted none of it then.
pub(super) async fn reported(client: &HubClient, path: &str, post: &UsesPost) -> Result<(), HubError> {
    let begun = Instant::now();
    loop {
        match client.hub().post_report(path, post).await {
            Err(error @ (HubError::Refused(_) | HubError::Unreachable(_)))
                if error.is_transient() && begun.elapsed() < SOON =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            told => return told,
        }
    }
}

/// Whose counters nobody reads, since it is in a pod of another team: its hub has them.
#[test]
fn uses_of_skills_at_all_gateways_are_added_up_at_the_hub() {
    run(
        "uses_of_skills_at_all_gateways_are_added_up_at_the_hub",
        async |cluster| {
            let options = InstallationOptions::of(1, json!({"warmPool": {"replicas": 1}}));
            let installation = Installation::install(cluster, options).await;
            let (_hub, probes) = metered_hub(&installation).await;
            let steady = format!("{}/steady", installation.tenants[0].name());
            installation
                .skill(&installation.tenants[0], "steady", "print('steady ran')")
                .await;
            let client = installation.tenant(0).await;
            installation.served(&client, "steady").await;
            let model = Model::start(&installation).await;
            let uses = |skill: &str, what: &str| {
                let runtime = installation.runtime();
                format!("knack_hub_skill_uses_total{{runtime=\"{runtime}\",skill=\"{skill}\",use=\"{what}\"}}")
            };
            let (mut gateways, mut text) = (0, String::new());
            // With the id of a request.
            let expected = format!("{} 2 # {{request_id=\"", uses(&steady, "ran"));
            while !text.lines().any(|line| line.starts_with(&expected)) {
                // A gateway that ends waits 2 s for its hub, and a busy one may take longer: then its uses are in no count.
                assert!(
                    gateways < GATEWAYS_MAX,
                    "{expected} after {gateways} gateways in\n{text}"
                );
                gateways += 1;
                let (mut gateway, port) = model.gateway(&installation, &format!("gateway-{gateways}")).await;
                has_run(port).await;
                // What it has not reported yet is reported at its end.
                gateway.stop();
                text = metrics(probes).await;
            }
            assert!(gateways > 1, "one use is counted twice in\n{text}");
            let cost = format!(
                "knack_hub_skill_tokens_total{{runtime=\"{}\",skill=\"{steady}\"}} ",
                installation.runtime()
            );
            let tokens = text
                .lines()
                .find_map(|line| line.strip_prefix(&cost)?.split(' ').next()?.parse().ok());
            assert!(tokens > Some(0_u64), "{cost}{tokens:?} in\n{text}");

            let line = |skill: &str| UseLine {
                skill: skill.to_owned(),
                loaded: 3,
                ..UseLine::default()
            };
            let path = format!("/v1/uses?runtime={}", installation.runtime());
            for (count, skill) in [
                (1, "nobody/has-this"),
                (1, "no name"),
                (1, ""),
                (USES_MAX + 1, "too/many"),
            ] {
                let post = UsesPost {
                    uses: vec![line(skill); count],
                };
                let told = reported(&client, &path, &post).await;
                match told {
                    Ok(()) => assert_eq!(count, 1),
                    Err(HubError::Refused(refusal)) => {
                        assert_eq!((count, refusal.code), (USES_MAX + 1, RefusalCode::Invalid));
                    }
                    Err(error) => panic!("{skill}: {error}"),
                }
            }
            let text = metrics(probes).await;
            let expected = format!("{} 9", uses("other", "loaded"));
            assert!(text.lines().any(|line| line == expected), "{expected} in\n{text}");
            for name in ["nobody", "no name", "too/many"] {
                assert!(!text.contains(name), "{name} in\n{text}");
            }
        },
    );
}

#[test]
fn a_name_or_label_that_is_not_there_is_found() {
    let text = "knack_hub_queued{runtime=\"a/b\"} 1\nknack_gateway_catalog_age_seconds 3\n";
    for (query, expected) in [
        (
            r#"sum by (runtime) (knack_hub_queued{namespace="{{ .Release.Namespace }}"}) > 0"#,
            &[][..],
        ),
        (
            r#"max by (pod) (knack_gateway_catalog_age_seconds{namespace="x"}) > 60"#,
            &[],
        ),
        (r#"knack_hub_gone{namespace="x"}"#, &["knack_hub_gone"]),
        (
            r#"knack_hub_queued{namespace="x", status!="ok"}"#,
            &["knack_hub_queued: status"],
        ),
        (
            r#"sum by (status) (knack_hub_queued{namespace="x"})"#,
            &["knack_hub_queued: status"],
        ),
    ] {
        assert_eq!(missing(query, text), expected, "{query}");
    }
}
