#!/usr/bin/env bash
# promtool.sh: prints the path of promtool, which tests the alerts: PROMTOOL, else that of the PATH, else the one of the
# distribution's package prometheus (about 20 MB to fetch, 50 MB kept), taken out of it once below the cache directory. The package
# itself is not installed: it would start a server. Ends with 3 where there is none and apt cannot bring one.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
found=${PROMTOOL:-$(command -v promtool || true)}
[ -z "$found" ] || { echo "$found"; exit; }

nothing() {
  echo "promtool.sh: $1; put promtool of Prometheus on the PATH, or name it in PROMTOOL: https://prometheus.io/download" >&2
  exit 3
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || nothing "this machine has no apt-get"
# Linked against the C library of its release.
release=$(. /etc/os-release && echo "$ID-${VERSION_ID:-$VERSION_CODENAME}-$(dpkg --print-architecture)")
home="${XDG_CACHE_HOME:-$HOME/.cache}/knack/promtool-$release"
if [ ! -e "$home/promtool" ]; then
  mkdir -p "$(dirname "$home")"
  exec 8>"$home.lock"
  flock 8
fi
if [ ! -e "$home/promtool" ]; then
  made=$home.partial log=$home.log
  rm -rf "$made" && mkdir -p "$made"
  # apt checks the package's sum against the signed list. As its own user it could not write here.
  apt=(apt-get -q -o Acquire::Retries=3)
  [ "$(id -u)" != 0 ] || apt+=(-o APT::Sandbox::User=root)
  said() { "$@" >"$log" 2>&1 8>&- || { cat "$log" >&2; return 1; }; }
  download=(env -C "$made" "${apt[@]}" download prometheus)
  known() { [ -n "$(apt-cache show --no-all-versions prometheus 2>/dev/null)" ]; }
  echo "promtool.sh: fetching the package prometheus for its promtool, about 20 MB" >&2
  # Without apt's lists, or with ones that name a package that was replaced since, root gets new ones.
  if ! { known && said "${download[@]}"; }; then
    [ "$(id -u)" = 0 ] || { echo "promtool.sh: if apt's lists are missing or old, paste this: sudo apt-get update" >&2; exit 1; }
    said ./again.sh 3 "${apt[@]}" update
    known || nothing "this distribution has no package prometheus"
    said ./again.sh 3 "${download[@]}"
  fi
  dpkg-deb --fsys-tarfile "$made"/prometheus_*.deb | tar -x -C "$made" --strip-components=3 ./usr/bin/promtool
  "$made/promtool" --version >/dev/null
  rm -f "$made"/prometheus_*.deb "$log"
  rm -rf "$home" && mv -T "$made" "$home"
fi
echo "$home/promtool"
