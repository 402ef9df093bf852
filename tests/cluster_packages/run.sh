#!/usr/bin/env bash
# Environments of packages on a cluster, from a loopback index and a real registry: tests/cluster_packages/run.sh [builder|cluster]...
# builder: `knack packages build` on this machine. cluster: a release with packages on the test bed, which is up and has the images.
# KNACK_PROGRAM names knack. Closes with `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_PROGRAM=${KNACK_PROGRAM:-$PWD/target/release/knack}
KNACK_REGISTRY=$(tests/cluster/binaries/build.sh registry)/registry
KNACK_UV=${KNACK_UV:-$(tools/uv.sh)}
HELM=${HELM:-$(tests/cluster/binaries/build.sh helm)/helm}
export KNACK_REGISTRY KNACK_UV HELM
export KNACK_IMAGES=${KNACK_IMAGES:-$PWD/target/images}
inside=()
if [ "${KNACK_NO_CLUSTER:-}" != 1 ] && [ "$*" != builder ]; then
  inside=(tests/cluster/bed shell)
  # Where the node's settings for registries are.
  KNACK_BED_DIR=$(eval "$(tests/cluster/bed env)" && echo "$KNACK_BED_DIR")
  export KNACK_BED_DIR
fi
exec "${inside[@]}" /usr/bin/python3 -B tests/cluster_packages/main.py "$@"
