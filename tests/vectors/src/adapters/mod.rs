//! One adapter per op, by subject. Each file has a table `OPS`; this one only lists them.

#![expect(
    clippy::unnecessary_wraps,
    reason = "adapters share one signature, whether or not their op can fail"
)]

mod agent_flow;
mod args;
mod at_skill;
mod autoscore;
#[cfg(feature = "pyschema")]
mod dispatch;
mod egress;
mod exchange;
mod executions;
mod husk;
mod injection;
#[cfg(feature = "pyschema")]
mod invoke;
mod omniroute;
#[cfg(feature = "pyschema")]
mod pyschema;
mod semver;
mod skillmd;
mod skills_api;
mod sse;
mod template;
mod toolcalls;

use crate::registry::Op;

/// Every adapter table.
pub(crate) const TABLES: &[&[Op]] = &[
    agent_flow::OPS,
    args::OPS,
    at_skill::OPS,
    autoscore::OPS,
    #[cfg(feature = "pyschema")]
    dispatch::OPS,
    egress::OPS,
    executions::OPS,
    husk::OPS,
    injection::OPS,
    #[cfg(feature = "pyschema")]
    invoke::OPS,
    #[cfg(feature = "pyschema")]
    pyschema::OPS,
    semver::OPS,
    skillmd::OPS,
    skills_api::OPS,
    sse::OPS,
    template::OPS,
    toolcalls::OPS,
];
