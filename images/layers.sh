# Folders that become layers. Sourced by the image builders; every function fills the folder it is given.

# Modes of what is made here must not depend on the caller.
umask 022

CACHE=${KNACK_CACHE:-$HOME/.cache/knack}
IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$IMAGES/packages.sh"

fresh() { rm -rf "$1" && mkdir -p "$1"; }

# GNU's name of the architecture, which its tools and library folders carry.
machine() { case $ARCHITECTURE in amd64) echo x86_64 ;; arm64) echo aarch64 ;; *) echo "images: no architecture $ARCHITECTURE" >&2 && return 1 ;; esac; }

# What every image of Knack has: users by name, mount points, and two writable places.
# Old runc gives a tmpfs the mode of the folder below it, so /work and /tmp are 1777 here.
skeleton() { # folder
  mkdir -p "$1"/{etc,proc,sys,dev,tmp,work}
  chmod 1777 "$1/tmp" "$1/work"
  printf 'root:x:0:0::/:/bin/false\nknack:x:65532:65532::/work:/bin/false\n' >"$1/etc/passwd"
  printf 'root:x:0:\nknack:x:65532:\n' >"$1/etc/group"
  printf 'hosts: files dns\n' >"$1/etc/nsswitch.conf"
}

# /tmp of a run is its own temporary folder: below the work volume, where src/jobs/pods/start.rs has the run made. Without a run it
# leads nowhere.
private_tmp() { rmdir "$1/tmp" && ln -s /work/run/work/.tmp "$1/tmp"; } # folder

# What a layer takes of Debian, as words for apt.
knack_packages() { closure libc6 libgcc-s1 && echo ca-certificates; }
# Wheels bring their libraries, but not the runtime of C++: PEP 600 has it with the system.
python_packages() { closure "$(python_version)" libsqlite3-0 libstdc++6; }
node_packages() { closure nodejs; }
office_packages() { resolved libreoffice-{writer,calc,impress} pandoc poppler-utils qpdf tesseract-ocr{,-eng} fonts-{dejavu-core,liberation} bash dash coreutils grep sed nodejs "$(python_version)" libsqlite3-0; }

python_version() {
  of_architecture apt-cache depends --important python3 | grep -oE 'python3\.[0-9]+$' | head -n1
}

