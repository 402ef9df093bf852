"""Attacks on other processes: their memory, /proc, signals and priorities."""

# Other processes: memory.

VICTIM = TARGETS.get("victim", 0)
RUNNER = TARGETS.get("runner") or os.getppid()


@attack
def ptrace_attach():
    call("ptrace", 16, VICTIM, 0, 0)
    os.waitpid(VICTIM, 0x40000000)
    call("ptrace", 17, VICTIM, 0, 0)


@attack
def ptrace_traceme(): call("ptrace", 0, 0, 0, 0)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@attack
def process_vm_readv():
    buffer = ctypes.create_string_buffer(16)
    local = Iovec(ctypes.addressof(buffer), 16)
    remote = Iovec(TARGETS["victim_address"], 16)
    call("process_vm_readv", VICTIM, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    need(buffer.raw.startswith(b"dummy-secret"))


@attack
def pidfd_getfd():
    pidfd = call("pidfd_open", VICTIM, 0)
    os.close(call("pidfd_getfd", pidfd, 1, 0))


@attack
def kcmp(): call("kcmp", VICTIM, VICTIM, 0, 1, 1)


# Other processes: /proc.

def environ_of(pid): need(b"=" in open(f"/proc/{pid}/environ", "rb").read(), "empty")
def root_of(pid): need(os.listdir(f"/proc/{pid}/root/"))


def mem_of(pid):
    line = open(f"/proc/{pid}/maps").readline()
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(int(line.split("-")[0], 16)); need(memory.read(4))


for _name, _pid in (("victim", VICTIM), ("runner", RUNNER), ("pid_1", 1)):
    ATTACKS[f"proc_environ_{_name}"] = lambda pid=_pid: environ_of(pid)
    ATTACKS[f"proc_mem_{_name}"] = lambda pid=_pid: mem_of(pid)
    ATTACKS[f"proc_root_{_name}"] = lambda pid=_pid: root_of(pid)


# Other processes: control.

@attack
def signal_victim(): os.kill(VICTIM, signal.SIGCONT)
@attack
def signal_runner(): os.kill(RUNNER, signal.SIGCONT)


def sent_by_kernel(pid, number, own):
    """Lets the kernel send the signal to the process, whoever that is: a descriptor that becomes readable has an owner."""
    a, b = socket.socketpair()
    own(a)
    if number:
        fcntl.fcntl(a, 10, number)  # F_SETSIG
    before = signals()
    fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | os.O_ASYNC)
    b.send(b"x")
    # Where nobody can look whether it arrived, it counts as if it had.
    until = time.monotonic() + 2
    while before is not None and signals() == before:
        need(time.monotonic() < until, "no signal")
        time.sleep(0.01)


def signals():
    try:
        return os.stat(TARGETS["unix_path"] + ".signals").st_size if os.access(TARGETS["unix_path"] + ".signals", os.R_OK) else None
    except OSError:
        return None


@attack
def signal_victim_by_fcntl(): sent_by_kernel(VICTIM, signal.SIGUSR1, lambda a: fcntl.fcntl(a, 8, VICTIM))
@attack
def signal_victim_by_fcntl_ex(): sent_by_kernel(VICTIM, signal.SIGUSR1, lambda a: fcntl.fcntl(a, 15, struct.pack("ii", 1, VICTIM)))
@attack
def signal_victim_by_ioctl(): sent_by_kernel(VICTIM, 0, lambda a: fcntl.ioctl(a, 0x8901, struct.pack("i", VICTIM)))
@attack
def signal_victim_by_socket_owner(): sent_by_kernel(VICTIM, 0, lambda a: fcntl.ioctl(a, 0x8902, struct.pack("i", VICTIM)))


@attack
def signal_runner_by_fcntl():
    a, _ = socket.socketpair()
    fcntl.fcntl(a, 8, RUNNER)
    fcntl.fcntl(a, 10, signal.SIGCONT)


@attack
def asynchronous_by_ioctl():
    a, _ = socket.socketpair()
    fcntl.ioctl(a, 0x5452, struct.pack("i", 1))


@attack
def prlimit_runner():
    limits = struct.pack("QQ", 1 << 20, 1 << 20)
    old = ctypes.create_string_buffer(16)
    call("prlimit64", RUNNER, 7, None, old)
    call("prlimit64", RUNNER, 7, old, None)
    need(limits)


@attack
def setpriority_runner(): call("setpriority", 0, RUNNER, 1)
@attack
def setpriority_all_of_uid(): call("setpriority", 2, 0, 1)
@attack
def sched_setaffinity_runner(): os.sched_setaffinity(RUNNER, os.sched_getaffinity(0))
