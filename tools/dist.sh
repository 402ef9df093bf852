#!/usr/bin/env bash
# dist.sh [--debug] [--output FOLDER] [PLATFORM...]: a release as files; docs/release.md says what is in it.
# Platforms are linux/amd64 and linux/arm64, both unless told. The same commit, toolchain and packages give the same bytes.
# --debug: development builds, for tests. KNACK_PROGRAM, KNACK_GATEWAY_PROGRAM and KNACK_RUNNER_PROGRAM name programs of this machine that are built already.
set -euo pipefail
cd "$(dirname "$0")/.."
output=dist flags=() platforms=()
while [ $# -gt 0 ]; do
  case $1 in
    --debug) flags=(--debug) ;;
    --output) output=$2 && shift ;;
    linux/amd64 | linux/arm64) platforms+=("${1#linux/}") ;;
    *) sed -n '2,4{s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
  esac
  shift
done
[ ${#platforms[@]} -gt 0 ] || platforms=(amd64 arm64)
tools/setup.sh "${platforms[@]}"

registry=ghcr.io/knack-dev
version=$(tools/dist/files.py version)
images=(knack knack-gateway sandbox-python sandbox-node packages-builder runner)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for platform in "${platforms[@]}"; do
  programs=(env)
  # Programs that are built already are this machine's.
  [ "$platform" = "$(dpkg --print-architecture)" ] || programs=(env -u KNACK_PROGRAM -u KNACK_GATEWAY_PROGRAM -u KNACK_RUNNER_PROGRAM)
  "${programs[@]}" images/build.sh ${flags[@]+"${flags[@]}"} --architecture "$platform" --registry $registry --tag "$version" --gzip \
    --output "$work/$platform" "${images[@]}" >/dev/null
done

# Whole or not at all: what is there from an earlier release must not be taken for a part of this one.
new=$work/dist
mkdir -p "$new/images"
for image in "${images[@]}"; do
  archives=()
  for platform in "${platforms[@]}"; do archives+=("$work/$platform/$image.tar"); done
  digest=$(images/index.py --output "$new/images/$image.tar" --name "$registry/$image:$version" "${archives[@]}")
  echo "$registry/$image@$digest"
done >"$new/images.txt"
tools/dist/files.py charts "$new"
tools/dist/sbom.py "$new" "$work" >"$new/sbom.cdx.json"
(cd "$new" && find . -type f -not -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >"$work/sums" && mv "$work/sums" SHA256SUMS)
mkdir -p "$(dirname "$output")"
rm -rf "$output"
mv "$new" "$output"
echo "dist: $version for ${platforms[*]} in $output"
