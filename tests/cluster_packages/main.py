"""The parts that are named, or all."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chart"))

import builder
import release
from harness import Report

PARTS = {"builder": builder, "cluster": release}


def main():
    report = Report()
    for name in sys.argv[1:] or PARTS:
        PARTS[name].tests(report)
    report.close()


main()
