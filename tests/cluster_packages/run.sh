#!/usr/bin/env bash
# Environments of packages on a cluster, from a loopback index and a real registry: tests/cluster_packages/run.sh [PART]...
# builder: `knack packages build` on this machine. cluster: a release with packages on the test bed, which is up and has the images.
# Not without their names: standard, the standard environment there (make test-standard); office, the programs of the image
# sandbox-office in its pods (make test-office). KNACK_PROGRAM names knack. Closes with `N passed, N failed, N skipped`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KNACK_PROGRAM=${KNACK_PROGRAM:-$PWD/target/release/knack}
KNACK_REGISTRY=$(tests/cluster/binaries/build.sh registry)/registry
KNACK_UV=${KNACK_UV:-$(tools/uv.sh)}
HELM=${HELM:-$(tests/cluster/binaries/build.sh helm)/helm}
export KNACK_REGISTRY KNACK_UV HELM
export KNACK_IMAGES=${KNACK_IMAGES:-$PWD/target/images}

# The files of a lock, fetched once from the index that pip is configured for: there is none in the bed. By the Python of the images,
# which is the distribution's: which versions the lock has depends on it.
wheels_of() { # name, lock
  local lock=$2 folder pip
  pip=$("$(dirname "$(tools/uv.sh)")/python" -c 'import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))')
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/knack/$1-$({ /usr/bin/python3 --version && cat "$lock"; } | sha256sum | cut -c1-16)
  if [ ! -e "$folder/ready" ]; then
    mkdir -p "$folder"
    PYTHONPATH=$pip tools/again.sh 3 /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
      --dest "$folder" -r "$lock" >&2 || return
    touch "$folder/ready"
  fi
  echo "$folder"
}

inside=()
if [ "${KNACK_NO_CLUSTER:-}" != 1 ] && [ "$*" != builder ]; then
  inside=(tests/cluster/bed shell)
  # Where the node's settings for registries are.
  KNACK_BED_DIR=$(eval "$(tests/cluster/bed env)" && echo "$KNACK_BED_DIR")
  export KNACK_BED_DIR
  case " $* " in *" standard "*)
    KNACK_STANDARD_WHEELS=$(wheels_of standard crates/packages/src/data/standard.lock)
    export KNACK_STANDARD_WHEELS
    ;;
  esac
  case " ${*:-cluster} " in *" cluster "*)
    KNACK_EXAMPLE_WHEELS=
    for lock in examples/packages/*/requirements.lock; do
      folder=$(wheels_of example "$lock")
      KNACK_EXAMPLE_WHEELS+=${KNACK_EXAMPLE_WHEELS:+:}$folder
    done
    export KNACK_EXAMPLE_WHEELS
    ;;
  esac
fi
exec "${inside[@]}" /usr/bin/python3 -B tests/cluster_packages/main.py "$@"
