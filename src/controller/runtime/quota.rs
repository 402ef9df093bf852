//! How much of a namespace all sandboxes may use together, and what the hub may run there. Pure.
//!
//! A ResourceQuota cannot select pods by label. It can by PriorityClass, so the sandboxes have one of their own and
//! nothing else in the namespace is counted.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec, ScopeSelector, ScopedResourceSelectorRequirement};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knack_api::{Quantity, SkillRuntime};
use knack_vocabulary::{LABEL_MANAGED_BY, MANAGED_BY, QUOTA_NAME};
use kube::{Resource as _, ResourceExt as _};

use super::register::{self, Register};
use crate::jobs::{Defaults, ResolvedRuntime};

/// Pods of a runtime besides those that run and those held ready: the isolation probe, and one that a new owner starts
/// before the old owner's is gone.
const SPARE_PODS: usize = 2;
/// The quota controller counts ended pods out seconds later, and a new owner finds the old one's pods: without room for
/// both, a busy runtime would be refused at a fraction of its `maxRuns`.
const HEADROOM: u128 = 2;

/// The quota of a namespace: the sum over its runtimes, all of which own it. The server takes no ephemeral storage with a
/// scope of PriorityClass. Without a class it bounds nothing, and is there for its annotations: the register.
pub(super) fn quota(
    namespace: &str,
    class: Option<&str>,
    runtimes: &[&SkillRuntime],
    defaults: &Defaults,
    register: Register,
) -> ResourceQuota {
    ResourceQuota {
        metadata: ObjectMeta {
            name: Some(QUOTA_NAME.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned())])),
            annotations: (!register.is_empty()).then_some(register),
            ..ObjectMeta::default()
        },
        spec: class.map(|class| bounds(class, runtimes, defaults)),
        status: None,
    }
}

fn bounds(class: &str, runtimes: &[&SkillRuntime], defaults: &Defaults) -> ResourceQuotaSpec {
    let mut hard: BTreeMap<&str, u128> = BTreeMap::new();
    for runtime in runtimes {
        let resolved = ResolvedRuntime::of(runtime, defaults);
        let pods = HEADROOM * (resolved.max_runs + resolved.most_warm() + SPARE_PODS) as u128;
        let mut add = |name, value: u128| {
            let sum = hard.entry(name).or_default();
            *sum = sum.saturating_add(value);
        };
        add("pods", pods * 1_000);
        for (name, resource, own) in [
            ("limits.cpu", "cpu", &resolved.resources.cpu.limit),
            ("limits.memory", "memory", &resolved.resources.memory.limit),
        ] {
            let own = Quantity::parse(own).map_or(0, |quantity| quantity.milli());
            let ceiling = runtime.spec.sandbox.max_resources.get(resource);
            add(name, pods.saturating_mul(own.max(ceiling.map_or(0, Quantity::milli))));
        }
    }
    ResourceQuotaSpec {
        hard: Some(
            hard.into_iter()
                .map(|(name, milli)| (name.to_owned(), written(milli)))
                .collect(),
        ),
        scope_selector: Some(ScopeSelector {
            match_expressions: Some(vec![ScopedResourceSelectorRequirement {
                scope_name: "PriorityClass".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![class.to_owned()]),
            }]),
        }),
        scopes: None,
    }
}

/// Raises each bound of a quota to that of the one that is there.
pub(super) fn keep_bounds(wanted: &mut ResourceQuota, found: &ResourceQuota) {
    let milli = |quantity: &ApiQuantity| Quantity::parse(&quantity.0).map_or(0, |quantity| quantity.milli());
    let found = found.spec.as_ref().and_then(|spec| spec.hard.as_ref());
    let hard = wanted.spec.as_mut().and_then(|spec| spec.hard.as_mut());
    for (name, bound) in hard.into_iter().flatten() {
        let before = found.and_then(|found| found.get(name));
        if let Some(before) = before.filter(|before| milli(before) > milli(bound)) {
            bound.clone_from(before);
        }
    }
}

/// The runtimes of the namespace, also those that cannot be decoded: the last one that goes takes the quota with it.
pub(super) fn owners(runtimes: &[&SkillRuntime], undecoded: &[ObjectMeta]) -> Vec<OwnerReference> {
    let owner = |runtime: &&SkillRuntime| {
        Some(OwnerReference {
            controller: None,
            block_owner_deletion: None,
            ..runtime.controller_owner_ref(&())?
        })
    };
    let of_meta = |meta: &ObjectMeta| {
        Some(OwnerReference {
            api_version: SkillRuntime::api_version(&()).into_owned(),
            kind: SkillRuntime::kind(&()).into_owned(),
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            controller: None,
            block_owner_deletion: None,
        })
    };
    let undecoded = undecoded.iter().filter_map(of_meta);
    runtimes.iter().filter_map(owner).chain(undecoded).collect()
}

/// Thousandths as a quantity of whole units, since the server refuses fractions of pods and bytes; one CPU more or less
/// does not matter in a sum.
fn written(milli: u128) -> ApiQuantity {
    // The server's own numbers end at an i64.
    ApiQuantity(milli.div_ceil(1_000).min(i64::MAX as u128).to_string())
}

