"""A tiny test runner: functions named test_*, run in order, one closing line with the counts."""

import os
import subprocess
import sys
import tempfile
import traceback

# Nothing is left behind in the folders of the skills.
sys.dont_write_bytecode = True

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKILLS = os.path.join(ROOT, "examples", "skills")
# For one script. The light suites of `make test` give way to all others.
SECONDS = 300


def run(*command, cwd, env=None):
    """Runs a script as the sandbox does: isolated interpreter, empty environment."""
    return subprocess.run([sys.executable, "-IB", *command], cwd=cwd, env={"PATH": "/usr/bin:/bin", **(env or {})},
                          capture_output=True, text=True, timeout=SECONDS)


def equal(seen, expected):
    if seen != expected:
        raise AssertionError("seen %r, expected %r" % (seen, expected))


def holds(condition, message):
    if not condition:
        raise AssertionError(message)


def fails(result, words):
    """The script ended with an error that says these words, and not with a traceback."""
    holds(result.returncode != 0, "it succeeded: " + result.stdout)
    holds(words in result.stderr, "%r is not in %r" % (words, result.stderr))
    holds("Traceback" not in result.stderr, result.stderr)


def main(tests):
    """Runs every test in a fresh folder; exit code 1 if one failed."""
    passed = failed = 0
    for name, test in sorted(tests.items()):
        if not name.startswith("test_"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(folder)
                passed += 1
            except Exception:
                failed += 1
                print("FAILED %s\n%s" % (name, traceback.format_exc()))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)
