"""Entry of the chart tests; run.sh prepares the interpreters."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import admission
import cluster
import egress
import gitops
import injection
import injection_rendered
import monitoring
import offline
import webhook
from harness import Report

OFFLINE = {"offline": (offline.tests, monitoring.tests, gitops.tests, injection_rendered.tests, egress.offline)}
PARTS = {"admission": (admission.tests,), **OFFLINE, "injection": (injection.tests,), "webhook": (webhook.tests,), "cluster": (cluster.tests,)}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    report = Report()
    for part in wanted:
        if part not in OFFLINE and os.environ.get("KNACK_NO_CLUSTER") == "1":
            report.skip("charts on a cluster: " + part, "KNACK_NO_CLUSTER=1")
            continue
        for tests in PARTS[part]:
            report.part(part, tests)
    report.close()


if __name__ == "__main__":
    main()
