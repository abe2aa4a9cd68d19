#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The C core's own tests on other machines: aarch64 (glibc), s390x (big-endian), Cortex-R5, and Cortex-M without a system.
#
# In: firmware_bridge/tests as they are. Out: what they print, exit 1 at the first that fails. Cortex-R is its instruction
# set under Linux's system calls, Cortex-M0 its instruction set on the board of an M3: neither has a board here. `char` is
# signed on x86, where `make test` runs the same tests, and unsigned on all of these.
. "$(dirname "$0")/tools.sh"
kills=${KILLS:-200} stress=${STRESS:-20000}
bridge=$repo/firmware_bridge golden=$repo/tests/golden/v1

# cc NAME OPTIONS...: a compiler for make and for this script
cc() {
  local name=$1
  shift
  # frames of debuggers are of no use here and double the time
  printf '#!/bin/sh\nZIG_GLOBAL_CACHE_DIR="%s" ZIG_LOCAL_CACHE_DIR="%s" exec "%s" cc %s -g0 "$@"\n' \
    "$work/zig-cache" "$work/zig-cache" "$work/zig/ziglang/zig" "$*" >"$work/cc-$name"
  chmod +x "$work/cc-$name"
}

# core NAME EMULATOR TEST...: the tests of firmware_bridge/Makefile, built by it with the compiler cc-NAME
core() {
  local name=$1 emulator=$2 test arguments
  shift 2
  # musl's own macros compare numbers of different signs
  make -s -C "$bridge" BUILD="$work/core-$name" CC="$work/cc-$name" CFLAGS="-O2 -Wno-sign-compare" "${@/#/$work/core-$name/plain/test_}"
  for test; do
    arguments=
    case $test in package) arguments=$golden ;; stress) arguments=$stress ;; kill) arguments=$kills ;; esac
    # shellcheck disable=SC2086
    timeout 300 $emulator "$work/core-$name/plain/test_$test" $arguments || { echo "core: $name: test_$test failed" >&2; exit 1; }
  done
  say "core on $name: $*"
}

# The tests there are, whatever they will be called, without those of a name.
tests_but() {
  local found
  found=$(cd "$bridge/tests" && ls test_*.c | sed 's/^test_//; s/\.c$//')
  echo "$found" | grep -vxE "$1"
}

big_endian_refuses() {
  if "$work/cc-s390x" -std=c11 -I"$bridge/include" -c "$bridge/src/ring.c" -o /dev/null 2>"$work/refused"; then
    echo "core: the link compiled for a big-endian machine" >&2
    exit 1
  fi
  grep -q 'layout is little-endian' "$work/refused" || { cat "$work/refused" >&2; exit 1; }
  say "core on s390x: the link refuses to compile: $(grep -o "shared memory.*" "$work/refused" | head -1)"
}

bare() { # CPU CODE RAM BOARD TEST...
  local name=$1 code=$2 ram=$3 board=$4 test elf flags sources
  shift 4
  flags=(-std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-unwind-tables -Ifirmware -DDPF_FW_RPMSG)
  { echo "CODE = $code; RAM = $ram;" && cat "$here/bare/board.ld"; } >"$work/board-$name.ld"
  cc "$name" -target thumb-freestanding-eabi "-mcpu=$name"
  for test; do
    elf=$work/bare-$name-$test.elf
    case $test in
      package) sources=(tests/test_package.c src/package_*.c) ;;
      health) sources=(tests/test_health.c src/health.c) ;;
      # the ring counts in atomic numbers of 64 bits, which no Cortex-M has
      route) sources=("$here/bare/route.c" src/route.c src/table.c) ;;
      # nor the rings: the core that speaks rpmsg
      firmware) sources=(tests/test_firmware_golden.c firmware/{core,cepstra,echo,keyword,link_rpmsg,rpmsg}.c src/route.c) ;;
    esac
    # shellcheck disable=SC2068
    (cd "$bridge" && "$work/cc-$name" "${flags[@]}" -isystem "$here/bare" -Iinclude -Isrc -Itests "$here/bare/start.c" ${sources[@]} \
      "-Wl,-T,$work/board-$name.ld" -o "$elf")
    (cd "$golden" && timeout 300 "$board_qemu" -M "$board" -nographic -nic none -semihosting-config enable=on,target=native \
      -kernel "$elf" </dev/null 2>&1 | grep -v 'nic.*no peer') || { echo "core: $name: $test failed" >&2; exit 1; }
  done
  say "core on $name ($board, no operating system): $*"
}

fetch_zig
cc aarch64 -target aarch64-linux-gnu.2.28
core aarch64 "$work/qemu/qemu-aarch64 -cpu cortex-a72 -L $work/root" $(tests_but none)
QEMU_PAGESIZE=16384 core aarch64 "$work/qemu/qemu-aarch64 -cpu cortex-a76 -L $work/root" ring hostile kill
if [ "${1:-}" = quick ]; then exit; fi

if need_qemu s390x; then
  cc s390x -target s390x-linux-musl -static
  core s390x "$work/qemu/qemu-s390x" package
  (cd "$bridge" && "$work/cc-s390x" -std=c11 -O2 -Wall -Wextra -Werror -Iinclude -Itests "$here/bare/route.c" src/route.c src/table.c \
    -o "$work/core-s390x/route")
  "$work/qemu/qemu-s390x" "$work/core-s390x/route" || { echo "core: s390x: route failed" >&2; exit 1; }
  say "core on s390x: route"
  big_endian_refuses
else
  skip "s390x (big-endian): no qemu-s390x here and none to be fetched"
fi
if need_qemu arm; then
  cc cortex-r5 -target arm-linux-musleabi -mcpu=cortex_r5 -static
  core cortex-r5 "$work/qemu/qemu-arm -cpu cortex-r5" $(tests_but "none")
else
  skip "Cortex-R5: no qemu-arm here and none to be fetched"
fi
if need_system arm; then
  bare cortex_m0 0x0 0x20000000 mps2-an385 package health
  bare cortex_m4 0x0 0x20000000 mps2-an386 package health route firmware
  bare cortex_m33 0x10000000 0x38000000 mps2-an505 package health route firmware
else
  skip "Cortex-M: no qemu-system-arm here and none to be fetched"
fi
