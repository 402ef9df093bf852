#!/usr/bin/env bash
# npm.sh: prints a folder for PATH whose npm is new enough to be kept from every source but the index (src/packages/node/npm.rs): that of
# this machine, or a pinned one, which is fetched once below the cache directory.
set -euo pipefail
version=11.19.1
sha512=ztsxKxt/kkIaAs+2i0GU6I+DRmUdrNasxTZKJe9TCdSjKxlhah/4r/hl5ygMD6XAg1qZ9c2TNomR4qgOydp10g==
npm=$(command -v npm) || { echo "npm.sh: npm is missing, which fetches the one that tests need; install it with Node" >&2; exit 1; }
own=$(npm --version)
if [ "$(printf '%s\n' "$version" "$own" | sort -V | head -n 1)" = "$version" ]; then
  dirname "$npm"
  exit
fi
tools=$(dirname "$(readlink -f "$0")")
home=${XDG_CACHE_HOME:-$HOME/.cache}/knack/npm-$version
mkdir -p "$(dirname "$home")"
exec 8>"$home.lock"
flock 8
if [ ! -e "$home/bin/npm" ]; then
  rm -rf "$home.partial" && mkdir -p "$home.partial/bin"
  "$tools/again.sh" 3 npm pack --silent --pack-destination "$home.partial" "npm@$version" >/dev/null
  archive=$home.partial/npm-$version.tgz
  [ "$(python3 -c 'import base64, hashlib, sys; print(base64.b64encode(hashlib.sha512(open(sys.argv[1], "rb").read()).digest()).decode())' "$archive")" = "$sha512" ] ||
    { echo "npm.sh: the registry gave another npm $version than the pinned one" >&2; exit 1; }
  # It brings its dependencies.
  tar -xzf "$archive" -C "$home.partial"
  rm "$archive"
  ln -s ../package/bin/npm-cli.js "$home.partial/bin/npm"
  chmod 755 "$home.partial/package/bin/npm-cli.js"
  rm -rf "$home" && mv -T "$home.partial" "$home"
fi
echo "$home/bin"
