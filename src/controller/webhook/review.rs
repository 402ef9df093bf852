//! One AdmissionReview, as a function of values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use knack_injection::names::{DISABLED, LABEL_INJECT};
use knack_injection::{Injection, Parameters, inject};
use knack_vocabulary::{LABEL_ROLE, ROLE_SANDBOX};
use serde::Deserialize;
use serde_json::{Value, json};

/// The outcome of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewOutcome {
    /// The pod has the sidecar now.
    Injected,
    /// The pod cannot have it, and its annotation says why.
    Refused,
    /// Nothing is changed: the pod has the sidecar, asks for none, or the object is no new pod.
    Unchanged,
    /// The request was no AdmissionReview.
    Invalid,
    /// The request was not taken: no memory for it, too large, or too slow.
    Busy,
}

impl ReviewOutcome {
    /// As a label of metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Refused => "refused",
            Self::Unchanged => "unchanged",
            Self::Invalid => "invalid",
            Self::Busy => "busy",
        }
    }
}

/// Why a body is no review that can be answered. The API server takes every answer but 200 as a failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// Not JSON of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Json(String),
    /// The body is of another kind or version.
    #[error("the body is {0}, expected AdmissionReview of admission.k8s.io/v1")]
    Kind(String),
    /// Without what an answer needs.
    #[error("the AdmissionReview has no request.uid")]
    NoUid,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    object: Value,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Resource {
    group: String,
    version: String,
    #[serde(rename = "resource")]
    name: String,
}

/// Whether a body has more values than this, by the commas outside of its texts.
pub(super) fn has_more_values(body: &[u8], most: usize) -> bool {
    let (mut commas, mut in_text, mut is_escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b',' if !in_text => {
                commas += 1;
                if commas >= most {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

/// Answers a review: always allowed, with a patch if the pod changes. A dry run has the same answer, since nothing but the
/// answer is made.
///
/// Errors: what is wrong with a body that is no review.
pub(super) fn review(body: &[u8], parameters: &Parameters) -> Result<(Value, ReviewOutcome), Invalid> {
    let review: Review = serde_json::from_slice(body).map_err(|error| Invalid::Json(error.to_string()))?;
    if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
        return Err(Invalid::Kind(format!(
            "{:.64} of {:.64}",
            review.kind, review.api_version
        )));
    }
    let request = review.request.filter(|request| !request.uid.is_empty());
    let request = request.ok_or(Invalid::NoUid)?;
    let mut response = json!({"uid": request.uid, "allowed": true});
    let mut outcome = ReviewOutcome::Unchanged;
    if is_new_pod(&request) && asks(&request.object) {
        let injection = inject(&request.object, parameters);
        outcome = match injection.outcome {
            knack_injection::Outcome::Injected(_) => ReviewOutcome::Injected,
            knack_injection::Outcome::Refused(_) => ReviewOutcome::Refused,
            knack_injection::Outcome::Unchanged(_) => ReviewOutcome::Unchanged,
        };
        let patch = patch(&request.object, injection);
        if !patch.is_empty() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(Value::Array(patch).to_string()));
        }
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok((answer, outcome))
}

fn is_new_pod(request: &Request) -> bool {
    let resource = &request.resource;
    request.operation == "CREATE"
        && request.sub_resource.is_empty()
        && (
            resource.group.as_str(),
            resource.version.as_str(),
            resource.name.as_str(),
        ) == ("", "v1", "pods")
}

/// The configuration chooses by labels of pod and namespace. Should it send more, a pod's own word and Knack's sandboxes
/// are respected here too.
fn asks(pod: &Value) -> bool {
    let labels = pod.pointer("/metadata/labels");
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    label(LABEL_INJECT) != Some(DISABLED) && label(LABEL_ROLE) != Some(ROLE_SANDBOX)
}

/// The parts that changed, whole: an injection touches most containers of a pod.
fn patch(before: &Value, mut injection: Injection) -> Vec<Value> {
    let annotations = if before.get("metadata").is_some_and(Value::is_object) {
        "/metadata/annotations"
    } else {
        "/metadata"
    };
    let changed = ["/spec", annotations]
        .into_iter()
        .filter(|path| injection.pod.pointer(path) != before.pointer(path));
    let changed: Vec<&str> = changed.collect();
    let add = |path| Some(json!({"op": "add", "path": path, "value": injection.pod.pointer_mut(path)?.take()}));
    changed.into_iter().filter_map(add).collect()
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
