//! The locks, prepared in the parent and applied in the child, in the one order that works.

use landlock::RulesetCreated;
use rustix::process::Resource;

use super::bpf::Program;
use super::paths::{self, LandlockReached, PathRules};
use super::seccomp_filters::{Missing, Signals, filter_a, filter_b};
use super::{ABI_SCOPES, ABI_TRUNCATE, Kernel};
use crate::protocol::{Identity, Landlock, LandlockState};

/// A lock that did not hold; the child exits without running anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The step.
    pub(crate) step: &'static str,
    /// The message of the kernel or of the library.
    pub(crate) message: String,
    /// The kernel does not have the lock, and the run may not start without it.
    pub(crate) is_missing: bool,
}

impl Failure {
    fn of(step: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Self {
            step,
            message: std::io::Error::from(error).to_string(),
            is_missing: false,
        }
    }

    fn because(step: &'static str, message: String) -> Self {
        Self {
            step,
            message,
            is_missing: false,
        }
    }

    /// Landlock is demanded and not there.
    pub(crate) fn missing(message: String) -> Self {
        Self {
            step: "landlock",
            message,
            is_missing: true,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.step, self.message)
    }
}

/// Everything the child needs; made before the fork, where an error can still be reported plainly.
#[derive(Debug)]
pub(crate) struct Recipe {
    identity: Option<Identity>,
    rlimits: Vec<(Resource, u64)>,
    /// Absent where the kernel is taken to have no Landlock.
    ruleset: Option<RulesetCreated>,
    landlock: Landlock,
    kernel: Kernel,
    /// Whether the runner is process 1: everybody else in its PID namespace is of the run.
    is_init: bool,
    filter_a: Program,
    filter_b: Program,
}

impl Recipe {
    /// Opens the rule paths and compiles the filters.
    ///
    /// Errors: a path rule that cannot be built, a filter that does not compile.
    pub(crate) fn prepare(
        rules: &PathRules,
        landlock: Landlock,
        identity: Option<Identity>,
        rlimits: Vec<(Resource, u64)>,
        kernel: Kernel,
    ) -> Result<Self, String> {
        Ok(Self {
            identity,
            rlimits,
            ruleset: paths::prepare(rules, kernel.landlock_abi)?,
            landlock,
            kernel,
            is_init: std::process::id() == 1,
            filter_a: filter_a()?,
            filter_b: filter_b(Missing::default())?,
        })
    }

    /// Applies all locks to the calling process, which must have one thread and is about to exec.
    ///
    /// `report` is called with the reached state after the last step that can fail softly and before the filter that
    /// could stop it from writing; what it writes counts only if the exec succeeds.
    ///
    /// Errors: the first lock that does not hold. The caller must then exit.
    pub(crate) fn apply(&mut self, report: impl FnOnce(LandlockReached)) -> Result<(), Failure> {
        // Own session and process group: group kills and terminal tricks do not reach the runner.
        rustix::process::setsid().map_err(Failure::of("setsid"))?;
        // When memory runs out, the kernel kills the run before the runner. Not a lock: without /proc the start
        // continues.
        drop(prefer_for_oom());
        if let Some(identity) = self.identity {
            drop_to(identity)?;
        }
        rustix::thread::set_no_new_privs(true).map_err(Failure::of("no_new_privs"))?;
        // A runner that is killed takes the main process with it. Set after the uid change, which clears it.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(Failure::of("parent death signal"))?;
        for (resource, value) in &self.rlimits {
            super::limits::set_own(*resource, *value).map_err(Failure::of("rlimits"))?;
        }
        close_on_exec_from_3().map_err(Failure::of("close_range"))?;
        let landlock = self.restrict_paths()?;
        let loads = |step| move |error: seccompiler::Error| Failure::because(step, error.to_string());
        seccompiler::apply_filter(&self.filter_a).map_err(loads("seccomp filter A"))?;
        let missing = Missing {
            signals: if landlock.abi >= ABI_SCOPES || self.identity.is_some() {
                Signals::Kept
            } else if self.is_init {
                Signals::AllButInit
            } else {
                Signals::Own(std::process::id())
            },
            truncate: landlock.abi < ABI_TRUNCATE,
        };
        if missing != Missing::default() {
            self.filter_b = filter_b(missing).map_err(|message| Failure::because("seccomp filter B", message))?;
        }
        report(landlock);
        seccompiler::apply_filter(&self.filter_b).map_err(loads("seccomp filter B"))
    }

    fn restrict_paths(&mut self) -> Result<LandlockReached, Failure> {
        let failure = |message: String| Failure::because("landlock", message);
        let landlock = match self.ruleset.take() {
            Some(ruleset) => {
                let status = ruleset.restrict_self().map_err(|error| failure(error.to_string()))?;
                LandlockReached::of(&status, self.kernel.landlock_abi)
            }
            None => LandlockReached::NONE,
        };
        if self.landlock == Landlock::Required && landlock.state == LandlockState::NotEnforced {
            return Err(Failure::missing(
                "this kernel has no Landlock, and the run may not start without it".to_owned(),
            ));
        }
        Ok(landlock)
    }
}

/// Refuses an identity that would keep root, or that a runner without root cannot take.
pub(crate) fn check_identity(identity: Identity) -> Result<(), String> {
    if identity.uid == 0 || identity.gid == 0 {
        return Err("identity: uid and gid must not be 0".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("identity: only a runner that is root can change its uid".to_owned());
    }
    Ok(())
}

fn prefer_for_oom() -> std::io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
}

/// Becomes the identity and nothing else: no groups, no capability, no way back.
pub(crate) fn drop_to(identity: Identity) -> Result<(), Failure> {
    let uid = rustix::fs::Uid::from_raw(identity.uid);
    let gid = rustix::fs::Gid::from_raw(identity.gid);
    rustix::thread::set_thread_groups(&[]).map_err(Failure::of("setgroups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(Failure::of("setgid"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(Failure::of("setuid"))?;
    // The kernel has dropped them with the uid, unless securebits are set to keep them.
    let none = rustix::thread::CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::CapabilitySet::empty(),
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(Failure::of("capabilities"))
}

/// Marks every descriptor from 3 on close-on-exec.
///
/// Inherited descriptors pass Landlock and seccomp, which check opening and not use. Marking instead of closing keeps
/// the pipe on which a failing exec is reported.
#[expect(unsafe_code, reason = "neither std nor rustix has close_range")]
fn close_on_exec_from_3() -> rustix::io::Result<()> {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC touches no memory and closes nothing before an exec.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::NOSYS))
}
