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

mod active_runs;
mod attach;
mod attach_pace;
mod cluster;
mod end_unstarted;
mod event;
mod executor;
mod failure;
mod finished_jobs;
mod from_api;
mod handover;
mod handshake;
mod isolation;
mod isolation_results;
mod isolation_status;
mod job_record;
mod journal;
mod keys;
mod kinds;
mod launch;
mod lease_notes;
mod names;
mod node_gate;
mod nodes;
mod out_of_memory;
mod ownership;
mod ownership_term;
mod pod_facts;
mod pod_requirements;
mod pods;
mod pool;
mod recovery;
mod refused_executions;
mod request;
mod resolved_runtime;
mod run;
mod sandboxes_ready;
mod serving_state;
mod settings;
mod spec;
mod spool;
mod start;
mod start_failures;
mod term_services;
mod waiter_grace;

pub use event::{Event, OutputStream};
pub use executor::{JobExecutor, KnownExecution};
pub use from_api::{Defaults, languages};
pub use journal::Journal;
pub use knack_serving::beacon::{Beacon, ProbeTarget};
pub use request::{JobRequest, PoolCounts};
pub use resolved_runtime::{
    EnvGrant, ImagePullPolicy, JournalMode, PodResources, ResolvedRuntime, Resource, RunnerSource, Toleration, UidRange,
};
pub use settings::{JobClients, JobSettings, ResultMemory};
pub use spec::{JobIdentity, JobPurpose, job_spec, pool_key};
