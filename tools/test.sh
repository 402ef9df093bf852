#!/usr/bin/env bash
# make test: every suite runs, whatever failed before it, and the cluster of the tests goes down, whatever failed.
# A script of its own: in a recipe that names $(MAKE), `make -n test` would do all of it.
set -uo pipefail
cd "$(dirname "$0")/.."
# Programs of the profile in which tests are compiled, so that every crate is compiled once.
export PROFILE=${PROFILE:-dev}
# cargo and rustup try again by themselves; three times are few where many suites ask at once.
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-10} RUSTUP_MAX_RETRIES=${RUSTUP_MAX_RETRIES:-10}
make=("${MAKE:-make}" --no-print-directory)

"${make[@]}" setup || exit
# What builds and what lints both need the toolchain of rust-toolchain.toml, which the first command to name cargo installs.
cargo --version >/dev/null || exit
# Lint's standard library comes now too: rustup writes the lists of a toolchain in place, and every cargo of the suites reads them. Lint
# asks again, and says what it cannot check without it.
case $(uname -m) in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
! command -v rustup >/dev/null || timeout 180 rustup -q target add "$other-unknown-linux-gnu" ||
  echo "lint asks again for the standard library of $other" >&2
status=0
# The last crates are compiled and linked by one core at a time; the other builds the programs of the test cluster, in the order in
# which they are asked for, the last of them while tests wait for the cluster. Whoever needs one builds it, or waits for this: a
# failure is reported there.
programs=
if [ "${KNACK_NO_CLUSTER:-}" != 1 ] && tools/setup.sh cluster; then
  nice -n 10 tests/cluster/binaries/build.sh kubernetes containerd coredns pause helm registry oldest >/dev/null & programs=$!
fi
"${make[@]}" build || status=$?
# Lint takes what is left while tests wait for the cluster: no test waits for it, or is slower for it. The light suites come second.
idle=(nice -n 19)
! chrt --idle 0 true 2>/dev/null || idle=(chrt --idle 0)
KNACK_LINT=workspace "${idle[@]}" "${make[@]}" lint & lint=$!
nice -n 10 "${make[@]}" --keep-going light-tests & light=$!
"${make[@]}" --keep-going machine-tests & machine=$!
"${make[@]}" --keep-going cluster-tests || status=$?
wait "$machine" || status=$?
wait "$light" || status=$?
wait "$lint" || status=$?
[ -z "$programs" ] || wait "$programs" || true
tests/cluster/for_tests.sh end
tools/summary.sh || status=1
exit "$status"
