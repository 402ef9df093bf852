//! The fence of a runtime's sandboxes: the NetworkPolicy that must exist before the first of them does. The controller applies it, and
//! the hub runs nothing without it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use knack_api::SkillRuntime;
use knack_hub_api::RuntimeName;
use knack_vocabulary::{LABEL_ROLE, LABEL_RUNTIME, NETWORK_POLICY_PREFIX, ROLE_SANDBOX};
use kube::ResourceExt as _;

/// The policy that denies sandboxes everything, in and out: static, the same for warm and cold pods.
pub(crate) fn deny_all(runtime: &SkillRuntime) -> NetworkPolicy {
    deny_all_of(runtime.namespace(), runtime.name_any())
}

fn deny_all_of(namespace: Option<String>, name: String) -> NetworkPolicy {
    NetworkPolicy {
        metadata: ObjectMeta {
            name: Some(policy_name(&name)),
            namespace,
            labels: Some(BTreeMap::from([(LABEL_RUNTIME.to_owned(), name)])),
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

/// The name of a runtime's policy.
pub(crate) fn policy_name(runtime: &str) -> String {
    format!("{NETWORK_POLICY_PREFIX}{runtime}")
}

/// The runtime whose fence has a policy's name, and whether the policy is what it must be.
pub(crate) fn of_runtime(policy: &NetworkPolicy) -> Option<(RuntimeName, bool)> {
    let name = policy.metadata.name.as_deref()?.strip_prefix(NETWORK_POLICY_PREFIX)?;
    let namespace = policy.namespace()?;
    let wanted = deny_all_of(Some(namespace.clone()), name.to_owned());
    Some((RuntimeName::new(namespace, name), is_intact(policy, &wanted)))
}

/// Whether a policy that is there is what it must be.
pub(crate) fn is_intact(found: &NetworkPolicy, wanted: &NetworkPolicy) -> bool {
    let rules = |policy: &NetworkPolicy| {
        // Without a rest: a member that Kubernetes adds may open what this closes.
        let NetworkPolicySpec {
            pod_selector,
            policy_types,
            ingress,
            egress,
        } = policy.spec.clone().unwrap_or_default();
        let LabelSelector {
            match_labels,
            match_expressions,
        } = pod_selector.unwrap_or_default();
        let mut types = policy_types.unwrap_or_default();
        types.sort();
        (
            match_labels.unwrap_or_default(),
            match_expressions.unwrap_or_default(),
            types,
            ingress.unwrap_or_default(),
            egress.unwrap_or_default(),
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
                    "name": "knack-sandbox-main", "namespace": "n", "labels": {"knack.dev/runtime": "main"}},
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
        let name = RuntimeName::new("n", "main");
        assert_eq!(of_runtime(&wanted), Some((name.clone(), true)));
        assert_eq!(of_runtime(&opened), Some((name, false)));
        opened.metadata.name = Some("of-somebody".to_owned());
        assert_eq!(of_runtime(&opened), None);
    }
}
