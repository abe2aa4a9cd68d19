#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the routing core for other machines with clang, and runs the golden vectors on emulated ones: 64 bits, 32 bits, and
# one of the other byte order. eBPF: that the lookup compiles and calls nothing. Then cppcheck's opinion.
# What is not here is taken from Debian's packages, unpacked below the folder $1 (no root); what cannot be had is skipped
# with a line that says so. $CLANG names another clang.
set -euo pipefail
. "$(dirname "$0")/targets_tools.sh" "$1"

strict="-std=c11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wconversion -Werror -Iinclude -O2 -ffreestanding"
core="src/health.c src/route.c src/table.c"

if [ -z "$clang" ]; then
  echo "targets: SKIPPED, no clang here and Debian's packages cannot be fetched"
else
  for target in aarch64-linux-gnu x86_64-linux-gnu "armv7r-none-eabi -mcpu=cortex-r5" "thumbv7m-none-eabi -mcpu=cortex-m4"; do
    name=${target%% *}
    for source in $core; do
      $clang --target=$target $strict -c "$source" -o "$build/$name.o"
      if llvm=$(nm -u "$build/$name.o" 2>/dev/null | grep -v 'U dpf_'); then echo "$name: $source needs $llvm" && exit 1; fi
    done
    echo "targets: $name builds, needs nothing from outside"
  done
  $clang --target=bpf $strict -g -c tests/route_bpf.c -o "$build/bpf.o"
  echo "targets: bpf compiles the lookup"
fi

in_kernel() { # BPFTOOL: the kernel verifies the lookup and runs it on two golden keys, of 27 and of 252 bytes
  local at=$build/bpffs key
  mkdir -p "$at"
  trap 'umount "$build/bpffs" 2>/dev/null || true' EXIT
  mount -t bpf bpf "$at" 2>/dev/null || { echo "targets: bpf in the kernel SKIPPED, no right to mount a bpf filesystem"; return; }
  if $1 prog load "$build/bpf.o" "$at/route" pinmaps "$at" 2>"$build/bpf.log"; then
    for key in "61966 0a006c6c616d612d332d38620500616c696365007c291f94010000" \
      "53952 7800$(printf '6d%.0s' {1..120})7800$(printf '75%.0s' {1..120})0000000000000080"; do
      bytes=$(sed 's/../& /g' <<<"${key#* }")
      count=$(wc -w <<<"$bytes")
      $1 map update pinned "$at/sessions" key hex 0 0 0 0 value hex \
        $(printf '%x 0 0 0 0 0 0 0 ' "$count") $bytes $(yes 0 | head -$((256 - count)))
      $1 prog run pinned "$at/route" data_in <(head -c 64 /dev/zero) repeat 100000 >"$build/bpf.run"
      grep -q "Return value: ${key%% *}," "$build/bpf.run" || { cat "$build/bpf.run" && exit 1; }
      echo "targets: bpf in the kernel: a key of $count bytes, $(sed 's/.*average): //' "$build/bpf.run")"
    done
  elif grep -q 'Operation not permitted' "$build/bpf.log"; then
    echo "targets: bpf in the kernel SKIPPED, not permitted"
  else
    cat "$build/bpf.log" && exit 1
  fi
  umount "$at"
}

if [ -n "$clang" ] && [ "$(id -u)" = 0 ] && bpftool=$(tool bpftool bpftool); then in_kernel "$bpftool"
else echo "targets: bpf in the kernel SKIPPED, not root or no bpftool"; fi

alone() { # NAME QEMU LINKER PACKAGE OPTIONS
  local name=$1 qemu ld
  linker_and_emulator "$@" || return 0
  $clang --target=$5 -std=c11 -Wall -Wextra -Werror -Iinclude -O2 -ffreestanding -c tests/route_alone.c -o "$build/alone.o"
  for source in $core; do $clang --target=$5 $strict -c "$source" -o "$build/$(basename "$source").o"; done
  $ld -static "$build/alone.o" "$build"/{route,table}.c.o -o "$build/alone"
  $qemu "$build/alone" || { echo "targets: $name: golden vector $? is wrong" && exit 1; }
  echo "targets: $name: every golden vector, emulated"
}

if [ -n "$clang" ]; then
  alone aarch64 qemu-aarch64 aarch64-linux-gnu-ld binutils-aarch64-linux-gnu "aarch64-linux-gnu -fno-stack-protector"
  alone s390x-big-endian qemu-s390x s390x-linux-gnu-ld binutils-s390x-linux-gnu "s390x-linux-gnu -fno-stack-protector"
  alone arm-32-bit qemu-arm arm-linux-gnueabi-ld binutils-arm-linux-gnueabi "armv7a-linux-gnueabi -marm -mfloat-abi=soft"
fi

cppcheck_clean $core
