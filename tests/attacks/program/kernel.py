"""Attacks by system calls that a run has no use for."""

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
