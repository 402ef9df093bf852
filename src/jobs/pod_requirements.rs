//! Which pod is wanted, and how long it may take to start.

use knack_execution::Language;
use knack_packages::environment::EnvironmentImage;

use super::resolved_runtime::{EnvGrant, PodResources};

/// Which pod is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRequirements {
    /// Its image.
    pub(super) image: String,
    /// Its resources.
    pub(super) resources: PodResources,
    /// Values from Secrets.
    pub(super) env: Vec<EnvGrant>,
    /// The environment of packages that its image has for it.
    pub(super) packages: Option<EnvironmentImage>,
    /// The interpreter to start ahead; none for commands.
    pub(super) language: Option<Language>,
}

/// For whom the pod is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    /// A caller: a pod that finds no node is given up for it soon.
    Caller,
    /// The pool: a node that has to be made first takes a minute or two.
    Pool,
}
