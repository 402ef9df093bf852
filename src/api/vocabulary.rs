//! Names that Kubernetes objects, logs and headers share. No other file spells them.

/// API group and version of both kinds.
pub const API_VERSION: &str = "knack.dev/v1alpha1";
/// Kind of a skill.
pub const KIND_SKILL: &str = "Skill";
/// Kind of a runtime.
pub const KIND_SKILL_RUNTIME: &str = "SkillRuntime";
/// Namespace of objects and folders that name none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Request header that names skills for one request, or `none`.
pub const HEADER_SKILLS: &str = "x-knack-skills";
/// Response header that tells what was injected.
pub const HEADER_KNACK: &str = "x-knack";
/// Request header by which one Knack gateway knows another in the path.
pub const HEADER_VIA: &str = "x-knack-via";
/// Longest `metadata.name`: it must fit a DNS label (RFC 1123), since pods and labels carry it.
pub const NAME_MAX_BYTES: usize = 63;
