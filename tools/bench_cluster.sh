#!/usr/bin/env bash
# The budgets of the cluster part, on a cluster of its own with etcd's fsync on; prints the budget lines and writes them to
# docs/benchmarks.md. ONLY=warm|burst|cold|sustained|writes|propagation|few|skills|changes|locks: one part, and the page stays.
# KEEP=1 leaves the cluster up, for the next part.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "the bench starts a real Kubernetes, which needs root: sudo -E make bench-cluster" >&2; exit 1; }
only=${ONLY:-}
target=${CARGO_TARGET_DIR:-target}
# A name and a switch of its own: the bed of the tests does not sync.
export KNACK_BED=${KNACK_BED:-bench} KNACK_BED_FSYNC=1
bed=tests/cluster/bed
lines=$(mktemp)
status=0
finish() {
  rm -f "$lines"
  [ "${KEEP:-}" = 1 ] || [ "$only" = locks ] || $bed down
}
trap finish EXIT

if [ -z "$only" ] || [ "$only" = locks ]; then
  echo "== locks"
  cargo bench -q -p knack-runner --bench locks 2>&1 | tee -a "$lines" || status=1
fi
if [ "$only" != locks ]; then
  tools/progress.sh "the bench" cargo bench -q --features otel --bench cluster --no-run
  $bed up
  KNACK_PROGRAM=$target/release/knack KNACK_GATEWAY_PROGRAM=$target/release/knack-gateway tests/cluster/images/load.sh --release
  cargo bench -q --features otel --bench cluster 2>&1 | tee -a "$lines" || status=1
fi

[ -n "$only" ] || tools/bench_page.sh "cluster" "make bench-cluster" "$lines"
! grep -q '^budget .* over' "$lines" || status=1
exit "$status"
