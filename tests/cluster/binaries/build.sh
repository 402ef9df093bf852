#!/usr/bin/env bash
# build.sh MODULE...: builds the programs of each module beside this file, prints the folder of each, one per line.
#
# A folder is $KNACK_CACHE/cluster/MODULE-<hash of the module's files and of the Go version>: built once, whole or not at
# all, and found again by every checkout that pins the same versions. Go's own caches may be thrown away afterwards.
# The modules ask for the same versions of what they share (align.sh): what the first of them compiles is there for the others.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${KNACK_CACHE:-$HOME/.cache/knack}/cluster
# How often a build that takes minutes says so, in seconds.
PROGRESS_SECONDS=15

fingerprint() {
  { go env GOVERSION GOOS GOARCH; cd "$here/$1" && cat go.mod recipe.sh $(ls go.sum ./*.go ./*/*.go 2>/dev/null); } | sha256sum | cut -c1-16
}

build() { # module, folder
  local module=$1 folder=$2 begun=$SECONDS log pid
  mkdir -p "$cache"
  # One build at a time: two would only take each other's memory.
  exec 8>"$cache/.lock"
  flock 8
  [ ! -d "$folder" ] || return 0
  local minutes flags
  afterwards() { :; }
  # shellcheck source=/dev/null
  . "$here/$module/recipe.sh"
  local made=$folder.partial
  log=$folder.log
  rm -rf "$made" && mkdir -p "$made"
  echo "building $module for the test cluster; from nothing about $minutes min on 2 cores" >&2
  # The compiler need not describe for debuggers what `-ldflags "-s -w"` throws away: 6 % of its time.
  # Before that the modules are fetched: go asks their proxy once only.
  (
    cd "$here/$module" && export CGO_ENABLED=0
    "$here/../../../tools/again.sh" 3 go list -deps "${flags[@]}" >/dev/null || exit
    exec go build -trimpath -gcflags=all=-dwarf=false -o "$made/" "${flags[@]}"
  ) >"$log" 2>&1 8>&- &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    timeout "$PROGRESS_SECONDS" tail --pid="$pid" -f /dev/null || true
    ! kill -0 "$pid" 2>/dev/null || echo "building $module: $((SECONDS - begun)) s" >&2
  done
  if ! wait "$pid"; then
    cat "$log" >&2
    echo "building $module failed" >&2
    exit 1
  fi
  afterwards "$made"
  rm -f "$log"
  mv -T "$made" "$folder"
  exec 8>&-
}

for module in "$@"; do
  [ -f "$here/$module/recipe.sh" ] || { echo "build.sh: no module $module in $here" >&2; exit 2; }
  command -v go >/dev/null || { echo "knack: Go (1.21 or newer, it fetches the version it needs) is missing: https://go.dev/dl" >&2; exit 1; }
  folder=$cache/$module-$(fingerprint "$module")
  [ -d "$folder" ] || build "$module" "$folder"
  echo "$folder"
done
