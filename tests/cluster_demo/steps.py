"""What demonstrations on a cluster print: their steps, and what one wants to see when one fails."""

import subprocess


def step(text):
    print("\n== " + text, flush=True)


def diagnosis(*logs):
    """Objects and events of the cluster, and logs, each by the arguments of `kubectl logs`."""
    for arguments in (["get", "pods,jobs,skills,skillruntimes,configmaps", "-A", "-o", "wide"], ["get", "events", "-A", "--sort-by=.lastTimestamp"],
                      *(["logs", *of] for of in logs)):
        done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, timeout=60)
        print("$ kubectl %s\n%s" % (" ".join(arguments), (done.stdout + done.stderr)[-8000:]))
