#!/usr/bin/env bash
# make registry-demo: a cluster of its own from nothing, the demonstration, and the cluster down again (KEEP=1 leaves it up).
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_BED=${KNACK_BED:-registry}
# The SDK, as tests/sdk pins it.
python=$(tools/environment.sh sdk tests/sdk/requirements-openai.txt)
. tests/cluster/demo.sh
tests/cluster/images/load.sh --release
$bed shell "$python" -B tests/registry_demo/demo.py
