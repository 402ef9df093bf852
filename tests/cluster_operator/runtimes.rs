//! SkillRuntimes: verdicts on both sides, the fence, the switches.

use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use knack_api::{Skill, SkillRuntime};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::objects::reads as state_reads;
use crate::objects::{IMAGE, create, create_runtime, document, inline, merge, message, runtimes, skills};
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

/// A template with a setting that has no effect.
const TEMPLATE: &str = "---\nname: x\ndescription: d\nmodel:\n  temperature: 0.2\ninputs:\n  - {name: a, required: true}\n---\nSay {{a}}.\n";

/// Settings without effect are named, a placeholder that is no input keeps a template from service, and a pin that puts it into every request
/// must give its inputs.
async fn templates_are_judged(here: &Api<Skill>, api: &Api<SkillRuntime>) {
    let asks = until(here, "asks", "asks", told("main:InputsMissing")).await.unwrap();
    assert!(
        message(&asks, "Ready").contains("model.temperature has no effect"),
        "{}",
        message(&asks, "Ready")
    );
    let undeclared = until(here, "undeclared", "refused", state_reads("False/InvalidSkill+Stalled"))
        .await
        .unwrap();
    assert!(message(&undeclared, "Ready").contains("placeholder {{b}} is not a declared input"));
    let pin = json!([{"name": "asks", "mode": "Always", "inputs": {"a": "value"}}]);
    merge(api, "main", json!({"spec": {"skillSelector": {"skills": pin}}})).await;
    until(here, "asks", "has its input", told("main:Accepted")).await;
}

/// What a skill declares of packages is told at every runtime, and a runtime that demands a lock serves none without.
async fn packages_are_judged(here: &Api<Skill>, api: &Api<SkillRuntime>) {
    create(here, "packed", with(&json!({"packages": {"python": ["six>=1"]}}))).await;
    let packed = until(here, "packed", "served", told("main:PackagesMissing"))
        .await
        .unwrap();
    let status = packed.status.unwrap();
    let declared = status.packages.unwrap();
    assert_eq!((declared.python, declared.locked), (vec!["six>=1".to_owned()], false));
    let there = status.runtimes[0].packages.as_ref().unwrap();
    assert!(
        there.state == "PackagesOff" && there.message.contains(IMAGE),
        "{there:?}"
    );
    merge(api, "main", json!({"spec": {"packages": {"requireLock": true}}})).await;
    until(here, "packed", "refused", told("!main:LockRequired")).await;
    merge(api, "main", json!({"spec": {"packages": null}})).await;
    until(here, "packed", "served again", told("main:PackagesMissing")).await;
}

#[test]
fn runtime_and_skill_have_the_same_verdict() {
    cluster_support::run("runtime_and_skill_have_the_same_verdict", async |cluster| {
        cluster.install_definitions();
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
            ("plain", json!({"ids": ["skill_plain"]}), "main:Accepted"),
            ("always", json!({"activation": {"mode": "Always"}}), "main:ServedAtCap"),
            (
                "slow",
                json!({"sandbox": {"timeoutSeconds": 121}}),
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
        create(&here, "asks", inline(TEMPLATE)).await;
        create(&here, "undeclared", inline(&TEMPLATE.replace("{{a}}", "{{b}}"))).await;
        create(&there, "visitor", with(&json!({}))).await;
        create(
            &there,
            "closed",
            with(&json!({"allowedRuntimes": {"namespaces": {"from": "Same"}}})),
        )
        .await;
        let api = runtimes(&client, home.name());
        let spec = json!({
            "sandbox": {"image": IMAGE, "resources": {"limits": {"memory": "256Mi"}}},
            "skillSelector": {"skills": [{"name": "asks", "mode": "Always"}]},
        });
        create_runtime(&api, "main", spec).await;
        for (name, _, expected) in &rows {
            until(&here, name, expected, told(expected)).await;
        }
        until(&there, "visitor", "served", told("main:Accepted")).await;
        until(&there, "closed", "refused", told("!main:NotAllowedBySkill")).await;
        let runtime = until(&api, "main", "counts", reads("True/Serving 4+6")).await.unwrap();
        let status = runtime.status.unwrap();
        assert_eq!(
            status.rejected_skills.len(),
            8,
            "six refusals and two reservations: {:?}",
            status.rejected_skills
        );
        let listing = status.listing.unwrap();
        assert_eq!(
            (listing.whole, listing.cut, listing.bare, listing.left_out),
            (3, 0, 0, 0)
        );
        let plain = here.get("plain").await.unwrap().status.unwrap();
        assert_eq!(plain.ids, ["skill_plain"]);
        templates_are_judged(&here, &api).await;
        packages_are_judged(&here, &api).await;
        // A name that a visitor shares: the runtime's own namespace keeps it.
        create(
            &there,
            "plain",
            with(&json!({"allowedRuntimes": {"namespaces": {"from": "All"}}})),
        )
        .await;
        until(&there, "plain", "a shared name", told("main:NameShared")).await;
        until(&here, "plain", "its own name", told("main:Accepted")).await;
        // Without the runtime no status names it any more.
        api.delete("main", &DeleteParams::default()).await.unwrap();
        until(&here, "plain", "forgotten", told("")).await;
        controller.stop();
    });
}

#[test]
fn the_fence_is_applied_restored_and_takes_no_foreign_object() {
    cluster_support::run(
        "the_fence_is_applied_restored_and_takes_no_foreign_object",
        async |cluster| {
            cluster.install_definitions();
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
            // Opened from outside: closed again by the next check.
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

/// The default runtime is in a separate namespace that serves no Skills: a controller that manages only the namespaces
/// of its Skills must manage it too.
#[test]
fn a_namespace_where_code_runs_is_managed_beside_the_watched_ones() {
    cluster_support::run(
        "a_namespace_where_code_runs_is_managed_beside_the_watched_ones",
        async |cluster| {
            cluster.install_definitions();
            let client = cluster.client().await;
            let (home, sandboxes, team) = (
                cluster.namespace("operator-watch-home").await,
                cluster.namespace("operator-watch-sandboxes").await,
                cluster.namespace("operator-watch-team").await,
            );
            let default = format!("{}/main", sandboxes.name());
            let arguments = ["--runtime-namespaces", sandboxes.name(), "--default-runtime", &default];
            let controller = Controller::start(cluster, home.name(), &[team.name()], &arguments, "leading").await;
            let api = runtimes(&client, sandboxes.name());
            create_runtime(&api, "main", json!({"sandbox": {"image": IMAGE}})).await;
            let of_team = skills(&client, team.name());
            create(&of_team, "a", inline(&document("a", "x"))).await;
            until(&of_team, "a", "served", told("main:Accepted")).await;
            until(&api, "main", "serving", reads("True/Serving 1+0")).await;
            let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), sandboxes.name());
            policies.get("knack-sandbox-main").await.unwrap();
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), sandboxes.name());
            quotas.get("knack-sandboxes").await.unwrap();
            // The hub runs code in the installation's list alone, whatever rights this controller has in another namespace.
            let elsewhere = runtimes(&client, team.name());
            create_runtime(&elsewhere, "own", json!({"sandbox": {"image": IMAGE}})).await;
            until(&elsewhere, "own", "not authorized", reads("False/HubNotAuthorized 1+0")).await;
            let policies: Api<NetworkPolicy> = Api::namespaced(client, team.name());
            assert!(policies.get_opt("knack-sandbox-own").await.unwrap().is_none());
            controller.stop();
        },
    );
}

