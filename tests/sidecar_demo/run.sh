#!/usr/bin/env bash
# make sidecar-demo: a cluster of its own from nothing, the demonstration, and the cluster down again (KEEP=1 leaves it up,
# DEBUG=1 takes a development build).
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_BED=${KNACK_BED:-sidecar}
# The SDKs, as tests/sdk pins them. Installed where there is a network; the pods mount them.
sdk() {
  local home
  home=$(dirname "$(dirname "$(tools/environment.sh sdk "tests/sdk/requirements-$1.txt")")")
  # Parts of the SDKs are compiled for one version of Python: that of the image in which they run.
  [ -d "$home/lib/python3.11" ] || { echo "sidecar demo: needs python3 to be Python 3.11, that of the image sandbox-python" >&2; exit 1; }
  echo "$home/lib/python3.11/site-packages"
}
openai=$(sdk openai)
anthropic=$(sdk anthropic-2)
google=$(sdk google)
. tests/cluster/demo.sh
release=--release
[ "${DEBUG:-}" != 1 ] || release=
# shellcheck disable=SC2086
tests/cluster/images/load.sh $release
$bed shell python3 -B tests/sidecar_demo/demo.py --openai "$openai" --anthropic "$anthropic" --google "$google"
