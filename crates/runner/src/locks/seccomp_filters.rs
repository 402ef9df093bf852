//! The two seccomp filters.

use libc::c_long;

use super::bpf::{Action, Check, Program, Rule, compile};
use super::seccomp_allowlist::{ALWAYS, FCNTL_COMMANDS, IOCTL_REQUESTS, LEGACY, OPENS, SIGNALS};

/// `AUDIT_ARCH_X86_64`.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
/// `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;

/// `CLONE_NEW*`: every namespace, the time namespace (0x80) included.
const CLONE_NAMESPACES: u32 = 0x7e02_0080;

/// The prctl options that concern the caller alone and that libraries use: `PR_GET_PDEATHSIG`, `PR_GET_DUMPABLE`,
/// `PR_SET_NAME`, `PR_GET_NAME`, `PR_CAPBSET_READ`, `PR_SET_TIMERSLACK`, `PR_GET_TIMERSLACK`, `PR_GET_NO_NEW_PRIVS`,
/// `PR_SET_VMA` (malloc names its arenas). Not included: `PR_SET_PDEATHSIG`, by which the main process would outlive a
/// runner that is killed.
const PRCTL_OPTIONS: [u32; 9] = [2, 3, 15, 16, 23, 29, 30, 39, 0x5356_4d41];

/// The socket options that make the buffers of a socket pair larger, which no watch counts: `SO_SNDBUF`, `SO_RCVBUF`,
/// `SO_SNDBUFFORCE`, `SO_RCVBUFFORCE`. At other levels than `SOL_SOCKET` a pair has no options.
const BUFFER_OPTIONS: [u32; 4] = [7, 8, 32, 33];

/// `MADV_PAGEOUT`: pages go to swap at once. Of shared memory the kernel does not tell how much of it is there, so no watch counts it.
const PAGE_OUT: u32 = 21;

/// `O_ACCMODE`. The mode 3 asks for neither reading nor writing.
const ACCESS_MODE: u32 = 3;
/// `O_TRUNC`.
const TRUNCATE: u32 = 0o1000;

/// Accesses that this kernel's Landlock does not restrict, so that the filter must.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Who may receive signals.
    pub(crate) signals: Signals,
    /// The right to truncate. Landlock then judges what is opened for writing, and three calls cut a file without that:
    /// `truncate`, and `open` with `O_TRUNC` for reading or for neither.
    pub(crate) truncate: bool,
}

/// Who may receive signals of the run, as far as the filter decides it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Signals {
    /// Something else keeps them inside the run: the scope of Landlock, or a uid of the run's own.
    #[default]
    Kept,
    /// The runner is process 1 of a namespace in which everybody else is of the run: everybody but process 1.
    AllButInit,
    /// Only this process, whose pid is known after the fork, and its own group.
    Own(u32),
}

/// Process 1 of a PID namespace.
const INIT: u32 = 1;

/// Filter A: `clone3` is ENOSYS, everything else passes.
///
/// glibc then falls back to `clone`, whose flags are in a register and can be checked; those of clone3 are behind a
/// pointer.
pub(crate) fn filter_a() -> Result<Program, String> {
    compile(
        ARCHITECTURE,
        Action::Allow,
        vec![(
            number(libc::SYS_clone3)?,
            Rule::Always(Action::Errno(errno(libc::ENOSYS))),
        )],
    )
}

/// Filter B: the allowlist, EPERM by default.
pub(crate) fn filter_b(missing: Missing) -> Result<Program, String> {
    let mut rules = Vec::with_capacity(ALWAYS.len() + LEGACY.len() + 16);
    for syscall in ALWAYS.iter().chain(LEGACY) {
        rules.push((number(*syscall)?, Rule::Always(Action::Allow)));
    }
    for (syscall, rule) in conditional(missing) {
        rules.push((number(syscall)?, rule));
    }
    if missing.signals == Signals::Kept {
        for syscall in SIGNALS {
            rules.push((number(*syscall)?, Rule::Always(Action::Allow)));
        }
    }
    compile(ARCHITECTURE, REFUSED_ACTION, rules)
}

/// The errno of a denied call. EPERM is 1 everywhere.
const REFUSED_ACTION: Action = Action::Errno(1);

