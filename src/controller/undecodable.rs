//! Objects that do not fit their type: stored before their definition was what it is.

use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use super::conditions::{Verdict, VerdictState, conditions};
use super::context::Context;
use super::error::ControllerError;
use super::events;
use super::reason::Reason;
use crate::status_write::Target;

/// Says that an object cannot be read, and why: in its status, and in an Event where the API server takes no status for it,
/// since a rule of the definition cannot be evaluated over what is stored.
pub(super) async fn report<K>(
    context: &Context,
    object: &DeserializeGuard<K>,
    invalid: &InvalidObject,
) -> Result<(&'static str, Action), ControllerError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
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
        return Ok(("deleted", Action::await_change()));
    };
    let is_other = stored.resource_version() != meta.resource_version;
    let stored = serde_json::to_value(stored).unwrap_or_default();
    let Some(trouble) = trouble::<K>(stored).or_else(|| (!is_other).then(|| invalid.error.clone())) else {
        return Ok(("superseded", Action::await_change()));
    };
    let verdict = Verdict::new(
        VerdictState::Stalled,
        Reason::InvalidObject,
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
    let status = json!({
        "observedGeneration": generation,
        "conditions": conditions(&[], generation, &verdict, None, time),
    });
    match context
        .status()
        .write::<K>(&target, &status)
        .await
        .map_err(ControllerError::from)
    {
        Ok(_) => {}
        Err(error) if error.status() == Some(422) => {
            warn!(kind = %K::kind(&()), namespace, name, message = %verdict.message, %error, "no status can be written");
            events::publish(&context.recorder, &object.object_ref(&()), &verdict).await;
        }
        Err(error) => return Err(error),
    }
    Ok(("invalid", Action::await_change()))
}

/// The field that does not fit, and why. `None`: all do.
fn trouble<K: DeserializeOwned>(stored: Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, K>(stored).err()?;
    Some(format!("{}: {}", error.path(), error.inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
