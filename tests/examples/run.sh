#!/usr/bin/env bash
# Runs the tests of the examples' scripts, each with an isolated interpreter; those that need packages in the sandbox. One closing line per
# file. Then `make demo`, what a newcomer runs first.
set -uo pipefail
cd "$(dirname "$0")"
status=0
for test in bouncing_ball.py csv_chart.py tools.py packages.py; do
  echo "-- $test"
  python3 -IB "$test" || status=1
done

echo "-- demo.py"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/examples"
cp -r ../../examples/{skills,packages,manifests} "$work/examples"
# Limits that its runs keep where all other suites come first; the examples have 10 s.
sed -i 's/^timeout_ms: .*/timeout_ms: 60000/' "$work"/examples/*/*/SKILL.md
sed -i -E 's/^( +(timeoutSeconds|queueTimeoutSeconds): ).*/\160/' "$work/examples/manifests/runtime.yaml"
if python3 ../demo/demo.py --knack "${KNACK_PROGRAM:-../../target/release/knack}" --examples "$work/examples" --keep "$work/made" | tee "$work/said"; then
  echo "demo: 1 passed, 0 failed"
else
  sed -n 's/^DEMO FAILED/FAILED demo/p' "$work/said"
  echo "demo: 0 passed, 1 failed"
  status=1
fi
exit "$status"