fn conditional(missing: Missing) -> Vec<(c_long, Rule)> {
    let when = |checks| Rule::When(checks, REFUSED_ACTION);
    let commands: Vec<u32> = FCNTL_COMMANDS.iter().map(|command| command.unsigned_abs()).collect();
    // Runner and code may share a uid, and then neither the Landlock scope nor dumpable 0 stops prlimit and its kin.
    let mut rules = vec![
        (libc::SYS_clone, when(vec![masked(0, CLONE_NAMESPACES, &[0])])),
        (libc::SYS_prlimit64, when(vec![equal(0, &[0])])),
        (libc::SYS_sched_setaffinity, when(vec![equal(0, &[0])])),
        // With PRIO_USER, who 0 means every process of the uid, including the runner.
        (libc::SYS_setpriority, when(vec![equal(0, &[0]), equal(1, &[0])])),
        (libc::SYS_prctl, when(vec![equal(0, &PRCTL_OPTIONS)])),
        (libc::SYS_fcntl, when(vec![equal(1, &commands)])),
        // The kernel's error for a request that a file does not support.
        (
            libc::SYS_ioctl,
            Rule::When(vec![equal(1, IOCTL_REQUESTS)], Action::Errno(errno(libc::ENOTTY))),
        ),
        // A datagram pair could sendto() any unix datagram socket of the host by its path; a stream pair cannot. The
        // flags SOCK_NONBLOCK and SOCK_CLOEXEC are above the low nibble: 1 stream, 5 sequenced packets.
        (
            libc::SYS_socketpair,
            when(vec![equal(0, &[1]), masked(1, 0xf, &[1, 5])]),
        ),
        (
            libc::SYS_setsockopt,
            Rule::Unless(equal(2, &BUFFER_OPTIONS), REFUSED_ACTION),
        ),
        // The error of a kernel that does not know the advice, as those before Linux 5.4.
        (
            libc::SYS_madvise,
            Rule::Unless(equal(2, &[PAGE_OUT]), Action::Errno(errno(libc::EINVAL))),
        ),
        (libc::SYS_mknodat, when(vec![masked(2, 0o170_000, &[0o010_000])])),
    ];
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_mknod, when(vec![masked(1, 0o170_000, &[0o010_000])])));
    match missing.signals {
        Signals::Kept => {}
        // A descriptor of a process does not show whose it is. `kill(-1)` leaves process 1 out.
        Signals::AllButInit => rules.extend(
            SIGNALS
                .iter()
                .filter(|syscall| **syscall != libc::SYS_pidfd_send_signal)
                .map(|syscall| (*syscall, Rule::Unless(equal(0, &[INIT]), REFUSED_ACTION))),
        ),
        Signals::Own(pid) => {
            rules.push((libc::SYS_kill, when(vec![equal(0, &[0, pid])])));
            rules.push((libc::SYS_tgkill, when(vec![equal(0, &[pid])])));
        }
    }
    rules.extend(opens(missing.truncate));
    rules
}

/// Opening and truncating. Where Landlock does not control truncation, a file can be truncated only through a
/// descriptor that is open for writing.
fn opens(must_judge: bool) -> Vec<(c_long, Rule)> {
    let allow = || Rule::Always(Action::Allow);
    if !must_judge {
        let calls = OPENS.iter().map(|(syscall, _)| *syscall);
        return calls
            .chain([libc::SYS_openat2, libc::SYS_truncate])
            .map(|syscall| (syscall, allow()))
            .collect();
    }
    let read_or_write = [0, 1, 2, TRUNCATE | 1, TRUNCATE | 2];
    let judged = |flags| vec![masked(flags, ACCESS_MODE | TRUNCATE, &read_or_write)];
    let calls = OPENS
        .iter()
        .map(|(syscall, flags)| (*syscall, Rule::When(judged(*flags), REFUSED_ACTION)));
    // Its flags are behind a pointer; as on a kernel that does not have it, callers fall back.
    let without = Rule::Always(Action::Errno(errno(libc::ENOSYS)));
    calls.chain([(libc::SYS_openat2, without)]).collect()
}

fn equal(argument: u32, values: &[u32]) -> Check {
    masked(argument, u32::MAX, values)
}

fn masked(argument: u32, mask: u32, values: &[u32]) -> Check {
    Check {
        argument,
        mask,
        values: values.to_vec(),
    }
}

fn number(syscall: c_long) -> Result<u32, String> {
    u32::try_from(syscall).map_err(|_| format!("syscall number {syscall} is out of range"))
}

