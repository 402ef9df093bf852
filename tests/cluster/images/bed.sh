#!/usr/bin/env bash
# bed.sh: makes the images that the bed itself needs, once; prints their archives, one per line.
# pause and coredns are our own builds; busybox is for tests that want a shell, a server or a client in a pod. Each script
# of broken/ is a sandbox image whose runner is that script.
set -euo pipefail
cluster=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=/dev/null
. "$cluster/../../images/layers.sh"
mapfile -t folders < <("$cluster/binaries/build.sh" pause coredns)
[ ${#folders[@]} = 2 ]
target=$CACHE/cluster/images-$(cat "${BASH_SOURCE[0]}" "$IMAGES/layers.sh" "$IMAGES/packages.sh" "$IMAGES/archive.py" "$cluster"/images/broken/*.sh <(echo "${folders[@]}") | sha256sum | cut -c1-16)
if [ ! -d "$target" ]; then
  work=$target.partial
  fresh "$work"
  skeleton "$work/pause" && cp "${folders[0]}/pause" "$work/pause/"
  skeleton "$work/coredns" && cp "${folders[1]}/coredns" "$work/coredns/"
  skeleton "$work/busybox" && unpack_packages "$work/unpacked" busybox-static
  install -D -m 755 "$work"/unpacked/*/busybox "$work/busybox/bin/busybox" 2>/dev/null ||
    install -D -m 755 "$work"/unpacked/usr/bin/busybox "$work/busybox/bin/busybox"
  for applet in $("$work/busybox/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$work/busybox/bin/$applet"
  done
  image() { # name, entrypoint, layers...
    local name=$1 entrypoint=$2
    shift 2
    "$IMAGES/archive.py" --output "$work/$name.tar" --name "knack.local/$name:bed" --entrypoint "$entrypoint" --env PATH=/bin "$@" >&2
  }
  image pause /pause "$work/pause"
  image coredns /coredns "$work/coredns"
  image busybox /bin/sh "$work/busybox"
  for script in "$cluster"/images/broken/*.sh; do
    name=$(basename "$script" .sh)
    install -D -m 755 "$script" "$work/broken-$name/knack/knack-runner"
    image "$name" /knack/knack-runner "$work/busybox" "$work/broken-$name"
  done
  find "$work" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
  mv -T "$work" "$target"
fi
ls "$target"/*.tar
