#!/usr/bin/env bash
# again.sh TIMES COMMAND...: a command that asks the network and does not try again by itself; up to TIMES times, 5 s apart. An attempt
# that takes half an hour hangs: it is ended, and counts as one that failed.
set -euo pipefail
times=$1
shift
for ((try = 1; ; try++)); do
  status=0
  timeout --foreground --kill-after=60 1800 "$@" || status=$?
  [ "$status" != 0 ] && [ "$try" -lt "$times" ] || exit "$status"
  echo "again.sh: attempt $try of $times ended with $status: $*" >&2
  sleep 5
done
