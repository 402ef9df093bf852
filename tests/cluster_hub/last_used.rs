//! From a gateway's report to the status of the Skill, past everything that must not notice it.

use std::time::Duration;

use cluster_support::{progress, run};
use k8s_openapi::api::core::v1::ConfigMap;
use knack_api::Skill;
use knack_hub_api::{UseLine, UsesPost};
use knack_vocabulary::CONFIG_MAP_SKILL_USES;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::metrics::reported;
use super::support::{Installation, SOON, next_skill, patiently};

/// The Skill once it fits; each state is asked for anew, so that none is missed.
async fn until(skills: &Api<Skill>, name: &str, what: &str, fits: impl Fn(&Skill) -> bool) -> Skill {
    let mut now = None;
    let waited = tokio::time::timeout(SOON, async {
        loop {
            let found = now.insert(skills.get(name).await.unwrap());
            if fits(found) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(waited.await.is_ok(), "{name}: {what} did not come; it is {now:?}");
    progress(format!("{name}: {what}"));
    now.unwrap()
}

/// The time in a Skill's status.
fn last_used(skill: &Skill) -> Option<String> {
    let time = skill.status.as_ref()?.last_used_time.as_ref()?;
    Some(time.0.to_string())
}

/// The revision in service, once all of the object is judged.
fn current(skill: &Skill) -> Option<&str> {
    let status = skill.status.as_ref()?;
    let artifact = status.artifact.as_ref()?;
    (status.observed_generation == skill.metadata.generation).then_some(artifact.revision.as_str())
}

/// What a table of kubectl has in the row of a Skill under LAST-USED: how long ago, in seconds at first.
fn column<'a>(table: &'a str, skill: &str) -> &'a str {
    let head = table.lines().next().unwrap_or_default();
    let (from, to) = (head.find("LAST-USED").unwrap(), head.find("AGE").unwrap());
    let row = table.lines().find(|row| row.split(' ').next() == Some(skill)).unwrap();
    row[from..to].trim()
}

#[test]
fn a_skill_shows_its_last_use_and_nothing_else_moves() {
    run("a_skill_shows_its_last_use_and_nothing_else_moves", async |cluster| {
        let installation = Installation::start(cluster, 1, json!({})).await;
        let namespace = installation.tenants[0].name().to_owned();
        let skills: Api<Skill> = Api::namespaced(installation.client.clone(), &namespace);
        // As the chart makes it.
        let notes: Api<ConfigMap> = Api::namespaced(installation.client.clone(), installation.system.name());
        let mut empty = ConfigMap::default();
        empty.metadata.name = Some(CONFIG_MAP_SKILL_USES.to_owned());
        notes.create(&PostParams::default(), &empty).await.unwrap();
        let client = installation.tenant(0).await;
        for name in ["hidden", "steady"] {
            installation.skill(&namespace, name, "print('first')").await;
            installation.served(&client, name).await;
        }
        // Nobody serves it any more.
        let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
        skills.patch("hidden", &PatchParams::default(), &suspend).await.unwrap();
        let names = async {
            while installation.names(&client).await != [format!("{namespace}/steady")] {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(SOON, names)
            .await
            .expect("the hub serves one skill");
        let before = until(&skills, "steady", "it is judged", |skill| current(skill).is_some()).await;
        assert_eq!(last_used(&before), None);
        let path = format!("{}&watch=true", installation.catalog());
        let mut catalog = patiently(async || client.hub().watch(&path).await).await.unwrap();
        assert_eq!(next_skill(&mut catalog, |_| true).await.name, "steady");

        let uses = ["hidden", "steady"].map(|name| UseLine {
            skill: format!("{namespace}/{name}"),
            loaded: 1,
            ..UseLine::default()
        });
        let report = format!("/v1/uses?runtime={}", installation.runtime());
        let post = UsesPost { uses: uses.into() };
        reported(&client, &report, &post).await.unwrap();
        let used = until(&skills, "steady", "it was used", |skill| last_used(skill).is_some()).await;
        // Both would have been noted at once, and this one written first.
        assert_eq!(last_used(&skills.get("hidden").await.unwrap()), None);
        let lines = notes.get(CONFIG_MAP_SKILL_USES).await.unwrap().data.unwrap();
        assert_eq!(lines.into_keys().collect::<Vec<_>>(), [format!("{namespace}_steady")]);
        let shown = cluster.kubectl(&["get", "skills", "-n", &namespace]);
        assert_eq!(
            [column(&shown, "hidden"), column(&shown, "steady")].map(|age| age.ends_with('s')),
            [false, true],
            "{shown}"
        );

        // The stream has no line for the use: the next one is that of another skill.
        installation.skill(&namespace, "third", "print('third')").await;
        let next = tokio::time::timeout(SOON, next_skill(&mut catalog, |_| true)).await;
        assert_eq!(next.expect("another skill is served").name, "third");
        // The controller's other writes leave the time as it is.
        let revision = current(&used).unwrap().to_owned();
        installation.skill(&namespace, "steady", "print('second')").await;
        let edited = until(&skills, "steady", "the edit is in service", |skill| {
            current(skill).is_some_and(|now| now != revision)
        })
        .await;
        assert_eq!(last_used(&edited), last_used(&used));
    });
}
