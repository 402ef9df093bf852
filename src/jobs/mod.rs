//! Executions as Kubernetes Jobs: one Job, one pod, one container, one run.
//!
//! ```text
//! execute ─▶ records ─▶ queue ─▶ pool (a pod that is attached, else a new Job) ─▶ conversation ─▶ result
//!    │                              ▲                                                    │
//!    └─ only as the runtime's owner └──────── refilled off the hot path ◀── one patch ◀──┘
//! ```
//!
//! Cold and warm pods are built by one pure function ([`job_spec`]) and differ in nothing but time. Code arrives on the
//! pod's stdin by attach, never in the Job. The pod's log is the journal: a new owner reads from it what ran.
//!
//! This module does not decide which caller may run what, and does not read Skills: a request carries its files.

mod cluster;
mod executor;
mod from_api;
mod isolation;
mod keys;
mod names;
mod nodes;
mod ownership;
mod pods;
mod records;
mod request;
mod resolved_runtime;
mod run;
mod settings;

pub use cluster::journal::Journal;
pub use executor::{JobExecutor, KnownExecution};
pub use from_api::{Defaults, languages};
pub use knack_serving::beacon::{Beacon, ProbeTarget};
pub use pods::pod_requirements::PodRequirements;
pub use pods::spec::{JobIdentity, JobPurpose, job_spec, pool_key};
pub use request::{JobRequest, PoolCounts, RunSkill};
pub use resolved_runtime::{
    EnvGrant, ImagePullPolicy, JournalMode, PodResources, ResolvedRuntime, Resource, RunnerSource, Toleration, UidRange,
};
pub use run::event::{Event, OutputStream};
pub use settings::{JobClients, JobSettings, ResultMemory};
