# SPDX-License-Identifier: Apache-2.0
# What the scripts that build for other machines share: `. tests/targets_tools.sh FOLDER`. Sets $here, $build and $clang (empty: none).
# What is not on the machine is taken from Debian's packages, unpacked below FOLDER (no root).
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
cd "$here"

fetch() { # PACKAGE...: into $build/debian
  mkdir -p "$build/debian/usr/bin" "$build/get"
  (cd "$build/get" && bash "$here/download.sh" "$build/lists" "$@" && for one in *.deb; do dpkg -x "$one" ../debian; done)
  local done=$?
  rm -rf "$build/get"
  return $done
}

tool() { # COMMAND PACKAGE...: the command, from the path or from Debian's packages
  local command=$1
  shift
  if command -v "$command"; then return; fi
  [ -e "$build/debian/usr/bin/$command" ] || fetch "$@" || true
  [ ! -x "$build/debian/usr/sbin/$command" ] || ln -sf "../sbin/$command" "$build/debian/usr/bin/$command"
  [ -x "$build/debian/usr/bin/$command" ] || return 1
  echo "env LD_LIBRARY_PATH=$build/debian/usr/lib/x86_64-linux-gnu:$build/debian/lib/x86_64-linux-gnu $build/debian/usr/bin/$command"
}

clang=${CLANG:-$(command -v clang || bash fuzz/clang.sh "$build/clang" 2>/dev/null || true)}

# linker_and_emulator NAME QEMU LINKER PACKAGE: sets $qemu and $ld; false, with a line, when one cannot be had
linker_and_emulator() {
  qemu=$(tool "$2" qemu-user-static || tool "$2-static" qemu-user-static) || { echo "targets: $1 SKIPPED, no $2" && return 1; }
  ld=$(tool "$3" "$4") || { echo "targets: $1 SKIPPED, no $3" && return 1; }
}

# cppcheck_clean SOURCE...: or ends with what it found
cppcheck_clean() {
  local cppcheck
  if ! cppcheck=$(tool cppcheck cppcheck libtinyxml2-9 libz3-4 libpcre3); then
    echo "targets: cppcheck SKIPPED, not here and Debian's package cannot be fetched" && return
  fi
  # unpacked elsewhere, it looks for its rules beside itself
  [ ! -d "$build/debian/usr/lib/x86_64-linux-gnu/cppcheck" ] || ln -sfn ../lib/x86_64-linux-gnu/cppcheck/cfg "$build/debian/usr/bin/cfg"
  # its own reasons are kept quiet only here: what a header offers need not be used by every file
  $cppcheck --quiet --std=c11 --language=c --enable=warning,style,performance,portability --error-exitcode=1 \
    --inline-suppr --suppress=unusedFunction --suppress=missingIncludeSystem --suppress=unusedStructMember -Iinclude \
    -D__SIZEOF_POINTER__=8 -D__BYTE_ORDER__=1234 -D__ORDER_LITTLE_ENDIAN__=1234 -D__ORDER_BIG_ENDIAN__=4321 "$@"
  echo "targets: cppcheck finds nothing"
}
