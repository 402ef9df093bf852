//! The register of what the hub may run for each SkillRuntime, one line for each thing allowed. Pure.
//!
//! The admission policy `sandbox-runtimes` reads it from annotations of the ResourceQuota of the sandboxes: an object
//! of a fixed name, which a policy can look up, and which neither the hub nor a tenant's editor may write. An entry
//! changes when a runtime is judged. While an edit is refused, the entry of the last good spec stays, since the hub
//! still uses that spec.

use std::collections::BTreeMap;

use knack_api::{SkillRuntime, shared::Resources};
use knack_vocabulary::ANNOTATION_ADMITTED_PREFIX;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt as _};

use crate::jobs::{Defaults, ResolvedRuntime};

/// Longest register of a namespace: the API server takes 262,144 bytes of annotations.
pub(super) const REGISTER_MAX_BYTES: usize = 240 << 10;

/// The entries of a namespace, as annotations.
pub(super) type Register = BTreeMap<String, String>;

/// The register after the runtime `judged` was reconciled; `entry` is what it is allowed now, `None` if its spec is
/// refused. Runtimes that are not in `alive`, or are others of the same name, lose their entries. One that cannot be decoded is
/// alive: the hub still uses its last good spec.
pub(super) fn register<'a>(
    found: &Register,
    alive: impl IntoIterator<Item = &'a ObjectMeta>,
    judged: &SkillRuntime,
    entry: Option<String>,
) -> Register {
    let mut register: Register = alive
        .into_iter()
        .filter_map(|meta| {
            let key = key(meta.name.as_deref()?);
            let uid = uid(meta.uid.as_deref()?);
            let kept = found.get(&key).filter(|kept| kept.lines().any(|line| line == uid))?;
            Some((key, kept.clone()))
        })
        .collect();
    if let Some(entry) = entry {
        register.insert(key(&judged.name_any()), entry);
    }
    register
}