# The folder of a layer made of packages. It is made once: what is in it changes only with the scripts and the packages' versions.
# The packages stand in FOLDER.packages, as locked_packages writes them.
cached_layer() { # knack, python, node or office
  local lines folder
  refresh_lists
  # shellcheck disable=SC2046
  lines=$(locked_packages $("$1_packages"))
  [ -n "$lines" ] || { echo "images: apt knows no packages for $1 on $ARCHITECTURE" >&2; return 1; }
  folder=$CACHE/layers/$1-$ARCHITECTURE-$({ cat "$IMAGES"/{layers,packages,office}.sh "$IMAGES"/office/* && echo "$lines"; } | sha256sum | cut -c1-16)
  mkdir -p "$CACHE/layers"
  (
    flock 9
    [ ! -d "$folder" ] || exit 0
    echo "making the $1 layer for $ARCHITECTURE" >&2
    fresh "$folder.partial"
    unpack_locked "$folder.partial" <<<"$lines" >&2
    "$1_layer" "$folder.partial" >&2
    # Of the packages' pages their licences stay; some are links to the folder of another package.
    find "$folder.partial/usr/share/doc" -type f -not -name copyright -delete
    rm -rf "$folder.partial"/usr/share/{man,lintian,locale,pixmaps,applications,bug,menu,binfmts,gdb,bash-completion}
    find "$folder.partial" -type d -empty -delete
    # Where packages put everything below /usr, programs still ask for these.
    for link in lib lib64; do
      [ -e "$folder.partial/$link" ] || [ ! -d "$folder.partial/usr/$link" ] || ln -s "usr/$link" "$folder.partial/$link"
    done
    skeleton "$folder.partial"
    # The others run no skill: theirs is a folder that a volume is mounted on.
    [ "$1" = knack ] || private_tmp "$folder.partial"
    [ "$1" = office ] || no_shell "$folder.partial"
    # shellcheck disable=SC2046
    [ ! -d "$folder.partial/usr/bin" ] || complete "$folder.partial" $(cd "$folder.partial" && find usr/bin -type f -exec grep -lP '^\x7fELF' {} + | sed 's|^|/|')
    echo "$lines" >"$folder.packages"
    mv -T "$folder.partial" "$folder"
  ) 9>"$folder.lock"
  rm -f "$folder.lock"
  echo "$folder"
}

# The base of a program of Knack: the C library and gcc's runtime, of which `libraries` takes what the program asks for, and the
# authorities that upstream certificates are checked against.
knack_layer() { # folder
  mkdir -p "$1/etc/ssl/certs"
  find "$1/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs -d '\n' cat >"$1/etc/ssl/certs/ca-certificates.crt"
  rm -rf "$1"/usr/share/{ca-certificates,perl5} "$1"/usr/{bin,sbin} "$1"/{bin,sbin,etc/ld.so.conf.d} "$1/etc/ca-certificates"
  # Of the C library: what programs name, and what it opens by itself to resolve names.
  find "$1"/lib/*/ "$1"/usr/lib/*/ -not -type d -not -regex '.*/\(lib\(c\|m\|gcc_s\|dl\|pthread\|rt\|resolv\|nss_dns\|nss_files\)\.so.*\|ld-linux.*\)' -delete
}

python_layer() { # folder
  local python
  python=$(python_version)
  ln -sf "$python" "$1/usr/bin/python3"
  # Child processes of a run look for it by PATH.
  ln -sf python3 "$1/usr/bin/python"
  rm -rf "$1/usr/lib/$python"/{test,idlelib,lib2to3,ensurepip,distutils,pydoc_data,turtledemo}
  # Character set tables of the C library: Python has its own codecs.
  rm -rf "$1"/usr/lib/*/gconv
  rm -f "$1"/usr/bin/{pdb,pydoc,pygettext,2to3}* "$1"/usr/sbin/* "$1"/sbin/*
  tools_of_the_c_library "$1"
  # Bytecode by content, not by time: the image's times are zero, and what cannot be written is compiled at every start.
  /usr/bin/python3 -c 'import sys' && [ "$(readlink -f /usr/bin/python3)" = "/usr/bin/$python" ] &&
    /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$1" "$1/usr/lib/$python" || true
}

node_layer() { # folder
  rm -rf "$1"/usr/lib/*/gconv
  rm -f "$1"/usr/sbin/* "$1"/sbin/* "$1/usr/bin/js"
  tools_of_the_c_library "$1"
}

# shellcheck source=/dev/null
. "$IMAGES/office.sh"

tools_of_the_c_library() { rm -f "$1"/usr/bin/{getconf,getent,iconv,ldd,locale,localedef,tzselect,zdump,catchsegv,pldd}; }

no_shell() {
  local shells
  shells=$(find "$1" \( -name sh -o -name bash -o -name dash -o -name busybox -o -name perl \) -not -type d)
  [ -z "$shells" ] || { echo "images: a shell in $1: $shells" >&2; return 1; }
}

# Fails unless each program is of the architecture and finds in the image every library that it is linked to, and they theirs.
complete() { # folder, program in the image...
  local folder=$1 seen=' ' name file needed
  shift
  while [ $# -gt 0 ]; do
    file=$1
    shift
    case $seen in *" $file "*) continue ;; esac
    seen="$seen$file "
    readelf -hW "$folder$file" | grep -qiE "Machine: .*$(machine | sed s/_/./)" || { echo "images: $file is no program of $ARCHITECTURE" >&2; return 1; }
    for name in $(readelf -dlW "$folder$file" | sed -nE 's/.*(\(NEEDED\).*\[|program interpreter: )([^]]+)\].*/\2/p'); do
      case $name in
        /*) needed=$name ;;
        *) needed=$(find "$folder"/lib* "$folder"/usr/lib* -name "$name" 2>/dev/null | head -n1) || true; needed=${needed#"$folder"} ;;
      esac
      [ -n "$needed" ] && needed=$(chroot_path "$folder" "$needed") && [ -f "$folder$needed" ] ||
        { echo "images: $file needs $name, which is not in the image" >&2; return 1; }
      set -- "$@" "$needed"
    done
  done
}

# Where a path of the image leads, by the image's own links.
chroot_path() { # folder, path
  local path=$2 target
  while [ -L "$1$path" ]; do
    target=$(readlink "$1$path")
    case $target in /*) path=$target ;; *) path=$(dirname "$path")/$target ;; esac
  done
  realpath -sm "$path"
}
