#!/usr/bin/env bash
# The release as a person gets it: made twice, read, and installed with stock values from a registry on the test bed.
# KNACK_NO_CLUSTER=1 leaves the installation out, by name. KNACK_DIST names a release that is there already. Closes with `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
# Of this machine only; `make dist` makes both architectures.
platform=linux/$(dpkg --print-architecture)
again=$target/dist-again
if [ -z "${KNACK_DIST:-}" ]; then
  export KNACK_DIST=$target/dist
  tools/dist.sh --output "$KNACK_DIST" "$platform"
  tools/dist.sh --output "$again" "$platform"
  export KNACK_DIST_AGAIN=$again
fi
if [ -z "${HELM:-}" ] && ! command -v helm >/dev/null && [ "${KNACK_NO_CLUSTER:-}" = 1 ] && ! command -v go >/dev/null; then
  echo "SKIPPED tests of the release: there is neither helm nor Go to build it"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
HELM=${HELM:-$(command -v helm || echo "$(tests/cluster/binaries/build.sh helm)/helm")}
export HELM
inside=()
if [ "${KNACK_NO_CLUSTER:-}" != 1 ]; then
  KNACK_REGISTRY=$(tests/cluster/binaries/build.sh registry)/registry
  export KNACK_REGISTRY KNACK_PROGRAM=${KNACK_PROGRAM:-$target/release/knack}
  export KNACK_GATEWAY_PROGRAM=${KNACK_GATEWAY_PROGRAM:-$target/release/knack-gateway}
  inside=(tests/cluster/bed shell)
fi
"${inside[@]}" /usr/bin/python3 -B tests/dist/main.py
