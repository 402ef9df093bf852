#!/usr/bin/env bash
# Runs every bench against its floor, prints the budget lines, and writes them to docs/benchmarks.md.
# bench.sh: all. bench.sh gateway|local_exec|packages|locks|autoscore: one. bench.sh gateway_2k: the gateway's rows of 2 KB and of full load with it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
status=0

bench() {
  local name=$1
  shift
  [ -z "$only" ] || [ "$only" = "$name" ] || return 0
  echo "== $name"
  "$@" 2>&1 | tee -a "$lines" || status=1
}
only=${1:-}
KNACK_RUNNER=$(realpath -m "$target/release/knack-runner")
export KNACK_RUNNER
# 10,000 streams are as many connections to the provider.
ulimit -n "$(ulimit -Hn)"
cargo build -q --release -p floor-proxy
# The features of `make build`: what is measured is what ships.
bench gateway cargo bench -q --features otel --bench gateway
[ "$only" != gateway_2k ] || bench gateway_2k cargo bench -q --features otel --bench gateway -- --small
bench local_exec cargo bench -q --features otel --bench local_exec
# Its wheels come from the index that uv's configuration names.
KNACK_UV=${KNACK_UV:-$(tools/uv.sh)}
export KNACK_UV
bench packages cargo bench -q --features otel --bench packages
bench locks cargo bench -q -p knack-runner --bench locks
bench autoscore cargo bench -q -p knack-skill --bench autoscore

[ -n "$only" ] || tools/bench_page.sh "laptop" "make bench" "$lines"
! grep -q '^budget .* over' "$lines" || status=1
exit "$status"
