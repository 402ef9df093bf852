//! Limits of a run: defaults, the two levels (`start` and `run`), and rlimits.

use std::time::Duration;

use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Resource, Rlimit};

use crate::protocol::{Identity, Limits};

/// Every limit of a run, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) timeout: Duration,
    pub(crate) cpu_seconds: u64,
    pub(crate) file_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) address_space_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) output_bytes: u64,
    pub(crate) result_bytes: u64,
    pub(crate) result_files: u64,
}

/// The wall time of a run that asks for none.
const TIMEOUT_MS: u64 = 30_000;
/// One file of 64 MiB is more than any result and less than a disk.
const FILE_BYTES: u64 = 64 << 20;
/// An interpreter with its libraries opens about 20; 256 leaves room for programs.
const OPEN_FILES: u64 = 256;
/// More text than a model reads; the result says that output was cut.
const OUTPUT_BYTES: u64 = 1_000_000;
/// Bytes of the files in one answer, all together.
const RESULT_BYTES: u64 = 4 << 20;
/// Ten times what a person reads.
const RESULT_FILES: u64 = 200;

/// The CPU time of an interpreter before its program comes; start-up takes 0.02 to 0.2 s. A hard limit cannot be raised
/// again, so this must be in it from the beginning.
pub(crate) const START_CPU: Duration = Duration::from_secs(5);

impl Effective {
    /// The limits of `start`.
    pub(crate) fn of_start(limits: &Limits) -> Self {
        let timeout_ms = limits.timeout_ms.unwrap_or(TIMEOUT_MS);
        Self {
            timeout: Duration::from_millis(timeout_ms),
            cpu_seconds: limits.cpu_seconds.unwrap_or_else(|| cpu_for(timeout_ms)),
            file_bytes: limits.file_bytes.unwrap_or(FILE_BYTES),
            open_files: limits.open_files.unwrap_or(OPEN_FILES),
            address_space_bytes: limits.address_space_bytes,
            processes: limits.processes,
            output_bytes: limits.output_bytes.unwrap_or(OUTPUT_BYTES),
            result_bytes: limits.result_bytes.unwrap_or(RESULT_BYTES),
            result_files: limits.result_files.unwrap_or(RESULT_FILES),
        }
    }

    /// These limits, lowered to those of `run`. A limit is never raised.
    pub(crate) fn lowered(self, limits: &Limits) -> Self {
        let lower = |own: u64, asked: Option<u64>| asked.map_or(own, |asked| asked.min(own));
        let lower_option = |own: Option<u64>, asked: Option<u64>| match (own, asked) {
            (Some(own), Some(asked)) => Some(own.min(asked)),
            (own, asked) => own.or(asked),
        };
        let own_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let timeout_ms = lower(own_ms, limits.timeout_ms);
        let cpu = limits.cpu_seconds.or(limits.timeout_ms.map(|_| cpu_for(timeout_ms)));
        Self {
            timeout: Duration::from_millis(timeout_ms),
            cpu_seconds: lower(self.cpu_seconds, cpu),
            file_bytes: lower(self.file_bytes, limits.file_bytes),
            open_files: lower(self.open_files, limits.open_files),
            address_space_bytes: lower_option(self.address_space_bytes, limits.address_space_bytes),
            processes: lower_option(self.processes, limits.processes),
            output_bytes: lower(self.output_bytes, limits.output_bytes),
            result_bytes: lower(self.result_bytes, limits.result_bytes),
            result_files: lower(self.result_files, limits.result_files),
        }
    }

    /// The rlimits, soft = hard. `cpu_used` is what an interpreter that started ahead has used already: RLIMIT_CPU
    /// counts from the start of the process. An interpreter that is still to start has [`START_CPU`].
    pub(crate) fn rlimits(&self, cpu_used: Duration) -> Vec<(Resource, u64)> {
        let used = cpu_used.min(START_CPU);
        let used = used.as_secs() + u64::from(used.subsec_nanos() > 0);
        let mut rlimits = vec![
            (Resource::Core, 0),
            (Resource::Cpu, self.cpu_seconds.max(1).saturating_add(used)),
            (Resource::Fsize, self.file_bytes),
            (Resource::Nofile, self.open_files),
        ];
        rlimits.extend(self.address_space_bytes.map(|bytes| (Resource::As, bytes)));
        rlimits.extend(self.processes.map(|count| (Resource::Nproc, count)));
        rlimits
    }
}

