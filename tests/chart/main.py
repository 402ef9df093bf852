"""Entry of the chart tests; run.sh prepares the interpreters."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import admission
import cluster
import gitops
import offline
from harness import Report

PARTS = {"admission": (admission.tests,), "offline": (offline.tests, gitops.tests), "cluster": (cluster.tests,)}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    report = Report()
    for part in wanted:
        for tests in PARTS[part]:
            tests(report)
    report.close()


if __name__ == "__main__":
    main()
