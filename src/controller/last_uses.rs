//! `status.lastUsedTime` of Skills, from what the hub's replicas have noted. Nothing else writes the field, and it is no content.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use knack_api::Skill;
use knack_skill::model::SkillRef;
use knack_vocabulary::CONFIG_MAP_SKILL_USES;
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::sync::watch;
use tracing::debug;

use super::cluster_state::decoded;
use super::context::Context;
use crate::environments::follow_one;
use crate::last_uses::{LastUses, is_ahead, moves, now, read};
use crate::status_write::Target;

/// Pause after a write, which makes at most 5 in a second for all Skills together: a thirtieth of the rate at which 10,000 new Skills
/// become ready. 10,000 skills that are all in use each get their time within 34 minutes.
const PAUSE: Duration = Duration::from_millis(200);
/// Most writes before it is decided anew whose turn it is: half a minute of them.
const WRITES_MAX: usize = 150;
/// Pause between checks where nothing new was noted: a write may have failed, and a Skill may be known only now.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// Follows the notes, and writes what they say, without end.
pub(super) async fn follow(context: Arc<Context>) {
    let (noted, news) = watch::channel(Arc::new(LastUses::new()));
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let following = follow_one(api, CONFIG_MAP_SKILL_USES, "Skills show no new uses", |object| {
        let lines = object.and_then(|object| object.data).unwrap_or_default();
        noted.send_replace(Arc::new(read(&lines)));
    });
    tokio::join!(following, write_all(&context, news));
}

/// What a Skill shows.
#[derive(Debug, Clone, Copy)]
struct Shown {
    created: Option<Timestamp>,
    used: Option<Timestamp>,
}

async fn write_all(context: &Context, mut news: watch::Receiver<Arc<LastUses>>) {
    context.cluster_state.ready().await;
    // What this process has written counts as shown: its event comes later, and with a definition of an earlier release never.
    let mut written = LastUses::new();
    loop {
        let noted = Arc::clone(&news.borrow_and_update());
        written.retain(|skill, _| noted.contains_key(skill));
        let due = due(&noted, |skill| shown(context, &written, skill), now());
        for (skill, used) in due.iter().take(WRITES_MAX) {
            if write(context, skill, *used).await {
                written.insert(skill.clone(), *used);
            }
            tokio::time::sleep(PAUSE).await;
        }
        if due.len() <= WRITES_MAX {
            // No news in time: what is left is looked at again.
            let _ = tokio::time::timeout(CHECK_EVERY, news.changed()).await;
        }
    }
}

/// What a Skill shows, or will show. `None`: there is no such Skill that can be read.
fn shown(context: &Context, written: &LastUses, skill: &SkillRef) -> Option<Shown> {
    let found = context.cluster_state.skill(&skill.namespace, &skill.name)?;
    let object = decoded(&found)?;
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let status = object.status.as_ref();
    let used = status.and_then(|status| Some(status.last_used_time.as_ref()?.0));
    let own = written.get(skill).copied().filter(|own| Some(*own) >= created);
    Some(Shown {
        created,
        used: used.max(own),
    })
}

/// The skills whose time is written now, and the times: first those that show none, then those that are behind the most.
fn due(noted: &LastUses, shown: impl Fn(&SkillRef) -> Option<Shown>, now: Timestamp) -> Vec<(SkillRef, Timestamp)> {
    let due = noted.iter().filter_map(|(skill, used)| {
        let shown = shown(skill)?;
        // A use that is older than the Skill was one of a namesake.
        let is_own = shown.created.is_none_or(|created| !is_ahead(created, *used));
        let is_due = is_own && !is_ahead(*used, now) && moves(shown.used, *used, now);
        // Of a date that is ahead kubectl says that it is invalid.
        is_due.then_some((shown.used, skill, (*used).min(now)))
    });
    let mut due: Vec<_> = due.collect();
    due.sort_by_key(|(before, ..)| *before);
    due.into_iter().map(|(_, skill, used)| (skill.clone(), used)).collect()
}

