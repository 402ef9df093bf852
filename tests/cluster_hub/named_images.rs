//! Images that a SkillRuntime names: what a Skill runs in that asks for one, and what becomes of a Skill that asks for one
//! that there is not.

use std::time::Duration;

use cluster_support::{progress, run};
use k8s_openapi::api::batch::v1::Job;
use knack_api::{Skill, SkillRuntime};
use knack_execution::StartKind;
use knack_hub_api::RefusalCode;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::answer::posted;
use super::support::{Installation, SOON, fresh_id};

/// How often something without a signal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Tells the interpreter of the image that it runs in; the other image has none of that name.
const IN_NODE: [&str; 3] = ["node", "-e", "console.log('node', process.versions.node)"];

/// Applies a Skill that asks for a sandbox.
async fn apply(installation: &Installation, name: &str, sandbox: &Value) {
    let document = format!("---\nname: {name}\ndescription: A skill of a test.\n---\nText.\n");
    let body = json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": name},
        "spec": {"source": {"inline": {"files": {"SKILL.md": document}}}, "sandbox": sandbox},
    });
    let api: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let params = PatchParams::apply("hub-test").force();
    api.patch(name, &params, &Patch::Apply(&body)).await.unwrap();
}

/// Waits until Skill and SkillRuntime say that the Skill is not served for this reason, and returns the message.
async fn told(installation: &Installation, name: &str, reason: &str) -> String {
    let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.tenants[0]);
    let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());
    let told = tokio::time::timeout(SOON, async {
        loop {
            let status = skills.get(name).await.unwrap().status.unwrap_or_default();
            let is_told = status
                .runtimes
                .iter()
                .any(|verdict| verdict.reason == reason && !verdict.accepted);
            let status = runtimes.get("default").await.unwrap().status.unwrap_or_default();
            let rejected = status.rejected_skills.into_iter().find(|skill| skill.name == name);
            if let Some(rejected) = rejected.filter(|rejected| is_told && rejected.reason == reason) {
                return rejected.message;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    told.await.unwrap_or_else(|_| panic!("{name}: {reason}"))
}

/// Jobs of sandboxes in an image.
async fn jobs_in(installation: &Installation, image: &str) -> usize {
    let api: Api<Job> = Api::namespaced(installation.client.clone(), installation.run.name());
    let jobs = api.list(&ListParams::default()).await.unwrap();
    let is_in = |job: &&Job| {
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        pod.is_some_and(|pod| pod.containers.iter().all(|found| found.image.as_deref() == Some(image)))
    };
    jobs.iter().filter(is_in).count()
}

#[test]
fn a_skill_runs_in_the_image_that_it_names_and_an_unknown_name_is_reported() {
    run(
        "a_skill_runs_in_the_image_that_it_names_and_an_unknown_name_is_reported",
        async |cluster| {
            let image = cluster.image("sandbox-node");
            let spec = json!({"sandbox": {"images": [{"name": "node", "image": image}]}, "warmPool": {"replicas": 1}});
            let installation = Installation::start(cluster, 1, spec).await;
            let (tenant, client) = (installation.tenants[0].name().to_owned(), installation.tenant(0).await);
            for (name, sandbox) in [
                ("plain", json!({})),
                ("named", json!({"imageName": "node"})),
                ("unknown", json!({"imageName": "nodes"})),
                // Being named does not allow the reference.
                ("referring", json!({"image": image})),
            ] {
                apply(&installation, name, &sandbox).await;
            }
            installation.served(&client, "plain").await;
            let line = installation.served(&client, "named").await;
            let first = installation
                .run_skill(&client, &tenant, "named", &IN_NODE)
                .await
                .unwrap();
            assert!(first.stdout.text().starts_with("node "), "{first:?}");
            assert_eq!(
                first.timings.start,
                StartKind::Cold,
                "no pod of that image is made before it is used"
            );
            let plain = installation.run_skill(&client, &tenant, "plain", &IN_NODE).await;
            assert!(
                !plain.is_ok_and(|result| result.stdout.text().contains("node ")),
                "the runtime's own image"
            );
            // The pool has one by now, or soon.
            tokio::time::timeout(SOON, async {
                loop {
                    let result = installation
                        .run_skill(&client, &tenant, "named", &IN_NODE)
                        .await
                        .unwrap();
                    assert!(result.stdout.text().starts_with("node "), "{result:?}");
                    if result.timings.start == StartKind::Warm {
                        return;
                    }
                    progress("a cold start");
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            })
            .await
            .expect("a warm pod of the named image is used");
            assert!(jobs_in(&installation, &image).await >= 2);

            let message = told(&installation, "unknown", "ImageUnknown").await;
            assert!(
                message.contains("imageName nodes") && message.contains("(it has node)"),
                "{message}"
            );
            told(&installation, "referring", "ImageNotAllowed").await;
            let mut names = installation.names(&client).await;
            names.sort();
            assert_eq!(names, [format!("{tenant}/named"), format!("{tenant}/plain")]);
            let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), installation.run.name());

            // A name that is taken away.
            let nothing = Patch::Merge(json!({"spec": {"sandbox": {"images": null}}}));
            runtimes
                .patch("default", &PatchParams::default(), &nothing)
                .await
                .unwrap();
            let message = told(&installation, "named", "ImageUnknown").await;
            assert!(message.contains("(it has none)"), "{message}");
            let refused = tokio::time::timeout(SOON, async {
                loop {
                    let post = installation.post(&line, &fresh_id().to_string(), &IN_NODE).to_string();
                    match posted(&client, post).await {
                        Err(refusal) if refusal.code == RefusalCode::NotFound => return refusal,
                        // It runs still, or the hub is busy.
                        Ok(_) | Err(_) => tokio::time::sleep(LOOK_EVERY).await,
                    }
                }
            });
            let refused = refused.await.expect("it is not run any more");
            assert!(refused.message.contains("no longer) served"), "{refused}");
        },
    );
}