/// The entries among the annotations of an object.
pub(super) fn of(object: &impl Resource) -> Register {
    let annotations = object.meta().annotations.iter().flatten();
    annotations
        .filter(|(key, _)| key.starts_with(ANNOTATION_ADMITTED_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// How many bytes of annotations a register takes.
pub(super) fn bytes(register: &Register) -> usize {
    register.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The lines of what a runtime allows its sandboxes. The words are those that the policy asks for, letter by letter.
pub(super) fn entry(runtime: &SkillRuntime, defaults: &Defaults) -> String {
    let resolved = ResolvedRuntime::of(runtime, defaults);
    let sandbox = &runtime.spec.sandbox;
    let mut lines = vec![uid(&resolved.uid), format!("image {}", resolved.image)];
    lines.extend(resolved.images.iter().map(|image| format!("image {image}")));
    lines.extend(sandbox.allowed_images.iter().map(|image| format!("repository {image}")));
    // The name last: it alone may hold blanks.
    let granted = resolved.env.iter();
    lines.extend(granted.map(|grant| format!("env {} {} {}", grant.secret, grant.key, grant.name)));
    lines.extend(
        resolved
            .runtime_class
            .iter()
            .map(|class| format!("runtimeClass {class}")),
    );
    let nodes = resolved.node_selector.iter();
    lines.extend(nodes.map(|(label, value)| format!("nodeSelector {label}={value}")));
    lines.extend(resolved.tolerations.iter().map(|toleration| {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        format!(
            "toleration {} {} {} {}",
            word(&toleration.key),
            toleration.operator.as_deref().unwrap_or("Equal"),
            word(&toleration.value),
            word(&toleration.effect)
        )
    }));
    lines.extend(
        resolved
            .image_pull_secrets
            .iter()
            .map(|name| format!("pullSecret {name}")),
    );
    lines.extend(
        resolved
            .labels
            .iter()
            .map(|(key, value)| format!("label {key}={value}")),
    );
    lines.extend(
        resolved
            .annotations
            .iter()
            .map(|(key, value)| format!("annotation {key}={value}")),
    );
    let devices = resolved.resources.extended.keys().chain(sandbox.max_resources.keys());
    let devices = devices.filter(|name| !Resources::NATIVE.contains(&name.as_str()));
    lines.extend(devices.map(|name| format!("resource {name}")));
    // Kubernetes would refuse a value with a line break, and it must not become a second line.
    lines.retain(|line| !line.contains(char::is_control));
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

fn key(runtime: &str) -> String {
    format!("{ANNOTATION_ADMITTED_PREFIX}{runtime}")
}

fn uid(uid: &str) -> String {
    format!("uid {uid}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn runtime(name: &str, uid: &str, spec: &Value) -> SkillRuntime {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": name, "namespace": "sandboxes", "uid": uid}, "spec": spec,
        }))
        .unwrap()
    }

    fn grant(name: &str, secret: &str) -> Value {
        json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}, "skills": ["weather"]})
    }

    fn of_uid(uid: &str) -> String {
        super::uid(uid)
    }

    /// The tests of the chart ask an API server with this golden: it is what its policy is written for.
    #[test]
    fn an_entry_has_a_line_for_everything_that_a_sandbox_may_have() {
        let default = runtime(
            "default",
            "9d1f3c1e-0000-4000-8000-000000000001",
            &json!({
                "sandbox": {"allowedImages": ["registry.example/knack/sandbox-node"]},
                "env": [grant("API_KEY", "weather")],
            }),
        );
        let everything = runtime(
            "everything",
            "9d1f3c1e-0000-4000-8000-000000000002",
            &json!({
                "sandbox": {
                    "image": "registry.example/knack/sandbox-python@sha256:aa",
                    "allowedImages": ["registry.example/knack/of-everything"],
                    "images": [{"name": "office", "image": "registry.example/knack/sandbox-office@sha256:cc"}],
                    "runtimeClassName": "gvisor",
                    "nodeSelector": {"pool": "sandboxes"},
                    "tolerations": [{"key": "sandboxes", "operator": "Exists", "effect": "NoSchedule"}],
                    "imagePullSecrets": [{"name": "registry"}],
                    "maxResources": {"memory": "2Gi", "example.org/gpu": "1"},
                    "podMetadata": {
                        "labels": {"example.org/team": "weather"},
                        "annotations": {"example.org/inject": "false"},
                    },
                },
                "env": [grant("API_KEY", "weather"), grant("OTHER", "of-everything")],
                "skillSelector": {"skills": [{"name": "prices", "config": [
                    {"name": "maxCost", "value": "5"},
                    {"name": "apiKey", "valueFrom": {"secretKeyRef": {"name": "prices", "key": "key"}}},
                ]}]},
            }),
        );
        let defaults = Defaults::new("registry.example/knack/sandbox-python@sha256:aa");
        let alive = [&default.metadata, &everything.metadata];
        let first = register(&Register::new(), alive, &default, Some(entry(&default, &defaults)));
        let both = register(&first, alive, &everything, Some(entry(&everything, &defaults)));
        let yaml = serde_saphyr::to_string(&both).unwrap();
        insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!("register", yaml);
        });
    }

    #[test]
    fn a_value_cannot_write_a_line_of_its_own() {
        let hostile = runtime(
            "a",
            "u",
            &json!({"env": [grant("A\nimage evil", "weather")], "sandbox": {"allowedImages": ["a\nuid other"]}}),
        );
        assert_eq!(entry(&hostile, &Defaults::new("img")), "image img\nuid u");
    }

    #[test]
    fn an_entry_stays_while_an_edit_is_refused_and_goes_with_its_runtime() {
        let (a, b) = (runtime("a", "ua", &json!({})), runtime("b", "ub", &json!({})));
        let made_anew = runtime("a", "uz", &json!({}));
        let found = Register::from([
            (key("a"), of_uid("ua")),
            (key("b"), of_uid("ub")),
            (key("gone"), of_uid("ug")),
        ]);
        for (alive, judged, entry, expected) in [
            (vec![&a, &b], &a, None, vec![("a", "ua"), ("b", "ub")]),
            (vec![&a, &b], &a, Some("ux"), vec![("a", "ux"), ("b", "ub")]),
            (vec![&b], &b, Some("ub"), vec![("b", "ub")]),
            (vec![&made_anew, &b], &made_anew, None, vec![("b", "ub")]),
            (vec![&made_anew, &b], &b, Some("ub"), vec![("b", "ub")]),
        ] {
            let expected: Register = expected
                .into_iter()
                .map(|(name, uid)| (key(name), of_uid(uid)))
                .collect();
            let alive = alive.iter().map(|runtime| &runtime.metadata);
            assert_eq!(register(&found, alive, judged, entry.map(of_uid)), expected);
        }
    }
}
