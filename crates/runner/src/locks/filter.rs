//! The two seccomp filters.

use libc::c_long;

use super::allowlist::{ALWAYS, LEGACY, SIGNALS};
use super::bpf::{Check, Program, Rule, Verdict, compile};

/// `AUDIT_ARCH_X86_64`.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
/// `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;

/// `CLONE_NEW*`: every namespace, the time namespace (0x80) included.
const CLONE_NAMESPACES: u32 = 0x7e02_0080;

/// The prctl options that concern the caller alone and that libraries use: `PR_SET_PDEATHSIG`, `PR_GET_PDEATHSIG`,
/// `PR_GET_DUMPABLE`, `PR_SET_NAME`, `PR_GET_NAME`, `PR_CAPBSET_READ`, `PR_SET_TIMERSLACK`, `PR_GET_TIMERSLACK`,
/// `PR_GET_NO_NEW_PRIVS`, `PR_SET_VMA` (malloc names its arenas).
const PRCTL_OPTIONS: [u32; 10] = [1, 2, 3, 15, 16, 23, 29, 30, 39, 0x5356_4d41];

/// Who may get a signal from the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signals {
    /// The filter leaves it open: the Landlock scope, or a uid that nobody else has, keeps signals inside.
    KeptInside,
    /// Neither is there: only the process itself (its pid is known after the fork) and its own group.
    OwnProcess(u32),
}

/// Filter A: `clone3` is ENOSYS, everything else passes.
///
/// glibc then falls back to `clone`, whose flags are in a register and can be checked; those of clone3 are behind a
/// pointer.
pub(crate) fn filter_a() -> Result<Program, String> {
    compile(
        ARCHITECTURE,
        Verdict::Allow,
        vec![(
            number(libc::SYS_clone3)?,
            Rule::Always(Verdict::Errno(errno(libc::ENOSYS))),
        )],
    )
}

/// Filter B: the allowlist, EPERM by default.
pub(crate) fn filter_b(signals: Signals) -> Result<Program, String> {
    let mut rules = Vec::with_capacity(ALWAYS.len() + LEGACY.len() + 16);
    for syscall in ALWAYS.iter().chain(LEGACY) {
        rules.push((number(*syscall)?, Rule::Always(Verdict::Allow)));
    }
    for (syscall, checks) in conditional(signals) {
        rules.push((number(syscall)?, Rule::When(checks)));
    }
    if signals == Signals::KeptInside {
        for syscall in SIGNALS {
            rules.push((number(*syscall)?, Rule::Always(Verdict::Allow)));
        }
    }
    compile(ARCHITECTURE, Verdict::Errno(errno(libc::EPERM)), rules)
}

fn conditional(signals: Signals) -> Vec<(c_long, Vec<Check>)> {
    // Runner and code may share a uid, and then neither the Landlock scope nor dumpable 0 stops prlimit and its kin.
    let mut rules = vec![
        (libc::SYS_clone, vec![masked(0, CLONE_NAMESPACES, &[0])]),
        (libc::SYS_prlimit64, vec![equal(0, &[0])]),
        (libc::SYS_sched_setaffinity, vec![equal(0, &[0])]),
        // With PRIO_USER, who 0 means every process of the uid, the runner too.
        (libc::SYS_setpriority, vec![equal(0, &[0]), equal(1, &[0])]),
        (libc::SYS_prctl, vec![equal(0, &PRCTL_OPTIONS)]),
        // A datagram pair could sendto() any unix datagram socket of the host by its path; a stream pair cannot.
        // The flags SOCK_NONBLOCK and SOCK_CLOEXEC stand above the low nibble: 1 stream, 5 sequenced packets.
        (libc::SYS_socketpair, vec![equal(0, &[1]), masked(1, 0xf, &[1, 5])]),
        (libc::SYS_mknodat, vec![masked(2, 0o170_000, &[0o010_000])]),
    ];
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_mknod, vec![masked(1, 0o170_000, &[0o010_000])]));
    if let Signals::OwnProcess(pid) = signals {
        rules.push((libc::SYS_kill, vec![equal(0, &[0, pid])]));
        rules.push((libc::SYS_tgkill, vec![equal(0, &[pid])]));
    }
    rules
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

    use super::super::bpf::simulate::run;
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    const KILL: u32 = 0x8000_0000;

    #[test]
    fn every_number_gets_the_verdict_of_the_table() {
        let program = filter_b(Signals::KeptInside).unwrap();
        let allowed: BTreeSet<u32> = ALWAYS
            .iter()
            .chain(LEGACY)
            .chain(SIGNALS)
            .map(|number| u32::try_from(*number).unwrap())
            .collect();
        let conditional: BTreeSet<u32> = conditional(Signals::KeptInside)
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
        assert!(program.len() < 400, "{} instructions", program.len());
    }

    #[track_caller]
    fn check(signals: Signals, syscall: c_long, arguments: [u64; 6], expected: u32) {
        let program = filter_b(signals).unwrap();
        assert_eq!(
            run(&program, ARCHITECTURE, u32::try_from(syscall).unwrap(), arguments),
            expected
        );
    }

    #[test]
    fn arguments_are_checked() {
        let inside = Signals::KeptInside;
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
        check(inside, libc::SYS_prctl, [15, 0, 0, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_prctl, [4, 1, 0, 0, 0, 0], EPERM);
        check(inside, libc::SYS_mknodat, [0, 0, 0o010_644, 0, 0, 0], ALLOW);
        check(inside, libc::SYS_mknodat, [0, 0, 0o020_644, 0, 0, 0], EPERM);
    }

    #[test]
    fn without_a_scope_signals_reach_only_the_process_itself() {
        let own = Signals::OwnProcess(77);
        check(own, libc::SYS_kill, [77, 9, 0, 0, 0, 0], ALLOW);
        check(own, libc::SYS_kill, [0, 9, 0, 0, 0, 0], ALLOW);
        check(own, libc::SYS_kill, [78, 9, 0, 0, 0, 0], EPERM);
        check(own, libc::SYS_kill, [u64::from(u32::MAX), 9, 0, 0, 0, 0], EPERM);
        check(own, libc::SYS_tgkill, [77, 77, 6, 0, 0, 0], ALLOW);
        check(own, libc::SYS_tgkill, [1, 1, 6, 0, 0, 0], EPERM);
        check(own, libc::SYS_pidfd_send_signal, [77, 9, 0, 0, 0, 0], EPERM);
    }

    #[test]
    fn clone3_is_enosys_in_a_and_passes_in_b() {
        let clone3 = u32::try_from(libc::SYS_clone3).unwrap();
        assert_eq!(run(&filter_a().unwrap(), ARCHITECTURE, clone3, [0; 6]), 0x0005_0026);
        assert_eq!(run(&filter_a().unwrap(), ARCHITECTURE, 0, [0; 6]), ALLOW);
        assert_eq!(
            run(&filter_b(Signals::KeptInside).unwrap(), ARCHITECTURE, clone3, [0; 6]),
            ALLOW
        );
    }
}
