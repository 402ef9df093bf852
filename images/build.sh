#!/usr/bin/env bash
# build.sh [--debug] [--tag TAG] [--architecture amd64|arm64] [--registry NAME] [--gzip] [--output FOLDER] [--roots FOLDER]
#          [IMAGE...]: makes image archives, without a registry or an engine. --roots: folders instead, FOLDER/IMAGE each,
#          the contexts of the Containerfiles beside this file.
#
#   knack            /usr/bin/knack and its libraries; controller, hub, gateway and command line
#   sandbox-python   Python and its standard library, with /knack/knack-runner
#   sandbox-node     node, with /knack/knack-runner
#   runner           /knack-runner alone, for an image volume at /knack in images of others
#
# The same programs and the same Debian packages give the same bytes. No image has a shell. Prints the paths.
# Programs come from cargo (--debug: a development build), or from KNACK_PROGRAM and KNACK_RUNNER_PROGRAM. For another
# architecture than the machine's, tools/setup.sh ARCHITECTURE brings the compiler. Beside IMAGE.tar, IMAGE.packages lists
# the Debian packages that are in it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
profile=release tag=dev registry=knack.local output=$target/images roots=
flags=() images=()
while [ $# -gt 0 ]; do
  case $1 in
    --debug) profile=debug ;;
    --tag) tag=$2 && shift ;;
    --architecture) ARCHITECTURE=$2 && shift ;;
    --registry) registry=$2 && shift ;;
    --gzip) flags=(--gzip) ;;
    --output) output=$2 && shift ;;
    --roots) roots=$2 && shift ;;
    -*) sed -n '2,15{s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
    *) images+=("$1") ;;
  esac
  shift
done
[ ${#images[@]} -gt 0 ] || images=(knack sandbox-python sandbox-node runner)

# shellcheck source=/dev/null
. "$here/layers.sh"

# What cargo, and C code in crates, need to build for another machine than this one.
rust_target=$(machine)-unknown-linux-gnu
tools=
if [ "$ARCHITECTURE" != "$NATIVE" ]; then
  tools=$(machine)-linux-gnu-
  export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$rust_target")_LINKER=${tools}gcc"
fi

runner_program() {
  [ -z "${KNACK_RUNNER_PROGRAM:-}" ] || { echo "$KNACK_RUNNER_PROGRAM" && return; }
  tools/progress.sh "sandbox runner for $ARCHITECTURE" env RUSTFLAGS='-C target-feature=+crt-static' \
    cargo build -p knack-runner --profile runner --target "$rust_target" >&2
  echo "$target/$rust_target/runner/knack-runner"
}

knack_program() {
  [ -z "${KNACK_PROGRAM:-}" ] || { echo "$KNACK_PROGRAM" && return; }
  local flags=() folder=$target
  [ $profile = debug ] || flags=(--release)
  # Without --target where it is this machine, so that `make build` has made it already.
  [ -z "$tools" ] || { flags+=(--target "$rust_target") && folder=$target/$rust_target; }
  tools/progress.sh "knack for $ARCHITECTURE" cargo build "${flags[@]}" --features otel --bin knack >&2
  echo "$folder/$profile/knack"
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
    "$here/archive.py" --output "$output/$image.tar" --name "$registry/$image:$tag" --architecture "$ARCHITECTURE" "${flags[@]}" \
      --entrypoint "$entrypoint" "$@" >&2
    cat "$1.packages" >"$output/$image.packages" 2>/dev/null || : >"$output/$image.packages"
    echo "$output/$image.tar"
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `set -e` does not reach into $(...) of arguments: each step stands alone.
runner=$(runner_program)
complete "$(dirname "$runner")" "/$(basename "$runner")"
for image in "${images[@]}"; do
  case $image in
    knack)
      program=$(knack_program)
      base=$(cached_layer knack)
      install -D -m 755 "$program" "$work/knack/usr/bin/knack"
      install -m 755 "$runner" "$work/knack/usr/bin/knack-runner"
      cp -a "$base" "$work/whole" && cp -a "$work/knack/." "$work/whole/"
      complete "$work/whole" /usr/bin/knack /usr/bin/knack-runner
      "${tools}strip" --strip-debug "$work/knack/usr/bin/knack"
      publish knack /usr/bin/knack "$base" "$work/knack"
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
