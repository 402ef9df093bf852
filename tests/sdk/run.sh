#!/usr/bin/env bash
# Official SDKs against a running gateway: tests/sdk/run.sh PATH/TO/knack
# Makes one virtual environment per requirements file outside the tree, starts knack on a free port with the scripted
# model, runs the tests, stops what it started, and closes with `N passed, N failed`.
set -euo pipefail
knack=$(readlink -e "${1:?usage: run.sh PATH/TO/knack}") || { echo "sdk: there is no file $1; build it first"; exit 1; }
cd "$(dirname "$0")"
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1

work=$(mktemp -d)
pid=
stop() {
  if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap stop EXIT

# One environment per pinned list, named by its content, so that a changed pin makes a new one.
environment() {
  local requirements=$1 home
  home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/sdk-$(sha256sum "$requirements" | cut -c1-16)"
  if [ ! -e "$home/ready" ]; then
    rm -rf "$home"
    mkdir -p "$(dirname "$home")"
    python3 -m venv "$home" >&2
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
    touch "$home/ready"
  fi
  echo "$home/bin/python"
}

(cd "$work" && exec "$knack" dev "$OLDPWD/skills" --listen 127.0.0.1:0 --upstream "mock=$OLDPWD/script.yaml" \
  --files-dir "$work/files" --print-port-file "$work/port") >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 150); do
  [ -s "$work/port" ] && break
  kill -0 "$pid" 2>/dev/null || { cat "$work/log"; echo "knack dev did not start"; echo "0 passed, 1 failed"; exit 1; }
  sleep 0.1
done
KNACK_PORT=$(cat "$work/port")
export KNACK_PORT

passed=0 failed=0
suite() {
  local python out
  python=$(environment "$1")
  out="$work/out"
  "$python" "$2" >"$out" 2>&1 || true
  cat "$out"
  # A suite that did not reach its closing line counts as one failure.
  local counts
  counts=$(tail -1 "$out" | sed -nE 's/.*: ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
  read -r ok bad <<<"${counts:-0 1}"
  passed=$((passed + ok)) failed=$((failed + bad))
}
suite requirements-openai.txt test_openai.py
suite requirements-anthropic-2.txt test_anthropic.py
suite requirements-anthropic-0.txt test_anthropic.py

if [ "$failed" -gt 0 ]; then echo "--- log of knack dev (end)"; tail -60 "$work/log"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
