//! Values for tests: objects, and answers of an API server in memory.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use knack_api::SkillRuntime;
use serde_json::{Value, json};

/// A SkillRuntime `ns/r` with this spec.
#[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
pub(crate) fn mk_runtime(spec: Value) -> SkillRuntime {
    serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
        "metadata": {"name": "r", "namespace": "ns", "uid": "u"}, "spec": spec,
    }))
    .unwrap()
}

/// The words that alerts and the dashboard compare a label of a metric with.
pub(crate) fn monitored_words(metric: &str, label: &str) -> Vec<String> {
    let chart = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/knack");
    let read = |path: &str| std::fs::read_to_string(chart.join(path)).unwrap();
    let all = read("templates/monitoring/metrics.yaml") + &read("files/dashboard.json").replace("\\\"", "\"");
    let of_metric = regex::Regex::new(&format!("{metric}\\{{((?:[^{{}}]|\\{{\\{{[^{{}}]*\\}}\\}})*)\\}}")).unwrap();
    let of_label = regex::Regex::new(&format!("\\b{label}(?:=~|!=|!~|=)\"([^\"]*)\"")).unwrap();
    let mut words = Vec::new();
    for found in of_metric.captures_iter(&all) {
        for compared in of_label.captures_iter(&found[1]) {
            words.extend(compared[1].split('|').map(str::to_owned));
        }
    }
    assert!(!words.is_empty(), "nothing compares {label} of {metric}");
    words
}

/// An error: a status of Kubernetes with this code, by its reason.
pub(crate) fn failed(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(status)).into_response()
}

/// There is no such object.
pub(crate) fn not_found() -> Response {
    failed(404, "NotFound", "not found")
}

/// What was asked is done, as after a deletion.
pub(crate) fn done() -> Response {
    axum::Json(json!({"apiVersion": "v1", "kind": "Status", "status": "Success", "code": 200})).into_response()
}

/// All objects of a kind, of which `kind` names the list.
pub(crate) fn list(kind: &str, items: &[Value]) -> Response {
    let list = json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
    axum::Json(list).into_response()
}
