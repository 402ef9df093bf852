//! Names that the pod of an application, the policy and the webhook share.

pub use knack_vocabulary::{
    ANNOTATION_INJECTION, ANNOTATION_ROLLED_FOR, ANNOTATION_RUNTIME, KEY_PREFIX as PREFIX, LABEL_INJECT,
};

/// The annotations with [`PREFIX`] that pods of applications have. Another one with it is a typing mistake.
pub const ANNOTATIONS: [&str; 3] = [ANNOTATION_INJECTION, ANNOTATION_ROLLED_FOR, ANNOTATION_RUNTIME];

/// Value of [`LABEL_INJECT`] on a pod that goes without, whatever its namespace says.
pub const DISABLED: &str = "disabled";
/// Kubernetes' mark of a mirror pod, which represents a static pod of a kubelet. Such a pod must not be changed.
pub const ANNOTATION_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation of a pod for Kubernetes' Cluster Autoscaler: names of local volumes, with commas, that keep no node from being
/// removed. By default every emptyDir does.
pub const ANNOTATION_LOCAL_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// Label of nodes with their operating system.
pub const LABEL_OS: &str = "kubernetes.io/os";
/// Variable of the gateway with the address of the hub.
pub const VARIABLE_HUB: &str = "KNACK_HUB";
/// Variable of the gateway that [`ANNOTATION_RUNTIME`] sets.
pub const VARIABLE_RUNTIME: &str = "KNACK_RUNTIME";

/// The variables among [`knack_vocabulary::PROXIES`] that list what is reached without a proxy.
pub const NO_PROXIES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// The hosts that are added to them: the sidecar listens there.
pub const LOOPBACK: &str = "127.0.0.1,localhost";

/// A base URL that the gateway takes as an upstream: scheme, host, port, path, and nothing else. A value with credentials, a
/// query or `$(VAR)` does not match, nor does a host that is no address and ends in a number, which is no URL. In the form that
/// RE2 reads too, since the policy uses the same.
pub const BASE_URL: &str = r"^https?://(\[(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:(:[0-9a-fA-F]{1,4}){1,6}|:(:[0-9a-fA-F]{1,4}){1,7}|::)\]|(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|([A-Za-z0-9][A-Za-z0-9-]*\.)*([A-Za-z][A-Za-z0-9-]*|[0-9]+[A-WYZa-wyz-][A-Za-z0-9-]*)\.?)(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[A-Za-z0-9._~/-]*)?$";
/// Hosts with a label in Punycode, of which a pattern cannot tell whether it decodes: their URLs are not taken.
pub const PUNYCODE: &str = r"^https?://([^/]*\.)?[xX][nN]--";
/// Base URLs that lead to the sidecar, however they are written: as an upstream of the sidecar each would be a circle.
pub const OWN_URL: &str = r"(?i)^http://(127\.0\.0\.1|0\.0\.0\.0|localhost\.?|\[::1\]):4141(/v1)?/*$";
/// Base URLs of a program in the pod.
pub const POD_URL: &str =
    r"(?i)^https?://(127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|0\.0\.0\.0|localhost\.?|\[::1\])([:/]|$)";
/// Variables by which SDKs get the key of an API, by the word of the API.
pub const KEYS: [(&str, &[&str]); 3] = [
    ("openai", &["OPENAI_API_KEY"]),
    ("anthropic", &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]),
    ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
];
/// Variables of clients for Azure OpenAI, which are clients of the API `openai`. The client for Node refuses a base URL beside its
/// endpoint, and without an endpoint sends its key to the base URL.
pub const AZURE: [&str; 2] = ["AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"];
/// The word of the API of [`AZURE`].
pub const AZURE_API: &str = "openai";
/// `namespace/name` of a SkillRuntime: two DNS labels.
pub const RUNTIME: &str = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
