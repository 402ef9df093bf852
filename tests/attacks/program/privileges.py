"""Attacks that want more rights: user ids, namespaces, mounts."""

# Privilege, namespaces, mounts.

@attack
def setuid_0():
    call("setuid", 0); need(os.getuid() == 0)


@attack
def setuid_binary():
    need(subprocess.run([TARGETS["setuid_id"], "-u"], capture_output=True, timeout=5).stdout.strip() == b"0", "uid kept")


@attack
def mount(): call("mount", b"none", b"/mnt", b"tmpfs", 0, None); call("umount2", b"/mnt", 0)
@attack
def umount(): call("umount2", TARGETS["mounted"].encode(), 2)
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
def setns(): call("setns", os.open(f"/proc/{TARGETS.get('peer', 1)}/ns/net", os.O_RDONLY), 0x40000000)
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
