//! Every lock, seen from inside, and what happens where one is missing.

use knack_runner::protocol::{Exit, Landlock, LandlockState, Program};

use crate::support::{Runner, code, is_skipped, own, python, run_python, run_python_with};

/// Python: `show(name, action)` prints the error of an action, or OPEN.
const SHOW: &str = r#"
import os, errno, ctypes, socket, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
def show(name, action):
    try:
        action()
        print(name, "OPEN")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"#;

/// Numbers of this architecture, as `NR` in Python.
fn numbers() -> String {
    let of = |name: &str, number: libc::c_long| format!("{name:?}: {number}, ");
    let all = [
        of("ptrace", libc::SYS_ptrace),
        of("process_vm_readv", libc::SYS_process_vm_readv),
        of("pidfd_getfd", libc::SYS_pidfd_getfd),
        of("unshare", libc::SYS_unshare),
        of("mount", libc::SYS_mount),
        of("setns", libc::SYS_setns),
        of("clone", libc::SYS_clone),
        of("clone3", libc::SYS_clone3),
        of("memfd_create", libc::SYS_memfd_create),
        of("bpf", libc::SYS_bpf),
        of("keyctl", libc::SYS_keyctl),
        of("personality", libc::SYS_personality),
        of("userfaultfd", libc::SYS_userfaultfd),
        of("perf_event_open", libc::SYS_perf_event_open),
        of("seccomp", libc::SYS_seccomp),
        of("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
        of("setuid", libc::SYS_setuid),
        of("chroot", libc::SYS_chroot),
        of("shmget", libc::SYS_shmget),
        of("vmsplice", libc::SYS_vmsplice),
        of("prctl", libc::SYS_prctl),
        of("sync", libc::SYS_sync),
        of("io_uring_setup", libc::SYS_io_uring_setup),
    ];
    format!("NR = {{{}}}\n", all.concat())
}

#[track_caller]
fn check(source: &str, expected: &[&str]) {
    let report = run_python(&format!("{SHOW}{}{source}", numbers()));
    assert_eq!(
        report.out().lines().collect::<Vec<_>>(),
        expected,
        "{}{:?}",
        report.err(),
        report.exit()
    );
}

#[test]
fn there_is_no_socket_of_any_family() {
    check(
        r#"
seen = set()
for family in range(47):
    for kind in (1, 2, 3, 5):
        try: socket.socket(family, kind); seen.add("OPEN %d" % family)
        except OSError as error: seen.add(errno.errorcode[error.errno])
print(*sorted(seen))
show("datagram pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
show("io_uring", lambda: call(NR["io_uring_setup"], 8, ctypes.create_string_buffer(256)))
"#,
        &["EPERM", "datagram pair EPERM", "io_uring EPERM"],
    );
}

#[test]
fn files_outside_are_out_of_reach() {
    check(
        r#"
show("passwd", lambda: open("/etc/passwd"))
show("list /", lambda: os.listdir("/"))
show("proc", lambda: open("/proc/self/status"))
show("parent", lambda: open("/proc/%d/environ" % os.getppid()))
show("run directory", lambda: os.listdir(".."))
os.symlink("/etc/passwd", "link")
show("link", lambda: open("link"))
show("write skills", lambda: open("skills/x", "w"))
show("write outside", lambda: open("/tmp/x-of-knack-runner-test", "w"))
show("device", lambda: os.mknod("null", 0o20666, 0x103))
show("xattr", lambda: os.setxattr(".", "user.x", b"1"))
open("binary", "wb").write(open("/usr/bin/env", "rb").read()); os.chmod("binary", 0o755)
show("dropped binary", lambda: os.execv("./binary", ["binary"]))
"#,
        &[
            "passwd EACCES",
            "list / EACCES",
            "proc EACCES",
            "parent EACCES",
            "run directory EACCES",
            "link EACCES",
            "write skills EACCES",
            "write outside EACCES",
            "device EPERM",
            "xattr EPERM",
            "dropped binary EACCES",
        ],
    );
}

#[test]
fn the_runner_and_others_are_out_of_reach() {
    check(
        r#"
parent = os.getppid()
show("kill parent", lambda: os.kill(parent, signal.SIGKILL))
os.kill(-1, signal.SIGKILL) # Succeeds with nobody reached: the result still comes.
show("prlimit", lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1)))
show("renice user", lambda: os.setpriority(os.PRIO_USER, 0, 5))
show("affinity", lambda: os.sched_setaffinity(parent, {0}))
show("ptrace", lambda: call(NR["ptrace"], 16, parent, 0, 0))
show("process_vm_readv", lambda: call(NR["process_vm_readv"], parent, 0, 0, 0, 0, 0))
show("pidfd_getfd", lambda: call(NR["pidfd_getfd"], os.pidfd_open(parent), 0, 0))
show("group", lambda: os.getpgid(0) == os.getpid() or call(-1))
"#,
        &[
            "kill parent EPERM",
            "prlimit EPERM",
            "renice user EPERM",
            "affinity EPERM",
            "ptrace EPERM",
            "process_vm_readv EPERM",
            "pidfd_getfd EPERM",
            "group OPEN",
        ],
    );
}

