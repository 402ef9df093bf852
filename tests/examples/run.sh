#!/usr/bin/env bash
# Runs the tests of the examples' scripts, each with an isolated interpreter; those that need packages in the sandbox. One closing line per file.
set -uo pipefail
cd "$(dirname "$0")"
status=0
for test in bouncing_ball.py csv_chart.py tools.py packages.py; do
  echo "-- $test"
  python3 -IB "$test" || status=1
done
exit "$status"
