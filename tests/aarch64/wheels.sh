#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dist/ with the wheels of dpfedge (manylinux, x86-64 and aarch64, one for every Python from 3.11 on) and of its plugins.
#
# In: the work tree as it is. Out: the same bytes from the same files. It publishes nothing and signs nothing.
. "$(dirname "$0")/tools.sh"
glibc=2.28  # of RHEL 8 and Debian 10, and the oldest that onnxruntime's wheels know
out=$repo/dist
clean=$work/source

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
if [ "$(cat "$work/wheels.key" 2>/dev/null)" = "$key" ] && ls "$out"/dpfedge-*_aarch64.whl >/dev/null 2>&1; then
  say "wheels: the same files as before"
  exec "$py" "$here/wheel_check.py" "$out"/dpfedge*.whl
fi
rm -f "$out"/dpfedge*.whl "$work/wheels.key"

build() { # FOLDER [PLATFORM]
  local options=(-qq --disable-pip-version-check --no-deps --no-build-isolation -w "$out")
  [ $# -eq 1 ] || options+=(--config-settings "--build-option=--plat-name=$2")
  local log
  log=$(cd "$1" && rm -rf build ./*.egg-info && "$py" -m pip wheel "${options[@]}" . 2>&1) || { echo "$log" >&2; exit 1; }
}

# Flags that this machine's Python was built with and another architecture does not know are left out.
compiler() { # ARCH
  cat >"$work/cc-$1" <<END
#!/usr/bin/env bash
args=(); link=()
for a; do
  case \$a in -fcf-protection*|-march=*|-mtune=*|-m64|-specs=*|-g|-g[0-3]|-flto*|-L*|-Wl,-rpath*) ;; -shared) args+=("\$a" -s) ;; *) args+=("\$a") ;; esac
done
exec env ZIG_GLOBAL_CACHE_DIR="$work/zig-cache" ZIG_LOCAL_CACHE_DIR="$work/zig-cache" \
  "$work/zig/ziglang/zig" cc -target $1-linux-gnu.$glibc "\${args[@]}"
END
  chmod +x "$work/cc-$1"
}

for arch in x86_64 aarch64; do
  compiler "$arch"
  CC=$work/cc-$arch LDSHARED="$work/cc-$arch -shared" build "$clean" "manylinux_${glibc/./_}_$arch"
done
for plugin in "$clean"/plugins/*/pyproject.toml; do build "${plugin%/*}"; done
"$py" "$here/wheel_check.py" "$out"/dpfedge*.whl
echo "$key" >"$work/wheels.key"