#[test]
fn dangerous_syscalls_are_denied() {
    check(
        r#"
for name, syscall, *arguments in [("unshare", "unshare", 0x10000000), ("mount", "mount", 0, 0, 0, 0, 0), ("setns", "setns", 0, 0),
        ("clone user", "clone", 0x10000011, 0, 0, 0, 0), ("clone3", "clone3", 0, 0), ("memfd", "memfd_create", b"x", 0), ("bpf", "bpf", 0, 0, 0),
        ("keyctl", "keyctl", 0, 0), ("personality", "personality", 0xffffffff), ("userfaultfd", "userfaultfd", 0), ("perf", "perf_event_open", 0, 0, -1, -1, 0),
        ("seccomp", "seccomp", 0, 0, 0), ("landlock", "landlock_create_ruleset", 0, 0, 1), ("setuid", "setuid", 0), ("chroot", "chroot", b"."), ("shmget", "shmget", 0, 4096, 0o1600),
        ("vmsplice", "vmsplice", 1, 0, 0, 0), ("dumpable", "prctl", 4, 1), ("sync", "sync")]:
    show(name, lambda: call(NR[syscall], *arguments))
show("x32 socket", lambda: call(0x40000029, 2, 1, 0))
"#,
        &[
            "unshare EPERM",
            "mount EPERM",
            "setns EPERM",
            "clone user EPERM",
            "clone3 ENOSYS",
            "memfd EPERM",
            "bpf EPERM",
            "keyctl EPERM",
            "personality EPERM",
            "userfaultfd EPERM",
            "perf EPERM",
            "seccomp EPERM",
            "landlock EPERM",
            "setuid EPERM",
            "chroot EPERM",
            "shmget EPERM",
            "vmsplice EPERM",
            "dumpable EPERM",
            "sync EPERM",
            "x32 socket EPERM",
        ],
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_i386_table_kills() {
    // mov eax, 20 (getpid); int 0x80; ret
    let report = run_python(
        "import mmap, ctypes\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\nprint('OPEN')",
    );
    assert_eq!(
        (report.out().as_str(), report.exit()),
        ("", &Exit::Signal { signal: 31 })
    );
}

#[test]
fn a_run_has_the_identity_that_it_was_given() {
    if is_skipped("a_run_has_the_identity_that_it_was_given") {
        return;
    }
    let report = run_python("import os\nprint(os.getresuid(), os.getresgid(), os.getgroups())");
    assert_eq!(report.out(), "(64123, 64123, 64123) (64123, 64123, 64123) []\n");
}

#[test]
fn limits_hold() {
    let report = run_python(
        "import os, resource, ctypes\nprint(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))\nfor name in ('CORE', 'NOFILE', 'FSIZE'):\n    print(name, *resource.getrlimit(getattr(resource, 'RLIMIT_' + name)))\nprint(sorted(os.environ)); print(open('/dev/null').fileno())",
    );
    let out = report.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..4],
        ["1", "CORE 0 0", "NOFILE 256 256", "FSIZE 67108864 67108864"]
    );
    assert_eq!(lines[4], "['HOME', 'KNACK_WORK_DIR', 'LANG', 'PATH', 'TMPDIR']");
    // No descriptor besides the three: the next one is 3.
    assert_eq!(lines[5], "3");
}

