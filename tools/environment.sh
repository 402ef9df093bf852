#!/usr/bin/env bash
# environment.sh NAME REQUIREMENTS [OPTION OF PIP...]: makes a virtual environment of a pinned list below the cache directory, once, and
# prints the path of its python. It is named by the list's content, so that a changed pin makes a new one.
set -euo pipefail
name=$1 requirements=$2
shift 2
home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/$name-$(sha256sum "$requirements" | cut -c1-16)"
if [ ! -e "$home/ready" ]; then
  mkdir -p "$(dirname "$home")"
  # Suites that run beside one another need the same one: the second waits for it.
  exec 8>"$home.lock"
  flock 8
fi
if [ ! -e "$home/ready" ]; then
  rm -rf "$home"
  python3 -m venv "$home" >&2
  "$(dirname "$(readlink -f "$0")")/again.sh" 3 "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$@" -r "$requirements" >&2
  touch "$home/ready"
fi
echo "$home/bin/python"
