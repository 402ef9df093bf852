//! Every rule of the definitions, proven by the API server with objects that it takes and refuses.

use knack_api::schema::RULES;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

/// The documents of a file, each with its `# expect:` line.
fn documents(file: &str) -> Vec<(String, Value)> {
    let path = format!("{}/tests/cluster_operator/crds/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.split("\n---\n")
        .map(|document| {
            let expected = document.lines().find_map(|line| line.strip_prefix("# expect: "));
            let value = serde_saphyr::from_str(&filled(document)).unwrap();
            (expected.unwrap_or_default().to_owned(), value)
        })
        .collect()
}

/// `{{repeat <text> <count>}}` written out.
fn filled(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{repeat ") {
        let (directive, after) = after.split_once("}}").unwrap();
        let (what, count) = directive.split_once(' ').unwrap();
        made.push_str(before);
        // In the file's own comment the count is a word.
        made.push_str(&what.repeat(count.parse().unwrap_or(1)));
        rest = after;
    }
    made + rest
}

/// What the API server says to a dry run with strict field validation.
async fn offered(client: &Client, namespace: &str, object: &Value) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("knack.dev", "v1alpha1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let request = kube::core::Request::new(api.resource_url())
        .create(&params, serde_json::to_vec(&object).unwrap())
        .unwrap();
    let (mut parts, body) = request.into_parts();
    let joint = if parts.uri.query().is_some() { "&" } else { "?" };
    parts.uri = format!("{}{joint}fieldValidation=Strict", parts.uri).parse().unwrap();
    let answer = client.request::<Value>(http::Request::from_parts(parts, body)).await;
    answer.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn accepted_objects_are_accepted_and_refused_ones_say_why() {
    cluster_support::run(
        "accepted_objects_are_accepted_and_refused_ones_say_why",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-crds").await;
            let mut wrong = Vec::new();
            for (_, object) in documents("accepted.yaml") {
                if let Err(error) = offered(&client, namespace.name(), &object).await {
                    wrong.push(format!("{} should be accepted: {error}", object["metadata"]["name"]));
                }
            }
            for (expected, object) in documents("refused.yaml") {
                let name = &object["metadata"]["name"];
                match offered(&client, namespace.name(), &object).await {
                    Ok(()) => wrong.push(format!("{name} should be refused with {expected:?}")),
                    Err(error) if error.contains(&expected) && !expected.is_empty() => {}
                    Err(error) => wrong.push(format!("{name}: {error:?} should contain {expected:?}")),
                }
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        },
    );
}

#[test]
fn every_rule_has_an_object_that_breaks_it() {
    let refused = documents("refused.yaml");
    for rule in RULES {
        let broken = refused.iter().any(|(expected, object)| {
            object["kind"] == rule.kind && !expected.is_empty() && rule.message.contains(expected.as_str())
        });
        assert!(
            broken,
            "{} {}: no refused object has a part of {:?}",
            rule.kind, rule.at, rule.message
        );
    }
}

/// Ready is about its content alone, so the columns of it say nothing of a Skill that nobody serves.
#[test]
fn the_wide_columns_of_a_skill_say_why_no_runtime_serves_it() {
    cluster_support::run(
        "the_wide_columns_of_a_skill_say_why_no_runtime_serves_it",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-columns").await;
            let name = namespace.name();
            let controller = crate::controller::Controller::start(cluster, name, &[name], &[], "leading").await;
            let api = crate::objects::skills(&client, name);
            let document = crate::objects::document("a", "x");
            crate::objects::create(&api, "a", crate::objects::inline(&document)).await;
            crate::wait::until(&api, "a", "ready", crate::objects::reads("True/Delivered")).await;
            let table = cluster.kubectl(&["get", "skills", "-n", name, "-o", "wide"]);
            let (head, row) = table.split_once('\n').unwrap();
            assert!(
                head.contains("ACCEPTED-REASON") && head.contains("ACCEPTED-MESSAGE"),
                "{table}"
            );
            assert!(
                row.contains("NoRuntime") && row.contains("no SkillRuntime selects this skill"),
                "{table}"
            );
            controller.stop();
        },
    );
}

#[test]
fn a_new_object_is_not_current_before_a_controller_saw_it() {
    cluster_support::run(
        "a_new_object_is_not_current_before_a_controller_saw_it",
        async |cluster| {
            cluster.install_definitions();
            let namespace = cluster.namespace("operator-unseen").await;
            let api = crate::objects::skills(&cluster.client().await, namespace.name());
            let made = crate::objects::create(&api, "a", crate::objects::inline("x")).await;
            assert_eq!(made.status.unwrap().observed_generation, Some(-1));
        },
    );
}
