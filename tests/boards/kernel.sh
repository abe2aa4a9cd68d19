# SPDX-License-Identifier: Apache-2.0
# Sourced after ../aarch64/tools.sh: Linux kernels for arm64 with their modules, and an emulator of newer cores than this
# machine's Debian has, out of Debian's packages, never installed.
#
# In: the machine's own list of Debian mirrors, asked for the suite that has a kernel of 16 KiB pages. Out: files below
# build/aarch64. A kernel of 64 KiB pages is not among that suite's packages.
suite=trixie
kernels=$work/kernels

# The mirrors are the machine's, whatever they are; only the suite is another one. Its lists are kept apart.
prepare_suite() {
  prepare_apt || return 1
  local at=$work/apt-$suite file
  mkdir -p "$at/state/lists/partial" "$at/cache/archives/partial" "$at/sources"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed "s/\b$(. /etc/os-release && echo "$VERSION_CODENAME")\b/$suite/g" "$file" >"$at/sources/${file##*/}"
  done
  [ ! -e "$at/sources/sources.list" ] || mv "$at/sources/sources.list" "$at/sources/main.list"
  sed "s|$work/apt/|$at/|" "$work/apt/conf" >"$at/conf"
  printf 'Dir::State::status "%s";\nDir::Cache "%s";\nDir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "%s";\n' \
    "$work/apt/status" "$at/cache" "$at/sources" >>"$at/conf"
  [ -f "$at/updated" ] && [ -n "$(find "$at/updated" -mmin -720)" ] && return
  APT_CONFIG=$at/conf apt-get -qq update >"$at/log" 2>&1 || { tail -3 "$at/log"; return 1; }
  touch "$at/updated"
}

# need_newer: `board_newer` is an emulator that knows Armv9 cores (QEMU 8 and newer).
need_newer() {
  prepare_suite || return 1
  apt_conf=$work/apt-$suite/conf fetch_programs "$work/boards-$suite" qemu-system-arm qemu-system-aarch64 || return 1
  board_newer=$work/boards-$suite/qemu-system-aarch64
  "$board_newer" --version
}

# fetch_kernel PAGES FLAVOUR: kernels/PAGES/vmlinuz and modules/, of the newest package of that flavour.
fetch_kernel() {
  local at=$kernels/$1 name deb
  [ ! -e "$at/release" ] || return 0
  prepare_suite || return 1
  name=$(APT_CONFIG=$work/apt-$suite/conf apt-cache depends "linux-image-$2:arm64" | grep -oE 'linux-image-[0-9][^ :]*' | head -1)
  [ -n "$name" ] || { echo "no package linux-image-$2 for arm64"; return 1; }
  rm -rf "$at" && mkdir -p "$at/get" "$at/modules"
  (cd "$at/get" && APT_CONFIG=$work/apt-$suite/conf apt-get -qq download "$name:arm64") || return 1
  deb=$(ls "$at"/get/*.deb)
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$at/get" --wildcards './boot/vmlinuz-*' '*.ko.xz'
  mv "$at"/get/boot/vmlinuz-* "$at/vmlinuz"
  find "$at/get" -name '*.ko.xz' | grep -E "/($(IFS='|'; echo "${modules[*]}"))\.ko\.xz$" | xargs -I{} mv {} "$at/modules/"
  rm -rf "$at/get"
  echo "${name#linux-image-}" >"$at/release"
}

# What the initial memory disk loads; those that are built in are not among a kernel's modules.
modules=(crc16 mbcache jbd2 crc32c_generic libcrc32c ext4 virtio_blk overlay)
