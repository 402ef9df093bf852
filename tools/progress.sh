#!/usr/bin/env bash
# progress.sh WHAT COMMAND...: runs a build. Quiet when there is nothing to do; a line every 15 s when there is.
set -euo pipefail
what=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
begun=$SECONDS
"$@" >"$log" 2>&1 &
pid=$!
while kill -0 "$pid" 2>/dev/null; do
  # Wakes as soon as the build ends.
  timeout 15 tail --pid="$pid" -f /dev/null || true
  if kill -0 "$pid" 2>/dev/null; then
    echo "building $what: $((SECONDS - begun)) s, $(grep -c Compiling "$log" || true) crates so far; the first build takes a few minutes"
  fi
done
if ! wait "$pid"; then
  cat "$log" >&2
  echo "building $what failed" >&2
  exit 1
fi
