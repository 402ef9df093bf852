//! From the types to the custom resource definitions that are checked in under `crds/`.

mod finish;
mod rules;
mod unknown;

use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::skill::Skill;
use super::skill_runtime::SkillRuntime;
use super::vocabulary::{KIND_SKILL, KIND_SKILL_RUNTIME};
pub use rules::{INLINE_MAX, RULES, Rule};
pub use unknown::unknown_field;

/// Schema of a free-form object: kept as it was written.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Both definitions as JSON, ready to apply: `Skill`, then `SkillRuntime`.
pub fn definitions() -> &'static [Value; 2] {
    static MADE: OnceLock<[Value; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        [
            finished(KIND_SKILL, &Skill::crd()),
            finished(KIND_SKILL_RUNTIME, &SkillRuntime::crd()),
        ]
    })
}

fn finished(kind: &str, derived: &CustomResourceDefinition) -> Value {
    let mut definition = serde_json::to_value(derived).unwrap_or_default();
    finish::finish(kind, &mut definition);
    definition
}

/// The OpenAPI schema of a kind: the object as a whole.
pub fn schema_of(kind: &str) -> Option<&'static Value> {
    let definition = definitions()
        .iter()
        .find(|definition| definition["spec"]["names"]["kind"] == kind)?;
    definition.pointer("/spec/versions/0/schema/openAPIV3Schema")
}

#[cfg(test)]
mod tests;
