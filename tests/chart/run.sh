#!/usr/bin/env bash
# Tests of the charts, of deploy/ and of the GitOps snippets: tests/chart/run.sh [offline|cluster]...
# Makes a virtual environment with the pinned interpreters (Lua 5.1, CEL) outside the tree; closes with `N passed, N failed, N skipped`.
# HELM and KUBECTL name the binaries. The cluster part takes KUBECONFIG; KNACK_NO_CLUSTER=1 skips it by name.
set -euo pipefail
cd "$(dirname "$0")"
home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/chart-$(sha256sum requirements.txt | cut -c1-16)"
if [ ! -e "$home/ready" ]; then
  rm -rf "$home"
  mkdir -p "$(dirname "$home")"
  python3 -m venv "$home" >&2
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt >&2
  touch "$home/ready"
fi
exec "$home/bin/python" -B main.py "$@"
