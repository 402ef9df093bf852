//! Calls of Knack's controller and hub, counted by the API server.

use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::Api;
use serde_json::{Value, json};

use crate::installation::{SYSTEM, apply};

/// Name of the FlowSchema.
const NAME: &str = "bench-knack";
/// Ahead of every FlowSchema that Kubernetes brings, except for the one that exempts administrators.
const PRECEDENCE: u32 = 2;

/// From now on the calls of both accounts are counted, whatever they call. They keep the priority that ServiceAccounts
/// have.
pub(crate) async fn begin(client: &kube::Client) {
    let account = |component: &str| -> Value {
        let account = json!({"namespace": SYSTEM, "name": format!("knack-{component}")});
        json!({"kind": "ServiceAccount", "serviceAccount": account})
    };
    let rule = json!({
        "subjects": [account("controller"), account("hub")],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let spec = json!({
        "matchingPrecedence": PRECEDENCE, "priorityLevelConfiguration": {"name": "workload-low"},
        "distinguisherMethod": {"type": "ByUser"}, "rules": [rule],
    });
    let schemas: Api<FlowSchema> = Api::all(client.clone());
    let version = "flowcontrol.apiserver.k8s.io/v1";
    apply(&schemas, NAME, version, "FlowSchema", json!({"spec": spec})).await;
}

/// Calls so far; a watch is one.
pub(crate) async fn calls(client: &kube::Client) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client.request_text(request).await.expect("the API server's metrics");
    let schema = format!("flow_schema=\"{NAME}\"");
    let lines = text
        .lines()
        .filter(|line| line.starts_with("apiserver_flowcontrol_dispatched_requests_total{") && line.contains(&schema));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