/// An edit that a pin does not take leaves its runtime at the revision before it, and another runtime has the new one.
#[test]
fn a_pin_holds_a_skill_at_the_versions_that_it_takes() {
    cluster_support::run("a_pin_holds_a_skill_at_the_versions_that_it_takes", async |cluster| {
        cluster.install_definitions();
        let client = cluster.client().await;
        let namespace = cluster.namespace("operator-pins").await;
        let name = namespace.name();
        let controller = Controller::start(cluster, name, &[name], &[], "leading").await;
        let (here, api) = (skills(&client, name), runtimes(&client, name));
        let pin = |version: &str| json!({"skills": [{"name": "a", "version": version}]});
        let held = json!({"sandbox": {"image": IMAGE}, "skillSelector": pin("^1")});
        create_runtime(&api, "any", json!({"sandbox": {"image": IMAGE}})).await;
        create_runtime(&api, "held", held).await;
        create(&here, "a", with(&json!({"version": "1.2.0"}))).await;
        let served = told("any:Accepted held:Accepted");
        let first = until(&here, "a", "served by both", served).await.unwrap();
        let first = first.status.unwrap().artifact.unwrap().revision;
        merge(&here, "a", json!({"spec": {"version": "2.0.0"}})).await;
        let edited = until(&here, "a", "held", told("any:Accepted held:EarlierRevision"))
            .await
            .unwrap();
        let status = edited.status.unwrap();
        assert_eq!(status.runtimes[1].serves.as_deref(), Some(&*first));
        let earlier = &status.earlier[0];
        assert_eq!((&earlier.revision, earlier.version.as_deref()), (&first, Some("1.2.0")));
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
        maps.get(&earlier.config_maps[0].name).await.unwrap();
        let says = |runtime: Option<&SkillRuntime>| {
            let status = runtime.and_then(|runtime| runtime.status.as_ref());
            let mut rejected = status.into_iter().flat_map(|status| &status.rejected_skills);
            rejected.any(|skill| skill.message.contains("its version is 2.0.0, and the pin requires ^1"))
        };
        until(&api, "held", "says why", says).await;
        merge(&api, "held", json!({"spec": {"skillSelector": pin("^2")}})).await;
        let served = told("any:Accepted held:Accepted");
        let moved = until(&here, "a", "served by both again", served).await.unwrap();
        assert!(moved.status.unwrap().earlier.is_empty(), "nothing serves it any more");
        merge(&api, "held", json!({"spec": {"skillSelector": pin("^3")}})).await;
        until(&here, "a", "refused", told("any:Accepted !held:VersionNotMatched")).await;
        controller.stop();
    });
}
