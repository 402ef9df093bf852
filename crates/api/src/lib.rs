//! The objects a user writes: `Skill` and `SkillRuntime`, group `knack.dev`, version `v1alpha1`.
//!
//! These are the types that the custom resources have; `knack dev` and `knack skill` read the same YAML from files.
//! A field is here only once something gives it a meaning. Fields that only a cluster can honour are accepted and
//! named in a warning, so that one manifest serves both places.

mod activation;
pub mod manifest;
pub mod quantity;
mod risk;
pub mod runtime_sandbox;
pub mod runtime_status;
pub mod schema;
pub mod shared;
pub mod skill;
pub mod skill_parts;
pub mod skill_runtime;
pub mod skill_status;

pub use activation::ActivationWord;
pub use manifest::{
    Manifest, ManifestError, SkillManifest, SkillRuntimeManifest, documents, parse_manifests, yaml_problem,
};
pub use quantity::Quantity;
pub use risk::RiskWord;
pub use runtime_status::SkillRuntimeStatus;
pub use shared::{LabelSelector, Labels, Resources};
pub use skill::{Skill, SkillOverrides, SkillSpec};
pub use skill_runtime::{SkillRuntime, SkillRuntimeSpec};
pub use skill_status::SkillStatus;
