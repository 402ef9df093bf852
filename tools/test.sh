#!/usr/bin/env bash
# make test: every suite runs, whatever failed before it, and the cluster of the tests goes down, whatever failed.
# A script of its own: in a recipe that names $(MAKE), `make -n test` would do all of it.
set -uo pipefail
cd "$(dirname "$0")/.."
run() { "${MAKE:-make}" --no-print-directory "$@"; }

run setup || exit
# What builds and what lints both need the toolchain of rust-toolchain.toml, which the first command to name cargo installs.
cargo --version >/dev/null || exit
status=0
# The release is linked by one core for minutes; lint takes the other.
run lint & lint=$!
run build || status=$?
wait "$lint" || status=$?
run --keep-going every-test || status=$?
tests/cluster/for_tests.sh end
tools/summary.sh || status=1
exit "$status"
