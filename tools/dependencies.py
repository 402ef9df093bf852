#!/usr/bin/env python3
"""Bans, licences and sources of every dependency, by the rules of deny.toml, for each lock file.

dependencies.py [FOLDER]   FOLDER holds deny.toml, Cargo.toml and fuzz/Cargo.toml; the repository when absent.

The rules are cargo-deny's, and deny.toml is its file: `cargo deny check bans licenses sources` judges by it as well. This script reads
`cargo metadata` and takes a second, where building cargo-deny takes minutes; so it is a part of `make test`. What of deny.toml it does not know
it refuses. Closes with `N passed, N failed`.
"""
import json
import os
import re
import subprocess
import sys
import tomllib

LOCKS = ["Cargo.toml", "fuzz/Cargo.toml"]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
# Members of deny.toml that this script acts on. `advisories` is for `make advisories`.
KNOWN = {
    "graph": {"targets"},
    "bans": {"multiple-versions", "deny", "skip"},
    "licenses": {"allow", "confidence-threshold", "private"},
    "sources": {"unknown-registry", "unknown-git"},
    "advisories": None,
}


def unknown(rules):
    for section, members in rules.items():
        known = KNOWN.get(section, set())
        for member in members if known is not None else []:
            if member not in known:
                yield f"deny.toml: [{section}] {member} is not a rule that tools/dependencies.py knows"


def metadata(folder, manifest, target):
    """Packages of the graph for one target, by id, and who depends on each."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target,
               "--manifest-path", os.path.join(folder, manifest)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        stale = "--locked" in answer.stderr
        help = f"; the lock file is behind its manifests, run: cargo update --workspace --manifest-path {manifest}" if stale else ""
        sys.exit(f"dependencies: {manifest}: {answer.stderr.strip()}{help}")
    data = json.loads(answer.stdout)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = data["resolve"]["nodes"]
    users = {node["id"]: set() for node in nodes}
    for node in nodes:
        for dependency in node["deps"]:
            users[dependency["pkg"]].add(packages[node["id"]]["name"])
    return {node["id"]: packages[node["id"]] for node in nodes}, users


# SPDX expressions.

def allows(expression, allowed):
    """Whether a licence expression can be met with allowed licences. The old form a/b is a OR b."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    place = 0

    def one():
        nonlocal place
        if place >= len(words):
            raise ValueError("ends early")
        word = words[place]
        place += 1
        if word == "(":
            value = either()
            if place >= len(words) or words[place] != ")":
                raise ValueError("an open parenthesis")
            place += 1
            return value
        if word in (")", "AND", "OR", "WITH"):
            raise ValueError(f"{word} without a licence")
        if place + 1 < len(words) and words[place] == "WITH":
            word = f"{word} WITH {words[place + 1]}"
            place += 2
        return word in allowed

    def both():
        nonlocal place
        value = one()
        while place < len(words) and words[place] == "AND":
            place += 1
            value = one() and value
        return value

    def either():
        nonlocal place
        value = both()
        while place < len(words) and words[place] == "OR":
            place += 1
            value = both() or value
        return value

    value = either()
    if place != len(words):
        raise ValueError(f"{words[place]} is not expected")
    return value


# The checks: each yields what is wrong, one line each.

def bans(packages, users, rules):
    banned = {entry["name"] for entry in rules["bans"].get("deny", [])}
    for id, package in packages.items():
        if package["name"] in banned:
            by = ", ".join(sorted(users[id])) or "nobody"
            yield f"{package['name']} {package['version']} is banned; {by} depends on it"


def is_skipped(package, rules):
    """The reason for which a second version is accepted: `name@version`, the version or the beginning of it up to a dot."""
    for entry in rules["bans"].get("skip", []):
        name, _, version = entry["crate"].partition("@")
        if package["name"] == name and f"{package['version']}.".startswith(f"{version}."):
            return entry["crate"]
    return None


def versions(packages, users, rules, used):
    if rules["bans"].get("multiple-versions") != "deny":
        yield 'deny.toml: [bans] multiple-versions must be "deny"'
    by_name = {}
    for id, package in packages.items():
        skip = is_skipped(package, rules)
        by_name.setdefault(package["name"], []).append((id, package, skip))
    for name, entries in sorted(by_name.items()):
        if len(entries) == 1:
            continue
        used.update(skip for _, _, skip in entries if skip)
        kept = [(id, package) for id, package, skip in entries if not skip]
        if len(kept) > 1:
            each = "; ".join(f"{package['version']} by {', '.join(sorted(users[id])[:4])}" for id, package in kept)
            yield f"{name} is there in several versions ({each}); bring them together, or explain one under [bans] skip"


def licences(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    for package in packages.values():
        if package["source"] is None:
            continue
        named = f"{package['name']} {package['version']}"
        if not package["license"]:
            yield f"{named} names no licence"
            continue
        try:
            good = allows(package["license"], allowed)
        except ValueError as error:
            yield f"{named}: the licence {package['license']!r} cannot be read: {error}"
            continue
        if not good:
            yield f"{named} is under {package['license']!r}, which [licenses] allow does not cover"


def sources(packages, folder):
    for package in packages.values():
        inside = os.path.realpath(package["manifest_path"]).startswith(os.path.realpath(folder) + os.sep)
        if package["source"] is None and not inside:
            yield f"{package['name']} is a folder outside of the repository: {package['manifest_path']}"
        elif package["source"] not in (None, CRATES_IO):
            yield f"{package['name']} {package['version']} comes from {package['source']}, not from crates.io"


def main():
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    with open(os.path.join(folder, "deny.toml"), "rb") as file:
        rules = tomllib.load(file)
    passed = failed = 0
    used = set()

    def report(what, problems):
        nonlocal passed, failed
        problems = sorted(set(problems))
        for problem in problems:
            print(f"FAILED {what}: {problem}")
        passed, failed = passed + (not problems), failed + bool(problems)

    report("rules", unknown(rules))
    for manifest in LOCKS:
        found = {"bans": [], "versions": [], "licences": [], "sources": []}
        count = 0
        for target in rules["graph"]["targets"]:
            packages, users = metadata(folder, manifest, target)
            count = max(count, len(packages))
            found["bans"] += bans(packages, users, rules)
            found["versions"] += versions(packages, users, rules, used)
            found["licences"] += licences(packages, rules)
            found["sources"] += sources(packages, folder)
        lock = manifest.replace(".toml", ".lock")
        for check, problems in found.items():
            report(f"{lock} {check}", problems)
        print(f"{lock}: {count} packages")
    stale = {entry["crate"] for entry in rules["bans"].get("skip", [])} - used
    report("skips", (f"deny.toml: [bans] skip {crate} is not needed any more; remove it" for crate in stale))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
