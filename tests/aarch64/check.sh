#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make test-aarch64`: from nothing to a tested aarch64 userland, without root. README.md says what is proven and what not.
#
# In: the work tree, PyPI and Debian's archive. Out: exit 0, or 1 when something failed; everything else lies below
# build/aarch64 and is used again. Where the emulator cannot be had nothing is tested, and a loud line says so.
. "$(dirname "$0")/tools.sh"
. "$here/root.sh"
: >"$skipped"
failed=()

finish() {
  [ ! -s "$skipped" ] || { printf '\n*** SKIPPED: what of this check was not done ***\n'; sed 's/^/  /' "$skipped"; }
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'aarch64: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
  fi
  say "done"
  exit 0
}

inside() { ARM_FORM=$form ARM_BIND=$tree timeout -k 2 "$1" bash "$here/enter.sh" "${@:2}"; }

tested() { # NAME SECONDS ARGUMENTS OF PYTEST
  local name=$1 seconds=$2
  shift 2
  inside "$seconds" -m pytest -p no:cacheprovider -p emulated -q -rs -m "not slow" --timeout 400 -o faulthandler_timeout=380 "$@" || failed+=("$name")
  say "$name"
}

# The form of its products that a wheel chooses on a CPU: this one, and those that are emulated.
forms() {
  local at=$work/forms
  rm -rf "$at" && "$py" -m zipfile -e "$repo"/dist/dpfedge_cpu-*_x86_64.whl "$at" || { failed+=("the x86 wheel of dpfedge-cpu"); return; }
  "$py" "$here/forms.py" "$at"/dpfedge_cpu/_kernels*.so || failed+=("the form of products on this CPU")
  [ ! -d "$work/avx2" ] || "$work/qemu/qemu-x86_64" -cpu Haswell-noTSX -L "$work/avx2" "$py" "$here/forms.py" "$at"/dpfedge_cpu/_kernels*.so \
    2> >(grep -v "TCG doesn't support" >&2) || failed+=("the form of products on Haswell")
  inside 120 forms.py || failed+=("the form of products on Cortex-A76")
  ARM_CPU=cortex-a72 inside 120 forms.py || failed+=("the form of products on Cortex-A72")
  say "forms of products"
}

# answers CODE TEXT ARGUMENTS: the command's exit code, and what it says; a signal is never an answer
answers() {
  local code=0 said wanted=$1 text=$2
  shift 2
  said=$(inside 240 -m dpfedge "$@" 2>&1) || code=$?
  if [ "$code" -ne "$wanted" ] || ! grep -q "$text" <<<"$said"; then
    failed+=("dpfedge $1 on ${ARM_CPU:-cortex-a76}, cpuinfo ${ARM_CPUINFO:-its own}, /sys ${ARM_SYS:-yes}: exit code $code")
    printf '%s\n' "$said" | tail -5 >&2
  fi
}

make_tree() {
  rm -rf "$tree" && mkdir -p "$tree"
  tests_of "$tree"
  cp "$here/userland.py" "$here/speech.py" "$here/emulated.py" "$here/forms.py" "$tree/"
}

make_package() {
  # an emulated board has no GPU: a package for the CPU alone, whatever plugins are installed here
  local tool=$repo/.venv/bin/dpfedge DPFEDGE_PLUGINS=cpu
  export DPFEDGE_PLUGINS
  "$tool" models pull silero-vad moonshine-tiny-en moonshine-speech-samples >/dev/null || return 1
  "$py" "$here/speech.py" "$tree/speech.wav" || return 1
  "$tool" keygen --name check -o "$work/check.key" --trust "$tree/trust" >/dev/null 2>&1 ||
    { rm -f "$work"/check.{key,pub}; "$tool" keygen --name check -o "$work/check.key" --trust "$tree/trust" >/dev/null; }
  # for the emulated board, for this machine, and for an x86 and an Arm CPU without 8-bit dot products: one file
  DPFEDGE_BOARDS=$here/boards "$tool" compile "$here/listen.yaml" -o "$tree/listen.dpfbin" --board orin --board host --board avx2 --board a72 \
    --sign "$work/check.key" >/dev/null
}

# The other sides of the parity report: this machine, and an emulated CPU on which sums of u8·s8 saturate.
other_sides() {
  local tool=$repo/.venv/bin/dpfedge said
  said=$("$py" "$here/speech.py")
  DPFEDGE_PLUGINS=cpu "$tool" verify "$tree/listen.dpfbin" --board host --trust "$tree/trust" --answers "$tree/x86.json" \
    --speech "$tree/speech.wav" "$said" >/dev/null || return 1
  if ! need_qemu x86_64 >"$work/qemu.log" 2>&1; then
    skip "an x86 without VNNI: no qemu-x86_64 here and none to be fetched"
    return
  fi
  mkdir -p "$work/avx2/proc"
  printf 'processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Haswell, emulated\nflags\t\t: %s\n\n' \
    "fpu lm sse2 cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave" >"$work/avx2/proc/cpuinfo"
  avx2() { env DPFEDGE_PLUGINS=cpu DPFEDGE_BOARDS="$here/boards" ORT_DISABLE_TELEMETRY=1 "$work/qemu/qemu-x86_64" \
    -cpu Haswell-noTSX -L "$work/avx2" "$py" "$@" 2> >(grep -v "TCG doesn't support" >&2); }
  avx2 "$here/saturating.py" >"$work/saturating" || return 1
  avx2 -m dpfedge verify "$tree/listen.dpfbin" --board avx2 --trust "$tree/trust" --answers "$tree/avx2.json" >/dev/null || return 1
  say "an x86 without VNNI: $(cat "$work/saturating")"
}

