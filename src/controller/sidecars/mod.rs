//! Pods that ask for the sidecar and have none: condition `PodsInjected` of their SkillRuntime, metrics, Events.
//!
//! Whoever injects can be away, and then pods start without it: `failurePolicy` is `Ignore`. [`count`] judges pods by their
//! metadata, [`report`] lists them and tells. [`restart`] replaces sidecars of an older release where namespaces ask for it.

mod count;
mod report;
mod restart;
mod roll;
mod workloads;

pub(super) use report::run;
