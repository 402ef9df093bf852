#!/usr/bin/env bash
# make cluster-demo: a cluster of its own from nothing, the demonstration, and the cluster down again (KEEP=1 leaves it up).
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_BED=${KNACK_BED:-demo}
bed=tests/cluster/bed
stop() {
  status=$?
  if [ "${KEEP:-}" = 1 ]; then
    echo "the cluster stays up; a shell inside: KNACK_BED=$KNACK_BED $bed shell; take it down: KNACK_BED=$KNACK_BED $bed down"
  else
    $bed down
  fi
  exit $status
}
trap stop EXIT
$bed down >/dev/null 2>&1 || true
$bed up
tests/cluster/images/load.sh --release
$bed shell python3 tests/cluster_demo/demo.py "$@"
