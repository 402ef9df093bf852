//! Objects of the tests, and what their statuses say.

use knack_api::{Skill, SkillRuntime};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Field manager of a user.
const USER: &str = "a-user";

pub(crate) fn skills(client: &Client, namespace: &str) -> Api<Skill> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn runtimes(client: &Client, namespace: &str) -> Api<SkillRuntime> {
    Api::namespaced(client.clone(), namespace)
}

/// SKILL.md with a description and a body.
pub(crate) fn document(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}.\n---\n{body}\n")
}

/// A spec with one inline SKILL.md.
pub(crate) fn inline(text: &str) -> Value {
    json!({"source": {"inline": {"files": {"SKILL.md": text}}}})
}

/// Makes a skill.
pub(crate) async fn create(api: &Api<Skill>, name: &str, spec: Value) -> Skill {
    let skill = serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "Skill", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    api.create(&PostParams::default(), &skill).await.unwrap()
}

/// Applies a part of an object as a user would.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, part: Value) -> K
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams {
        field_manager: Some(USER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(part)).await.unwrap()
}

/// Makes a runtime.
pub(crate) async fn create_runtime(api: &Api<SkillRuntime>, name: &str, spec: Value) -> SkillRuntime {
    let runtime = serde_json::from_value(json!({
        "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    api.create(&PostParams::default(), &runtime).await.unwrap()
}

/// An image with a digest.
pub(crate) const IMAGE: &str = "r.io/python@sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// `Ready=<status>/<reason>` of the present generation, with `+<type>` for every other condition that is True.
pub(crate) fn state(skill: Option<&Skill>) -> String {
    let Some(status) = skill.and_then(|skill| skill.status.as_ref()) else {
        return "none".to_owned();
    };
    if status.observed_generation != skill.and_then(|skill| skill.metadata.generation) {
        return "old".to_owned();
    }
    let mut text = String::new();
    for condition in &status.conditions {
        match condition.type_.as_str() {
            "Ready" => text = format!("{}/{}{text}", condition.status, condition.reason),
            "Accepted" => {}
            other => text.push_str(&format!("+{other}")),
        }
    }
    text
}

/// The message of a condition.
pub(crate) fn message(skill: &Skill, kind: &str) -> String {
    let mut conditions = skill.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.rfind(|condition| condition.type_ == kind);
    found.map(|condition| condition.message.clone()).unwrap_or_default()
}

/// A condition for waiting: the skill reads like this.
pub(crate) fn reads(expected: &str) -> impl Fn(Option<&Skill>) -> bool + use<> {
    let expected = expected.to_owned();
    move |skill| state(skill) == expected
}
