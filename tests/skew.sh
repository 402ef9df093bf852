#!/usr/bin/env bash
# skew.sh: a gateway of the oldest protocol that hubs still understand, built from the last commit that spoke it, and the gateway of
# this tree, at one hub at the same time; and the gateway of this tree at a hub of that commit. Needs the history of the repository and the cluster of the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The last commit that spoke protocol 1. Another PROTOCOL_MIN (crates/hub-api) needs another commit here.
commit=4e22ab43cc2ec8dff9ac462a6ccde0506451cfd2
folder=${CARGO_TARGET_DIR:-$PWD/target}/skew
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "the gateway of the last protocol cannot be built: this clone has no commit $commit (git fetch --unshallow)" >&2
  exit 1
fi
if [ ! -x "$folder/$commit/knack-runner" ]; then
  mkdir -p "$folder/source"
  git archive "$commit" | tar -x -C "$folder/source"
  tools/progress.sh "knack of the last protocol" env CARGO_TARGET_DIR="$folder/build" cargo build --locked --manifest-path "$folder/source/Cargo.toml" -p knack --bin knack
  host=$(uname -m)-unknown-linux-gnu
  tools/progress.sh "its runner" env CARGO_TARGET_DIR="$folder/build" RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build --locked --manifest-path "$folder/source/Cargo.toml" -p knack-runner --profile runner --target "$host"
  mkdir -p "$folder/$commit"
  mv "$folder/build/debug/knack" "$folder/$commit/knack"
  mv "$folder/build/$host/runner/knack-runner" "$folder/$commit/knack-runner"
  rm -rf "$folder/source" "$folder/build"
fi
KNACK_OLDER_PROGRAM=$folder/$commit/knack KNACK_OLDER_RUNNER=$folder/$commit/knack-runner cargo test --workspace --features knack/otel,knack-gateway-program/otel --test cluster_hub -- --ignored skew::
