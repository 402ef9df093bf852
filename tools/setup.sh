#!/usr/bin/env bash
# Installs what building and testing need. As root on a Debian-like machine it does so itself and says so; elsewhere it
# names it in one line that can be pasted. No sudo behind anybody's back.
# setup.sh: what every build and test needs. setup.sh cluster: also what the real cluster of the tests needs.
# setup.sh sdk: also what the tests with official SDKs need.
# setup.sh peers: also what the comparison with other gateways needs.
# setup.sh amd64|arm64...: also the compiler and the standard library for programs of that architecture.
set -euo pipefail

# command -> Debian package
declare -A NEEDS=(
  [cc]=build-essential [python3]=python3 [ip]=iproute2 [unshare]=util-linux [git]=git [node]=nodejs [setpriv]=util-linux
)
packages=()
if [ "${1:-}" = cluster ]; then
  NEEDS+=(
    [runc]=runc [nft]=nftables [iptables]=iptables [openssl]=openssl [buildah]=buildah [jq]=jq [strip]=binutils
    [sysctl]=procps [nsenter]=util-linux [flock]=util-linux [faketime]=faketime
  )
  # It has no program on the path.
  [ -x /usr/lib/cni/bridge ] || packages+=(containernetworking-plugins)
  [ -f /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
fi
# The JavaScript SDKs come by npm; they bring the Node that they ask for.
[ "${1:-}" != sdk ] || NEEDS+=([npm]=npm)
[ "${1:-}" != peers ] || NEEDS+=([npm]=npm [wrk]=wrk)
architectures=()
for architecture in "$@"; do
  case $architecture in
    amd64) machine=x86_64 gcc=gcc-x86-64-linux-gnu ;;
    arm64) machine=aarch64 gcc=gcc-aarch64-linux-gnu ;;
    *) continue ;;
  esac
  architectures+=("$machine-unknown-linux-gnu")
  NEEDS+=([readelf]=binutils)
  if [ "$(uname -m)" != "$machine" ]; then
    NEEDS+=(["$machine-linux-gnu-gcc"]=$gcc)
    [ -d "/usr/$machine-linux-gnu/include" ] || packages+=("libc6-dev-$architecture-cross")
  fi
done
export PATH=$PATH:/usr/sbin:/sbin
for command in "${!NEEDS[@]}"; do
  command -v "$command" >/dev/null 2>&1 || packages+=("${NEEDS[$command]}")
done
# The sandbox's user must reach a python of its own, so the distribution's is wanted even where a version manager has one.
[ -x /usr/bin/python3 ] || packages+=(python3)
/usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)

if [ ${#packages[@]} -gt 0 ]; then
  mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
  if [ "$(uname -s)" != Linux ] || ! command -v apt-get >/dev/null; then
    echo "knack: please install: ${packages[*]}" >&2
    exit 1
  elif [ "$(id -u)" != 0 ]; then
    echo "knack: some packages are missing; paste this: sudo apt-get install -y --no-install-recommends ${packages[*]}" >&2
    exit 1
  fi
  echo "knack: installing ${packages[*]} (apt-get)"
  export DEBIAN_FRONTEND=noninteractive
  # Together: an update in which a list was not read ends well, and the package is unknown then. Machines that were just started hold
  # dpkg's lock for updates of their own.
  get_packages() {
    local apt=(apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
    timeout 600 "${apt[@]}" update -qq && timeout 1200 "${apt[@]}" install -y -qq --no-install-recommends "$@" >/dev/null
  }
  export -f get_packages
  "$(dirname "$0")/again.sh" 3 bash -c 'get_packages "$@"' get_packages "${packages[@]}"
fi

if ! command -v cargo >/dev/null; then
  echo "knack: Rust is missing; paste this: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\"" >&2
  exit 1
fi
if [ "${1:-}" = cluster ] && ! command -v go >/dev/null; then
  echo "knack: Go 1.21 or newer is missing (it fetches the version that the cluster needs): https://go.dev/dl" >&2
  exit 1
fi
for target in ${architectures[@]+"${architectures[@]}"}; do
  [ "$target" != "$(uname -m)-unknown-linux-gnu" ] || continue
  command -v rustup >/dev/null || { echo "knack: rustup is missing, which brings Rust's standard library for $target" >&2; exit 1; }
  "$(dirname "$0")/again.sh" 3 rustup -q target add "$target"
done