/// Writes a time. Returns whether it was written.
async fn write(context: &Context, skill: &SkillRef, used: Timestamp) -> bool {
    let Some(found) = context.cluster_state.skill(&skill.namespace, &skill.name) else {
        return false;
    };
    let target = Target {
        namespace: &skill.namespace,
        name: &skill.name,
        uid: found.meta().uid.as_deref(),
    };
    let status = json!({"lastUsedTime": Time(used)});
    match context.status().merge::<Skill>(&target, &status).await {
        Ok(Some(_)) => {
            context.metrics.wrote("SkillLastUsed");
            true
        }
        Ok(None) => false,
        Err(error) => {
            debug!(skill = skill.name, namespace = skill.namespace, %error, "the time of the last use could not be written");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::controller::fixture::{lead, settings, start};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn skill(name: &str) -> SkillRef {
        SkillRef {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn times_are_written_that_are_5_minutes_later_and_first_for_those_that_wait_longest() {
        let now = 10_000;
        let skills = [
            // Name, what it shows, what was noted, and what is written. "anew" was created 61 s after the use of a namesake.
            ("anew", Some(None), now - 100, None),
            ("behind", Some(Some(now - 600)), now - 10, Some(now - 10)),
            ("current", Some(Some(now - 299)), now, None),
            ("far-ahead", Some(None), now + 61, None),
            ("gone", None, now, None),
            ("later", Some(Some(now - 100)), now - 400, None),
            ("new", Some(None), now - 7_000, Some(now - 7_000)),
            ("skewed", Some(Some(now - 301)), now + 60, Some(now)),
        ];
        let noted = skills.iter().map(|(name, _, used, _)| (skill(name), at(*used)));
        let noted: LastUses = noted.collect();
        let shown: BTreeMap<SkillRef, Shown> = skills
            .iter()
            .filter_map(|(name, used, ..)| {
                let shown = Shown {
                    created: (*name == "anew").then(|| at(now - 39)),
                    used: (*used)?.map(at),
                };
                Some((skill(name), shown))
            })
            .collect();
        let written = due(&noted, |skill| shown.get(skill).copied(), at(now));
        let expected = skills
            .iter()
            .filter_map(|(name, .., written)| Some((skill(name), at((*written)?))));
        let expected: LastUses = expected.collect();
        assert_eq!(written.iter().cloned().collect::<LastUses>(), expected);
        let order: Vec<&str> = written.iter().map(|(skill, _)| skill.name.as_str()).collect();
        assert_eq!(order, ["new", "behind", "skewed"]);
    }

    #[tokio::test]
    async fn a_noted_use_is_written_into_the_status_and_no_other_write_names_it() {
        let (before, used) = (
            "2026-11-30T10:00:00Z",
            Timestamp::from_second(now().as_second() - 5).unwrap(),
        );
        let skill = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill",
            "metadata": {"namespace": "team", "name": "draw", "uid": "s", "resourceVersion": "10", "generation": 2},
            "spec": {"source": {"inline": {"files": {"SKILL.md": "---\nname: draw\ndescription: d\n---\nText."}}}},
            "status": {"observedGeneration": 1, "lastUsedTime": before}});
        let notes = json!({"metadata": {"name": CONFIG_MAP_SKILL_USES, "namespace": "home"},
            "data": {"team_draw": used.to_string(), "team_gone": used.to_string()}});
        let (written, mut writes) = tokio::sync::mpsc::unbounded_channel();
        let written = Mutex::new(written);
        let (address, _lease) = start(move |method, path, body| match (method, path) {
            (&Method::GET, "/apis/knack.dev/v1alpha1/skills") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [skill]}))
            }
            (&Method::GET, "/api/v1/namespaces/home/configmaps?name=knack-skill-uses") => {
                Some(json!({"metadata": {"resourceVersion": "1"}, "items": [notes]}))
            }
            (&Method::GET, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw") => Some(skill.clone()),
            (&Method::POST, "/api/v1/namespaces/team/configmaps") => {
                let mut made: Value = serde_json::from_slice(body).unwrap();
                made["metadata"]["uid"] = json!("made");
                Some(made)
            }
            (&Method::PATCH, "/apis/knack.dev/v1alpha1/namespaces/team/skills/draw/status") => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                written.lock().unwrap().send(sent).unwrap();
                Some(skill.clone())
            }
            _ => None,
        });
        let (leading, shutdown) = lead(address, settings()).await;
        let (mut uses, mut reconciles) = (0, 0);
        while uses == 0 || reconciles == 0 {
            let sent: Value = writes.recv().await.unwrap();
            if sent["status"] == json!({"lastUsedTime": used.to_string()}) {
                assert_eq!(sent["metadata"], json!({"uid": "s"}));
                uses += 1;
            } else {
                assert!(sent["status"].get("lastUsedTime").is_none(), "{sent}");
                reconciles += 1;
            }
        }
        shutdown.cancel();
        leading.await.unwrap().unwrap();
    }
}
