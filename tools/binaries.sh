#!/usr/bin/env bash
# binaries.sh [FOLDER]: refuses tracked files that nobody can review: programs, archives, images, anything that is not UTF-8 text.
# A file that has to be binary is listed in ALLOWED with its reason.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
exec /usr/bin/python3 - <<'PYTHON'
import os, subprocess, sys

# Path: why it has to be a binary file.
ALLOWED = {}

KINDS = {
    b"\x7fELF": "an ELF program",
    b"MZ": "a Windows program",
    b"\xcf\xfa\xed\xfe": "a macOS program",
    b"\xca\xfe\xba\xbe": "a Java class or macOS program",
    b"\0asm": "a WebAssembly module",
    b"!<arch>": "an object archive",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
}


def kind(data):
    """What makes a file a binary one; None for text."""
    for magic, name in KINDS.items():
        if data.startswith(magic) and not (magic == b"MZ" and data.isascii() and b"\0" not in data):
            return name
    if b"\0" in data:
        return "a file with NUL bytes"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 text (byte {error.start})"


found = []
for entry in subprocess.run(["git", "ls-files", "-s", "-z"], check=True, capture_output=True).stdout.split(b"\0"):
    if not entry:
        continue
    mode, path = entry.split(b" ", 1)[0], os.fsdecode(entry.split(b"\t", 1)[1])
    # A link is text; a deleted file is gone; a submodule is a folder.
    if mode != b"100644" and mode != b"100755" or not os.path.isfile(path):
        continue
    with open(path, "rb") as file:
        data = file.read()
    what = kind(data)
    if what is None and mode == b"100755" and not data.startswith(b"#!"):
        what = "executable, and no script with a #! line"
    if what and path not in ALLOWED:
        found.append(f"  {path}: {what}, {len(data)} bytes")
    if not what and path in ALLOWED:
        found.append(f"  {path}: is text now; take it out of ALLOWED in tools/binaries.sh")
if found:
    print("lint: tracked files that cannot be reviewed; git rm them, or list them in tools/binaries.sh with a reason:", *found, sep="\n", file=sys.stderr)
    sys.exit(1)
PYTHON
