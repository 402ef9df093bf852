//! A SkillRuntime as it is sent to gateways. Pure.

use knack_api::SkillRuntime;
use knack_api::runtime_sandbox::ModelCode;
use knack_execution::Language;
use knack_hub_api::convert::{activation_to_name, risk_to_name};
use knack_hub_api::{PinLine, RuntimeLine};
use knack_vocabulary::defaults;
use kube::ResourceExt as _;

/// The settings of a runtime whose sandboxes have these interpreters. They include no keys, Secrets or environment
/// grants.
pub fn runtime_line(runtime: &SkillRuntime, languages: &[Language]) -> RuntimeLine {
    let spec = &runtime.spec;
    let namespace = runtime.namespace().unwrap_or_default();
    let injection = &spec.gateway.injection;
    let time_limits = spec.sandbox.time_limits();
    let pins = spec.skill_selector.iter().flat_map(|selector| &selector.skills);
    RuntimeLine {
        uid: runtime.uid().unwrap_or_default(),
        resource_version: runtime.resource_version().unwrap_or_default(),
        suspend: spec.is_suspended(),
        max_activation: activation_to_name(spec.max_activation()),
        model_code: spec.sandbox.model_code == ModelCode::Allow,
        max_risk: Some(risk_to_name(spec.max_risk())),
        node: languages.contains(&Language::Node),
        timeout_seconds: time_limits.default_seconds,
        max_timeout_seconds: time_limits.max_seconds,
        // The pod's cgroup bounds memory; an address space limit of the same size would only break programs that map
        // much.
        memory_bytes: None,
        max_tool_rounds: injection.max_tool_rounds.unwrap_or(defaults::MAX_TOOL_ROUNDS),
        deadline_seconds: injection.deadline_seconds.unwrap_or(defaults::DEADLINE_SECONDS),
        max_listing_tokens: injection.max_listing_tokens.unwrap_or(defaults::MAX_LISTING_TOKENS) as u64,
        models: injection.models.clone().unwrap_or_default(),
        min_max_tokens: injection.min_max_tokens.unwrap_or(defaults::MIN_MAX_TOKENS),
        max_snapshot_age_seconds: spec
            .gateway
            .max_snapshot_age_seconds
            .unwrap_or(defaults::MAX_SNAPSHOT_AGE_SECONDS),
        pins: pins
            .map(|pin| (pin, pin.skill(&namespace)))
            .map(|(pin, (namespace, name))| PinLine {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::mk_runtime;
    use crate::jobs::{Defaults, ResolvedRuntime};

    /// A SkillRuntime that names every object and no scalar, with the schema's defaults, as the API server stores it.
    fn with_schema_defaults() -> (serde_json::Value, usize) {
        fn walk(schema: &serde_json::Value, count: &mut usize) -> serde_json::Value {
            let properties = schema["properties"].as_object().unwrap();
            let fields = properties.iter().filter_map(|(name, field)| {
                let value = match field.get("default") {
                    Some(default) => {
                        *count += 1;
                        default.clone()
                    }
                    None if field.get("properties").is_some()
                        && ["sandbox", "concurrency", "warmPool", "gateway", "injection"].contains(&name.as_str()) =>
                    {
                        walk(field, count)
                    }
                    None => return None,
                };
                Some((name.clone(), value))
            });
            serde_json::Value::Object(fields.collect())
        }
        let [_, definition] = knack_api::schema::definitions();
        let mut count = 0;
        let spec = walk(
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"],
            &mut count,
        );
        (spec, count)
    }

    #[test]
    fn defaults_of_the_schema_are_those_of_the_code() {
        let (spec, count) = with_schema_defaults();
        assert!(count > 15, "{spec}");
        let (written, empty) = (mk_runtime(spec), mk_runtime(serde_json::json!({})));
        let defaults = Defaults::new("img");
        assert_eq!(
            ResolvedRuntime::of(&written, &defaults),
            ResolvedRuntime::of(&empty, &defaults)
        );
        let line = |runtime| format!("{:?}", runtime_line(runtime, &[]));
        assert_eq!(line(&written), line(&empty));
    }

    /// An object that is absent stays absent in the API server, so only its description has the default of what is in it.
    #[test]
    fn defaults_of_objects_are_those_that_their_descriptions_name() {
        let [_, definition] = knack_api::schema::definitions();
        let sandbox = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/sandbox/properties";
        let says = |field: &str, words: &[String]| {
            let text = definition.pointer(&format!("{sandbox}/{field}/description"));
            let text = text.unwrap().as_str().unwrap().replace('\n', " ");
            for word in words {
                assert!(text.contains(word), "{field} does not say {word:?}: {text}");
            }
        };
        let resolved = ResolvedRuntime::of(&mk_runtime(serde_json::json!({})), &Defaults::new("img"));
        let (cpu, memory, storage) = (
            resolved.resources.cpu,
            resolved.resources.memory,
            resolved.resources.ephemeral_storage,
        );
        let three = |begin, [cpu, memory, storage]: [String; 3]| {
            format!("{begin} of cpu {cpu}, memory {memory} and ephemeral-storage {storage}")
        };
        let requests = three("requests", [cpu.request, memory.request, storage.request]);
        let limits = three("limits", [cpu.limit, memory.limit, storage.limit]);
        says("resources", &[requests, limits]);
        says(
            "runAsUserRange",
            &[format!("Default: {} to {}.", resolved.uids.first, resolved.uids.last)],
        );
        says("timeoutSeconds", &[format!("Default: {},", resolved.timeout.as_secs())]);
    }
}
