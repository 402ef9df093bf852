//! What the cluster keeps of executions: labels, a summary and Events on their Jobs, and notes on the Lease of the runtime.

pub(super) mod finished_jobs;
pub(super) mod job_record;
pub(super) mod lease_notes;
pub(super) mod refused_executions;
