#!/usr/bin/env bash
# Measures Knack's gateway beside LiteLLM's proxy and Portkey's gateway, which it installs by pinned lists below the cache
# directory, and writes its part of docs/benchmarks.md. What cannot be installed is named there with its command.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
peers=()

missing() {
  echo "bench-peers: $1 is not measured: '$2' failed, see above" >&2
  peers+=(--missing "| $1 | not measured: \`$2\` failed |")
}

if python=$(tools/environment.sh peers benches/peers/requirements.txt); then
  peers+=(--litellm "$(dirname "$python")/litellm")
else
  missing LiteLLM "pip install -r benches/peers/requirements.txt"
fi

# No install script runs; Portkey's own needs nothing of what it would patch.
modules="${XDG_CACHE_HOME:-$HOME/.cache}/knack/peers-node-$(cat benches/peers/package.json benches/peers/package-lock.json | sha256sum | cut -c1-16)"
if [ ! -e "$modules/ready" ]; then
  rm -rf "$modules"
  mkdir -p "$modules"
  cp benches/peers/package.json benches/peers/package-lock.json "$modules"
  ! (cd "$modules" && npm ci --ignore-scripts --no-audit --no-fund --loglevel error >&2) || touch "$modules/ready"
fi
if [ -e "$modules/ready" ]; then
  peers+=(--portkey "$modules/node_modules")
else
  missing Portkey "npm ci"
fi

cargo build -q --release -p floor-proxy
python3 -B benches/peers/main.py --knack "$target/release/knack" --floor "$target/release/floor_proxy" --lines "$work/table" "${peers[@]}"
tools/bench_page.sh peers "make bench-peers" "$work/table"
