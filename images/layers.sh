# Folders that become layers. Sourced by the image builders; every function fills the folder it is given.

# Modes of what is made here must not depend on the caller.
umask 022

CACHE=${KNACK_CACHE:-$HOME/.cache/knack}
IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Packages that Python's own packages name but that a sandbox must not hold (shell tools, perl, dpkg) or has no use for.
UNWANTED='^(dpkg|tar|install-info|perl.*|libperl.*|mailcap|media-types|mime-support|readline-common|gcc-.*-base|libgdbm.*|libacl1|libmd0|libpcre2.*|libselinux1|libzstd1|.*-doc|debconf.*|cdebconf.*)$'

fresh() { rm -rf "$1" && mkdir -p "$1"; }

# Downloads Debian packages once and unpacks them. Their maintainer scripts are not run.
unpack_packages() { # folder, package...
  local folder=$1 debs=$CACHE/debs name file
  shift
  mkdir -p "$debs"
  for name in "$@"; do
    file=$(compgen -G "$debs/${name}_*.deb" | head -n1 || true)
    if [ -z "$file" ]; then
      (cd "$debs" && apt-get download -qq -o APT::Sandbox::User=root "$name" >/dev/null)
      file=$(compgen -G "$debs/${name}_*.deb" | head -n1)
    fi
    dpkg-deb -x "$file" "$folder"
  done
}

# The package and what it depends on, without what UNWANTED names.
closure() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
    grep -E '^[a-z0-9]' | sed 's/:.*//' | sort -u | grep -Ev "$UNWANTED"
}

# What every image of ours has: users by name, mount points, and two writable places.
# Old runc gives a tmpfs the mode of the folder below it, so /work and /tmp are 1777 here.
skeleton() { # folder
  mkdir -p "$1"/{etc,proc,sys,dev,tmp,work}
  chmod 1777 "$1/tmp" "$1/work"
  printf 'root:x:0:0::/:/bin/false\nknack:x:65532:65532::/work:/bin/false\n' >"$1/etc/passwd"
  printf 'root:x:0:\nknack:x:65532:\n' >"$1/etc/group"
  printf 'hosts: files dns\n' >"$1/etc/nsswitch.conf"
}

# A program of this machine with the libraries it is linked to. Nothing if it is static.
program() { # folder, program, path in the image
  local library
  install -D -m 755 "$2" "$1/$3"
  { ldd "$2" 2>/dev/null || true; } | grep -oE '/[^ ]+\.so[^ ]*' | sort -u | while read -r library; do
    [ -e "$1/$library" ] || install -D -m 755 "$(readlink -f "$library")" "$1/$library"
  done
}

python_layer() { # folder
  local python
  python=$(apt-cache depends --important python3 | grep -oE 'python3\.[0-9]+$' | head -n1)
  [ -n "$python" ] || { echo "images: apt-cache knows no python3; run: apt-get update" >&2; return 1; }
  fresh "$1"
  # shellcheck disable=SC2046
  unpack_packages "$1" $(closure "$python" libsqlite3-0)
  ln -sf "$python" "$1/usr/bin/python3"
  rm -rf "$1"/usr/share/{doc,man,lintian,locale,pixmaps,applications,bug,menu,binfmts} \
    "$1/usr/lib/$python"/{test,idlelib,lib2to3,ensurepip,distutils,pydoc_data,turtledemo}
  # Character set tables of the C library: Python has its own codecs.
  rm -rf "$1"/usr/lib/*/gconv
  rm -f "$1"/usr/bin/{pdb,pydoc,pygettext,2to3}* "$1"/usr/sbin/* "$1"/sbin/* "$1"/usr/bin/{getconf,getent,iconv,ldd,locale,localedef,tzselect,zdump,catchsegv,pldd}
  # Bytecode by content, not by time: the image's times are zero, and what cannot be written is compiled at every start.
  /usr/bin/python3 -c 'import sys' && [ "$(readlink -f /usr/bin/python3)" = "/usr/bin/$python" ] &&
    /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$1" "$1/usr/lib/$python" || true
  no_shell "$1"
}

node_layer() { # folder
  local node
  node=$(readlink -f "$(command -v node)") || { echo "images: node is missing; run: tools/setup.sh" >&2; return 1; }
  fresh "$1"
  program "$1" "$node" /usr/bin/node
  no_shell "$1"
}

no_shell() {
  local shells
  shells=$(find "$1" \( -name sh -o -name bash -o -name dash -o -name busybox -o -name perl \) -not -type d)
  [ -z "$shells" ] || { echo "images: a shell in $1: $shells" >&2; return 1; }
}
