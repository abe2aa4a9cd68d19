#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make test-boards`: boots an emulated machine with the device tree and the files of a board, and visits it. See README.md.
#
# In: the work tree, Debian's archive, PyPI, tests/fixtures/machines. Out: exit 0, or 1 with what was wrong; all files
# lie below build/aarch64. BOARDS and PAGES choose what is booted, UNITS=no leaves
# the unit tests out; RECORD=1 renews tests/fixtures/booted.
. "$(dirname "$0")/../aarch64/tools.sh"
. "$here/root.sh"
boards=$repo/tests/boards
. "$boards/kernel.sh"
: >"$skipped"
visits=$work/visits
chosen=${BOARDS:-orin-agx orin-nano thor rk3588}
sizes=${PAGES:-4k 16k}
patience=${PATIENCE:-1500}

nothing() {
  skip "THE BOOTED BOARDS: $*"
  exit 0
}

# board NAME: the machine that is emulated: name of its target, cores and CPU; the rest is in tests/fixtures/machines
board() {
  case $1 in
    orin-agx) target=orin cores=12 cpu=cortex-a76 emulator=$board_qemu ;;
    orin-nano) target=orin-nano cores=6 cpu=cortex-a76 emulator=$board_qemu ;;
    thor) target=thor cores=14 cpu=neoverse-n2 emulator=$board_newer ;;
    rk3588) target=rk3588 cores=8 cpu=cortex-a76 emulator=$board_qemu ;;
    *) echo "boards: $1 is none of orin-agx, orin-nano, thor, rk3588" >&2; exit 2 ;;
  esac
}

make_packages() {
  # the emulated boards have no GPU: a package for the CPU alone, whatever plugins are installed here
  local tool=$repo/.venv/bin/dpfedge at=$work/packages DPFEDGE_PLUGINS=cpu
  export DPFEDGE_PLUGINS
  rm -rf "$at" && mkdir -p "$at"
  "$tool" models pull silero-vad >/dev/null || return 1
  rm -f "$work"/boards.{key,pub}
  "$tool" keygen --name boards -o "$work/boards.key" --trust "$at/trust" >/dev/null
  "$tool" compile "$boards/ears.yaml" -o "$at/own.dpfbin" --board orin --board orin-nano --board thor --board rk3588 \
    --sign "$work/boards.key" >/dev/null
  "$tool" compile "$boards/ears.yaml" -o "$at/other.dpfbin" --board imx95 --sign "$work/boards.key" >/dev/null
}

# One image for all boards: the userland of `make test-aarch64`, two packages, and tests that find their files as in the tree.
make_image() {
  local at=$work/image
  rm -rf "$at" && mkdir -p "$at/etc" "$at/tests"
  cp -a --reflink=auto "$work"/root/. "$at/" && rm -rf "$at"/{faces,cpuinfo.*}
  cp -r "$work"/packages/. "$at/"
  cp "$boards/visit.sh" "$at/"
  tests_of "$at/tests"
  cp "$here/emulated.py" "$boards/selection" "$at/tests/"
  rm -f "$work/image.ext4"
  mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -m 0 -d "$at" "$work/image.ext4" $(($(du -sk "$at" | cut -f1) * 6 / 5 + 32768))k
  rm -rf "$at"
}

# The board's device tree is the emulated machine's, with the board's names in it.
make_tree() { # BOARD FILE MACHINE...
  local names=$repo/tests/fixtures/machines/$1/proc/device-tree dtb=$2
  shift 2
  "$emulator" "$@" -M "virt,gic-version=3,dumpdtb=$dtb" >/dev/null 2>&1
  mapfile -d '' -t compatible <"$names/compatible"
  "$work/dtc/fdtput" -t s "$dtb" / compatible "${compatible[@]}"
  "$work/dtc/fdtput" -t s "$dtb" / model "$(tr -d '\0' <"$names/model")"
  "$work/dtc/fdtput" -t s "$dtb" / serial-number 0123456789
}

# What the board's drivers would show; what a kernel itself says of cores, memory and itself is the booted one's to say.
make_files() { # BOARD FOLDER
  local from=$repo/tests/fixtures/machines/$1 path
  (cd "$from" && find sys proc/driver etc -type f 2>/dev/null || true) | grep -vE '^sys/(fs/cgroup|devices/system/cpu/(online|present))' |
    while read -r path; do
      mkdir -p "$2/${path%/*}" && cp "$from/$path" "$2/$path"
    done
  mkdir -p "$2/sys"
}

