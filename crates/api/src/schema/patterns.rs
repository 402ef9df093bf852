//! Patterns of Kubernetes for texts of the objects.

use knack_vocabulary::{KIND_SKILL, KIND_SKILL_RUNTIME};

use crate::quantity::QUANTITY_PATTERN;

/// The name in a label's key, and a label's value.
macro_rules! label_name {
    () => {
        "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
    };
}
/// A label's key: a name, with an optional domain before it.
macro_rules! label_key {
    () => {
        concat!("([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?", label_name!())
    };
}
pub(super) use {label_key, label_name};

/// A pattern of Kubernetes for a text of a spec. Unlike rules they cost the API server's budget nothing, and have no message of their
/// own: the server shows the pattern.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    /// The kind.
    pub(super) kind: &'static str,
    /// The position, as that of a [`super::Rule`].
    pub(super) at: &'static str,
    /// The regular expression.
    pub(super) regex: &'static str,
}

/// Names of ConfigMaps, Secrets and RuntimeClasses: [`crate::shared::is_object_name`], which a test compares. Lengths are bounded beside.
pub(super) const OBJECT_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Names of Skills and namespaces.
pub(super) const LABEL_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Keys of a Secret.
const DATA_KEY: &str = "^[-._a-zA-Z0-9]+$";
pub(super) const LABEL_KEY: &str = concat!("^", label_key!(), "$");
/// A toleration may be without a key, also by an empty one.
const TAINT_KEY: &str = concat!("^(", label_key!(), ")?$");
pub(super) const LABEL_VALUE: &str = concat!("^(", label_name!(), ")?$");

/// What a text must be that does not match a pattern.
pub(super) fn pattern_words(pattern: &str) -> String {
    let words = match pattern {
        LABEL_NAME => "lower-case letters, digits and hyphens, with a letter or digit at both ends",
        OBJECT_NAME => "lower-case letters, digits, hyphens and dots, with a letter or digit at both ends of each part",
        DATA_KEY => "letters, digits, -, _ and .",
        LABEL_KEY | TAINT_KEY => {
            "a label key of Kubernetes: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends, and an \
             optional domain before it, such as example.com/team"
        }
        LABEL_VALUE => {
            "a label value of Kubernetes: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
        }
        QUANTITY_PATTERN => "a quantity, such as 500m, 2 or 256Mi",
        other => return format!("must match {other}"),
    };
    format!("must be {words}")
}

const fn of_skill(at: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind: KIND_SKILL,
        at,
        regex,
    }
}

const fn of_runtime(at: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind: KIND_SKILL_RUNTIME,
        at,
        regex,
    }
}

/// Every pattern.
pub(super) const PATTERNS: &[Pattern] = &[
    of_skill("spec.source.configMap.name", OBJECT_NAME),
    of_skill("spec.source.upload.configMaps[]", OBJECT_NAME),
    of_skill("spec.allowedRuntimes.namespaces.selector.matchLabels{}", LABEL_VALUE),
    of_skill(
        "spec.allowedRuntimes.namespaces.selector.matchExpressions[].key",
        LABEL_KEY,
    ),
    of_skill(
        "spec.allowedRuntimes.namespaces.selector.matchExpressions[].values[]",
        LABEL_VALUE,
    ),
    of_runtime("spec.skillSelector.matchLabels{}", LABEL_VALUE),
    of_runtime("spec.skillSelector.matchExpressions[].key", LABEL_KEY),
    of_runtime("spec.skillSelector.matchExpressions[].values[]", LABEL_VALUE),
    of_runtime("spec.skillSelector.namespaceSelector.matchLabels{}", LABEL_VALUE),
    of_runtime("spec.skillSelector.namespaceSelector.matchExpressions[].key", LABEL_KEY),
    of_runtime(
        "spec.skillSelector.namespaceSelector.matchExpressions[].values[]",
        LABEL_VALUE,
    ),
    of_runtime("spec.skillSelector.skills[].namespace", LABEL_NAME),
    of_runtime("spec.skillSelector.skills[].name", LABEL_NAME),
    of_runtime(
        "spec.skillSelector.skills[].config[].valueFrom.secretKeyRef.name",
        OBJECT_NAME,
    ),
    of_runtime(
        "spec.skillSelector.skills[].config[].valueFrom.secretKeyRef.key",
        DATA_KEY,
    ),
    of_runtime("spec.allowedCallers.namespaces.selector.matchLabels{}", LABEL_VALUE),
    of_runtime(
        "spec.allowedCallers.namespaces.selector.matchExpressions[].key",
        LABEL_KEY,
    ),
    of_runtime(
        "spec.allowedCallers.namespaces.selector.matchExpressions[].values[]",
        LABEL_VALUE,
    ),
    of_runtime("spec.sandbox.runtimeClassName", OBJECT_NAME),
    of_runtime("spec.sandbox.nodeSelector{}", LABEL_VALUE),
    of_runtime("spec.sandbox.podMetadata.labels{}", LABEL_VALUE),
    of_runtime("spec.sandbox.tolerations[].key", TAINT_KEY),
    of_runtime("spec.sandbox.tolerations[].value", LABEL_VALUE),
    of_runtime("spec.sandbox.imagePullSecrets[].name", OBJECT_NAME),
    of_runtime("spec.env[].valueFrom.secretKeyRef.name", OBJECT_NAME),
    of_runtime("spec.env[].valueFrom.secretKeyRef.key", DATA_KEY),
];