parity() { # A B
  local code=0
  [ -e "$tree/$1.json" ] || return 0
  "$repo/.venv/bin/dpfedge" verify --parity "$tree/$1.json" "$tree/$2.json" >"$work/parity-$1-$2" 2>&1 || code=$?
  cat "$work/parity-$1-$2"
  [ $code -eq 0 ] || failed+=("parity of $1 and $2")
  say "parity of $1 and $2: $work/parity-$1-$2"
}

bad_input() {
  local package=/work/listen.dpfbin
  [ "$form" = prefix ] && package=$tree/listen.dpfbin
  export ARM_FACE=orin
  ARM_CPUINFO=cpuinfo.host answers 3 "/proc/cpuinfo, which is of another CPU" verify "$package" --trust trust --run
  ARM_CPU=cortex-a72 ARM_CPUINFO=cpuinfo.cortex-a76 answers 3 "does not promise: asimddp" bind "$package"
  ARM_CPU=cortex-a72 answers 3 "wanted arch armv8.2-a; found armv8.0-a" bind "$package"
  ARM_CPU=cortex-a72 answers 3 "wanted arch armv8.2-a; found armv8.0-a" serve "$package" --trust trust --no-socket --port 0
  ARM_CPU=cortex-a72 answers 0 armv8.0-a probe
  local boards=/work/tests/aarch64/boards
  [ "$form" = prefix ] && boards=$tree/tests/aarch64/boards
  DPFEDGE_BOARDS=$boards ARM_CPU=cortex-a72 answers 0 "pass" verify "$package" --trust trust --run --board a72
  if [ "$form" = prefix ]; then
    skip "a root without /sys: this form of the userland always shows the machine's"
  else
    ARM_SYS=no answers 0 "pass" verify "$package" --trust trust --run
    ARM_SYS=no ARM_CPUINFO=cpuinfo.host answers 0 "pass" verify "$package" --trust trust --run
  fi
  unset ARM_FACE
  say "a root without /sys, a foreign /proc/cpuinfo, a CPU without dot products"
}

if [ "$(uname -m)" = aarch64 ]; then
  skip "the emulated userland: this machine is aarch64 itself, so \`make test\` was the test"
  finish
fi
if ! need_qemu aarch64 >"$work/qemu.log" 2>&1; then
  skip "EVERYTHING ON AARCH64: no qemu-aarch64 here and none to be fetched ($(tail -1 "$work/qemu.log"))"
  finish
fi
if ! prepare_apt >"$work/qemu.log" 2>&1; then
  skip "EVERYTHING ON AARCH64: Debian's packages cannot be fetched ($(tail -1 "$work/qemu.log"))"
  finish
fi
bash "$here/wheels.sh" || { echo "aarch64: no wheels could be made" >&2; exit 1; }
say "qemu: $("$work/qemu/qemu-aarch64" --version | head -1)"
make_root && fill_root || { echo "aarch64: no userland could be made" >&2; exit 1; }
make_faces
say "userland: $(python_of), $(ls -d "$work"/root/opt/site/*.dist-info | wc -l) packages, none compiled here"

form=
if ! ARM_BIND=$work bash "$here/enter.sh" -c pass >"$work/form.log" 2>&1; then
  form=prefix
  skip "own namespaces: $(tail -1 "$work/form.log"); the other form, qemu -L, is used"
fi
tree=$work/tree
make_tree
make_package || { echo "aarch64: the package could not be compiled" >&2; exit 1; }

other_sides || failed+=("the package on x86")
{ bash "$here/core.sh" && bash "$here/wheels.sh" again; } >"$work/core.log" 2>&1 &
core=$!
trap 'kill "$core" 2>/dev/null || true' EXIT
export ARM_KEEP="DPF_PAGE DPFEDGE_BOARDS"
DPF_PAGE=4096 ARM_FACE=orin tested "a package on a device" 900 userland.py
tested "unit tests: core, link, kills, packages" 900 tests/unit/test_core.py tests/unit/link tests/unit/package
tested "unit tests: CPU backend, stage processes" 900 tests/unit/plugins/dpfedge_cpu \
  tests/unit/pipeline/test_zygote.py tests/unit/pipeline/test_supervisor.py
forms
ARM_CPU=cortex-a72 tested "products on a CPU without dot products" 600 tests/unit/plugins/dpfedge_cpu/test_kernels.py
DPF_PAGE=16384 ARM_PAGE=16384 ARM_FACE=orin tested "pages of 16 KiB" 900 userland.py tests/unit/link/test_arena.py \
  tests/unit/link/test_ring.py tests/unit/package/test_reader.py tests/unit/package/test_weights.py \
  -k "not killed_stage"
parity x86 arm-4096
parity avx2 arm-4096
parity arm-4096 arm-16384
bad_input
if [ -z "$form" ]; then
  form=prefix DPF_PAGE=4096 ARM_FACE=orin tested "the form without namespaces" 600 userland.py -k "machine or bind"
fi
wait "$core" || failed+=("the C core, or the wheels built again")
cat "$work/core.log"
finish
