//! Loads a skill's folder as one valid [`Skill`](crate::model::Skill), and reports all problems at once.
//!
//! ```text
//! files -> tree (bounds, paths) -> SKILL.md -> frontmatter -> fields -> Skill
//!                                                  |            overrides of a manifest
//!                                                  `-> strict: what the dialect's specification demands
//! ```

mod abilities;
#[cfg(test)]
mod class_tests;
mod document;
mod fields;
mod folder;
#[cfg(test)]
mod function_tests;
mod functions;
#[cfg(test)]
mod hostile_tests;
mod inert;
#[cfg(test)]
mod message_tests;
mod programs;
mod reader;
mod reading;
mod settings;
mod strict;
#[cfg(test)]
mod tests;
mod types;

pub use folder::{load, load_with};
pub use types::{LoadInput, LoadResult, SpecOverrides};
