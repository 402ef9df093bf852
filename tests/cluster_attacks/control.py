"""The positive control, inside a privileged pod: each attack unlocked, as the victim's uid, else as root.

control.py FOLDER: FOLDER holds attacks.py and targets.py. Prints CONTROL, the attack's name and who opened it, or what
stopped both. Root, all capabilities, no seccomp profile; the network is the one that every pod of the node has.
"""
import json, os, shutil, subprocess, sys

UID = 65532
HERE = sys.argv[1]
PYTHON = "/usr/bin/python3"
# Longer than the longest attack (the CPU burn takes 4 s), with room for a busy node.
TIMEOUT_SECONDS = 40


def prepare():
    """Files outside, a setuid program, a mounted folder; all in this pod's own mounts."""
    for folder, mode in (("open", 0o777), ("places", 0o755), ("mounted", 0o755)):
        os.makedirs(f"/control/{folder}", exist_ok=True)
        os.chmod(f"/control/{folder}", mode)
    # In memory: on a busy disk 250,001 folders took more than five minutes to make and to remove.
    subprocess.run(["/busybox/bin/busybox", "mount", "-t", "tmpfs", "-o", "mode=755", "none", "/control/places"], check=True)
    for name, owner in (("open/open-file", 0), ("open/own-file", UID), ("places/own-file", UID), ("own-tool", UID)):
        with open(f"/control/{name}", "w") as file:
            file.write("outside")
        os.chmod(f"/control/{name}", 0o666)
        os.chown(f"/control/{name}", owner, owner)
    with open("/control/token", "w") as file:
        file.write("dummy-token")
    shutil.copy("/busybox/bin/busybox", "/control/id")
    os.chmod("/control/id", 0o4755)
    os.makedirs("/mnt", exist_ok=True)
    subprocess.run(["/busybox/bin/busybox", "mount", "-t", "tmpfs", "none", "/control/mounted"], check=True)
    for name in ("root-only", "for-all"):
        with open(f"/control/{name}", "w") as file:
            file.write("dummy file")
    os.chmod("/control/root-only", 0o600)


def as_uid(uid):
    def become():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    return become


def victim():
    process = subprocess.Popen([PYTHON, f"{HERE}/targets.py", "victim", "/control/open/victim.sock", "knack-attack-victim"],
                               stdout=subprocess.PIPE, text=True, preexec_fn=as_uid(UID), env={"VICTIM_SECRET": "dummy-secret"})
    pid, address = process.stdout.readline().split()
    return int(pid), int(address)


def attempt(name, uid, targets):
    place = f"/control/places/{name}-{uid}"
    os.mkdir(place)
    os.chown(place, uid, uid)
    inherited = os.open("/control/root-only" if uid == 0 else "/control/for-all", os.O_RDONLY)
    os.dup2(inherited, 7, inheritable=True)
    environment = {"KNACK_TARGETS": json.dumps(targets), "KNACK_DUMMY_SECRET": "dummy"}
    try:
        ended = subprocess.run([PYTHON, "-I", f"{HERE}/attacks.py", "--control", name], cwd=place, env=environment, pass_fds=[7],
                               preexec_fn=as_uid(uid), capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        lines = [line.split(" ", 1)[1] for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
        outcome = lines[-1].strip() if lines else f"exit {ended.returncode}"
    except subprocess.TimeoutExpired:
        outcome = "timeout"
    finally:
        os.close(inherited)
        shutil.rmtree(place, ignore_errors=True)
    return "OPEN" if outcome.startswith("OPEN") else outcome


def main():
    prepare()
    targets = json.loads(os.environ["KNACK_TARGETS"])
    pid, address = victim()
    targets.update(victim=pid, victim_address=address, unix_path="/control/open/victim.sock", unix_abstract="knack-attack-victim",
                 outside="/control/open", link_source="/control/places/own-file", token="/control/token",
                 readable="/control/own-tool", setuid_id="/control/id", mounted="/control/mounted", peer=1)
    targets.pop("runner")
    names = subprocess.run([PYTHON, f"{HERE}/attacks.py", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        outcome = attempt(name, UID, targets)
        who = "uid 65532"
        if outcome != "OPEN":
            print("CLOSED", name, UID, flush=True)
            outcome, who = attempt(name, 0, targets), "root"
        print("CONTROL", name, who if outcome == "OPEN" else f"closed {outcome}", flush=True)


main()
