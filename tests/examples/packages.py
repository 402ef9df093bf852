"""The examples that need packages, run in the sandbox by `knack skill run`; package_checks.py has what is tried of each.

KNACK_PROGRAM names the program (default: target/release/knack), KNACK_UV the uv that installs their packages.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import package_checks
from check import ROOT, holds, main

KNACK = os.path.abspath(os.environ.get("KNACK_PROGRAM") or os.path.join(ROOT, "target", "release", "knack"))
# A first run installs the packages from the index.
SECONDS = 900
# The default of a run is 10 s. A first import of matplotlib, with its list of fonts, takes that long where other suites share a cold
# machine. What the default cuts off has tests of its own.
RUN_SECONDS = 100


class Laptop:
    """The sandbox of this machine, with files in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, skill, script, *words, inputs=()):
        for name, content in inputs:
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        command = [KNACK, "skill", "run", os.path.join(ROOT, "examples", "packages", skill), "--output", "json",
                   "--timeout", str(RUN_SECONDS)]
        for name, _ in inputs:
            command += ["--input", name]
        command += ["--", "python3", "skills/%s/scripts/%s" % (skill, script), *words]
        result = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS)
        holds(result.stdout.startswith("{"), "knack skill run: " + result.stderr)
        ended = json.loads(result.stdout)
        files = {}
        for entry in ended["files"]:
            with open(os.path.join(self.folder, entry["saved"]), "rb") as file:
                files[entry["name"]] = file.read()
        return ended["exit_code"], ended["stdout"], ended["stderr"], files


def here(check):
    return lambda folder: check(Laptop(folder))


main({name: here(check) for name, check in vars(package_checks).items() if name.startswith("test_")})
