#!/usr/bin/env bash
# build.sh [--debug] [--tag TAG] [--output FOLDER] [--roots FOLDER] [IMAGE...]: makes image archives, without a registry
# or an engine. --roots: folders instead, FOLDER/IMAGE each, the contexts of the Containerfiles beside this file.
#
#   knack            /usr/bin/knack and its libraries; controller, hub, gateway and command line
#   sandbox-python   Python and its standard library, with /knack/knack-runner
#   sandbox-node     node, with /knack/knack-runner
#   runner           /knack-runner alone, for an image volume at /knack in images of others
#
# The same programs and the same Debian packages give the same bytes. No image has a shell. Prints the paths.
# Programs come from cargo (--debug: a development build), or from KNACK_PROGRAM and KNACK_RUNNER_PROGRAM.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."
# shellcheck source=/dev/null
. "$here/layers.sh"

target=${CARGO_TARGET_DIR:-$PWD/target}
profile=release tag=dev output=$target/images roots=
images=()
while [ $# -gt 0 ]; do
  case $1 in
    --debug) profile=debug ;;
    --tag) tag=$2 && shift ;;
    --output) output=$2 && shift ;;
    --roots) roots=$2 && shift ;;
    -*) sed -n '2,13{s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
    *) images+=("$1") ;;
  esac
  shift
done
[ ${#images[@]} -gt 0 ] || images=(knack sandbox-python sandbox-node runner)

runner_program() {
  [ -z "${KNACK_RUNNER_PROGRAM:-}" ] || { echo "$KNACK_RUNNER_PROGRAM" && return; }
  local host
  host=$(uname -m)-unknown-linux-gnu
  tools/progress.sh "sandbox runner" env RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build -p knack-runner --profile runner --target "$host" >&2
  echo "$target/$host/runner/knack-runner"
}

knack_program() {
  [ -z "${KNACK_PROGRAM:-}" ] || { echo "$KNACK_PROGRAM" && return; }
  local flags=()
  [ $profile = debug ] || flags=(--release)
  tools/progress.sh "knack" cargo build "${flags[@]}" --features otel --bin knack >&2
  echo "$target/$profile/knack"
}

# A layer of packages is made once: its contents change only with this folder's scripts and the packages' names.
cached_layer() { # language
  local folder
  folder=$CACHE/layers/$1-$(cat "$here/layers.sh" /etc/os-release | sha256sum | cut -c1-16)
  if [ ! -d "$folder" ]; then
    echo "making the $1 layer" >&2
    mkdir -p "$CACHE/layers"
    "$1_layer" "$folder.partial" >&2
    skeleton "$folder.partial"
    mv -T "$folder.partial" "$folder"
  fi
  echo "$folder"
}

publish() { # image, entrypoint, layers...
  local image=$1 entrypoint=$2 layer
  shift 2
  if [ -n "$roots" ]; then
    fresh "$roots/$image"
    for layer in "$@"; do cp -a "$layer/." "$roots/$image/"; done
    echo "$roots/$image"
  else
    mkdir -p "$output"
    "$here/archive.py" --output "$output/$image.tar" --name "knack.local/$image:$tag" --entrypoint "$entrypoint" "$@" >&2
    echo "$output/$image.tar"
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `set -e` does not reach into $(...) of arguments: each step stands alone.
runner=$(runner_program)
for image in "${images[@]}"; do
  case $image in
    knack)
      program=$(knack_program)
      skeleton "$work/knack"
      program "$work/knack" "$program" /usr/bin/knack
      strip --strip-debug "$work/knack/usr/bin/knack"
      install -m 755 "$runner" "$work/knack/usr/bin/knack-runner"
      # The authorities that upstream certificates are checked against.
      install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$work/knack/etc/ssl/certs/ca-certificates.crt"
      no_shell "$work/knack"
      publish knack /usr/bin/knack "$work/knack"
      ;;
    sandbox-python | sandbox-node)
      base=$(cached_layer "${image#sandbox-}")
      install -D -m 755 "$runner" "$work/runner-layer/knack/knack-runner"
      publish "$image" /knack/knack-runner "$base" "$work/runner-layer"
      ;;
    runner)
      install -D -m 755 "$runner" "$work/runner/knack-runner"
      publish runner /knack-runner "$work/runner"
      ;;
    *) echo "build.sh: no image $image; there are knack sandbox-python sandbox-node runner" >&2 && exit 2 ;;
  esac
done
