//! SkillRuntimes: verdicts on both sides, the fence, the switches.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack::api::{Skill, SkillRuntime};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::objects::{IMAGE, create, create_runtime, document, inline, install_definitions, merge, runtimes, skills};
use crate::wait::until;

/// `<Ready>/<reason> <accepted>+<rejected>` of the present generation.
pub(crate) fn reads(expected: &str) -> impl Fn(Option<&SkillRuntime>) -> bool + use<> {
    let expected = expected.to_owned();
    move |runtime| {
        let Some((runtime, status)) = runtime.and_then(|runtime| Some((runtime, runtime.status.as_ref()?))) else {
            return false;
        };
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let counts = status.skills.unwrap_or_default();
        status.observed_generation == runtime.metadata.generation
            && ready.is_some_and(|ready| {
                format!(
                    "{}/{} {}+{}",
                    ready.status, ready.reason, counts.accepted, counts.rejected
                ) == expected
            })
    }
}

/// What runtimes say of a skill: `name:reason`, sorted, with `!` before refusals.
fn told(expected: &str) -> impl Fn(Option<&Skill>) -> bool + use<> {
    let expected = expected.to_owned();
    move |skill| {
        let runtimes = skill
            .into_iter()
            .flat_map(|skill| skill.status.iter().flat_map(|status| &status.runtimes));
        let lines: Vec<String> = runtimes
            .map(|verdict| {
                format!(
                    "{}{}:{}",
                    if verdict.accepted { "" } else { "!" },
                    verdict.name,
                    verdict.reason
                )
            })
            .collect();
        lines.join(" ") == expected
    }
}

fn with(more: &Value) -> Value {
    let mut spec = inline(&document("x", "y"));
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[test]
fn runtime_and_skill_tell_the_same_verdict() {
    cluster_support::run("runtime_and_skill_tell_the_same_verdict", async |cluster| {
        install_definitions(cluster).await;
        let client = cluster.client().await;
        let (home, away) = (
            cluster.namespace("operator-home").await,
            cluster.namespace("operator-away").await,
        );
        let default = format!("{}/main", home.name());
        let controller = Controller::start(
            cluster,
            home.name(),
            &[home.name(), away.name()],
            &["--default-runtime", &default],
            "leading",
        )
        .await;
        let (here, there) = (skills(&client, home.name()), skills(&client, away.name()));
        let rows = [
            ("plain", json!({}), "main:Accepted"),
            ("always", json!({"activation": {"mode": "Always"}}), "main:ServedAtCap"),
            (
                "slow",
                json!({"sandbox": {"timeoutSeconds": 61}}),
                "!main:TimeoutOverCeiling",
            ),
            (
                "large",
                json!({"sandbox": {"resources": {"limits": {"memory": "9999999Ei"}}}}),
                "!main:ResourcesOverCeiling",
            ),
            (
                "evil",
                json!({"sandbox": {"image": "evil.io/img@sha256:00"}}),
                "!main:ImageNotAllowed",
            ),
            ("off", json!({"suspend": true}), "!main:Suspended"),
        ];
        for (name, more, _) in &rows {
            create(&here, name, with(more)).await;
        }
        create(&there, "visitor", with(&json!({}))).await;
        create(
            &there,
            "closed",
            with(&json!({"allowedRuntimes": {"namespaces": {"from": "Same"}}})),
        )
        .await;
        let api = runtimes(&client, home.name());
        let spec = json!({"sandbox": {"image": IMAGE, "resources": {"limits": {"memory": "256Mi"}}}});
        create_runtime(&api, "main", spec).await;
        for (name, _, expected) in &rows {
            until(&here, name, expected, told(expected)).await;
        }
        until(&there, "visitor", "served", told("main:Accepted")).await;
        until(&there, "closed", "refused", told("!main:NotAllowedBySkill")).await;
        let runtime = until(&api, "main", "counts", reads("True/Serving 3+5")).await.unwrap();
        let status = runtime.status.unwrap();
        assert_eq!(
            status.rejected_skills.len(),
            6,
            "five refusals and one reservation: {:?}",
            status.rejected_skills
        );
        // A name that a visitor shares.
        create(
            &there,
            "plain",
            with(&json!({"allowedRuntimes": {"namespaces": {"from": "All"}}})),
        )
        .await;
        until(&here, "plain", "a shared name", told("main:NameShared")).await;
        until(&there, "plain", "a shared name", told("main:NameShared")).await;
        // Without the runtime nobody names it any more.
        api.delete("main", &DeleteParams::default()).await.unwrap();
        until(&here, "plain", "forgotten", told("")).await;
        controller.stop();
    });
}

#[test]
fn the_fence_stands_is_mended_and_takes_no_foreign_object() {
    cluster_support::run(
        "the_fence_stands_is_mended_and_takes_no_foreign_object",
        async |cluster| {
            install_definitions(cluster).await;
            let client = cluster.client().await;
            let namespace = cluster.namespace("operator-fence").await;
            let name = namespace.name();
            let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), name);
            let foreign = serde_json::from_value(json!({
                "metadata": {"name": "knack-sandbox-taken"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
            }))
            .unwrap();
            let before = policies.create(&PostParams::default(), &foreign).await.unwrap();
            let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
            let api = runtimes(&client, name);
            create_runtime(&api, "main", json!({"sandbox": {"image": IMAGE}})).await;
            create_runtime(&api, "taken", json!({"sandbox": {"image": IMAGE}})).await;
            create_runtime(&api, "bare", json!({})).await;
            create_runtime(&api, "tagged", json!({"sandbox": {"image": "r.io/python:latest"}})).await;
            until(&api, "main", "serving", reads("True/Serving 0+0")).await;
            until(&api, "taken", "a conflict", reads("False/NameConflict 0+0")).await;
            until(&api, "bare", "no image", reads("False/NoSandboxImage 0+0")).await;
            until(&api, "tagged", "not pinned", reads("False/ImageNotPinned 0+0")).await;
            assert_eq!(policies.get("knack-sandbox-taken").await.unwrap(), before, "untouched");
            let made = policies.get("knack-sandbox-main").await.unwrap();
            let spec = serde_json::to_value(made.spec.unwrap()).unwrap();
            let expected = json!({"podSelector": {"matchLabels": {"knack.dev/role": "sandbox"}}, "policyTypes": ["Ingress", "Egress"]});
            assert_eq!(spec, expected);
            // Opened by somebody: closed again with the next look.
            merge(&policies, "knack-sandbox-main", json!({"spec": {"egress": [{}]}})).await;
            merge(&api, "main", json!({"spec": {"suspend": true}})).await;
            until(&api, "main", "suspended", reads("True/Suspended 0+0")).await;
            let closed = |policy: Option<&NetworkPolicy>| {
                policy
                    .and_then(|policy| policy.spec.as_ref())
                    .is_some_and(|spec| spec.egress.iter().flatten().next().is_none())
            };
            until(&policies, "knack-sandbox-main", "closed", closed).await;
            controller.stop();
        },
    );
}
