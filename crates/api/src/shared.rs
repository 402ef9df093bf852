//! Parts that both kinds use.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::quantity::Quantity;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// A label selector, as everywhere in Kubernetes; empty selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be present with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: Labels,
    /// Further requirements; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// Label key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How key and values relate.
    pub operator: SelectorOperator,
    /// Values of `In` and `NotIn`; none for the other two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How a requirement relates a key to its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl SelectorOperator {
    /// Whether the requirement has values.
    fn takes_values(self) -> bool {
        matches!(self, Self::In | Self::NotIn)
    }
}

impl LabelSelector {
    /// Whether labels satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                // Not valid, and refused by the definitions: `NotIn` of nothing must not select everything.
                if requirement.operator.takes_values() == requirement.values.is_empty() {
                    return false;
                }
                let value = labels.get(&requirement.key);
                let listed = value.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    SelectorOperator::In => listed,
                    SelectorOperator::NotIn => !listed,
                    SelectorOperator::Exists => value.is_some(),
                    SelectorOperator::DoesNotExist => value.is_none(),
                }
            })
    }
}

/// Longest name of an object.
const OBJECT_NAME_MAX: usize = 253;

/// Whether a text can be the name of a ConfigMap, a Secret or another object that is named by a DNS subdomain: the patterns of the
/// definitions, for objects that are older than these.
pub fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = (part.bytes().next(), part.bytes().next_back());
        matches!(ends, (Some(first), Some(last)) if is_alphanumeric(first) && is_alphanumeric(last))
            && part.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
    };
    name.len() <= OBJECT_NAME_MAX && name.split('.').all(is_part)
}

/// Kubernetes resource requirements of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Hard limits by resource name; `memory` binds on a laptop too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub limits: ResourceList,
    /// What the scheduler reserves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub requests: ResourceList,
}

/// Quantities by resource name: `cpu`, `memory`, `ephemeral-storage` or an extended resource.
pub type ResourceList = BTreeMap<String, Quantity>;

impl Resources {
    /// Resources that every sandbox has, whatever a runtime says; all others it must offer.
    pub const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

    /// The resource whose limit binds on a laptop too.
    pub const MEMORY: &str = "memory";

    /// `limits.memory` in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.limits.get(Self::MEMORY).map(Quantity::units)
    }

    /// The fields of `spec.sandbox.resources` that are set and have an effect only on a cluster.
    pub fn cluster_only_fields(&self) -> Vec<String> {
        let limits = self.limits.keys().filter(|name| *name != Self::MEMORY);
        let limits = limits.map(|name| format!("spec.sandbox.resources.limits.{name}"));
        let requests = self.requests.keys();
        let requests = requests.map(|name| format!("spec.sandbox.resources.requests.{name}"));
        limits.chain(requests).collect()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(super) fn is_false(value: &bool) -> bool {
    !*value
}

/// Schema of a free-form object: kept as it was written.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels: Labels = [("a".to_owned(), "1".to_owned())].into();
        for (selector, expected) in [
            (r"{}", true),
            (r#"{"matchLabels":{"a":"1"}}"#, true),
            (r#"{"matchLabels":{"a":"2"}}"#, false),
            (r#"{"matchLabels":{"b":"1"}}"#, false),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#,
                true,
            ),
            (
                r#"{"matchExpressions":[{"key":"b","operator":"In","values":["1"]}]}"#,
                false,
            ),
            (
                r#"{"matchExpressions":[{"key":"b","operator":"NotIn","values":["1"]}]}"#,
                true,
            ),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}"#,
                false,
            ),
            (r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#, false),
            // These are no selectors of Kubernetes.
            (r#"{"matchExpressions":[{"key":"b","operator":"NotIn"}]}"#, false),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["1"]}]}"#,
                false,
            ),
        ] {
            let selector: LabelSelector = serde_json::from_str(selector).unwrap();
            assert_eq!(selector.matches(&labels), expected, "{selector:?}");
        }
    }
}
