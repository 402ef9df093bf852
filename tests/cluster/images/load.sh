#!/usr/bin/env bash
# load.sh [--release] [--tag TAG] [IMAGE...]: builds images (see images/build.sh) and imports them into the running bed.
# Pods that start afterwards use them; running ones keep what they have. The tag is `dev`, unless told.
set -euo pipefail
cluster=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
flags=(--debug)
if [ "${1:-}" = --release ]; then
  flags=()
  shift
fi
# Two beds may come up at once; archives are in one folder.
mkdir -p "${CARGO_TARGET_DIR:-$cluster/../../target}"
exec 8>"${CARGO_TARGET_DIR:-$cluster/../../target}/images.lock"
flock 8
archives=$("$cluster/../../images/build.sh" "${flags[@]}" "$@")
exec 8>&-
# shellcheck disable=SC2086
"$cluster/bed" import $archives
