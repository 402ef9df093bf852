"""The oldest Kubernetes that is promised: an API server of the test bed with objects of its own, no node, no controllers."""

import os
import subprocess

from harness import BED, run
from server import Server


def on_the_oldest(report, what, tests):
    """Calls `tests(server, kubeconfig)` with it started and ready; skips `what` by name if this cluster is not the test bed."""
    if subprocess.run([BED, "status"], capture_output=True).returncode:
        report.skip(what + " on the oldest Kubernetes", "this cluster is not the test bed")
        return
    kubeconfig = os.path.join(os.path.dirname(os.environ.get("KUBECONFIG", "")), "oldest-admin.kubeconfig")
    try:
        run([BED, "start", "oldest-apiserver"])
        with Server(kubeconfig) as server:
            tests(server, kubeconfig)
    finally:
        subprocess.run([BED, "kill", "oldest-apiserver"], capture_output=True)