#[test]
fn descriptors_of_the_runner_are_not_inherited() {
    let mut command = std::process::Command::new("/bin/sh");
    command.args([
        "-c",
        "exec 7</etc/hostname; exec \"$0\"",
        env!("CARGO_BIN_EXE_knack-runner"),
    ]);
    let mut runner = Runner::boot_with(command);
    let start = runner.start_frame(python());
    runner.start(start);
    runner.run(code(
        "import os\nfor fd in range(3, 250):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass",
    ));
    assert_eq!(runner.finish().out(), "");
}

#[test]
fn a_filter_that_does_not_load_stops_the_run() {
    let mut runner = Runner::boot_without(libc::SYS_seccomp, libc::EPERM);
    let start = runner.start_frame(None);
    runner.start(start);
    runner.run(Program::Command {
        argv: vec!["/usr/bin/touch".to_owned(), "marker".to_owned()],
    });
    let report = runner.finish();
    let Exit::NotStarted { reason, .. } = report.exit() else {
        panic!("{:?}", report.exit())
    };
    assert!(reason.starts_with("a lock does not hold: seccomp filter A"), "{reason}");
    assert!(!runner.work().join("marker").exists());
    assert_eq!(report.result().locks, None);
}

#[test]
fn a_kernel_without_landlock_is_refused_or_reported() {
    for requirement in [Landlock::Required, Landlock::BestEffort] {
        let mut runner = Runner::boot_without(libc::SYS_landlock_create_ruleset, libc::ENOSYS);
        let mut start = runner.start_frame(python());
        start.landlock = requirement;
        start.identity = None;
        runner.start(start);
        runner.run(code(&format!(
            "{SHOW}show('parent', lambda: os.kill(os.getppid(), 0))\nshow('self', lambda: os.kill(os.getpid(), 0))\n"
        )));
        let report = runner.finish();
        if requirement == Landlock::Required {
            let Exit::LocksMissing { reason } = report.exit() else {
                panic!("{:?}", report.exit())
            };
            assert!(reason.contains("no Landlock"), "{reason}");
        } else {
            let locks = report.result().locks.unwrap();
            assert_eq!(
                (locks.seccomp, locks.landlock, locks.landlock_abi),
                (true, LandlockState::NotEnforced, 0)
            );
            // Signals to others are denied by the filter then.
            assert_eq!(report.out(), "parent EPERM\nself OPEN\n", "{}", report.err());
        }
    }
}

#[test]
fn the_same_holds_without_root() {
    // The other tests of this file run without root then.
    if is_skipped("the_same_holds_without_root") {
        return;
    }
    let mut runner = Runner::boot_as(64_124);
    let mut start = runner.start_frame(python());
    start.identity = None;
    runner.start(start);
    runner.run(code(&format!(
        "{SHOW}print(os.getuid())\nshow('kill parent', lambda: os.kill(os.getppid(), 9))\nshow('prlimit', lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1)))\nshow('passwd', lambda: open('/etc/passwd'))\nshow('socket', socket.socket)\nopen('o', 'w').write('1')\n"
    )));
    let report = runner.finish();
    assert_eq!(
        report.out(),
        "64124\nkill parent EPERM\nprlimit EPERM\npasswd EACCES\nsocket EPERM\n",
        "{} {:?}",
        report.err(),
        report.exit()
    );
    assert_eq!(report.files["o"], b"1");

    let mut runner = Runner::boot_as(64_124);
    let mut start = runner.start_frame(python());
    start.identity = Some(own(64_125));
    runner.start(start);
    let report = runner.finish();
    let Exit::NotStarted { reason, .. } = report.exit() else {
        panic!("{:?}", report.exit())
    };
    assert!(reason.contains("only a runner that is root"), "{reason}");
}

#[test]
fn root_is_not_kept_by_a_wrong_identity() {
    let report = run_python_with("print(1)", |start| {
        start.identity = Some(knack_runner::protocol::Identity {
            uid: 0,
            gid: 0,
            exclusive: false,
        });
    });
    assert!(matches!(report.exit(), Exit::NotStarted { .. }), "{:?}", report.exit());
}
