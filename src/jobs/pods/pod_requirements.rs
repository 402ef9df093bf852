//! Which pod is wanted, and how long it may take to start.

use knack_execution::Language;
use knack_packages::environment::EnvironmentImage;

use crate::jobs::resolved_runtime::{EnvGrant, PodResources};

/// Which pod is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::jobs) struct PodRequirements {
    /// The image of the sandbox.
    pub(in crate::jobs) image: String,
    /// The resources of the sandbox.
    pub(in crate::jobs) resources: PodResources,
    /// Values from Secrets.
    pub(in crate::jobs) env: Vec<EnvGrant>,
    /// The environment of packages that its image has for it.
    pub(in crate::jobs) packages: Option<EnvironmentImage>,
    /// The interpreter to start ahead; none for commands.
    pub(in crate::jobs) language: Option<Language>,
}

/// For whom the pod is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jobs) enum Requester {
    /// A caller: a pod that finds no node is given up for it soon.
    Caller,
    /// The pool: a node that has to be made first takes a minute or two.
    Pool,
}
