#!/usr/bin/env bash
# Licences, sources and banned crates, by cargo-deny (pinned; installed once, outside the tree).
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
if ! cargo deny --version 2>/dev/null | grep -q " $version"; then
  echo "audit: installing cargo-deny $version"
  cargo install --quiet --locked "cargo-deny@$version"
fi
cargo deny check bans licenses sources
