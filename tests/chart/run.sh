#!/usr/bin/env bash
# Tests of the charts, of deploy/ and of the GitOps snippets: tests/chart/run.sh [admission|offline|injection|webhook|cluster]...
# Makes a virtual environment with the pinned interpreters (Lua 5.1, CEL) outside the tree; closes with `N passed, N failed, N skipped`.
# HELM and KUBECTL name the binaries; else those of the PATH, else those of the test bed. The cluster part takes KUBECONFIG,
# else the test bed, which is up then; KNACK_NO_CLUSTER=1 skips it by name.
set -euo pipefail
cd "$(dirname "$0")"
# Outside of the test bed's shell: the bed's own helm and kubectl, built if they are not there.
tool() { # variable, program, module of tests/cluster/binaries
  if [ -z "${!1:-}" ] && ! command -v "$2" >/dev/null; then
    if [ "${KNACK_NO_CLUSTER:-}" = 1 ] && ! command -v go >/dev/null; then
      echo "SKIPPED tests of the charts: there is neither $2 nor Go to build it"
      echo "0 passed, 0 failed, 1 skipped"
      exit 0
    fi
    export "$1=$(../cluster/binaries/build.sh "$3")/$2"
  fi
}
tool HELM helm helm
tool KUBECTL kubectl kubernetes
# Without one of these, its tests are skipped by name.
if [ $# = 0 ] || [[ " $* " == *" offline "* ]]; then
  status=0
  promtool=$(../../tools/promtool.sh) || status=$?
  case $status in
    0) export PROMTOOL=$promtool ;;
    3) ;;
    *) exit "$status" ;;
  esac
  # What reads the dashboard as Grafana does.
  if command -v go >/dev/null; then
    reader="${XDG_CACHE_HOME:-$HOME/.cache}/knack/dashboard-reader-$(cat grafana/* | sha256sum | cut -c1-16)"
    [ -x "$reader" ] || (cd grafana && CGO_ENABLED=0 ../../../tools/again.sh 3 go build -trimpath -o "$reader" .) >&2
    export DASHBOARD_READER=$reader
  fi
fi
python=$(../../tools/environment.sh chart requirements.txt)
# Built where there is a network.
if [ "${KNACK_NO_CLUSTER:-}" != 1 ] && [ -z "${KUBECONFIG:-}" ] && [[ "$*" != offline ]]; then
  ../cluster/binaries/build.sh oldest >/dev/null
fi
# Only now into the bed's network, from where no package registry can be reached.
inside=()
if [ "${KNACK_NO_CLUSTER:-}" != 1 ] && [ -z "${KUBECONFIG:-}" ] && [[ "$*" != offline ]]; then
  inside=(../cluster/bed shell)
fi
exec "${inside[@]}" "$python" -B main.py "$@"
