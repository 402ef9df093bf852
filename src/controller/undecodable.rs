//! Objects that do not fit their type: stored before their definition was what it is.

use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use super::conditions::{Verdict, VerdictState, conditions};
use super::context::Context;
use super::error::ControllerError;
use super::events;
use super::reason::ConditionReason;
use super::reconciled::{ReconcileOutcome, Reconciled};
use super::skill::requested_at;
use crate::status_write::Target;

/// Says that an object cannot be read, and why: in its status, and in an Event where the API server takes no status for it,
/// since a rule of the definition cannot be evaluated over what is stored. Everything else that the controller wrote into the status
/// stays, as `own` takes it out of a whole one: what is in service, and what runtimes hold.
pub(super) async fn report<K, S>(
    context: &Context,
    object: &DeserializeGuard<K>,
    invalid: &InvalidObject,
    own: fn(S) -> S,
) -> Result<Reconciled, ControllerError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    S: DeserializeOwned + Serialize,
{
    let meta = &invalid.metadata;
    let (namespace, name) = (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    let target = Target {
        namespace,
        name,
        uid: meta.uid.as_deref(),
    };
    // A watch reports what is wrong, and not where.
    let Some(stored) = context.status().stored::<K>(&target).await? else {
        return Ok(Reconciled::until_change(ReconcileOutcome::Deleted));
    };
    let is_other = stored.resource_version() != meta.resource_version;
    let stored = serde_json::to_value(stored).unwrap_or_default();
    // A status that does not fit is replaced.
    let kept = serde_json::from_value::<S>(stored["status"].clone()).map(own);
    let kept = kept.and_then(serde_json::to_value).unwrap_or_default();
    let Some(trouble) = trouble::<K>(stored).or_else(|| (!is_other).then(|| invalid.error.clone())) else {
        return Ok(Reconciled::until_change(ReconcileOutcome::Superseded));
    };
    let verdict = Verdict::new(
        VerdictState::Stalled,
        ConditionReason::InvalidObject,
        format!(
            "the object does not match its definition: {trouble}; replace it (kubectl replace), or delete it and apply it again"
        ),
    );
    // The object's creation time, so that the same error gives the same status.
    let time = meta
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let generation = meta.generation.unwrap_or_default();
    let mut status = kept;
    status["observedGeneration"] = json!(generation);
    if let Some(requested) = requested_at(meta) {
        status["lastHandledReconcileAt"] = json!(requested);
    } else if let Some(status) = status.as_object_mut() {
        status.remove("lastHandledReconcileAt");
    }
    status["conditions"] = json!(conditions(&[], generation, &verdict, None, time));
    match context
        .status()
        .write::<K>(&target, &status)
        .await
        .map_err(ControllerError::from)
    {
        Ok(_) => {}
        Err(error) if error.status() == Some(422) => {
            warn!(kind = %K::kind(&()), namespace, name, message = %verdict.message, %error, "the status could not be written");
            events::publish(&context.recorder, &object.object_ref(&()), &verdict).await;
        }
        Err(error) => return Err(error),
    }
    Ok(Reconciled::until_change(ReconcileOutcome::Invalid))
}

/// The field that does not fit, and why. `None`: all do.
fn trouble<K: DeserializeOwned>(stored: Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, K>(stored).err()?;
    Some(format!("{}: {}", error.path(), error.inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::fixture::{lead, settings, start};
    use knack_api::{Skill, SkillRuntime};

    #[test]
    fn the_field_is_named() {
        let object = |kind: &str, spec: &str| -> Value {
            let spec: Value = serde_json::from_str(spec).unwrap();
            json!({"apiVersion": "knack.dev/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec})
        };
        for (spec, expected) in [
            (r#"{"source": "a folder"}"#, Some("spec.source: invalid type: string")),
            (
                r#"{"source": {"path": 3}}"#,
                Some("spec.source.path: invalid type: integer"),
            ),
            (
                r#"{"source": {}, "suspend": "yes"}"#,
                Some("spec.suspend: invalid type: string"),
            ),
            (r#"{"source": {}}"#, None),
        ] {
            let found = trouble::<Skill>(object("Skill", spec));
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.starts_with(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{spec}: {found:?}");
        }
        let found = trouble::<SkillRuntime>(object("SkillRuntime", r#"{"sandbox": {"image": []}}"#));
        assert!(found.unwrap().starts_with("spec.sandbox.image: invalid type: sequence"));
    }

    /// What is in service goes on being served, by hubs that know the objects as they were.
    #[tokio::test]
    async fn the_status_of_what_cannot_be_read_and_what_it_holds_stay() {
        let artifact = json!({"revision": "new", "digest": "d", "size": 1, "fileCount": 1});
        let earlier = json!([{"revision": "old", "digest": "o"}]);
        let verdict = |name: &str| json!({"namespace": "team", "name": name, "accepted": true, "reason": "EarlierRevision", "serves": "old"});
        let skill = |name: &str, generation: i64, spec: Value| {
            json!({"apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "spec": spec,
                "metadata": {"namespace": "team", "name": name, "uid": name, "resourceVersion": "10", "generation": generation,
                    "annotations": {"knack.dev/requestedAt": "now"}},
                "status": {"observedGeneration": 1, "artifact": artifact, "earlier": earlier, "lastHandledReconcileAt": "before",
                    "runtimes": [verdict("gone"), verdict("main")]}})
        };
        let bad_skill = skill("bad", 2, json!({"source": {}, "suspend": "not now"}));
        let good_skill = skill(
            "good",
            2,
            json!({"source": {"inline": {"files": {"SKILL.md": "no frontmatter"}}}}),
        );
        let runtime = json!({"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"namespace": "team", "name": "main", "uid": "r", "resourceVersion": "10", "generation": 2},
            "spec": {"sandbox": {"resources": {"limits": {"cpu": -1}}}},
            "status": {"observedGeneration": 1, "lastHandledReconcileAt": "before", "skills": {"accepted": 2, "rejected": 0}, "owner": "hub-0"}});
        let (written, mut patches) = tokio::sync::mpsc::unbounded_channel();
        let (address, _lease) = start(move |method, path, body| {
            let list = |items: Vec<&Value>| Some(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
            let path = path.strip_prefix("/apis/knack.dev/v1alpha1/")?;
            let object = match path.trim_end_matches("/status") {
                "skills" => return list(vec![&bad_skill, &good_skill]),
                "skillruntimes" => return list(vec![&runtime]),
                "namespaces/team/skills/bad" => &bad_skill,
                "namespaces/team/skills/good" => &good_skill,
                "namespaces/team/skillruntimes/main" => &runtime,
                _ => return None,
            };
            if *method == http::Method::PATCH {
                let sent: Value = serde_json::from_slice(body).unwrap();
                // A merge of conditions alone, which follows where the answer lacks them, has no name.
                if let Some(name) = sent["metadata"]["name"].as_str() {
                    let _ = written.send((name.to_owned(), sent["status"].clone()));
                }
            }
            Some(object.clone())
        });
        let (leading, shutdown) = lead(address, settings()).await;
        let mut statuses = std::collections::BTreeMap::new();
        while statuses.len() < 3 {
            let (name, status) = patches.recv().await.unwrap();
            statuses.entry(name).or_insert(status);
        }
        shutdown.cancel();
        leading.await.unwrap().unwrap();
        let reason = |name: &str| statuses[name]["conditions"][0]["reason"].clone();
        assert_eq!(
            (reason("bad"), reason("main")),
            (json!("InvalidObject"), json!("InvalidObject"))
        );
        for name in ["bad", "good"] {
            assert_eq!(statuses[name]["artifact"], artifact, "{name}");
            assert_eq!(statuses[name]["earlier"], earlier, "{name}");
        }
        // `kubectl wait` for a reconcile that was requested ends, and an answer to an earlier request is not one to none.
        assert_eq!(statuses["bad"]["lastHandledReconcileAt"], "now");
        assert!(statuses["main"]["lastHandledReconcileAt"].is_null());
        assert_eq!(
            statuses["good"]["runtimes"],
            json!([verdict("main")]),
            "{}",
            statuses["good"]
        );
        assert_eq!(statuses["main"]["skills"]["accepted"], 2, "{}", statuses["main"]);
        assert!(statuses["main"]["owner"].is_null(), "the hub's: {}", statuses["main"]);
    }
}
