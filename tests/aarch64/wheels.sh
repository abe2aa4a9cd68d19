#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dist/ with the wheels of dpfedge and its plugins. Those with compiled modules are manylinux, x86-64 and aarch64, one for
# every Python from 3.11 on.
#
# In: the work tree as it is. Out: the same bytes from the same files; `wheels.sh again` builds them once more in another
# folder, leaves dist/ alone and fails where a byte differs. It publishes nothing and signs nothing.
. "$(dirname "$0")/tools.sh"
glibc=2.28  # of RHEL 8 and Debian 10, and the oldest that onnxruntime's wheels know
again=${1:-}
out=$repo/dist clean=$work/source made=$work
[ -z "$again" ] || { made=$work/again && rm -rf "$made" && mkdir -p "$made" && out=$made/dist clean=$made/the/source; }

fetch_zig
export SOURCE_DATE_EPOCH=1704067200 PYTHONHASHSEED=0
rm -rf "$clean" && mkdir -p "$clean" "$out"
# a copy: an object file of another architecture that lies in build/ would be taken for this one's
(cd "$repo" && git ls-files -co --exclude-standard -z boards dpfedge firmware_bridge plugins pyproject.toml README.md LICENSE | while IFS= read -r -d '' f; do
  [ -e "$f" ] && printf '%s\0' "$f"
done | tar -c --null -T - ) | tar -x -C "$clean"
# with apt's lists of today: a machine whose own lists are old finds no headers
prepare_apt >&2 || { echo "wheels: the eBPF programs are compiled with packages of Debian, which cannot be fetched" >&2; exit 1; }
APT_CONFIG=$work/apt/conf bash "$repo/firmware_bridge/ebpf/build.sh" "$clean/dpfedge/routing/kernel" "$repo/firmware_bridge/build"
find "$clean" -type f -exec chmod a+r,go-w {} +

key=$({ (cd "$clean" && find . -type f -print0 | sort -z | xargs -0 sha256sum) && cat "$here/wheels.sh" "$here/tools.txt"; } | sha256sum)
if [ -z "$again" ] && [ "$(cat "$work/wheels.key" 2>/dev/null)" = "$key" ] && ls "$out"/dpfedge-*_aarch64.whl >/dev/null 2>&1; then
  say "wheels: the same files as before"
  exec "$py" "$here/wheel_check.py" "$out"/dpfedge*.whl
fi
[ -z "$again" ] || [ "$(cat "$work/wheels.key" 2>/dev/null)" = "$key" ] ||
  { echo "wheels: dist/ is not of these files; make wheels first" >&2; exit 1; }
rm -f "$out"/dpfedge*.whl
[ -n "$again" ] || rm -f "$work/wheels.key"

build() { # FOLDER [PLATFORM]
  local options=(-qq --disable-pip-version-check --no-deps --no-build-isolation -w "$out")
  [ $# -eq 1 ] || options+=(--config-settings "--build-option=--plat-name=$2")
  local log
  log=$(cd "$1" && rm -rf build ./*.egg-info && "$py" -m pip wheel "${options[@]}" . 2>&1) || { echo "$log" >&2; exit 1; }
}

# Flags that this machine's Python was built with and another architecture does not know are left out. Clang takes the
# products of pairs of AVX-512 VNNI apart unless it tunes for a CPU that it knows to be good at them.
compiler() { # ARCH
  local tune=
  [ "$1" != x86_64 ] || tune=-mtune=znver4
  cat >"$work/cc-$1" <<END
#!/usr/bin/env bash
args=(); link=()
for a; do
  case \$a in -fcf-protection*|-march=*|-mtune=*|-m64|-specs=*|-g|-g[0-3]|-flto*|-L*|-Wl,-rpath*) ;; -shared) args+=("\$a" -s) ;; *) args+=("\$a") ;; esac
done
exec env ZIG_GLOBAL_CACHE_DIR="$work/zig-cache" ZIG_LOCAL_CACHE_DIR="$work/zig-cache" \
  "$work/zig/ziglang/zig" cc -target $1-linux-gnu.$glibc $tune "\${args[@]}"
END
  chmod +x "$work/cc-$1"
}

# libdpfedge with its header and pkg-config file, which says where it lies by where it lies itself.
client() { # ARCH
  local at=$clean/dpfedge/_client log
  rm -rf "$at" && mkdir -p "$at"
  log=$(make -s -C "$clean/firmware_bridge" install BUILD="$made/client-$1" CC="$work/cc-$1" CFLAGS=-O2 PREFIX=/ DESTDIR="$at" 2>&1) ||
    { echo "$log" >&2; exit 1; }
  # a wheel has no links: the file under the name programs load, and under the one they are linked with
  rm "$at"/lib/libdpfedge.so "$at"/lib/libdpfedge.so.1
  cp "$at"/lib/libdpfedge.so.* "$at/lib/libdpfedge.so.1" && mv "$at"/lib/libdpfedge.so.?.* "$at/lib/libdpfedge.so"
  sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$at/lib/pkgconfig/dpfedge.pc"
  chmod -R a+rX,go-w "$at"
}

compiled=() plain=()
for folder in "$clean"/plugins/*/; do
  if grep -q ext-modules "$folder/pyproject.toml"; then compiled+=("${folder%/}"); else plain+=("${folder%/}"); fi
done
for arch in x86_64 aarch64; do
  compiler "$arch"
  client "$arch"
  for folder in "$clean" "${compiled[@]}"; do
    CC=$work/cc-$arch LDSHARED="$work/cc-$arch -shared" build "$folder" "manylinux_${glibc/./_}_$arch"
  done
done
for folder in "${plain[@]}"; do build "$folder"; done
if [ -n "$again" ]; then
  for wheel in "$repo"/dist/dpfedge*.whl; do
    cmp "$wheel" "$out/${wheel##*/}" || { echo "wheels: ${wheel##*/} differs when it is built again" >&2; exit 1; }
  done
  say "wheels: built again in another folder, every byte the same"
  exit
fi
"$py" "$here/wheel_check.py" "$out"/dpfedge*.whl
echo "$key" >"$work/wheels.key"
