#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the eBPF programs into the folder $1, one object for machines of either kind: eBPF has one instruction set.
# Below $2 lies what had to be fetched from Debian's packages, without root: clang where there is none, libbpf's headers.
# $CLANG names another clang. $3: a folder of programs beside these, `bench`, that are not shipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" "$2"
out=$(cd "$1" && pwd) build=$(cd "$2" && pwd)

clang=${CLANG:-$(command -v clang || bash "$here/../fuzz/clang.sh" "$build/targets/clang")}
headers=/usr/include
if [ ! -e $headers/bpf/bpf_helpers.h ]; then
  headers=$build/ebpf/usr/include
  if [ ! -e "$headers/bpf/bpf_helpers.h" ]; then
    mkdir -p "$build/ebpf/get"
    (cd "$build/ebpf/get" && bash "$here/../download.sh" "$build/lists" libbpf-dev linux-libc-dev &&
      for one in *.deb; do dpkg -x "$one" ..; done)
    rm -rf "$build/ebpf/get"
  fi
fi
asm=("$headers"/*-linux-gnu)

cd "$here"
for source in "${3:-.}"/*.bpf.c; do
  object=$out/$(basename "${source%.c}").o
  # -g: libbpf reads the types of maps from it
  $clang --target=bpfel -std=gnu11 -O2 -g -ffreestanding -Wall -Wextra -Wshadow -Werror -fdebug-compilation-dir=. \
    -I. -I../include -I"$headers" -I"${asm[0]}" -ffile-prefix-map="$build"=build -c "$source" -o "$object.new"
  mv "$object.new" "$object"
  echo "bpf: $(basename "$object"), $(stat -c %s "$object") bytes"
done
