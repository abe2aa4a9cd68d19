#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the Python of build/aarch64/root: `enter.sh ARGUMENTS OF PYTHON`. Two forms, both without root:
#   namespace  own user, mount and process namespaces, chroot, and a binfmt_misc of their own (Linux 6.7): as on a device
#   prefix     qemu -L over the root's files: where namespaces are not allowed
#
# Environment: ARM_FORM (namespace|prefix), ARM_CPU (cortex-a76), ARM_CPUINFO (the CPU's, or another file of the root, or
# none), ARM_SYS (yes|no), ARM_PAGE (16384), ARM_FACE (plain, or orin: its device tree), ARM_BIND (a folder: /work in the
# first form, where it is in the second), ARM_KEEP (names of variables to hand on). It leaves nothing behind.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$here/../.." && pwd)/build/aarch64
root=$work/root
cpu=${ARM_CPU:-cortex-a76}
python=/usr/bin/$(basename "$(ls "$root"/usr/bin/python3.[0-9]* | grep -E '3\.[0-9]+$' | head -1)")
face=${ARM_FACE:-plain}
settings=("QEMU_CPU=$cpu" ORT_DISABLE_TELEMETRY=1 HOME=/tmp LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 TMPDIR=/tmp)
for name in ${ARM_KEEP:-}; do settings+=("$name=${!name:-}"); done
[ -z "${ARM_PAGE:-}" ] || settings+=("QEMU_PAGESIZE=$ARM_PAGE")

inside() { # in the namespaces: this process is number 1 of its own
  mount -t proc proc "$root/proc"
  mount -t binfmt_misc binfmt_misc "$root/proc/sys/fs/binfmt_misc"
  # F: the emulator is opened now, outside of the root
  printf '%s' ':arm:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$work/qemu/qemu-aarch64:PF" \
    >"$root/proc/sys/fs/binfmt_misc/register"
  mount --rbind /dev "$root/dev"
  [ "${ARM_SYS:-yes}" = no ] || mount --rbind /sys "$root/sys"
  mount -t tmpfs tmpfs "$root/tmp"
  local text=${ARM_CPUINFO:-cpuinfo.$cpu}
  [ "$text" = none ] || mount --bind "$root/$text" "$root/proc/cpuinfo"
  [ -z "${ARM_BIND:-}" ] || mount --rbind "$ARM_BIND" "$root/work"
  settings+=("QEMU_LD_PREFIX=/faces/$face")
  cd "$root"
  # not exec: orphans belong to process 1, and would be Python's children
  env -i PATH=/usr/bin:/usr/sbin PYTHONPATH=/opt/site "${settings[@]}" \
    chroot . /bin/sh -c 'cd /work; exec "$@"' sh "$python" "$@"
}

prefix() {
  local text=${ARM_CPUINFO:-cpuinfo.$cpu} shell=$work/python shown=$work/prefix
  rm -rf "$shown" && mkdir -p "$shown"
  # the root's own empty folders would hide the machine's
  for name in usr lib bin opt etc; do [ ! -e "$root/$name" ] || ln -s "$root/$name" "$shown/$name"; done
  cp -r "$root/faces/$face/." "$shown/"
  [ "$text" = none ] || cp "$root/$text" "$shown/proc/cpuinfo"
  # an arm64 program cannot be started by its name here, so children get the emulator in front
  printf '#!/bin/sh\nexec "%s" -L "%s" "%s" "$@"\n' "$work/qemu/qemu-aarch64" "$shown" "$root$python" >"$shell"
  chmod +x "$shell"
  mkdir -p "$work/sitecustomize"
  printf 'import sys\nsys.executable = "%s"\n' "$shell" >"$work/sitecustomize/sitecustomize.py"
  cd "${ARM_BIND:-/}"
  exec env -i PATH="$PATH" PYTHONHOME="$root/usr" PYTHONPATH="$work/sitecustomize:$root/opt/site" "${settings[@]}" \
    "$shell" "$@"
}

case ${ARM_FORM:-} in
  inside) inside "$@" ;;
  prefix) prefix "$@" ;;
  *) ARM_FORM=inside exec unshare --user --map-root-user --mount --pid --fork --kill-child -- bash "$0" "$@" ;;
esac
