# The layer of sandbox-office: programs that public skills of documents call. Sourced by layers.sh. No maintainer script runs, so
# what those of Debian do for these programs is done here.

# The compiler of the image's one program of Knack; tools/setup.sh brings that of another architecture.
office_compiler() { [ "$ARCHITECTURE" = "$NATIVE" ] && echo cc || echo "$(machine)-linux-gnu-gcc"; }

office_layer() { # folder
  local root=$1 office=$1/usr/lib/libreoffice
  python_layer "$root"
  merged_usr "$root"
  rm -rf "$root"/usr/{sbin,games} "$root"/etc/{X11,init.d,apparmor.d,skel,default,logcheck} "$root"/usr/share/{X11,icons,zsh,systemtap}
  alternatives "$root"
  office_settings "$root" "$office"
  # Nothing may gain rights by its file.
  find "$root" -type f -perm /6000 -exec chmod ug-s {} +
  preloaded "$root"
}

# Debian's layout since bookworm: packages still put files into both places.
merged_usr() { # folder
  local name
  for name in bin sbin lib lib64; do
    [ ! -d "$1/$name" ] || { mkdir -p "$1/usr/$name" && cp -a "$1/$name/." "$1/usr/$name/" && rm -rf "${1:?}/$name"; }
    [ "$name" = sbin ] || ln -s "usr/$name" "$1/$name"
  done
}

# update-alternatives: the one that there is.
alternatives() { # folder
  local libraries
  libraries=$1/usr/lib/$(machine)-linux-gnu
  ln -sf blas/libblas.so.3 "$libraries/"
  ln -sf lapack/liblapack.so.3 "$libraries/"
  ln -sf mawk "$1/usr/bin/awk"
}

# LibreOffice's settings stand below /etc, which runs do not read: they move to what they are settings of. The layer of dconf, which
# asks a desktop's bus, goes. No cache of fonts is made: fc-cache reads those of the machine that it runs on, and reading the
# image's two dozen takes a run 20 ms.
office_settings() { # folder, LibreOffice's folder
  rm "$2/share/registry" "$2/share/psprint/psprint.conf"
  mv "$2/share/.registry" "$2/share/registry"
  mv "$1/etc/libreoffice/psprint.conf" "$2/share/psprint/"
  mv "$1/etc/libreoffice/sofficerc" "$2/share/"
  rm -rf "$1/etc/libreoffice" "$1/var" "$2/share/prereg/bundled" "$2/share/uno_packages/cache"
  sed -i 's#file:///etc/libreoffice/#file:///usr/lib/libreoffice/share/#g; s# dconf:\*##' "$2"/program/*rc
  ! grep -l /etc/libreoffice "$2"/program/*rc | grep -v sofficerc || { echo "images: LibreOffice has settings below /etc" >&2; return 1; }
  ln -sf /usr/share/fontconfig/conf.avail/10-hinting-slight.conf "$1/etc/fonts/conf.d/"
}

preloaded() { # folder
  mkdir -p "$1/usr/lib/knack"
  "$(office_compiler)" -O2 -Wall -Wextra -Werror -shared -fPIC -s -Wl,--build-id=none -o "$1/usr/lib/knack/preload.so" "$IMAGES/office/preload.c"
  echo /usr/lib/knack/preload.so >"$1/etc/ld.so.preload"
}
