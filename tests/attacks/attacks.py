"""Attacks from inside a run: each tries one thing and prints RESULT OPEN, or RESULT and the errno that stopped it.

Usage: attacks.py NAME; attacks.py --each NAME...: one after the other, each in a child; attacks.py --list, --bombs: names. The world (addresses, pids, paths)
comes as JSON in KNACK_WORLD. Standard library only. Attacks leave files in the working directory, which must not be a checkout.
Everything is aimed at the namespaces that the test made; nothing here is of use outside them.
"""
import ctypes, errno, fcntl, json, mmap, os, platform, signal, socket, struct, subprocess, sys, threading, time

WORLD = json.loads(os.environ.get("KNACK_WORLD", "{}"))
LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = {}
# Those that end the run, or everything around it, when they meet a limit.
BOMBS = []
# A program that ends well without arguments, and a file that anyone may stat: images have less than hosts.
PROGRAM = WORLD.get("program", "/bin/true")
STATTED = WORLD.get("statted", "/etc/shadow")

# Numbers by machine: (x86_64, aarch64). None: no such call there.
CALLS = dict(
    mount=(165, 40), umount2=(166, 39), fsopen=(430, 430), open_tree=(428, 428), pivot_root=(155, 41), chroot=(161, 51),
    setns=(308, 268), unshare=(272, 97), clone=(56, 220), clone3=(435, 435), keyctl=(250, 219), add_key=(248, 217),
    bpf=(321, 280), perf_event_open=(298, 241), userfaultfd=(323, 282), fanotify_init=(300, 262), personality=(135, 92),
    mbind=(237, 235), open_by_handle_at=(304, 265), name_to_handle_at=(303, 264), syslog=(103, 116),
    memfd_create=(319, 279), memfd_secret=(447, 447), modify_ldt=(154, None), vmsplice=(278, 75), shmget=(29, 194),
    mq_open=(240, 180), io_uring_setup=(425, 425), ptrace=(101, 117), process_vm_readv=(310, 270), pidfd_open=(434, 434),
    pidfd_getfd=(438, 438), kcmp=(312, 272), prlimit64=(302, 261), setpriority=(141, 140), sched_setaffinity=(203, 122),
    setuid=(105, 146), socket=(41, 198), setxattr=(188, 5), getppid=(110, 173),
)
COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)


class Closed(Exception):
    """Stopped without an errno of its own."""


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def bomb(function):
    BOMBS.append(function.__name__)
    return attack(function)


def call(name, *arguments, offset=0):
    number = CALLS[name][COLUMN]
    if number is None:
        raise Closed("ENOSYS")
    converted = [a if isinstance(a, (bytes, ctypes.Array, ctypes.Structure, type(None))) or hasattr(a, "_obj")
                 else ctypes.c_long(a) for a in arguments]
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number + offset), *converted)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def need(condition, word="no effect"):
    if not condition:
        raise Closed(word)


# Outbound.

def tcp(family, address, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as s:
        s.settimeout(3)
        s.connect(address)
        need(s.recv(16) == b"hello")


@attack
def tcp_v4(): tcp(socket.AF_INET, (WORLD["v4"], 80))
@attack
def tcp_v6(): tcp(socket.AF_INET6, (WORLD["v6"], 80))
@attack
def metadata_address(): tcp(socket.AF_INET, ("169.254.169.254", 80))
@attack
def mptcp(): tcp(socket.AF_INET, (WORLD["v4"], 80), 262)


@attack
def tcp_fast_open():
    with socket.socket() as s:
        # Without a cookie the call does a plain handshake; it must block for that.
        s.sendto(b"x", 0x20000000, (WORLD["v4"], 80))
        need(s.recv(16) == b"hello")


@attack
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.sendto(b"x", (WORLD["v4"], 80))
        need(s.recv(16) == b"hello")


@attack
def dns_raw():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\x01a\x04test\x00\x00\x01\x00\x01", (WORLD["v4"], 53))
        need(s.recv(512)[:2] == b"\x00\x07")


@attack
def getaddrinfo():
    need(socket.getaddrinfo("secret.test", 80, socket.AF_INET)[0][4][0] == WORLD["v4"])


# Inbound.

@attack
def tcp_bind_listen():
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0)); s.listen(1)


