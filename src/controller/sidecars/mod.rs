//! Pods that ask for the sidecar and do not fare as they should: condition `PodsInjected` of their SkillRuntime, metrics, Events.
//!
//! The injector can be absent, and pods then start without it: `failurePolicy` is `Ignore`. [`check`] lists them, [`count`] judges
//! them by their metadata, [`callers`] as the hub does, and [`report`] reports. [`restart`] replaces sidecars of an older release
//! where namespaces ask for it.

mod callers;
mod check;
mod count;
mod lists;
mod report;
mod restart;
mod roll;
mod workloads;

pub(super) use report::run;

#[cfg(test)]
mod tests;
