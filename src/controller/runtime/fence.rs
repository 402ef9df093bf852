//! What stands around sandboxes before any of them exists. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};

use crate::api::SkillRuntime;
use crate::api::vocabulary::{LABEL_ROLE, LABEL_RUNTIME, NETWORK_POLICY_PREFIX, ROLE_SANDBOX};

/// The policy that denies sandboxes everything, in and out: static, the same for warm and cold pods.
pub(super) fn deny_all(runtime: &SkillRuntime) -> NetworkPolicy {
    let name = runtime.name_any();
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(format!("{NETWORK_POLICY_PREFIX}{name}")),
            namespace: runtime.namespace(),
            labels: Some(BTreeMap::from([(LABEL_RUNTIME.to_owned(), name)])),
            owner_references: Some(vec![OwnerReference {
                block_owner_deletion: None,
                ..runtime.controller_owner_ref(&()).unwrap_or_default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from([(LABEL_ROLE.to_owned(), ROLE_SANDBOX.to_owned())])),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: None,
            egress: None,
        }),
    }
}

/// Whether a policy that is there is what it must be.
pub(super) fn is_intact(found: &NetworkPolicy, wanted: &NetworkPolicy) -> bool {
    let rules = |policy: &NetworkPolicy| {
        let spec = policy.spec.clone().unwrap_or_default();
        let mut types = spec.policy_types.unwrap_or_default();
        types.sort();
        let selector = spec.pod_selector.unwrap_or_default();
        (
            selector.match_labels.unwrap_or_default(),
            selector.match_expressions.unwrap_or_default(),
            types,
            spec.ingress.unwrap_or_default(),
            spec.egress.unwrap_or_default(),
        )
    };
    rules(found) == rules(wanted) && found.labels().get(LABEL_RUNTIME) == wanted.labels().get(LABEL_RUNTIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> SkillRuntime {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": "main", "namespace": "n", "uid": "u", "labels": {"app.kubernetes.io/instance": "x"}}, "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn the_policy_denies_everything_to_every_sandbox() {
        let policy = serde_json::to_value(deny_all(&runtime())).unwrap();
        assert_eq!(
            policy,
            serde_json::json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {
                    "name": "knack-sandbox-main", "namespace": "n", "labels": {"knack.dev/runtime": "main"},
                    "ownerReferences": [{"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "name": "main", "uid": "u", "controller": true}],
                },
                "spec": {"podSelector": {"matchLabels": {"knack.dev/role": "sandbox"}}, "policyTypes": ["Ingress", "Egress"]},
            })
        );
    }

    #[test]
    fn an_opened_policy_is_seen() {
        let wanted = deny_all(&runtime());
        assert!(is_intact(&wanted, &wanted));
        let mut opened = wanted.clone();
        opened.spec.as_mut().unwrap().egress = Some(vec![
            k8s_openapi::api::networking::v1::NetworkPolicyEgressRule::default(),
        ]);
        assert!(!is_intact(&opened, &wanted));
    }
}
