#!/usr/bin/env bash
# office.sh: makes the image sandbox-office as a folder, and runs its tests there (crates/execution/tests/office). Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
roots=$(mktemp -d)
trap 'rm -rf "$roots"' EXIT
images/build.sh --roots "$roots" sandbox-office
KNACK_OFFICE_ROOT=$roots/sandbox-office cargo test -p knack-execution --features runner --test office -- --ignored --nocapture --test-threads=1