visit() { # BOARD PAGES WORDS FOR THE KERNEL
  local name=$1 pages=$2 words=$3 at=$visits/$1-$2 machine
  board "$name"
  rm -rf "$at" && mkdir -p "$at/board" "$at/results"
  machine=(-cpu "$cpu" -smp "$cores" -m 3072 -nic none -display none)
  make_tree "$name" "$at/board.dtb" "${machine[@]}"
  make_files "$name" "$at/board"
  "$py" "$boards/initramfs.py" --modules "$kernels/$pages/modules" --busybox "$work/root/usr/bin/busybox" \
    --init "$boards/init.sh" --add "$at/board:board" --out "$at/initrd"
  truncate -s 32M "$at/results.tar"
  timeout "$patience" "$emulator" -M virt,gic-version=3 "${machine[@]}" -serial "file:$at/console" -monitor none -no-reboot \
    -kernel "$kernels/$pages/vmlinuz" -initrd "$at/initrd" -dtb "$at/board.dtb" -append "console=ttyAMA0 panic=-1 quiet nowatchdog rcupdate.rcu_cpu_stall_suppress=1 $words" \
    -drive "if=none,file=$work/image.ext4,format=raw,id=root,readonly=on" -device virtio-blk-pci,drive=root,romfile= \
    -drive "if=none,file=$at/results.tar,format=raw,id=out" -device virtio-blk-pci,drive=out,romfile= </dev/null ||
    echo "boards: $name-$pages: the emulator ended with exit code $?" >&2
  tar -x -f "$at/results.tar" -C "$at/results" 2>/dev/null || { tail -20 "$at/console" >&2; return 1; }
  echo "$target" >"$at/target"
  rm -f "$at/results.tar" "$at/initrd"
  say "$name, pages of $pages, Linux $(cat "$kernels/$pages/release")"
}

[ "$(uname -m)" = x86_64 ] || nothing "this machine is $(uname -m); the emulator is fetched for x86-64"
command -v mke2fs >/dev/null || nothing "no mke2fs here (package e2fsprogs)"
need_qemu aarch64 >"$work/qemu.log" 2>&1 && need_system aarch64 >>"$work/qemu.log" 2>&1 ||
  nothing "no qemu-system-aarch64 here and none to be fetched ($(tail -1 "$work/qemu.log"))"
fetch_programs "$work/dtc" device-tree-compiler fdtput || nothing "no fdtput, and no package device-tree-compiler to be fetched"
for pages in $sizes; do
  case $pages in 4k) flavour=cloud-arm64 ;; 16k) flavour=arm64-16k ;; *) echo "boards: PAGES is 4k or 16k" >&2; exit 2 ;; esac
  fetch_kernel "$pages" "$flavour" || nothing "no kernel with pages of $pages to be fetched"
done
need_newer >"$work/qemu.log" 2>&1 || nothing "no emulator of Armv9 cores to be fetched ($(tail -1 "$work/qemu.log"))"
bash "$here/wheels.sh" || { echo "boards: no wheels could be made" >&2; exit 1; }
say "emulators: $("$board_newer" --version | head -1), $("$board_qemu" --version | head -1)"
make_root && fill_root || { echo "boards: no userland could be made" >&2; exit 1; }
make_packages || { echo "boards: the packages could not be compiled" >&2; exit 1; }
make_image
say "image: $(stat -c %s "$work/image.ext4") bytes"

rm -rf "$visits"
wanted=() tested=()
for pages in $sizes; do
  words=visit=units
  [ "${UNITS:-yes}" = yes ] || words=
  for name in $chosen; do
    wanted+=("$name-$pages")
    [ -z "$words" ] || tested+=("$name-$pages")
    visit "$name" "$pages" "$words" || echo "boards: $name-$pages left nothing" >&2
    words=
  done
done
VISITS=$visits WANTED=${wanted[*]} TESTED=${tested[*]} "$py" -m pytest -p no:cacheprovider -q -rs "$boards/boards.py"
