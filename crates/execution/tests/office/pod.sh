#!/bin/bash
# pod.sh ROOT UID [PACKAGES]: the runner of an image, with what a sandbox pod gives it. The image's root is read-only, /work is an empty file
# system in memory, there is no network and no process of others; PACKAGES, an environment, is at its own path. Frames on stdin and stdout. Needs root.
set -euo pipefail
# shellcheck disable=SC2016
exec unshare --mount --pid --net --ipc --uts --fork --kill-child bash -euc '
  root=$0 uid=$1 packages=${2:-}
  mount --make-rprivate /
  [ -z "$packages" ] || mkdir -p "$root$packages"
  mount --bind "$root" "$root" && mount -o remount,ro,bind "$root"
  mount -t tmpfs -o "size=512m,mode=1777" work "$root/work"
  [ -z "$packages" ] || mount --bind "$packages" "$root$packages"
  mount -t proc proc "$root/proc"
  mount -t tmpfs dev "$root/dev"
  for device in null zero full random urandom; do
    touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
  done
  mkdir "$root/dev/shm" && mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
  exec env -i "$(command -v chroot)" --userspec="$uid:$uid" --groups= "$root" /knack/knack-runner
' "$@"
