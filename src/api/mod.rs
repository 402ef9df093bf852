//! The objects a user writes: `Skill` and `SkillRuntime`, group `knack.dev`, version `v1alpha1`.
//!
//! These are the types that the custom resources have; `knack dev` and `knack skill` read the same YAML from files.
//! A field is here only once something gives it a meaning. Fields that only a cluster can honour are accepted and
//! named in a warning, so that one manifest serves both places.

pub mod manifest;
pub mod skill;
pub mod skill_runtime;
pub mod vocabulary;

pub use manifest::{Manifest, ManifestError, parse_manifests};
pub use skill::{ActivationWord, SkillManifest, SkillSpec};
pub use skill_runtime::{SkillRuntimeManifest, SkillRuntimeSpec};
