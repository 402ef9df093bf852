//! A SkillRuntime as gateways are told of it. Pure.

use kube::ResourceExt as _;

use crate::api::SkillRuntime;
use crate::api::runtime_sandbox::ModelCode;
use crate::catalog::RuntimeSettings;
use crate::catalog::remote::convert::activation_to_name;
use crate::execution::Language;
use crate::hub_api::{PinLine, RuntimeLine};

/// `maxSnapshotAgeSeconds` of a runtime that names none: an hour outlives any upgrade of the hub.
const MAX_SNAPSHOT_AGE_SECONDS: u64 = 3600;

/// The settings of a runtime whose sandboxes have these interpreters. Keys, Secrets and environment grants are not among them.
pub fn runtime_line(runtime: &SkillRuntime, languages: &[Language]) -> RuntimeLine {
    let (spec, base) = (&runtime.spec, RuntimeSettings::default());
    let namespace = runtime.namespace().unwrap_or_default();
    let injection = &spec.gateway.injection;
    let pins = spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    RuntimeLine {
        uid: runtime.uid().unwrap_or_default(),
        resource_version: runtime.resource_version().unwrap_or_default(),
        suspend: spec.suspend,
        max_activation: spec
            .max_activation
            .map_or(crate::hub_api::ActivationName::Listed, |word| {
                activation_to_name(word.into())
            }),
        model_code: spec.sandbox.model_code == ModelCode::Allow,
        node: languages.contains(&Language::Node),
        timeout_seconds: spec.sandbox.timeout_seconds.unwrap_or(base.timeout.as_secs()),
        max_timeout_seconds: spec.sandbox.max_timeout_seconds.unwrap_or(base.max_timeout.as_secs()),
        // The pod's cgroup bounds memory; an address space limit of the same size would only break what maps much.
        memory_bytes: None,
        max_tool_rounds: injection.max_tool_rounds.unwrap_or(base.max_tool_rounds),
        deadline_seconds: injection.deadline_seconds.unwrap_or(base.deadline.as_secs()),
        max_listing_tokens: injection.max_listing_tokens.unwrap_or(base.max_listing_tokens) as u64,
        models: injection.models.clone().unwrap_or_default(),
        min_max_tokens: injection.min_max_tokens.unwrap_or(base.min_max_tokens),
        max_snapshot_age_seconds: spec
            .gateway
            .max_snapshot_age_seconds
            .unwrap_or(MAX_SNAPSHOT_AGE_SECONDS),
        pins: pins
            .map(|pin| PinLine {
                namespace: pin.namespace.clone().unwrap_or_else(|| namespace.clone()),
                name: pin.name.clone(),
                mode: pin.mode.map(|word| activation_to_name(word.into())),
                inputs: pin.inputs.clone(),
            })
            .collect(),
        upstreams: spec
            .gateway
            .upstreams
            .iter()
            .map(|(api, upstream)| (api.clone(), upstream.url.clone()))
            .collect(),
    }
}
