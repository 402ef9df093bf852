#!/usr/bin/env bash
# uv.sh [amd64|arm64]: prints the path of a pinned uv, installed once below the cache directory: that of this machine, which tests
# use, or that of an architecture, for images.
set -euo pipefail
tools=$(dirname "$(readlink -f "$0")")
pins=$tools/uv.txt
python=$("$tools/environment.sh" uv "$pins" --require-hashes --only-binary :all:)
home=$(dirname "$(dirname "$python")")
case ${1:-} in
  "") echo "$home/bin/uv" && exit 0 ;;
  amd64) platform=manylinux_2_17_x86_64 ;;
  arm64) platform=manylinux_2_17_aarch64 ;;
  *) echo "uv.sh: no architecture $1; there are amd64 and arm64" >&2 && exit 2 ;;
esac
folder=$home/$1
if [ ! -e "$folder/uv" ]; then
  exec 8>"$folder.lock"
  flock 8
fi
if [ ! -e "$folder/uv" ]; then
  rm -rf "$folder.partial" && mkdir -p "$folder.partial"
  "$tools/again.sh" 3 "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
    --platform "$platform" --dest "$folder.partial" -r "$pins" >&2
  "$python" - "$folder.partial" <<'PYTHON'
import glob, os, sys, zipfile
folder = sys.argv[1]
[wheel] = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as packed:
    [name] = [name for name in packed.namelist() if name.endswith(".data/scripts/uv")]
    with open(folder + "/uv", "wb") as program:
        program.write(packed.read(name))
os.chmod(folder + "/uv", 0o755)
os.remove(wheel)
PYTHON
  rm -rf "$folder" && mv -T "$folder.partial" "$folder"
fi
echo "$folder/uv"
