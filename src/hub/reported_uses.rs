//! When skills were used last, as gateways report it to this replica, and the notes of it for the controller: `last_uses`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use knack_skill::model::SkillRef;
use knack_vocabulary::{CONFIG_MAP_SKILL_USES, FIELD_MANAGER_HUB};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::api_call::{CallError, call};
use crate::last_uses::{LastUses, changes, is_kept, moves, now, read};

/// How often uses are noted. With the 15 s of the gateways' reports, a first use is in the status of its Skill within a minute.
const NOTE_EVERY: Duration = Duration::from_secs(30);
/// How often a note is tried at once: other replicas write the same object, seldom at the same moment.
const TRIES: usize = 3;
/// Most skills whose uses are remembered: as many as have series of their own.
const SKILLS_MAX: usize = knack_hub_api::SKILL_SERIES_MAX;

/// The last use of a skill.
#[derive(Debug, Clone, Copy)]
struct LastUse {
    used: Timestamp,
    /// The time that its line had when this replica looked last.
    noted: Option<Timestamp>,
}

/// The last uses that gateways have reported to this replica, of skills that their runtime serves.
#[derive(Debug, Default)]
pub struct ReportedUses(Mutex<BTreeMap<SkillRef, LastUse>>);

impl ReportedUses {
    /// Remembers that a skill was used.
    pub fn remember(&self, skill: SkillRef, used: Timestamp) {
        let mut known = self.known();
        if known.len() < SKILLS_MAX || known.contains_key(&skill) {
            known.entry(skill).or_insert(LastUse { used, noted: None }).used = used;
        }
    }

    /// The uses by which lines would move. What is old is forgotten.
    fn unnoted(&self, now: Timestamp) -> LastUses {
        let mut known = self.known();
        known.retain(|_, last| is_kept(last.used, now));
        let moved = known.iter().filter(|(_, last)| moves(last.noted, last.used, now));
        moved.map(|(skill, last)| (skill.clone(), last.used)).collect()
    }