/// Threads use more CPU time than wall time: four busy ones may run to the deadline.
fn cpu_for(timeout_ms: u64) -> u64 {
    timeout_ms.div_ceil(1000).saturating_mul(4).saturating_add(1)
}

/// Sets one limit of the caller, soft = hard, never above the hard limit there is.
pub(super) fn set_own(resource: Resource, value: u64) -> rustix::io::Result<()> {
    let exact = |value| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    match rustix::process::setrlimit(resource, exact(value)) {
        // The limit is already tighter than asked and the caller may not raise it: then it holds as it is.
        Err(rustix::io::Errno::PERM) => match rustix::process::getrlimit(resource).maximum {
            Some(maximum) if maximum < value => rustix::process::setrlimit(resource, exact(maximum)),
            _ => Err(rustix::io::Errno::PERM),
        },
        other => other,
    }
}

/// Lowers limits of another process, soft = hard.
///
/// Without CAP_SYS_RESOURCE (root in most containers) the kernel asks for equal real uids. The runner then takes the
/// real uid and gid of the run for the time of the calls: its effective uid stays root, and nothing but the waiting
/// bootstrap could signal it meanwhile.
pub(crate) fn lower_limits(pid: Pid, identity: Option<Identity>, limits: &[(Resource, u64)]) -> rustix::io::Result<()> {
    match (lower_all(pid, limits), identity) {
        (Err(rustix::io::Errno::PERM), Some(identity)) => {
            set_real(identity.uid, identity.gid)?;
            let outcome = lower_all(pid, limits);
            set_real(0, 0)?;
            outcome
        }
        (outcome, _) => outcome,
    }
}

fn lower_all(pid: Pid, limits: &[(Resource, u64)]) -> rustix::io::Result<()> {
    for (resource, value) in limits {
        // The other process began with the runner's hard limits, which only CAP_SYS_RESOURCE raises: where they are tighter than
        // the run's, they hold as they are.
        let hard = rustix::process::getrlimit(*resource).maximum;
        let value = hard.map_or(*value, |hard| hard.min(*value));
        let exact = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        rustix::process::prlimit(Some(pid), *resource, exact)?;
    }
    Ok(())
}

fn set_real(uid: u32, gid: u32) -> rustix::io::Result<()> {
    let root = (Uid::from_raw(0), Gid::from_raw(0));
    rustix::thread::set_thread_res_gid(Gid::from_raw(gid), root.1, root.1)?;
    rustix::thread::set_thread_res_uid(Uid::from_raw(uid), root.0, root.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_can_only_lower() {
        let start = Effective::of_start(&Limits {
            timeout_ms: Some(5000),
            output_bytes: Some(10),
            ..Limits::default()
        });
        assert_eq!(start.cpu_seconds, 21);
        let asked = Limits {
            timeout_ms: Some(9000),
            output_bytes: Some(99),
            open_files: Some(16),
            processes: Some(4),
            ..Limits::default()
        };
        let run = start.lowered(&asked);
        assert_eq!(
            run,
            Effective {
                open_files: 16,
                processes: Some(4),
                ..start
            }
        );
        let run = start.lowered(&Limits {
            timeout_ms: Some(1500),
            ..Limits::default()
        });
        assert_eq!((run.timeout.as_millis(), run.cpu_seconds), (1500, 9));
    }

    #[test]
    fn cpu_time_counts_from_the_start_of_the_process() {
        let limits = Effective::of_start(&Limits {
            cpu_seconds: Some(2),
            ..Limits::default()
        });
        let cpu = |used| {
            limits
                .rlimits(used)
                .iter()
                .find(|(what, _)| *what == Resource::Cpu)
                .unwrap()
                .1
        };
        assert_eq!(cpu(Duration::ZERO), 2);
        assert_eq!(cpu(Duration::from_millis(1)), 3);
    }
}
