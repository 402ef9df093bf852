#!/usr/bin/env bash
# environment.sh NAME REQUIREMENTS: makes a virtual environment of a pinned list below the cache directory, once, and
# prints the path of its python. It is named by the list's content, so that a changed pin makes a new one.
set -euo pipefail
home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/$1-$(sha256sum "$2" | cut -c1-16)"
if [ ! -e "$home/ready" ]; then
  rm -rf "$home"
  mkdir -p "$(dirname "$home")"
  python3 -m venv "$home" >&2
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2" >&2
  touch "$home/ready"
fi
echo "$home/bin/python"