    /// Remembers what the lines say.
    fn note(&self, noted: &LastUses) {
        for (skill, last) in self.known().iter_mut() {
            last.noted = noted.get(skill).copied();
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<SkillRef, LastUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes uses regularly. Never returns.
pub(super) async fn note_regularly(client: Client, namespace: String, reported: Arc<ReportedUses>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut is_failing = false;
    loop {
        tokio::time::sleep(NOTE_EVERY).await;
        let noted = note(&api, &reported).await;
        if let Err(error) = &noted
            && !is_failing
        {
            tracing::warn!(%error, "uses of skills cannot be noted: the status of Skills shows no new ones until this succeeds");
        }
        is_failing = noted.is_err();
    }
}

/// Notes the uses by which lines move, if there are any. What cannot be noted now is noted the next time.
async fn note(api: &Api<ConfigMap>, reported: &ReportedUses) -> Result<(), CallError> {
    for _ in 0..TRIES {
        let now = now();
        let uses = reported.unnoted(now);
        if uses.is_empty() {
            return Ok(());
        }
        let what = || format!("get ConfigMap {CONFIG_MAP_SKILL_USES}");
        let found = call(what, api.get(CONFIG_MAP_SKILL_USES)).await?;
        let mut lines = found.data.unwrap_or_default();
        let changes = changes(&lines, &uses, now);
        if !changes.is_empty() {
            // Of the object that was read: what another replica has written meanwhile is not taken out.
            let metadata = json!({"resourceVersion": found.metadata.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "data": changes}));
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER_HUB.to_owned()),
                ..PatchParams::default()
            };
            let what = || format!("patch ConfigMap {CONFIG_MAP_SKILL_USES}");
            match call(what, api.patch(CONFIG_MAP_SKILL_USES, &params, &patch)).await {
                Err(error) if error.code() == Some(409) => continue,
                written => lines = written?.data.unwrap_or_default(),
            }
        }
        reported.note(&read(&lines));
        return Ok(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::extract::State;
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::Value;

    use super::*;
    use crate::fixture::failed;

    const PATH: &str = "/api/v1/namespaces/home/configmaps/knack-skill-uses";

    /// The ConfigMap of an API server, with how often it was read and written, and how many writes still come too late.
    #[derive(Debug)]
    struct Stored {
        object: Value,
        reads: usize,
        writes: usize,
        late: usize,
    }

    type Shared = Arc<Mutex<Stored>>;

    async fn read_stored(State(stored): State<Shared>) -> Response {
        let mut stored = stored.lock().unwrap();
        stored.reads += 1;
        Json(stored.object.clone()).into_response()
    }

    async fn patch_stored(State(stored): State<Shared>, Json(patch): Json<Value>) -> Response {
        let mut stored = stored.lock().unwrap();
        if stored.late > 0 {
            stored.late -= 1;
            return failed(409, "Conflict", "m");
        }
        assert_eq!(
            patch["metadata"]["resourceVersion"],
            stored.object["metadata"]["resourceVersion"]
        );
        for (key, line) in patch["data"].as_object().unwrap() {
            if line.is_null() {
                stored.object["data"].as_object_mut().unwrap().remove(key);
            } else {
                stored.object["data"][key] = line.clone();
            }
        }
        stored.writes += 1;
        stored.object["metadata"]["resourceVersion"] = json!(format!("{}", stored.writes + 1));
        Json(stored.object.clone()).into_response()
    }

    async fn api_of(data: Value) -> (Api<ConfigMap>, Shared) {
        let metadata = json!({"name": CONFIG_MAP_SKILL_USES, "namespace": "home", "resourceVersion": "1"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let stored = Arc::new(Mutex::new(Stored {
            object,
            reads: 0,
            writes: 0,
            late: 0,
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route(PATH, get(read_stored).patch(patch_stored));
        let router = router.with_state(Arc::clone(&stored));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        (Api::namespaced(client, "home"), stored)
    }

    fn skill(name: &str) -> SkillRef {
        SkillRef {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    fn ago(seconds: i64) -> Timestamp {
        Timestamp::from_second(now().as_second() - seconds).unwrap()
    }

    #[tokio::test]
    async fn a_use_is_noted_once_beside_what_other_replicas_noted() {
        let (other, old) = (ago(60), ago(86_400));
        let (api, stored) = api_of(json!({"team_csv": other.to_string(), "team_old": old.to_string()})).await;
        let (reported, used) = (ReportedUses::default(), ago(10));
        note(&api, &reported).await.unwrap();
        assert_eq!(
            stored.lock().unwrap().reads,
            0,
            "nothing was used, and nothing is asked"
        );
        reported.remember(skill("pdf"), ago(20));
        reported.remember(skill("pdf"), used);
        // Another replica has noted a use that is as good as this one.
        reported.remember(skill("csv"), used);
        stored.lock().unwrap().late = 1;
        for _ in 0..2 {
            note(&api, &reported).await.unwrap();
            let stored = stored.lock().unwrap();
            assert_eq!(
                stored.object["data"],
                json!({"team_csv": other.to_string(), "team_pdf": used.to_string()})
            );
            assert_eq!((stored.reads, stored.writes), (2, 1));
        }
    }

    #[tokio::test]
    async fn what_could_not_be_noted_is_noted_later() {
        let (api, stored) = api_of(json!({})).await;
        let reported = ReportedUses::default();
        reported.remember(skill("pdf"), ago(10));
        stored.lock().unwrap().late = TRIES;
        note(&api, &reported).await.unwrap();
        assert_eq!(stored.lock().unwrap().object["data"], json!({}));
        note(&api, &reported).await.unwrap();
        let data = stored.lock().unwrap().object["data"].clone();
        assert!(data["team_pdf"].is_string(), "{data}");
    }

    #[test]
    fn skills_without_end_are_not_remembered_without_end() {
        let (reported, used) = (ReportedUses::default(), ago(0));
        for number in 0..=SKILLS_MAX {
            reported.remember(skill(&number.to_string()), used);
        }
        assert_eq!(reported.unnoted(used).len(), SKILLS_MAX);
        let later = ago(-86_400);
        assert!(reported.unnoted(later).is_empty());
        reported.remember(skill("new"), later);
        assert_eq!(reported.unnoted(later).len(), 1, "what was old has made room");
    }
}