/// Errno constants of Linux are below 4,096.
fn errno(value: i32) -> u16 {
    u16::try_from(value).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::locks::bpf::simulate::run;

    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    const KILL: u32 = 0x8000_0000;

    #[test]
    fn every_number_gets_the_action_of_the_table() {
        let program = filter_b(Missing::default()).unwrap();
        let allowed: BTreeSet<u32> = ALWAYS
            .iter()
            .chain(LEGACY)
            .chain(SIGNALS)
            .map(|number| u32::try_from(*number).unwrap())
            .collect();
        let conditional: BTreeSet<u32> = conditional(Missing::default())
            .iter()
            .map(|(number, _)| u32::try_from(*number).unwrap())
            .collect();
        for number in (0..2048).chain(0x4000_0000..0x4000_0800).chain([u32::MAX]) {
            if conditional.contains(&number) {
                continue;
            }
            let expected = if allowed.contains(&number) { ALLOW } else { EPERM };
            assert_eq!(
                run(&program, ARCHITECTURE, number, [7; 6]),
                expected,
                "syscall {number}"
            );
            assert_eq!(
                run(&program, 0x4000_0003, number, [0; 6]),
                KILL,
                "i386 syscall {number}"
            );
        }
        let count = allowed.len() + conditional.len() - LEGACY.len();
        assert!((150..195).contains(&count), "{count}");
        assert!(program.len() < 450, "{} instructions", program.len());
    }

    #[track_caller]
    fn check(missing: Missing, syscall: c_long, arguments: [u64; 6], expected: u32) {
        let program = filter_b(missing).unwrap();
        assert_eq!(
            run(&program, ARCHITECTURE, u32::try_from(syscall).unwrap(), arguments),
            expected
        );
    }

    #[test]
    fn arguments_are_checked() {
        let inside = Missing::default();
        check(inside, libc::SYS_clone, [0x3d_0f00, 0, 0, 0, 0, 0], ALLOW);
        for namespace in [
            0x80,
            0x2_0000,
            0x200_0000,
            0x400_0000,
            0x800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
        ] {
            check(inside, libc::SYS_clone, [namespace | 0x11, 0, 0, 0, 0, 0], EPERM);
        }
        check(inside, libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_prlimit64, [9, 7, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_setpriority, [0, 0, 5, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_setpriority, [2, 0, 5, 0, 0, 0], EPERM);
        check(inside, libc::SYS_setpriority, [0, 1, 5, 0, 0, 0], EPERM);
        check(inside, libc::SYS_sched_setaffinity, [1, 0, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_socketpair, [1, 1 | 0x8_0800, 0, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_socketpair, [1, 2, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_socketpair, [16, 1, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_setsockopt, [3, 1, 7, 0, 4, 0], EPERM);
        check(inside, libc::SYS_setsockopt, [3, 1, 33, 0, 4, 0], EPERM);
        check(inside, libc::SYS_setsockopt, [3, 1, 20, 0, 16, 0], ALLOW);
        let invalid = 0x0005_0000 | u32::from(errno(libc::EINVAL));
        check(inside, libc::SYS_madvise, [0, 4096, 21, 0, 0, 0], invalid);
        check(inside, libc::SYS_madvise, [0, 4096, (1 << 32) + 21, 0, 0, 0], invalid);
        for advice in [0, 4, 8, 14, 15, 20, 22] {
            check(inside, libc::SYS_madvise, [0, 4096, advice, 0, 0, 0], ALLOW);
        }
        check(inside, libc::SYS_prctl, [15, 0, 0, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_prctl, [4, 1, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_prctl, [1, 0, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_mknodat, [0, 0, 0o010_644, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_mknodat, [0, 0, 0o020_644, 0, 0, 0], EPERM);
    }

    #[test]
    fn without_a_scope_signals_reach_only_the_process_itself() {
        let own = Missing {
            signals: Signals::Own(77),
            ..Missing::default()
        };
        check(own, libc::SYS_kill, [77, 9, 0, 0, 0, 0], ALLOW);
        check(own, libc::SYS_kill, [0, 9, 0, 0, 0, 0], ALLOW);
        check(own, libc::SYS_kill, [78, 9, 0, 0, 0, 0], EPERM);
        check(own, libc::SYS_kill, [u64::from(u32::MAX), 9, 0, 0, 0, 0], EPERM);
        check(own, libc::SYS_tgkill, [77, 77, 6, 0, 0, 0], ALLOW);
        check(own, libc::SYS_tgkill, [1, 1, 6, 0, 0, 0], EPERM);
        check(own, libc::SYS_pidfd_send_signal, [77, 9, 0, 0, 0, 0], EPERM);
    }

    #[test]
    fn below_a_runner_that_is_process_1_signals_reach_everybody_but_it() {
        let inside = Missing {
            signals: Signals::AllButInit,
            ..Missing::default()
        };
        for syscall in [
            libc::SYS_kill,
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
        ] {
            for (pid, expected) in [(1, EPERM), (0, ALLOW), (78, ALLOW), (u64::from(u32::MAX), ALLOW)] {
                check(inside, syscall, [pid, 9, 9, 0, 0, 0], expected);
            }
            // The kernel reads 32 bits.
            check(inside, syscall, [1 << 32 | 1, 9, 9, 0, 0, 0], EPERM);
        }
        check(inside, libc::SYS_pidfd_send_signal, [3, 9, 0, 0, 0, 0], EPERM);
    }

    /// With or without the scope: no program of a run needs the kernel to send signals for it.
    #[test]
    fn the_kernel_sends_no_signals_for_a_run() {
        let inside = Missing::default();
        for command in [8, 10, 15, 1024, 1026, 99] {
            check(inside, libc::SYS_fcntl, [3, command, 1, 0, 0, 0], EPERM);
        }
        for command in [0, 1, 2, 3, 4, 6, 38, 1030, 1031] {
            check(inside, libc::SYS_fcntl, [3, command, 1, 0, 0, 0], ALLOW);
        }
        let not_known = 0x0005_0000 | u32::from(errno(libc::ENOTTY));
        // FIOSETOWN, SIOCSPGRP, FIOASYNC, TIOCSTI, FS_IOC_SETFLAGS, BTRFS_IOC_SNAP_CREATE.
        for request in [0x8901, 0x8902, 0x5452, 0x5412, 0x4008_6602, 0x5000_9401] {
            check(inside, libc::SYS_ioctl, [3, request, 1, 0, 0, 0], not_known);
        }
        for request in [0x5401, 0x541b, 0x5421, 0x5451, 0x4004_9409] {
            check(inside, libc::SYS_ioctl, [3, request, 1, 0, 0, 0], ALLOW);
        }
        for syscall in [libc::SYS_inotify_init1, libc::SYS_inotify_add_watch] {
            check(inside, syscall, [0; 6], EPERM);
        }
    }

    #[test]
    fn where_landlock_does_not_judge_a_truncation_only_writers_cut_files() {
        let judged = Missing::default();
        let open = Missing {
            truncate: true,
            ..Missing::default()
        };
        check(judged, libc::SYS_truncate, [0; 6], ALLOW);
        check(judged, libc::SYS_openat2, [0; 6], ALLOW);
        check(judged, libc::SYS_openat, [0, 0, 0o1003, 0, 0, 0], ALLOW);
        check(open, libc::SYS_truncate, [0; 6], EPERM);
        check(open, libc::SYS_openat2, [0; 6], 0x0005_0026);
        check(open, libc::SYS_ftruncate, [0; 6], ALLOW);
        // O_CREAT, O_APPEND, O_CLOEXEC and the rest do not matter.
        for others in [0, 0o100 | 0o2000 | 0o2_000_000] {
            for (flags, expected) in [
                (0, ALLOW),
                (1, ALLOW),
                (2, ALLOW),
                (0o1001, ALLOW),
                (0o1002, ALLOW),
                (3, EPERM),
                (0o1000, EPERM),
                (0o1003, EPERM),
            ] {
                check(open, libc::SYS_openat, [0, 0, others | flags, 0, 0, 0], expected);
                #[cfg(target_arch = "x86_64")]
                check(open, libc::SYS_open, [0, others | flags, 0, 0, 0, 0], expected);
            }
        }
    }

    #[test]
    fn clone3_is_enosys_in_a_and_passes_in_b() {
        let clone3 = u32::try_from(libc::SYS_clone3).unwrap();
        assert_eq!(run(&filter_a().unwrap(), ARCHITECTURE, clone3, [0; 6]), 0x0005_0026);
        assert_eq!(run(&filter_a().unwrap(), ARCHITECTURE, 0, [0; 6]), ALLOW);
        assert_eq!(
            run(&filter_b(Missing::default()).unwrap(), ARCHITECTURE, clone3, [0; 6]),
            ALLOW
        );
    }
}
