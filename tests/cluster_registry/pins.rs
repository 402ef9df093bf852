//! Which of the versions of an uploaded skill runtimes with pins serve.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::{Skill, SkillRuntime, SkillStatus};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::digest;
use super::installation::{self, Installation};
use super::requests::{Dialect, Program, Sent, form};

const IMAGE: &str = "r.io/python@sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// The form of a skill of this version.
fn upload(version: &str) -> Sent {
    let head = format!("name: draw\ndescription: About draw.\nmetadata:\n  version: \"{version}\"\n");
    let document = format!("---\n{head}---\nText of {version}.\n");
    form("draw", [("SKILL.md", document.as_bytes())])
}

/// The member of the answer to an upload.
async fn post(team: &Program, path: &str, sent: Sent, member: &str) -> String {
    let answer = team.send(Dialect::OpenAi, "POST", path, Some(sent)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()[member].as_str().unwrap().to_owned()
}

/// `name:reason`, with the version that is served and its number if it is not the default one, of each runtime of the status.
fn verdicts(status: &SkillStatus) -> String {
    let of = |serves: &str| {
        let served = status.earlier.iter().find(|earlier| earlier.revision == serves);
        let version = served.and_then(|served| served.version.clone()).unwrap_or_default();
        let number = served.and_then(|served| served.upload_version).unwrap_or_default();
        format!("={version}/{number}")
    };
    let runtimes = status.runtimes.iter().map(|verdict| {
        let mark = if verdict.accepted { "" } else { "!" };
        let serves = verdict.serves.as_deref().map(of).unwrap_or_default();
        format!("{mark}{}:{}{serves}", verdict.name, verdict.reason)
    });
    runtimes.collect::<Vec<_>>().join(" ")
}

/// Waits until the runtimes say this of the skill at a default version.
async fn until(skills: &Api<Skill>, default: &str, expected: &str) -> SkillStatus {
    let found = async {
        loop {
            let status = skills.get("draw").await.unwrap().status.unwrap_or_default();
            if status.version.as_deref() == Some(default) && verdicts(&status) == expected {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(installation::SOON, found).await;
    let Ok(status) = found else {
        let status = skills.get("draw").await.unwrap().status.unwrap_or_default();
        panic!("{default} {expected}: {:?} {}", status.version, verdicts(&status));
    };
    status
}

/// Waits until a runtime says this of the skill.
async fn until_said(runtimes: &Api<SkillRuntime>, expected: &str) {
    let said = async {
        loop {
            let status = runtimes.get("pinned").await.unwrap().status.unwrap_or_default();
            let mut rejected = status.rejected_skills.iter();
            if rejected.any(|skill| skill.message.contains(expected)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let said = tokio::time::timeout(installation::SOON, said).await;
    assert!(said.is_ok(), "{expected}: {:?}", runtimes.get("pinned").await);
}

fn pin(version: &str) -> Value {
    json!({"skillSelector": {"skills": [{"name": "draw", "version": version}]}, "sandbox": {"image": IMAGE}})
}

#[test]
fn a_pin_serves_the_highest_version_that_it_takes_whichever_is_the_default() {
    let test = "a_pin_serves_the_highest_version_that_it_takes_whichever_is_the_default";
    cluster_support::run(test, async |cluster| {
        let installation = Installation::start(cluster).await;
        let team = installation.client_of("team", "default").await;
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &installation.team);
        let runtimes: Api<SkillRuntime> = Api::namespaced(installation.client.clone(), &installation.team);
        for (name, spec) in [("pinned", pin("^1")), ("plain", json!({"sandbox": {"image": IMAGE}}))] {
            let runtime = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": name}, "spec": spec});
            let runtime = serde_json::from_value(runtime).unwrap();
            runtimes.create(&PostParams::default(), &runtime).await.unwrap();
        }
        let id = post(&team, "/v1/skills", upload("1.0.0"), "id").await;
        until(&skills, "1.0.0", "pinned:Accepted plain:Accepted").await;

        // A version by request only, and then a default one that the pin does not take.
        let versions = format!("/v1/skills/{id}/versions");
        assert_eq!(post(&team, &versions, upload("1.2.0"), "version").await, "2");
        let chosen = until(&skills, "1.0.0", "pinned:KeptVersion=1.2.0/2 plain:Accepted").await;
        let revision = &chosen.earlier[0];
        let of_second = skills.get("draw-v2").await.unwrap();
        assert_eq!(revision.digest, digest(&of_second));
        let maps: Api<ConfigMap> = Api::namespaced(installation.client.clone(), &installation.team);
        let map = maps.get(&revision.config_maps[0].name).await.unwrap();
        assert_eq!(map.metadata.owner_references.unwrap()[0].name, "draw");
        assert!(map.data.unwrap()["f0-SKILL.md"].contains("Text of 1.2.0."));
        until_said(&runtimes, "the pin takes (^1); the default version is 1.0.0").await;
        assert_eq!(post(&team, &versions, upload("2.0.0"), "version").await, "3");
        let set = json!({"default_version": "3"});
        let path = format!("/v1/skills/{id}");
        assert_eq!(post(&team, &path, set.into(), "default_version").await, "3");
        let held = until(&skills, "2.0.0", "pinned:KeptVersion=1.2.0/2 plain:Accepted").await;
        assert_eq!(held.earlier.len(), 1, "nothing else is kept");
        until_said(&runtimes, "the pin takes (^1); the default version is 2.0.0").await;

        // Later versions, and other pins.
        assert_eq!(post(&team, &versions, upload("1.10.0"), "version").await, "4");
        until(&skills, "2.0.0", "pinned:KeptVersion=1.10.0/4 plain:Accepted").await;
        let gone = team
            .send(Dialect::OpenAi, "DELETE", &format!("{versions}/4"), None)
            .await;
        assert_eq!(gone.status, StatusCode::OK, "{}", gone.text());
        until(&skills, "2.0.0", "pinned:KeptVersion=1.2.0/2 plain:Accepted").await;
        for (version, expected) in [
            ("~1.0", "pinned:KeptVersion=1.0.0/1 plain:Accepted"),
            (">=0", "pinned:Accepted plain:Accepted"),
            ("^3", "!pinned:VersionNotMatched plain:Accepted"),
        ] {
            let edit = Patch::Merge(json!({"spec": pin(version)}));
            runtimes.patch("pinned", &PatchParams::default(), &edit).await.unwrap();
            until(&skills, "2.0.0", expected).await;
        }
        until_said(&runtimes, "no other one that the registry keeps").await;
    });
}
