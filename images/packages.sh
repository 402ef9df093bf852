# Debian packages of one architecture, by apt but beside the machine's own: lists, state and downloads of Knack's cache, the
# machine's Debian sources without those of others. So an amd64 machine reads packages of arm64, and two machines read the same.
# Sourced by layers.sh; the architecture is $ARCHITECTURE (amd64 or arm64).

NATIVE=$(dpkg --print-architecture)
ARCHITECTURE=${ARCHITECTURE:-$NATIVE}
# Lists older than this many minutes are fetched again: a new image has the security updates of its day.
LISTS_MINUTES=1440

# Packages that Python's and node's own packages name but that a sandbox must not hold (shell tools, perl, dpkg) or has no use for.
UNWANTED='^(dpkg|tar|install-info|perl.*|libperl.*|mailcap|media-types|mime-support|readline-common|libgdbm.*|libacl1|libmd0|libpcre2.*|libselinux1|libzstd1|.*-doc|debconf.*|cdebconf.*)$'

# The same for the office image, which has shell tools and the types of media: no perl, nothing that installs, signs or logs in.
OFFICE_UNWANTED='^(dpkg|tar|perl.*|libperl.*|lib.*-perl|usrmerge|init-system-helpers|sysvinit-utils|debconf|passwd|adduser|gpg.*|gnupg.*|dirmngr|pinentry-.*|libpam.*|libaudit.*|libsemanage.*|libsepol2|libcap-ng0|libgdbm.*|ucf|sensible-utils|iso-codes|libcap2-bin|base-files|readline-common|lsb-base|x11-common|libksba8|libnpth0)$'

apt_folder() { echo "$CACHE/apt/$ARCHITECTURE-$(. /etc/os-release && echo "$ID-${VERSION_CODENAME:-}")"; }

# An apt command for the architecture.
of_architecture() { # command...
  APT_CONFIG=$(apt_folder)/apt.conf "$@"
}

# Makes the lists, or renews them once a day. Old ones do where there is no network.
refresh_lists() {
  local folder sources
  folder=$(apt_folder)
  for sources in /etc/apt/sources.list.d/{debian,ubuntu}.sources /etc/apt/sources.list; do
    [ ! -s "$sources" ] || break
  done
  [ -s "$sources" ] || { echo "images: no package sources in /etc/apt; images are made on Debian" >&2; return 1; }
  mkdir -p "$folder"/{state/lists/partial,cache/archives/partial} "$CACHE/debs"
  (
    flock 8
    [ -z "$(find "$folder/fresh" -mmin "-$LISTS_MINUTES" 2>/dev/null)" ] || exit 0
    : >"$folder/status"
    cat >"$folder/apt.conf" <<CONF
APT::Architecture "$ARCHITECTURE";
APT::Architectures { "$ARCHITECTURE"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Update::Error-Mode "any";
Dir::State "$folder/state";
Dir::State::status "$folder/status";
Dir::Cache "$folder/cache";
Dir::Etc::sourcelist "$sources";
Dir::Etc::sourceparts "/dev/null";
CONF
    # A list that was not read is an error: for a day its packages would be unknown. Without older ones it is tried again.
    local tries=3
    [ ! -e "$folder/fresh" ] || tries=1
    if of_architecture "$IMAGES/../tools/again.sh" $tries apt-get update -qq >"$folder/update.log" 2>&1; then
      touch "$folder/fresh"
    elif [ -e "$folder/fresh" ]; then
      echo "images: the package lists could not be renewed, older ones are used; see $folder/update.log" >&2
    else
      cat "$folder/update.log" >&2
      exit 1
    fi
  ) 8>"$folder/lock"
}

# The packages as lines `FILE SHA256`, in the version of the lists; FILE is NAME_VERSION_ARCHITECTURE.deb as apt writes it.
locked_packages() { # package...
  # One that another architecture shares is named the same and has `all` for its architecture.
  of_architecture apt-get download --print-uris "$@" | sed -nE "s/^'[^']*' ([^ ]+) [0-9]+ SHA256:([0-9a-f]{64})\$/\1 \2/p" | sort
}

# The packages and what they depend on, without what UNWANTED names.
closure() {
  of_architecture apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
    grep -E '^[a-z0-9]' | sed 's/:.*//' | sort -u | grep -Ev "$UNWANTED"
}

# The packages and what they depend on, with one of each alternative as apt chooses it, without what OFFICE_UNWANTED names.
resolved() {
  of_architecture apt-get install --print-uris -qq -y --no-install-recommends "$@" |
    sed -nE "s/^'[^']*' ([^_]+)_.*/\1/p" | sort -u | grep -Ev "$OFFICE_UNWANTED"
}

# Downloads packages once, checks them, and unpacks them. Their maintainer scripts are not run. The lines of locked_packages come
# in on standard input.
unpack_locked() { # folder
  local file sum name lines missing=()
  lines=$(cat)
  mkdir -p "$1"
  (
    flock 8
    while read -r file sum; do
      name=${file%_*}
      # apt writes a colon of a version as %3a.
      [ -f "$CACHE/debs/$file" ] || missing+=("${name%%_*}=$(sed 's/%3a/:/' <<<"${name#*_}")")
    done <<<"$lines"
    cd "$CACHE/debs"
    [ ${#missing[@]} = 0 ] || of_architecture "$IMAGES/../tools/again.sh" 3 apt-get download -qq "${missing[@]}" >/dev/null
  ) 8>"$CACHE/debs/.lock"
  while read -r file sum; do
    echo "$sum  $CACHE/debs/$file" | sha256sum --check --status || { echo "images: $CACHE/debs/$file is not the package of the lists; remove it" >&2; return 1; }
    dpkg-deb -x "$CACHE/debs/$file" "$1"
  done <<<"$lines"
}

unpack_packages() { # folder, package...
  local folder=$1
  shift
  refresh_lists
  locked_packages "$@" | unpack_locked "$folder"
}
