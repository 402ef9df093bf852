"""Counts checks and runs commands for the chart tests."""

import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BED = os.path.join(ROOT, "tests", "cluster", "bed")
CHART = os.path.join(ROOT, "charts", "knack")
CRDS_CHART = os.path.join(ROOT, "charts", "knack-crds")
COMMAND_SECONDS = 900
# Thousands of short commands of Go: one thread each and no garbage collection cost a quarter less.
ENVIRONMENT = dict(os.environ, GOMAXPROCS="1", GOGC="400")


class Report:
    """Passed, failed and skipped checks; every failure is told with its reason."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def check(self, name, test):
        """Runs one test function; an exception is its failure."""
        begun = time.monotonic()
        try:
            note = test()
        except Exception as error:  # Every failure of a test is told and counted, none ends the run.
            self.failed += 1
            print("FAILED  %s: %s: %s" % (name, type(error).__name__, error), flush=True)
            return False
        self.passed += 1
        print("ok      %s%s  (%.1f s)" % (name, ": " + note if note else "", time.monotonic() - begun), flush=True)
        return True

    def part(self, name, tests):
        """Runs the checks of one part; where it cannot go on, that is one failure, and the next part runs."""
        try:
            tests(self)
        except Exception as error:  # What stands between checks, such as a server that does not start.
            self.failed += 1
            print("FAILED  %s, and what follows in this part: %s: %s" % (name, type(error).__name__, error), flush=True)

    def steps(self, steps, diagnosis):
        """Runs checks of which each needs what the ones before it left: the first failure ends them, and is diagnosed."""
        for name, step in steps:
            if not self.check(name, step):
                diagnosis()
                return

    def skip(self, name, reason):
        self.skipped += 1
        print("SKIPPED %s: %s" % (name, reason), flush=True)

    def close(self):
        print("%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped), flush=True)
        # Nothing to run at all is no success; parts that were skipped by name are none that failed.
        sys.exit(1 if self.failed or not (self.passed or self.skipped) else 0)


def binary(variable, name):
    """A tool by its variable, else from the PATH."""
    path = os.environ.get(variable) or shutil.which(name)
    if not path:
        raise AssertionError("%s is missing; set %s" % (name, variable))
    return path


def run(command, stdin=None, expect=0, seconds=COMMAND_SECONDS):
    """Standard output of a command; `expect=None` gives (code, stdout, stderr)."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT)
    if expect is None:
        return done.returncode, done.stdout, done.stderr
    if done.returncode != expect:
        raise AssertionError("%s: exit %d: %s" % (" ".join(command[:4]), done.returncode, (done.stderr or done.stdout)[-3000:]))
    return done.stdout


def helm(*arguments, **options):
    return run([binary("HELM", "helm"), *arguments], **options)


def kubectl(*arguments, **options):
    return run([binary("KUBECTL", "kubectl"), *arguments], **options)


def assert_equal(got, expected, what):
    if got != expected:
        raise AssertionError("%s: got %r, expected %r" % (what, got, expected))
