"""Attacks by files: reading, writing, attributes, what is inherited, what is executed."""

# Reading.

@attack
def service_account_token(): need(open(TARGETS["token"]).read().startswith("dummy"))
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

OUTSIDE = TARGETS.get("outside", "/nonexistent")
# A file that the run may read, and whose owner it is.
READABLE = TARGETS.get("readable", "/nonexistent")


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
def hardlink_in(): os.link(TARGETS["link_source"], f"hard-{os.getpid()}")
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
