#!/usr/bin/env bash
# build.sh [--debug] [--tag TAG] [--architecture amd64|arm64] [--registry NAME] [--gzip] [--output FOLDER] [--roots FOLDER]
#          [IMAGE...]: makes image archives, without a registry or an engine. --roots: folders instead, FOLDER/IMAGE each,
#          the contexts of the Containerfiles beside this file.
#
#   knack            /usr/bin/knack and its libraries; controller, hub and command line
#   knack-gateway    /usr/bin/knack-gateway and its libraries
#   sandbox-python   Python and its standard library, with /knack/knack-runner
#   sandbox-node     node, with /knack/knack-runner
#   sandbox-office   sandbox-python with node, LibreOffice, pandoc, poppler-utils, qpdf, tesseract and a shell; only where it is named
#   packages-builder sandbox-python's Python, with knack and uv: what makes environments of packages on a cluster
#   runner           /knack-runner alone, for an image volume at /knack in images of others
#
# The same programs and the same Debian packages give the same bytes. No image but sandbox-office has a shell. Prints the paths.
# Programs come from cargo (--debug: a development build), or from KNACK_PROGRAM, KNACK_GATEWAY_PROGRAM and
# KNACK_RUNNER_PROGRAM. For another architecture than the machine's, tools/setup.sh ARCHITECTURE brings the compiler. Beside
# IMAGE.tar, IMAGE.packages lists the Debian packages that are in it; the image's label dev.knack.packages is its SHA-256.
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
    -*) sed -n '2,17{s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
    *) images+=("$1") ;;
  esac
  shift
done
[ ${#images[@]} -gt 0 ] || images=(knack knack-gateway sandbox-python sandbox-node packages-builder runner)

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

# Both programs of Knack come from one build: what they share is compiled once.
program() { # knack or knack-gateway
  if [ "$1" = knack ] && [ -n "${KNACK_PROGRAM:-}" ]; then echo "$KNACK_PROGRAM" && return; fi
  if [ "$1" = knack-gateway ] && [ -n "${KNACK_GATEWAY_PROGRAM:-}" ]; then echo "$KNACK_GATEWAY_PROGRAM" && return; fi
  local flags=() folder=$target
  [ $profile = debug ] || flags=(--release)
  # Without --target where it is this machine, so that `make build` has made it already.
  [ -z "$tools" ] || { flags+=(--target "$rust_target") && folder=$target/$rust_target; }
  tools/progress.sh "knack for $ARCHITECTURE" cargo build "${flags[@]}" -p knack -p knack-gateway-program \
    --features knack/otel,knack-gateway-program/otel --bin knack --bin knack-gateway >&2
  echo "$folder/$profile/$1"
}

# Copies a layer over a folder of others. As in a container, a link takes the place of a folder: `/tmp` is one in some layers.
put_over() { # layer, folder
  [ ! -L "$1/tmp" ] || rm -rf "$2/tmp"
  cp -a "$1/." "$2/"
}

publish() { # image, entrypoint, layers... ; the words of $settings go to archive.py
  local image=$1 entrypoint=$2 layer
  shift 2
  if [ -n "$roots" ]; then
    fresh "$roots/$image"
    for layer in "$@"; do put_over "$layer" "$roots/$image"; done
    echo "$roots/$image"
  else
    mkdir -p "$output"
    for layer in "$@"; do cat "$layer.packages" 2>/dev/null || :; done | LC_ALL=C sort -u >"$output/$image.packages"
    # Which Debian packages are in it, without the file beside it; `runner` has none.
    [ ! -s "$output/$image.packages" ] || settings+=(--label "dev.knack.packages=sha256:$(sha256sum <"$output/$image.packages" | cut -c1-64)")
    "$here/archive.py" --output "$output/$image.tar" --name "$registry/$image:$tag" --architecture "$ARCHITECTURE" "${flags[@]}" "${settings[@]}" \
      --entrypoint "$entrypoint" "$@" >&2
    echo "$output/$image.tar"
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# `set -e` does not reach into $(...) of arguments: each step stands alone.
runner=$(runner_program)
complete "$(dirname "$runner")" "/$(basename "$runner")"
# Its packages are for its C library.
distribution() { (. /etc/os-release && echo "$ID-${VERSION_ID:-}"); }
# Interpreter and distribution: environments of one image with this label can be used in another one with the same.
python_name() { echo "$(python_version)-$(distribution)"; }

# uv of the architecture, pinned by tools/uv.txt.
uv_program() {
  if [ -n "${KNACK_UV:-}" ]; then echo "$KNACK_UV"; else tools/uv.sh "$ARCHITECTURE"; fi
}

for image in "${images[@]}"; do
  settings=()
  case $image in
    knack | knack-gateway)
      program=$(program "$image")
      base=$(cached_layer knack)
      inside=(/usr/bin/"$image")
      install -D -m 755 "$program" "$work/$image/usr/bin/$image"
      if [ "$image" = knack ]; then
        inside+=(/usr/bin/knack-runner)
        install -m 755 "$runner" "$work/knack/usr/bin/knack-runner"
      fi
      cp -a "$base" "$work/whole-$image" && cp -a "$work/$image/." "$work/whole-$image/"
      complete "$work/whole-$image" "${inside[@]}"
      # The image's programs hold no names of functions: messages of panics have file and line without them.
      "${tools}strip" --strip-all "$work/$image/usr/bin/$image"
      publish "$image" "/usr/bin/$image" "$base" "$work/$image"
      ;;
    sandbox-python | sandbox-node | sandbox-office)
      base=$(cached_layer "${image#sandbox-}")
      # What packages can be added for (src/builds/fit.rs).
      [ "$image" = sandbox-node ] || settings+=(--label "dev.knack.python=$(python_name)")
      [ "$image" = sandbox-python ] || settings+=(--label "dev.knack.node=$(distribution)")
      install -D -m 755 "$runner" "$work/runner-layer/knack/knack-runner"
      publish "$image" /knack/knack-runner "$base" "$work/runner-layer"
      ;;
    packages-builder)
      program=$(program knack)
      base=$(cached_layer python)
      libraries=$(cached_layer knack)
      uv=$(uv_program)
      install -D -m 755 "$program" "$work/$image/usr/bin/knack"
      install -m 755 "$uv" "$work/$image/usr/bin/uv"
      cp -a "$libraries" "$work/whole-$image"
      put_over "$base" "$work/whole-$image"
      put_over "$work/$image" "$work/whole-$image"
      complete "$work/whole-$image" /usr/bin/knack /usr/bin/uv
      "${tools}strip" --strip-debug "$work/$image/usr/bin/knack"
      settings=(--env "KNACK_SANDBOX_PYTHON=$(python_name)" --env "KNACK_SANDBOX_NODE=$(distribution)")
      publish "$image" /usr/bin/knack "$libraries" "$base" "$work/$image"
      ;;
    runner)
      install -D -m 755 "$runner" "$work/runner/knack-runner"
      publish runner /knack-runner "$work/runner"
      ;;
    *) echo "build.sh: no image $image; there are knack knack-gateway sandbox-python sandbox-node sandbox-office packages-builder runner" >&2 && exit 2 ;;
  esac
done