@attack
def listen_without_bind():
    with socket.socket() as s:
        s.listen(1)


@attack
def udp_bind():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("0.0.0.0", 0))


# Other families, raw access, foreign ABIs.

@attack
def netlink_dump():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(3)
        s.send(struct.pack("IHHII", 17, 18, 0x301, 1, 0) + b"\x00")
        need(len(s.recv(65536)) > 16)


@attack
def every_address_family():
    opened, last = [], errno.EPERM
    for family in range(47):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                os.close(call("socket", family, kind, 0))
                opened.append(family)
                break
            except OSError as error:
                last = error.errno
    if not opened:
        raise OSError(last, "socket")
    return f"{len(opened)} families"


@attack
def icmp_raw():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1): pass
@attack
def icmp_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1): pass
@attack
def af_packet():
    with socket.socket(17, socket.SOCK_RAW, 0): pass
@attack
def vsock():
    with socket.socket(40, socket.SOCK_STREAM, 0): pass


def native(code):
    """Runs machine code from a mapping that is writable and executable."""
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def only_x86():
    if platform.machine() != "x86_64":
        raise Closed("ENOSYS")


@attack
def i386_socket():
    only_x86()
    # push rbx; mov eax,359; mov ebx,2; mov ecx,1; xor edx,edx; int 0x80; pop rbx; ret
    result = native(bytes.fromhex("53b867010000bb02000000b90100000031d2cd805bc3"))
    if result < 0:
        raise OSError(-result, "int 0x80")


@attack
def x32_socket():
    only_x86()
    os.close(call("socket", 2, 1, 0, offset=0x40000000))


# Local sockets, asynchronous I/O.

@attack
def unix_pathname():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(WORLD["unix_path"]); need(s.recv(16) == b"hello")


@attack
def unix_abstract_connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + WORLD["unix_abstract"]); need(s.recv(16) == b"hello")


@attack
def unix_abstract_sendto():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", "\0" + WORLD["unix_abstract"] + "-dgram")


@attack
def io_uring():
    os.close(call("io_uring_setup", 4, ctypes.create_string_buffer(512)))


@attack
def socketpair():
    a, b = socket.socketpair()
    a.send(b"x"); need(b.recv(1) == b"x")


# Other processes: memory.

VICTIM = WORLD.get("victim", 0)
RUNNER = WORLD.get("runner") or os.getppid()


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
    remote = Iovec(WORLD["victim_address"], 16)
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
        return os.stat(WORLD["unix_path"] + ".signals").st_size if os.access(WORLD["unix_path"] + ".signals", os.R_OK) else None
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


# Privilege, namespaces, mounts.

@attack
def setuid_0():
    call("setuid", 0); need(os.getuid() == 0)


@attack
def setuid_binary():
    need(subprocess.run([WORLD["setuid_id"], "-u"], capture_output=True, timeout=5).stdout.strip() == b"0", "uid kept")


@attack
def mount(): call("mount", b"none", b"/mnt", b"tmpfs", 0, None); call("umount2", b"/mnt", 0)
@attack
def umount(): call("umount2", WORLD["mounted"].encode(), 2)
@attack
def fsopen(): os.close(call("fsopen", b"tmpfs", 0))
@attack
def open_tree(): os.close(call("open_tree", -100, b"/", 1))
@attack
def pivot_root():
    # EINVAL is the answer of a kernel that would have done it.
    try:
        call("pivot_root", b"/mnt", b"/mnt")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBUSY):
            raise
@attack
def chroot(): call("chroot", b"/mnt")
@attack
def setns(): call("setns", os.open(f"/proc/{WORLD.get('peer', 1)}/ns/net", os.O_RDONLY), 0x40000000)
@attack
def unshare_user(): call("unshare", 0x10000000)


