//! The syscalls that a run may make. All others fail with EPERM: an allowlist also covers x32 numbers, syscalls of
//! future kernels and those that a list of denied ones would have forgotten.

use libc::c_long;

/// Not in libc for aarch64; since 424 every architecture has the same numbers (asm-generic/unistd.h).
const FCHMODAT2: c_long = 452;

/// Allowed with any arguments, on every architecture.
#[rustfmt::skip]
pub(super) const ALWAYS: &[c_long] = &[
    // Files. Which ones is Landlock's matter.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_ftruncate, libc::SYS_fallocate,
    libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_fadvise64, libc::SYS_readahead, libc::SYS_getdents64,
    libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat,
    libc::SYS_renameat2, libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_fchmod,
    libc::SYS_fchmodat, FCHMODAT2, libc::SYS_utimensat, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_umask, libc::SYS_flock, libc::SYS_sendfile, libc::SYS_copy_file_range, libc::SYS_splice, libc::SYS_tee,
    // Reading attributes: shutil.copy2 fails without it. Setting them is not in the list.
    libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    // Descriptors and waiting. No inotify: no lock of the kernel says what may be watched, and a run that happens once has
    // nothing to wait for.
    libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_ppoll,
    libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Traffic on the ends of a socketpair. Without socket() and connect() there are no others.
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_shutdown,
    libc::SYS_getsockopt, libc::SYS_getsockname, libc::SYS_getpeername,
    // Memory of the process itself.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_msync,
    libc::SYS_mincore, libc::SYS_mlock, libc::SYS_munlock, libc::SYS_brk, libc::SYS_pkey_alloc, libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect, libc::SYS_membarrier, libc::SYS_rseq, libc::SYS_futex, libc::SYS_futex_waitv,
    libc::SYS_set_robust_list, libc::SYS_set_tid_address,
    // Processes. Clone3 is in the list although filter A turns it to ENOSYS: among equal actions the newest filter
    // wins, so an EPERM from this table would hide the ENOSYS that makes glibc fall back to clone.
    libc::SYS_clone3, libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_pidfd_open, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getuid,
    libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups, libc::SYS_getresuid,
    libc::SYS_getresgid, libc::SYS_getpgid, libc::SYS_getsid, libc::SYS_setpgid, libc::SYS_setsid, libc::SYS_capget,
    libc::SYS_getpriority, libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_getrusage, libc::SYS_times,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min, libc::SYS_getcpu, libc::SYS_sysinfo,
    libc::SYS_uname, libc::SYS_getrandom,
    // Signals of the own process.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
];

/// The old names that only x86_64 has; newer architectures have the `at` forms alone.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(super) const LEGACY: &[c_long] = &[
    libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_pipe,
    libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd,
    libc::SYS_signalfd, libc::SYS_dup2, libc::SYS_alarm, libc::SYS_pause, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_rename, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_link, libc::SYS_unlink,
    libc::SYS_symlink, libc::SYS_readlink, libc::SYS_chmod, libc::SYS_utime, libc::SYS_utimes,
    libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp, libc::SYS_time, libc::SYS_arch_prctl,
];

/// None on aarch64.
#[cfg(target_arch = "aarch64")]
pub(super) const LEGACY: &[c_long] = &[];

/// Send a signal; open where the Landlock scope or an own uid keeps them inside the run.
#[rustfmt::skip]
pub(super) const SIGNALS: &[c_long] = &[
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Opens a file; the position of the flags among the arguments.
#[cfg(target_arch = "x86_64")]
pub(super) const OPENS: &[(c_long, u32)] = &[(libc::SYS_open, 1), (libc::SYS_openat, 2)];

/// Opens a file; the position of the flags among the arguments.
#[cfg(target_arch = "aarch64")]
pub(super) const OPENS: &[(c_long, u32)] = &[(libc::SYS_openat, 2)];

/// The commands of `fcntl` that a run may use. Not included: those by which the kernel sends signals to any process of
/// the uid (`F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`, `F_NOTIFY`), and leases, which delay others who open the file.
#[rustfmt::skip]
pub(super) const FCNTL_COMMANDS: &[i32] = &[
    libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL,
    libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW,
    libc::F_GETOWN, F_GETSIG, F_GETOWN_EX, libc::F_SETPIPE_SZ, libc::F_GETPIPE_SZ, libc::F_ADD_SEALS,
    libc::F_GET_SEALS, F_DUPFD_QUERY, F_GET_RW_HINT, F_SET_RW_HINT,
];

// Not in libc; asm-generic/fcntl.h and linux/fcntl.h, the same on every supported architecture.
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;
const F_DUPFD_QUERY: i32 = 1027;
const F_GET_RW_HINT: i32 = 1035;
const F_SET_RW_HINT: i32 = 1036;

/// The requests of `ioctl` that a run may use on the files, pipes and socket pairs that it can have: those of the
/// descriptor itself, queries of a terminal (there is none, and programs check whether there is), and cheap copies. Not
/// included: `FIOSETOWN` and `SIOCSPGRP`, which have the effect of `F_SETOWN`, `FIOASYNC`, `TIOCSTI`, and all requests
/// of drivers and file systems.
pub(super) const IOCTL_REQUESTS: &[u32] = &[
    0x5401,      // TCGETS, which isatty() is
    0x802c_542a, // TCGETS2
    0x5413,      // TIOCGWINSZ
    0x8004_5430, // TIOCGPTN
    0x540f,      // TIOCGPGRP
    0x541b,      // FIONREAD
    0x5421,      // FIONBIO
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0x8008_6601, // FS_IOC_GETFLAGS
    0xc020_660b, // FS_IOC_FIEMAP
];
