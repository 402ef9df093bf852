"""Attacks from inside a run: each tries one thing and prints RESULT OPEN, or RESULT and the errno that stopped it.

Usage: attacks.py NAME; attacks.py --each NAME...: one after the other, each in a child; attacks.py --list, --bombs: names. The targets (addresses, pids, paths)
comes as JSON in KNACK_TARGETS. Standard library only. Attacks leave files in the working directory, which must not be a checkout.
Everything is aimed at the namespaces that the test made; nothing here is of use outside them.
"""
import ctypes, errno, fcntl, json, mmap, os, platform, signal, socket, struct, subprocess, sys, threading, time

TARGETS = json.loads(os.environ.get("KNACK_TARGETS", "{}"))
LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = {}
# Those that end the run, or everything around it, when they meet a limit.
BOMBS = []
# A program that ends well without arguments, and a file that anyone may stat: images have less than hosts.
PROGRAM = TARGETS.get("program", "/bin/true")
STATTED = TARGETS.get("statted", "/etc/shadow")

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
