"""Entry of the release's tests; run.sh makes the release and sets KNACK_DIST."""

import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chart")]

import files
import install
from harness import Report


def main():
    report = Report()
    files.tests(report)
    install.tests(report)
    report.close()


if __name__ == "__main__":
    main()
