"""`knack skill run` against an installed release."""

import json
import os

from bed import wait_until
from harness import run


def run_command(skill, runtime, release, words, options=()):
    """The command line of a run of `skill` by the gateway's account of the release in namespace `release`. `options`: more of its own."""
    return [os.environ["KNACK_PROGRAM"], "skill", "run", skill, "--runtime", runtime, "--service-account", release + "/knack-gateway",
            "--hub-namespace", release, "--output", "json", *options, "--", *words]


def run_skill(skill, runtime, release, words, seconds=30, options=(), ends=0):
    """One run as `--output json` tells it. The hub learns of a Skill a moment after its status says Ready: asked again for `seconds`,
    until the command ends with `ends`; None: until the program ran, whatever it ended with."""
    command = run_command(skill, runtime, release, words, options)
    told = []

    def asked():
        code, said, errors = run(command, expect=None)
        told.append(said + errors)
        return said if (said.startswith("{") if ends is None else code == ends) else None
    try:
        return json.loads(wait_until("a run of " + skill, seconds, asked))
    except AssertionError as error:
        raise AssertionError("%s: %s" % (error, told[-1][-2000:])) from error
