#!/usr/bin/env python3
"""Crates to which the profile `release` gives a level, and a profile that inherits from it does not give its own.

profiles.py [FOLDER]   FOLDER is a repository; this one when absent. Says nothing if all is well.

A profile inherits the lines for single crates, and they count for more than its own level. So `demo` has a line for each of those crates,
and `runner` for those that it is made of.
"""
import json
import sys
import tomllib
from pathlib import Path


def toml(path):
    return tomllib.loads(path.read_text())


def crates_of_the_runner(folder):
    """By the lock file, which says nothing about features and targets: some of them may not be compiled."""
    needed = {}
    for package in toml(folder / "Cargo.lock")["package"]:
        needed.setdefault(package["name"], set()).update(name.split()[0] for name in package.get("dependencies", []))
    runner = toml(folder / "crates/runner/Cargo.toml")
    found, left = set(), set().union(*(table["dependencies"] for table in (runner, *runner.get("target", {}).values())))
    while left:
        name = left.pop()
        found.add(name)
        left |= needed[name] - found
    return found


def faults(folder):
    profiles = toml(folder / "Cargo.toml").get("profile", {})
    own = set(profiles.get("release", {}).get("package", {}))
    if not own:
        return
    for name, crates in (("demo", own), ("runner", own & crates_of_the_runner(folder))):
        level, back = profiles[name]["opt-level"], profiles[name].get("package", {})
        for crate in sorted(crates | set(back)):
            if crate not in own:
                yield f"[profile.{name}.package] {crate}: delete it, the profile release has no line for this crate"
            elif back.get(crate, {}).get("opt-level") != level:
                yield f"[profile.{name}.package] {crate}: write opt-level = {json.dumps(level)}, or it is compiled as in the profile release"


def main(folder):
    found = list(faults(folder))
    if found:
        print("lint: Cargo.toml:", *found, sep="\n  ", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)))
