#!/usr/bin/env python3
"""Which crate of this workspace depends on which, and whether ARCHITECTURE.md says so.

edges.py [FOLDER]           FOLDER is a repository; this one when absent. Says nothing if the list under "## Map" is right.
edges.py --print [FOLDER]   prints the list

Read is [dependencies] of Cargo.toml and crates/*/Cargo.toml, not what tests need. An optional dependency has a `?`. A crate is above all that it
depends on. Only the crates of COMBINE may depend on both crates of VALUES: `skill` and `wire` do not know each other.
"""
import sys
import tomllib
from pathlib import Path

PAGE, HEADING, FENCE = "ARCHITECTURE.md", "\n## Map\n", "```"
PREFIX = "knack-"
VALUES = {"skill", "wire"}
COMBINE = {"gateway", "mcp", "knack"}


def edges(root):
    """By crate, without the prefix, what it depends on and whether always."""
    found = {}
    for path in [root / "Cargo.toml", *sorted((root / "crates").glob("*/Cargo.toml"))]:
        manifest = tomllib.loads(path.read_text())
        found[manifest["package"]["name"].removeprefix(PREFIX)] = {
            name.removeprefix(PREFIX): not (isinstance(how, dict) and how.get("optional", False))
            for name, how in manifest.get("dependencies", {}).items() if name.startswith(PREFIX)}
    return found


def lines(found):
    """The list, sorted by height and name."""
    def height(name):
        return 1 + max(map(height, found[name]), default=0)

    width = max(map(len, found))
    return [f"{name:{width}}  {', '.join(below + ('' if always else '?') for below, always in sorted(found[name].items())) or '-'}"
            for name in sorted(found, key=lambda name: (-height(name), name))]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--print"]
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent)
    found = edges(root)
    right = lines(found)
    if "--print" in sys.argv:
        print("\n".join(right))
        return
    wrong = [f"  {name} depends on both {' and '.join(sorted(VALUES))}" for name in sorted(found) if VALUES <= found[name].keys() and name not in COMBINE]
    after = (root / PAGE).read_text().partition(HEADING)[2].partition(FENCE)[2].partition("\n")[2].partition("\n" + FENCE)[0].split("\n")
    wrong += [f"  {PAGE} lacks: {line}" for line in right if line not in after]
    wrong += [f"  {PAGE} has: {line}" for line in after if line not in right]
    if not wrong and after != right:
        wrong.append(f"  {PAGE} has another order")
    if wrong:
        sys.exit("lint: dependencies between crates (tools/edges.py --print has the list for ARCHITECTURE.md):\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
