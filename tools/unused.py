#!/usr/bin/env python3
"""Dependencies that a crate names and does not use, as `cargo machete` finds them: by the text of its sources.

unused.py [FOLDER]   FOLDER is a repository; this one when absent. Says nothing if all is well.
"""
import re
import subprocess
import sys
import tomllib
from pathlib import Path

# Named for a feature that another dependency needs, or used by a macro alone; with the reason.
USED = {}


def crates(root):
    """Folders with a Cargo.toml of a package, as git knows them."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*Cargo.toml"],
                            capture_output=True, text=True, check=True).stdout.split()
    return [root / Path(file).parent for file in listed]


def sources(folder, others):
    """The Rust text of a crate, without that of crates inside it."""
    inside = [other for other in others if other != folder and folder in other.parents]
    files = [file for file in folder.rglob("*.rs")
             if "target" not in file.relative_to(folder).parts and not any(other in file.parents for other in inside)]
    return "\n".join(file.read_text() for file in files)


def unused(folder, others):
    manifest = tomllib.loads((folder / "Cargo.toml").read_text())
    if "package" not in manifest:
        return
    text = sources(folder, others)
    features = " ".join(" ".join(of) for of in manifest.get("features", {}).values())
    tables = [("dependencies", manifest.get("dependencies", {})), ("dev-dependencies", manifest.get("dev-dependencies", {}))]
    for table, names in tables:
        for name in names:
            word = name.replace("-", "_")
            if not re.search(rf"\b{word}\b(?:::|;| as )|\bextern crate {word}\b", text) and f"{name}/" not in features and name not in USED:
                yield f"{folder / 'Cargo.toml'}: {name} in [{table}]"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    folders = crates(root)
    found = [line for folder in folders for line in unused(folder, folders)]
    if found:
        sys.exit("lint: dependencies that nothing uses, take them out:\n" + "\n".join(f"  {line}" for line in found))


main()
