//! The one way to write a status, for controller and hub and objects of any shape: also for those that do not fit their type.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knack_vocabulary::API_VERSION;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use crate::api_call::{CallError, call};

/// The error of the API server, with status 500, for a server-side apply of an object that does not fit its definition
/// (`typed` in k8s.io/apimachinery/pkg/util/managedfields).
const UNTYPED: &str = "failed to create typed";

/// A writer, and the parts of a status that it alone writes.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// The client.
    pub(crate) client: &'a Client,
    /// The field manager.
    pub(crate) manager: &'a str,
    /// Types of the conditions that this manager alone writes; the others stay as they are.
    pub(crate) conditions: &'a [&'a str],
}

/// The object whose status is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// With it, a namesake that was made meanwhile does not get this status.
    pub(crate) uid: Option<&'a str>,
}

/// Gone, or another object by now.
fn is_other(error: &CallError) -> bool {
    matches!(error.answer(), Some(status) if matches!(status.code, 404 | 409))
}

fn is_untyped(error: &CallError) -> bool {
    matches!(error.answer(), Some(status) if status.code == 500 && status.message.contains(UNTYPED))
}

impl Writer<'_> {
    /// Makes `status` the manager's part of an object's status, and returns the version of the object that has it.
    /// `None`: the object is gone, or another one or another version by now.
    ///
    /// Server-side apply, which the API server refuses where the object does not fit its definition: a merge then. Conditions of
    /// the manager that it does not say any more are removed, whoever is noted as their manager: a merge, and an update of an
    /// object that did not fit, leave conditions behind that apply does not own.
    pub(crate) async fn write<K>(&self, target: &Target<'_>, status: &Value) -> Result<Option<String>, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut applied = self.applied::<K>(target, status).await;
        if matches!(&applied, Err(error) if error.code() == Some(409)) {
            // Another write came between the apply and the correction of conditions.
            applied = self.applied::<K>(target, status).await;
        }
        present(applied)
    }

    /// Sets members of a status that the manager applies no part of; what else it has written stays. `None` as for
    /// [`Writer::write`].
    pub(crate) async fn merge<K>(&self, target: &Target<'_>, status: &Value) -> Result<Option<String>, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let body = json!({"metadata": {"uid": target.uid}, "status": status});
        present(self.merged::<K>(target, &body).await)
    }

    /// The object as it is stored, whatever its shape. `None`: it is gone, or another one by now.
    pub(crate) async fn stored<K>(&self, target: &Target<'_>) -> Result<Option<DynamicObject>, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let what = || format!("get {} {}/{}", K::kind(&()), target.namespace, target.name);
        let found = call(what, self.api::<K>(target).get_opt(target.name)).await?;
        Ok(found.filter(|object| object.metadata.uid.as_deref() == target.uid))
    }

    fn api<K>(&self, target: &Target<'_>) -> Api<DynamicObject>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::namespaced_with(self.client.clone(), target.namespace, &ApiResource::erase::<K>(&()))
    }

    async fn applied<K>(&self, target: &Target<'_>, status: &Value) -> Result<String, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let api = self.api::<K>(target);
        let metadata = json!({"name": target.name, "namespace": target.namespace, "uid": target.uid});
        let body = json!({"apiVersion": API_VERSION, "kind": K::kind(&()), "metadata": metadata, "status": status});
        let (params, patch) = (PatchParams::apply(self.manager).force(), Patch::Apply(&body));
        let what = || object_name::<K>(target);
        let (now, status) = match call(what, api.patch_status(target.name, &params, &patch)).await {
            Ok(now) => (now, json!({})),
            Err(error) if is_untyped(&error) => (call(what, api.get(target.name)).await?, status.clone()),
            Err(error) => return Err(error),
        };
        let reported = body["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let present = now.data["status"]["conditions"].as_array();
        let corrected = corrected(present, reported, self.conditions);
        if corrected.is_none() && status == json!({}) {
            return Ok(now.metadata.resource_version.unwrap_or_default());
        }
        let mut status = status;
        if let Some(conditions) = corrected {
            status["conditions"] = json!(conditions);
        } else if let Some(status) = status.as_object_mut() {
            status.remove("conditions");
        }
        // No condition of another manager is lost: with another version than the one that was read, the API server answers
        // 409.
        let metadata = json!({"uid": target.uid, "resourceVersion": now.metadata.resource_version});
        self.merged::<K>(target, &json!({"metadata": metadata, "status": status}))
            .await
    }

    async fn merged<K>(&self, target: &Target<'_>, body: &Value) -> Result<String, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let (api, patch) = (self.api::<K>(target), Patch::Merge(body));
        let written = call(
            || object_name::<K>(target),
            api.patch_status(target.name, &params, &patch),
        )
        .await?;
        Ok(written.metadata.resource_version.unwrap_or_default())
    }
}

