#!/usr/bin/env python3
"""Writes a skill folder as a Skill manifest with its files inline, as text that a person can read and a diff can show.

    tools/skill_manifest.py examples/skills/bouncing-ball > bouncing-ball.yaml

Text files only, in all at most 120 KiB: larger skills belong into a ConfigMap or an archive.
"""

import os
import re
import sys

MAX_BYTES = 120 * 1024
HEAD = """\
# Made by tools/skill_manifest.py from %s.
# Apply it with --server-side: without it kubectl keeps a second copy of all files in an annotation.
apiVersion: knack.dev/v1alpha1
kind: Skill
metadata:
  name: %s
  annotations:
    # Flux would replace ${...} inside scripts.
    kustomize.toolkit.fluxcd.io/substitute: disabled
spec:
  source:
    inline:
      files:
"""


def manifest(folder):
    """The YAML text; ValueError says which file cannot be written inline."""
    name = os.path.basename(os.path.normpath(folder))
    parts, total = [HEAD % (os.path.relpath(folder).replace(os.sep, "/"), name)], 0
    for path in sorted(files(folder)):
        with open(os.path.join(folder, path), "rb") as file:
            content = file.read()
        total += len(content)
        try:
            parts.append(block(path, content.decode("utf-8")))
        except UnicodeDecodeError:
            raise ValueError("%s is not text" % path) from None
    if total > MAX_BYTES:
        raise ValueError("%s has %d bytes, at most %d fit inline" % (folder, total, MAX_BYTES))
    return "".join(parts)


def files(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in names:
            yield os.path.relpath(os.path.join(base, name), folder).replace(os.sep, "/")


def block(path, text):
    """One entry as a literal block; its header keeps the end of the text as it is."""
    if re.search(r"[^\t\n\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        raise ValueError("%s holds characters that YAML cannot show; use a ConfigMap" % path)
    keep = "-" if not text.endswith("\n") else "" if not text.endswith("\n\n") and text != "\n" else "+"
    # YAML guesses the indentation from the first line; a text that begins with a blank needs it said.
    said = "2" if text[:1] in (" ", "\n") else ""
    lines = "".join("          %s\n" % line if line else "\n" for line in text.split("\n")[: -1 if text.endswith("\n") else None])
    return "        %s: |%s%s\n%s" % (path, said, keep, lines)


if __name__ == "__main__":
    try:
        sys.stdout.write(manifest(sys.argv[1]))
    except (IndexError, OSError, ValueError) as error:
        sys.exit("skill_manifest: %s" % error)
