#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the firmware's core for other machines with clang and with Debian's gcc-arm-none-eabi, and runs its golden vectors on emulated ones: 64 bits, 32 bits, and
# one of the other byte order. Then cppcheck's opinion. Cortex-M has no rings (no 64-bit atomics): there it is the core that
# speaks rpmsg. What cannot be had is skipped with a line that says so. $CLANG names another clang.
set -euo pipefail
. "$(dirname "$0")/targets_tools.sh" "$1"

flags="-std=c11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -Iinclude -Isrc -Ifirmware -Iclient -O2 -ffreestanding -nostdlib"
core="firmware/cepstra.c firmware/echo.c firmware/keyword.c firmware/rpmsg.c"
ring="firmware/core.c firmware/link_ring.c firmware/session.c"
rpmsg="firmware/core.c firmware/link_rpmsg.c"
dpf="src/arena.c src/requests.c src/ring.c src/ring_reclaim.c src/route.c"

# In the arena's sources compilers make calls of copies of structs, and 32 bits have no division of 64: every freestanding
# environment has these, from the compiler's own library.
allowed='U (__aeabi_)?(mem(cpy|set|clr)[48]?|uldivmod)$'

# compile NAME COMPILER OPTIONS SOURCE...: nothing but dpf's and the port's symbols may be missing
compile() {
  local name=$1 compiler=$2 options=$3 source text=0 strict
  shift 3
  for source; do
    strict=-Wconversion
    [[ $source != src/* ]] || strict=
    $compiler $flags $strict $options -c "$source" -o "$build/fw.o"
    foreign=$(nm -u "$build/fw.o" | grep -v 'U dpf_' || true)
    [[ $source != src/* ]] || foreign=$(grep -vE "$allowed" <<<"$foreign" || true)
    if [ -n "$foreign" ]; then echo "targets: firmware on $name: $source needs$foreign" && exit 1; fi
    text=$((text + $(size "$build/fw.o" | awk 'NR == 2 { print $1 }')))
  done
  echo "targets: firmware on $name builds, needs nothing from outside: $text bytes"
}

# alone NAME QEMU LINKER PACKAGE TARGET
alone() {
  local name=$1 qemu ld source objects=()
  linker_and_emulator "$@" || return 0
  for source in tests/firmware_alone.c tests/test_firmware_golden.c $core $rpmsg src/route.c; do
    objects+=("$build/alone-$(basename "$source").o")
    $clang --target=$5 ${flags/-nostdlib/} -DDPF_FW_RPMSG -isystem ../tests/aarch64/bare -c "$source" -o "${objects[-1]}"
  done
  $ld -static "${objects[@]}" -o "$build/fw-alone"
  timeout 120 $qemu "$build/fw-alone" || { echo "targets: firmware on $name: a golden vector is wrong" && exit 1; }
  echo "targets: firmware on $name: every golden vector, emulated"
}

if [ -z "$clang" ]; then
  echo "targets: firmware SKIPPED, no clang here and Debian's packages cannot be fetched"
else
  for target in x86_64-linux-gnu "aarch64-linux-gnu -mno-outline-atomics" "armv7r-none-eabi -mcpu=cortex-r5" "armv8r-none-eabi -mcpu=cortex-r52"; do
    compile "${target%% *}, rings" "$clang --target=$target" "" $core $ring $dpf
  done
  for target in "armv7r-none-eabi -mcpu=cortex-r5" "thumbv7m-none-eabi -mcpu=cortex-m3" "thumbv7em-none-eabi -mcpu=cortex-m4" \
    "thumbv7em-none-eabi -mcpu=cortex-m7" "thumbv8m.main-none-eabi -mcpu=cortex-m33"; do
    compile "${target#*-mcpu=}, rpmsg" "$clang --target=$target" -DDPF_FW_RPMSG $core $rpmsg src/route.c
  done
  alone aarch64 qemu-aarch64 aarch64-linux-gnu-ld binutils-aarch64-linux-gnu "aarch64-linux-gnu -fno-stack-protector -mno-outline-atomics"
  alone s390x-big-endian qemu-s390x s390x-linux-gnu-ld binutils-s390x-linux-gnu "s390x-linux-gnu -fno-stack-protector"
  alone arm-32-bit qemu-arm arm-linux-gnueabi-ld binutils-arm-linux-gnueabi "armv7a-linux-gnueabi -mcpu=cortex-a15 -marm -mfloat-abi=soft"
fi

if gcc=$(tool arm-none-eabi-gcc gcc-arm-none-eabi binutils-arm-none-eabi); then
  for cpu in "cortex-m3 -mthumb" "cortex-m4 -mthumb -mfloat-abi=soft" "cortex-m33 -mthumb -mfloat-abi=soft" "cortex-r5 -mfloat-abi=soft"; do
    compile "${cpu%% *} by gcc, rpmsg" "$gcc -mcpu=$cpu" -DDPF_FW_RPMSG $core $rpmsg src/route.c src/table.c src/health.c
  done
  compile "cortex-r5 by gcc, rings" "$gcc -mcpu=cortex-r5 -mfloat-abi=soft" "" $core $ring $dpf
else
  echo "targets: firmware by gcc-arm-none-eabi SKIPPED, not here and Debian's package cannot be fetched"
fi

cppcheck_clean -Isrc -Ifirmware -Iclient $core $ring firmware/link_rpmsg.c firmware/bridge.c
