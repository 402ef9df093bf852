//! Environments of packages on a cluster: `knack packages serve` decides what is built, and builder Jobs make images.
//!
//! ```text
//! Skills, SkillRuntimes ─▶ wanted ─▶ decide ─▶ ConfigMap + Job in the namespace of builds ─▶ build ─▶ registry
//!                                      ▲                                                       │
//! ConfigMap knack-packages ◀─ statuses ─┼──────────── the pod's termination message ◀───────────┘
//! Role knack-environments  ◀─ names ───┘
//! ```
//!
//! This process reads no Secret: a Job names the credentials of index and registry, and the kubelet mounts them.

mod admitted;
mod admitted_image;
mod build;
mod builders;
mod credentials;
mod decide;
mod fit;
mod image;
mod job;
mod job_state;
mod layer;
mod metrics;
mod outcome;
mod published;
mod reach;
mod registry;
mod requests;
mod serve;
mod unread;
mod wanted;

pub use build::{BuildArgs, build};
pub use credentials::{Credentials, RegistryError};
pub use image::Reference;
pub use job::{AUTHORITIES_MAX_BYTES, BuilderSettings};
pub use outcome::Outcome;
pub use registry::{Access, ImageRegistry};
pub use serve::{ServeSettings, serve};
