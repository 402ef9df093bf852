//! One request, one trace: from the application through the gateway and the hub to the run.

use std::process::Command;
use std::time::{Duration, Instant};

use cluster_support::run;
use serde_json::json;

use super::chat::{Model, chat_with, content, with_catalog};
use super::collector::{Collector, PARENT, TRACE, only};
use super::support::{Installation, InstallationOptions, Process, SOON, free_port, listening};

/// A process of this build that exports its spans to a collector.
fn traced(installation: &Installation, collector: &Collector, name: &str, words: &[String]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knack"));
    command
        .args(words)
        .env("KUBECONFIG", installation.cluster.kubeconfig())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100");
    Process::spawn(installation.folder.path(), name, &mut command)
}

#[test]
fn a_run_in_a_pod_belongs_to_the_trace_of_its_request() {
    run("a_run_in_a_pod_belongs_to_the_trace_of_its_request", async |cluster| {
        let options = InstallationOptions::of(1, json!({"maxActivation": "Always", "warmPool": {"replicas": 1}}));
        let installation = Installation::install(cluster, options).await;
        let (of_hub, of_gateway) = (Collector::start().await, Collector::start().await);
        let words = installation.hub_words(&format!("127.0.0.1:{}", installation.port));
        let _hub = traced(&installation, &of_hub, "hub", &words);
        installation.wait_for_hub_at(&installation.url()).await;
        installation
            .skill(&installation.tenants[0], "steady", "print('steady ran')")
            .await;
        installation.served(&installation.tenant(0).await, "steady").await;

        let model = Model::start(&installation).await;
        let port = free_port();
        let mut words = model.gateway_words(port);
        words.push(with_catalog());
        let _gateway = traced(&installation, &of_gateway, "gateway", &words);
        listening(port).await;

        let (_, body) = chat_with(port, "run it", &[("traceparent", PARENT)]).await;
        assert!(content(&body).contains("steady ran"), "{body}");

        let begun = Instant::now();
        let complete = || of_hub.spans().iter().any(|span| span.trace == TRACE) && of_gateway.spans().len() >= 4;
        while !complete() {
            assert!(begun.elapsed() < SOON, "{:?} {:?}", of_hub.spans(), of_gateway.spans());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (gateway, hub) = (of_gateway.spans(), of_hub.spans());
        let request = only(&gateway, "POST /v1/chat/completions", None);
        let call = only(&gateway, "execute_tool run_code", None);
        let ran = only(&hub, "POST /v1/executions", None);
        for span in [request, call, ran] {
            assert_eq!((span.trace.as_str(), span.failed), (TRACE, false), "{span:?}");
        }
        assert_eq!(request.parent, "00f067aa0ba902b7");
        assert_eq!(
            (call.parent.as_str(), ran.parent.as_str()),
            (request.span.as_str(), call.span.as_str())
        );
        assert_eq!(ran.kind, "server");
        assert!(call.begun <= ran.begun && ran.ended <= call.ended, "{call:?} {ran:?}");
        assert_eq!(ran.get("knack.execution.id"), call.get("knack.execution.id"));
        assert_eq!(
            ran.get("knack.runtime"),
            Some(installation.runtime().to_string().as_str())
        );
        assert!(
            matches!(ran.get("knack.execution.start"), Some("warm" | "cold")),
            "{ran:?}"
        );
        let names: Vec<_> = [&of_gateway, &of_hub]
            .map(|of| of.resource().remove("service.name"))
            .into();
        assert_eq!(names, [Some("knack-gateway".to_owned()), Some("knack-hub".to_owned())]);
        assert!(
            !of_hub.raw_contains("steady ran") && !of_gateway.raw_contains("steady ran"),
            "content in a span"
        );
    });
}
