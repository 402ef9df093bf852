//! Packages of Node: the declarations of a skill, and the lock that fixes each package.
//!
//! ```text
//! `spec.packages.node` ▶ `packages.node` in SKILL.md ▶ package.json ▶ package-lock.json alone    names and ranges, the first that is there
//! package-lock.json                                                                              what is installed, and where
//! ```
//!
//! Nothing is installed without a lock: npm chooses versions, for `knack skill lock` and, once, for `knack skill packages --build`.
//! Builders of a cluster have no npm.

mod declared;
mod dependency;
pub(crate) mod imports;
mod location;
mod lock;
mod package_json;

pub(crate) use declared::{NODE_SPEC_FIELD, NodePackages, declared};
pub use declared::{NodeDeclaration, NodeRequirements, requirements};
pub use dependency::Dependency;
pub use lock::{NODE_LOCK_FILE, NodeLock, NodePackage};

/// Most packages of one lock. A library for office files brings about twenty, one for web pages a hundred.
pub const MAX_NODE_PACKAGES: usize = 500;
