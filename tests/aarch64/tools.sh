# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: where things lie, how a line is told, and tools fetched without root.
#
# In: nothing. Out: functions, and files below build/aarch64 only: no package is installed, no setting of the machine changed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
work=$repo/build/aarch64
py=$repo/.venv/bin/python
mkdir -p "$work"

say() { printf '%4ds  aarch64: %s\n' "$SECONDS" "$*"; }

# What is left out is told loudly, here and again at the end.
skipped=$work/skipped
skip() {
  printf '\n*** SKIPPED: %s ***\n\n' "$*" >&2
  printf '%s\n' "$*" >>"$skipped"
}

# One C compiler for every target, from a wheel: it needs no root and no cross libc.
zig() {
  ZIG_GLOBAL_CACHE_DIR=$work/zig-cache ZIG_LOCAL_CACHE_DIR=$work/zig-cache "$work/zig/ziglang/zig" "$@"
}

fetch_zig() {
  cmp -s "$here/tools.txt" "$work/zig/tools.txt" && return
  rm -rf "$work/zig"
  "$py" -m pip install -qq --disable-pip-version-check --require-hashes --no-deps --target "$work/zig" -r "$here/tools.txt"
  cp "$here/tools.txt" "$work/zig/tools.txt"
}

# apt with its own lists and its own empty status: sees another architecture and nothing of this machine's packages.
apt_conf=$work/apt/conf
own_apt() {
  local tool=$1
  shift
  APT_CONFIG=$apt_conf "$tool" -qq "$@"
}

prepare_apt() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no apt-get and dpkg-deb"; return 1; }
  local apt=$work/apt
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  cat >"$apt/conf" <<END
Dir::State "$apt/state";
Dir::State::lists "$apt/state/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::preferences "/dev/null";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Debug::NoLocking "true";
DPkg::Post-Invoke "";
APT::Update::Post-Invoke "";
END
  [ -f "$apt/updated" ] && [ -n "$(find "$apt/updated" -mmin -720)" ] && return
  own_apt apt-get update >"$apt/log" 2>&1 || { tail -3 "$apt/log"; return 1; }
  touch "$apt/updated"
}

# fetch_debs ARCH FOLDER PACKAGE...: the packages with all that they depend on, and nothing else, in FOLDER.
fetch_debs() {
  local arch=$1 folder=$2
  shift 2
  rm -rf "$folder" && mkdir -p "$folder/partial"
  own_apt apt-get -o "APT::Architecture=$arch" -o "Dir::Cache::archives=$folder" --no-install-recommends \
    --download-only -y install "$@" >"$folder.log" 2>&1 || { tail -3 "$folder.log"; return 1; }
}

unpack() { # FOLDER DEB...
  local into=$1 deb
  shift
  for deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$into"; done
}

# need_qemu NAME: the static user-mode emulator $work/qemu/qemu-NAME, taken from this machine or out of Debian's package.
need_qemu() {
  local name=qemu-$1 found
  mkdir -p "$work/qemu"
  [ -x "$work/qemu/$name" ] && return
  if found=$(command -v "$name-static"); then
    ln -sf "$found" "$work/qemu/$name"
    return
  fi
  prepare_apt || return 1
  (cd "$work/apt" && { ls qemu-user-static_*.deb >/dev/null 2>&1 || own_apt apt-get download qemu-user-static; }) || return 1
  dpkg-deb --fsys-tarfile "$work"/apt/qemu-user-static_*.deb | tar -x -C "$work/qemu" --strip-components=3 \
    --transform 's/-static$//' "./usr/bin/$name-static"
}

# fetch_programs FOLDER PACKAGE PROGRAM...: programs of this machine's kind out of Debian's packages, each run by FOLDER/PROGRAM.
fetch_programs() {
  local at=$1 package=$2 name
  shift 2
  if [ ! -e "$at/made" ]; then
    prepare_apt && fetch_debs amd64 "$at-debs" "$package" || return 1
    rm -rf "$at" && mkdir -p "$at" && unpack "$at" "$at"-debs/*.deb && rm -rf "$at-debs" && touch "$at/made"
  fi
  for name; do
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s/usr/bin/%s" "$@"\n' "$(find "$at" -name ld-linux-x86-64.so.2 | head -1)" \
      "$at/lib/x86_64-linux-gnu:$at/usr/lib/x86_64-linux-gnu" "$at" "$name" >"$at/$name"
    chmod +x "$at/$name"
  done
}

# need_system NAME: `board_qemu` is the emulator of whole machines of that kind (arm, aarch64).
need_system() {
  board_qemu=$(command -v "qemu-system-$1" || true)
  [ -z "$board_qemu" ] || return 0
  fetch_programs "$work/boards" qemu-system-arm qemu-system-arm qemu-system-aarch64 || return 1
  board_qemu=$work/boards/qemu-system-$1
  "$board_qemu" --version >/dev/null
}
