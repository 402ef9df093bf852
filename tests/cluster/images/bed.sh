#!/usr/bin/env bash
# bed.sh: makes the images that the bed itself needs, once; prints their archives, one per line.
# pause and coredns are our own builds; busybox is for tests that want a shell, a server or a client in a pod.
set -euo pipefail
cluster=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=/dev/null
. "$cluster/../../images/layers.sh"
mapfile -t folders < <("$cluster/binaries/build.sh" pause coredns)
[ ${#folders[@]} = 2 ]
target=$CACHE/cluster/images-$(cat "${BASH_SOURCE[0]}" "$IMAGES/layers.sh" "$IMAGES/archive.py" <(echo "${folders[@]}") | sha256sum | cut -c1-16)
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
  image() { "$IMAGES/archive.py" --output "$work/$1.tar" --name "knack.local/$1:bed" --entrypoint "$2" --env PATH=/bin "$work/$1" >&2; }
  image pause /pause
  image coredns /coredns
  image busybox /bin/sh
  rm -rf "$work"/{pause,coredns,busybox,unpacked}
  mv -T "$work" "$target"
fi
ls "$target"/*.tar