/// The condition of a type that an object has; `None` also for one that is not of a condition's shape.
pub(crate) fn condition_of(object: &DynamicObject, kind: &str) -> Option<Condition> {
    let mut conditions = object.data["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == kind)?;
    serde_json::from_value(found.clone()).ok()
}

fn present(written: Result<String, CallError>) -> Result<Option<String>, CallError> {
    match written {
        Err(error) if is_other(&error) => Ok(None),
        written => written.map(Some),
    }
}

fn object_name<K: Resource<DynamicType = ()>>(target: &Target<'_>) -> String {
    format!("status of {} {}/{}", K::kind(&()), target.namespace, target.name)
}

/// The conditions that an object should have: `reported`, and those of others than `own`. `None`: it has them.
fn corrected(present: Option<&Vec<Value>>, reported: &[Value], own: &[&str]) -> Option<Vec<Value>> {
    let present = present.map_or(&[][..], Vec::as_slice);
    let is_own = |condition: &&Value| own.iter().any(|own| condition["type"] == *own);
    let has_all = reported.iter().all(|condition| present.contains(condition));
    if has_all && present.iter().filter(is_own).count() == reported.len() {
        return None;
    }
    let others = present.iter().filter(|condition| !is_own(condition));
    Some(reported.iter().chain(others).cloned().collect())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn condition(word: &str) -> Value {
        let (kind, status) = word.split_once('=').unwrap();
        json!({"type": kind, "status": status})
    }

    const OWN: [&str; 4] = ["Ready", "Reconciling", "Stalled", "Accepted"];

    #[test]
    fn own_conditions_are_what_was_written_and_others_stay() {
        for (present, own, expected) in [
            ("", "", None),
            ("", "Ready=True", Some("Ready=True")),
            ("Ready=True", "Ready=True", None),
            ("Isolated=True Ready=True", "Ready=True", None),
            ("Ready=False", "Ready=True", Some("Ready=True")),
            ("Ready=True Stalled=True", "Ready=True", Some("Ready=True")),
            (
                "Isolated=True Stalled=True Ready=True Reconciling=True SandboxesReady=False",
                "Ready=True",
                Some("Ready=True Isolated=True SandboxesReady=False"),
            ),
            (
                "Accepted=True Ready=True",
                "Ready=False Stalled=True",
                Some("Ready=False Stalled=True"),
            ),
            ("Ready=True Accepted=True", "Ready=True Accepted=True", None),
        ] {
            let list = |words: &str| words.split_whitespace().map(condition).collect::<Vec<_>>();
            let corrected = corrected(Some(&list(present)), &list(own), &OWN);
            assert_eq!(corrected, expected.map(list), "{present:?} with {own:?}");
        }
        assert_eq!(corrected(None, &[condition("Ready=True")], &OWN).unwrap().len(), 1);
    }

    #[test]
    fn only_an_object_that_does_not_fit_is_merged() {
        let typed =
            "failed to create typed live object (n/a; knack.dev/v1alpha1, Kind=Skill): .spec.suspend: expected boolean";
        for (code, message, expected) in [
            (500, typed, true),
            (500, "etcdserver: request timed out", false),
            (422, typed, false),
            (409, "conflict", false),
        ] {
            let status: Status =
                serde_json::from_value(json!({"status": "Failure", "code": code, "message": message})).unwrap();
            let error = CallError::Api {
                what: "status of Skill n/a".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            };
            assert_eq!(is_untyped(&error), expected, "{code} {message}");
        }
    }
}
