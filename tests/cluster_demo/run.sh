#!/usr/bin/env bash
# make cluster-demo: a cluster of its own from nothing, the demonstration, and the cluster down again (KEEP=1 leaves it up).
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_BED=${KNACK_BED:-demo}
. tests/cluster/demo.sh
tests/cluster/images/load.sh --release
$bed shell python3 tests/cluster_demo/demo.py "$@"
