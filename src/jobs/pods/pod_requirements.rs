//! Which pod is wanted, and how long it may take to start.

use knack_execution::Language;
use knack_packages::environment::EnvironmentImage;

use crate::jobs::resolved_runtime::{EnvGrant, PodResources};

/// Which pod is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRequirements {
    /// Image, the runtime's or one that the runtime allows.
    pub image: String,
    /// Resources, the runtime's or those that the skill asks for, under the runtime's ceiling.
    pub resources: PodResources,
    /// Environment values of the container from Secrets; the run sees only those that it is granted.
    pub env: Vec<EnvGrant>,
    /// The environment of packages that its image has for it.
    pub packages: Option<EnvironmentImage>,
    /// The interpreter to start ahead; none for commands.
    pub language: Option<Language>,
}

/// For whom the pod is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::jobs) enum Requester {
    /// A caller: a pod that finds no node is given up for it soon.
    Caller,
    /// The pool: a node that has to be made first takes a minute or two.
    Pool,
}
