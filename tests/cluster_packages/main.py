"""The parts that are named, or those of `make test`."""

import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "chart"), os.path.join(TESTS, "examples")]

import builder
import office
import release
import standard
from harness import Report

PARTS = {"builder": builder, "cluster": release, "standard": standard, "office": office}
OF_MAKE_TEST = ["builder", "cluster"]


def main():
    report = Report()
    for name in sys.argv[1:] or OF_MAKE_TEST:
        PARTS[name].tests(report)
    report.close()


main()
