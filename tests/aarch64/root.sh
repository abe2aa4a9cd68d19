# SPDX-License-Identifier: Apache-2.0
# Sourced: build/aarch64/root, an unpacked Debian userland for aarch64 with Python, the wheels and the tests' own packages.
#
# In: Debian's archive and PyPI. Out: files only; no arm64 program is run to make it, nothing is installed on this machine.

python_of() { basename "$(ls "$work"/root/usr/bin/python3.[0-9]* | grep -E '3\.[0-9]+$' | head -1)"; }

make_root() {
  [ -f "$work/root/made" ] && cmp -s "$here/root.sh" "$work/root/made" && return
  prepare_apt || return 1
  local root=$work/root
  fetch_debs arm64 "$work/debs" python3 libstdc++6 busybox-static || return 1
  rm -rf "$root"
  mkdir -p "$root"/usr/{bin,sbin,lib} "$root"/{proc,sys,dev,tmp,work,opt/site}
  for name in bin sbin lib; do ln -s "usr/$name" "$root/$name"; done
  unpack "$root" "$work"/debs/*.deb
  rm -rf "$root"/usr/share/{doc,man,locale}
  for name in sh env ls cat sleep true kill; do [ -e "$root/usr/bin/$name" ] || ln -s busybox "$root/usr/bin/$name"; done
  cp "$here/root.sh" "$root/made"
}

# The packages by this machine's pip: the guest needs no compiler, no network and no second minute.
fill_root() {
  local site=$work/root/opt/site key python
  python=$(python_of)
  key=$(cat "$repo"/dist/dpfedge*.whl "$repo/requirements.lock" "$here/root.sh" | sha256sum)
  [ "$(cat "$site/.key" 2>/dev/null)" = "$key" ] && return
  rm -rf "$site" && mkdir -p "$site"
  # the versions that are locked for everybody, without the hashes of this architecture's files
  "$py" "$here/versions.py" "$repo/requirements.lock" "${python#python}" >"$work/versions.txt"
  "$py" -m pip install -qq --disable-pip-version-check --no-compile --target "$site" --only-binary=:all: \
    --implementation cp --python-version "${python#python}" \
    $(printf -- '--platform manylinux_2_%s_aarch64 ' 36 35 34 31 28 27 26 24 17) --platform manylinux2014_aarch64 \
    -c "$work/versions.txt" "$repo"/dist/dpfedge*_aarch64.whl "$repo"/dist/dpfedge_*-none-any.whl \
    onnx packaging pytest pytest-timeout hypothesis httpx jsonschema gguf safetensors || return 1
  echo "$key" >"$site/.key"
}

# Files that stand before the machine's own: what the kernel says of its architecture, and the device tree of a board.
make_faces() {
  local faces=$work/root/faces name
  for name in plain orin; do
    mkdir -p "$faces/$name/proc/sys/kernel"
    echo aarch64 >"$faces/$name/proc/sys/kernel/arch"
  done
  mkdir -p "$faces/orin/proc/device-tree"
  printf 'nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0' >"$faces/orin/proc/device-tree/compatible"
  printf 'NVIDIA Jetson AGX Orin Developer Kit\0' >"$faces/orin/proc/device-tree/model"
  cpuinfo 0xd0b "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp" >"$work/root/cpuinfo.cortex-a76"
  cpuinfo 0xd08 "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid" >"$work/root/cpuinfo.cortex-a72"
  cat /proc/cpuinfo >"$work/root/cpuinfo.host"
}

cpuinfo() { # PART FEATURES
  local core
  for core in $(seq 0 $(($(nproc) - 1))); do
    printf 'processor\t: %d\nBogoMIPS\t: 62.50\nFeatures\t: %s\nCPU implementer\t: 0x41\nCPU architecture: 8\n' "$core" "$2"
    printf 'CPU variant\t: 0x4\nCPU part\t: %s\nCPU revision\t: 1\n\n' "$1"
  done
}

# The tests and what they read of the repository, but not its Python modules: those come from the wheels.
tests_of() { # FOLDER
  (cd "$repo" && git ls-files -z tests boards examples pyproject.toml README.md LICENSE 'dpfedge/*.md' 'dpfedge/*.yaml' \
    'dpfedge/*.txt' 'plugins/*.md' plugins/dpfedge-cpu/{pyproject.toml,kernels} firmware_bridge | while IFS= read -r -d '' f; do [ -e "$f" ] && printf '%s\0' "$f"; done |
    tar -c --null -T -) | tar -x -C "$1"
}