def in_child(function):
    """Runs a function in a child process; its errno, if any, is raised here."""
    pid = os.fork()
    if pid == 0:
        try:
            function(); code = 0
        except OSError as error:
            code = error.errno or 255
        except BaseException:
            code = 255
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raise Closed(signal.Signals(-code).name)
    if code:
        raise OSError(code, "child") if code != 255 else Closed("failed")


def in_user_namespace(function):
    def child():
        uid, gid = os.getuid(), os.getgid()
        call("unshare", 0x10000000 | 0x00020000 | 0x40000000)
        open("/proc/self/setgroups", "w").write("deny")
        open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
        open("/proc/self/gid_map", "w").write(f"0 {gid} 1")
        function()
    in_child(child)


@attack
def unshare_user_then_mount(): in_user_namespace(lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None))
@attack
def unshare_user_then_packet(): in_user_namespace(lambda: socket.socket(17, socket.SOCK_RAW, 0))


@attack
def clone_user():
    pid = call("clone", 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def clone3_user():
    arguments = struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    pid = call("clone3", arguments, len(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


# Kernel surface.

@attack
def keyctl(): call("keyctl", 0, -3, 1)
@attack
def add_key(): call("add_key", b"user", b"knack", b"x", 1, -3)


@attack
def bpf():
    attributes = struct.pack("IIII", 2, 4, 8, 1) + b"\0" * 112
    os.close(call("bpf", 0, attributes, 128))


@attack
def perf_event_open():
    attributes = struct.pack("IIQQQQ", 1, 120, 1, 0, 0, 0) + struct.pack("Q", 0x61) + b"\0" * 72
    os.close(call("perf_event_open", attributes, 0, -1, -1, 0))


@attack
def userfaultfd(): os.close(call("userfaultfd", 1))
@attack
def fanotify_init(): os.close(call("fanotify_init", 0x200, 0))
@attack
def personality(): call("personality", 0x0040000)


@attack
def mbind():
    memory = mmap.mmap(-1, 4096)
    call("mbind", ctypes.addressof(ctypes.c_char.from_buffer(memory)), 4096, 0, 0, 0, 0)


@attack
def open_by_handle_at():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + b"\0" * 128)
    mount_id = ctypes.c_int()
    call("name_to_handle_at", -100, b"/usr", handle, ctypes.byref(mount_id), 0)
    directory = os.open("/usr", os.O_RDONLY)
    os.close(call("open_by_handle_at", directory, handle, 0))


@attack
def syslog(): call("syslog", 10, 0, 0)


@attack
def memfd_exec():
    descriptor = call("memfd_create", b"x", 0)
    os.write(descriptor, open(PROGRAM, "rb").read())
    need(subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], stdin=subprocess.DEVNULL, timeout=5).returncode == 0)