/// Whether a quota that is there is Knack's to write.
pub(super) fn is_ours(found: &ResourceQuota) -> bool {
    found.labels().get(LABEL_MANAGED_BY).map(String::as_str) == Some(MANAGED_BY)
}

/// Whether a quota that is there is what it must be, however the server writes its numbers.
pub(super) fn is_intact(found: &ResourceQuota, wanted: &ResourceQuota) -> bool {
    let parts = |quota: &ResourceQuota| {
        // Without a rest: a member that Kubernetes adds may widen what this bounds.
        let ResourceQuotaSpec {
            hard,
            scope_selector,
            scopes,
        } = quota.spec.clone().unwrap_or_default();
        let hard: BTreeMap<String, Option<u128>> = hard
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (name, Quantity::parse(&value.0).ok().map(|quantity| quantity.milli())))
            .collect();
        let owners: Vec<String> = quota.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        (
            hard,
            scope_selector,
            scopes.unwrap_or_default(),
            owners,
            register::of(quota),
        )
    };
    parts(found) == parts(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn runtime(name: &str, spec: &Value) -> SkillRuntime {
        serde_json::from_value(json!({
            "apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime",
            "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}")}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_quota_sums_over_the_runtimes_of_a_namespace_and_counts_sandboxes_only() {
        let (small, large) = (
            runtime(
                "small",
                &json!({"concurrency": {"maxRuns": 3}, "warmPool": {"replicas": 1},
                "sandbox": {"resources": {"limits": {"cpu": "500m", "memory": "256Mi"}}, "maxResources": {"memory": "1Gi"}}}),
            ),
            runtime(
                "large",
                &json!({"concurrency": {"maxRuns": 10}, "warmPool": {"replicas": 0}}),
            ),
        );
        assert_eq!(
            serde_json::to_value(owners(&[&small], std::slice::from_ref(&large.metadata))).unwrap(),
            json!([
                {"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "name": "small", "uid": "uid-small"},
                {"apiVersion": "knack.dev/v1alpha1", "kind": "SkillRuntime", "name": "large", "uid": "uid-large"},
            ])
        );
        let register = Register::from([("admitted.knack.dev/small".to_owned(), "uid uid-small".to_owned())]);
        let quota = quota(
            "n",
            Some("knack-sandbox"),
            &[&small, &large],
            &Defaults::new("img"),
            register,
        );
        // (3 + 1 + 2) x 2 pods of 500m and up to 1 GiB; (10 + 0 + 2) x 2 of 1 CPU and 512 MiB.
        let (small, large) = (12_u64, 24_u64);
        assert_eq!(
            serde_json::to_value(&quota).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {
                    "name": "knack-sandboxes", "namespace": "n", "labels": {"app.kubernetes.io/managed-by": "knack"},
                    "annotations": {"admitted.knack.dev/small": "uid uid-small"},
                },
                "spec": {
                    "hard": {
                        "pods": (small + large).to_string(),
                        "limits.cpu": (small / 2 + large).to_string(),
                        "limits.memory": ((small << 30) + (large << 29)).to_string(),
                    },
                    "scopeSelector": {"matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["knack-sandbox"]},
                    ]},
                },
            })
        );
    }

    #[test]
    fn beside_a_runtime_that_cannot_be_decoded_no_bound_becomes_smaller() {
        let small = runtime("small", &json!({}));
        let of = || quota("n", Some("c"), &[&small], &Defaults::new("img"), Register::new());
        let bound =
            |quota: &ResourceQuota, name: &str| quota.spec.as_ref().unwrap().hard.as_ref().unwrap()[name].0.clone();
        let (mut wanted, mut found) = (of(), of());
        let hard = found.spec.as_mut().unwrap().hard.as_mut().unwrap();
        hard.insert("pods".to_owned(), ApiQuantity("9k".to_owned()));
        hard.insert("limits.cpu".to_owned(), ApiQuantity("1m".to_owned()));
        keep_bounds(&mut wanted, &found);
        assert_eq!(bound(&wanted, "pods"), "9k");
        assert_eq!(bound(&wanted, "limits.cpu"), bound(&of(), "limits.cpu"));
    }

    #[test]
    fn a_quota_is_intact_however_its_numbers_are_written() {
        let small = runtime("small", &json!({}));
        let of = |class, register| quota("n", class, &[&small], &Defaults::new("img"), register);
        let wanted = of(Some("knack-sandbox"), Register::new());
        let entry = |text: &str| Register::from([("admitted.knack.dev/small".to_owned(), text.to_owned())]);
        let with = |name: &str, value: &str| {
            let mut found = wanted.clone();
            let hard = found.spec.as_mut().unwrap().hard.as_mut().unwrap();
            hard.insert(name.to_owned(), ApiQuantity(value.to_owned()));
            found
        };
        let pods = wanted.spec.as_ref().unwrap().hard.as_ref().unwrap()["pods"].0.clone();
        for (found, intact) in [
            (wanted.clone(), true),
            (with("limits.cpu", &format!("{pods}000m")), true),
            (with("limits.memory", "9Gi"), false),
            (with("pods", "100k"), false),
            (with("secrets", "1"), false),
            (of(None, Register::new()), false),
            (of(Some("knack-sandbox"), entry("image evil")), false),
        ] {
            assert_eq!(is_intact(&found, &wanted), intact, "{found:?}");
        }
    }
}
