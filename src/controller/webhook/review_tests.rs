//! Reviews good and bad.

use super::*;

fn parameters() -> Parameters {
    Parameters::defaults().unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
fn pod(labels: Value) -> Value {
    json!({"metadata": {"labels": labels, "namespace": "team-a"}, "spec": {"containers": [{"name": "app", "image": "app"}]}})
}

fn asking() -> Value {
    pod(json!({"knack.dev/inject": "enabled"}))
}

/// A review of a new pod, with these members of the request changed.
#[expect(clippy::needless_pass_by_value, reason = "`json!` values are written at the call")]
fn request(object: &Value, changes: Value) -> Vec<u8> {
    let mut request = json!({
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "team-a", "operation": "CREATE",
        "userInfo": {"username": "someone"}, "object": object, "oldObject": null, "dryRun": false, "options": {},
    });
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

/// The object after the patch of an answer: every operation that the webhook sends is an `add` of a member.
fn patched(before: &Value, answer: &Value) -> Value {
    let response = &answer["response"];
    assert_eq!(response["uid"], "u-1");
    assert_eq!(response["allowed"], true);
    let Some(patch) = response["patch"].as_str() else {
        assert_eq!(response.get("patchType"), None);
        return before.clone();
    };
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: Vec<Value> = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
    let mut after = before.clone();
    for operation in patch {
        assert_eq!(operation["op"], "add");
        let (parent, member) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        after.pointer_mut(parent).unwrap()[member] = operation["value"].clone();
    }
    after
}

#[test]
fn the_patch_makes_what_the_function_makes() {
    let mut many = asking();
    let container =
        |number: usize| json!({"name": format!("app-{number}"), "image": "app", "env": [{"name": "A", "value": "b"}]});
    many["spec"]["containers"] = (0..200).map(container).collect();
    let mut annotated = asking();
    annotated["metadata"]["annotations"] =
        json!({"team": "a", "knack.dev/runtime": "no/such/name", "knack.dev/injection": "\u{0}"});
    let mut host = asking();
    host["spec"]["hostNetwork"] = json!(true);
    let mut nulls = asking();
    nulls["metadata"]["annotations"] = Value::Null;
    nulls["spec"]["initContainers"] = Value::Null;
    let mut nameless = asking();
    nameless.as_object_mut().unwrap().remove("metadata");
    let given = inject(&asking(), &parameters()).pod;
    for (what, before, expected) in [
        ("one container", asking(), ReviewOutcome::Injected),
        ("by its namespace's label", pod(json!({})), ReviewOutcome::Injected),
        ("200 containers", many, ReviewOutcome::Injected),
        ("annotations of nonsense", annotated, ReviewOutcome::Injected),
        ("members that are null", nulls, ReviewOutcome::Injected),
        ("no metadata", nameless, ReviewOutcome::Injected),
        ("the host's network", host, ReviewOutcome::Refused),
        ("one that has the sidecar", given, ReviewOutcome::Unchanged),
    ] {
        for dry_run in [false, true] {
            let body = request(&before, json!({"dryRun": dry_run}));
            let (answer, outcome) = review(&body, &parameters()).unwrap();
            assert_eq!(outcome, expected, "{what}");
            let after = patched(&before, &answer);
            assert_eq!(after, inject(&before, &parameters()).pod, "{what}");
            assert_eq!(after == before, expected == ReviewOutcome::Unchanged, "{what}");
        }
    }
}

#[test]
fn review_without_opted_in_new_pod_is_allowed_unchanged() {
    let deployments = json!({"resource": {"group": "apps", "version": "v1", "resource": "deployments"}});
    for (what, object, changes) in [
        ("an update", asking(), json!({"operation": "UPDATE"})),
        ("a subresource", asking(), json!({"subResource": "ephemeralcontainers"})),
        ("another kind", asking(), deployments),
        ("a deletion", Value::Null, json!({"operation": "DELETE"})),
        ("no resource", asking(), json!({"resource": {}})),
        ("disabled", pod(json!({"knack.dev/inject": "disabled"})), json!({})),
        ("a sandbox", pod(json!({"knack.dev/role": "sandbox"})), json!({})),
        ("no object", Value::Null, json!({})),
        ("an object that is a list", json!([1]), json!({})),
        (
            "containers that are text",
            json!({"spec": {"containers": "x"}}),
            json!({}),
        ),
        (
            "labels that are a list",
            json!({"metadata": {"labels": []}, "spec": {}}),
            json!({}),
        ),
    ] {
        let (answer, outcome) = review(&request(&object, changes), &parameters()).unwrap();
        assert_eq!(outcome, ReviewOutcome::Unchanged, "{what}");
        assert_eq!(patched(&object, &answer), object, "{what}");
    }
}

#[test]
fn body_that_is_no_review_is_refused_with_a_reason() {
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let of = |text: &str| text.as_bytes().to_vec();
    for (body, reason) in [
        (Vec::new(), "is not an AdmissionReview"),
        (of("hello"), "is not an AdmissionReview"),
        (vec![0xff, 0xfe, 0x00], "is not an AdmissionReview"),
        (deep, "is not an AdmissionReview"),
        (of("null"), "is not an AdmissionReview"),
        (of("{}"), "is not an AdmissionReview"),
        (
            of(r#"{"apiVersion":7,"kind":"AdmissionReview"}"#),
            "is not an AdmissionReview",
        ),
        (of(r#"{"apiVersion":"v1","kind":"Pod"}"#), "Pod of v1"),
        (
            of(r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#),
            "v1beta1",
        ),
        (
            of(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#),
            "no request.uid",
        ),
        (
            of(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":""}}"#),
            "no request.uid",
        ),
        (request(&asking(), json!({"uid": 7})), "is not an AdmissionReview"),
        (
            request(&asking(), json!({"resource": "pods"})),
            "is not an AdmissionReview",
        ),
    ] {
        let error = review(&body, &parameters()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn values_are_counted_by_commas_outside_of_texts() {
    for (body, most, expected) in [
        ("[0,0,0]", 3, false),
        ("[0,0,0,0]", 3, true),
        (r#"{"a":"1,2,3,4","b":"\",,,\\"}"#, 3, false),
        (r#"{"a":"\\","b":[0,0,0]}"#, 3, true),
        ("", 3, false),
    ] {
        assert_eq!(has_more_values(body.as_bytes(), most), expected, "{body}");
    }
}