@attack
def memfd_secret(): os.close(call("memfd_secret", 0))
@attack
def modify_ldt(): call("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


@attack
def vmsplice():
    reader, writer = os.pipe()
    buffer = ctypes.create_string_buffer(b"x" * 16)
    call("vmsplice", writer, ctypes.byref(Iovec(ctypes.addressof(buffer), 16)), 1, 0)


@attack
def sysv_shm(): call("shmget", 0, 4096, 0o1600)
@attack
def posix_mq(): os.close(call("mq_open", f"knack-{os.getpid()}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None))


# Reading.

@attack
def service_account_token(): need(open(WORLD["token"]).read().startswith("dummy"))
@attack
def list_root(): need(os.listdir("/"))
@attack
def mountinfo(): need(open("/proc/self/mountinfo").read())
@attack
def proc_version(): need(open("/proc/version").read())


@attack
def symlink_out():
    os.symlink("/etc/passwd", "link-out"); need(open("link-out").read())


@attack
def stat_any_path(): need(os.stat(STATTED).st_size)


@attack
def watch_outside():
    descriptor = LIBC.inotify_init1(0)
    if descriptor < 0 or LIBC.inotify_add_watch(descriptor, f"{OUTSIDE}".encode(), 0x100) < 0:
        raise OSError(ctypes.get_errno(), "inotify")


@attack
def watch_by_fcntl(): fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 4)
@attack
def lease(): fcntl.fcntl(os.open(READABLE, os.O_RDONLY), 1024, fcntl.F_RDLCK)


# Writing and attributes.

OUTSIDE = WORLD.get("outside", "/nonexistent")
# A file that the run may read, and whose owner it is.
READABLE = WORLD.get("readable", "/nonexistent")


@attack
def write_outside(): open(f"{OUTSIDE}/new-{os.getpid()}", "w").write("x")
@attack
def truncate_outside(): os.truncate(f"{OUTSIDE}/open-file", 1)
@attack
def truncate_by_opening_for_nothing(): os.open(f"{OUTSIDE}/open-file", 3 | os.O_TRUNC)
@attack
def truncate_by_opening_for_reading(): os.open(READABLE, os.O_RDONLY | os.O_TRUNC)
@attack
def rename_outside():
    os.rename(f"{OUTSIDE}/open-file", f"{OUTSIDE}/moved"); os.rename(f"{OUTSIDE}/moved", f"{OUTSIDE}/open-file")
@attack
def dev_shm():
    path = f"/dev/shm/knack-{os.getpid()}"
    open(path, "w").write("x"); os.unlink(path)
@attack
def termination_log(): os.write(os.open("/dev/termination-log", os.O_WRONLY), b"x")


@attack
def write_skills():
    os.makedirs("skills", exist_ok=True)
    open("skills/new", "w").write("x")


@attack
def hardlink_in(): os.link(WORLD["link_source"], f"hard-{os.getpid()}")
@attack
def setxattr():
    open("xattr", "w").write("x"); os.setxattr("xattr", "user.knack", b"x")
@attack
def chmod_own_outside(): os.chmod(f"{OUTSIDE}/own-file", 0o644)
@attack
def utime_own_outside(): os.utime(f"{OUTSIDE}/own-file", (1, 1))


# Inheritance.

@attack
def descriptor_7(): need(os.pread(7, 16, 0).startswith(b"dummy"))
@attack
def secret_in_environment(): need("KNACK_DUMMY_SECRET" in os.environ, "absent")


# Execution and native code.

def drop(name):
    with open(name, "wb") as file:
        file.write(open(PROGRAM, "rb").read())
    os.chmod(name, 0o755)
    return os.path.abspath(name)


@attack
def dropped_binary(): need(subprocess.run([drop("evil")], stdin=subprocess.DEVNULL, timeout=5).returncode == 0)


@attack
def ld_so():
    loader = next(p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(p))
    result = subprocess.run([loader, drop("evil")], stdin=subprocess.DEVNULL, timeout=5, capture_output=True)
    need(result.returncode == 0, f"rc {result.returncode}")


@attack
def rwx_mapping():
    code = {"x86_64": "b807000000c3", "aarch64": "e0008052c0035fd6"}[platform.machine()]
    need(native(bytes.fromhex(code)) == 7)


# Resources. Each is bounded: it stops by itself once it has shown that nothing stops it.

@bomb
def fork_bomb():
    children = []
    try:
        for _ in range(400):
            pid = os.fork()
            if pid == 0:
                signal.pause(); os._exit(0)
            children.append(pid)
        time.sleep(0.5)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)


@bomb
def thread_bomb():
    threading.stack_size(64 << 10)
    done = threading.Event()
    try:
        for _ in range(400):
            threading.Thread(target=done.wait, daemon=True).start()
        time.sleep(0.5)
    except RuntimeError:
        raise Closed("EAGAIN")
    finally:
        done.set()


@bomb
def memory_bomb():
    blocks = []
    for _ in range(80):
        blocks.append(b"\xff" * (16 << 20))
    time.sleep(0.5)
    need(len(blocks) == 80)


@bomb
def one_big_file():
    with open("big", "wb") as file:
        for _ in range(320):
            file.write(b"x" * (1 << 20))


@bomb
def many_files_384_mib():
    os.mkdir("many")
    for index in range(384):
        with open(f"many/{index}", "wb") as file:
            file.write(b"x" * (1 << 20))


def fill(mib, name="{}"):
    for index in range(mib):
        with open(name.format(index), "wb") as file:
            file.write(b"x" * (1 << 20))


def stay():
    """Until somebody has looked."""
    time.sleep(1)


@bomb
def disk_below_40_directories():
    for _ in range(40):
        os.mkdir("deep"); os.chdir("deep")
    fill(384); stay()


@bomb
def disk_in_deleted_files():
    kept = []
    for index in range(200):
        file = open(str(index), "wb", buffering=0)
        os.unlink(str(index))
        for _ in range(2):
            file.write(b"x" * (1 << 20))
        kept.append(file)
    stay()


@bomb
def disk_in_deleted_mappings():
    kept = []
    for index in range(192):
        with open(str(index), "w+b") as file:
            file.truncate(2 << 20)
            memory = mmap.mmap(file.fileno(), 2 << 20)
            os.unlink(str(index))
        for at in range(0, 2 << 20, 4096):
            memory[at] = 1
        kept.append(memory)
    stay()


@bomb
def disk_in_a_directory_without_a_list():
    os.mkdir("hidden"); os.chmod("hidden", 0o300)
    fill(384, "hidden/{}"); stay()


def directories(count):
    """So many, a thousand to a parent."""
    for index in range(count):
        if index % 1000 == 0:
            parent = f"d{index // 1000}"
            os.mkdir(parent)
        os.mkdir(f"{parent}/{index % 1000}")


@bomb
def disk_behind_250001_directories():
    directories(250001)
    fill(384, "z{}"); stay()


@bomb
def directories_20000():
    directories(20000); stay()


@bomb
def inodes_20000():
    os.mkdir("inodes")
    for index in range(20000):
        os.close(os.open(f"inodes/{index}", os.O_CREAT | os.O_WRONLY))


@bomb
def descriptor_exhaustion():
    for _ in range(1000):
        os.dup(0)


@bomb
def cpu_burn():
    until = time.monotonic() + 4
    while time.monotonic() < until:
        pass


def main(name):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        detail = ATTACKS[name]()
        print("RESULT OPEN", detail or "", flush=True)
    except socket.gaierror:
        print("RESULT gaierror", flush=True)
    except OSError as error:
        print("RESULT", errno.errorcode.get(error.errno, str(error) or type(error).__name__), flush=True)
    except MemoryError:
        print("RESULT ENOMEM", flush=True)
    except Closed as closed:
        print("RESULT", closed, flush=True)
    except subprocess.TimeoutExpired:
        print("RESULT timeout", flush=True)
    os._exit(0)


def each(names):
    """Prints EACH, the name and the outcome of each attack; a child that hangs is killed after 10 s."""
    for name in names:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            signal.alarm(10)
            main(name)
        os.close(writer)
        with open(reader) as lines:
            text = [line.split(" ", 1)[1].strip() for line in lines if line.startswith("RESULT ")]
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("EACH", name, text[-1] if text else f"signal {-code}" if code < 0 else f"exit {code}", flush=True)


def refuse_checkouts():
    """What an attack leaves behind must not be taken for a part of somebody's work."""
    here = os.getcwd()
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            sys.exit(f"attacks.py: {os.getcwd()} is in a git tree; change to an empty directory")
        if here == "/":
            return
        here = os.path.dirname(here)


if __name__ == "__main__":
    if sys.argv[1] in ("--list", "--bombs"):
        print("\n".join(ATTACKS if sys.argv[1] == "--list" else BOMBS))
        sys.exit()
    refuse_checkouts()
    if sys.argv[1] == "--each":
        each(sys.argv[2:])
    elif sys.argv[1] == "--control":
        # The attack's parent stands for the runner: same uid, alive, dumpable.
        child = os.fork()
        if child == 0:
            RUNNER = os.getppid()
            for name in ("proc_environ_runner", "proc_mem_runner", "proc_root_runner"):
                kind = {"environ": environ_of, "mem": mem_of, "root": root_of}[name.split("_")[1]]
                ATTACKS[name] = lambda kind=kind: kind(RUNNER)
            main(sys.argv[2])
        status = os.waitpid(child, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            print("RESULT", signal.Signals(-code).name, flush=True)
    else:
        main(sys.argv[1])
